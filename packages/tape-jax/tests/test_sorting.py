"""`top_k` by XLA's partial sort: the order of ties, zeros and NaN is that of the other backends."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tape_core as tc


def _drawn(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (4, 40)).astype(dtype)
    if x.dtype.kind == "f":
        for special in (np.nan, -np.nan, np.inf, -np.inf, -0.0):
            x[rng.random(x.shape) < 0.1] = special
    return x


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint16", "int64"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_order_is_numpys(dtype: str, largest: bool, axis: int) -> None:
    x = _drawn(dtype)
    for k in (0, 1, 4):
        values, indices = tc.top_k(tc.asarray(x, backend="jax"), k, axis=axis, largest=largest)
        expected = tc.top_k(tc.asarray(x, backend="numpy"), k, axis=axis, largest=largest)
        assert np.array_equal(indices.numpy(), expected.indices.numpy())
        assert np.array_equal(values.numpy(), expected.values.numpy(), equal_nan=dtype[0] == "f")
        assert values.dtype == expected.values.dtype
        assert indices.dtype == tc.int64


def test_bfloat16() -> None:
    values, indices = tc.top_k(tc.asarray([1.0, 3.0, 3.0, -2.0], dtype=tc.bfloat16, backend="jax"), 3)
    assert (values.tolist(), indices.tolist(), values.dtype) == ([3.0, 3.0, 1.0], [1, 2, 0], tc.bfloat16)


def test_a_whole_sort_is_not_made() -> None:
    found = jax.jit(lambda x: tc.top_k(x, 3).values).lower(np.ones(1000, np.float32)).as_text()
    assert "top_k" in found
    assert "stablehlo.sort" not in found


def test_derivatives() -> None:
    x = tc.asarray([[2.0, 1.0, 2.0], [0.0, 5.0, 4.0]], backend="jax")
    gradient = tc.grad(lambda x: tc.sum(tc.top_k(x, 2).values * tc.asarray([1.0, 10.0], backend="jax")))
    expected = [[1.0, 0.0, 10.0], [0.0, 1.0, 10.0]]
    assert gradient(x).tolist() == expected
    assert tc.function(gradient)(x).tolist() == expected
    assert tc.vmap(lambda row: tc.top_k(row, 1).indices)(x).tolist() == [[0], [1]]


def test_arguments_are_checked() -> None:
    x = tc.asarray([1.0, 2.0], backend="jax")
    with pytest.raises(ValueError, match="k must be between 0 and the length of axis -1, which is 2, got 3"):
        tc.top_k(x, 3)
    with pytest.raises(TypeError, match="k must be an integer"):
        tc.top_k(x, 1.5)  # type: ignore[arg-type]
