"""Linear algebra and Fourier transforms against PyTorch, on its own samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
import torch


def skip_if(condition: Any) -> None:
    """Skip a sample that Tape's op cannot express."""
    if condition:
        pytest.skip("not expressible")


def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return tc.linalg.diagonal(tc.moveaxis(x, (dim1, dim2), (-2, -1)), offset=offset)


def norms(fft: Callable[..., Any], one: bool, last_two: bool = False) -> Callable[..., Any]:
    def adapter(x: Any, size: Any = None, dim: Any = None, norm: Any = None, **kwargs: Any) -> Any:
        norm, size = norm or "backward", kwargs.get("s", kwargs.get("n", size))
        if one:
            return fft(x, n=size, axis=-1 if dim is None else dim, norm=norm)
        dim = (dim,) if isinstance(dim, int) else dim
        size = (size,) if isinstance(size, int) else size
        axes = tuple(dim) if dim is not None else (-2, -1) if last_two else None
        if axes is None and size is not None:
            axes = tuple(range(-len(size), 0))
        if size is not None:
            size = tuple(x.shape[a] if n == -1 else n for n, a in zip(size, axes, strict=True))
        return fft(x, s=size, axes=axes, norm=norm)

    return adapter


def solve(a: Any, b: Any, left: bool = True) -> Any:
    if not left:
        return tc.linalg.solve(a.mT, b.mT).mT
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    return tc.linalg.solve(a, b[..., None])[..., 0] if vector else tc.linalg.solve(a, b)


def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    a, b = (a, b) if left else (a.mT, b.mT)
    x = tc.linalg.solve_triangular(a, b, lower=upper != left, unit_diagonal=unitriangular)
    return x if left else x.mT


def lu_factor(x: Any, *, pivot: bool = True) -> Any:
    skip_if(not pivot)
    return tc.linalg.lu_factor(x).LU


