"""Lists of Tensors as vectors: norms, products and sums, inside vmap over all examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.engine.levels import BatchedArray
from tape_core.engine.tensor import Tensor
from tape_core.ops.creation import zeros_like
from tape_core.ops.data_types import astype, off_tapes
from tape_core.ops.elementwise import abs as magnitude
from tape_core.ops.elementwise import imag, real, sqrt
from tape_core.ops.manipulation import concat, reshape
from tape_core.ops.statistical import max as greatest
from tape_core.ops.statistical import sum as total

Vector = list[Tensor]


def norm(x: Vector) -> Tensor:
    """Return the Euclidean norm of all elements."""
    squares: Any = 0
    for t in x:
        squares = squares + total(magnitude(t) ** 2)
    return sqrt(squares)


def worst(value: Tensor) -> float:
    """Return the greatest of a value over the examples of all vmaps."""
    return _reduce_examples(value, greatest)


def _reduce_examples(value: Tensor, function: Callable[[Tensor], Tensor]) -> float:
    array = off_tapes(value)._array
    while type(array) is BatchedArray:
        array = (function(array.value) if array.axis is not None else array.value)._array
    return float(array)


def add(x: Vector, y: Vector) -> Vector:
    return [a + b for a, b in zip(x, y, strict=True)]


def zeros(x: Vector) -> Vector:
    return [zeros_like(off_tapes(t)) for t in x]


def flatten(x: Vector) -> Tensor:
    flat = [reshape(t, (-1,)) for t in x]
    return flat[0] if len(flat) == 1 else concat(flat)


def unflatten(flat: Tensor, like: Vector) -> Vector:
    found, start = [], 0
    for t in like:
        own = reshape(flat[start : start + t.size], t.shape)
        found.append(own if own.dtype is t.dtype else astype(own, t.dtype))
        start += t.size
    return found


def flatten_real(x: Vector) -> Tensor:
    """Return all elements in one vector, complex ones as two real numbers."""
    parts = []
    for t in x:
        parts += [real(t), imag(t)] if t.dtype.kind == "complex floating" else [t]
    return flatten(parts)


def unflatten_real(flat: Tensor, like: Vector) -> Vector:
    found, start = [], 0
    for t in like:
        parts = []
        for _ in range(2 if t.dtype.kind == "complex floating" else 1):
            parts.append(reshape(flat[start : start + t.size], t.shape))
            start += t.size
        own = parts[0] if len(parts) == 1 else parts[0] + parts[1] * 1j
        found.append(own if own.dtype is t.dtype else astype(own, t.dtype))
    return found
