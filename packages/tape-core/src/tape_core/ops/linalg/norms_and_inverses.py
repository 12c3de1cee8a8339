"""Inverses, determinants, diagonals, norms and the cross product, of the standard's `linalg` extension.

Its matrix products are in `products`, its decompositions in `decompositions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tape_core.base.dtypes import get_default_dtype
from tape_core.base.lookup import ops
from tape_core.base.mistakes import integer
from tape_core.engine.levels import BatchedArray
from tape_core.engine.op import NONDIFF, linear, op, refuses, transpose, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, Samples, with_complex
from tape_core.engine.tensor import Tensor, read_array, wrap
from tape_core.modes import batching
from tape_core.modes.batched import holds
from tape_core.modes.batching import Call
from tape_core.ops.elementwise import abs as absolute
from tape_core.ops.elementwise import multiply, pow
from tape_core.ops.linalg.products import conj, matmul
from tape_core.ops.manipulation import squeeze, sum_to
from tape_core.ops.statistical import max as maximum
from tape_core.ops.statistical import min as minimum
from tape_core.ops.statistical import restore_axes, zero_or_nan
from tape_core.ops.statistical import sum as total
from tape_core.typing import Array, ArrayLike, Axis, BatchInput, Cotangent, DTypeLike, Namespace, Residuals

if TYPE_CHECKING:
    from tape_core.sparsity.index_sets import IndexSets


def adjoint(xp: Namespace, x: Array) -> Array:
    """The conjugate transpose of each matrix."""
    return conj(xp, x).mT


def on_diagonal(xp: Namespace, values: Array, shape: tuple[int, ...], offset: int = 0) -> Array:
    """Matrices of `shape`, in a stack as `values` are, with zeros except on a diagonal, where they have `values`."""
    whole = (*values.shape[:-2], *shape[-2:])
    values = values if tuple(values.shape) == whole else xp.broadcast_to(values, whole)
    return xp.band(values, first=offset, last=offset)


def square_samples(*, rectangular: bool = False) -> Samples:
    """Samples of a function of square matrices, alone and in stacks; `rectangular` adds others."""

    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(draw(3, 3))
        yield Sample(draw(2, 2, 2))
        yield Sample(draw(1, 1))
        yield Sample(draw.complex(3, 3))
        if rectangular:
            yield Sample(draw(2, 3))
            yield Sample(draw.complex(3, 2))

    return samples


# -- inverses


@refuses("x")
@op(
    x=vjp(lambda xp, g, out: -xp.matmul(xp.matmul(out.mT, g), out.mT)),
    extension="linalg",
    samples=with_complex(square_samples()),
    batch=batching.stacks(2),
)
def inv(x: ArrayLike, /) -> Tensor:
    """The inverse of each matrix. :func:`solve` is faster and more accurate than a product with the inverse."""


def _pinv_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((3, 2), (2, 3), (2, 2, 3), (3, 3)):
        yield Sample(draw(*shape))
    yield Sample(draw.complex(3, 2))
    yield Sample(draw.complex(2, 3))


def _pinv_vjp(xp: Namespace, g: Cotangent, x: Array, out: Array) -> Cotangent:
    # Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
    # separate", 1973, equation 4.12. It holds as long as the rank stays the same.
    gt, outh = g.mT, adjoint(xp, out)
    left = xp.matmul(xp.matmul(gt, out), outh)  # then multiply by (1 - x out) from the left
    left = left - xp.matmul(x, xp.matmul(out, left))
    right = xp.matmul(outh, xp.matmul(out, gt))  # then multiply by (1 - out x) from the right
    right = right - xp.matmul(xp.matmul(right, out), x)
    return conj(xp, left + right) - xp.matmul(xp.matmul(out.mT, g), out.mT)


def _pinv_batch(call: Call, x: BatchedArray) -> Any:
    if getattr(call.params["rtol"], "shape", ()):  # a tolerance for each matrix of a stack
        return batching.one_by_one(call, x)
    return batching.stacks(2)(call, x)


@refuses("x")
@op(x=vjp(_pinv_vjp), extension="linalg", samples=_pinv_samples, batch=_pinv_batch)
def pinv(x: ArrayLike, /, *, rtol: float | None = None) -> Tensor:
    """The Moore-Penrose inverse of each matrix; singular values up to `rtol` times the largest count as 0.

    The gradient is right as long as the rank stays the same; where the rank changes there is no derivative.
    """


def _solve_samples(draw: Draw) -> Iterator[Sample]:
    for a, b in (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 2, 2), (2,)), ((2, 2), (3, 2, 1)), ((2, 1, 2, 2), (3, 2, 2))):
        yield Sample(draw(*a), draw(*b))
    yield Sample(draw.complex(2, 2), draw.complex(2, 3))
    yield Refused(ValueError, "solve", draw(2, 2), draw(3))


def _solve_common(xp: Namespace, g: Cotangent, x1: Array, x2_spec: Spec, residuals: Residuals) -> Cotangent:
    # Both rules need the solution of the transposed system; factors from the forward pass save a factorization.
    g = g[..., None] if len(x2_spec.shape) == 1 else g
    return xp.lu_solve(*residuals, g, transposed=True) if residuals else xp.solve(x1.mT, g)


def _solve_x1(xp: Namespace, g: Cotangent, common: Array, x1_spec: Spec, x2_spec: Spec, out: Array) -> Cotangent:
    if len(x2_spec.shape) == 1:
        return sum_to(xp, -common * out[..., None, :], x1_spec.shape)
    return sum_to(xp, -xp.matmul(common, out.mT), x1_spec.shape)


def _solve_x2(xp: Namespace, g: Cotangent, common: Array, x2_spec: Spec) -> Cotangent:
    return sum_to(xp, common[..., 0] if len(x2_spec.shape) == 1 else common, x2_spec.shape)


def _solve_batch(call: Call, x1: BatchInput, x2: BatchInput) -> Any:
    if x2.ndim > 1:
        return batching.stacks(2, 2)(call, x1, x2)
    out = batching.stacks(2, 2)(call, x1, x2[:, None])
    return squeeze(out, -1)


def _solve_sparsity(x1: IndexSets, x2: IndexSets) -> IndexSets:
    """Each element of the result depends on all of `x1` and on a column of `x2`."""
    whole = x1.united((-2, -1))
    if x2.ndim == 1:
        return whole.reshape(*x1.shape[:-2], 1) | x2.united(-1)
    return whole | x2.united(-2)


@refuses("x1")
@op(
    x1=vjp(_solve_x1),
    x2=vjp(_solve_x2),
    common=_solve_common,
    # A backend's own kernel may leave the result of `lu_factor`.
    residual_kernel=lambda xp, x1, x2: (xp.solve(x1, x2), ()),
    extension="linalg",
    samples=_solve_samples,
    batch=_solve_batch,
    sparsity=_solve_sparsity,
)
def solve(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Solve `x1 @ x == x2` for x: `x2` is a vector, or a stack of matrices that broadcasts against `x1`."""


