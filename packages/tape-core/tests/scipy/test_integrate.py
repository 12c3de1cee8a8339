"""Functions of `tape_core.scipy.integrate`: SciPy's values and arguments, and derivatives, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy_names import check, check_signature

theirs = pytest.importorskip("scipy.integrate")
own = tc.scipy.integrate

pytestmark = pytest.mark.each_backend

RNG = np.random.default_rng(0)
Y = RNG.standard_normal(9)
ROWS = RNG.standard_normal((3, 6))
X = np.cumsum(RNG.uniform(0.2, 1.0, 9))
GRID = np.cumsum(RNG.uniform(0.2, 1.0, (3, 6)), axis=0)


def called(name: str, **options: Any) -> Callable[[Any], Callable[..., Any]]:
    return lambda m: lambda *xs: getattr(m, name)(*xs, **options)


CASES: dict[str, tuple[Callable[[Any], Callable[..., Any]], tuple[Any, ...]]] = {
    **{
        f"{name}, {n}": (called(name), (Y[:n], X[:n]))
        for name in ("trapezoid", "cumulative_trapezoid", "simpson")
        for n in (2, 3, 6, 9)
    },
    **{
        f"{name}, dx": (lambda m, name=name: lambda y: getattr(m, name)(y, dx=0.7, axis=0), (ROWS,))
        for name in ("trapezoid", "cumulative_trapezoid", "simpson")
    },
    **{f"{name}, grid": (called(name, axis=0), (ROWS, GRID)) for name in ("trapezoid", "simpson")},
    "cumulative_trapezoid, initial": (called("cumulative_trapezoid", initial=0), (Y, X)),
    "romb": (called("romb", dx=0.3), (Y,)),
    "romb, axis": (called("romb", axis=1), (ROWS[:, :5],)),
    "fixed_quad": (
        lambda m: lambda a, b, p: m.fixed_quad(lambda t, p: p * t**3 + t, a, b, args=(p,), n=4)[0],
        (0.3, 1.9, 0.7),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_has_scipys_values_and_derivatives_however_it_is_run(name: str) -> None:
    function, arrays = CASES[name]
    check(function(own), function(theirs), *arrays, rtol=1e-10)


def test_each_function_is_checked_and_has_scipys_arguments() -> None:
    assert {*own.__all__} == {name.partition(",")[0] for name in CASES}
    for name in own.__all__:
        check_signature(getattr(own, name), getattr(theirs, name))


def test_what_does_not_go_is_refused_by_name() -> None:
    y = tc.asarray(Y)
    with pytest.raises(NotImplementedError, match=r"scipy\.integrate\.romb: show=True has no counterpart"):
        own.romb(y, show=True)
    with pytest.raises(ValueError, match=r"y must have 2\*\*k \+ 1 values along its axis; it has 4"):
        own.romb(y[:4])
    with pytest.raises(ValueError, match="x must have one point for each of the 9 values"):
        own.simpson(y, y[:4])


def test_scipys_own_function_names_the_counterpart() -> None:
    with tc.GradientTape(), pytest.warns(UserWarning, match=r"tape_core\.scipy\.integrate\.simpson, which has a deriv"):
        theirs.simpson(tc.Variable(Y))
