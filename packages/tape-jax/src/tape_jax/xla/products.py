"""Products whose first factor is transposed, such as the gradient of weights: what XLA is told to transpose before.

XLA takes transpositions into the products that they lead to. On the CPU, from JAX 0.10 on, it has a library for most
products, and none of those in float64 whose first factor it would read by columns. They take up to twice as long as the
library takes, the transposition included. In float32 they take as long, unless they are many, as under `vmap`: those
of a batch take up to twice as long, too. JAX before 0.10 has no such library.
"""

from __future__ import annotations

from typing import Any

import jax

from tape_jax.thresholds import (
    BATCH_MAX_ROWS_OF_FLOAT32,
    BATCH_MIN_COLUMNS,
    TRANSPOSED_MAX_BYTES,
    TRANSPOSED_MIN_COLUMNS,
    TRANSPOSED_MIN_PRODUCTS,
    TRANSPOSED_MIN_ROWS,
)

_HAS_LIBRARY = jax.__version_info__ >= (0, 10)


def is_transposition(name: str, value: Any) -> bool:
    """Return whether a call of this name, with this result, exchanges the last two axes."""
    return name in ("mT", "matrix_transpose") or (name == "T" and value.ndim == 2)


def laid_out(first: Any, second: Any) -> Any:
    """Return the first factor of a product, a transposed array, as XLA should have it: in memory, if that pays."""
    if not _HAS_LIBRARY or first.dtype != second.dtype or min(first.ndim, second.ndim) < 2:
        return first
    (rows, inner), columns = first.shape[-2:], second.shape[-1]
    if min(first.ndim, second.ndim) > 2:
        pays = min(rows, columns) >= BATCH_MIN_COLUMNS and (
            first.dtype == "float64" or (first.dtype == "float32" and inner <= BATCH_MAX_ROWS_OF_FLOAT32)
        )
    else:
        pays = (
            first.dtype == "float64"
            and columns >= TRANSPOSED_MIN_COLUMNS
            and rows * inner * columns >= TRANSPOSED_MIN_PRODUCTS
        )
    pays = (
        pays
        and inner >= TRANSPOSED_MIN_ROWS
        and first.size * first.dtype.itemsize <= TRANSPOSED_MAX_BYTES
        and jax.default_backend() == "cpu"
    )
    barrier: Any = jax.lax.optimization_barrier  # which has no types
    return barrier(first) if pays else first