# -- determinants


@op(
    x=vjp(lambda xp, g, x: g[..., None, None] * xp.cofactors(x)),
    extension="linalg",
    samples=with_complex(square_samples()),
    batch=batching.stacks(2),
)
def det(x: ArrayLike, /) -> Tensor:
    """The determinant of each matrix. The gradient is also right for singular matrices."""


def _cofactors_kernel(xp: Namespace, x: Array) -> Array:
    # With x = U diag(s) V^H, the cofactors are det(U) det(V^H) conj(U diag(products of the other s) V^H). Nothing is
    # divided by s, so x may be singular.
    u, s, vh = xp.svd(x, full_matrices=False)
    n = x.shape[-1]
    s = xp.broadcast_to(s[..., None, :], (*s.shape, n))
    others = xp.prod(s - on_diagonal(xp, s - 1, s.shape), axis=-1)
    sign = (xp.det(u) * xp.det(vh))[..., None, None]
    return sign * xp.matmul(conj(xp, u) * others[..., None, :], conj(xp, vh))


@op(
    x=vjp(lambda xp, g, x: xp.curvature_of_det(x, g)),
    kernel=_cofactors_kernel,
    samples=square_samples(),
    batch=batching.stacks(2),
)
def cofactors(x: ArrayLike, /) -> Tensor:
    """The matrix of cofactors: the derivative of :func:`det`. It is differentiable for singular matrices as well."""


