"""References of distances, by loops over pairs of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tape_conformance.references import Array


def _distance(a: Array, b: Array, p: float) -> float:
    sizes = [abs(x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    if p == 0:
        return float(sum(s != 0 for s in sizes))
    if p == math.inf:
        return max(sizes, default=0.0)
    # math.fsum rounds once, so the sum is no less exact than the kernel under test.
    return float(math.fsum(s**p for s in sizes) ** (1 / p))


def cdist(x1: Array, x2: Array, *, p: float = 2.0) -> Any:
    (*lead1, n, d), (*lead2, m, _) = x1.shape, x2.shape
    lead = np.broadcast_shapes(tuple(lead1), tuple(lead2))
    x1, x2 = np.broadcast_to(x1, (*lead, n, d)), np.broadcast_to(x2, (*lead, m, d))
    out: Any = np.empty((*lead, n, m), np.result_type(x1, x2))
    for *at, i, j in np.ndindex(out.shape):
        out[(*at, i, j)] = _distance(x1[(*at, i)], x2[(*at, j)], p)
    return out


REFERENCES: dict[str, Callable[..., Any]] = {"cdist": cdist}
