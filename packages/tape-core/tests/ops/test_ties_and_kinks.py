"""Derivatives at ties, kinks and edges, where a naive formula is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import gradient, gradients

F = Callable[[Any], Any]


def slope(f: F, x: Any) -> Any:
    """The gradient of f at x, as Python numbers."""
    x = tc.asarray(x, dtype="float64")
    with tc.GradientTape() as tape:
        tape.watch(x)
        with np.errstate(all="ignore"):
            y = f(x)
    found = tape.gradient(y, x)
    return None if found is None else found.tolist()


def curve(f: F, x: float) -> Any:
    """The second derivative of f at x."""
    at = tc.asarray(x, dtype="float64")
    with tc.GradientTape() as outer:
        outer.watch(at)
        with tc.GradientTape() as inner:
            inner.watch(at)
            with np.errstate(all="ignore"):
                y = f(at)
        g = inner.gradient(y, at)
    found = outer.gradient(g, at)
    return None if found is None else found.item()


# -- ties


@pytest.mark.parametrize(("f", "sign"), [(tc.max, 1), (tc.min, -1)], ids=["max", "min"])
def test_elements_that_tie_share_the_gradient_of_an_extremum(f: F, sign: int) -> None:
    assert slope(f, [sign * 2.0, sign * 2.0, sign * 1.0]) == [0.5, 0.5, 0.0]
    rows = [[sign * 1.0, sign * 0.0], [sign * 3.0, sign * 3.0]]
    assert slope(lambda x: f(x, axis=1), rows) == [[1.0, 0.0], [0.5, 0.5]]
    assert slope(lambda x: f(x, axis=0, keepdims=True), rows) == [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("f", [tc.maximum, tc.minimum], ids=["maximum", "minimum"])
def test_a_tie_of_two_values_goes_to_the_first(f: Any) -> None:
    assert slope(lambda x: f(x, 2.0), 2.0) == 1.0
    assert slope(lambda x: f(tc.asarray(2.0, dtype="float64"), x), 2.0) == 0.0
    assert slope(lambda x: f(x, x * 1.0), 2.0) == 1.0


def test_clip_passes_at_both_bounds() -> None:
    x = [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert slope(lambda x: tc.clip(x, -1.0, 1.0), x) == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert slope(lambda x: tc.clip(x, min=-1.0), x) == [0.0, 1.0, 1.0, 1.0, 1.0]


# -- kinks and edges


@pytest.mark.parametrize("f", [tc.abs, tc.relu, tc.sign], ids=["abs", "relu", "sign"])
def test_0_at_the_kink(f: F) -> None:
    assert slope(f, 0.0) == 0.0


@pytest.mark.parametrize(
    ("f", "at", "expected"),
    [
        (lambda x: x**2, 0.0, 0.0),
        (lambda x: x**0, 0.0, 0.0),
        (lambda x: x**1, 0.0, 1.0),
        (lambda x: x**0.5, 0.0, math.inf),
        (lambda x: x ** tc.asarray([0.0, 1.0, 2.0]), 0.0, 1.0),
        (lambda x: x**3, -2.0, 12.0),
        (lambda x: tc.asarray([0.0, -1.0]) ** x, 2.0, 0.0),
        (lambda x: 0.0**x, 2.0, 0.0),
        (lambda x: 2.0**x, 0.0, math.log(2)),
        (tc.sqrt, 0.0, math.inf),
        (tc.log, 0.0, math.inf),
        (lambda x: 1 / x, 0.0, -math.inf),
        (lambda x: x % 3.0, 7.0, 1.0),
        (lambda x: 7.0 % x, 3.0, -2.0),
    ],
    ids=[
        "x**2", "x**0", "x**1", "x**.5", "x**array", "x**3", "base<=0", "0**x", "2**x", "sqrt",
        "log", "1/x", "x%3", "7%x",
    ],
)  # fmt: skip
def test_powers_and_poles(f: F, at: float, expected: float) -> None:
    assert slope(f, at) == pytest.approx(expected)


def test_a_norm_at_0_has_the_minimal_subgradient() -> None:
    assert slope(lambda x: tc.hypot(x[0], x[1]), [0.0, 0.0]) == [0.0, 0.0]
    assert slope(tc.std, [3.0, 3.0, 3.0]) == [0.0, 0.0, 0.0]
    z = tc.asarray([0j, 3 + 4j], dtype="complex128")
    with tc.GradientTape() as tape:
        tape.watch(z)
        y = tc.abs(z)
    assert tape.gradient(y, z).tolist() == pytest.approx([0j, 0.6 + 0.8j])


def test_products_are_exact_where_elements_are_0() -> None:
    assert slope(tc.prod, [2.0, 0.0, 3.0]) == [0.0, 6.0, 0.0]
    assert slope(tc.prod, [0.0, 0.0, 3.0]) == [0.0, 0.0, 0.0]
    assert slope(lambda x: tc.prod(x, axis=0), [[2.0, 0.0], [5.0, 7.0]]) == [[5.0, 7.0], [2.0, 0.0]]
    assert slope(tc.cumulative_prod, [2.0, 0.0, 3.0]) == [1.0, 8.0, 0.0]
    assert slope(tc.cumulative_prod, [0.0, 2.0, 0.0, 3.0]) == [3.0, 0.0, 0.0, 0.0]


# -- far out


def test_far_out_nothing_overflows() -> None:
    far = [-1000.0, -40.0, 0.0, 40.0, 1000.0]
    e = math.exp(-40.0)
    assert slope(tc.sigmoid, far) == pytest.approx([0.0, e, 0.25, 0.0, 0.0], rel=1e-12, abs=1e-16)
    assert slope(tc.softplus, far) == pytest.approx([0.0, e, 0.5, 1.0, 1.0], rel=1e-12)
    assert slope(tc.tanh, far) == pytest.approx([0.0, 0.0, 1.0, 0.0, 0.0])
    assert slope(tc.log1p, 1e-20) == slope(tc.expm1, 1e-20) == 1.0
    assert slope(tc.silu, far) == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0], abs=1e-12)
    assert slope(tc.gelu, far) == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0], abs=1e-12)


@pytest.mark.parametrize("top", [1000.0, -1000.0], ids=["high", "low"])
def test_logsumexp_and_softmax_of_large_values(top: float) -> None:
    x = [top, top - 1.0, -math.inf]
    p = [1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0.0]
    assert slope(tc.logsumexp, x) == pytest.approx(p)
    assert slope(lambda x: tc.softmax(x)[0], x) == pytest.approx([p[0] * p[1], -p[0] * p[1], 0.0])
    expected = [p[1], -p[1], 0.0]
    assert slope(lambda x: tc.log_softmax(x)[0], x) == pytest.approx(expected)
    loss = slope(lambda x: tc.cross_entropy(x, tc.asarray(0)), x)
    assert loss == pytest.approx([-p[1], p[1], 0.0])


def test_logsumexp_where_everything_is_minus_infinity() -> None:
    assert slope(tc.logsumexp, [-math.inf, -math.inf]) == [0.0, 0.0]
    assert slope(lambda x: tc.logaddexp(x, x), -math.inf) == 0.0


# -- where


def test_where_protects_what_flows_into_it_and_nothing_else() -> None:
    def f(x: Any) -> Any:
        return tc.sum(tc.sqrt(tc.where(x > 0, tc.sqrt(x), 0) + 1))

    assert slope(f, [0.0, 4.0]) == [0.0, 0.25 / (2 * math.sqrt(3))]
    assert slope(lambda x: tc.sum(tc.grad(f)(x)), [0.0, 4.0])[0] == 0.0
    inner = tc.function(lambda x: tc.where(x > 0, x, 0))
    compiled = tc.function(tc.sqrt)
    for _ in range(3):  # the calls are one record each
        assert slope(lambda x: inner(tc.sqrt(x)), [0.0, 4.0]) == [0.0, 0.25]
        assert slope(lambda x: tc.where(x > 0, compiled(x), 0), [0.0, 4.0]) == [0.0, 0.25]
    # Of several results, of which one flows into a mask.
    assert slope(lambda x: tc.sum(tc.where(x > 0, tc.unstack(tc.stack([tc.sqrt(x), x]))[0], 0)), [0.0, 4.0]) == [
        0,
        0.25,
    ]
    # The zero here is no mask's, and is as it is where nothing masks.
    assert math.isnan(slope(lambda x: 0.0 * tc.sqrt(x), 0.0))
    assert math.isnan(slope(lambda x: 0.0 * tc.sqrt(x) + tc.where(x > 1, x, 0), 0.0))


def test_where_protects_from_the_branch_not_taken() -> None:
    assert slope(lambda x: tc.where(x > 0, tc.sqrt(x), 0), 0.0) == 0.0
    assert slope(lambda x: tc.where(x > 0, tc.sqrt(x), 0), [0.0, 4.0]) == [0.0, 0.25]


@pytest.mark.parametrize(
    "f",
    [
        tc.log, tc.sqrt, tc.reciprocal, tc.log2, tc.log10,
        lambda x: x**-1.5, lambda x: 1 / x, lambda x: tc.asarray(3.0) / x,
        lambda x: tc.log(x) * tc.exp(1 / x), lambda x: tc.sqrt(tc.sqrt(x)) + tc.log(x),
        lambda x: tc.atan2(x, x), lambda x: x / tc.abs(x), lambda x: tc.acosh(1 + x),
        lambda x: tc.sum(tc.log(x)), lambda x: tc.mean(1 / x), lambda x: tc.asin(1 + x),
        lambda x: tc.sum(tc.stack([tc.log(x), 1 / x])), lambda x: tc.log(tc.sum(x)),
        lambda x: tc.std(tc.log(x)), lambda x: tc.prod(1 / tc.stack([x, x])),
        lambda x: tc.logsumexp(tc.log(tc.stack([x, x]))),
        lambda x: tc.sum(tc.softmax(1 / tc.stack([x, x])) ** 2),
        lambda x: tc.sum(tc.matmul(tc.stack([1 / x, x]), tc.stack([1 / x, 1 / x]))),
        lambda x: tc.vecdot(1 / tc.stack([x, x]), tc.log(tc.stack([x, x]))),
        lambda x: tc.max(tc.log(tc.stack([x, x]))),
        lambda x: tc.cross_entropy(tc.log(tc.stack([x, x])), tc.asarray(0)),
    ],
    ids=[
        "log", "sqrt", "reciprocal", "log2", "log10", "power", "divide", "reflected", "product",
        "nested", "atan2", "sign", "acosh", "sum", "mean", "asin", "stack", "log of sum", "std",
        "prod", "logsumexp", "softmax", "matmul", "vecdot", "max", "cross_entropy",
    ],
)  # fmt: skip
def test_no_nan_comes_from_the_branch_not_taken_for_any_function(f: F) -> None:
    def masked(x: Any) -> Any:
        return tc.where(x > 0, f(x), 5.0 * x)

    assert slope(masked, 0.0) == 5.0
    assert slope(lambda x: tc.where(x <= 0, 5.0 * x, f(x)), 0.0) == 5.0
    assert curve(lambda x: masked(x) + x * x * x, 0.0) == 0.0


def test_the_mask_does_not_cut_second_derivatives() -> None:
    """Where a cotangent happens to be 0, its own derivative is not."""
    assert slope(lambda x: tc.where(x > 0, tc.square(tc.sin(x - 1)), 0.0), 1.0) == 0.0
    assert curve(lambda x: tc.where(x > 0, tc.square(tc.sin(x - 1)), 0.0), 1.0) == 2.0
    assert curve(lambda x: tc.where(x > 0, (x - 1) ** 2 * tc.exp(x), 0.0), 1.0) == 2 * math.e
    assert curve(lambda x: tc.where(x > 0, tc.logsumexp(x) ** 2, 0.0), 1e-300) == 2.0


# -- ops through which nothing flows


@pytest.mark.parametrize(
    "f",
    [
        tc.floor, tc.ceil, tc.round, tc.trunc, lambda x: x // 2.0, tc.zeros_like, tc.ones_like,
        lambda x: tc.astype(tc.argmax(x), "float64"), lambda x: tc.astype(x > 0, "float64"),
        lambda x: tc.full_like(x, 2.0), lambda x: tc.astype(tc.isnan(x), "float64"),
        lambda x: tc.one_hot(tc.astype(x, "int64"), 3), lambda x: tc.asarray(x.shape),
    ],
    ids=[
        "floor", "ceil", "round", "trunc", "floor_divide", "zeros_like", "ones_like", "argmax",
        "greater", "full_like", "isnan", "one_hot", "shape",
    ],
)  # fmt: skip
def test_none_comes_from_what_is_constant_almost_everywhere(f: F) -> None:
    assert slope(f, [0.5, 1.5]) is None


def test_sign_gives_zeros() -> None:
    assert slope(tc.sign, [0.5, -1.5]) == [0.0, 0.0]


# -- NaN


@pytest.mark.parametrize(
    "f",
    [tc.max, tc.min, np.max, np.min, np.ptp, lambda x: tc.linalg.vector_norm(x, ord=math.inf)],
    ids=["max", "min", "amax", "amin", "ptp", "norm"],
)
def test_an_extremum_that_is_nan_has_a_gradient_of_nan(f: F) -> None:
    assert np.isnan(slope(f, [1.0, math.nan, 2.0])).all()
    rows = slope(lambda x: tc.stack([f(row) for row in x]), [[1.0, math.nan], [2.0, 3.0]])
    assert np.isnan(rows[0]).all()
    assert np.isfinite(rows[1]).all()


def test_an_extremum_along_an_axis_is_nan_where_a_line_has_nan() -> None:
    rows = slope(lambda x: tc.max(x, axis=1), [[1.0, math.nan], [2.0, 3.0]])
    assert np.isnan(rows[0]).all()
    assert rows[1] == [0.0, 1.0]
    tangent = tc.jvp(tc.max, (tc.asarray([1.0, math.nan]),), (tc.ones(2),))[1]
    assert np.isnan(tangent.item())


@pytest.mark.parametrize("f", [tc.maximum, tc.minimum])
def test_of_two_values_of_which_one_is_nan_none_has_a_gradient_of_zero(f: Any) -> None:
    for x, y in ((1.0, math.nan), (math.nan, 1.0)):
        assert slope(lambda z, f=f: f(z[0], z[1]), [x, y]) == [1.0, 1.0]


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.0, None), (None, 1.0)])
def test_clip_passes_where_the_value_is_nan(bounds: Any) -> None:
    assert slope(lambda x: tc.clip(x, *bounds), math.nan) == 1.0
    assert slope(lambda b: tc.clip(tc.asarray(0.5, dtype="float64"), b, 1.0), math.nan) == 1.0
    assert slope(lambda b: tc.clip(tc.asarray(0.5, dtype="float64"), 0.0, b), math.nan) == 1.0


def test_an_element_that_becomes_nan_by_an_update_has_a_gradient_of_nan() -> None:
    def f(x: Any, key: int = 0) -> Any:
        return tc.at(x)[key].max(tc.asarray(math.nan, dtype="float64"))

    assert np.isnan(slope(f, [1.0, 2.0])[0])
    assert slope(f, [1.0, 2.0])[1] == 1.0


def test_nan_does_not_come_where_the_cotangent_is_0() -> None:
    found = slope(lambda x: tc.where(tc.asarray([True, False]), x[0], tc.max(x)), [1.0, math.nan])
    assert np.isnan(found).all() or found[0] >= 1.0
    assert slope(lambda x: tc.where(tc.asarray(True), x[0], tc.max(x)), [1.0, math.nan]) == [1.0, 0.0]


@pytest.mark.parametrize("factor", [1e300, -2.5, math.inf, math.nan, 3])
def test_zero_cotangents_times_a_number_of_python_are_zeros(factor: float) -> None:
    x = tc.asarray([1.0, 2.0], dtype=tc.float32)  # where 1e300 is infinite
    with tc.GradientTape() as tape:
        tape.watch(x)
        with np.errstate(all="ignore"):
            y = tc.where(x > 1.5, x, tc.where(x > 0.5, x * factor, x))[1:]
    found = tape.gradient(y, x)
    assert found.tolist() == [0.0, 1.0]


# -- edges


def test_an_angle_is_exact_for_tiny_points_and_0_at_the_origin() -> None:
    assert slope(lambda z: tc.atan2(z[0], z[1]), [0.0, 0.0]) == [0.0, 0.0]
    found = slope(lambda z: tc.atan2(z[0], z[1]), [1e-200, 1e-200])
    np.testing.assert_allclose(found, [5e199, -5e199], rtol=1e-15)
    np.testing.assert_allclose(slope(lambda z: tc.atan2(z[0], z[1]), [3e200, 4e200]), [1.6e-201, -1.2e-201], rtol=1e-14)
    assert slope(lambda z: np.angle(z * (1 + 0j)), 0.0) == 0.0


def test_the_relative_entropy_of_nothing_has_derivatives_of_0() -> None:
    assert slope(lambda z: tc.special.rel_entr(z[0], z[1]), [0.0, 0.0]) == [0.0, 0.0]
    assert slope(lambda x: tc.special.rel_entr(x, 0.0), 0.0) == 0.0
    assert slope(lambda x: tc.special.rel_entr(x, 1.0), 0.0) == -math.inf


@pytest.mark.parametrize("at", [math.nan, math.inf, -1.0, 0.0])
def test_the_power_0_has_derivatives_of_0_everywhere(at: float) -> None:
    for f in (lambda x: x**0, lambda x: x**0.0, lambda x: tc.pow(x, tc.asarray(0.0, dtype="float64"))):
        assert slope(f, at) == 0.0
    assert curve(lambda x: x**0, at) == 0.0


@pytest.mark.parametrize("order", ["base, exponent", "exponent, base"])
def test_the_power_0_has_mixed_derivatives(order: str) -> None:
    """That of `x**y` by x is `y * x**(y - 1)`, whose derivative by y is 1 / x where y is 0."""

    def by(f: F, k: int) -> F:
        return lambda z: tc.grad(f)(z)[k]

    first, last = (0, 1) if order == "base, exponent" else (1, 0)
    at = tc.asarray([[4.0, 0.0], [0.5, -0.0]], dtype="float64").mT

    def power(z: Any) -> Any:
        return tc.sum(tc.pow(z[0], z[1]))

    mixed = by(lambda z: tc.sum(by(power, first)(z)), last)
    np.testing.assert_allclose(mixed(at).numpy(), [0.25, 2.0], rtol=1e-15)
    again = by(lambda z: tc.sum(mixed(z)), 0)
    np.testing.assert_allclose(again(at).numpy(), [-1 / 16, -4.0], rtol=1e-15)
    zeros = tc.asarray([0.0, 0.0], dtype="float64")
    assert by(lambda z: tc.sum(by(power, first)(z)), last)(zeros).item() == 0.0


def test_the_matrix_power_0_has_a_gradient_of_zeros() -> None:
    assert slope(lambda x: tc.linalg.matrix_power(x, 0), [[1.0, 2.0], [3.0, 4.0]]) == [[0.0, 0.0], [0.0, 0.0]]
    assert tc.linalg.matrix_power(tc.asarray([[1, 2], [3, 4]]), 0).tolist() == [[1, 0], [0, 1]]


# -- what is overwritten


def _assigned(x: Any) -> Any:
    y = x * tc.log(x)
    y[x == 0] = 0.0
    return tc.sum(y)


OVERWRITING: dict[str, F] = {
    "mask": _assigned,
    "at": lambda x: tc.sum(tc.at(x * tc.log(x))[0].set(0.0)),
    "slice": lambda x: tc.sum(tc.at(tc.sqrt(x) + 0 * tc.log(x))[:1].set(x[:1])),
    "indices": lambda x: tc.sum(tc.at(x / x)[tc.asarray([0, 0])].set(tc.asarray([2.0, 3.0], dtype="float64"))),
    "compiled": tc.function(_assigned),
}


@pytest.mark.parametrize("name", OVERWRITING)
def test_no_nan_comes_from_what_is_overwritten(name: str) -> None:
    f = OVERWRITING[name]
    x = tc.asarray([0.0, 1.0, 2.0], dtype="float64")
    expected = {"slice": [1.0, 0.5, 0.5 / math.sqrt(2)], "indices": [0.0, 0.0, 0.0]}.get(name, [0, 1, 1 + math.log(2)])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(slope(f, x), expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(tc.function(tc.grad(f))(x), expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(tc.jvp(f, (x,), (tc.ones_like(x),))[1], sum(expected), rtol=1e-12)
        assert np.isfinite(tc.hessian(f)(x).numpy()).all()


def test_no_nan_comes_from_what_is_overwritten_for_each_example() -> None:
    x = tc.asarray([[0.0, 1.0], [2.0, 0.0]], dtype="float64")
    with np.errstate(all="ignore"):
        found = tc.vmap(tc.grad(lambda r: tc.sum(tc.where(r == 0, 0, tc.at(r * tc.log(r))[0].set(r[0])))))(x)
    np.testing.assert_allclose(found, [[0, 1], [1, 0]])


@pytest.mark.parametrize("function", [tc.var, tc.std])
def test_the_spread_of_complex_numbers_grows_away_from_their_mean(function: Any) -> None:
    z = tc.asarray([1 + 1j, 3 - 1j, 2 + 6j, 2j], dtype="complex128", backend="numpy")
    g = gradient(function, z).numpy()
    step = 1e-6
    for k in range(4):
        for direction in (1, 1j):
            moved = np.zeros(4, complex)
            moved[k] = step * direction
            slope = (function(z + moved) - function(z - moved)).item() / (2 * step)
            assert slope == pytest.approx((np.conj(g[k]) * direction).real, abs=1e-8)


def test_clip_with_bounds_that_cross_is_the_upper_bound_and_so_is_its_gradient() -> None:
    x = tc.asarray([0.0, 2.0, 5.0], backend="numpy")
    low, high = tc.asarray([3.0, 3.0, 3.0], backend="numpy"), tc.asarray([1.0, 1.0, 1.0], backend="numpy")
    assert tc.clip(x, low, high).tolist() == [1.0, 1.0, 1.0]
    of_x, of_low, of_high = gradients(tc.clip, x, low, high)
    assert of_x.tolist() == [0, 0, 0]
    assert of_low.tolist() == [0, 0, 0]
    assert of_high.tolist() == [1, 1, 1]
    assert gradient(lambda low: tc.clip(x, low, 1.0), low).tolist() == [0, 0, 0]
    assert gradient(lambda high: tc.clip(x, 3.0, high), high).tolist() == [1, 1, 1]