def _curvature_kernel(xp: Namespace, x: Array, direction: Array) -> Array:
    # Singular vectors reduce x to a diagonal matrix diag(s). There, with P[i, j] the product of all s but s[i] and s[j]
    # for i != j, and H the direction, the derivative of cofactor (i, i) is sum(P[i, j] H[j, j]) over j, and that of
    # cofactor (i, j) is -P[i, j] H[j, i].
    u, s, vh = xp.svd(x, full_matrices=False)
    shape = (*s.shape, s.shape[-1])
    zero = s == 0
    factors = xp.where(zero, 1, s)
    lines = xp.broadcast_to(factors[..., None, :], shape)
    others = xp.prod(lines - on_diagonal(xp, lines - 1, shape), axis=-1)
    # P, from the product of the nonzero s: it is 0 where an s other than these two is 0.
    zeros = xp.astype(zero, s.dtype)
    zeros_left = xp.sum(zeros, axis=-1, keepdims=True)[..., None] - zeros[..., :, None] - zeros[..., None, :]
    pairs = xp.where(zeros_left == 0, others[..., :, None] / lines, 0)
    pairs = xp.astype(pairs - on_diagonal(xp, pairs, shape), x.dtype)
    sign = (xp.det(u) * xp.det(vh))[..., None, None]
    turned = sign * xp.matmul(xp.matmul(adjoint(xp, u), direction), adjoint(xp, vh))
    diagonal = xp.sum(on_diagonal(xp, turned, shape), axis=-1)
    inner = on_diagonal(xp, xp.matmul(pairs, diagonal[..., None]), shape) - pairs * turned.mT
    return xp.matmul(xp.matmul(conj(xp, u), inner), conj(xp, vh))


def _curvature_x(xp: Namespace, g: Cotangent, x: Array, direction: Array) -> Cotangent:
    # The derivative with respect to t, at 0, of the curvature at x + t g. That is a polynomial in t of degree n - 2, so
    # that n - 1 of its values determine it. No inverse is needed, x may be singular, and as the values are this op's
    # own, derivatives of any order follow.
    n = x.shape[-1]
    if n < 3 or 0 in x.shape:
        return xp.zeros_like(x)
    size, step = (xp.max(xp.abs(v), axis=(-2, -1), keepdims=True) for v in (x, g))
    # Choose the range of t so that t g is about as large as x, and cancellation is least. It is a power of 2, so that
    # it causes no rounding, and `floor` has no derivative.
    reach = xp.where(size == 0, 1, size / n) / xp.where(step == 0, 1, step)
    reach = 2.0 ** xp.floor(xp.log2(reach))
    along = reach * g
    found = 0.0
    for point, weight in _derivative_at_zero(n - 1):
        found = found + weight * xp.curvature_of_det(x + point * along, direction)
    return sum_to(xp, found / reach, x.shape)


