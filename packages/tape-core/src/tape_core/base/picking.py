"""Picking elements of tuples by one call of C, since a program that trains may have hundreds of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any


def picking(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that returns, as a tuple, what a tuple has in these places.

    >>> picking([2, 0])(("a", "b", "c"))
    ('c', 'a')
    """
    if len(places) > 1:
        return itemgetter(*places)
    # Of one place, `itemgetter` returns no tuple; a slice of a tuple is one.
    return itemgetter(slice(places[0], places[0] + 1 or None) if places else slice(0))
