"""Set functions of the Array API standard: nothing flows through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tape_core.op import NONDIFF, op
from tape_core.samples import Draw, Sample
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


def _samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.rng.integers(0, 3, (5,)))
    yield Sample(draw(2, 3))
    yield Sample(draw(0))


@op(x=NONDIFF, samples=_samples, reason=A_SET, result=UniqueAllResult)
def unique_all(x: ArrayLike, /) -> UniqueAllResult:
    """The different elements of `x`, where each is first, which of them each element is, and how often each is there.

    >>> import tape_core as tc
    >>> x = tc.asarray([3.0, 1.0, 3.0])
    >>> values, indices, inverse, counts = tc.unique_all(x)
    >>> values.tolist(), indices.tolist(), inverse.tolist(), counts.tolist()
    ([1.0, 3.0], [1, 0], [1, 0, 1], [1, 2])

    Nothing flows through it. What does is `tc.take(x, indices)`.
    """


@op(x=NONDIFF, samples=_samples, reason=A_SET, result=UniqueCountsResult)
def unique_counts(x: ArrayLike, /) -> UniqueCountsResult:
    """The different elements of `x`, and how often each is there."""


@op(x=NONDIFF, samples=_samples, reason=A_SET, result=UniqueInverseResult)
def unique_inverse(x: ArrayLike, /) -> UniqueInverseResult:
    """The different elements of `x`, and which of them each element is."""


@op(x=NONDIFF, samples=_samples, reason=A_SET)
def unique_values(x: ArrayLike, /) -> Tensor:
    """The different elements of `x`, in no order."""
