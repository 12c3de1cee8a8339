"""Sorting: the order of ties, zeros and NaN is that of the other backends, and so are gradients."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"descending": True}, {"stable": False}], ids=str)
@pytest.mark.parametrize("compile", [None, "python", "xla"])
def test_the_gradient_of_a_sort_is_that_of_numpy(options: dict[str, Any], compile: Any) -> None:
    x = np.random.default_rng(0).permutation(np.linspace(-1, 1, 12)).reshape(3, 4)
    weights = np.arange(12.0).reshape(3, 4)

    def gradient(backend: str) -> tc.Tensor:
        w = tc.asarray(weights, backend=backend)
        gradient = tc.grad(lambda x: tc.sum(tc.sort(x, **options) ** 2 * w))
        compiled = compile is not None and backend == "jax"
        return (tc.function(gradient, compile=compile) if compiled else gradient)(tc.asarray(x, backend=backend))

    assert np.allclose(gradient("jax").numpy(), gradient("numpy").numpy(), rtol=1e-12)


def test_equal_elements_and_nan_have_gradients_of_their_own() -> None:
    x = np.asarray([2.0, np.nan, 2.0, -0.0, 0.0], "float32")

    def gradient(backend: str) -> tc.Tensor:
        w = tc.asarray([1.0, 2.0, 3.0, 4.0, 5.0], backend=backend)
        return tc.grad(lambda x: tc.sum(tc.where(tc.isnan(tc.sort(x)), w, tc.sort(x) * w)))(
            tc.asarray(x, backend=backend)
        )

    assert gradient("jax").tolist() == gradient("numpy").tolist()


def test_a_gradient_does_not_sort_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tc.asarray([3.0, 1.0, 2.0], backend="jax")
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sort(x)
    monkeypatch.setattr(x.backend.xp, "argsort", None)
    assert tape.gradient(y, x, output_gradients=tc.asarray([1.0, 2.0, 3.0], backend="jax")).tolist() == [3.0, 1.0, 2.0]
