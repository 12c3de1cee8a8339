"""Searching and utility functions of the Array API standard: nothing flows through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.op import NONDIFF, op
from tape_core.ops.statistical import Axis, reductions
from tape_core.samples import Draw, Sample
from tape_core.tensor import ArrayLike, Tensor

A_PLACE = "the result is a place or a number of elements, constant almost everywhere"
A_TRUTH = "the result is a truth value"


def _one_axis(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.distinct(2, 3))
    yield Sample(draw.distinct(2, 3), axis=1)
    yield Sample(draw.distinct(2, 3), axis=0, keepdims=True)


@op(x=NONDIFF, samples=_one_axis, reason=A_PLACE)
def argmax(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the maximum is, along `axis` or in the flattened array."""


@op(x=NONDIFF, samples=_one_axis, reason=A_PLACE)
def argmin(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the minimum is, along `axis` or in the flattened array."""


@op(x=NONDIFF, samples=reductions(), reason=A_PLACE)
def count_nonzero(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0."""


@op(x=NONDIFF, samples=reductions(), reason=A_TRUTH)
def all(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true (not 0)."""


@op(x=NONDIFF, samples=reductions(), reason=A_TRUTH)
def any(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true (not 0)."""


def _beside(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2), 3)


@op(
    x=NONDIFF,
    samples=_beside,
    kernel=lambda xp, x, n: xp.arange(n, device=place_of(x)),
    reason="no input's value is used",
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
)
def zeros_beside(x: ArrayLike, /, shape: tuple[int, ...], *, dtype: Any) -> Tensor:
    """Zeros on the backend and device of `x`: what a rule makes zeros with."""


def place_of(x: Any) -> Any:
    """A raw array's device; None for scalars that have none."""
    return getattr(x, "device", None)
