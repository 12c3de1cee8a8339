"""Who takes values out of what a tape records is warned, unless it is the user's own code that says so."""

from __future__ import annotations

import math
import re
import statistics
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

LIBRARY = types.ModuleType("somelib")
exec(
    compile(
        "def call(f, *args):\n    return f(*args)\ndef item(t):\n    return t.item()\ndef mean(ts):\n"
        "    return sum(float(t) for t in ts) / len(ts)\n",
        "/usr/lib/python3/site-packages/somelib/numbers.py",
        "exec",
    ),
    LIBRARY.__dict__,
)


def warned(function: Callable[[Any], Any], value: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with tc.GradientTape(**options):
            function(value)
    return [str(w.message) for w in found]


TAKEN: list[Callable[[Any], Any]] = [
    # by an array's protocols
    np.asarray,
    lambda v: np.array([v, v]),
    lambda v: np.r_[v, v],
    lambda v: np.vectorize(math.sin)(v),
    lambda v: [].extend(np.asarray([1.0, 2.0]) + np.array(v)),
    lambda v: v.__array__(),
    np.from_dlpack,
    tc.from_dlpack,
    lambda v: v.__dlpack__(),
    # by a library's own code
    lambda v: LIBRARY.mean([v[0], v[1]] if isinstance(v, tc.Tensor) else v),
    lambda v: LIBRARY.item(v[0]),
    lambda v: LIBRARY.call(float, v[1]),
    lambda v: LIBRARY.call(math.sin, v[1]),
    lambda v: LIBRARY.call(np.from_dlpack, v),
    statistics.fmean,
]


@pytest.mark.parametrize("which", range(len(TAKEN)))
def test_values_taken_of_a_variable_or_a_result_are_a_warning(which: int) -> None:
    take = TAKEN[which]
    v = tc.Variable([1.0, 2.0])
    for function in (take, lambda v: take(v * 2.0)):
        messages = warned(function, v)
        assert messages
        assert all("no gradient comes back" in message for message in messages)


@pytest.mark.parametrize(
    "take",
    [lambda v: v.numpy(), lambda v: v.tolist(), lambda v: v[0].item(), lambda v: float(v[0]), lambda v: str(v)],
    ids=["numpy", "tolist", "item", "float", "str"],
)
def test_the_users_own_code_takes_values_without_a_warning(take: Any) -> None:
    v = tc.Variable([1.0, 2.0])
    assert warned(take, v) == []
    assert warned(lambda v: take(v * 2.0), v) == []


def test_what_no_tape_would_watch_may_be_taken() -> None:
    for take in (np.asarray, np.from_dlpack):
        for v in (tc.Variable([1.0], trainable=False), tc.Variable([1, 2]), tc.asarray([1.0])):
            assert warned(take, v) == []
        assert warned(take, tc.Variable([1.0]), watch_accessed_variables=False) == []
        assert warned(lambda v, take=take: take(tc.stop_gradient(v)), tc.Variable([1.0])) == []  # type: ignore[misc]
        take(tc.Variable([1.0]))


def test_a_variable_that_is_looked_at_by_numpy_is_not_watched_for_that() -> None:
    v = tc.Variable([1.0])
    with pytest.warns(UserWarning, match="of a Variable of shape"), tc.GradientTape() as tape:
        np.asarray(v)
    assert tape.watched_variables() == ()


def test_a_variable_whose_tangent_an_accumulator_pushes_is_warned_about() -> None:
    v = tc.Variable([1.0])
    with pytest.warns(UserWarning, match="of a Variable of shape"), tc.ForwardAccumulator(v, tc.ones(1)):
        np.asarray(v)


def in_array(v: Any) -> None:
    array = np.zeros(2)
    array[0] = v[0]


def in_complex_array(v: Any) -> None:
    array = np.zeros(2, dtype=complex)
    array[0] = v[0]


def in_list(v: Any) -> None:
    values = [0.0, 0.0]
    values[0] = v[0]


@pytest.mark.parametrize(
    ("take", "cure"),
    [
        (in_array, r"`array\[key\] = t` takes the value.*numpy.zeros_like\(t\)"),
        (in_complex_array, r"`array\[key\] = t` takes the value"),
        (lambda v: math.exp(v[0]), "math.exp takes the value.*write tape_core.exp;"),
        (lambda v: [math.lgamma(v[0])], "write tape_core.special.gammaln"),
        (lambda v: math.hypot(v[0], 1.0), "write tape_core.hypot"),
        (lambda v: math.radians(v[0]), r"write x \* \(math.pi / 180\)"),
        (lambda v: math.modf(v[0])[0], r"write x - tape_core.trunc\(x\)"),
    ],
    ids=["array", "complex array", "exp", "lgamma", "hypot", "radians", "modf"],
)
def test_a_number_taken_where_no_word_says_so_is_a_warning(take: Callable[[Any], Any], cure: str) -> None:
    """`y[0] = x[0]` and `math.exp(x[0])` are how scripts of NumPy are written, and gave wrong gradients in silence."""
    v = tc.Variable([1.0, 2.0])
    for function in (take, lambda v: take(v * 2.0)):
        messages = warned(function, v)
        assert messages
        assert all(re.search(cure, message) and "no gradient comes back" in message for message in messages)


@pytest.mark.parametrize(
    "take",
    [
        in_list,
        lambda v: math.isfinite(v[0]),
        lambda v: math.floor(v[0]),
        lambda v: math.exp(float(v[0])),
        lambda v: math.exp(tc.stop_gradient(v)[0]),
        lambda v: f"{v[0]:.3f}" + "%.3f" % v[0],  # noqa: UP031
        lambda v: complex(v[0], 1.0),
    ],
    ids=["list", "isfinite", "floor", "exp of float", "exp of a constant", "text", "complex"],
)
def test_a_number_that_is_asked_for_is_no_warning(take: Callable[[Any], Any]) -> None:
    assert warned(take, tc.Variable([1.0, 2.0])) == []


def test_all_functions_of_math_that_have_a_derivative_are_known() -> None:
    from tape_core.base.unasked import _MATH

    def slope(function: Any, *rest: Any) -> float:
        """The difference quotient at 1.3; of several results that of the first."""
        try:
            high, low = (result[0] if isinstance(result := function(x, *rest), tuple) else result for x in (1.31, 1.3))
            return 100.0 * abs(float(high - low))
        except (TypeError, ValueError):
            return 0.0

    smooth = {
        name
        for name, function in vars(math).items()
        if callable(function) and max(slope(function), slope(function, 0.7), slope(function, 2)) > 0.01
    }
    assert {"sin", "fmod", "ldexp"} <= smooth
    assert smooth - {"nextafter"} <= set(_MATH)  # Tape's `nextafter` has no derivative, as those of its peers


def test_the_functions_that_take_the_place_of_those_of_math_are_there() -> None:
    from tape_core.base.unasked import _MATH

    for name, there in _MATH.items():
        assert hasattr(math, name) or name in ("exp2", "cbrt")
        if there.startswith("tape_core."):
            found: Any = tc
            for part in there.removeprefix("tape_core.").split("(")[0].split()[0].split("."):
                found = getattr(found, part)


def test_a_warning_names_the_users_line_and_not_one_of_numpys() -> None:
    with pytest.warns(UserWarning, match="no gradient comes back") as found, tc.GradientTape():
        v = tc.Variable([1.0, 2.0])
        np.sum([v[0] * 2.0, v[1] * 2.0])
    assert {w.filename for w in found} == {__file__}
