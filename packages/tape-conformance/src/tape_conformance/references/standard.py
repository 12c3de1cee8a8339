"""Ops of the standard that NumPy spells or does in another way, and those that rules are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return -np.sort(-x, axis=axis) if descending else np.sort(x, axis=axis)


def _argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return np.argsort(-x if descending else x, axis=axis, stable=True)


def _cofactors(x: Any) -> Any:
    out = np.empty_like(x)
    rows, columns = x.shape[-2:]
    for i in range(rows):
        for j in range(columns):
            minor = np.delete(np.delete(x, i, axis=-2), j, axis=-1)
            out[..., i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


REFERENCES: dict[str, Callable[..., Any]] = {
    "arange_beside": lambda x, n: np.arange(n),
    "argsort": _argsort,
    "cofactors": _cofactors,
    "expand_dims": lambda x, axis=0: np.expand_dims(x, axis),
    "search_in_order": np.searchsorted,
    "sort": _sort,
    "zeros_beside": lambda x, shape, *, dtype: np.zeros(shape, dtype),
}
