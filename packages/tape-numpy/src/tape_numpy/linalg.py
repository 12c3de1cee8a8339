"""Linear algebra kernels by SciPy's BLAS and LAPACK, if SciPy is installed.

NumPy has no triangular solver, returns no LU factors and has no sparse matrices. SciPy is imported when the first of
these kernels runs. Without it the default kernels of the ops are used, and NumPy's functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from tape_core.backends import DEFAULT_KERNELS, check_csr
from tape_core.typing import Kernel, Namespace, Raw

from tape_numpy.thresholds import GETRS_MAX_COLUMNS, STACK_LOOP_MIN_UNKNOWNS, SUBSTITUTE_MAX_UNKNOWNS


class Routines(NamedTuple):
    """The functions of BLAS and LAPACK for one dtype.

    gemm: product of matrices; trsm: solution of triangular systems; getrf: LU factors; getrs: solution by LU factors.
    """

    gemm: Callable[..., Any]
    trsm: Callable[..., Any]
    getrf: Callable[..., Any]
    getrs: Callable[..., Any]


@lru_cache(maxsize=1)
def _routines() -> dict[np.dtype[Any], Routines] | None:
    try:
        blas, lapack = import_module("scipy.linalg.blas"), import_module("scipy.linalg.lapack")
    except ImportError:
        return None
    return {
        np.dtype(dtype): Routines(
            getattr(blas, f"{letter}gemm"),
            getattr(blas, f"{letter}trsm"),
            getattr(lapack, f"{letter}getrf"),
            getattr(lapack, f"{letter}getrs"),
        )
        for dtype, letter in (("float32", "s"), ("float64", "d"), ("complex64", "c"), ("complex128", "z"))
    }


@lru_cache(maxsize=1)
def _sparse() -> Any:
    try:
        return import_module("scipy.sparse").csr_array
    except ImportError:
        return None


_FLOATS = frozenset(np.dtype(dtype) for dtype in ("float32", "float64", "complex64", "complex128"))


def _find_routines(*arrays: Raw) -> tuple[Routines, list[Raw]] | None:
    """Return the routines for these arrays, and the arrays in their common dtype.

    None without SciPy, and for dtypes and empty arrays that BLAS and LAPACK do not take.
    """
    routines = _routines()
    if routines is None or any([x.dtype not in routines or 0 in x.shape for x in arrays]):
        return None
    dtype = np.result_type(*arrays)
    return routines[dtype], [x.astype(dtype, copy=False) for x in arrays]


def _for_each_matrix(function: Callable[[Raw, Raw], Raw], a: Raw, b: Raw) -> Raw:
    """Apply a function to each pair of matrices of two stacks, which broadcast."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(b, batch + b.shape[-2:])
    out = np.empty(b.shape, b.dtype)
    for k in np.ndindex(batch):
        out[k] = function(a[k], b[k])
    return out


def _substitute(routines: Routines, a: Raw, x: Raw, lower: bool, unit: bool) -> None:
    """Solve `a @ y == x` for a triangular matrix `a`, overwriting `x`, which is C-contiguous.

    By halves: solve with one half of `a`, subtract its product from the other rows of `x`, solve with the other half.
    So most of the work is a product of matrices.
    """
    n = len(a)
    # BLAS takes Fortran order, in which a C-contiguous array is its transpose: y.T @ a.T == x.T, and lower is upper.
    if n <= SUBSTITUTE_MAX_UNKNOWNS:
        routines.trsm(1.0, a.T, x.T, side=1, lower=not lower, diag=unit, overwrite_b=1)
        return
    k = n // 2
    first, second = (slice(None, k), slice(k, None)) if lower else (slice(k, None), slice(None, k))
    _substitute(routines, a[first, first], x[first], lower, unit)
    # f2py overwrites an array only if it lies in Fortran order and has the routine's dtype; else it silently works on a
    # copy, and `x` would stay as it is. Rows of a C-contiguous array, transposed, do lie so.
    routines.gemm(-1.0, x[first].T, a[second, first].T, beta=1.0, c=x[second].T, overwrite_c=1)
    _substitute(routines, a[second, second], x[second], lower, unit)


def _solve_by_factors(routines: Routines, lu: Raw, x: Raw, transposed: bool) -> Raw:
    """Solve `l @ u @ y == x`, or its transpose; the rows of `x` are permuted already. `x` may be overwritten."""
    if x.shape[1] <= GETRS_MAX_COLUMNS:
        # The identity as pivots: no rows are swapped.
        # trans=1 is the transpose, also of complex matrices; 2 would be the conjugate one.
        return routines.getrs(lu, np.arange(len(lu), dtype=np.int32), x, trans=int(transposed))[0]
    # The transpose of l @ u is u.T @ l.T: a lower triangle first, which has u's diagonal, then an upper one of ones.
    lu = lu.T if transposed else lu
    _substitute(routines, lu, x, True, not transposed)
    _substitute(routines, lu, x, False, transposed)
    return x


