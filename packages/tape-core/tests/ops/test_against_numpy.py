"""Values: each op equals NumPy's function, over drawn shapes, dtypes and values, on the NumPy backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_agrees

FAST = settings(max_examples=15, deadline=None, derandomize=True, database=None)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
FULL = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3)
FLOATS = st.sampled_from(["float32", "float64"])
INTEGERS = st.sampled_from(["int32", "int64", "uint8"])


def values(shape: Any, dtype: str, low: float = -4, high: float = 4) -> Any:
    if "int" in dtype:
        return hnp.arrays(
            dtype, shape, elements=st.integers(max(0, int(low)) if dtype == "uint8" else int(low), int(high))
        )
    width = 32 if dtype == "float32" else 64
    return hnp.arrays(dtype, shape, elements=st.floats(np.float32(low).item(), np.float32(high).item(), width=width))


def agrees(found: tc.Tensor, expected: Any, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> None:
    """Same values, shape and dtype; and inputs as they were."""
    assert_agrees(found, expected)
    assert found.backend.name == "numpy"
    for a, b in zip(before, after, strict=True):
        assert np.array_equal(a, b), "an input was changed"


# -- elementwise, one input

UNARY: dict[str, tuple[Any, float, float]] = {
    "abs": (np.abs, -4, 4), "acos": (np.arccos, -1, 1), "acosh": (np.arccosh, 1, 4),
    "asin": (np.arcsin, -1, 1), "asinh": (np.arcsinh, -4, 4), "atan": (np.arctan, -4, 4),
    "atanh": (np.arctanh, -0.875, 0.875), "ceil": (np.ceil, -4, 4), "conj": (np.conj, -4, 4),
    "cos": (np.cos, -4, 4), "cosh": (np.cosh, -4, 4), "exp": (np.exp, -4, 4),
    "expm1": (np.expm1, -4, 4), "floor": (np.floor, -4, 4), "isfinite": (np.isfinite, -4, 4),
    "isinf": (np.isinf, -4, 4), "isnan": (np.isnan, -4, 4), "log": (np.log, 0.125, 4),
    "log10": (np.log10, 0.125, 4), "log1p": (np.log1p, -0.875, 4), "log2": (np.log2, 0.125, 4),
    "negative": (np.negative, -4, 4), "positive": (np.positive, -4, 4), "real": (np.real, -4, 4),
    "reciprocal": (np.reciprocal, 0.125, 4), "round": (np.round, -4, 4), "sign": (np.sign, -4, 4),
    "signbit": (np.signbit, -4, 4), "sin": (np.sin, -4, 4), "sinh": (np.sinh, -4, 4),
    "sqrt": (np.sqrt, 0, 4), "square": (np.square, -4, 4), "tan": (np.tan, -1.25, 1.25),
    "tanh": (np.tanh, -4, 4), "trunc": (np.trunc, -4, 4), "relu": (lambda x: np.maximum(x, 0), -4, 4),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -4, 4),
    "softplus": (lambda x: np.log1p(np.exp(x)), -4, 4), "silu": (lambda x: x / (1 + np.exp(-x)), -4, 4),
    "erf": (lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x), -4, 4),
    "gelu": (
        lambda x: np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))), otypes=[x.dtype])(x), -4, 4,
    ),
}  # fmt: skip
UNARY_INTEGERS = ["abs", "ceil", "floor", "negative", "positive", "round", "sign", "square", "trunc"]


@pytest.mark.parametrize("name", UNARY)
@FAST
@given(data=st.data(), dtype=FLOATS)
def test_unary(name: str, data: st.DataObject, dtype: str) -> None:
    expected, low, high = UNARY[name]
    x = data.draw(values(data.draw(SHAPES), dtype, low, high))
    before = x.copy()
    agrees(getattr(tc, name)(tc.asarray(x)), expected(x), [before], [x])


@pytest.mark.parametrize("name", UNARY_INTEGERS)
@FAST
@given(data=st.data(), dtype=st.sampled_from(["int32", "int64"]))
def test_unary_of_integers(name: str, data: st.DataObject, dtype: str) -> None:
    x = data.draw(values(data.draw(SHAPES), dtype))
    # NumPy gives floats for some; the standard keeps the dtype.
    agrees(getattr(tc, name)(tc.asarray(x)), np.asarray(UNARY[name][0](x)).astype(dtype))


# -- elementwise, two inputs

BINARY: dict[str, tuple[Any, float, float]] = {
    "add": (np.add, -4, 4), "atan2": (np.arctan2, 0.5, 4), "copysign": (np.copysign, -4, 4),
    "divide": (np.divide, 0.5, 4), "equal": (np.equal, -4, 4), "floor_divide": (np.floor_divide, 0.5, 4),
    "greater": (np.greater, -4, 4), "greater_equal": (np.greater_equal, -4, 4),
    "hypot": (np.hypot, 0.5, 4), "less": (np.less, -4, 4), "less_equal": (np.less_equal, -4, 4),
    "logaddexp": (np.logaddexp, -4, 4), "maximum": (np.maximum, -4, 4), "minimum": (np.minimum, -4, 4),
    "multiply": (np.multiply, -4, 4), "nextafter": (np.nextafter, -4, 4),
    "not_equal": (np.not_equal, -4, 4), "pow": (np.power, 0.5, 4), "remainder": (np.remainder, 0.5, 4),
    "subtract": (np.subtract, -4, 4),
}  # fmt: skip
SMOOTH = ["add", "atan2", "divide", "hypot", "logaddexp", "multiply", "pow", "subtract"]
BITS = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift,
}  # fmt: skip
LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}


def pair(data: st.DataObject, dtype: str, low: float, high: float, *, max_side: int = 3) -> Any:
    shapes = data.draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=max_side)
    ).input_shapes
    return [data.draw(values(shape, dtype, low, high)) for shape in shapes]


@pytest.mark.parametrize("name", BINARY)
@FAST
@given(data=st.data(), dtype=FLOATS)
def test_binary(name: str, data: st.DataObject, dtype: str) -> None:
    expected, low, high = BINARY[name]
    a, b = pair(data, dtype, low, high)
    before = [a.copy(), b.copy()]
    agrees(getattr(tc, name)(tc.asarray(a), tc.asarray(b)), expected(a, b), before, [a, b])


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "maximum", "equal", "less", "floor_divide", "remainder"]
)
@FAST
@given(data=st.data(), dtype=INTEGERS)
def test_binary_of_integers(name: str, data: st.DataObject, dtype: str) -> None:
    a, b = pair(data, dtype, 1, 4)
    with np.errstate(over="ignore"):  # NumPy warns of an overflow of 0-d integers only
        agrees(getattr(tc, name)(tc.asarray(a), tc.asarray(b)), BINARY[name][0](a, b))


@pytest.mark.parametrize("name", [*BITS, *LOGIC])
@FAST
@given(data=st.data())
def test_bits_and_logic(name: str, data: st.DataObject) -> None:
    a, b = pair(data, "int64", 0, 4)
    if name in LOGIC:
        a, b = a > 2, b > 2
        agrees(tc.logical_not(tc.asarray(a)), ~a)
    else:
        agrees(tc.bitwise_invert(tc.asarray(a)), ~a)
    agrees(getattr(tc, name)(tc.asarray(a), tc.asarray(b)), {**BITS, **LOGIC}[name](a, b))


@pytest.mark.parametrize("name", SMOOTH)
@FAST
@given(data=st.data())
def test_gradients_of_broadcast_shapes_agree_with_differences(name: str, data: st.DataObject) -> None:
    f = getattr(tc, name)
    a, b = pair(data, "float64", 0.5, 2, max_side=2)
    x, y = tc.asarray(a), tc.asarray(b)
    with tc.GradientTape() as tape:
        tape.watch([x, y])
        z = f(x, y)
    rng = np.random.default_rng(0)
    w = rng.standard_normal(z.shape)
    for k, g in enumerate(tape.gradient(z, [x, y], output_gradients=tc.asarray(w))):
        direction = rng.standard_normal(g.shape)
        up, down = ([a, b], [a, b])
        up = [v + 1e-6 * direction * (j == k) if j == k else v for j, v in enumerate(up)]
        down = [v - 1e-6 * direction if j == k else v for j, v in enumerate(down)]
        change = (f(*map(tc.asarray, up)).numpy() - f(*map(tc.asarray, down)).numpy()) / 2e-6
        assert np.sum(g.numpy() * direction) == pytest.approx(np.sum(w * change), rel=1e-6, abs=1e-7)


@FAST
@given(data=st.data(), dtype=FLOATS)
def test_where_and_clip(data: st.DataObject, dtype: str) -> None:
    a, b = pair(data, dtype, -4, 4)
    agrees(tc.where(tc.asarray(a) > 0, tc.asarray(a), tc.asarray(b)), np.where(a > 0, a, b))
    agrees(tc.where(tc.asarray(a) > 0, tc.asarray(a), 1.0), np.where(a > 0, a, a.dtype.type(1)))
    agrees(tc.clip(tc.asarray(a), -1.0, 2.0), np.clip(a, -1, 2))
    agrees(tc.clip(tc.asarray(a), max=2.0), np.minimum(a, 2))


# -- reductions

REDUCTIONS: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min, "var": np.var, "std": np.std,
    "any": np.any, "all": np.all, "count_nonzero": np.count_nonzero,
    "logsumexp": lambda x, axis, keepdims: np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims)),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@FAST
@given(data=st.data(), dtype=FLOATS)
def test_reductions(name: str, data: st.DataObject, dtype: str) -> None:
    shape = data.draw(SHAPES if name in ("sum", "prod", "any", "all", "count_nonzero") else FULL)
    x = data.draw(values(shape, dtype))
    axis = data.draw(st.none() | hnp.valid_tuple_axes(x.ndim) | st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None
    keepdims = data.draw(st.booleans())
    before = x.copy()
    found = getattr(tc, name)(tc.asarray(x), axis=axis, keepdims=keepdims)
    agrees(found, REDUCTIONS[name](x, axis=axis, keepdims=keepdims), [before], [x])


@FAST
@given(data=st.data(), dtype=FLOATS)
def test_running_and_searching(data: st.DataObject, dtype: str) -> None:
    x = data.draw(values(data.draw(FULL), dtype))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    t = tc.asarray(x)
    agrees(tc.cumulative_sum(t, axis=axis), np.cumulative_sum(x, axis=axis))
    agrees(tc.cumulative_prod(t, axis=axis), np.cumulative_prod(x, axis=axis))
    agrees(tc.cumulative_sum(t, axis=axis, include_initial=True), np.cumulative_sum(x, axis=axis, include_initial=True))
    agrees(tc.argmax(t, axis=axis), np.argmax(x, axis=axis))
    agrees(tc.argmin(t, axis=axis, keepdims=True), np.argmin(x, axis=axis, keepdims=True))
    agrees(tc.argmax(t), np.argmax(x))
    agrees(tc.var(t, correction=0.5), np.var(x, ddof=0.5) if x.size > 1 else np.var(x) * x.size / (x.size - 0.5))
    e = np.exp(x)
    agrees(tc.softmax(t, axis=axis), e / e.sum(axis=axis, keepdims=True))
    agrees(tc.log_softmax(t, axis=axis), x - np.log(e.sum(axis=axis, keepdims=True)))


def test_sums_of_small_integers_do_not_overflow() -> None:
    x = tc.asarray(np.full(300, 100, "int8"))
    assert tc.sum(x).item() == 30_000
    assert tc.sum(x).dtype is tc.int64
    assert tc.sum(x, dtype=tc.float32).dtype is tc.float32
    assert tc.prod(tc.asarray(np.full(3, 100, "int8"))).item() == 1_000_000


# -- manipulation


@FAST
@given(data=st.data(), dtype=st.sampled_from(["float32", "float64", "int64", "bool"]))
def test_manipulation(data: st.DataObject, dtype: str) -> None:
    shape = data.draw(FULL)
    x = data.draw(hnp.arrays(dtype, shape, elements=st.booleans() if dtype == "bool" else st.integers(-9, 9)))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    shift = data.draw(st.integers(-4, 4))
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    t = tc.asarray(x)
    agrees(tc.reshape(t, (-1,)), x.reshape(-1))
    agrees(tc.permute_dims(t, order), x.transpose(order))
    agrees(tc.expand_dims(t, axis=axis), np.expand_dims(x, axis))
    agrees(tc.squeeze(tc.expand_dims(t, axis=axis), axis=axis), x)
    agrees(tc.flip(t, axis=axis), np.flip(x, axis))
    agrees(tc.flip(t), np.flip(x))
    agrees(tc.roll(t, shift, axis=axis), np.roll(x, shift, axis))
    agrees(tc.roll(t, shift), np.roll(x, shift))
    agrees(tc.concat([t, t], axis=axis), np.concatenate([x, x], axis))
    agrees(tc.concat([t, t], axis=None), np.concatenate([x, x], None))
    agrees(tc.stack([t, t], axis=axis), np.stack([x, x], axis))
    agrees(tc.tile(t, (2, 1)), np.tile(x, (2, 1)))
    agrees(tc.repeat(t, 2, axis=axis), np.repeat(x, 2, axis))
    agrees(tc.repeat(t, 2), np.repeat(x, 2))
    agrees(tc.broadcast_to(t, (2, *shape)), np.broadcast_to(x, (2, *shape)))
    agrees(tc.moveaxis(t, axis, 0), np.moveaxis(x, axis, 0))
    for found, expected in zip(tc.unstack(t, axis=axis), np.unstack(x, axis=axis), strict=True):
        agrees(found, expected)
    for found, expected in zip(tc.split(t, [1, shape[axis] - 1], axis=axis), np.split(x, [1], axis), strict=True):
        agrees(found, expected)
    for found, expected in zip(tc.broadcast_arrays(t, t[..., :1]), np.broadcast_arrays(x, x[..., :1]), strict=True):
        agrees(found, expected)
    agrees(tc.take(t, tc.asarray([0, -1]), axis=axis), np.take(x, [0, -1], axis))
    agrees(tc.tril(tc.stack([t, t])), np.tril(np.stack([x, x])))
    agrees(tc.triu(tc.stack([t, t]), k=1), np.triu(np.stack([x, x]), 1))


@FAST
@given(data=st.data(), dtype=FLOATS)
def test_products(data: st.DataObject, dtype: str) -> None:
    n, k, m = (data.draw(st.integers(0, 3)) for _ in range(3))
    a, b = data.draw(values((2, n, k), dtype)), data.draw(values((k, m), dtype))
    s, t = tc.asarray(a), tc.asarray(b)
    agrees(s @ t, a @ b)
    agrees(tc.matmul(s[0], t), a[0] @ b)
    agrees(tc.tensordot(s, t, axes=1), np.tensordot(a, b, axes=1))
    agrees(tc.tensordot(s, s, axes=([0, 2], [0, 2])), np.tensordot(a, a, axes=([0, 2], [0, 2])))
    agrees(tc.vecdot(s, s), np.vecdot(a, a))
    agrees(tc.matrix_transpose(s), a.mT)
    agrees(s.mT, a.mT)
    agrees(t.T, b.T)
    if m:
        agrees(tc.outer(t[:, 0], t[:, -1]), np.outer(b[:, 0], b[:, -1]))


# -- far out


def test_nothing_overflows_far_out() -> None:
    far = tc.asarray([-1000.0, -100.0, 0.0, 100.0, 1000.0], dtype="float64")
    e = math.exp(-100.0)
    for f, expected in [
        (tc.sigmoid, [0.0, e, 0.5, 1.0, 1.0]),
        (tc.softplus, [0.0, e, math.log(2), 100.0, 1000.0]),
        (tc.silu, [0.0, -100 * e, 0.0, 100.0, 1000.0]),
        (tc.gelu, [0.0, 0.0, 0.0, 100.0, 1000.0]),
        (lambda x: tc.gelu(x, approximate=True), [0.0, 0.0, 0.0, 100.0, 1000.0]),
        (tc.erf, [-1.0, -1.0, 0.0, 1.0, 1.0]),
        (tc.softmax, [0.0, 0.0, 0.0, 0.0, 1.0]),
        (tc.log_softmax, [-2000.0, -1100.0, -1000.0, -900.0, 0.0]),
    ]:
        np.testing.assert_allclose(f(far).numpy(), expected, rtol=1e-12, atol=0)
    assert tc.logsumexp(far).item() == 1000.0
    assert tc.logsumexp(far - 5000.0).item() == -4000.0
    assert tc.logaddexp(far, far)[0].item() == pytest.approx(-1000.0 + math.log(2))
    inf = tc.asarray([-math.inf, -math.inf])
    assert tc.logsumexp(inf).item() == -math.inf
    rows = tc.stack([inf, tc.asarray([0.0, 0.0]), tc.asarray([math.nan, 0.0])])
    lse = tc.logsumexp(rows, axis=1)
    assert lse.dtype is tc.float32
    np.testing.assert_allclose(lse.numpy(), [-math.inf, math.log(2), math.nan])
    assert tc.logsumexp(tc.asarray([math.inf, 0.0])).item() == math.inf


@FAST
@given(x=st.floats(-30, 30))
def test_erf_to_the_last_digits(x: float) -> None:
    assert tc.erf(tc.asarray(x, dtype="float64")).item() == pytest.approx(math.erf(x), rel=4e-16, abs=1e-300)
