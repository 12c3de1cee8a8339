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


def check_csr(xp: Any, data: Any, indices: Any, indptr: Any, columns: int) -> None:
    """Refuse arrays that describe no matrix of so many columns.

    Raises:
        TypeError: indices are not integers.
        ValueError: a shape is wrong, or `indptr` is no partition.
        IndexError: an element is in a column that is not there.
    """
    for name, x in (("indices", indices), ("indptr", indptr)):
        if not xp.isdtype(x.dtype, "integral"):
            raise TypeError(f"{name} must be integers, got {x.dtype}")
    n = data.shape[0] if len(data.shape) == 1 else -1
    if tuple(indices.shape) != (n,):
        raise ValueError(
            f"data and indices must have one dimension and one length, got {tuple(data.shape)} and "
            f"{tuple(indices.shape)}"
        )
    if len(indptr.shape) != 1 or indptr.shape[0] == 0 or int(indptr[0]) != 0 or int(indptr[-1]) != n:
        raise ValueError(f"indptr must begin with 0 and end with {n}, the number of elements; got {indptr}")
    if xp.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"indptr must not fall, got {indptr}")
    if n and (int(xp.min(indices)) < 0 or int(xp.max(indices)) >= columns):
        raise IndexError(f"indices must be from 0 to {columns - 1}, the columns of the sparse matrix")
