"""Searching and utility functions of the Array API standard. A gradient flows only through `diff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from tape_core.backends.errors import AxisError
from tape_core.base.mistakes import explaining
from tape_core.engine.op import NONDIFF, REFUSED, linear, op, transpose
from tape_core.engine.samples import Draw, Refused, Sample, with_complex
from tape_core.engine.tensor import Tensor, read_array
from tape_core.modes import batching
from tape_core.modes.batching import Call
from tape_core.ops.index.indexing import take
from tape_core.ops.index.keys import is_array
from tape_core.ops.manipulation import concat
from tape_core.ops.sorting import REASON_POSITION, sort
from tape_core.ops.statistical import reductions
from tape_core.typing import Array, ArrayLike, Axis, BatchInput, DTypeLike, Namespace, Raw, RawDevice

REASON_TRUTH_VALUE = "the result is a truth value"


def _one_axis(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.distinct(2, 3))
    yield Sample(draw.distinct(2, 3), axis=1)
    yield Sample(draw.distinct(2, 3), axis=0, keepdims=True)


@op(x=NONDIFF, samples=_one_axis, reason=REASON_POSITION, batch=batching.along_one, complex_kernel=REFUSED)
def argmax(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the maximum along `axis`, or in the flattened array."""


@op(x=NONDIFF, samples=_one_axis, reason=REASON_POSITION, batch=batching.along_one, complex_kernel=REFUSED)
def argmin(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the minimum along `axis`, or in the flattened array."""


@op(x=NONDIFF, samples=with_complex(reductions()), reason=REASON_POSITION, batch=batching.along)
def count_nonzero(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The number of elements that are not 0."""


def _nonzero_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.rng.integers(0, 2, (5,)))
    yield Sample(draw.rng.integers(0, 2, (2, 3)))
    yield Refused(ValueError, "nonzero", draw())


@op(x=NONDIFF, samples=_nonzero_samples, reason=REASON_POSITION)
def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not 0, an array for each dimension."""


def _searchsorted_samples(draw: Draw) -> Iterator[Sample]:
    ordered = sort(draw(4))
    yield Sample(ordered, draw(3))
    yield Sample(ordered, draw(2, 2), side="right")
    yield Sample(ordered, 0.5)


def _searchsorted_kernel(xp: Namespace, x1: Array, x2: Array, *, side: Literal["left", "right"] = "left") -> Array:
    if not is_array(x2):
        x2 = xp.zeros_beside(x1, (), dtype=x1.dtype) + x2
    return xp.searchsorted(x1, x2, side=side)


def _search_batch(call: Call, x1: BatchInput, x2: BatchInput) -> Any:
    if batching.is_batched(x1):  # libraries search in one vector at a time
        return batching.one_by_one(call, x1, x2)
    return call(x1.value, x2.value)


@op(
    x1=NONDIFF,
    x2=NONDIFF,
    kernel=_searchsorted_kernel,
    samples=_searchsorted_samples,
    reason=REASON_POSITION,
    batch=_search_batch,
    complex_kernel=REFUSED,
)
def search_in_order(x1: ArrayLike, x2: ArrayLike, /, *, side: Literal["left", "right"] = "left") -> Tensor:
    """Search in a vector that is in order: the op behind :func:`searchsorted`."""


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: Literal["left", "right"] = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """The index at which each element of `x2` has to be inserted into the ordered vector `x1` to keep it in order.

    Args:
        x2: an array or a Python scalar.
        side: "left" to insert before elements that are equal, "right" for after them.
        sorter: the indices that bring `x1` into order, as from :func:`argsort`; by default `x1` is in order.
    """
    return search_in_order(x1 if sorter is None else take(x1, sorter), x2, side=side)


@op(x=NONDIFF, samples=with_complex(reductions()), reason=REASON_TRUTH_VALUE, batch=batching.along)
def all(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where all elements along `axis` (all axes by default) are true, that is, not 0."""


