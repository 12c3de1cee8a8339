"""Matrix decompositions: the second half of the `linalg` extension of the Array API standard.

A cotangent in Tape is that of the plain pairing, Re(sum(g * dx)), without a conjugate (`tape_core.engine.rules`). The
formulas of the literature are for its conjugate, hence `conj` at the beginning and at the end of the rules here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from tape_core.base.thresholds import CHOLESKY_RULE_LEAF_ROWS
from tape_core.engine.op import op, refuses, vjp
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.modes.batched import holds
from tape_core.ops.creation import eye
from tape_core.ops.elementwise import conj as conjugate
from tape_core.ops.linalg.norms_and_inverses import adjoint, on_diagonal, square_samples
from tape_core.ops.linalg.products import conj
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace, Residuals

# Vectors of equal eigenvalues, and phases of complex ones, are arbitrary. A function of them has a derivative only if
# it does not depend on the choice: the cotangent then has no component along a change of phase. A component of up to
# this share of the cotangent's largest element counts as a rounding error.
_PHASE_TOLERANCE = 1e-4  # of the largest element of the cotangent


class EighResult(NamedTuple):
    """The result of :func:`eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """The result of :func:`eig`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of :func:`qr`."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """The result of :func:`svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _hermitian(x: Array) -> Array:
    """The Hermitian part of a NumPy array: samples of Hermitian matrices change along it only."""
    return (x + x.conj().mT) / 2


def _over_gaps(xp: Namespace, numerators: Array, gaps: Array, cotangent: Cotangent, values: Cotangent | None) -> Array:
    """The matrix between the vectors in the rules of `eigh`, `eig` and `svd`.

    It is `numerators / gaps` off the diagonal, NaN for a gap of 0 (equal eigenvalues, whose vectors have no
    derivative). On the diagonal it has `values`, the cotangents of the eigenvalues, or zeros for None.

    The diagonal of a complex numerator is the derivative along a change of phase, of which the result must not depend.
    Where it is more than a rounding error of `cotangent`, the result is NaN.
    """
    shape = tuple(gaps.shape)
    diagonal = xp.arange_beside(gaps, shape[-2])[:, None] == xp.arange_beside(gaps, shape[-1])
    values = 0 if values is None else values[..., None, :]
    quotients = xp.where(diagonal, values, numerators / xp.where(diagonal, 1, gaps))
    if 0 in shape or not xp.isdtype(numerators.dtype, "complex floating"):
        return quotients
    rounding = _PHASE_TOLERANCE * xp.max(xp.abs(cotangent), axis=(-2, -1), keepdims=True)
    return xp.where(on_diagonal(xp, xp.abs(numerators), shape) > rounding, math.nan, quotients)


# -- Cholesky


def _cholesky_samples(draw: Draw) -> Iterator[Sample]:
    for shape, kwargs in (((3, 3), {}), ((2, 2, 2), {}), ((3, 3), {"upper": True}), ((1, 1), {})):
        x = draw(*shape)
        yield Sample(x @ x.mT + 2 * eye(shape[-1], dtype="float64"), **kwargs).along(_hermitian)
    z = draw.complex(3, 3)
    for upper in (False, True):
        yield Sample(z @ conjugate(z.mT) + 2 * eye(3, dtype="float64"), upper=upper).along(_hermitian)
    yield Refused(ValueError, "cholesky", -eye(2, dtype="float64"))


def _cholesky_vjp(xp: Namespace, g: Cotangent, out: Array, upper: bool) -> Cotangent:
    # Murray, "Differentiation of the Cholesky decomposition", arXiv:1602.07527, section 3.1.
    lower, g = (adjoint(xp, out), g.mT) if upper else (out, conj(xp, g))
    across = adjoint(xp, lower)
    d = xp.solve_triangular(across, adjoint(xp, _solve_half_phi(xp, across, g)))
    return conj(xp, d + adjoint(xp, d))


def _solve_half_phi(xp: Namespace, upper: Array, g: Cotangent) -> Array:
    """`upper^-1 P^H` with P = Phi(upper @ g) / 2; Murray's Phi takes the lower triangle and halves the diagonal.

    Large matrices are halved, which saves work: the result is upper triangular, and of `g` only the lower triangle
    counts.
    """
    n = upper.shape[-2]
    if n < CHOLESKY_RULE_LEAF_ROWS or not xp.halves(upper):
        return xp.solve_triangular(upper, adjoint(xp, _half_phi(xp, upper, g)))
    k = n // 2
    # The blocks of Phi(upper @ g): the left columns, what is below the diagonal, and the lower right corner.
    above = _half_phi(xp, upper[..., :k, :], g[..., :k])
    below = xp.matmul(upper[..., k:, k:], g[..., k:, :k]) * 0.5
    corner = _solve_half_phi(xp, upper[..., k:, k:], g[..., k:, k:])
    right = adjoint(xp, below) - xp.matmul(upper[..., :k, k:], corner)
    top = xp.solve_triangular(upper[..., :k, :k], xp.concat([adjoint(xp, above), right], axis=-1))
    zeros = xp.zeros_beside(below, tuple(below.shape), dtype=below.dtype)
    return xp.concat([top, xp.concat([zeros, corner], axis=-1)], axis=-2)


