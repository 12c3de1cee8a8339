"""The matrix exponential, `kron`, `multi_dot` and `transpose`, beyond the standard."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tape_core.base.mistakes import sequence
from tape_core.engine.op import op, refuses, vjp
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor, read_all, read_array
from tape_core.modes import batching
from tape_core.ops.elementwise import multiply
from tape_core.ops.linalg.norms_and_inverses import on_diagonal
from tape_core.ops.linalg.products import matmul
from tape_core.ops.manipulation import permute_dims, reshape
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

# -- the exponential

# Higham, "The scaling and squaring method for the matrix exponential revisited", SIAM J. Matrix Anal. Appl. 26, 2005,
# table 2.3: pairs of the degree of a Padé approximant and the 1-norm up to which it is accurate to double precision.
_DEGREES = ((3, 1.495585217958292e-2), (5, 2.539398330063230e-1), (7, 9.504178996162932e-1), (9, 2.097847961257068))
_MAX_DEGREE, _MAX_NORM = 13, 5.371920351148152


def _coefficients(degree: int) -> list[float]:
    """The coefficients of the numerator of the diagonal Padé approximant of exp, scaled so that the last is 1."""
    f = math.factorial
    return [f(2 * degree - k) * f(degree) // (f(degree - k) * f(k)) // f(degree) for k in range(degree + 1)]


def _expm_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)):
        yield Sample(draw(*shape))
    for scale in (1e-3, 0.05, 0.2, 0.5, 5.0):
        yield Sample(draw(2, 2) * scale)
    yield Sample(draw.complex(2, 2))
    yield Refused(ValueError, "x must be square matrices", draw(2, 3))
    yield Refused(TypeError, "x must be of floating-point numbers", draw.rng.integers(0, 3, (2, 2)))


def _check_square(xp: Namespace, x: Array) -> None:
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"x must be square matrices, got shape {tuple(x.shape)}")
    if not xp.isdtype(x.dtype, ("real floating", "complex floating")):
        raise TypeError(f"x must be of floating-point numbers, got {x.dtype}")


def _expm_kernel(xp: Namespace, x: Array) -> Array:
    _check_square(xp, x)
    if 0 in x.shape:
        return xp.asarray(x, copy=True)
    norm = xp.max(xp.sum(xp.abs(x), axis=-2, keepdims=True), axis=-1, keepdims=True)
    finite = xp.isfinite(norm)
    x, norm = xp.where(finite, x, 0), xp.where(finite, norm, 0)
    # One degree for the whole stack, and for each matrix its own number of squarings.
    top = float(xp.max(norm))
    degree = next((degree for degree, limit in _DEGREES if top <= limit), _MAX_DEGREE)
    squarings = xp.zeros_like(norm)
    if top > _MAX_NORM:
        squarings = xp.ceil(xp.log2(xp.maximum(norm, xp.full_like(norm, _MAX_NORM)) / _MAX_NORM))
        x = x / 2**squarings
    result = _pade(xp, x, degree)
    for k in range(int(xp.max(squarings))):
        result = xp.where(squarings > k, xp.matmul(result, result), result)
    return xp.where(finite, result, math.nan)


def _pade(xp: Namespace, x: Array, degree: int) -> Array:
    """The Padé approximant (V - U)^-1 (V + U), with U the odd and V the even powers of its numerator."""
    c = _coefficients(degree)
    # Sums of even powers of x; for degree 13 in Higham's grouping, which needs only the powers 2, 4 and 6.
    one = on_diagonal(xp, xp.ones_like(x), tuple(x.shape))
    x2 = xp.matmul(x, x)
    if degree < _MAX_DEGREE:
        power, even, odd = one, c[0] * one, c[1] * one
        for k in range(2, degree, 2):
            power = x2 if k == 2 else xp.matmul(power, x2)
            even, odd = even + c[k] * power, odd + c[k + 1] * power
    else:
        x4 = xp.matmul(x2, x2)
        x6 = xp.matmul(x4, x2)
        odd = xp.matmul(x6, c[13] * x6 + c[11] * x4 + c[9] * x2) + c[7] * x6 + c[5] * x4 + c[3] * x2 + c[1] * one
        even = xp.matmul(x6, c[12] * x6 + c[10] * x4 + c[8] * x2) + c[6] * x6 + c[4] * x4 + c[2] * x2 + c[0] * one
    odd = xp.matmul(x, odd)
    return xp.solve(even - odd, even + odd)


@refuses("x")
@op(
    x=vjp(lambda xp, g, x: xp.expm_derivative(x.mT, g)),
    kernel=_expm_kernel,
    samples=_expm_samples,
    batch=batching.stacks(2),
)
def expm(x: ArrayLike, /) -> Tensor:
    """The exponential of each matrix: the sum of `x**k / k!` over powers of matrices.

    It is computed by scaling and squaring with Padé approximants: Higham, "The scaling and squaring method for the
    matrix exponential revisited", 2005. A matrix that is not finite gives NaN.

    >>> import tape_core as tc
    >>> tc.linalg.expm(tc.asarray([[0.0, 1.0], [0.0, 0.0]]))
    Tensor([[1. 1.]
     [0. 1.]], shape=(2, 2), dtype=float32, backend=numpy)

    Args:
        x: square matrices, shape (..., n, n).

    Raises:
        ValueError: they are not square.
        TypeError: they are not of floating-point numbers.
    """


def _block_triangular(xp: Namespace, x: Array, direction: Array) -> Array:
    """[[x, direction], [0, x]]"""
    zeros = xp.zeros_like(x)
    return xp.concat([xp.concat([x, direction], axis=-1), xp.concat([zeros, x], axis=-1)], axis=-2)


def _expm_derivative_kernel(xp: Namespace, x: Array, direction: Array) -> Array:
    # Higham, "Functions of Matrices", 2008, equation 3.16: it is the upper right block of the exponential of a block
    # matrix. The direction is scaled, so that a large one costs no squarings, and no digits.
    _check_square(xp, x)
    if 0 in x.shape:
        return direction + xp.zeros_like(x)
    n = x.shape[-1]
    norm = xp.max(xp.sum(xp.abs(direction), axis=-2, keepdims=True), axis=-1, keepdims=True)
    scale = xp.where(xp.logical_and(norm > 0, xp.isfinite(norm)), norm, 1)
    return xp.expm(_block_triangular(xp, x, direction / scale))[..., :n, n:] * scale


def _expm_derivative_common(xp: Namespace, g: Cotangent, x: Array, direction: Array) -> Cotangent:
    # The derivative of the same block formula; `_expm_derivative_x` adds the two blocks in which x stands.
    zeros = xp.zeros_like(g)
    corner = xp.concat([xp.concat([zeros, g], axis=-1), xp.concat([zeros, zeros], axis=-1)], axis=-2)
    return xp.expm_derivative(_block_triangular(xp, x, direction).mT, corner)


def _expm_derivative_x(xp: Namespace, g: Cotangent, common: Array) -> Cotangent:
    n = g.shape[-1]
    return common[..., :n, :n] + common[..., n:, n:]


def _expm_derivative_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((2, 2), (2, 2, 2), (0, 0)):
        yield Sample(draw(*shape), draw(*shape))
    yield Sample(draw.complex(2, 2), draw.complex(2, 2) * 100)


@refuses("x", "direction")
@op(
    x=vjp(_expm_derivative_x),
    direction=vjp(lambda xp, g, x: xp.expm_derivative(x.mT, g)),
    common=_expm_derivative_common,
    kernel=_expm_derivative_kernel,
    samples=_expm_derivative_samples,
    batch=batching.apart,
)
def expm_derivative(x: ArrayLike, direction: ArrayLike, /) -> Tensor:
    """The derivative of :func:`expm` at each `x` along `direction`; its transpose is the derivative at `x.mT`."""


# -- products


def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Permute the dimensions, by default to the reverse order: NumPy's name for :func:`permute_dims`.

    >>> import tape_core as tc
    >>> tc.transpose(tc.zeros((2, 3, 4))).shape, tc.transpose(tc.zeros((2, 3, 4)), (1, 0, 2)).shape
    ((4, 3, 2), (3, 2, 4))

    Raises:
        ValueError: `axes` are not those of `x`, each once.
    """
    x = read_array(x, "transpose: x")
    order = range(x.ndim)[::-1] if axes is None else sequence("transpose", "axes", "integers", axes)
    return permute_dims(x, tuple(order))


