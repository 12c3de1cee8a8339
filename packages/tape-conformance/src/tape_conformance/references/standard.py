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


def _curvature_of_det(x: Any, direction: Any) -> Any:
    # Without two rows and two columns the determinant is a polynomial of degree 2 in a step along the direction.
    out = np.zeros_like(x)
    n = x.shape[-1]
    for i in range(n):
        for j in range(n):
            for k in set(range(n)) - {i}:
                for m in set(range(n)) - {j}:
                    minor = np.delete(np.delete(x, (i, k), axis=-2), (j, m), axis=-1)
                    sign = (-1) ** (i + j + k + m) * (1 if (k > i) == (m > j) else -1)
                    out[..., i, j] += sign * direction[..., k, m] * np.linalg.det(minor)
    return out


REFERENCES: dict[str, Callable[..., Any]] = {
    "arange_beside": lambda x, n: np.arange(n),
    "argsort": _argsort,
    "cofactors": _cofactors,
    "curvature_of_det": _curvature_of_det,
    "expand_dims": lambda x, axis=0: np.expand_dims(x, axis),
    "search_in_order": np.searchsorted,
    "sort": _sort,
    "unique_all": np.unique_all,
    "unique_counts": np.unique_counts,
    "unique_inverse": np.unique_inverse,
    "unique_values": lambda x: np.unique(x, equal_nan=False),
    "zeros_beside": lambda x, shape, *, dtype: np.zeros(shape, dtype),
}
