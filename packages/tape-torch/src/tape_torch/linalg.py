"""Matrix products, linear algebra and Fourier transforms: PyTorch's, with the standard's parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tape_core.typing import Axis, Raw
from torch import Tensor

from tape_torch.promotion import FLOATING, SIGNED, bits, promote, unbits
from tape_torch.thresholds import MATMUL_MIN_ELEMENTS, MATMUL_NARROW_COLUMNS

Kernel = Callable[..., Any]
_linalg: Any = torch.linalg  # its functions have no types
_broadcast: Any = torch.broadcast_tensors


def _matmul(x1: Tensor, x2: Tensor) -> Tensor:
    if x1.dtype is not x2.dtype:
        x1, x2 = promote(x1, x2)
    try:
        if (
            x1.numel() >= MATMUL_MIN_ELEMENTS
            and x1.ndim == 2 == x2.ndim
            and 1 < x2.size(1) < MATMUL_NARROW_COLUMNS
            and x1.is_cpu
        ):
            # x1 @ x2 as the transpose of x2.mT @ x1.mT: a third of the time for 10 columns. Contiguous, as the product
            # itself would be.
            return torch.matmul(x2.mT, x1.mT).mT.contiguous()
        return torch.matmul(x1, x2)
    except NotImplementedError:
        return _integer_matmul(x1, x2)


def _integer_matmul(x1: Tensor, x2: Tensor) -> Tensor:
    """Multiply matrices of bools or unsigned integers, or of integers on a device without a kernel for them."""
    dtype = x1.dtype
    if dtype is torch.bool:
        return _matmul(x1.to(torch.int64), x2.to(torch.int64)) != 0
    if dtype in SIGNED:
        return unbits(_matmul(bits(x1), bits(x2)), dtype)
    if dtype.is_floating_point or dtype.is_complex or x1.device.type == "cpu":
        raise TypeError(f"PyTorch has no matrix product of {dtype}")
    rows, columns = (x1[None] if x1.ndim == 1 else x1), (x2[:, None] if x2.ndim == 1 else x2)
    out = torch.sum(rows[..., :, :, None] * columns[..., None, :, :], -2, dtype=dtype)
    out = out[..., 0] if x2.ndim == 1 else out
    return out[..., 0] if x1.ndim == 1 and x2.ndim == 1 else out[..., 0, :] if x1.ndim == 1 else out


def _vecdot(x1: Tensor, x2: Tensor, *, axis: int = -1) -> Tensor:
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"axis {axis} has the lengths {x1.shape[axis]} and {x2.shape[axis]}")
    x1, x2 = promote(x1, x2)
    x1, x2 = x1.movedim(axis, -1), x2.movedim(axis, -1)
    # The standard's vecdot conjugates its first argument.
    return _matmul(x1.conj()[..., None, :], x2[..., :, None])[..., 0, 0]


def _cross(x1: Tensor, x2: Tensor, *, axis: int = -1) -> Any:
    x1, x2 = promote(x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"axis {axis} must have the length 3, got {x1.shape[axis]} and {x2.shape[axis]}")
    x1, x2 = _broadcast(x1, x2)
    if x1.dtype in SIGNED:
        return unbits(_linalg.cross(bits(x1), bits(x2), dim=axis), x1.dtype)
    return _linalg.cross(x1, x2, dim=axis)


def _solve(x1: Tensor, x2: Tensor) -> Any:
    x1, x2 = promote(x1, x2)
    if x2.ndim == 1:
        if x1.shape[-1] != len(x2):
            raise ValueError(f"x2 must have the length {x1.shape[-1]}, got {len(x2)}")
        return _linalg.solve(x1, x2[:, None])[..., 0]
    # The standard: x2 is a vector only if it has one dimension. PyTorch would take this stack of matrices for vectors.
    if x1.ndim == x2.ndim + 1 and x1.shape[:-1] == x2.shape:
        x2 = x2[None]
    return _linalg.solve(x1, x2)


def _diagonal(x: Tensor, *, offset: int = 0) -> Tensor:
    return torch.diagonal(x, offset, -2, -1)


def _vector_norm(x: Tensor, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Any:
    # PyTorch would reduce all axes.
    if axis == ():
        size = torch.abs(x)
        return (size != 0).to(size.dtype) if ord == 0 else size
    if ord == 0 and x.is_complex():
        x = x.abs()  # PyTorch would count in complex numbers, and warn when it drops the imaginary part
    return _linalg.vector_norm(x, ord, axis, keepdims)


def _relative_tolerance(x: Tensor, rtol: Raw) -> Any:
    """Return the size, relative to the largest, above which a singular value counts as nonzero."""
    if rtol is None:
        dtype = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(x.dtype, x.dtype)
        # The standard's default: max(M, N) times the spacing of numbers at 1.
        return max(x.shape[-2:]) * torch.finfo(dtype).eps
    return getattr(rtol, "array", rtol)  # a Tensor has one tolerance for each matrix of a stack


def _matrix_transpose(x: Tensor) -> Tensor:
    if x.ndim < 2:
        raise ValueError(f"x must have two dimensions or more, got shape {tuple(x.shape)}")
    return x.mT


def _matrix_rank(x: Tensor, *, rtol: Raw = None) -> Tensor:
    if x.ndim < 2:
        raise ValueError(f"x must have two dimensions or more, got shape {tuple(x.shape)}")
    values = _linalg.svdvals(x)
    if 0 in values.shape[-1:]:
        return torch.zeros(values.shape[:-1], dtype=torch.int64, device=x.device)
    rtol = _relative_tolerance(x, rtol)
    rtol = rtol[..., None] if isinstance(rtol, Tensor) else rtol
    return torch.sum(values > torch.amax(values, -1, keepdim=True) * rtol, -1)


def _pinv(x: Tensor, *, rtol: Any = None) -> Any:
    rtol = _relative_tolerance(x, rtol)
    if not x.is_complex() or not x.numel():
        return _linalg.pinv(x, rtol=rtol)
    # PyTorch's own forgets a conjugation while a TorchDispatchMode is active, as where processes compare what they
    # send.
    u, values, vh = _linalg.svd(x, full_matrices=False)
    least = torch.amax(values, -1, keepdim=True) * (rtol[..., None] if isinstance(rtol, Tensor) else rtol)
    inverse = torch.where(values > least, 1 / values, 0.0)
    return (torch.conj_physical(vh).mT * inverse[..., None, :]) @ torch.conj_physical(u).mT


def _with_value_errors(function: Kernel) -> Kernel:
    """Raise a ValueError for a matrix without such a decomposition, as other backends do."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _linalg.LinAlgError as error:
            raise ValueError(str(error)) from error

    return kernel


