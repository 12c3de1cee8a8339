"""Set functions of the Array API standard: nothing flows through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tape_core.op import NONDIFF, op
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
