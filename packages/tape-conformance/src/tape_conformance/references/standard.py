"""References of ops of the standard that NumPy lacks or defines differently, and of ops that only rules use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape_conformance.references import Array


def _sort(x: Array, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return -np.sort(-x, axis=axis) if descending else np.sort(x, axis=axis)


def _argsort(x: Array, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    # Of -x, not reversed: equal elements must keep their order.
    return np.argsort(-x if descending else x, axis=axis, stable=True)


def _cofactors(x: Array) -> Any:
    out = np.empty_like(x)
    rows, columns = x.shape[-2:]
    for i in range(rows):
        for j in range(columns):
            minor = np.delete(np.delete(x, i, axis=-2), j, axis=-1)
            out[..., i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


def _curvature_of_det(x: Array, direction: Array) -> Any:
    # The derivative of the cofactors along a direction: that of the cofactor (i, j) with respect to x[k, m] is, up to
    # its sign, the determinant without rows i and k and columns j and m.
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


def _band(x: Array, *, first: int | None = None, last: int | None = None) -> Any:
    out = np.zeros_like(x)
    for i, j in np.ndindex(*x.shape[-2:]):
        if (first is None or j - i >= first) and (last is None or j - i <= last):
            out[..., i, j] = x[..., i, j]
    return out


REFERENCES: dict[str, Callable[..., Any]] = {
    "arange_beside": lambda x, n: np.arange(n),
    "argsort": _argsort,
    "band": _band,
    "cofactors": _cofactors,
    "curvature_of_det": _curvature_of_det,
    "expand_dims": lambda x, axis=0: np.expand_dims(x, axis),
    "search_in_order": np.searchsorted,
    "sort": _sort,
    "unique_all": np.unique_all,
    "unique_counts": np.unique_counts,
    "unique_inverse": np.unique_inverse,
    # np.unique_values does not sort, from NumPy 2.3 on.
    "unique_values": lambda x: np.unique(x, equal_nan=False),
    "zeros_beside": lambda x, shape, *, dtype: np.zeros(shape, dtype),
}
