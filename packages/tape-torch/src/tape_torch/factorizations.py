"""Triangular systems and LU factors by LAPACK; the factors of `solve` are kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tape_torch import linalg
from tape_torch.fallback import default_kernel

_FLOATS = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})


def permutation_of(pivots: torch.Tensor, lu: torch.Tensor) -> Any:
    """Convert LAPACK's row swaps to the order of the rows: the columns of the ones in the permutation matrix."""
    p = torch.lu_unpack(lu, pivots, unpack_data=False)[0]
    return p.real.argmax(-2) if p.dtype.is_complex else p.argmax(-2)


def solve_triangular(a: torch.Tensor, b: torch.Tensor, *, lower: bool = False, unit_diagonal: bool = False) -> Any:
    fits = a.dtype is b.dtype and a.dtype in _FLOATS and a.ndim > 1 and a.shape[-1] == a.shape[-2] and b.ndim > 0
    # A 0 on the diagonal is looked for on the CPU only: on a GPU it would mean waiting for the device.
    if not fits or (not unit_diagonal and a.device.type == "cpu" and not torch.diagonal(a, 0, -2, -1).all()):
        return default_kernel("solve_triangular", a, b, lower=lower, unit_diagonal=unit_diagonal)
    x = b[:, None] if b.ndim == 1 else b
    if x.shape[-2] != a.shape[-1]:
        return default_kernel("solve_triangular", a, b, lower=lower, unit_diagonal=unit_diagonal)
    x = torch.linalg.solve_triangular(a, x, upper=not lower, unitriangular=unit_diagonal)
    return x[..., 0] if b.ndim == 1 else x


def lu_factor(x: torch.Tensor) -> Any:
    if x.dtype not in _FLOATS or x.ndim < 2 or 0 in x.shape:
        return default_kernel("lu_factor", x)
    lu, pivots, _ = torch.linalg.lu_factor_ex(x)
    return lu, permutation_of(pivots, lu)


def solve_with_residuals(x1: torch.Tensor, x2: torch.Tensor) -> Any:
    fits = x1.dtype is x2.dtype and x1.dtype in _FLOATS and x1.ndim == 2 and 1 <= x2.ndim <= 2 and x1.numel() > 0
    if not fits or x1.shape[0] != x1.shape[1] or x2.shape[0] != x1.shape[0]:
        return linalg.KERNELS["solve"](x1, x2), ()
    lu, pivots = torch.linalg.lu_factor(x1)
    x = torch.linalg.lu_solve(lu, pivots, x2[:, None] if x2.ndim == 1 else x2)
    return x[:, 0] if x2.ndim == 1 else x, (lu, permutation_of(pivots, lu))


KERNELS: dict[str, Callable[..., Any]] = {
    "lu_factor": lu_factor,
    "solve_with_residuals": solve_with_residuals,
    "solve_triangular": solve_triangular,
}
