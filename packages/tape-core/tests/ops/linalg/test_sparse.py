"""Products with sparse matrices."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tape_core as tc
from support import assert_agrees, matrix, numpy_gradients

agrees = partial(assert_agrees, double=1e-10, single=2e-4)


@pytest.mark.usefixtures("with_and_without_scipy")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (2, 7, 3), (7, 0)])
def test_sparse_products_are_those_of_the_dense_matrix(shape: tuple[int, ...], dtype: str) -> None:
    a = matrix(1, 5, 7, dtype=dtype)
    a[np.random.default_rng(2).random(a.shape) < 0.7] = 0
    a[3] = 0
    rows, indices = map(np.asarray, np.nonzero(a))
    indptr = np.searchsorted(rows, np.arange(6))
    data, dense = a[rows, indices], matrix(3, *shape, dtype=dtype)
    agrees(tc.linalg.csr_matmul(*map(tc.asarray, (data, indices, indptr, dense))), a @ dense)
    w = tc.asarray(matrix(4, *(a @ dense).shape, dtype=dtype))
    places = tc.asarray(indices), tc.asarray(indptr)
    expected = numpy_gradients(lambda a, d: tc.sum(tc.real(tc.matmul(a, d) * w)), a, dense)
    found = numpy_gradients(
        lambda v, d: tc.sum(tc.real(tc.linalg.csr_matmul(v, *places, d) * w)),
        data,
        dense,
    )
    rtol = 1e-4 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(found[0], expected[0][rows, indices], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found[1], expected[1], rtol=rtol, atol=rtol)


@pytest.mark.usefixtures("with_and_without_scipy")
def test_what_is_not_finite_stays_in_its_row_of_a_sparse_product() -> None:
    data, indices, indptr = tc.asarray([tc.inf, tc.nan, 1.0]), tc.asarray([0, 1, 2]), tc.asarray([0, 1, 2, 3])
    found = tc.linalg.csr_matmul(data, indices, indptr, tc.ones(3)).tolist()
    assert (found[0], found[2]) == (tc.inf, 1.0)
    assert np.isnan(found[1])
