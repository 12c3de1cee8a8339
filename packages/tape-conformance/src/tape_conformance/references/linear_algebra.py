"""References of linear algebra beyond the standard: SciPy's functions, and loops written from the definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from tape_conformance.references import Array


def _for_each_matrix(function: Callable[..., Any], *matrices: Array) -> Any:
    """Apply a function of matrices to stacks of matrices, which broadcast."""
    batch = np.broadcast_shapes(*[x.shape[:-2] for x in matrices])
    matrices = tuple(np.broadcast_to(x, batch + x.shape[-2:]) for x in matrices)
    results = [function(*[x[k] for x in matrices]) for k in np.ndindex(batch)]
    # A stack of no matrices: the shape is that of the result for identity matrices.
    if not results:
        shape = function(*[np.eye(*x.shape[-2:]) for x in matrices]).shape
        return np.zeros(batch + shape)
    return np.stack(results).reshape(batch + results[0].shape)


def _with_columns(function: Callable[..., Any], a: Array, b: Array) -> Any:
    """Apply a function of matrices to `a` and `b`; a vector `b` is a matrix of one column."""
    columns = b[:, None] if b.ndim == 1 else b
    found = _for_each_matrix(function, a, columns)
    return found[..., 0] if b.ndim == 1 else found


def _solve_triangular(a: Array, b: Array, *, lower: bool = False, unit_diagonal: bool = False) -> Any:
    def solve(a: Array, b: Array) -> Any:
        a = np.tril(a) if lower else np.triu(a)
        # What lies on the diagonal is not read, and is 1 instead.
        if unit_diagonal:
            a = a - np.diag(np.diag(a)) + np.eye(len(a))
        return np.linalg.solve(a, b)

    return _with_columns(solve, a, b)


def _lu_factor(x: Array) -> tuple[Any, Any]:
    m, n = x.shape[-2:]
    lu, permutation = np.array(x), np.zeros(x.shape[:-1], np.int64)
    for k in np.ndindex(x.shape[:-2]):
        a, order = lu[k], np.arange(m)
        for j in range(min(m, n)):
            pivot = j + int(np.argmax(np.abs(a[j:, j].real) + np.abs(a[j:, j].imag)))  # as LAPACK compares
            a[[j, pivot]], order[[j, pivot]] = a[[pivot, j]], order[[pivot, j]]
            if a[j, j] != 0:
                a[j + 1 :, j] /= a[j, j]
            a[j + 1 :, j + 1 :] -= np.outer(a[j + 1 :, j], a[j, j + 1 :])
        permutation[k] = order
    return lu, permutation


def _lu_solve(lu: Array, permutation: Array, b: Array, *, transposed: bool = False) -> Any:
    n = lu.shape[-1]
    # Multiplied out and solved anew, so that nothing depends on how a solver uses factors. Row i of the product is row
    # permutation[i] of the matrix.
    product = (np.tril(lu, -1) + np.eye(n)) @ np.triu(lu)
    a = np.take_along_axis(product, np.argsort(permutation, axis=-1)[..., None], axis=-2)
    return _with_columns(np.linalg.solve, a.mT if transposed else a, b)


def _expm_derivative(x: Array, direction: Array) -> Any:
    def one(x: Array, direction: Array) -> Any:
        return scipy.linalg.expm_frechet(x, direction, compute_expm=False) if x.size else x

    return _for_each_matrix(one, x, direction)


def _csr(data: Array, indices: Array, indptr: Array, columns: int) -> Any:
    a = np.zeros((len(indptr) - 1, columns), data.dtype)
    # Added, not assigned: CSR allows several numbers for one place.
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            a[i, indices[k]] += data[k]
    return a


def _csr_matmul(data: Array, indices: Array, indptr: Array, dense: Array) -> Any:
    return _csr(data, indices, indptr, dense.shape[-2 if dense.ndim > 1 else 0]) @ dense


REFERENCES: dict[str, Callable[..., Any]] = {
    "einsum": lambda arrays, expression: np.einsum(expression, *arrays),
    "solve_triangular": _solve_triangular,
    "lu_factor": _lu_factor,
    "lu_solve": _lu_solve,
    "expm": lambda x: scipy.linalg.expm(x) if x.size else x,
    "expm_derivative": _expm_derivative,
    "csr_matmul": _csr_matmul,
    "csr_transposed_matmul": lambda data, indices, indptr, dense, columns: (
        _csr(data, indices, indptr, columns).T @ dense
    ),
}
