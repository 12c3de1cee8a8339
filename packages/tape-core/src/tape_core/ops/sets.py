"""Set functions of the Array API standard: nothing flows through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tape_core.op import NONDIFF, op
from tape_core.ops.keys import is_array
from tape_core.samples import Draw, Sample, Samples
from tape_core.tensor import ArrayLike, Tensor

A_SET = "which elements are equal changes with the values; index x with what unique_all says for a gradient"


class UniqueAllResult(NamedTuple):
    """What :func:`unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """What :func:`unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """What :func:`unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


def _seen(observed: Callable[..., Any]) -> Samples:
    """Samples of which is looked at what does not hang on the order of the values: the standard leaves it open."""

    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(draw.rng.integers(0, 3, (5,))).observe(observed)
        yield Sample(draw(2, 3)).observe(observed)
        yield Sample(draw(0)).observe(observed)

    return samples


def _see_inverse(xp: Any, values: Any, inverse: Any) -> Any:
    return xp.sort(values), xp.take(values, xp.reshape(inverse, (-1,)))


def _see_counts(xp: Any, values: Any, counts: Any) -> Any:
    return xp.sort(values), xp.take(counts, xp.argsort(values))


def _see_all(xp: Any, values: Any, indices: Any, inverse: Any, counts: Any) -> Any:
    return *_see_inverse(xp, values, inverse), *_see_counts(xp, indices, counts), *_see_counts(xp, values, counts)


@op(x=NONDIFF, samples=_seen(_see_all), reason=A_SET, result=UniqueAllResult)
def unique_all(x: ArrayLike, /) -> UniqueAllResult:
    """The different elements of `x`, where each is first, which of them each element is, and how often each is there.

    >>> import tape_core as tc
    >>> x = tc.asarray([3.0, 1.0, 3.0])
    >>> values, indices, inverse, counts = tc.unique_all(x)
    >>> values.tolist(), indices.tolist(), inverse.tolist(), counts.tolist()
    ([1.0, 3.0], [1, 0], [1, 0, 1], [1, 2])

    Nothing flows through it. What does is `tc.take(x, indices)`.
    """


@op(x=NONDIFF, samples=_seen(_see_counts), reason=A_SET, result=UniqueCountsResult)
def unique_counts(x: ArrayLike, /) -> UniqueCountsResult:
    """The different elements of `x`, and how often each is there."""


@op(x=NONDIFF, samples=_seen(_see_inverse), reason=A_SET, result=UniqueInverseResult)
def unique_inverse(x: ArrayLike, /) -> UniqueInverseResult:
    """The different elements of `x`, and which of them each element is."""


@op(x=NONDIFF, samples=_seen(lambda xp, values: xp.sort(values)), reason=A_SET)
def unique_values(x: ArrayLike, /) -> Tensor:
    """The different elements of `x`, in no order."""


def _isin_samples(draw: Draw) -> Iterator[Sample]:
    integers = draw.rng.integers
    yield Sample(integers(0, 9, (2, 3)), integers(0, 9, (4,)))
    yield Sample(integers(0, 9, ()), integers(0, 9, (2, 2)), invert=True)
    yield Sample(integers(0, 3, (4,)), 1)
    yield Sample(1, integers(0, 3, (4,)))
    yield Sample(integers(0, 3, (4,)), integers(0, 3, (0,)))


def _isin_kernel(xp: Any, x1: Any, x2: Any, *, invert: bool = False) -> Any:
    if not is_array(x1) or not is_array(x2):
        found = xp.any(x1 == x2) if is_array(x2) else x1 == x2
    elif 0 in x2.shape:
        found = xp.zeros_beside(x1, tuple(x1.shape), dtype=xp.bool)
    else:
        dtype = xp.result_type(x1, x2)
        x1, x2 = xp.astype(x1, dtype), xp.sort(xp.astype(xp.reshape(x2, (-1,)), dtype))
        at = xp.reshape(xp.searchsorted(x2, xp.reshape(x1, (-1,))), tuple(x1.shape))
        last = x2.shape[0] - 1
        nearest = xp.take(x2, xp.reshape(xp.where(at > last, last, at), (-1,)))
        found = xp.reshape(nearest, tuple(x1.shape)) == x1
    return xp.logical_not(found) if invert else found


@op(
    x1=NONDIFF,
    x2=NONDIFF,
    kernel=_isin_kernel,
    samples=_isin_samples,
    reason="the result is a truth value",
)
def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: bool = False) -> Tensor:
    """Whether each element of `x1` equals an element of `x2`; with `invert`, whether it equals none.

    >>> import tape_core as tc
    >>> tc.isin(tc.asarray([1, 2, 3]), tc.asarray([3, 1])).tolist()
    [True, False, True]

    One of them may be a Python scalar. NaN equals nothing.
    """
