"""Searching and utility functions of the Array API standard: nothing flows through them, but through `diff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from tape_core.engine.op import NONDIFF, op
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor, read_array
from tape_core.modes import batching
from tape_core.modes.batching import Call
from tape_core.ops.index.indexing import take
from tape_core.ops.index.keys import is_array
from tape_core.ops.manipulation import concat
from tape_core.ops.sorting import A_PLACE, sort
from tape_core.ops.statistical import reductions
from tape_core.typing import Array, ArrayLike, Axis, BatchInput, DTypeLike, Namespace

A_TRUTH = "the result is a truth value"


def _one_axis(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.distinct(2, 3))
    yield Sample(draw.distinct(2, 3), axis=1)
    yield Sample(draw.distinct(2, 3), axis=0, keepdims=True)


@op(x=NONDIFF, samples=_one_axis, reason=A_PLACE, batch=batching.along_one)
def argmax(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the maximum is, along `axis` or in the flattened array."""


@op(x=NONDIFF, samples=_one_axis, reason=A_PLACE, batch=batching.along_one)
def argmin(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the minimum is, along `axis` or in the flattened array."""


@op(x=NONDIFF, samples=reductions(), reason=A_PLACE, batch=batching.along)
def count_nonzero(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0."""


def _nonzero_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.rng.integers(0, 2, (5,)))
    yield Sample(draw.rng.integers(0, 2, (2, 3)))
    yield Refused(ValueError, "nonzero", draw())


@op(x=NONDIFF, samples=_nonzero_samples, reason=A_PLACE)
def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Where the elements are that are not 0: for each dimension their indices."""


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
    if batching.is_batched(x1):
        return batching.one_by_one(call, x1, x2)
    return call(x1.value, x2.value)


@op(
    x1=NONDIFF,
    x2=NONDIFF,
    kernel=_searchsorted_kernel,
    samples=_searchsorted_samples,
    reason=A_PLACE,
    batch=_search_batch,
)
def search_in_order(x1: ArrayLike, x2: ArrayLike, /, *, side: Literal["left", "right"] = "left") -> Tensor:
    """:func:`searchsorted` in a vector that is in order."""


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: Literal["left", "right"] = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """Where each element of `x2` would have to be inserted into the ordered vector `x1` to keep it in order.

    Args:
        x2: an array or a Python scalar.
        side: before or after elements that are equal.
        sorter: what brings `x1` into order, as from :func:`argsort`; by default it is in order.
    """
    return search_in_order(x1 if sorter is None else take(x1, sorter), x2, side=side)


@op(x=NONDIFF, samples=reductions(), reason=A_TRUTH, batch=batching.along)
def all(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true (not 0)."""


@op(x=NONDIFF, samples=reductions(), reason=A_TRUTH, batch=batching.along)
def any(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true (not 0)."""


def diff(
    x: ArrayLike, /, *, axis: int = -1, n: int = 1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Tensor:
    """The differences of neighbours along `axis`, taken `n` times, of the array with others before and after it.

    Raises:
        ValueError: `n` is negative.
        IndexError: x has no such axis.
    """
    x = read_array(x, "diff: x")
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"diff: x of shape {x.shape} has no axis {axis}")
    if n < 0:
        raise ValueError(f"diff: n must not be negative, got {n}")
    parts = [part for part in (prepend, x, append) if part is not None]
    if n and len(parts) > 1:
        x = concat(parts, axis=axis)
    before = (slice(None),) * (axis % x.ndim)
    result: Tensor = x
    for _ in range(n):
        result = result[(*before, slice(1, None), ...)] - result[(*before, slice(None, -1), ...)]
    return result


def _beside(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2), 3)


@op(
    x=NONDIFF,
    samples=_beside,
    kernel=lambda xp, x, n: xp.arange(n, device=place_of(x)),
    reason="no input's value is used",
    batch=batching.beside,
)
def arange_beside(x: ArrayLike, /, n: int) -> Tensor:
    """0, 1, ... n - 1 on the backend and device of `x`: what a rule makes indices with."""


def _zeros(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2), (2, 3), dtype="float32")


@op(
    x=NONDIFF,
    samples=_zeros,
    kernel=lambda xp, x, shape, dtype: xp.zeros(shape, dtype=dtype, device=place_of(x)),
    reason="no input's value is used",
    batch=batching.beside,
)
def zeros_beside(x: ArrayLike, /, shape: tuple[int, ...], *, dtype: DTypeLike) -> Tensor:
    """Zeros on the backend and device of `x`: what a rule makes zeros with."""


def place_of(x: Any) -> Any:
    """A raw array's device; None for scalars that have none."""
    return getattr(x, "device", None)