def _half_phi(xp: Namespace, upper: Array, g: Cotangent) -> Array:
    product = xp.matmul(upper, g)
    return (xp.band(product, last=0) + xp.band(product, last=-1)) * 0.25


@refuses("x")
@op(x=vjp(_cholesky_vjp), extension="linalg", samples=_cholesky_samples, batch=batching.stacks(2))
def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The lower triangular L with `L @ conj(L.mT) == x` for a Hermitian positive definite x, or its adjoint.

    The gradient is Hermitian: the rule assumes that `x` changes to other Hermitian matrices only.
    """


# -- eigenvalues of Hermitian matrices


def _eigh_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((3, 3), (2, 2, 2), (1, 1)):
        x = draw(*shape)
        # The sign of an eigenvector is arbitrary.
        yield Sample(x + x.mT).along(_hermitian).observe(lambda xp, w, v: (w, v * v))
    z = draw.complex(3, 3)
    yield Sample(z + conjugate(z.mT)).along(_hermitian).observe(lambda xp, w, v: (w, xp.abs(v)))
    yield Refused(ValueError, "eigh", draw(2, 3))


def _eigh_vjp(xp: Namespace, g: Sequence[Cotangent], out: Sequence[Array]) -> Cotangent:
    # Giles, "Collected matrix derivative results for forward and reverse mode AD", 2008, section 3.1. Only the
    # anti-Hermitian part of V^H gV counts; the rest belongs to changes of the vectors' lengths, which stay 1.
    (w, v), (gw, gv) = out, g
    if gv is None:
        return xp.matmul(conj(xp, v) * gw[..., None, :], v.mT)
    product = xp.matmul(adjoint(xp, v), conj(xp, gv))
    w = 2 * w
    inner = _over_gaps(xp, product - adjoint(xp, product), w[..., None, :] - w[..., :, None], gv, gw)
    return conj(xp, xp.matmul(xp.matmul(v, inner), adjoint(xp, v)))


@refuses("x")
@op(
    x=vjp(_eigh_vjp),
    extension="linalg",
    samples=_eigh_samples,
    result=EighResult,
    materialize=False,
    batch=batching.stacks(2),
)
def eigh(x: ArrayLike, /) -> EighResult:
    """The eigenvalues of a Hermitian matrix, in ascending order, and its eigenvectors, as columns.

    The gradient is Hermitian. Where eigenvalues are equal, their eigenvectors have no derivative: the gradient of a
    function of eigenvectors is NaN there, that of a function of eigenvalues is right. For a complex matrix it is NaN as
    well if the function depends on the phase of an eigenvector, which is arbitrary.
    """


def _eigvalsh_samples(draw: Draw) -> Iterator[Sample]:
    for sample in _eigh_samples(draw):
        if not isinstance(sample, Refused):
            yield Sample(*sample.args).along(_hermitian)


def _eigvalsh_vjp(xp: Namespace, g: Cotangent, x: Array, residuals: Residuals) -> Cotangent:
    return _eigh_vjp(xp, (g, None), (None, *residuals) if residuals else xp.eigh(x))


def _eigvalsh_with_residuals(xp: Namespace, x: Array) -> tuple[Array, Residuals]:
    values, vectors = xp.eigh(x)
    return values, (vectors,)


@refuses("x")
@op(
    x=vjp(_eigvalsh_vjp),
    residual_kernel=_eigvalsh_with_residuals,
    extension="linalg",
    samples=_eigvalsh_samples,
    batch=batching.stacks(2),
)
def eigvalsh(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of a Hermitian matrix, in ascending order. The gradient is Hermitian."""


# -- eigenvalues of any square matrix


def _eig_samples(draw: Draw) -> Iterator[Sample]:
    for x in (draw(3, 3), draw(2, 2, 2), draw.complex(3, 3)):
        # The phase of an eigenvector is arbitrary; so is the order, but for small changes it stays.
        yield Sample(x).observe(lambda xp, w, v: (w, xp.abs(v)))
    yield Refused(ValueError, "eig", draw(2, 3))


