"""Lists of Tensors as vectors: norms, products and sums, inside vmap over all examples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tape_core.engine.levels import BatchedArray
from tape_core.engine.tensor import Tensor
from tape_core.ops.creation import zeros_like
from tape_core.ops.data_types import astype, off_tapes
from tape_core.ops.elementwise import abs as magnitude
from tape_core.ops.elementwise import conj, real, sqrt
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


def real_part(t: Tensor) -> Tensor:
    """Return the real part; a real Tensor is its own."""
    return real(t) if t.dtype.kind == "complex floating" else t


def dot(x: Vector, y: Vector) -> float:
    """Return the scalar product over all examples; complex vectors count as real ones of twice the length.

    A derivative of a function with `conj` or `abs` is linear over the reals only.
    """
    return math.fsum([_sum_of_examples(total(real_part(conj(a) * b))) for a, b in zip(x, y, strict=True)])


def norm_of_examples(x: Vector) -> float:
    """Return the norm over all elements of all examples."""
    return math.sqrt(math.fsum([_sum_of_examples(total(magnitude(t) ** 2)) for t in x]))


def _sum_of_examples(value: Tensor) -> float:
    """Return the sum of a value over the examples of all vmaps."""
    return _reduce_examples(value, total)


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


def scaled(x: Vector, factor: float) -> Vector:
    return [t * factor for t in x]


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
