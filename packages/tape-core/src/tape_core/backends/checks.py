"""Checks of arguments that kernels share: a backend with a kernel of its own refuses what the default kernel does."""

from __future__ import annotations

import operator

from tape_core.backends.axes import normal_axis
from tape_core.backends.windows import Layout, spatial_axes
from tape_core.typing import Namespace, Raw


def check_labels(logits: Raw, labels: Raw, axis: int, integral: bool) -> None:
    """Raise for labels that do not fit their logits, in the terms of `cross_entropy`."""
    shape = list(logits.shape)
    shape.pop(normal_axis(axis, len(shape)))
    if tuple(labels.shape) != tuple(shape):
        raise ValueError(
            f"labels must have the shape of logits without axis {axis}, {tuple(shape)}, not {tuple(labels.shape)}"
        )
    if not integral:
        raise TypeError(f"labels must be integers (class numbers), not {labels.dtype}")


def label_error(least: object, most: object, classes: int) -> ValueError:
    """Return the error for labels of which one is no class."""
    return ValueError(f"labels must be in [0, {classes}), got {least} to {most}")


def check_top_k(x: Raw, k: object, axis: int, is_complex: bool) -> int:
    """Return `k` as an int; raise unless `x` has so many elements along `axis`."""
    if not hasattr(k, "__index__"):
        raise TypeError(f"k must be an integer, got {k!r}")
    if not 0 <= operator.index(k) <= x.shape[normal_axis(axis, len(x.shape))]:
        raise ValueError(f"k must be between 0 and the length of axis {axis}, which is {x.shape[axis]}, got {k}")
    if is_complex:
        raise TypeError("complex numbers have no order")
    return operator.index(k)


def check_convolve(a: Raw, v: Raw, mode: str) -> None:
    """Raise for arguments that `convolve` does not take."""
    for name, x in (("a", a), ("v", v)):
        shape = tuple(getattr(x, "shape", ()))
        if len(shape) != 1 or shape[0] == 0:
            raise ValueError(f"{name} must be 1-d and not empty, got shape {shape}")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be 'full', 'same' or 'valid', got {mode!r}")


def check_inexact(xp: Namespace, name: str, x: Raw, *, real: bool = False) -> None:
    """Raise for an array that is not of a floating dtype, or not of a real one."""
    kinds = ("real floating",) if real else ("real floating", "complex floating")
    if not xp.isdtype(x.dtype, kinds):
        kind = "real floating" if real else "floating"
        raise TypeError(f"{name} must be of a {kind} dtype, not {x.dtype}; convert it with tape_core.astype")


def check_csr(xp: Namespace, data: Raw, indices: Raw, indptr: Raw, columns: int) -> None:
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
    # Libraries read these without a check: an index out of range would read, or write, memory of others.
    if n and (int(xp.min(indices)) < 0 or int(xp.max(indices)) >= columns):
        raise IndexError(f"indices must be from 0 to {columns - 1}, the columns of the sparse matrix")


def check_conv(x: Raw, w: Raw, groups: object, layout: Layout, *, transposed: bool = False) -> None:
    """Raise where the shapes of `x` and `w` do not go together."""
    spatial_axes(x, layout)
    if len(w.shape) != len(x.shape):
        raise ValueError(f"w must have as many dimensions as x, {len(x.shape)}, got shape {tuple(w.shape)}")
    last = layout == "channels_last"
    channels = x.shape[-1] if last else x.shape[1]
    each, out = (w.shape[-2], w.shape[-1]) if last else (w.shape[1], w.shape[0])
    if not isinstance(groups, int) or groups < 1 or out % groups:
        raise ValueError(f"groups must be a positive integer that divides the {out} channels of w, got {groups!r}")
    if channels != (out if transposed else each * groups):
        order = "(*kernel, in / groups, out)" if last else "(out, in / groups, *kernel)"
        raise ValueError(
            f"x has {channels} channels and w, of shape {order} = {tuple(w.shape)}, is for "
            f"{out if transposed else each * groups}, with groups={groups}"
        )
