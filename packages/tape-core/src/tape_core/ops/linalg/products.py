"""Matrix products: `matmul`, `vecdot`, `outer`, `tensordot`; and `matrix_transpose`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends.axes import normal_axis
from tape_core.base.mistakes import explaining
from tape_core.engine.cotangents import unequal
from tape_core.engine.op import linear, op, transpose, vjp, with_numbers_as_tensors
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, with_complex
from tape_core.engine.tensor import Tensor, read_all, read_array
from tape_core.modes import batching
from tape_core.modes.batching import Call
from tape_core.ops.elementwise import multiply
from tape_core.ops.manipulation import expand_dims, permute_dims, reshape, squeeze, sum_to
from tape_core.typing import Array, ArrayLike, BatchInput, Cotangent, Namespace, Shape

if TYPE_CHECKING:
    from tape_core.sparsity.index_sets import IndexSets


def _matmul_samples(draw: Draw) -> Iterator[Sample]:
    for a, b in (
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((2, 2, 3), (3, 2)),
        ((2, 1, 2, 3), (4, 3, 2)),
        ((3,), (2, 3, 2)),
        ((2, 2, 3), (3,)),
        ((0, 3), (3, 2)),
    ):
        yield Sample(draw(*a), draw(*b))
    yield Refused(ValueError, "matmul", draw(2, 3), draw(2, 3))


def _matmul_x1(xp: Namespace, g: Cotangent, x2: Array, x1_spec: Spec) -> Cotangent:
    n2 = x2.ndim
    if n2 == 2 == g.ndim:
        return xp.matmul(g, x2.mT)
    if n2 == 1:
        return g[..., None] * x2
    if len(x1_spec.shape) == 1:
        return sum_to(xp, xp.matmul(x2, g[..., None])[..., 0], x1_spec.shape)
    if n2 == 2:
        # One product of all rows: NumPy needs half as much time again for a stack times a transposed matrix.
        rows = xp.reshape(g, (math.prod(g.shape[:-1]), g.shape[-1]))
        return xp.reshape(xp.matmul(rows, x2.mT), x1_spec.shape)
    return sum_to(xp, xp.matmul(g, x2.mT), x1_spec.shape)


def _matmul_x2(xp: Namespace, g: Cotangent, x1: Array, x2_spec: Spec) -> Cotangent:
    n1, n2 = x1.ndim, len(x2_spec.shape)
    if n1 == 2 == n2:
        return xp.matmul(x1.mT, g)
    if n1 == 1:
        return g * x1 if n2 == 1 else sum_to(xp, x1[:, None] * g[..., None, :], x2_spec.shape)
    if n2 == 1:
        g = g[..., None]
    if n1 > 2 and n2 <= 2:
        # One product over all rows, in place of a stack of products and their sum.
        x1 = xp.reshape(x1, (math.prod(x1.shape[:-1]), x1.shape[-1]))
        g = xp.reshape(g, (math.prod(g.shape[:-1]), g.shape[-1]))
    d = xp.matmul(x1.mT, g)
    return d[..., 0] if n2 == 1 else sum_to(xp, d, x2_spec.shape)


def _matmul_batch(call: Call, x1: BatchInput, x2: BatchInput) -> Any:
    n1, n2 = x1.ndim, x2.ndim
    if not n1 or not n2:
        raise ValueError("matmul needs arrays of at least 1 dimension")
    if n1 == 2 and n2 <= 2 and not batching.is_batched(x2):
        # One product of the rows of all examples, in place of a stack of products.
        size, rows, inner = x1.value.shape
        out = call(reshape(x1.value, (size * rows, inner)), x2.value)
        return reshape(out, (size, rows, *out.shape[1:]))
    if n1 == 2 and n2 <= 2 and not batching.is_batched(x1):
        # The same with the columns of x2: x1 @ x2 is the transpose of x2.mT @ x1.mT.
        size = x2.axis.size
        columns = x2.value if n2 == 1 else matrix_transpose(x2.value)
        inner = columns.shape[-1]
        out = call(reshape(columns, (math.prod(columns.shape[:-1]), inner)), matrix_transpose(x1.value))
        return out if n2 == 1 else matrix_transpose(reshape(out, (size, x2.shape[1], out.shape[-1])))
    leading = max(n1, n2, 2) - 2
    a = batching.front(x1 if n1 > 1 else _as_row(x1), leading + 2)
    b = batching.front(x2 if n2 > 1 else _as_column(x2), leading + 2)
    # A stack of outer products, columns times rows, is faster as an elementwise product.
    out = multiply(a, b) if b.shape[-2] == 1 == a.shape[-1] else call(a, b)
    out = squeeze(out, -2) if n1 == 1 else out
    return squeeze(out, -1) if n2 == 1 else out


def _as_row(x: Array) -> Array:
    return x[None, :]


def _as_column(x: Array) -> Array:
    return x[:, None]


def _matmul_sparsity(x1: IndexSets, x2: IndexSets) -> IndexSets:
    """Each element of the result depends on a row of `x1` and a column of `x2`."""
    rows, columns = x1.united(-1), x2.united(-2 if x2.ndim > 1 else -1)
    if x2.ndim == 1:
        rows = rows.reshape(*x1.shape[:-1])
    if x1.ndim == 1:
        columns = columns.reshape(*x2.shape[:-2], *x2.shape[-1:] * (x2.ndim > 1))
    return rows | columns


def _matmul_misfit(x1: Shape, x2: Shape, **_: Any) -> str | None:
    if not x1 or not x2:
        return None  # see `_matmul_advice`
    if x1[-1] != x2[-2:][0]:
        return f"the last axis of x1, of length {x1[-1]}, meets an axis of x2 of length {x2[-2:][0]}"
    return unequal([x1[:-2], x2[:-2]])


@op(
    x1=vjp(_matmul_x1),
    x2=vjp(_matmul_x2),
    samples=with_complex(_matmul_samples),
    batch=_matmul_batch,
    misfit=_matmul_misfit,
    multilinear=True,
    sparsity=_matmul_sparsity,
)
def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The matrix product `x1 @ x2`, over stacks of matrices that broadcast; 1-d arrays are vectors."""


