"""Kernels that update elements at a key (scatter, setitem, add_rows and others), and top_k."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tape_core.backends import check_top_k
from tape_core.typing import IndexKey, Raw

from tape_numpy.thresholds import PARTITION_MIN_LENGTH, PARTITION_MIN_RATIO, SCATTER_BLOCK


def scatter(values: Raw, key: IndexKey, shape: tuple[int, ...]) -> Raw:
    out = np.zeros(shape, dtype=values.dtype)
    # With `out[key] += values` NumPy would add only the last of several values for one element.
    if _may_repeat(key):
        _ufunc_at(np.add, out, values, key)
    else:
        out[key] = values
    return out


def joined(axis: int, *parts: Raw) -> Raw:
    """Concatenate arrays, in place of a sum of arrays that are zero elsewhere; see the pass merge_scatters."""
    out = np.concatenate(parts, axis)
    out += 0  # -0 + 0 is 0, as in the sum
    return out


def placed(shape: tuple[int, ...], keys: list[IndexKey], *parts: Raw) -> Raw:
    """Add arrays to zeros, each at its key; see the pass merge_scatters."""
    out = np.zeros(shape, parts[0].dtype)
    for key, part in zip(keys, parts, strict=True):
        out[key] += part
    return out


def setitem(x: Raw, values: Raw, key: IndexKey) -> Raw:
    out = np.array(x)
    out[key] = values
    # Tensors hold results of shape () as NumPy scalars; `[()]` makes one of an array of shape ().
    return out if out.shape else out[()]


_WARN_OF_NAN_IN_AT = (np.minimum, np.maximum)  # in their method `at`, though not when they are called


def updater(ufunc: np.ufunc) -> Callable[..., Raw]:
    """Return the kernel that combines elements with values by `ufunc`: scatter_add for np.add, and so on."""

    def kernel(x: Raw, values: Raw, key: IndexKey) -> Raw:
        out = np.array(x)
        if out.dtype.kind in "iu":  # else uint64 and int64 would meet in float64
            values = np.asarray(values).astype(out.dtype)
        if not _may_repeat(key):
            out[key] = ufunc(out[key], values)
        elif ufunc in _WARN_OF_NAN_IN_AT:
            with np.errstate(invalid="ignore"):
                _ufunc_at(ufunc, out, values, key)
        else:
            _ufunc_at(ufunc, out, values, key)
        return out if out.shape else out[()]

    return kernel


def add_rows(x: Raw, indices: Raw, rows: Raw, *, in_place: bool = False) -> Raw:
    out = x if in_place else x.copy()
    _ufunc_at(np.add, out, rows, indices)
    return out


def _may_repeat(key: IndexKey) -> bool:
    """Return whether a key may name an element more than once: only integer arrays can."""
    # A mask is an array, too, but has one place for each element.
    parts = key if isinstance(key, tuple) else (key,)
    return any([isinstance(part, np.ndarray) and part.dtype != bool for part in parts])


def _ufunc_at(ufunc: np.ufunc, out: Raw, values: Raw, key: IndexKey) -> None:
    """Do `ufunc.at(out, key, values)`, several times faster for rows of contiguous arrays.

    NumPy has a fast path for one dimension. So an array whose leading axes the key indexes by integers is updated as a
    flat array, with the flat index of each element.
    """
    if out.ndim < 2 or not out.flags.c_contiguous:
        ufunc.at(out, key, values)
        return
    lead = 1  # the number of axes that the key indexes
    if isinstance(key, np.ndarray):
        numbers: Raw = key
    elif len(key) == out.ndim and all([isinstance(part, np.ndarray) and part.dtype != bool for part in key]):
        # np.ravel_multi_index refuses negative indices, so they are counted from the front before.
        numbers, lead = np.ravel_multi_index(_nonnegative(out, key), out.shape), out.ndim
    else:
        ufunc.at(out, key, values)
        return
    if lead == 1 and not _in_bounds(numbers, len(out)):
        out[key]  # raises an IndexError in terms of the array's own shape
    # A row of `width` elements becomes as many flat indices. They are made block by block: all of them at once, int64
    # each, would take more memory than the values.
    width = math.prod(out.shape[lead:])
    values = np.broadcast_to(values, (*numbers.shape, *out.shape[lead:])).reshape(numbers.size, width)
    numbers, flat, columns = numbers.reshape(-1, 1), out.reshape(-1), np.arange(width)
    step = max(1, SCATTER_BLOCK // max(1, width))
    for start in range(0, len(numbers), step):
        block = numbers[start : start + step].astype(np.int64, copy=False) * width + columns
        ufunc.at(flat, block.reshape(-1), values[start : start + step].reshape(-1))


def _in_bounds(numbers: Raw, n: int) -> bool:
    """Return whether all are integers from -n to n - 1."""
    if numbers.dtype.kind not in "iu":
        return False
    return not numbers.size or bool(-n <= numbers.min() and numbers.max() < n)


def _nonnegative(out: Raw, key: tuple[Raw, ...]) -> tuple[Raw, ...]:
    """Convert negative indices, which count from the end, after a check of the bounds."""
    out[key]  # raises an IndexError if one is out of bounds
    wide = [part.astype(np.int64, copy=False) for part in key]  # int8 has no 300
    return tuple([np.where(part < 0, part + n, part) for part, n in zip(wide, out.shape, strict=True)])


def top_k(x: Raw, k: int, *, axis: int = -1, largest: bool = True) -> tuple[Raw, Raw]:
    k = check_top_k(x, k, axis, x.dtype.kind == "c")
    lines = np.moveaxis(x, axis, -1)
    n = lines.shape[-1]
    indices = None
    if n > PARTITION_MIN_LENGTH and 0 < PARTITION_MIN_RATIO * k < n:
        indices = _partition_top_k(lines, k, largest)
    if indices is None:
        order = _order(lines, largest)
        indices = order[..., :k]
    indices = np.moveaxis(indices, -1, axis)
    return np.take_along_axis(x, indices, axis=axis), indices


def _order(lines: Raw, largest: bool) -> Raw:
    """Return the stable order of each line, the largest or the smallest element first."""
    if not largest:
        return np.argsort(lines, axis=-1, stable=True)
    # NumPy sorts ascending only. Reversed before and after, equal elements keep their order.
    return lines.shape[-1] - 1 - np.argsort(lines[..., ::-1], axis=-1, stable=True)[..., ::-1]


def _partition_top_k(lines: Raw, k: int, largest: bool) -> Raw | None:
    """Return the indices of the `k` first elements of each line, in order, without sorting the whole line.

    None if there are NaN: they equal nothing, so that the counts below do not add up.
    """
    n = lines.shape[-1]
    at = n - k if largest else k - 1  # the place of the k-th element in ascending order
    # Not np.argpartition: of several elements that equal the k-th it takes any, and the op promises the first.
    bound = np.partition(lines, at, axis=-1)[..., at : at + 1]
    beyond = lines > bound if largest else lines < bound
    level = lines == bound
    # All elements beyond the k-th, and as many of its equals, from the front, as there is room for.
    room = k - np.count_nonzero(beyond, axis=-1, keepdims=True)
    taken = beyond | (level & (np.cumsum(level, axis=-1) <= room))
    if np.count_nonzero(taken) != k * math.prod(lines.shape[:-1]) or (lines != lines).any():
        return None
    places = np.nonzero(taken)[-1].reshape(*lines.shape[:-1], k)
    order = _order(np.take_along_axis(lines, places, axis=-1), largest)
    return np.take_along_axis(places, order, axis=-1)
