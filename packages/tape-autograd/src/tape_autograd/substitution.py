"""Sequences with other values at some places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def subvals(x: Sequence[Any], ivs: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """Return a sequence as a tuple with other values at these places.

    >>> subvals((1, 2, 3), [(0, 5), (2, 6)])
    (5, 2, 6)
    """
    found = list(x)
    for i, v in ivs:
        found[i] = v
    return tuple(found)


def subval(x: Sequence[Any], i: int, v: object) -> tuple[Any, ...]:
    """Return a sequence as a tuple with another value at one place."""
    return subvals(x, [(i, v)])
