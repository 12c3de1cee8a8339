"""Triangular systems and LU factors, beyond the standard: `solve_triangular`, `cho_solve`, `lu_factor`, `lu_solve`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from tape_core.base.thresholds import TRIANGULAR_LEAF_UNKNOWNS
from tape_core.engine.cotangents import broadcast_shape
from tape_core.engine.op import NONDIFF, op, refuses, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor, read, read_array
from tape_core.modes import batching
from tape_core.modes.batched import is_known_to_hold
from tape_core.modes.batching import Call
from tape_core.ops.creation import eye, tril
from tape_core.ops.elementwise import conj as conjugate
from tape_core.ops.linalg.norms_and_inverses import on_diagonal
from tape_core.ops.manipulation import permute_dims, reshape, squeeze, sum_to
from tape_core.typing import Array, ArrayLike, BatchInput, Cotangent, Namespace


def check_system(xp: Namespace, name: str, a: Array, b: Array) -> None:
    """Check the dtypes and shapes of a system of linear equations `a @ x == b`.

    Raises:
        TypeError: an array is not of floating-point numbers.
        ValueError: `a` is not a stack of square matrices, or `b` has another number of rows.
    """
    for label, x in ((name, a), ("b", b)):
        if not xp.isdtype(x.dtype, ("real floating", "complex floating")):
            raise TypeError(f"{label} must be of floating-point numbers, got {x.dtype}")
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"{name} must be square matrices, got shape {tuple(a.shape)}")
    if len(b.shape) == 0 or b.shape[-2 if len(b.shape) > 1 else -1] != a.shape[-1]:
        raise ValueError(f"b must have {a.shape[-1]} rows, as {name} has; got shape {tuple(b.shape)}")


# -- triangular systems


def _triangular_samples(draw: Draw) -> Iterator[Sample]:
    shapes = (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 2, 2), (2,)), ((2, 2), (3, 2, 1)), ((2, 1, 2, 2), (3, 2, 2)))
    for k, (a, b) in enumerate(shapes):
        yield Sample(draw(*a) + 3 * eye(a[-1], dtype="float64"), draw(*b), lower=k % 2 == 0, unit_diagonal=k > 2)
    z = draw.complex(3, 3) + 3 * eye(3, dtype="float64")
    yield Sample(z, draw.complex(3, 2), lower=True)
    yield Sample(z, draw.complex(3), unit_diagonal=True)
    yield Sample(draw(0, 0), draw(0, 2))
    yield Sample(draw(2, 2) + 3 * eye(2, dtype="float64"), draw(2, 0))
    yield Sample(draw(0, 2, 2), draw(2, 1))
    yield Refused(ValueError, "a must be square matrices", draw(2, 3), draw(3))
    yield Refused(ValueError, "b must have 2 rows", draw(2, 2), draw(3, 2))
    yield Refused(ValueError, "a is singular: its diagonal has a 0", tril(draw(2, 2), k=-1), draw(2), lower=True)


def _triangle(xp: Namespace, a: Array, lower: bool, unit_diagonal: bool) -> Array:
    """The triangle of each matrix that counts, and zeros elsewhere."""
    k = 1 if unit_diagonal else 0
    a = xp.band(a, last=-k) if lower else xp.band(a, first=k)
    return a + on_diagonal(xp, xp.ones_like(a), tuple(a.shape)) if unit_diagonal else a


def _solve_triangular_by_halves(xp: Namespace, a: Array, b: Array, lower: bool, unit_diagonal: bool) -> Array:
    """Solve a triangular system with matrices on the right, by halving: nearly all work is in matrix products."""
    n = a.shape[-1]
    if n <= TRIANGULAR_LEAF_UNKNOWNS:
        a = _triangle(xp, a, lower, unit_diagonal)
        # For many columns, a product with the inverse of so small a block is cheaper.
        return xp.solve(a, b) if b.shape[-1] <= n else xp.matmul(xp.inv(a), b)
    first, second = slice(None, n // 2), slice(n // 2, None)
    if not lower:
        first, second = second, first
    x = _solve_triangular_by_halves(xp, a[..., first, first], b[..., first, :], lower, unit_diagonal)
    rest = b[..., second, :] - xp.matmul(a[..., second, first], x)
    y = _solve_triangular_by_halves(xp, a[..., second, second], rest, lower, unit_diagonal)
    return xp.concat([x, y] if lower else [y, x], axis=-2)


def _solve_triangular_kernel(
    xp: Namespace, a: Array, b: Array, *, lower: bool = False, unit_diagonal: bool = False
) -> Array:
    check_system(xp, "a", a, b)
    # Where the values are not known, as in vmap, `solve` or `inv` raises for the block that is singular.
    if not unit_diagonal and is_known_to_hold(xp.any(xp.diagonal(a) == 0)):
        raise ValueError("a is singular: its diagonal has a 0")
    if len(b.shape) == 1:
        return _solve_triangular_by_halves(xp, a, b[:, None], lower, unit_diagonal)[..., 0]
    return _solve_triangular_by_halves(xp, a, b, lower, unit_diagonal)


def _solve_triangular_common(
    xp: Namespace, g: Cotangent, a: Array, b_spec: Spec, lower: bool, unit_diagonal: bool
) -> Cotangent:
    g = g[..., None] if len(b_spec.shape) == 1 else g
    return xp.solve_triangular(a.mT, g, lower=not lower, unit_diagonal=unit_diagonal)


def _solve_triangular_a(
    xp: Namespace, g: Cotangent, common: Array, a_spec: Spec, b_spec: Spec, out: Array, lower: bool, unit_diagonal: bool
) -> Cotangent:
    out = out[..., None] if len(b_spec.shape) == 1 else out
    d = sum_to(xp, -xp.matmul(common, out.mT), a_spec.shape)
    k = 1 if unit_diagonal else 0
    return xp.band(d, last=-k) if lower else xp.band(d, first=k)


def _solve_b(xp: Namespace, common: Array, b_spec: Spec) -> Array:
    return sum_to(xp, common[..., 0] if len(b_spec.shape) == 1 else common, b_spec.shape)


def _solve_triangular_batch(call: Call, a: BatchInput, b: BatchInput) -> Any:
    if batching.is_batched(a) or a.ndim > 2 or b.ndim > 2:
        out = batching.stacks(2, 2)(call, a, b[:, None] if b.ndim == 1 else b)
        return squeeze(out, -1) if b.ndim == 1 else out
    # One matrix for all examples: their right-hand sides are columns of one system.
    n, size = a.shape[-1], batching.size_of((a, b))
    if b.ndim == 1:
        return call(a.value, b.value.mT).mT
    columns = reshape(permute_dims(b.value, (1, 0, 2)), (b.shape[0], size * b.shape[1]))
    return permute_dims(reshape(call(a.value, columns), (n, size, b.shape[1])), (1, 0, 2))


@refuses("a")
@op(
    a=vjp(_solve_triangular_a),
    b=vjp(lambda xp, g, common, b_spec: _solve_b(xp, common, b_spec)),
    common=_solve_triangular_common,
    kernel=_solve_triangular_kernel,
    samples=_triangular_samples,
    batch=_solve_triangular_batch,
)
def solve_triangular(a: ArrayLike, b: ArrayLike, /, *, lower: bool = False, unit_diagonal: bool = False) -> Tensor:
    """Solve `a @ x == b` for x, with triangular matrices `a`, whose other triangle is ignored.

    For the transposed system pass `a.mT` and the opposite `lower`.

    >>> import tape_core as tc
    >>> a = tc.asarray([[2.0, 9.0], [3.0, 4.0]])
    >>> tc.linalg.solve_triangular(a, tc.asarray([2.0, 11.0]), lower=True)
    Tensor([1. 2.], shape=(2,), dtype=float32, backend=numpy)

    Args:
        a: square matrices, shape (..., n, n).
        b: a vector, shape (n,), or matrices, shape (..., n, k), whose leading dimensions broadcast with those of `a`.
        lower: whether the lower triangle counts; by default the upper one does.
        unit_diagonal: whether the diagonal is taken to be ones; its values are then ignored.

    Raises:
        ValueError: shapes do not fit, or the diagonal has a 0.
        TypeError: an array is not of floating-point numbers.
    """


def cho_solve(factor: ArrayLike, b: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """Solve `a @ x == b` for x, where `factor` is :func:`cholesky` of `a`, with the same `upper`.

    >>> import tape_core as tc
    >>> factor = tc.linalg.cholesky(tc.asarray([[4.0, 2.0], [2.0, 2.0]]))
    >>> tc.linalg.cho_solve(factor, tc.asarray([2.0, 0.0]))
    Tensor([ 1. -1.], shape=(2,), dtype=float32, backend=numpy)

    Args:
        factor: triangular matrices, shape (..., n, n); the other triangle is ignored.
        b: a vector, shape (n,), or matrices, shape (..., n, k), whose leading dimensions broadcast.
        upper: whether `factor` is upper triangular.

    Raises:
        ValueError, TypeError: as for :func:`solve_triangular`.
    """
    factor = read_array(factor, "cho_solve: factor", b)
    b = read_array(b, "cho_solve: b", factor)
    if factor.ndim < 2:
        raise ValueError(f"cho_solve: factor must be square matrices, got shape {factor.shape}")
    across = (conjugate(factor) if factor.dtype.kind == "complex floating" else factor).mT
    first, second = (across, factor) if upper else (factor, across)
    vector = b.ndim == 1
    x = solve_triangular(second, solve_triangular(first, b[:, None] if vector else b, lower=True))
    return x[..., 0] if vector else x


# -- LU


class LUResult(NamedTuple):
    """The result of :func:`lu_factor`."""

    LU: Tensor
    permutation: Tensor


def permute_rows(xp: Namespace, x: Array, permutation: Array) -> Array:
    """Permute the rows of matrices: `x[..., permutation, :]`, over stacks that broadcast."""
    if len(permutation.shape) == 1:
        return xp.take(x, permutation, axis=-2)
    shape = (*broadcast_shape(tuple(x.shape[:-2]), tuple(permutation.shape[:-1])), *x.shape[-2:])
    permutation = xp.broadcast_to(permutation[..., None], shape)
    return xp.take_along_axis(xp.broadcast_to(x, shape), permutation, axis=-2)


def _lu_samples(draw: Draw) -> Iterator[Sample]:
    def factors(xp: Namespace, lu: Array, permutation: Array) -> Array:
        return lu

    for shape in ((3, 3), (2, 2, 2), (1, 1), (4, 2), (2, 4), (2, 3, 2), (0, 0), (0, 3), (3, 0), (0, 2, 2)):
        yield Sample(draw(*shape)).observe(factors)
    yield Sample(draw.complex(3, 3)).observe(factors)
    yield Sample(draw.complex(3, 2)).observe(factors)
    yield Refused(ValueError, "x must have two dimensions or more", draw(3))
    yield Refused(TypeError, "x must be of floating-point numbers", draw.rng.integers(0, 3, (2, 2)))


def _lu_kernel(xp: Namespace, x: Array) -> tuple[Array, Array]:
    if len(x.shape) < 2:
        raise ValueError(f"x must have two dimensions or more, got shape {tuple(x.shape)}")
    if not xp.isdtype(x.dtype, ("real floating", "complex floating")):
        raise TypeError(f"x must be of floating-point numbers, got {x.dtype}")
    if x.shape[-1] == 0 or x.shape[-2] == 0:
        order = xp.arange_beside(x, x.shape[-2])
        return xp.asarray(x, copy=True), xp.broadcast_to(order, (*x.shape[:-2], x.shape[-2]))
    return _lu_by_halves(xp, x)


def _lu_by_halves(xp: Namespace, x: Array) -> tuple[Array, Array]:
    # Toledo, "Locality of reference in LU decomposition with partial pivoting", 1997: factor the left half of the
    # columns, then what remains of the right half.
    m, n = x.shape[-2:]
    if min(m, n) == 1:
        return _lu_of_vector(xp, x)
    k = min(m, n) // 2
    # The rows of the right half follow the pivots of the left one; the Schur complement has pivots of its own.
    left, permutation = _lu_by_halves(xp, x[..., :k])
    right = permute_rows(xp, x[..., k:], permutation)
    above = _solve_triangular_by_halves(xp, left[..., :k, :], right[..., :k, :], True, True)
    below = left[..., k:, :]
    rest, order = _lu_by_halves(xp, right[..., k:, :] - xp.matmul(below, above))
    below = permute_rows(xp, below, order)
    lu = xp.concat([xp.concat([left[..., :k, :], above], axis=-1), xp.concat([below, rest], axis=-1)], axis=-2)
    moved = permute_rows(xp, permutation[..., k:, None], order)[..., 0]
    return lu, xp.concat([permutation[..., :k], moved], axis=-1)


def _lu_of_vector(xp: Namespace, x: Array) -> tuple[Array, Array]:
    """The factors of a single row or column: in a column, the largest element comes first and divides the others."""
    m = x.shape[-2]
    numbers = xp.arange_beside(x, m)
    if m == 1:
        return x, xp.broadcast_to(numbers, (*x.shape[:-2], 1))
    size = x[..., 0]
    if xp.isdtype(x.dtype, "complex floating"):  # LAPACK's measure of size (CABS1), which needs no root
        size = xp.abs(xp.real(size)) + xp.abs(xp.imag(size))
    pivot = xp.argmax(xp.abs(size), axis=-1, keepdims=True)
    permutation = xp.where(numbers == 0, pivot, xp.where(numbers == pivot, 0, numbers))
    x = permute_rows(xp, x, permutation)
    top = x[..., :1, :]
    return xp.concat([top, x[..., 1:, :] / xp.where(top == 0, 1, top)], axis=-2), permutation


def _lu_vjp(xp: Namespace, g: Sequence[Cotangent], out: Sequence[Array]) -> Cotangent:
    # With the rows of A permuted: A = L U gives dL = L tril(L^-1 dA U^-1, -1) and dU = triu(L^-1 dA U^-1) U. What lies
    # below or right of the square part is L2 = A2 U^-1 or U2 = L^-1 A2, and adds to the cotangents of U or of L.
    (lu, permutation), (g_lu, _) = out, g
    m, n = lu.shape[-2:]
    k = min(m, n)
    square = lu[..., :k, :k]
    options: Any = {"lower": False}, {"lower": True, "unit_diagonal": True}
    across = square.mT
    # The triangle of each factor that is not stored is constant: zeros, and ones on the diagonal of L.
    g_lower, g_upper = xp.band(g_lu[..., :k, :k], last=-1), xp.band(g_lu[..., :k, :k], first=0)
    beside = None
    if m > k:
        l2 = lu[..., k:, :]
        beside = xp.solve_triangular(square, g_lu[..., k:, :].mT, **options[0]).mT
        g_upper = g_upper - xp.band(xp.matmul(l2.mT, beside), first=0)
    if n > k:
        beside = xp.solve_triangular(across, g_lu[..., k:], lower=False, unit_diagonal=True)
        g_lower = g_lower - xp.band(xp.matmul(beside, lu[..., k:].mT), last=-1)
    unit = _triangle(xp, square, True, True)
    upper = xp.band(square, first=0)
    inner = xp.band(xp.matmul(unit.mT, g_lower), last=-1) + xp.band(xp.matmul(g_upper, upper.mT), first=0)
    d = xp.solve_triangular(across, inner, lower=False, unit_diagonal=True)
    d = xp.solve_triangular(square, d.mT).mT
    if beside is not None:
        d = xp.concat([d, beside], axis=-2 if m > k else -1)
    return permute_rows(xp, d, xp.argsort(permutation, axis=-1))


@refuses("x")
@op(x=vjp(_lu_vjp), kernel=_lu_kernel, samples=_lu_samples, result=LUResult, batch=batching.stacks(2))
def lu_factor(x: ArrayLike, /) -> LUResult:
    """The LU factors of each matrix, with partial pivoting: `x[permutation] == L @ U`. :func:`lu_solve` takes them.

    L is unit lower triangular, of shape (..., m, k) with k the smaller of m and n, and U upper triangular, (..., k, n).

    >>> import tape_core as tc
    >>> lu, permutation = tc.linalg.lu_factor(tc.asarray([[1.0, 4.0], [2.0, 4.0]]))
    >>> lu.tolist(), permutation.tolist()
    ([[2.0, 4.0], [0.5, 2.0]], [1, 0])

    Args:
        x: matrices, shape (..., m, n). Singular ones have factors, but no gradient.

    Returns:
        A named tuple: `LU`, shape (..., m, n), has U in its upper triangle and L below it; `permutation`, integers of
        shape (..., m), has the numbers of the rows of `x` in their new order. (LAPACK's pivots are the swaps that lead
        there.)

    Raises:
        ValueError: `x` has fewer than two dimensions.
        TypeError: `x` is not of floating-point numbers.
    """


def _lu_solve_samples(draw: Draw) -> Iterator[Sample]:
    for a, b in (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 2, 2), (2,)), ((2, 2), (3, 2, 1)), ((2, 1, 2, 2), (3, 2, 2))):
        for transposed in (False, True):
            factors = lu_factor(draw(*a))
            yield Sample(*factors, draw(*b), transposed=transposed)
    yield Sample(*lu_factor(draw.complex(3, 3)), draw.complex(3, 2), transposed=True)
    yield Sample(*lu_factor(draw.complex(3, 3)), draw.complex(3))
    yield Refused(ValueError, "b must have 2 rows", *lu_factor(draw(2, 2)), draw(3))


def _lu_solve_kernel(xp: Namespace, lu: Array, permutation: Array, b: Array, *, transposed: bool = False) -> Array:
    check_system(xp, "LU", lu, b)
    if len(b.shape) == 1:
        return _lu_solve_kernel(xp, lu, permutation, b[:, None], transposed=transposed)[..., 0]
    if transposed:  # U^T L^T P x = b, with P the permutation of rows
        x = xp.solve_triangular(lu.mT, b, lower=True)
        x = xp.solve_triangular(lu.mT, x, unit_diagonal=True)
        return permute_rows(xp, x, xp.argsort(permutation, axis=-1))
    x = xp.solve_triangular(lu, permute_rows(xp, b, permutation), lower=True, unit_diagonal=True)
    return xp.solve_triangular(lu, x)


def _lu_solve_lu(
    xp: Namespace,
    g: Cotangent,
    common: Array,
    lu: Array,
    permutation: Array,
    b_spec: Spec,
    out: Array,
    transposed: bool,
) -> Cotangent:
    x = out[..., None] if len(b_spec.shape) == 1 else out
    upper, unit = xp.band(lu, first=0), _triangle(xp, lu, True, True)
    g = g[..., None] if len(b_spec.shape) == 1 else g
    # The cotangent of the matrix of a system M x = y is -d_y x^T, with d_y the cotangent of y. Apply it to L and to U.
    if transposed:  # U^T y = b, L^T z = y, x[permutation] = z
        z = permute_rows(xp, x, permutation)
        y = xp.matmul(unit.mT, z)
        d_y = xp.solve_triangular(lu, permute_rows(xp, g, permutation), lower=True, unit_diagonal=True)
        d = xp.band(xp.matmul(z, d_y.mT), last=-1) + xp.band(xp.matmul(y, common.mT), first=0)
    else:  # L y = b[permutation], U x = y
        y = xp.matmul(upper, x)
        d_y = xp.solve_triangular(lu.mT, g, lower=True)
        d = xp.band(xp.matmul(d_y, x.mT), first=0) + xp.band(
            xp.matmul(permute_rows(xp, common, permutation), y.mT), last=-1
        )
    return sum_to(xp, -d, tuple(lu.shape))


@refuses("lu", "permutation", "b")
@op(
    lu=vjp(_lu_solve_lu),
    permutation=NONDIFF,
    b=vjp(lambda xp, g, common, b_spec: _solve_b(xp, common, b_spec)),
    common=lambda xp, g, lu, permutation, b_spec, transposed: xp.lu_solve(
        lu, permutation, g[..., None] if len(b_spec.shape) == 1 else g, transposed=not transposed
    ),
    kernel=_lu_solve_kernel,
    samples=_lu_solve_samples,
)
def lu_solve(lu: ArrayLike, permutation: ArrayLike, b: ArrayLike, /, *, transposed: bool = False) -> Tensor:
    """Solve `a @ x == b`, or `a.mT @ x == b`, with the results of :func:`lu_factor` of `a`: the op, for rules."""


_lu_solve = lu_solve


def lu_solve(  # type: ignore[no-redef] # hides the op; this is SciPy's signature
    factors: tuple[ArrayLike, ArrayLike], b: ArrayLike, /, *, trans: Literal[0, 1, 2] = 0
) -> Tensor:
    """Solve `a @ x == b` for x, where `factors` is :func:`lu_factor` of `a`.

    >>> import tape_core as tc
    >>> factors = tc.linalg.lu_factor(tc.asarray([[1.0, 4.0], [2.0, 4.0]]))
    >>> tc.linalg.lu_solve(factors, tc.asarray([5.0, 6.0]))
    Tensor([1. 1.], shape=(2,), dtype=float32, backend=numpy)

    Args:
        factors: `(LU, permutation)`, of square matrices, shapes (..., n, n) and (..., n).
        b: a vector, shape (n,), or matrices, shape (..., n, k), whose leading dimensions broadcast.
        trans: 1 to solve `a.mT @ x == b`, 2 to solve `conj(a.mT) @ x == b`.

    Raises:
        ValueError: shapes do not fit, `a` is singular, or `trans` is none of 0, 1 and 2.
        TypeError: an array is not of floating-point numbers.
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"lu_solve: trans must be 0, 1 or 2, got {trans!r}")
    lu, permutation = factors
    if trans == 2:
        lu = read(lu, "lu_solve: LU", b)
        lu = conjugate(lu) if isinstance(lu, Tensor) and lu.dtype.kind == "complex floating" else lu
    return _lu_solve(lu, permutation, b, transposed=trans != 0)