@lru_cache
def _derivative_at_zero(n: int) -> list[tuple[float, float]]:
    """Points and weights that give the derivative at 0 of any polynomial of degree n - 1.

    They come from its expansion in Chebyshev polynomials T_m, interpolated at the Chebyshev points: the derivative of
    T_m at 0 is m * (-1)**((m - 1) / 2) for odd m, and 0 for even m.
    """
    angles = [math.pi * (k + 0.5) / n for k in range(n)]
    slopes = [(m, m * (-1) ** (m // 2)) for m in range(1, n, 2)]
    return [(math.cos(a), 2 / n * sum(slope * math.cos(m * a) for m, slope in slopes)) for a in angles]


def _curvature_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((3, 3), (2, 2, 2), (1, 1)):
        yield Sample(draw(*shape), draw(*shape))
    yield Sample(draw.complex(3, 3), draw.complex(3, 3))


@op(
    x=vjp(_curvature_x),
    direction=vjp(lambda xp, g, x, direction_spec: sum_to(xp, xp.curvature_of_det(x, g), direction_spec.shape)),
    kernel=_curvature_kernel,
    samples=_curvature_samples,
    batch=batching.stacks(2, 2),
)
def curvature_of_det(x: ArrayLike, direction: ArrayLike, /) -> Tensor:
    """The derivative of :func:`cofactors` along a direction. It is differentiable for singular matrices as well."""


class SlogdetResult(NamedTuple):
    """The result of :func:`slogdet`."""

    sign: Tensor
    logabsdet: Tensor


def _slogdet_vjp(xp: Namespace, g: Sequence[Cotangent], x: Array, out: Sequence[Array]) -> Cotangent:
    g_sign, g_log = g
    if xp.isdtype(x.dtype, "complex floating"):
        # d sign = i sign Im(d log det)
        g_log = g_log + 1j * xp.imag(g_sign * out[0])
    if holds(xp.all(out[0] != 0)):
        inverse = xp.inv(x).mT
    else:  # where x is singular, the derivative is cofactors / 0, which is infinite; the inverse does not exist
        singular = (out[0] == 0)[..., None, None]
        inverse = xp.inv(xp.where(singular, on_diagonal(xp, xp.ones_like(x), x.shape), x)).mT
        inverse = xp.where(singular, xp.cofactors(x) * math.inf, inverse)
    return g_log[..., None, None] * inverse


@op(x=vjp(_slogdet_vjp), extension="linalg", samples=square_samples(), result=SlogdetResult, batch=batching.stacks(2))
def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value; they do not overflow as :func:`det` may."""


# -- diagonals


def _diagonal_samples(draw: Draw) -> Iterator[Sample]:
    for shape, offset in (((3, 3), 0), ((2, 4), 1), ((4, 2), -2), ((2, 2, 3), -1), ((2, 3), 2)):
        yield Sample(draw(*shape), offset=offset)


def _diagonal_transpose(xp: Namespace, g: Cotangent, x_spec: Spec, offset: int) -> Cotangent:
    missing = x_spec.shape[-2 if offset >= 0 else -1] - g.shape[-1]
    filled = g
    if missing:
        filled = xp.concat([g, xp.zeros_beside(g, (*g.shape[:-1], missing), dtype=g.dtype)], axis=-1)
    filled = filled[..., :, None] if offset >= 0 else filled[..., None, :]
    return on_diagonal(xp, filled, x_spec.shape, offset)


@linear(
    x=transpose(_diagonal_transpose),
    extension="linalg",
    samples=with_complex(_diagonal_samples),
    batch=batching.stacks(2),
    keeps_integers=True,
)
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The diagonal of each matrix, or the one that is `offset` columns to the right of it."""


@linear(
    x=transpose(lambda xp, g, x_spec, offset: on_diagonal(xp, g[..., None, None], x_spec.shape, offset)),
    extension="linalg",
    samples=with_complex(_diagonal_samples),
    batch=batching.stacks(2),
)
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """The sum of a diagonal of each matrix."""


# -- norms


def _norm_samples(draw: Draw) -> Iterator[Sample]:
    for order in (2, 1, 3, 0.5, math.inf, -math.inf):
        yield Sample(draw(2, 3), ord=order)
    yield Sample(draw(2, 3), axis=0)
    yield Sample(draw(2, 3, 2), axis=(0, -1), keepdims=True, ord=1)
    yield Sample(draw.complex(2, 3), axis=1)
    yield Sample(draw.complex(2, 3), axis=1, ord=3)
    yield Sample(draw.complex(2, 3), ord=1)
    yield Refused(IndexError, "axis", draw(2, 3), axis=2)


def _norm_vjp(xp: Namespace, g: Cotangent, x: Array, out: Array, axis: Axis, keepdims: bool, ord: float) -> Cotangent:
    shape = tuple(x.shape)
    g, out = restore_axes(xp, g, shape, axis, keepdims), restore_axes(xp, out, shape, axis, keepdims)
    size = xp.abs(x)
    if ord == 0:
        return xp.zeros_like(x)
    # conj(x) / |x|, and 0 at 0, which is the smallest of the subgradients there.
    phase = conj(xp, x) / xp.where(size == 0, 1, size)
    if ord in (math.inf, -math.inf):
        hit = size == out
        ties = xp.sum(xp.astype(hit, g.dtype), axis=axis, keepdims=True)
        return xp.where(hit, phase * (g / ties), zero_or_nan(xp, g, ties))
    if ord == 1:
        return g * phase
    share = size / xp.where(out == 0, 1, out)
    if ord < 1:
        # At 0 the derivative is infinite; the rule gives 0 there, as for other ord. With a negative ord a single 0
        # makes the norm 0, and the derivative for all other elements is 0.
        share = xp.where((size == 0) | (out == 0), 1, share)
        phase = xp.where(out == 0, 0, phase)
    return g * phase * (share if ord == 2 else share ** (ord - 1))


@op(x=vjp(_norm_vjp), extension="linalg", samples=_norm_samples, batch=batching.along)
def vector_norm(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The `ord`-norm over `axis` (all axes by default). Its gradient at 0 is 0."""


MatrixOrd = Literal["fro", "nuc", 1, -1, 2, -2] | float


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: MatrixOrd = "fro") -> Tensor:
    """A norm of each matrix: Frobenius, nuclear, or the operator norm of the vector norm `ord`.

    With a negative `ord`, the maximum in the operator norm is a minimum.

    Raises:
        ValueError: `ord` is none of "fro", "nuc", 1, -1, 2, -2, inf, -inf, or `x` has less than two dimensions.
    """
    x = read_array(x, "matrix_norm: x")
    if x.ndim < 2:
        raise ValueError(f"matrix_norm: x must have two dimensions or more, got shape {x.shape}")
    if not x.dtype.inexact:
        x = ops.astype(x, get_default_dtype())  # int8 has no magnitude of -128
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = ops.svdvals(x)
        reduce: Any = {"nuc": total, 2: maximum, -2: minimum}[ord]
        norm: Tensor = reduce(values, axis=-1, keepdims=keepdims)
        return norm[..., None] if keepdims else norm
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(f"matrix_norm: ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}")
    # The largest (or smallest) sum of absolute values: of columns for 1, of rows for infinity.
    sums, others = (-2, -1) if ord in (1, -1) else (-1, -2)
    lines = total(absolute(x), axis=sums, keepdims=True)
    norm = (maximum if ord in (1, math.inf) else minimum)(lines, axis=others, keepdims=True)
    return norm if keepdims else norm[..., 0, 0]


def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """Each matrix to the power of `n`; for a negative `n`, its inverse to the power of `-n`.

    Raises:
        ValueError: the matrices are not square.
    """
    x, n = read_array(x, "matrix_power: x"), integer("matrix_power", "n", n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrix_power: x must be square matrices, got shape {x.shape}")
    if n == 0:
        xp = x.backend.xp
        one = wrap(on_diagonal(xp, xp.ones_like(x._array), x.shape), x.backend)
        return multiply(pow(x, 0), one)  # it depends on x, so that the gradient is 0 and not None
    if n < 0:
        x, n = inv(x), -n
    power: Tensor | None = None
    while n:  # binary powers: x, x^2, x^4, ...
        if n & 1:
            power = x if power is None else matmul(power, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    assert power is not None
    return power


@refuses("x")
@op(
    x=NONDIFF,
    extension="linalg",
    samples=square_samples(rectangular=True),
    reason="the result is a number of dimensions, constant almost everywhere",
    batch=batching.stacks(2),
)
def matrix_rank(x: ArrayLike, /, *, rtol: float | None = None) -> Tensor:
    """The number of singular values of each matrix that are larger than `rtol` times the largest."""


# -- the cross product


def _cross_samples(draw: Draw) -> Iterator[Sample]:
    for a, b, axis in (((3,), (3,), -1), ((2, 3), (3,), -1), ((3, 2), (3, 2), -2), ((3, 1), (3, 2), -2)):
        yield Sample(draw(*a), draw(*b), axis=axis)
    yield Refused(ValueError, "cross", draw(2), draw(2))


def _cross_rule(sign: int) -> Callable[..., Cotangent]:
    # d(a x b) = da x b + a x db, and g . (da x b) = da . (b x g): a cross product again, of either sign.
    def rule(xp: Namespace, g: Cotangent, other: Array, spec: Spec, axis: int) -> Cotangent:
        g, other = xp.moveaxis(g, axis, -1), xp.moveaxis(other, axis, -1)
        others = [length for k, length in enumerate(spec.shape) if k != axis % len(spec.shape)]
        return xp.moveaxis(sum_to(xp, sign * xp.cross(other, g), (*others, 3)), -1, axis)

    return rule


_cross_x1, _cross_x2 = _cross_rule(1), _cross_rule(-1)


@op(
    x1=vjp(lambda xp, g, x2, x1_spec, axis: _cross_x1(xp, g, x2, x1_spec, axis)),
    x2=vjp(lambda xp, g, x1, x2_spec, axis: _cross_x2(xp, g, x1, x2_spec, axis)),
    extension="linalg",
    samples=with_complex(_cross_samples),
    batch=batching.along,
    axes_of="each",
    multilinear=True,
)
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along `axis`; arrays broadcast."""
