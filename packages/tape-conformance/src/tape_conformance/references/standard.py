"""Ops of the standard that NumPy spells or does in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return -np.sort(-x, axis=axis) if descending else np.sort(x, axis=axis)


def _argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return np.argsort(-x if descending else x, axis=axis, stable=True)


REFERENCES: dict[str, Callable[..., Any]] = {"sort": _sort, "argsort": _argsort}
