"""Checks of arguments that kernels share: a backend with a kernel of its own refuses what the default kernel does."""

from __future__ import annotations

import operator
from typing import Any


def check_labels(logits: Any, labels: Any, axis: int, integral: bool) -> None:
    """Raise for labels that do not fit their logits, in the terms of `cross_entropy`."""
    shape = list(logits.shape)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis} is out of bounds for logits of shape {tuple(shape)}")
    shape.pop(axis)
    if tuple(labels.shape) != tuple(shape):
        raise ValueError(
            f"labels must have the shape of logits without axis {axis}, {tuple(shape)}, not {tuple(labels.shape)}"
        )
    if not integral:
        raise TypeError(f"labels must be integers (class numbers), not {labels.dtype}")


def check_top_k(x: Any, k: Any, axis: int, is_complex: bool) -> int:
    """`k` as an int, if `x` has so many elements along `axis`."""
    if not hasattr(k, "__index__"):
        raise TypeError(f"k must be an integer, got {k!r}")
    if not -len(x.shape) <= axis < len(x.shape):
        raise IndexError(f"x of shape {tuple(x.shape)} has no axis {axis}")
    if not 0 <= operator.index(k) <= x.shape[axis]:
        raise ValueError(f"k must be between 0 and the length of axis {axis}, which is {x.shape[axis]}, got {k}")
    if is_complex:
        raise TypeError("complex numbers have no order")
    return operator.index(k)
