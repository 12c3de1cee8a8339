"""Reading and writing parts of arrays, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _scatter(values: Any, key: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, dtype=values.dtype)
    np.add.at(out, key, values)
    return out


def _setitem(x: Any, values: Any, key: Any) -> Any:
    out = np.array(x)
    out[key] = values
    return out


def _add_rows(x: Any, indices: Any, rows: Any, **_: Any) -> Any:
    out = np.array(x)
    for row, index in zip(rows.reshape(-1, *x.shape[1:]), indices.reshape(-1), strict=True):
        out[index] += row
    return out


REFERENCES: dict[str, Callable[..., Any]] = {
    "add_rows": _add_rows,
    "gather": lambda params, indices: params[indices],
    "getitem": lambda x, key: x[key],
    "scatter": _scatter,
    "setitem": _setitem,
    "to_device": lambda x, *_: x,
}
