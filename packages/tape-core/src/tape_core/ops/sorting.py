"""Sorting functions of the Array API standard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.op import NONDIFF, op, vjp
from tape_core.samples import Draw, Refused, Sample
from tape_core.tensor import ArrayLike, Tensor

A_PLACE = "the result is a place or a number of elements, constant almost everywhere"


def _samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.distinct(4))
    yield Sample(draw.distinct(2, 3), axis=0)
    yield Sample(draw.distinct(2, 3, 2), axis=1, descending=True)
    yield Sample(draw.distinct(3, 2), descending=True, stable=False)
    yield Sample(draw(0, 2), axis=0)
    yield Refused(ValueError, "axis", draw(3), axis=1)


def _sort_vjp(xp: Any, g: Any, x: Any, axis: int, descending: bool, stable: bool) -> Any:
    order = xp.argsort(x, axis=axis, descending=descending, stable=stable)
    return xp.take_along_axis(g, xp.argsort(order, axis=axis), axis=axis)


@op(x=vjp(_sort_vjp), samples=_samples)
def sort(x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements along `axis` in order. Equal elements keep theirs, and their gradients, if `stable`."""


@op(x=NONDIFF, samples=_samples, reason=A_PLACE)
def argsort(x: ArrayLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places along `axis` of the elements in order."""
