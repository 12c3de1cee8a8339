"""Updates of elements, and the largest ones, in NumPy's own ways."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tape_core.backends import check_top_k

_BLOCK = 1 << 15  # elements whose numbers are made at a time


def scatter(values: Any, key: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, dtype=values.dtype)
    if _repeats(key):
        _at(np.add, out, values, key)
    else:
        out[key] = values
    return out


def joined(axis: int, *parts: Any) -> Any:
    """Parts one after the other, in compiled functions; -0 becomes 0, as in a sum with zeros."""
    out = np.concatenate(parts, axis)
    out += 0
    return out


def placed(shape: tuple[int, ...], keys: list[Any], *parts: Any) -> Any:
    """Zeros to which each part is added where its key says."""
    out = np.zeros(shape, parts[0].dtype)
    for key, part in zip(keys, parts, strict=True):
        out[key] += part
    return out


def setitem(x: Any, values: Any, key: Any) -> Any:
    out = np.array(x)
    out[key] = values
    return out if out.shape else out[()]


_QUIET = (np.minimum, np.maximum)  # they warn of NaN in `at`, though nowhere else


def updater(ufunc: Any) -> Callable[..., Any]:
    """The kernel of the op that combines by `ufunc`."""

    def kernel(x: Any, values: Any, key: Any) -> Any:
        out = np.array(x)
        if not _repeats(key):
            out[key] = ufunc(out[key], values)
        elif ufunc in _QUIET:
            with np.errstate(invalid="ignore"):
                _at(ufunc, out, values, key)
        else:
            _at(ufunc, out, values, key)
        return out if out.shape else out[()]

    return kernel


def add_rows(x: Any, indices: Any, rows: Any, *, in_place: bool = False) -> Any:
    out = x if in_place else x.copy()
    _at(np.add, out, rows, indices)
    return out


def _repeats(key: Any) -> bool:
    """Whether a key may name an element more than once."""
    parts = key if isinstance(key, tuple) else (key,)
    return any([isinstance(part, np.ndarray) and part.dtype != bool for part in parts])


def _at(ufunc: Any, out: Any, values: Any, key: Any) -> None:
    """`ufunc.at`, which is fast in one dimension: rows are updated as elements of the flat array."""
    if out.ndim < 2 or not out.flags.c_contiguous:
        ufunc.at(out, key, values)
        return
    lead = 1
    if isinstance(key, np.ndarray):
        numbers = key
    elif len(key) == out.ndim and all([isinstance(part, np.ndarray) and part.dtype != bool for part in key]):
        numbers, lead = np.ravel_multi_index(_wrapped(out, key), out.shape), out.ndim
    else:
        ufunc.at(out, key, values)
        return
    if lead == 1 and not _in_bounds(numbers, len(out)):
        out[key]  # whose error speaks of the array's dimensions
    width = math.prod(out.shape[lead:])
    values = np.broadcast_to(values, (*numbers.shape, *out.shape[lead:])).reshape(numbers.size, width)
    numbers, flat, columns = numbers.reshape(-1, 1), out.reshape(-1), np.arange(width)
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, len(numbers), step):
        block = numbers[start : start + step].astype(np.int64, copy=False) * width + columns
        ufunc.at(flat, block.reshape(-1), values[start : start + step].reshape(-1))


def _in_bounds(numbers: Any, n: int) -> bool:
    """Whether these are integers, of which each is the index of one of so many elements."""
    if numbers.dtype.kind not in "iu":
        return False
    return not numbers.size or bool(-n <= numbers.min() and numbers.max() < n)


def _wrapped(out: Any, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Indices that count from the start."""
    out[key]  # they are within bounds
    return tuple([np.where(part < 0, part + n, part) for part, n in zip(key, out.shape, strict=True)])


_FEW = 64  # along an axis so short it is no use to part before sorting


def top_k(x: Any, k: int, *, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    k = check_top_k(x, k, axis, x.dtype.kind == "c")
    lines = np.moveaxis(x, axis, -1)
    n = lines.shape[-1]
    indices = None
    if n > _FEW and 0 < 4 * k < n:
        indices = _chosen(lines, k, largest)
    if indices is None:
        order = _order(lines, largest)
        indices = order[..., :k]
    indices = np.moveaxis(indices, -1, axis)
    return np.take_along_axis(x, indices, axis=axis), indices


def _order(lines: Any, largest: bool) -> Any:
    if not largest:
        return np.argsort(lines, axis=-1, stable=True)
    # Backwards twice, so that equal elements keep their order.
    return lines.shape[-1] - 1 - np.argsort(lines[..., ::-1], axis=-1, stable=True)[..., ::-1]


def _chosen(lines: Any, k: int, largest: bool) -> Any:
    """The places of the `k` foremost elements of each line in order; None if there are NaN, which nothing equals."""
    n = lines.shape[-1]
    at = n - k if largest else k - 1
    bound = np.partition(lines, at, axis=-1)[..., at : at + 1]
    beyond = lines > bound if largest else lines < bound
    level = lines == bound
    # Of those that equal the last one the first are taken.
    room = k - np.count_nonzero(beyond, axis=-1, keepdims=True)
    taken = beyond | (level & (np.cumsum(level, axis=-1) <= room))
    if np.count_nonzero(taken) != k * math.prod(lines.shape[:-1]) or (lines != lines).any():
        return None
    places = np.nonzero(taken)[-1].reshape(*lines.shape[:-1], k)
    order = _order(np.take_along_axis(lines, places, axis=-1), largest)
    return np.take_along_axis(places, order, axis=-1)
