"""The kernels and fused rules of this backend, by the name of the op; their modules are the chapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_torch import distances, divided, elementwise, factorizations, indexing, linalg, nn, special, standard

KERNELS: dict[str, Callable[..., Any]] = {
    **standard.KERNELS,
    **indexing.KERNELS,
    **factorizations.KERNELS,
    **special.KERNELS,
    **nn.KERNELS,
    **distances.KERNELS,
    "laid_out_like": divided.laid_out_like,
}

RULES: dict[str, dict[str, Any]] = {
    **nn.RULES,
    **distances.RULES,
}

PROMOTING = frozenset({*elementwise.KERNELS, *linalg.KERNELS, *standard.KERNELS})
"""The ops whose kernels promote by the tables of `promotion`."""