def kernels(xp: Namespace) -> dict[str, Kernel]:
    """Return the kernels by op name, for the backend's namespace `xp`, which default kernels take."""

    def solve_triangular(a: Raw, b: Raw, *, lower: bool = False, unit_diagonal: bool = False) -> Raw:
        found = _find_routines(a, b)
        stacked = a.ndim > 2 or b.ndim > 2
        if found is None or a.ndim < 2 or (stacked and a.shape[-1] <= STACK_LOOP_MIN_UNKNOWNS):
            return DEFAULT_KERNELS["solve_triangular"](xp, a, b, lower=lower, unit_diagonal=unit_diagonal)
        n, m = a.shape[-2:]
        if n != m or n != b.shape[-2 if b.ndim > 1 else -1] or not (unit_diagonal or np.diagonal(a, 0, -2, -1).all()):
            # A wrong shape or a singular matrix: the default kernel raises.
            return DEFAULT_KERNELS["solve_triangular"](xp, a, b, lower=lower, unit_diagonal=unit_diagonal)
        routines, (a, b) = found

        def solve(a: Raw, b: Raw) -> Raw:
            x = np.array(b, order="C")
            _substitute(routines, a, x, bool(lower), bool(unit_diagonal))
            return x

        x = b[:, None] if b.ndim == 1 else b
        x = _for_each_matrix(solve, a, x) if stacked else solve(a, x)
        return x[..., 0] if b.ndim == 1 else x

    def lu_factor(x: Raw) -> tuple[Raw, Raw]:
        found = _find_routines(x)
        if found is None or x.ndim != 2:
            factors: tuple[Raw, Raw] = DEFAULT_KERNELS["lu_factor"](xp, x)
            return factors
        routines, (x,) = found
        lu, pivots, _ = routines.getrf(x)
        return lu, _permutation(pivots, len(x))

    def lu_solve(lu: Raw, permutation: Raw, b: Raw, *, transposed: bool = False) -> Raw:
        found = _find_routines(lu, b)
        if found is None or not lu.ndim == b.ndim == 2 or len(b) != len(lu) or not np.diagonal(lu).all():
            return DEFAULT_KERNELS["lu_solve"](xp, lu, permutation, b, transposed=transposed)
        routines, (lu, b) = found
        if not transposed:
            return _solve_by_factors(routines, lu, b.take(permutation, axis=0), False)
        x = _solve_by_factors(routines, lu, np.array(b, order="C"), True)
        out = np.empty_like(x)
        out[permutation] = x
        return out

    def solve_with_residuals(x1: Raw, x2: Raw) -> tuple[Raw, tuple[Raw, ...]]:
        """Return the solution, and the LU factors as residuals for the rule of `solve`."""
        found = _find_routines(x1, x2)
        if found is None or x1.ndim != 2 or x2.ndim > 2 or x1.shape[0] != x1.shape[1] or len(x1) != len(x2):
            return np.linalg.solve(x1, x2), ()
        routines, (x1, x2) = found
        lu, pivots, info = routines.getrf(x1)
        # getrf goes on after a zero pivot, and reports it; getrs would divide by it.
        if info > 0:
            raise np.linalg.LinAlgError("Singular matrix")
        permutation = _permutation(pivots, len(lu))
        x = x2.take(permutation, axis=0)
        x = _solve_by_factors(routines, lu, x[:, None] if x.ndim == 1 else x, False)
        return x[:, 0] if x2.ndim == 1 else x, (lu, permutation)

    def csr_matmul(data: Raw, indices: Raw, indptr: Raw, dense: Raw) -> Raw:
        if dense.ndim == 0 or dense.dtype != data.dtype:
            return DEFAULT_KERNELS["csr_matmul"](xp, data, indices, indptr, dense)
        columns = dense.shape[-2 if dense.ndim > 1 else 0]
        check_csr(xp, data, indices, indptr, columns)
        rows = len(indptr) - 1
        if dense.ndim <= 2 and data.dtype in _FLOATS and (csr_array := _sparse()) is not None:
            return csr_array((data, indices, indptr), shape=(rows, columns)) @ dense
        matrices = dense if dense.ndim > 1 else dense[:, None]
        products = data[:, None] * matrices.take(indices, axis=-2)
        out = np.zeros((*matrices.shape[:-2], rows, matrices.shape[-1]), products.dtype)
        # reduceat sums from each start to the next; for an empty row it would return an element, so these are left out.
        filled = indptr[1:] > indptr[:-1]
        if filled.any():
            out[..., filled, :] = np.add.reduceat(products, indptr[:-1][filled], axis=-2)
        return out if dense.ndim > 1 else out[:, 0]

    def csr_transposed_matmul(data: Raw, indices: Raw, indptr: Raw, dense: Raw, columns: int) -> Raw:
        fits = dense.ndim <= 2 and dense.dtype == data.dtype and data.dtype in _FLOATS
        if not fits or (csr_array := _sparse()) is None:
            return DEFAULT_KERNELS["csr_transposed_matmul"](xp, data, indices, indptr, dense, columns)
        return csr_array((data, indices, indptr), shape=(len(indptr) - 1, columns)).T @ dense

    return {
        "csr_matmul": csr_matmul,
        "csr_transposed_matmul": csr_transposed_matmul,
        "solve_triangular": solve_triangular,
        "lu_factor": lu_factor,
        "lu_solve": lu_solve,
        "solve": lambda x1, x2: solve_with_residuals(x1, x2)[0],
        "solve_with_residuals": solve_with_residuals,
        "pinv": _pinv,
        "matrix_rank": _matrix_rank,
    }


def _pinv(x: Raw, *, rtol: Raw = None) -> Raw:
    # NumPy's default bound is not the standard's, which it uses if `rtol=None` is passed.
    return np.linalg.pinv(x if x.dtype.kind in "fc" else x.astype(np.float64), rtol=rtol)


def _matrix_rank(x: Raw, *, rtol: Raw = None) -> Raw:
    if x.ndim < 2:  # NumPy would return 0 or 1
        raise ValueError(f"x must have two dimensions or more, got shape {x.shape}")
    return np.linalg.matrix_rank(x, rtol=rtol)


def _permutation(pivots: Raw, n: int) -> Raw:
    """Return the order of the rows after LAPACK's swaps: row k with row pivots[k], one after the other."""
    order = list(range(n))
    for k, pivot in enumerate(pivots.tolist()):
        order[k], order[pivot] = order[pivot], order[k]
    return np.array(order)