@op(x=NONDIFF, samples=with_complex(reductions()), reason=REASON_TRUTH_VALUE, batch=batching.along)
def any(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where any element along `axis` (all axes by default) is true, that is, not 0."""


@explaining
def diff(
    x: ArrayLike, /, *, axis: int = -1, n: int = 1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Tensor:
    """The differences of neighbours along `axis`, taken `n` times.

    Args:
        prepend, append: arrays to put before and after `x` along `axis` first.

    Raises:
        ValueError: `n` is negative.
        IndexError: `x` has no such axis.
    """
    x = read_array(x, "diff: x")
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(f"diff: x of shape {x.shape} has no axis {axis}")
    if n < 0:
        raise ValueError(f"diff: n must not be negative, got {n}")
    # Slices and differences only, which have rules of their own: `diff` needs none.
    parts = [part for part in (prepend, x, append) if part is not None]
    if n and len(parts) > 1:
        x = concat(parts, axis=axis)
    before = (slice(None),) * (axis % x.ndim)
    result: Tensor = x
    for _ in range(n):
        result = result[(*before, slice(1, None), ...)] - result[(*before, slice(None, -1), ...)]
    return result


# The standard's `arange` and `zeros` know no array whose backend, device and batch they could take over. Rules need
# indices and zeros that match their inputs, and use these two ops.


def _arange_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2), 3)


@op(
    x=NONDIFF,
    samples=_arange_samples,
    kernel=lambda xp, x, n: xp.arange(n, device=device_of(x)),
    reason="no input's value is used",
    batch=batching.beside,
)
def arange_beside(x: ArrayLike, /, n: int) -> Tensor:
    """The integers 0, 1, ... n - 1 on the backend and device of `x`; rules make indices with it."""


def _zeros_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2), (2, 3), dtype="float32")


@op(
    x=NONDIFF,
    samples=_zeros_samples,
    kernel=lambda xp, x, shape, dtype: xp.zeros(shape, dtype=dtype, device=device_of(x)),
    reason="no input's value is used",
    batch=batching.beside,
)
def zeros_beside(x: ArrayLike, /, shape: tuple[int, ...], *, dtype: DTypeLike) -> Tensor:
    """Zeros on the backend and device of `x`; rules make zeros with it."""


def _band_samples(draw: Draw) -> Iterator[Sample]:
    for first, last in ((None, 0), (None, -1), (1, None), (0, 0), (-1, 1), (None, None), (2, 0)):
        yield Sample(draw(3, 4), first=first, last=last)
    yield Sample(draw(2, 3, 2), first=-1, last=-1)
    yield Sample(draw(0, 2), last=0)
    yield Refused(ValueError, "2 dimensions", draw(3), last=0)


def _band_kernel(xp: Namespace, x: Array, *, first: int | None = None, last: int | None = None) -> Array:
    if len(x.shape) < 2:
        raise ValueError(f"band: x must have at least 2 dimensions, got shape {tuple(x.shape)}")
    if first is not None and first == last:
        rows, columns = xp.arange_beside(x, x.shape[-2])[:, None], xp.arange_beside(x, x.shape[-1])
        return xp.where(columns - rows == first, x, 0)
    x = x if last is None else xp.tril(x, k=last)
    return x if first is None else xp.triu(x, k=first)


# To users, `tril` is a `where`: it hides values, and their derivatives, whatever these are. So a tape that has recorded
# one looks for NaN behind every rule, which takes XLA longer to compile than the rules. The triangles that rules take
# hide nothing but what elementwise functions have made of zeros, such as `sqrt` above the diagonal of a factor.


@linear(
    x=transpose(lambda xp, g, first, last: xp.band(g, first=first, last=last)),
    samples=with_complex(_band_samples),
    kernel=_band_kernel,
    masks="elements",
    batch=batching.stacks(2),
    keeps_integers=True,
)
def band(x: ArrayLike, /, *, first: int | None = None, last: int | None = None) -> Tensor:
    """The diagonals `first` to `last` of each matrix, zeros elsewhere; rules take triangles and diagonals with it.

    Diagonal k has the elements whose column is their row plus k. None stands for as many as there are.
    """


def device_of(x: Raw) -> RawDevice:
    """The device of a raw array; None for scalars, which have none."""
    return getattr(x, "device", None)