def _eigvals(x: Tensor) -> Tensor:
    if not torch.isfinite(x).all():  # LAPACK would crash the process; PyTorch checks for it only in `eig`
        raise ValueError("x must have no infinite elements and no NaN")
    found: Tensor = _linalg.eigvals(x)
    return found


def _inexact(x: Tensor) -> Tensor:
    """Convert integers to the default dtype, which is not always PyTorch's own."""
    return x if x.is_floating_point() or x.is_complex() else x.to(FLOATING[x.dtype])


def _one_axis(function: Kernel) -> Kernel:
    def kernel(x: Tensor, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return function(_inexact(x), n, axis, norm)  # type: ignore[no-any-return]

    return kernel


def _several_axes(function: Kernel) -> Kernel:
    def kernel(
        x: Tensor, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Tensor:
        return function(_inexact(x), s, axes, norm)  # type: ignore[no-any-return]

    return kernel


KERNELS: dict[str, Kernel] = {
    "matmul": _matmul,
    "matrix_transpose": _matrix_transpose,
    "vecdot": _vecdot,
    "cross": _cross,
    "solve": _with_value_errors(_solve),
    "diagonal": _diagonal,
    "vector_norm": _vector_norm,
    "eigvals": _with_value_errors(_eigvals),
    "matrix_rank": _matrix_rank,
    "pinv": _with_value_errors(_pinv),
    "cholesky": _with_value_errors(lambda x, *, upper=False: _linalg.cholesky(x, upper=upper)),
    "qr": lambda x, *, mode="reduced": tuple(_linalg.qr(x, mode)),
    "svd": _with_value_errors(lambda x, *, full_matrices=True: tuple(_linalg.svd(x, full_matrices))),
    **{
        name: _with_value_errors(getattr(torch.linalg, name))
        for name in ("inv", "det", "slogdet", "eig", "eigh", "eigvalsh", "svdvals")
    },
    **{name: _one_axis(getattr(torch.fft, name)) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{name: _several_axes(getattr(torch.fft, name)) for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    "fftshift": lambda x, *, axes=None: torch.fft.fftshift(x, axes),
    "ifftshift": lambda x, *, axes=None: torch.fft.ifftshift(x, axes),
}
