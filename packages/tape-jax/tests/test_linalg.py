"""The exponential of matrices, by one program of XLA with as many squarings as each needs; rules without halving."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.linalg
import tape_core as tc
from tape_core.base.thresholds import CHOLESKY_RULE_LEAF_ROWS


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("scale", [1e-3, 0.2, 1.0, 4.0, 30.0])
def test_expm_is_scipys(dtype: str, scale: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 5))
    if dtype[0] == "c":
        x = x + 1j * rng.normal(size=(2, 5, 5))
    # Of skew-Hermitian matrices, so that the large ones have no large exponential.
    x = ((x - np.swapaxes(x, -1, -2).conj()) * scale).astype(dtype)
    found = tc.linalg.expm(tc.asarray(x, backend="jax"))
    assert found.dtype == tc.asarray(x).dtype
    assert np.max(np.abs(found.numpy() - scipy.linalg.expm(x))) < 100 * (1 + scale) * np.finfo(dtype).eps


def test_expm_of_a_large_norm_takes_more_squarings_than_jaxs_own() -> None:
    x = tc.asarray([[-1e9, 1.0], [0.0, -1.0]], dtype="float64", backend="jax")
    found = tc.linalg.expm(x).numpy()
    assert np.isnan(jax.scipy.linalg.expm(x.numpy())).any()
    assert found[1, 1] == pytest.approx(np.exp(-1.0), rel=1e-6)
    assert found[0, 0] == 0


def test_expm_of_a_stack_has_nan_where_a_matrix_is_not_finite() -> None:
    x = np.asarray([np.eye(2), [[np.inf, 0], [0, 1]], 9 * np.eye(2)])
    found = tc.linalg.expm(tc.asarray(x, backend="jax")).numpy()
    assert np.isnan(found[1]).all()
    assert np.allclose(found[[0, 2]], [np.exp(1) * np.eye(2), np.exp(9) * np.eye(2)], rtol=1e-13)


def test_expm_goes_through_jit_and_its_derivatives() -> None:
    x = np.asarray([[0.3, 1.0], [-2.0, 0.5]])
    expected = tc.linalg.expm(tc.asarray(x, backend="numpy")).numpy()
    assert np.allclose(np.asarray(jax.jit(tc.linalg.expm)(x).numpy()), expected, rtol=1e-13)

    def loss(x: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.linalg.expm(x) ** 2)

    for transform in (tc.grad, tc.hessian):
        wanted = transform(loss)(tc.asarray(x, backend="numpy")).numpy()
        found = transform(loss)(tc.asarray(x, backend="jax"))
        assert np.allclose(found.numpy(), wanted, rtol=1e-12)
        assert np.allclose(tc.function(transform(loss))(tc.asarray(x, backend="jax")).numpy(), wanted, rtol=1e-12)


def test_expm_of_what_is_no_square_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="x must be square matrices"):
        tc.linalg.expm(tc.ones((2, 3), backend="jax"))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_the_gradient_of_cholesky_is_not_halved_for_xla(backend: str) -> None:
    n = CHOLESKY_RULE_LEAF_ROWS + 1
    with tc.use_backend(backend):
        loss = tc.grad(lambda x: tc.sum(tc.linalg.cholesky(x) ** 3))
        f = tc.function(loss, compile="xla")
        large, small = ((np.eye(k) + 0.01).astype("float64") for k in (n, 3))
        found = f(tc.asarray(large))
        np.testing.assert_allclose(found.numpy(), loss(tc.asarray(large)).numpy(), rtol=1e-10, atol=1e-12)
        f(tc.asarray(small))
    traced = [len(one.program.instructions) for one in f._compiled.all]
    assert traced[0] == traced[1]


@pytest.mark.parametrize("order", [np.inf, -np.inf])
@pytest.mark.parametrize("x", [[0.0, 0.0, 0.0], [0.0, 1.0, -2.0], [1.0, -1.0, 0.5], [2.0, 2.0, 2.0]])
def test_norms_of_infinite_order_have_tapes_derivative_at_0_to_jax(x, order):
    with tc.use_backend("jax"):
        norm = lambda x: tc.linalg.vector_norm(tc.asarray(x), ord=order)  # noqa: E731
        x = tc.asarray(x, dtype="float64")
        expected = tc.grad(norm)(x).numpy()
        on_arrays = lambda x: norm(x).array  # noqa: E731
        for way in (jax.grad(on_arrays), jax.jit(jax.grad(on_arrays)), jax.jacfwd(on_arrays)):
            np.testing.assert_allclose(way(x.array), expected)
