"""Updates at indices: values, derivatives where elements are 0, tie or are set twice, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import STRICT, numpy_gradients

BACKENDS = pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])


def gradients(f: Callable[..., Any], *values: Any, backend: Any = "numpy") -> list[Any]:
    return [g.tolist() for g in numpy_gradients(f, *values, backend=backend)]


@BACKENDS
def test_products_with_zeros_have_exact_derivatives(backend: Any) -> None:
    i = tc.asarray([0, 0, 1, 1, 2], backend=backend)

    def f(x: Any, v: Any) -> Any:
        return tc.sum(tc.at(x)[i].multiply(v) * tc.asarray([1.0, 10.0, 100.0, 7.0], dtype="float64", backend=backend))

    x, v = gradients(f, [2.0, 3.0, 0.0, 5.0], [0.0, 4.0, 0.0, 0.0, 6.0], backend=backend)
    assert x == [0.0, 0.0, 600.0, 7.0]
    assert v == [8.0, 0.0, 0.0, 0.0, 0.0]

    def second(v: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(v)
            y = tc.at(tc.ones(1, dtype="float64", backend=backend))[i * 0].multiply(v)
        return tape.gradient(y, v)[0]

    # The product of all but the first, which two zeros leave with one factor each.
    assert gradients(second, [7.0, 0.0, 2.0, 0.0, 3.0], backend=backend) == [[0.0, 0.0, 0.0, 0.0, 0.0]]
    assert gradients(second, [0.0, 5.0, 2.0, 0.0, 3.0], backend=backend) == [[0.0, 0.0, 0.0, 30.0, 0.0]]


def test_the_derivative_of_a_product_that_underflows() -> None:
    i = tc.asarray([0, 0, 0])
    (v,) = gradients(lambda v: tc.at(tc.ones(1, dtype="float64"))[i].multiply(v), [1e-200, 1e250, 1e-200])
    assert v == pytest.approx([1e50, 0.0, 1e50])


@BACKENDS
@pytest.mark.parametrize("sign", [1, -1], ids=["max", "min"])
def test_extrema_that_tie_share_the_gradient(backend: Any, sign: int) -> None:
    i = tc.asarray([0, 0, 1, 2, 2], backend=backend)

    def f(x: Any, v: Any) -> Any:
        return (tc.at(x)[i].max if sign == 1 else tc.at(x)[i].min)(v)

    x, v = np.asarray([3.0, 1.0, 5.0, 2.0]), np.asarray([3.0, 3.0, 4.0, 5.0, 0.0])
    gx, gv = gradients(f, sign * x, sign * v, backend=backend)
    assert gx == pytest.approx([1 / 3, 0.0, 0.5, 1.0])
    assert gv == pytest.approx([1 / 3, 1 / 3, 1.0, 0.5, 0.0])


@BACKENDS
def test_of_values_set_twice_the_last_has_the_gradient(backend: Any) -> None:
    i = tc.asarray([1, 0, 1], backend=backend)
    x, v = gradients(lambda x, v: tc.at(x)[i].set(v) * 2.0, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], backend=backend)
    assert (x, v) == ([0.0, 0.0, 2.0], [0.0, 2.0, 2.0])


@BACKENDS
def test_quotients_and_powers(backend: Any) -> None:
    x = tc.asarray([-8.0, 0.0, 2.0], backend=backend)
    i = tc.asarray([0, 0, 2], backend=backend)
    v = tc.asarray([2.0, 2.0, 3.0], backend=backend)
    assert tc.at(x)[i].divide(v).tolist() == pytest.approx([-2.0, 0.0, 2 / 3])
    assert tc.at(x)[i].power(v).tolist() == [4096.0, 0.0, 8.0]
    gx, gv = gradients(lambda x, v: tc.at(x)[i].divide(v), [-8.0, 0.0, 2.0], [2.0, 2.0, 4.0], backend=backend)
    assert (gx, gv) == ([0.25, 1.0, 0.25], [1.0, 1.0, -0.125])
    gx, gv = gradients(lambda x, v: tc.at(x)[i].power(v), [3.0, 0.0, 2.0], [2.0, 1.0, 3.0], backend=backend)
    assert gx == [6.0, 1.0, 12.0]
    assert gv == pytest.approx([9 * math.log(3), 18 * math.log(3), 8 * math.log(2)])


@BACKENDS
def test_dtypes_and_scalars(backend: Any) -> None:
    x = tc.asarray([1.0, 2.0], backend=backend)
    wide = tc.asarray([0.5, 0.5], dtype="float64", backend=backend)
    for method in ("set", "add", "subtract", "multiply", "divide", "power", "min", "max"):
        for values in (wide, 3, 0.5, tc.asarray([1, 2], backend=backend)):
            assert getattr(tc.at(x)[tc.asarray([0, 0], backend=backend)], method)(values).dtype == tc.float32
    small = tc.asarray([5, 7], dtype="uint8", backend=backend)
    assert tc.at(small)[0].subtract(2).tolist() == [3, 7]
    assert tc.at(small)[0].power(2).tolist() == [25, 7]
    assert tc.at(small)[:].max(6).dtype == tc.uint8
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = tc.at(v)[0].add(v[1] * v[1])
    assert tape.gradient(y, v).tolist() == [1.0, 5.0]


def test_nan_stays() -> None:
    x = tc.asarray([math.nan, 1.0, 2.0])
    i = tc.asarray([0, 1, 1])
    for method in ("add", "multiply", "min", "max"):
        y = getattr(tc.at(x)[i], method)(tc.asarray([0.0, math.nan, 1.0]))
        assert [math.isnan(value) for value in y.tolist()] == [True, True, False]


def test_mistakes_with_at() -> None:
    x = tc.ones(3)
    for call, error, match in (
        (lambda: tc.at(x).add(1.0), ValueError, r"name the elements first: at\(x\)\[key\]"),
        (lambda: tc.at(x, 0)[1], ValueError, "named already"),
        (lambda: tc.at(x)[0].add(1j), TypeError, "values of dtype complex64 do not fit into elements of dtype float32"),
        (lambda: tc.at(tc.asarray([1, 2]))[0].divide(2), TypeError, "must be floating, not int64"),
        (lambda: tc.at(tc.asarray([True]))[0].add(True), TypeError, "must hold numbers"),
        (lambda: tc.at(2.0)[()].add(1.0), TypeError, "x must be an array"),
        (lambda: tc.at(x)[:2].add(tc.ones(3)), ValueError, "broadcast"),
        (lambda: tc.at(x)[tc.asarray([0, 1])].max(tc.ones(3)), ValueError, "broadcast"),
    ):
        with pytest.raises(error, match=match):
            call()