def kron(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The Kronecker product: `b` times each element of `a`, side by side; for any number of dimensions, as in NumPy.

    >>> import tape_core as tc
    >>> tc.kron(tc.asarray([1.0, 10.0]), tc.asarray([1.0, 2.0]))
    Tensor([ 1.  2. 10. 20.], shape=(4,), dtype=float32, backend=numpy)

    Args:
        a, b: arrays; the one with fewer dimensions gets more of length 1 in front.

    Returns:
        An array of length `a.shape[k] * b.shape[k]` along dimension k.
    """
    a, b = read_all((a, b), lambda k: f"kron: {'ab'[k]}")
    shapes = [x.shape if isinstance(x, Tensor) else () for x in (a, b)]
    if not (shapes[0] and shapes[1]):
        return multiply(a, b)
    n = max(map(len, shapes))
    first, second = ((1,) * (n - len(shape)) + shape for shape in shapes)
    # Interleave the dimensions, (a0, 1, a1, 1) * (1, b0, 1, b1), so that the product is reshaped only.
    a = reshape(a, tuple(length for m in first for length in (m, 1)))
    b = reshape(b, tuple(length for m in second for length in (1, m)))
    return reshape(multiply(a, b), tuple(p * q for p, q in zip(first, second, strict=True)))


def multi_dot(arrays: Sequence[ArrayLike], /) -> Tensor:
    """The product of two or more matrices, in the order that takes the fewest multiplications.

    >>> import tape_core as tc
    >>> a, b, c = tc.ones((2, 50)), tc.ones((50, 50)), tc.ones(50)
    >>> tc.linalg.multi_dot([a, b, c]).tolist()
    [2500.0, 2500.0]

    Args:
        arrays: matrices, in stacks that broadcast; the first and the last may be vectors.

    Raises:
        ValueError: there are fewer than two, shapes do not fit, or a vector is neither the first nor the last.
    """
    tensors = read_all(sequence("multi_dot", "arrays", "arrays", arrays), lambda k: f"multi_dot: arrays[{k}]")
    last = len(tensors) - 1
    if last < 1:
        raise ValueError(f"multi_dot: it takes two arrays or more, got {last + 1}")
    shapes = [x.shape if isinstance(x, Tensor) else () for x in tensors]
    for k, shape in enumerate(shapes):
        if len(shape) < (1 if k in (0, last) else 2):
            raise ValueError(f"multi_dot: arrays[{k}] must be matrices, got shape {shape}")
    # A vector at the left end is a row, one at the right end a column; their dimensions are dropped at the end.
    rows = [1 if len(shape) == 1 and k == 0 else shape[-2 if len(shape) > 1 else -1] for k, shape in enumerate(shapes)]
    columns = [1 if len(shape) == 1 and k == last else shape[-1] for k, shape in enumerate(shapes)]
    for k in range(last):
        if columns[k] != rows[k + 1]:
            raise ValueError(
                f"multi_dot: arrays[{k}] of shape {shapes[k]} and arrays[{k + 1}] of shape {shapes[k + 1]} do not fit"
            )
    vectors = len(shapes[0]) == 1, len(shapes[last]) == 1
    if vectors[0]:
        tensors[0] = tensors[0][None, :]
    if vectors[1]:
        tensors[last] = tensors[last][:, None]
    product = _multiply_chain(tensors, _best_splits([*rows, columns[-1]]), 0, last)
    if vectors[1]:
        product = product[..., 0]
    if vectors[0]:
        product = product[..., 0] if vectors[1] else product[..., 0, :]
    return product


def _best_splits(lengths: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return for each chain of matrices from i to j the number of the matrix after which to split it.

    Matrix k has the shape (lengths[k], lengths[k + 1]). Dynamic programming: Cormen et al., "Introduction to
    Algorithms", fourth edition, section 14.2.
    """
    n = len(lengths) - 1
    costs = {(i, i): 0 for i in range(n)}
    splits = {}
    for distance in range(1, n):
        for i in range(n - distance):
            j = i + distance
            costs[i, j], splits[i, j] = min(
                (costs[i, k] + costs[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1], k) for k in range(i, j)
            )
    return splits


def _multiply_chain(tensors: Sequence[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return tensors[i]
    k = splits[i, j]
    return matmul(_multiply_chain(tensors, splits, i, k), _multiply_chain(tensors, splits, k + 1, j))
