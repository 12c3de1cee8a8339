"""Limits on the sizes of models that are made from a description, which may come from anywhere.

A small file can describe an enormous model. So while one is made, sizes are checked before memory is taken for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

MAX_CONFIG_BYTES = 16 << 20
"""The greatest length of the text of a description, in bytes. A layer takes a few hundred."""

MAX_CONFIG_DEPTH = 200
"""The greatest depth of nesting of its lists and dictionaries, in levels; far from Python's recursion limit."""

MAX_VALUE_ELEMENTS = 1 << 28
"""The greatest size of one value in the model, in elements: 1 GiB of float32. Checked before the layer computes it."""

MAX_WEIGHT_ELEMENTS = 1 << 30
"""The greatest total size of the weights, in elements, where no file holds them: 4 GiB of float32."""


class _Budget:
    """The number of elements that weights may still take."""

    def __init__(self, left: int) -> None:
        self.left = left


_BUDGET: ContextVar[_Budget | None] = ContextVar("tape_tf.keras.limits", default=None)


@contextmanager
def enforce(weights: int = MAX_WEIGHT_ELEMENTS) -> Iterator[None]:
    """A context in which a model is made from a description, with at most `weights` elements in its weights."""
    token = _BUDGET.set(_Budget(weights))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def active() -> bool:
    """True while a model is made from a description, so that sizes are checked."""
    return _BUDGET.get() is not None


def reserve(shape: Sequence[int]) -> None:
    """Count a weight against the limit, before its memory is allocated.

    Raises:
        ValueError: the weights exceed their limit.
    """
    if (budget := _BUDGET.get()) is None:
        return
    budget.left -= math.prod(map(int, shape))
    if budget.left < 0:
        raise ValueError(
            f"a weight of shape {tuple(shape)} exceeds the limit on the size of all weights; pass "
            "safe_mode=False to load_model if a file may be this large"
        )


def check_size(shape: Sequence[int]) -> None:
    """Check the size of a value that is computed while shapes are inferred.

    Raises:
        ValueError: the value exceeds the limit.
    """
    # A length of 0 counts as 1: intermediate values may be made along the other axes before it applies.
    if active() and math.prod([max(int(n), 1) for n in shape]) > MAX_VALUE_ELEMENTS:
        raise ValueError(
            f"a value of shape {tuple(shape)} has more than {MAX_VALUE_ELEMENTS} numbers; pass safe_mode=False "
            "to load_model if a file may be this large"
        )