def _eig_vjp(xp: Namespace, g: Sequence[Cotangent], out: Sequence[Array]) -> Cotangent:
    # Boeddeker et al., "On the computation of complex-valued gradients with application to statistically optimum
    # beamforming", arXiv:1701.00392, section 4.23; the vectors have length 1.
    (w, v), (gw, gv) = out, g
    vh = adjoint(xp, v)
    if gv is None:
        return conj(xp, xp.solve(vh, conj(xp, gw)[..., :, None] * vh))
    product = xp.matmul(vh, conj(xp, gv))
    # The part along each vector itself would change its length, which the normalisation undoes.
    lengths = xp.sum(on_diagonal(xp, xp.real(product), product.shape), axis=-2, keepdims=True)
    gaps = conj(xp, w[..., None, :] - w[..., :, None])
    gw = None if gw is None else conj(xp, gw)
    inner = _over_gaps(xp, product - xp.matmul(vh, v) * lengths, gaps, gv, gw)
    return conj(xp, xp.solve(vh, xp.matmul(inner, vh)))


@refuses("x")
@op(
    x=vjp(_eig_vjp),
    extension="linalg",
    samples=_eig_samples,
    result=EigResult,
    materialize=False,
    batch=batching.stacks(2),
)
def eig(x: ArrayLike, /) -> EigResult:
    """The eigenvalues of a square matrix and its eigenvectors, as columns of length 1: complex, in arbitrary order.

    Where eigenvalues are equal there is no derivative. The gradient is NaN if the function depends on the phase of an
    eigenvector, which is arbitrary.
    """


def _eigvals_vjp(xp: Namespace, g: Cotangent, x: Array, residuals: Residuals) -> Cotangent:
    return _eig_vjp(xp, (g, None), (None, *residuals) if residuals else xp.eig(x))


def _eigvals_with_residuals(xp: Namespace, x: Array) -> tuple[Array, Residuals]:
    values, vectors = xp.eig(x)
    return values, (vectors,)