def _matmul_advice(x1: Shape, x2: Shape) -> Exception | None:
    """An error to raise when the kernel has failed with these shapes, where the library's own says less."""
    if x1 and x2:
        return None
    which = "x1 and x2 are numbers" if x1 == x2 else f"{'x2' if x1 else 'x1'} is a number"
    return ValueError(f"@ multiplies vectors and matrices, and {which}, without dimensions: write x1 * x2")


matmul.op.advice = _matmul_advice  # type: ignore[attr-defined]


def _transpose_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3))
    yield Sample(draw(2, 3, 4))


@linear(
    x=transpose(lambda xp, g: xp.matrix_transpose(g)),
    samples=with_complex(_transpose_samples),
    batch=batching.stacks(2),
    keeps_integers=True,
)
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Transpose each matrix."""


def _vecdot_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), draw(2, 3))
    yield Sample(draw(3), draw(2, 3))
    yield Sample(draw(3, 2), draw(3, 1), axis=-2)
    yield Refused(ValueError, "vecdot", draw(2), draw(3))


def _vecdot_vjp(xp: Namespace, g: Cotangent, other: Array, spec: Spec, axis: int) -> Cotangent:
    n = max(len(spec.shape), len(other.shape))
    return sum_to(xp, xp.expand_dims(g, axis=n + axis if axis < 0 else axis) * other, spec.shape)


def conj(xp: Namespace, x: Array) -> Array:
    """The complex conjugate; unlike `xp.conj`, it takes real arrays as well."""
    return xp.conj(x) if xp.isdtype(x.dtype, "complex floating") else x


@op(
    x1=vjp(lambda xp, g, x2, x1_spec, axis: conj(xp, _vecdot_vjp(xp, g, x2, x1_spec, axis))),
    x2=vjp(lambda xp, g, x1, x2_spec, axis: _vecdot_vjp(xp, g, conj(xp, x1), x2_spec, axis)),
    samples=with_complex(with_complex(with_complex(_vecdot_samples))),
    batch=batching.along,
    axes_of="each",
    multilinear=True,
)
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The dot products `sum(conj(x1) * x2)` along `axis`; arrays broadcast."""


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The outer product of two vectors: element (i, j) is `x1[i] * x2[j]`.

    Raises:
        ValueError: an argument is not 1-d.
    """
    x1 = read_array(x1, "outer: x1", x2)
    x2 = read_array(x2, "outer: x2", x1)
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim != 1:
            raise ValueError(f"outer: {name} must be 1-d, got shape {x.shape}")
    return multiply(expand_dims(x1, axis=1), x2)


@explaining
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over pairs of axes.

    `axes` is a number n, for the last n axes of `x1` and the first n of `x2`, or a pair of sequences that name the axes
    of each.

    Raises:
        ValueError: the contracted axes differ in length.
    """
    a, b = with_numbers_as_tensors(tuple(read_all((x1, x2), lambda k: f"tensordot: x{k + 1}")))
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            most = min(a.ndim, b.ndim)
            raise ValueError(f"tensordot: axes must be from 0 to {most} for shapes {a.shape} and {b.shape}; got {axes}")
        contracted1, contracted2 = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        first, second = axes
        contracted1 = [normal_axis(k, a.ndim) for k in first]
        contracted2 = [normal_axis(k, b.ndim) for k in second]
    if [a.shape[k] for k in contracted1] != [b.shape[k] for k in contracted2]:
        raise ValueError(f"tensordot: shapes {a.shape} and {b.shape} do not match along axes {axes}")
    # One matrix product: the free axes of a times the contracted ones, times the free axes of b.
    free1 = [k for k in range(a.ndim) if k not in contracted1]
    free2 = [k for k in range(b.ndim) if k not in contracted2]
    shape = tuple(a.shape[k] for k in free1) + tuple(b.shape[k] for k in free2)
    inner = math.prod(a.shape[k] for k in contracted1)
    left = reshape(permute_dims(a, (*free1, *contracted1)), (math.prod(a.shape[k] for k in free1), inner))
    right = reshape(permute_dims(b, (*contracted2, *free2)), (inner, math.prod(b.shape[k] for k in free2)))
    return reshape(matmul(left, right), shape)
