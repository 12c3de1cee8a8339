"""Classes of `tape_core.scipy.interpolate`: SciPy's values and arguments, and derivatives, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy_names import check, check_signature

theirs = pytest.importorskip("scipy.interpolate")
own = tc.scipy.interpolate

pytestmark = pytest.mark.each_backend

RNG = np.random.default_rng(0)
K = np.asarray([0.0, 0.7, 1.9, 2.4, 3.3, 4.1])
Y = np.asarray([0.3, 0.8, 0.4, 0.45, 1.1, 0.2])
ROWS = RNG.standard_normal((2, 6))
P = np.asarray([0.3, 1.1, 2.2, 3.9, 2.95])
Q = np.asarray([[0.4, 3.1], [-0.6, 4.6]])
GRID = (np.asarray([0.0, 0.8, 2.0]), np.asarray([-1.0, 0.5, 1.5, 2.5]))
V = RNG.standard_normal((3, 4))
POINTS = np.asarray([[0.3, -0.4], [1.3, 2.2], [0.7, 0.9]])
KNOTS = np.asarray([-0.4, 0.0, 0.3, 0.9, 1.4, 2.0, 2.6, 3.0, 3.3])


def called(name: str, *after: Any, nu: int | None = None, **options: Any) -> Callable[[Any], Callable[..., Any]]:
    def function(m: Any) -> Callable[..., Any]:
        def call(*xs: Any) -> Any:
            made = getattr(m, name)(*xs[:-1], *after, **options)
            return made(xs[-1]) if nu is None else made(xs[-1], nu)

        return call

    return function


SPLINES = ("CubicSpline", "PchipInterpolator", "Akima1DInterpolator")
CASES: dict[str, tuple[Callable[[Any], Callable[..., Any]], tuple[Any, ...]]] = {
    **{name: (called(name), (K, Y, P)) for name in SPLINES},
    **{f"{name}, axis": (called(name, axis=1, extrapolate=True), (K, ROWS, Q)) for name in SPLINES},
    **{f"{name}, slope": (called(name, nu=1), (K, Y, P)) for name in SPLINES},
    **{f"{name}, two": (called(name), (K[:2], Y[:2], P[:1])) for name in SPLINES},
    **{f"{name}, three": (called(name), (K[:3], Y[:3], P[:2])) for name in SPLINES},
    "PchipInterpolator, monotone": (called("PchipInterpolator"), (K, np.sort(Y) ** 3, P)),
    "Akima1DInterpolator, makima": (called("Akima1DInterpolator", method="makima"), (K, Y, P)),
    **{
        f"CubicSpline, {kind} {n}": (called("CubicSpline", bc_type=kind), (K[:n], Y[:n], P[:2] * 0.6))
        for kind in ("natural", "clamped", ((1, 0.3), (2, -0.4)), ((2, 0.5), "not-a-knot"))
        for n in (2, 3, 6)
        if not (n == 2 and "not-a-knot" in kind)
    },
    "CubicSpline, periodic": (
        lambda m: lambda k, y, x: m.CubicSpline(k, np.concatenate([y, y[:1]]), bc_type="periodic")(x),
        (K, Y[:5], Q),
    ),
    "CubicHermiteSpline": (called("CubicHermiteSpline"), (K, Y, Y[::-1], P)),
    "CubicHermiteSpline, axis": (called("CubicHermiteSpline", axis=-1, extrapolate=False), (K, ROWS, ROWS * 2, P)),
    "PPoly": (lambda m: lambda c, x, at: m.PPoly(c, x)(at), (RNG.standard_normal((3, 5)), K, Q)),
    "PPoly, periodic": (
        lambda m: lambda c, x, at: m.PPoly(c, x, "periodic", axis=1)(at, 1),
        (RNG.standard_normal((2, 3, 5)), K, Q),
    ),
    "PPoly, derivative": (lambda m: lambda k, y, x: m.CubicSpline(k, y).derivative(2)(x), (K, Y, P)),
    "PPoly, antiderivative": (lambda m: lambda k, y, x: m.CubicSpline(k, y).antiderivative()(x), (K, Y, P)),
    "PPoly, integrate": (lambda m: lambda k, y: m.CubicSpline(k, y).integrate(0.3, 3.1), (K, Y)),
    **{
        f"BSpline, {k} {nu}": (called("BSpline", k, nu=nu), (KNOTS, RNG.standard_normal(9 - k - 1), P * 0.7))
        for k, nu in ((0, 0), (1, 0), (2, 1), (3, 0), (3, 2))
    },
    "BSpline, axis": (called("BSpline", 3, False, 1), (KNOTS, RNG.standard_normal((2, 5)), P[:2])),
    "RegularGridInterpolator": (
        lambda m: lambda a, b, v, x: m.RegularGridInterpolator((a, b), v)(x),
        (*GRID, V, POINTS),
    ),
    "RegularGridInterpolator, outside": (
        lambda m: lambda v, x: m.RegularGridInterpolator(GRID, v, bounds_error=False, fill_value=None)(2 * x),
        (V, POINTS),
    ),
    "RegularGridInterpolator, fill": (
        lambda m: lambda v, x: m.RegularGridInterpolator(GRID, v, bounds_error=False, fill_value=0.3)(2 * x),
        (V[..., None] * [1.0, 2.0], POINTS),
    ),
    "RegularGridInterpolator, nearest": (
        lambda m: lambda v, x: m.RegularGridInterpolator(GRID, v, "nearest")(x),
        (V, POINTS),
    ),
    "interpn": (lambda m: lambda v, x: m.interpn(GRID, v, x), (V, POINTS)),
    **{
        f"interp1d, {kind}": (called("interp1d", kind, axis=0), (K, ROWS.T, P))
        for kind in ("linear", "nearest", "nearest-up", "previous", "next", "zero", "slinear", "cubic")
    },
    "interp1d, extrapolate": (called("interp1d", fill_value="extrapolate"), (K, ROWS, Q)),
    "interp1d, fill": (called("interp1d", bounds_error=False, fill_value=(0.2, -0.3)), (K, Y, Q)),
    "interp1d, unsorted": (called("interp1d"), (K[[2, 0, 1, 5, 4, 3]], Y, P)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_class_has_scipys_values_and_derivatives_however_it_is_run(name: str) -> None:
    function, arrays = CASES[name]
    check(function(own), function(theirs), *arrays, rtol=1e-8, slope=1e-5)


def test_each_class_is_checked_and_has_scipys_arguments() -> None:
    assert {*own.__all__} == {name.partition(",")[0] for name in CASES}
    for name in own.__all__:
        check_signature(getattr(own, name), getattr(theirs, name))


def test_what_does_not_go_is_refused_by_name() -> None:
    k, y = tc.asarray(K), tc.asarray(Y)
    with pytest.raises(NotImplementedError, match=r"scipy\.interpolate\.interp1d: kind='quadratic' has no counterpart"):
        own.interp1d(k, y, "quadratic")
    with pytest.raises(NotImplementedError, match="method='cubic'"):
        own.RegularGridInterpolator((k,), y, method="cubic")
    with pytest.raises(ValueError, match="a point is outside of the bounds; bounds_error=False"):
        own.interp1d(k, y)(7.0)
    with pytest.raises(ValueError, match="bc_type must be 'not-a-knot'"):
        own.CubicSpline(k, y, bc_type="free")
    with pytest.raises(ValueError, match="x must be a vector of 2 or more points"):
        own.PchipInterpolator(k[:3], y)
    assert np.isnan(tc.function(lambda x: own.interp1d(k, y)(x))(tc.asarray(7.0)).numpy()), (
        "in a trace no value is known"
    )


@pytest.mark.parametrize("name", ["CubicSpline", "interp1d"])
def test_scipys_own_class_names_the_counterpart(name: str) -> None:
    y = tc.Variable(Y)
    with tc.GradientTape(), pytest.warns(UserWarning, match=rf"tape_core\.scipy\.interpolate\.{name}, which has a d"):
        getattr(theirs, name)(K, y)
