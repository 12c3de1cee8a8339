"""Special functions: values against SciPy and NumPy, and derivatives where a naive formula fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy import special
from support import STRICT
from tape_core.extend import Draw, Op, Refused, Sample, registry

F = Callable[[Any], Any]
INF, NAN = math.inf, math.nan


def grid(low: float, high: float, n: int = 300) -> Any:
    """Numbers between, evenly spaced and, around 0, evenly spaced logarithms."""
    even = np.linspace(low, high, n)
    sizes = np.geomspace(1e-30, max(abs(low), abs(high)), n)
    small = np.concatenate([sizes, -sizes])
    return np.concatenate([even, small[(small > low) & (small < high)]])


# Of each function an interval and how far it may be from SciPy there, relative and absolute. SciPy's own error is the
# greater one where the argument is squared.
UNARY: dict[str, list[tuple[float, float, float, float]]] = {
    "digamma": [(0.01, 60, 2e-15, 0), (60, 1e300, 2e-15, 0), (-30.3, -0.01, 0, 2e-12)],
    "entr": [(1e-300, 50, 1e-15, 0), (-2, 0, 0, 0)],
    "erf": [(-7, 7, 1e-15, 0)],
    "erfc": [(-7, 3, 2e-15, 0), (3, 26, 1e-13, 0)],
    "erfcinv": [(1e-300, 1.99999, 4e-15, 1e-16)],
    "erfcx": [(-3, 30, 3e-15, 0), (-26, -3, 1e-13, 0), (30, 1e300, 2e-15, 0)],
    "erfinv": [(-0.99999, 0.99999, 2e-15, 0)],
    "gamma": [(0.01, 171.6, 2e-15, 0), (-30.3, 0.01, 4e-15, 0)],
    "gammaln": [(3, 1e300, 1e-15, 0), (-30.3, 3, 1e-14, 3e-14)],
    "i0": [(-30, 30, 2e-15, 0), (-709, 709, 3e-15, 0)],
    "i0e": [(-30, 30, 2e-15, 0), (-1e300, 1e300, 2e-15, 0)],
    "i1": [(-30, 30, 2e-15, 0), (-709, 709, 3e-15, 0)],
    "i1e": [(-30, 30, 2e-15, 0), (-1e300, 1e300, 2e-15, 0)],
    "log_ndtr": [(-5, 5, 3e-15, 0), (-1e150, -5, 1e-14, 0), (5, 37, 3e-13, 0)],
    "logit": [(1e-300, 0.4, 1e-15, 0), (0.4, 0.99999, 1e-14, 0)],
    "ndtr": [(-5, 9, 5e-15, 0), (-37, -5, 3e-13, 0)],
    "ndtri": [(1e-300, 0.99999, 2e-15, 1e-16)],
}
CASES = [(name, *case) for name, cases in UNARY.items() for case in cases]


@pytest.mark.parametrize(("name", "low", "high", "rtol", "atol"), CASES)
def test_values_are_scipys_to_the_last_digits(name: str, low: float, high: float, rtol: float, atol: float) -> None:
    x = grid(low, high)
    found = getattr(tc, name)(tc.asarray(x)).numpy()
    np.testing.assert_allclose(found, getattr(special, name)(x), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("name", "low", "high", "rtol", "atol"), CASES)
def test_float32_is_rounded_once(name: str, low: float, high: float, rtol: float, atol: float) -> None:
    x = grid(max(low, -1e30), min(high, 1e30)).astype(np.float32)
    found = getattr(tc, name)(tc.asarray(x))
    with np.errstate(over="ignore", divide="ignore"):
        expected = getattr(special, name)(x.astype(np.float64)).astype(np.float32)
    assert found.dtype == tc.float32
    np.testing.assert_array_max_ulp(found.numpy(), expected, 2)


EDGES = {
    "digamma": {0.0: -INF, -1.0: NAN, -3.0: NAN, INF: INF, -INF: NAN, 1e-310: -INF},
    "entr": {0.0: 0.0, -1.0: -INF, INF: -INF},
    "erf": {0.0: 0.0, INF: 1.0, -INF: -1.0},
    "erfc": {0.0: 1.0, INF: 0.0, -INF: 2.0, 1e300: 0.0},
    "erfcinv": {0.0: INF, 1.0: 0.0, 2.0: -INF, -0.5: NAN, 2.5: NAN, INF: NAN},
    "erfcx": {0.0: 1.0, INF: 0.0, -INF: INF, -27.0: INF},
    "erfinv": {0.0: 0.0, 1.0: INF, -1.0: -INF, 1.5: NAN, -INF: NAN},
    "gamma": {0.0: INF, 1.0: 1.0, 5.0: 24.0, -1.0: NAN, INF: INF, -INF: NAN, 172.0: INF, -200.5: 0.0},
    "gammaln": {0.0: INF, 1.0: 0.0, 2.0: 0.0, -2.0: INF, INF: INF, -INF: -INF, 1e306: INF},
    "i0": {0.0: 1.0, INF: INF, -INF: INF, 720.0: INF},
    "i0e": {0.0: 1.0, INF: 0.0, -INF: 0.0},
    "i1": {0.0: 0.0, INF: INF, -INF: -INF, -720.0: -INF},
    "i1e": {0.0: 0.0, INF: 0.0, -INF: -0.0},
    "log_ndtr": {INF: 0.0, -INF: -INF, -1e200: -INF, 50.0: 0.0},
    "logit": {0.0: -INF, 0.5: 0.0, 1.0: INF, -1.0: NAN, 2.0: NAN, INF: NAN},
    "ndtr": {0.0: 0.5, INF: 1.0, -INF: 0.0},
    "ndtri": {0.0: -INF, 0.5: 0.0, 1.0: INF, -1.0: NAN, 2.0: NAN, INF: NAN},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EDGES)
def test_poles_infinities_and_nan_without_a_warning(name: str, dtype: str) -> None:
    edges = {**EDGES[name], NAN: NAN}
    if dtype == "float32":
        edges = {x: y for x, y in edges.items() if not 1e38 < abs(x) < INF and not 0 < abs(x) < 1e-38}
    found = getattr(tc, name)(tc.asarray(list(edges), dtype=dtype)).numpy()
    np.testing.assert_array_equal(found, np.asarray(list(edges.values()), dtype))


@pytest.mark.parametrize("name", EDGES)
def test_integers_become_the_default_float(name: str) -> None:
    found = getattr(tc, name)(tc.asarray([1]))
    assert found.dtype == tc.float32
    assert found.tolist() == getattr(tc, name)(tc.asarray([1.0])).tolist()


def test_the_sign_of_0_counts() -> None:
    zero = tc.asarray(-0.0)
    assert (tc.gamma(zero).item(), tc.digamma(zero).item()) == (-INF, INF)
    for f in (tc.erf, tc.erfinv, tc.i1, tc.i1e):
        assert math.copysign(1.0, f(zero).item()) == -1.0


# -- several parameters


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 50])
def test_polygamma(n: int) -> None:
    x = np.concatenate([np.geomspace(0.01, 1e6, 200), np.linspace(-9.9, -0.13, 100)])
    expected = special.polygamma(n, x)
    # Between the negative integers the even ones have zeros.
    np.testing.assert_allclose(tc.polygamma(n, tc.asarray(x)).numpy(), expected, rtol=2e-14 if n % 2 else 2e-11)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_polygamma_at_the_edges(n: int) -> None:
    edges = np.asarray([0.0, -1.0, INF, NAN, 1e-200])
    np.testing.assert_array_equal(tc.polygamma(n, tc.asarray(edges)).numpy(), special.polygamma(n, edges))


def test_the_order_of_polygamma_is_one_integer() -> None:
    assert tc.polygamma(tc.asarray(1), 1.0).item() == pytest.approx(math.pi**2 / 6)
    assert tc.polygamma(1, 2).dtype == tc.float32
    with pytest.raises(TypeError, match="n must be one integer"):
        tc.polygamma(tc.asarray([1, 2]), tc.asarray([1.0, 2.0]))


def test_betaln_of_small_and_large() -> None:
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.uniform(-6, 3, (2, 300)))
    np.testing.assert_allclose(
        tc.betaln(tc.asarray(a), tc.asarray(b)).numpy(), special.betaln(a, b), rtol=0, atol=5e-14
    )
    # log B(a, 1) = -log(a), log B(a, 2) = -log(a * (a + 1)): what is left of numbers of the size of 1e14
    large = tc.asarray([1e3, 1e6, 1e12, 1e13], dtype="float64")
    np.testing.assert_allclose(tc.betaln(large, 1.0).numpy(), -np.log(large.numpy()), rtol=2e-15)
    np.testing.assert_allclose(tc.betaln(2.0, large).numpy(), -np.log(large.numpy() * (large.numpy() + 1)), rtol=2e-15)
    edges = [(0.0, 1.0), (1.0, INF), (-1.0, 2.0), (NAN, 1.0), (-0.5, 0.5)]
    found = [tc.betaln(tc.asarray(x, dtype="float64"), y).item() for x, y in edges]
    np.testing.assert_array_equal(found, [INF, -INF, INF, NAN, -INF])


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "rel_entr"])
def test_products_with_a_logarithm(name: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-300, 1e300, NAN, INF]
    x, y = (part.ravel() for part in np.meshgrid(values, values))
    # inf * log(1) is NaN, of which NumPy warns
    keep = ~(np.isinf(x) & (y == (0 if name == "xlog1py" else 1)))
    x, y = x[keep], y[keep]
    with np.errstate(all="ignore"):
        expected = getattr(special, name)(x, y)
    found = getattr(tc, name)(tc.asarray(x), tc.asarray(y)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_rel_entr_of_near_equals() -> None:
    x = tc.asarray(1.0, dtype="float64")
    assert tc.rel_entr(x, 1 + 2**-40).item() == pytest.approx(-math.log1p(2**-40), rel=1e-14)


def test_expit_is_sigmoid() -> None:
    assert tc.expit is tc.sigmoid


def test_integers_meet_floats_of_their_own_width() -> None:
    wide = tc.asarray([2.0, 3.0], dtype="float64")
    with tc.GradientTape() as tape:
        tape.watch(wide)
        y = tc.xlogy(tc.asarray([1, 2]), wide) + tc.xlogy(wide, tc.asarray([5, 7]))
    assert y.dtype == tc.float64
    np.testing.assert_allclose(tape.gradient(y, wide).numpy(), [0.5 + math.log(5), 2 / 3 + math.log(7)], rtol=1e-15)


# -- derivatives


def slopes(f: F, x: Any, dtype: str = "float64") -> Any:
    """The gradient of the sum of f, as a NumPy array."""
    x = tc.asarray(x, dtype=dtype)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x).numpy()


def curves(f: F, x: Any) -> Any:
    """The second derivatives of an elementwise f."""
    x = tc.asarray(x, dtype="float64")
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        g = inner.gradient(y, x)
    return outer.gradient(g, x).numpy()


def test_log_ndtr_and_its_derivatives_far_out() -> None:
    # for x far below: x - 1 / x + ..., and -1 + 1 / x**2 - 6 / x**4
    far = np.asarray([-1e3, -1e6, -1e9])
    np.testing.assert_allclose(slopes(tc.log_ndtr, far), -far - 1 / far + 2 / far**3, rtol=1e-14)
    np.testing.assert_allclose(1 + curves(tc.log_ndtr, far)[0], 1e-6 - 6e-12, rtol=1e-8)
    np.testing.assert_allclose(curves(tc.log_ndtr, far), -1 + 1 / far**2, rtol=1e-11)
    np.testing.assert_array_equal(slopes(tc.log_ndtr, [50.0, INF, -INF]), [0.0, 0.0, INF])
    np.testing.assert_array_equal(curves(tc.log_ndtr, [50.0, 1e200]), [0.0, 0.0])
    small = slopes(tc.log_ndtr, far, "float32")
    np.testing.assert_allclose(small, -far, rtol=1e-5)


def test_erfcx_loses_no_digits_far_out() -> None:
    x = np.asarray([50.0, 1e4, 1e8])
    expected = (-(x**-2) + 1.5 * x**-4 - 3.75 * x**-6) / math.sqrt(math.pi)
    np.testing.assert_allclose(slopes(tc.erfcx, x), expected, rtol=1e-8)
    np.testing.assert_allclose(slopes(tc.erfcx, x)[1:], expected[1:], rtol=1e-14)


def test_bessel_functions_at_0_and_far_out() -> None:
    assert slopes(tc.i0, 0.0) == slopes(tc.i0e, 0.0) == 0.0
    assert slopes(tc.i1, 0.0) == slopes(tc.i1e, 0.0) == curves(tc.i0, 0.0) == 0.5
    assert curves(tc.i1, 0.0) == 0.0
    x = np.asarray([1e4, -1e6, 1e9])
    expected = -0.5 / x * special.i0e(x) * (1 + 0.25 / abs(x))
    np.testing.assert_allclose(slopes(tc.i0e, x), expected, rtol=1e-8)
    np.testing.assert_allclose(slopes(tc.i1e, x), -0.5 / abs(x) * special.i0e(x) * (1 - 1.25 / abs(x)), rtol=1e-7)


def test_gamma_functions_at_the_edges() -> None:
    np.testing.assert_array_equal(slopes(tc.gammaln, [INF, 0.0, -1.0]), [INF, -INF, NAN])
    np.testing.assert_allclose(slopes(tc.gammaln, [1.0, 1e300]), [special.digamma(1.0), math.log(1e300)])
    np.testing.assert_allclose(slopes(tc.gamma, [0.5, 170.0, -2.5]), special.gamma([0.5, 170.0, -2.5])
                               * special.digamma([0.5, 170.0, -2.5]), rtol=1e-14)  # fmt: skip


def test_betaln_where_one_is_much_larger() -> None:
    # d/da log B(a, 1) = -1 / a
    large = np.asarray([1e3, 1e6, 1e12])
    np.testing.assert_allclose(slopes(lambda a: tc.betaln(a, 1.0), large), -1 / large, rtol=1e-12)
    np.testing.assert_allclose(slopes(lambda a: tc.betaln(1.0, a), large), -1 / large, rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (lambda x: tc.xlogy(x, x), 0.0, -INF),
        (lambda x: tc.xlogy(0.0, x), 0.0, 0.0),
        (lambda x: tc.xlogy(tc.asarray(0.0), x), 0.0, 0.0),
        (lambda x: tc.xlogy(x, 2.0), 0.0, math.log(2)),
        (lambda x: tc.xlog1py(0.0, x), -1.0, 0.0),
        (lambda x: tc.xlog1py(x, 1.0), 0.0, math.log(2)),
        (tc.entr, 0.0, INF),
        (lambda x: tc.rel_entr(0.0, x), 0.0, -0.0),
        (tc.logit, 0.0, INF),
        (tc.logit, 1.0, INF),
        (tc.erfinv, 1.0, INF),
        (tc.ndtri, 0.0, INF),
        (tc.erfc, INF, -0.0),
        (tc.erf, 1e200, 0.0),
    ],
    ids=[
        "xlogy(x,x)", "xlogy(0,x)", "xlogy([0],x)", "xlogy(x,2)", "xlog1py(0,x)", "xlog1py(x,1)", "entr", "rel_entr",
        "logit 0", "logit 1", "erfinv", "ndtri", "erfc", "erf",
    ],
)  # fmt: skip
def test_slopes_at_the_edges(f: F, x: float, expected: float) -> None:
    assert slopes(f, x) == expected


def test_mixed_derivatives_of_xlogy_at_0() -> None:
    def slope_in_y(x: Any) -> Any:
        y = tc.asarray([0.5, 2.0], dtype="float64")
        with tc.GradientTape() as tape:
            tape.watch(y)
            out = tc.xlogy(x, y)
        return tape.gradient(out, y)

    np.testing.assert_array_equal(slopes(slope_in_y, [0.0, 0.0]), [2.0, 0.5])


# -- running sums


@pytest.mark.parametrize("top", [1000.0, -1000.0, 0.0])
def test_logcumsumexp_of_large_values(top: float) -> None:
    x = np.asarray([top, top + 1, -INF, top - 50, top + 3])
    expected = [special.logsumexp(x[: k + 1]) for k in range(5)]
    np.testing.assert_allclose(tc.logcumsumexp(tc.asarray(x)).numpy(), expected, rtol=1e-15)
    g = np.asarray([1.0, -2.0, 0.5, 3.0, -1.0])
    weights = [[math.exp(a - b) if j <= k else 0.0 for k, b in enumerate(expected)] for j, a in enumerate(x)]
    found = slopes(lambda x: tc.logcumsumexp(x) * tc.asarray(g), x)
    np.testing.assert_allclose(found, np.asarray(weights) @ g, rtol=1e-12, atol=1e-30)


def test_logcumsumexp_of_infinities() -> None:
    x = [-INF, -INF, 1.0, INF, 2.0]
    assert tc.logcumsumexp(tc.asarray(x)).tolist() == [-INF, -INF, 1.0, INF, INF]
    found = slopes(lambda x: tc.logcumsumexp(x)[:3], x)
    np.testing.assert_array_equal(found[:3], [0.0, 0.0, 1.0])
    assert slopes(tc.logcumsumexp, [-INF, -INF]).tolist() == [0.0, 0.0]
    assert np.isnan(tc.logcumsumexp(tc.asarray([1.0, NAN, 2.0])).numpy()).tolist() == [False, True, True]


def test_logcumsumexp_of_many_does_not_stall() -> None:
    """One by one in float32 the sum would not grow any more."""
    found = tc.logcumsumexp(tc.zeros(1 << 16))
    np.testing.assert_allclose(found.numpy(), np.log(np.arange(1, (1 << 16) + 1)), rtol=2e-7, atol=1e-7)


def test_logcumsumexp_begins_with_the_empty_sum() -> None:
    x = tc.asarray([[1.0, 2.0]])
    assert tc.logcumsumexp(x, axis=1, include_initial=True).shape == (1, 3)
    assert tc.logcumsumexp(x, axis=0, include_initial=True).numpy()[0].tolist() == [-INF, -INF]
    assert tc.logcumsumexp(tc.zeros((2, 0)), axis=1, include_initial=True).tolist() == [[-INF], [-INF]]


# -- integration and interpolation


@pytest.mark.parametrize(
    ("y", "x", "kwargs"),
    [
        ((5,), None, {}), ((5,), None, {"dx": 0.25}), ((3, 4), (4,), {}), ((3, 4), (3,), {"axis": 0}),
        ((3, 4), (3, 4), {"axis": -2}), ((2, 3, 4), (1, 3, 1), {"axis": 1}), ((1,), (1,), {}), ((0,), None, {}),
    ],
    ids=["vector", "dx", "rows", "columns", "same shape", "broadcast", "one point", "no point"],
)  # fmt: skip
def test_trapezoid_is_numpys(y: Any, x: Any, kwargs: Any) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(y)
    points = None if x is None else rng.standard_normal(x)
    found = tc.trapezoid(tc.asarray(values), None if x is None else tc.asarray(points), **kwargs)
    np.testing.assert_allclose(found.numpy(), np.trapezoid(values, points, **kwargs), rtol=1e-14, atol=1e-15)


def test_trapezoid_of_integers() -> None:
    found = tc.trapezoid(tc.asarray([1, 2]), tc.asarray([0, 3]))
    assert (found.dtype, found.item()) == (tc.float32, 4.5)


@pytest.mark.parametrize(("left", "right"), [(None, None), (-5.0, None), (None, 7.0)])
def test_interp_is_numpys(left: float | None, right: float | None) -> None:
    xs, ys = np.asarray([0.0, 0.1, 1.0, 2.5]), np.asarray([3.0, -1.0, 4.0, 0.7])
    x = np.concatenate([xs, np.linspace(-1, 4, 50), [INF, -INF, NAN, -0.0]])
    found = tc.interp(tc.asarray(x), tc.asarray(xs), tc.asarray(ys), left, right).numpy()
    np.testing.assert_allclose(found, np.interp(x, xs, ys, left, right), rtol=1e-14, atol=1e-15)
    assert found[:4].tolist() == ys.tolist()


def test_interp_at_steps_and_of_one_point() -> None:
    xs, ys = np.asarray([0.0, 0.0, 1.0, 1.0, 2.0, 2.0]), np.asarray([5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    x = np.asarray([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
    np.testing.assert_array_equal(
        tc.interp(tc.asarray(x), tc.asarray(xs), tc.asarray(ys)).numpy(), np.interp(x, xs, ys)
    )
    assert tc.interp(tc.asarray([0.0, 1.0, 2.0]), tc.asarray([1.0]), tc.asarray([4.0])).tolist() == [4.0] * 3
    assert tc.interp(0.5, tc.asarray([0, 1]), tc.asarray([0, 1])).item() == 0.5


def test_interp_at_the_points_of_the_table() -> None:
    xs, ys = tc.asarray([0.0, 1.0, 3.0], dtype="float64"), tc.asarray([0.0, 2.0, 3.0], dtype="float64")
    assert slopes(lambda x: tc.interp(x, xs, ys), [-1.0, 0.0, 1.0, 3.0, 4.0]).tolist() == [0, 2, 0.5, 0.5, 0]
    out = tc.asarray([-1.0, 9.0])
    assert slopes(lambda ys: tc.interp(out, xs, ys), [0.0, 2.0, 3.0]).tolist() == [1, 0, 1]
    assert slopes(lambda ys: tc.interp(out, xs, ys, 0.0, 1.0), [0.0, 2.0, 3.0]).tolist() == [0, 0, 0]
    assert slopes(lambda xs: tc.interp(tc.asarray([-1.0, 0.5]), xs, ys), [0.0, 1.0, 3.0]).tolist() == [-1, -1, 0]


# -- every op of this chapter, on another library

MODULES = {f"tape_core.ops.{name}" for name in ("special.error_functions", "special.gamma", "special.bessel")}
MODULES |= {"tape_core.ops.special.logarithms", "tape_core.ops.integration"}
OPS = [op for op in registry.values() if op.function.__module__ in MODULES]
assert {op.function.__module__ for op in OPS} == MODULES  # else a file was renamed, and its ops would not be tested


def on_strict(value: Any) -> Any:
    return tc.asarray(value, backend=STRICT) if isinstance(value, tc.Tensor) else value


def results(op: Op, sample: Sample, place: F) -> list[Any]:
    """Values and gradients of one sample, as NumPy arrays."""
    args = [place(a) for a in sample.args]
    sources = [
        a
        for a, name in zip(args, op.inputs, strict=False)
        if isinstance(a, tc.Tensor) and a.dtype.inexact and name in op.rules
    ]
    with tc.GradientTape() as tape:
        tape.watch(sources)
        out = op.function(*args, **sample.kwargs)
    found = tape.gradient(out, sources, unconnected_gradients="zero")
    assert all(g.backend is out.backend for g in found)
    return [out.numpy(), *(g.numpy() for g in found)]


def test_all_ops_are_here() -> None:
    assert len(OPS) == 26


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_strict_agrees_with_numpy(op: Op) -> None:
    assert op.samples is not None
    for sample in op.samples(Draw(1)):
        if isinstance(sample, Refused):
            with pytest.raises(sample.error, match=sample.match):
                op.function(*map(on_strict, sample.args), **sample.kwargs)
            continue
        for found, expected in zip(
            results(op, sample, on_strict), results(op, sample, lambda value: value), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", EDGES)
def test_strict_at_the_edges(name: str) -> None:
    found = getattr(tc, name)(tc.asarray([*EDGES[name], NAN], dtype="float64", backend=STRICT))
    np.testing.assert_array_equal(found.numpy(), [*EDGES[name].values(), NAN])


def test_the_error_functions_of_complex_numbers() -> None:
    scipy_special = pytest.importorskip("scipy.special")
    z = np.asarray([0.3 + 1j, -2 - 0.5j, 4 + 3j, 1e-3j, 0.5])
    for name in ("erf", "erfc"):
        f = getattr(tc.special, name)
        x = tc.asarray(z)
        np.testing.assert_allclose(f(x).numpy(), getattr(scipy_special, name)(z), rtol=1e-13)
        tc.testing.check_grads(f, [x], order=2)
        assert np.array_equal(tc.function(f)(x).numpy(), f(x).numpy())
        assert np.array_equal(tc.vmap(f)(x).numpy(), f(x).numpy())
        assert f(tc.astype(x, tc.complex64)).dtype is tc.complex64
    with pytest.raises(TypeError, match=r"erfcx.*real numbers, not complex ones"):
        tc.special.erfcx(tc.asarray(z))