@refuses("x")
@op(
    x=vjp(_eigvals_vjp),
    residual_kernel=_eigvals_with_residuals,
    extension="linalg",
    samples=square_samples(),
    batch=batching.stacks(2),
)
def eigvals(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of a square matrix: complex, in arbitrary order."""


# -- QR


def _qr_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2)):
        yield Sample(draw(*shape))
    for shape in ((3, 2), (2, 3)):
        yield Sample(draw.complex(*shape)).observe(lambda xp, q, r: (xp.abs(q), xp.abs(r)))


def _qr_vjp(xp: Namespace, g: Sequence[Cotangent], x: Array, out: Sequence[Array], mode: str) -> Cotangent:
    # Roberts and Roberts, "QR and LQ decomposition matrix backpropagation algorithms for square, wide, and deep
    # matrices", arXiv:2009.10071, equations 10 and 16.
    (q, r), (gq, gr) = out, g
    m, n = x.shape[-2:]
    if mode == "complete" and m > n:
        _refuse_completed_basis(xp, "qr", "Q", gq[..., n:], "mode='reduced'")
        q, r, gq, gr = q[..., :n], r[..., :n, :], gq[..., :n], gr[..., :n, :]
    gq, gr = conj(xp, gq), conj(xp, gr)
    if m < n:
        # A wide matrix is a square one and what Q^H makes of the rest: x = [first | rest], R = [first R | Q^H rest].
        rest, g_rest = x[..., m:], gr[..., m:]
        gq = gq + xp.matmul(rest, adjoint(xp, g_rest))
        first = _qr_vjp_tall(xp, q, r[..., :m], gq, gr[..., :m])
        return conj(xp, xp.concat([first, xp.matmul(q, g_rest)], axis=-1))
    return conj(xp, _qr_vjp_tall(xp, q, r, gq, gr))


def _qr_vjp_tall(xp: Namespace, q: Array, r: Array, gq: Cotangent, gr: Cotangent) -> Cotangent:
    product = xp.matmul(r, adjoint(xp, gr)) - xp.matmul(adjoint(xp, gq), q)
    strict = xp.band(product, last=-1)
    symmetric = strict + adjoint(xp, strict) + on_diagonal(xp, xp.real(product), product.shape)
    left = gq + xp.matmul(q, symmetric)
    return adjoint(xp, xp.solve_triangular(r, adjoint(xp, left)))


@refuses("x")
@op(x=vjp(_qr_vjp), extension="linalg", samples=_qr_samples, result=QRResult, batch=batching.stacks(2))
def qr(x: ArrayLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """An orthonormal Q and an upper triangular R with `Q @ R == x`.

    The derivative exists where the first min(m, n) columns of `x` are linearly independent. The columns of Q that
    `mode="complete"` adds have no derivative.

    Raises:
        ValueError: in the backward pass, if the differentiated function depends on those columns.
    """


def _refuse_completed_basis(xp: Namespace, name: str, result: str, g: Cotangent, instead: str) -> None:
    """Raise ValueError if the cotangent of columns that only complete a basis is not 0."""
    if not holds(xp.all(g == 0)):
        raise ValueError(
            f"{name}: a gradient flows into the columns of {result} that complete the basis; they have no derivative, "
            f"for any other orthonormal ones would do; use {instead}"
        )


# -- singular values


def _svd_samples(draw: Draw) -> Iterator[Sample]:
    def squares(xp: Namespace, u: Array, s: Array, vh: Array) -> tuple[Array, ...]:
        return xp.abs(u) ** 2, s, xp.abs(vh) ** 2, u[..., :, :1] * vh[..., :1, :]

    for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2)):
        yield Sample(draw(*shape), full_matrices=False).observe(squares)
    for shape in ((2, 2), (3, 2), (2, 3)):
        yield Sample(draw.complex(*shape), full_matrices=False).observe(squares)
    yield Sample(draw(3, 2)).observe(lambda xp, u, s, vh: (s, vh * vh))


def _svd_vjp(xp: Namespace, g: Sequence[Cotangent], x: Array, out: Sequence[Array], full_matrices: bool) -> Cotangent:
    # Wan and Zhang, "Automatic differentiation for complex valued SVD", arXiv:1909.02659, in partial fractions:
    # (a s_j + s_i b) / (s_j^2 - s_i^2) = (a + b) / 2 / (s_j - s_i) + (a - b) / 2 / (s_j + s_i).
    # So singular values that are close or equal matter only where a + b is not 0.
    (u, s, vh), (gu, gs, gvh) = out, g  # a cotangent is None for a result that is not used
    m, n = x.shape[-2:]
    k = min(m, n)
    if full_matrices and m != n:
        u, vh = u[..., :k], vh[..., :k, :]
        if gu is not None:
            _refuse_completed_basis(xp, "svd", "U", gu[..., k:], "full_matrices=False")
            gu = gu[..., :k]
        if gvh is not None:
            _refuse_completed_basis(xp, "svd", "Vh", gvh[..., k:, :], "full_matrices=False")
            gvh = gvh[..., :k, :]
    if gu is None and gvh is None:
        return xp.matmul(conj(xp, u) * gs[..., None, :], conj(xp, vh))
    gu = xp.zeros_like(u) if gu is None else conj(xp, gu)
    gvh = xp.zeros_like(vh) if gvh is None else conj(xp, gvh)
    uh, v = adjoint(xp, u), adjoint(xp, vh)
    # The anti-Hermitian parts: U and V stay orthonormal, so that only rotations count.
    a, b = xp.matmul(uh, gu), xp.matmul(vh, adjoint(xp, gvh))
    a, b = a - adjoint(xp, a), b - adjoint(xp, b)
    column, row = s[..., None, :], s[..., :, None]
    inner = _over_gaps(xp, (a + b) / 2, column - row, gu, gs) + (a - b) / 2 / (column + row)
    d = xp.matmul(xp.matmul(u, inner), vh)
    # The parts of gu and gvh that are orthogonal to the vectors, which rectangular matrices have.
    if m > k:
        d = d + xp.matmul((gu - xp.matmul(u, xp.matmul(uh, gu))) / column, vh)
    if n > k:
        d = d + xp.matmul(u, (gvh - xp.matmul(xp.matmul(gvh, v), vh)) / row)
    return conj(xp, d)


@refuses("x")
@op(
    x=vjp(_svd_vjp),
    extension="linalg",
    samples=_svd_samples,
    result=SVDResult,
    materialize=False,
    batch=batching.stacks(2),
)
def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """Orthonormal U and Vh and descending singular values S with `(U * S) @ Vh == x`, where `full_matrices` is False.

    Where singular values are equal, or 0, their vectors have no derivative: the gradient of a function of vectors is
    NaN or infinite there, that of a function of singular values is right. The vectors that `full_matrices=True` adds
    have no derivative anywhere. For a complex matrix the gradient is NaN if the function depends on the common phase of
    a pair of vectors, which is arbitrary.

    Raises:
        ValueError: in the backward pass, if the differentiated function depends on the vectors that were added.
    """


def _svdvals_vjp(xp: Namespace, g: Cotangent, x: Array, residuals: Residuals) -> Cotangent:
    if residuals:
        u, vh = residuals
        return _svd_vjp(xp, (None, g, None), x, (u, None, vh), False)
    return _svd_vjp(xp, (None, g, None), x, xp.svd(x, full_matrices=False), False)


def _svdvals_with_residuals(xp: Namespace, x: Array) -> tuple[Array, Residuals]:
    u, s, vh = xp.svd(x, full_matrices=False)
    return s, (u, vh)


@refuses("x")
@op(
    x=vjp(_svdvals_vjp),
    residual_kernel=_svdvals_with_residuals,
    extension="linalg",
    samples=square_samples(rectangular=True),
    batch=batching.stacks(2),
)
def svdvals(x: ArrayLike, /) -> Tensor:
    """The singular values of a matrix, in descending order."""
