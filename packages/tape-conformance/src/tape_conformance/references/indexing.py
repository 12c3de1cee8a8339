"""Indexed updates, places, the largest elements and membership, by loops written from their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _updated(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """One value after the other into the element that the key picks for it."""

    def update(x: Any, values: Any, /, key: Any) -> Any:
        x = np.asarray(x)
        numbers = np.arange(x.size).reshape(x.shape)[key]
        values = np.broadcast_to(values, np.shape(numbers))
        out = x.copy().reshape(-1)
        for number, value in zip(np.ravel(numbers), values.ravel(), strict=True):
            out[number] = combine(out[number], value)
        return out.reshape(x.shape)

    return update


def _scatter(values: Any, /, key: Any, shape: tuple[int, ...]) -> Any:
    values = np.asarray(values)
    return _updated(lambda a, b: a + b)(np.zeros(shape, values.dtype), values, key)


def _places(x: Any, /, key: Any) -> Any:
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


def _top_k(x: Any, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    lines = np.moveaxis(np.asarray(x), axis, -1)
    indices = np.empty((*lines.shape[:-1], k), dtype=np.int64)
    for at in np.ndindex(*lines.shape[:-1]):
        line = [float(v) for v in lines[at]]
        indices[at] = sorted(range(len(line)), key=lambda i: -line[i] if largest else line[i])[:k]
    indices = np.moveaxis(indices, -1, axis)
    return np.take_along_axis(np.asarray(x), indices, axis=axis), indices


def _isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
    members = np.ravel(x2).tolist()
    found = [(element in members) is not invert for element in np.ravel(x1).tolist()]
    return np.asarray(found, dtype=bool).reshape(np.shape(x1))


def _add_rows(x: Any, indices: Any, rows: Any, **_: Any) -> Any:
    out = np.array(x)
    for row, index in zip(rows.reshape(-1, *x.shape[1:]), indices.reshape(-1), strict=True):
        out[index] += row
    return out


REFERENCES: dict[str, Callable[..., Any]] = {
    "add_rows": _add_rows,
    "gather": lambda params, indices: params[indices],
    "getitem": lambda x, /, key: np.asarray(x)[key],
    "scatter": _scatter,
    "setitem": _updated(lambda a, b: b),
    "scatter_add": _updated(lambda a, b: a + b),
    "scatter_multiply": _updated(lambda a, b: a * b),
    "scatter_min": _updated(lambda a, b: min(a, b)),
    "scatter_max": _updated(lambda a, b: max(a, b)),
    "places": _places,
    "top_k": _top_k,
    "isin": _isin,
    "to_device": lambda x, *_: x,
}
