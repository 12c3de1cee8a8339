"""Checks of arguments that kernels share: a backend with a kernel of its own refuses what the default kernel does."""

from __future__ import annotations

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
