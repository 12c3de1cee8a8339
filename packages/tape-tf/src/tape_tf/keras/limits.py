"""How large what is made from a description of a model may become, while it is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

CONFIG_BYTES = 16 << 20
"""How long the text of a description may be."""

DEPTH = 200
"""How deep lists and dictionaries may be nested in it."""

NUMBERS = 1 << 28
"""How many numbers may be in what a layer makes while shapes are found; it is asked before it makes that."""

WEIGHTS = 1 << 30
"""How many numbers may be in the weights, where there is no file that has them."""


class _Weights:
    def __init__(self, left: int) -> None:
        self.left = left


_LEFT: ContextVar[_Weights | None] = ContextVar("tape_tf.keras.limits", default=None)


@contextmanager
def limited(weights: int = WEIGHTS) -> Iterator[None]:
    """A context in which a model is made from a description, whose weights have no more than so many numbers."""
    token = _LEFT.set(_Weights(weights))
    try:
        yield
    finally:
        _LEFT.reset(token)


def active() -> bool:
    """Whether a model is made from a description, so that sizes are checked."""
    return _LEFT.get() is not None


def take(shape: Sequence[int]) -> None:
    """Count a weight, before there is memory for it.

    Raises:
        ValueError: the weights would become larger than they may.
    """
    if (left := _LEFT.get()) is None:
        return
    left.left -= math.prod(map(int, shape))
    if left.left < 0:
        raise ValueError(
            f"a weight of shape {tuple(shape)} is more than there are numbers for; load_model takes safe_mode=False "
            "where a file may be as large as it says"
        )


def check(shape: Sequence[int]) -> None:
    """Check the size of a value that is made while shapes are found.

    Raises:
        ValueError: it is larger than it may be.
    """
    # A length of 0 may come last, after what is made along the other axes.
    if active() and math.prod([max(int(n), 1) for n in shape]) > NUMBERS:
        raise ValueError(
            f"a value of shape {tuple(shape)} has more than {NUMBERS} numbers; load_model takes safe_mode=False where "
            "a file may be as large as it says"
        )