def lu_solve(lu: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    skip_if(not left)
    n = lu.shape[-1]
    rows = torch.arange(n).repeat(math.prod(pivots.shape[:-1]), 1)
    for own, swaps in zip(rows, pivots.array.reshape(-1, n).tolist(), strict=True):
        for k, pivot in enumerate(swaps):
            own[[k, pivot - 1]] = own[[pivot - 1, k]]
    rows = rows.reshape(pivots.shape)
    return tc.linalg.lu_solve((lu, tc.asarray(rows)), b, trans=2 if adjoint else 0)


def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    skip_if(dtype is not None or dim in ([], ()) or (not x.ndim and dim is not None))
    axis = tuple(dim) if isinstance(dim, list) else dim
    return tc.linalg.vector_norm(x, ord=ord, axis=axis, keepdims=keepdim)


def matrix_norm(x: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: Any = None) -> Any:
    skip_if(dtype is not None or keepdim)
    return tc.linalg.matrix_norm(tc.moveaxis(x, tuple(dim), (-2, -1)), ord=ord)


def old_norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    skip_if(p == "nuc" and dim is None and x.ndim != 2)
    axes = (dim,) if isinstance(dim, int) else tuple(dim or ())
    if p == "nuc":
        return matrix_norm(x, p, axes or (0, 1), keepdim, dtype)
    return vector_norm(x, 2 if p in ("fro", None) else p, list(axes) or None, keepdim, dtype)


def pinv(x: Any, *, hermitian: bool = False, atol: Any = None, rtol: Any = None, rcond: Any = None) -> Any:
    skip_if(hermitian or atol is not None or isinstance(rtol, tc.Tensor))
    return tc.linalg.pinv(x, rtol=rcond if rtol is None else rtol)


def hermitian(xp: Any, x: Any, *args: Any) -> Any:
    """Make a matrix Hermitian: PyTorch's gradient is the one among Hermitian matrices."""
    return (x + xp.conj(x.mT)) / 2, *args


def triangle(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a function to which PyTorch says which triangle counts."""
    return lambda x, UPLO="L": function(x)


def lower(xp: Any, b: Any, factor: Any, *args: Any) -> Any:
    """Make a factor triangular: PyTorch's gradient has numbers in the other triangle, too."""
    return b, xp.tril(factor), *args


def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    skip_if(upper)
    return tc.linalg.cho_solve(factor, b)


def einsum(arrays: Any, expression: str) -> Any:
    inputs, _, output = expression.partition("->")
    skip_if("..." in inputs and "..." not in output)
    return tc.einsum(expression, *arrays)


def logdet(x: Any) -> Any:
    skip_if(x.dtype.kind == "complex floating")  # PyTorch's result is complex
    return tc.linalg.slogdet(x).logabsdet


def svd(x: Any, full_matrices: bool = True) -> Any:
    skip_if(full_matrices and x.shape[-1] != x.shape[-2])
    return tc.linalg.svd(x, full_matrices=full_matrices)


def eigh_result(xp: Any, values: Any, vectors: Any) -> Any:
    return values, xp.abs(vectors)


def eig_result(xp: Any, values: Any, vectors: Any) -> Any:
    return values, xp.abs(vectors)


def svd_result(xp: Any, u: Any, s: Any, vh: Any) -> Any:
    return xp.abs(u), s, xp.abs(vh)


def qr(x: Any, mode: str = "reduced") -> Any:
    skip_if(mode == "r")
    return tuple(tc.linalg.qr(x, mode=mode))


def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    if not isinstance(dims, int):
        skip_if([a.shape[k] for k in dims[0]] != [b.shape[k] for k in dims[1]])  # PyTorch broadcasts these
    return tc.tensordot(a, b, axes=dims)


def matrix_rank(x: Any, *, hermitian: bool = False, atol: Any = None, rtol: Any = None, tol: Any = None) -> Any:
    skip_if(hermitian or atol is not None or tol is not None or isinstance(rtol, tc.Tensor))
    return tc.linalg.matrix_rank(x, rtol=rtol)


def table(call: Any) -> dict[str, dict[str, Any]]:
    """Return, for each function of Tape, its counterparts in PyTorch's table and the calls that adapt it to them."""
    la, fft = tc.linalg, tc.fft
    return {
        "fft": {"fft.fft": norms(fft.fft, True)},
        "ifft": {"fft.ifft": norms(fft.ifft, True)},
        "rfft": {"fft.rfft": norms(fft.rfft, True)},
        "irfft": {"fft.irfft": norms(fft.irfft, True)},
        "hfft": {"fft.hfft": norms(fft.hfft, True)},
        "ihfft": {"fft.ihfft": norms(fft.ihfft, True)},
        "fftn": {"fft.fftn": norms(fft.fftn, False), "fft.fft2": norms(fft.fftn, False, True)},
        "ifftn": {"fft.ifftn": norms(fft.ifftn, False), "fft.ifft2": norms(fft.ifftn, False, True)},
        "rfftn": {"fft.rfftn": norms(fft.rfftn, False), "fft.rfft2": norms(fft.rfftn, False, True)},
        "irfftn": {"fft.irfftn": norms(fft.irfftn, False), "fft.irfft2": norms(fft.irfftn, False, True)},
        "fftshift": {
            "fft.fftshift": call(
                fft.fftshift,
                "x axes",
            )
        },
        "ifftshift": {"fft.ifftshift": call(fft.ifftshift, "x axes")},
        "matmul": {
            "matmul": call(la.matmul),
            "mm": call(la.matmul),
            "bmm": call(la.matmul),
            "mv": call(la.matmul),
            "dot": call(la.matmul),
            "__rmatmul__": lambda x, y: y @ x,
        },
        "matrix_transpose": {"mT": call(la.matrix_transpose)},
        "vecdot": {"linalg.vecdot": call(la.vecdot), "vdot": call(la.vecdot)},
        "outer": {"outer": call(la.outer)},
        "tensordot": {"tensordot": tensordot},
        "kron": {"kron": call(tc.kron)},
        "multi_dot": {"linalg.multi_dot": call(la.multi_dot)},
        "matrix_power": {"linalg.matrix_power": call(la.matrix_power)},
        "einsum": {"einsum": einsum},
        "inv": {"linalg.inv": call(la.inv)},
        "pinv": {"linalg.pinv": pinv, "pinverse": pinv},
        "solve": {"linalg.solve": solve},
        "det": {"linalg.det": call(la.det)},
        "slogdet": {
            "linalg.slogdet": call(la.slogdet),
            "logdet": (logdet, {"nan": True}),
        },
        "diagonal": {
            "diagonal": diagonal,
            "linalg.diagonal": lambda x, **k: diagonal(x, **{"dim1": -2, "dim2": -1} | k),
        },
        "trace": {"trace": call(la.trace)},
        "vector_norm": {
            "linalg.vector_norm": vector_norm,
            "norm": old_norm,
            "norm/fro": old_norm,
            "norm/inf": old_norm,
        },
        "matrix_norm": {"linalg.matrix_norm": matrix_norm, "norm/nuc": old_norm},
        "matrix_rank": {"linalg.matrix_rank": matrix_rank},
        "cross": {"linalg.cross": call(la.cross)},
        "cholesky": {
            "linalg.cholesky": (call(la.cholesky), {"given": hermitian}),
            "cholesky": (call(la.cholesky), {"given": hermitian}),
        },
        "cho_solve": {"cholesky_solve": (cholesky_solve, {"given": lower})},
        "eigh": {"linalg.eigh": (triangle(la.eigh), {"observe": eigh_result, "given": hermitian})},
        "eigvalsh": {"linalg.eigvalsh": (triangle(la.eigvalsh), {"given": hermitian})},
        "eig": {"linalg.eig": (call(la.eig), {"observe": eig_result})},
        "eigvals": {"linalg.eigvals": call(la.eigvals)},
        "qr": {"linalg.qr": qr},
        "svd": {"linalg.svd": (svd, {"observe": svd_result})},
        "svdvals": {"linalg.svdvals": call(la.svdvals)},
        "solve_triangular": {"linalg.solve_triangular": solve_triangular},
        "lu_factor": {"linalg.lu_factor": (lu_factor, {"observe": lambda xp, lu, *rest: lu})},
        "lu_solve": {"linalg.lu_solve": lu_solve},
        "expm": {"matrix_exp": call(la.expm)},
    }


WITHOUT = {
    "cdist": "compared in test_distances.py",
    "cofactors": "a part of the rules of det",
    "curvature_of_det": "a part of the rules of det",
    "transpose": "permute_dims, which is compared",
    "expm_derivative": "a part of the rules of expm",
    "csr_matmul": "PyTorch's samples are sparse tensors, which are not arrays",
    "csr_transposed_matmul": "a part of the rules of csr_matmul",
    "fftfreq": "creates arrays",
    "rfftfreq": "creates arrays",
}


@pytest.mark.usefixtures("_on_torch")
def test_agrees_with_pytorch(reference: Any, theirs: str, adapter: Any, options: dict[str, Any]) -> None:
    assert reference.compare(theirs, adapter, **options), "no sample was compared"


def test_all_of_ours_are_compared_or_have_no_counterpart(functions: set[str]) -> None:
    assert not functions - set(table(lambda *args, **kwargs: None)) - set(WITHOUT), "say what they are in PyTorch"
    assert not set(WITHOUT) - functions, "there are no such ops"
