"""Sorting functions of the Array API standard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tape_core.backends.checks import check_top_k
from tape_core.engine.op import NONDIFF, REFUSED, op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.ops.index.indexing import take_along_axis_transpose
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

REASON_POSITION = "the result is a place or a number of elements, constant almost everywhere"


def _samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.distinct(4))
    yield Sample(draw.distinct(2, 3), axis=0)
    yield Sample(draw.distinct(2, 3, 2), axis=1, descending=True)
    yield Sample(draw.distinct(3, 2), descending=True, stable=False)
    yield Sample(draw(0, 2), axis=0)
    yield Refused(ValueError, "axis", draw(3), axis=1)


def _sort_vjp(xp: Namespace, g: Cotangent, x: Array, axis: int, descending: bool, stable: bool) -> Cotangent:
    # Sorting is a permutation; the argsort of a permutation is its inverse.
    order = xp.argsort(x, axis=axis, descending=descending, stable=stable)
    return xp.take_along_axis(g, xp.argsort(order, axis=axis), axis=axis)


@op(x=vjp(_sort_vjp), samples=_samples, batch=batching.along, keeps_integers=True, complex_kernel=REFUSED)
def sort(x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements along `axis` in ascending or descending order.

    With `stable`, equal elements keep their order, and each its own gradient.
    """


@op(x=NONDIFF, samples=_samples, reason=REASON_POSITION, batch=batching.along, complex_kernel=REFUSED)
def argsort(x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices along `axis` that sort the elements."""


class TopKResult(NamedTuple):
    """The result of :func:`top_k`."""

    values: Tensor
    indices: Tensor


def _top_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.distinct(4), 2)
    yield Sample(draw.distinct(2, 3), 1, axis=0)
    yield Sample(draw.distinct(2, 3, 2), 2, axis=1, largest=False)
    yield Sample(draw.distinct(3, 2), 2, axis=-1)
    yield Sample(draw.distinct(2, 3), 0)
    yield Sample(draw(0, 2), 1)
    yield Refused(ValueError, "k must be between 0 and the length of axis -1, which is 3, got 4", draw(2, 3), 4)
    yield Refused(ValueError, "k must be between", draw(3), -1)
    yield Refused(TypeError, "k must be an integer", draw(3), 1.5)
    yield Refused(IndexError, "axis 1 is out of bounds", draw(3), 1, axis=1)
    yield Refused(TypeError, "real numbers", draw.complex(3), 1)


def _top_k_kernel(xp: Namespace, x: Array, k: int, *, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    k = check_top_k(x, k, axis, xp.isdtype(x.dtype, "complex floating"))
    # A whole sort, as the standard has no partial one; backends bring faster kernels.
    order = xp.argsort(x, axis=axis, descending=largest, stable=True)
    indices = order[(slice(None),) * (axis % len(x.shape)) + (slice(k), ...)]
    return xp.take_along_axis(x, indices, axis=axis), indices


def _top_k_vjp(xp: Namespace, g: Sequence[Cotangent], x_spec: Spec, out: Sequence[Array], axis: int) -> Cotangent:
    return take_along_axis_transpose(xp, g[0], x_spec, out[1], axis)


@op(
    x=vjp(_top_k_vjp),
    kernel=_top_k_kernel,
    samples=_top_samples,
    result=TopKResult,
    batch=batching.along,
    keeps_integers=True,
    complex_kernel=REFUSED,
)
def top_k(x: ArrayLike, k: int, /, *, axis: int = -1, largest: bool = True) -> TopKResult:
    """The `k` largest elements along `axis`, or the smallest, in order, and their indices.

    >>> import tape_core as tc
    >>> x = tc.asarray([3.0, 1.0, 4.0, 1.0, 5.0])
    >>> values, indices = tc.top_k(x, 2)
    >>> values.tolist(), indices.tolist()
    ([5.0, 4.0], [4, 2])
    >>> tc.top_k(x, 2, largest=False).indices.tolist()
    [1, 3]

    Among equal elements the earlier ones come first. The gradient goes to the elements that are taken. NaN counts as
    larger than every number.

    Raises:
        ValueError: `k` is negative or more than there are elements along `axis`.
        IndexError: `x` has no such axis.
        TypeError: `x` is complex, or `k` not an integer.
    """
