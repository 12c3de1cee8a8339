"""The array underneath a Tensor that may be batched by vmaps, and the Tensor of such an array.

Branches and loops that are traced, by a compiler or by a library, have the arrays underneath for arguments and results.
"""

from __future__ import annotations

from typing import Any

from tape_core.engine.levels import BatchedArray, lift, move_to_level
from tape_core.engine.tensor import Tensor, wrap
from tape_core.modes.batching import spread

Layers = tuple[tuple[Any, Any], ...]
"""The vmaps that a Tensor is in, the innermost first: the backend of each, and the hidden axis there or None."""


def layers_of(tensor: Tensor) -> Layers:
    """Return the layers of a Tensor, on the levels where they are now."""
    found, tensor = [], move_to_level(tensor)
    while type(array := tensor._array) is BatchedArray:
        found.append((array.backend, array.axis))
        tensor = array.value
    return tuple(found)


def hidden_axes(layers: Layers) -> int:
    """Return how many axes of the array underneath are those of vmaps: its first ones."""
    return sum(axis is not None for _, axis in layers)


def base_of(tensor: Tensor) -> Tensor:
    """Return the Tensor underneath all vmaps."""
    while type(array := tensor._array) is BatchedArray:
        tensor = array.value
    return tensor


def in_layers(array: Any, backend: Any, layers: Layers) -> Tensor:
    """Return a Tensor of an array, wrapped in these layers."""
    tensor = wrap(array, backend)
    # The first layer is the outermost wrapper, that of the innermost vmap; so wrapping begins with the last.
    for above, axis in reversed(layers):
        tensor = wrap(BatchedArray(tensor, above, axis), above)
    return tensor


def both_layers(a: Layers, b: Layers) -> Layers:
    """Return the layers of a Tensor that is batched wherever one of two is."""
    if len(a) < len(b):
        a, b = b, a
    # A Tensor with fewer layers lacks those of the innermost vmaps, which come first: the ends correspond.
    above = len(a) - len(b)
    both = [(backend, axis or other) for (backend, axis), (_, other) in zip(a[above:], b, strict=True)]
    return (*a[:above], *both)


def widened(tensor: Tensor, layers: Layers) -> Tensor:
    """Return a Tensor with the hidden axes of these layers, which are its own or more: broadcast along the others."""
    if not layers:
        return tensor
    (backend, axis), below = layers[0], layers[1:]
    array = lift(tensor, backend)._array
    value = array.value if axis is None or array.axis is not None else spread(array, axis.size)
    return wrap(BatchedArray(widened(value, below), backend, axis), backend)
