"""References of indexed updates, the largest elements and membership, by loops written from their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape_conformance.references import Array, IndexKey


def _update_by(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return an update that combines the values with the elements that a key selects, one after the other."""

    def update(x: Array, values: Array, /, key: IndexKey) -> Any:
        x = np.asarray(x)
        numbers = np.arange(x.size).reshape(x.shape)[key]  # the flat index of each element that the key selects
        values = np.broadcast_to(values, np.shape(numbers))
        out = x.copy().reshape(-1)
        # In the order of the values: where an element is named twice, `setitem` keeps the last.
        for number, value in zip(np.ravel(numbers), values.ravel(), strict=True):
            out[number] = combine(out[number], value)
        return out.reshape(x.shape)

    return update


def _scatter(values: Array, /, key: IndexKey, shape: tuple[int, ...]) -> Any:
    values = np.asarray(values)
    return _update_by(lambda a, b: a + b)(np.zeros(shape, values.dtype), values, key)


def _places(x: Array, /, key: IndexKey) -> Any:
    # Flat indices of what the key selects, over the leading axes only: trailing whole axes are left out.
    parts = list(key) if isinstance(key, tuple) else [key]
    masked = sum(np.ndim(p) - 1 for p in parts if getattr(p, "dtype", None) == np.dtype(bool))
    used = sum(p is not None and p is not ... for p in parts) + masked
    at = next((k for k, p in enumerate(parts) if p is ...), len(parts))
    whole = [*parts[:at], *[slice(None)] * (np.ndim(x) - used), *parts[at + 1 :]]
    lead = np.ndim(x)
    while whole and isinstance(whole[-1], slice) and whole[-1] == slice(None):
        whole.pop()
        lead -= 1
    shape = np.shape(x)[:lead]
    return np.arange(int(np.prod(shape))).reshape(shape)[tuple(whole)]


def _top_k(x: Array, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    lines = np.moveaxis(np.asarray(x), axis, -1)
    indices = np.empty((*lines.shape[:-1], k), dtype=np.int64)
    for at in np.ndindex(*lines.shape[:-1]):
        line = [float(v) for v in lines[at]]
        # sorted() is stable, so that of equal elements the first come first, as the op promises.
        indices[at] = sorted(range(len(line)), key=lambda i: -line[i] if largest else line[i])[:k]
    indices = np.moveaxis(indices, -1, axis)
    return np.take_along_axis(np.asarray(x), indices, axis=axis), indices


def _isin(x1: Array, x2: Array, /, *, invert: bool = False) -> Any:
    # tolist() makes new floats: `in` compares identities first, and would find a NaN that is the same object.
    members = np.ravel(x2).tolist()
    found = [(element in members) is not invert for element in np.ravel(x1).tolist()]
    return np.asarray(found, dtype=bool).reshape(np.shape(x1))


def _add_rows(x: Array, indices: Array, rows: Array, **_: Any) -> Any:
    out = np.array(x)
    for row, index in zip(rows.reshape(-1, *x.shape[1:]), indices.reshape(-1), strict=True):
        out[index] += row
    return out


REFERENCES: dict[str, Callable[..., Any]] = {
    "add_rows": _add_rows,
    "gather": lambda params, indices: params[indices],
    "getitem": lambda x, /, key: np.asarray(x)[key],
    "scatter": _scatter,
    "setitem": _update_by(lambda a, b: b),
    "scatter_add": _update_by(lambda a, b: a + b),
    "scatter_multiply": _update_by(lambda a, b: a * b),
    "scatter_min": _update_by(lambda a, b: min(a, b)),
    "scatter_max": _update_by(lambda a, b: max(a, b)),
    "places": _places,
    "top_k": _top_k,
    "isin": _isin,
    "laid_out_like": lambda x, like: x,
    "to_device": lambda x, *_: x,
}
