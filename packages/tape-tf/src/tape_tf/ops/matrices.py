"""Matrix products and linear algebra. Functions of matrices take batches of them: (..., rows, columns)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tape_core as tc

from tape_tf.conversion import match_dtypes, wrap
from tape_tf.errors import in_tensorflow_terms
from tape_tf.functions import op, unary
from tape_tf.names import exported
from tape_tf.tensor import wrap_tensor

# -- products


@op("linalg.matmul matmul", "a b", kernel="MatMul")
def matmul(
    a: tc.Tensor,
    b: tc.Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: tc.DType | None = None,
    grad_a: bool = False,
    grad_b: bool = False,
) -> tc.Tensor:
    """Multiply matrices, either of which may be transposed (and conjugated, `adjoint_a`) first.

    Raises:
        InvalidArgumentError: an operand has fewer than 2 dimensions, or the shapes do not fit.
    """
    # The core, as NumPy, would take a vector as a row or a column; TensorFlow refuses it.
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(
            f"In[{0 if a.ndim < 2 else 1}] ndims must be >= 2; the shapes are {a.shape} and {b.shape}; use "
            "tf.linalg.matvec or tf.tensordot for vectors"
        )
    a, b = _maybe_transpose(a, transpose_a, adjoint_a), _maybe_transpose(b, transpose_b, adjoint_b)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"Matrix size-incompatible: In[0]: {list(a.shape)}, In[1]: {list(b.shape)}")
    return tc.matmul(a, b)


def _maybe_transpose(x: tc.Tensor, transpose: bool, adjoint: bool) -> tc.Tensor:
    if transpose or adjoint:
        x = tc.matrix_transpose(x)
    return tc.conj(x) if adjoint and x.dtype.kind == "complex floating" else x


@op("linalg.matvec", "a b", kernel="MatVec")
def matvec(a: tc.Tensor, b: tc.Tensor, transpose_a: bool = False, adjoint_a: bool = False) -> tc.Tensor:
    """Multiply matrices and vectors."""
    return tc.matmul(_maybe_transpose(a, transpose_a, adjoint_a), b[..., None])[..., 0]


@op("tensordot linalg.tensordot", "a b")
def tensordot(a: tc.Tensor, b: tc.Tensor, axes: int | Sequence[Any]) -> tc.Tensor:
    """Sum products over `axes`: a number of dimensions, or a pair of lists, of those of `a` and those of `b`."""
    if not isinstance(axes, int):
        axes = tuple([part] if isinstance(part, int) else [int(p) for p in part] for part in axes)
    return tc.tensordot(a, b, axes=axes)


@exported("einsum linalg.einsum")
def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Any:
    """Sum products of tensors as an equation such as `"ij,jk->ik"` says."""
    kwargs.pop("name", None)
    # Accepted and ignored: the core chooses the order of the products itself.
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(f"Invalid keyword arguments for this function: {', '.join(kwargs)}")
    if not isinstance(equation, str):
        raise TypeError(f"einsum: equation must be a string such as 'ij,jk->ik', before the tensors; got {equation!r}")
    with in_tensorflow_terms("Einsum"):
        return wrap(tc.einsum(equation.replace(" ", ""), *match_dtypes(list(inputs), "Einsum")))


@op("linalg.cross", "a b", kernel="Cross")
def cross(a: tc.Tensor, b: tc.Tensor) -> tc.Tensor:
    """Return the cross products of vectors of length 3."""
    return tc.linalg.cross(a, b)


# -- functions of square matrices, and systems of equations


@op("linalg.trace", "x")
def trace(x: tc.Tensor) -> tc.Tensor:
    """Return the sums of the diagonals."""
    # In its own dtype: the Array API standard sums small integers in wider ones.
    return tc.linalg.trace(x, dtype=x.dtype)


unary("linalg.det", tc.linalg.det)
unary("linalg.cholesky", tc.linalg.cholesky)
unary("linalg.eigvalsh", tc.linalg.eigvalsh)
unary("linalg.eigvals eigvals", tc.linalg.eigvals)
unary("linalg.expm", tc.linalg.expm)


@op("linalg.inv", "input", floating=True)
def inv(input: tc.Tensor, adjoint: bool = False) -> tc.Tensor:
    """Invert matrices."""
    return tc.linalg.inv(_maybe_transpose(input, False, adjoint))


@op("linalg.pinv", "a", floating=True)
def pinv(a: tc.Tensor, rcond: float | None = None, validate_args: bool = False) -> tc.Tensor:
    """Return the Moore-Penrose pseudo-inverses of matrices."""
    return tc.linalg.pinv(a, rtol=rcond)


@op("linalg.solve", "matrix rhs", floating=True, kernel="MatrixSolve")
def solve(matrix: tc.Tensor, rhs: tc.Tensor, adjoint: bool = False) -> tc.Tensor:
    """Solve `matrix @ x = rhs`; `rhs` has matrices, not vectors."""
    if rhs.ndim < 2:
        raise ValueError(f"Input tensor must be of rank >= 2, rhs has shape {rhs.shape}; use rhs[:, tf.newaxis]")
    return tc.linalg.solve(_maybe_transpose(matrix, False, adjoint), rhs)


@op("linalg.triangular_solve", "matrix rhs", static_args="lower", floating=True, kernel="MatrixTriangularSolve")
def triangular_solve(matrix: tc.Tensor, rhs: tc.Tensor, lower: bool = True, adjoint: bool = False) -> tc.Tensor:
    """Solve `matrix @ x = rhs` for triangular matrices, lower ones by default."""
    if adjoint:
        # The adjoint of a lower triangle is an upper one.
        return tc.linalg.solve_triangular(_maybe_transpose(matrix, False, True), rhs, lower=not lower)
    return tc.linalg.solve_triangular(matrix, rhs, lower=bool(lower))


@op("linalg.cholesky_solve", "chol rhs", floating=True, kernel="CholeskySolve")
def cholesky_solve(chol: tc.Tensor, rhs: tc.Tensor) -> tc.Tensor:
    """Solve `A @ x = rhs`, given the Cholesky factors of the matrices A."""
    return tc.linalg.cho_solve(chol, rhs)


@op("linalg.lstsq", "matrix rhs", floating=True, kernel="MatrixSolveLs")
def lstsq(matrix: tc.Tensor, rhs: tc.Tensor, l2_regularizer: float = 0.0, fast: bool = True) -> tc.Tensor:
    """Minimize `|matrix @ x - rhs|² + l2_regularizer * |x|²`."""
    # With a regularizer by the normal equations, which it makes well conditioned; else by the pseudo-inverse, which
    # gives the smallest solution of a matrix without full rank.
    if l2_regularizer:
        turned = _maybe_transpose(matrix, False, True)
        n = matrix.shape[-1]
        ridge = tc.eye(n, dtype=matrix.dtype, backend=matrix.backend.root, device=matrix.device) * l2_regularizer
        return tc.linalg.solve(turned @ matrix + ridge, turned @ rhs)
    return tc.linalg.pinv(matrix) @ rhs


class LogMatrixDeterminant(NamedTuple):
    """The result of :func:`slogdet`."""

    sign: Any
    log_abs_determinant: Any


@op("linalg.slogdet", "input", floating=True)
def slogdet(input: tc.Tensor) -> LogMatrixDeterminant:
    """Return the signs of the determinants and the logarithms of their absolute values."""
    return LogMatrixDeterminant(*tc.linalg.slogdet(input))


@op("linalg.logdet", "matrix", floating=True)
def logdet(matrix: tc.Tensor) -> tc.Tensor:
    """Return the logarithms of the determinants of positive definite matrices."""
    # det(L Lᴴ) is the square of the product of L's diagonal; adding logarithms cannot overflow.
    factor = tc.linalg.diagonal(tc.linalg.cholesky(matrix))
    return 2.0 * tc.sum(tc.log(tc.real(factor) if factor.dtype.kind == "complex floating" else factor), axis=-1)


# -- decompositions


@op("linalg.eigh", "tensor", floating=True)
def eigh(tensor: tc.Tensor) -> tuple[tc.Tensor, ...]:
    """Return the eigenvalues of symmetric matrices, in rising order, and the eigenvectors in columns."""
    return tuple(tc.linalg.eigh(tensor))


@op("linalg.eig eig", "tensor", floating=True)
def eig(tensor: tc.Tensor) -> tuple[tc.Tensor, ...]:
    """Return the eigenvalues of matrices, and the eigenvectors in columns; both are complex."""
    return tuple(tc.linalg.eig(tensor))


class Qr(NamedTuple):
    """The result of :func:`qr`."""

    q: Any
    r: Any


@op("linalg.qr", "input", floating=True)
def qr(input: tc.Tensor, full_matrices: bool = False) -> Qr:
    """Return the QR decompositions `(q, r)`."""
    return Qr(*tc.linalg.qr(input, mode="complete" if full_matrices else "reduced"))


@op("linalg.svd", "tensor", floating=True)
def svd(tensor: tc.Tensor, full_matrices: bool = False, compute_uv: bool = True) -> tc.Tensor | tuple[tc.Tensor, ...]:
    """Return the singular value decompositions `(s, u, v)`, with `v` and not its adjoint; or `s` alone."""
    if not compute_uv:
        return tc.linalg.svdvals(tensor)
    u, s, vh = tc.linalg.svd(tensor, full_matrices=full_matrices)
    # TensorFlow's order and its `v`: NumPy returns u, s and the adjoint of v.
    return s, u, _maybe_transpose(vh, False, True)


class LU(NamedTuple):
    """The result of :func:`lu`."""

    lu: Any
    p: Any


@op("linalg.lu", "input", floating=True)
def lu(input: tc.Tensor, output_idx_type: object = None) -> LU:
    """Return the LU decompositions, both factors in one matrix, and the permutations."""
    factors, permutation = tc.linalg.lu_factor(input)
    return LU(factors, tc.astype(permutation, tc.int32))


@op("linalg.lu_solve", "lower_upper rhs; perm", kernel="LuSolve")
def lu_solve(lower_upper: tc.Tensor, perm: tc.Tensor, rhs: tc.Tensor, validate_args: bool = False) -> tc.Tensor:
    """Solve `A @ x = rhs`, given the LU decompositions of the matrices A."""
    factors = (lower_upper, tc.astype(perm, tc.int64))
    return tc.linalg.lu_solve(factors, rhs)  # type: ignore[call-arg] # mypy sees the op beneath


@op("linalg.lu_reconstruct", "lower_upper; perm")
def lu_reconstruct(lower_upper: tc.Tensor, perm: tc.Tensor, validate_args: bool = False) -> tc.Tensor:
    """Return the matrices, given their LU decompositions."""
    identity = tc.eye(
        lower_upper.shape[-1], dtype=lower_upper.dtype, backend=lower_upper.backend.root, device=lower_upper.device
    )
    # `lower_upper` does not store the ones on the diagonal of the lower factor.
    product = tc.matmul(tc.tril(lower_upper, k=-1) + identity, tc.triu(lower_upper))
    # P A = L U: the rows go back by the inverse permutation.
    return tc.take_along_axis(product, tc.astype(tc.argsort(perm), tc.int64)[..., None], axis=-2)


@op("linalg.lu_matrix_inverse", "lower_upper; perm")
def lu_matrix_inverse(lower_upper: tc.Tensor, perm: tc.Tensor, validate_args: bool = False) -> tc.Tensor:
    """Return the inverses of matrices, given their LU decompositions."""
    identity = tc.eye(
        lower_upper.shape[-1], dtype=lower_upper.dtype, backend=lower_upper.backend.root, device=lower_upper.device
    )
    factors = (lower_upper, tc.astype(perm, tc.int64))
    return tc.linalg.lu_solve(factors, identity)  # type: ignore[call-arg] # mypy sees the op beneath


# -- rank and diagonals


@op("linalg.matrix_rank", "a", floating=True)
def matrix_rank(a: tc.Tensor, tol: float | None = None, validate_args: bool = False) -> tc.Tensor:
    """Return the ranks of matrices, int32."""
    return tc.astype(tc.linalg.matrix_rank(a, rtol=tol), tc.int32)


@op("linalg.band_part", "input", static_args="num_lower num_upper")
def band_part(input: tc.Tensor, num_lower: int, num_upper: int) -> tc.Tensor:
    """Zero all but the diagonal, `num_lower` diagonals below it and `num_upper` above it; -1 keeps all of them."""
    if num_lower >= 0:
        input = tc.triu(input, k=-num_lower)
    return tc.tril(input, k=num_upper) if num_upper >= 0 else input


@op("linalg.set_diag", "input diagonal", kernel="MatrixSetDiag")
def set_diag(input: tc.Tensor, diagonal: tc.Tensor, k: int = 0) -> tc.Tensor:
    """Replace the `k`-th diagonals of matrices."""
    n = diagonal.shape[-1]
    places = tc.arange(n, backend=input.backend.root, device=input.device)
    return tc.at(input)[(..., places + max(-k, 0), places + max(k, 0))].set(diagonal)


@op("linalg.tensor_diag", "diagonal")
def tensor_diag(diagonal: tc.Tensor) -> tc.Tensor:
    """Return a tensor of twice as many dimensions with this one as its diagonal."""
    from tape_tf.ops.shaping import diag

    flat = diag(wrap_tensor(tc.reshape(diagonal, (-1,)))).native
    return tc.reshape(flat, diagonal.shape * 2)


@op("linalg.tensor_diag_part", "input")
def tensor_diag_part(input: tc.Tensor) -> tc.Tensor:
    """Return the diagonal of a tensor of twice as many dimensions: the inverse of :func:`tensor_diag`."""
    half = input.shape[: input.ndim // 2]
    size = 1
    for length in half:
        size *= length
    return tc.reshape(tc.linalg.diagonal(tc.reshape(input, (size, size))), half)
