"""Structures of tensors: lists, tuples and dicts, nested to any depth.

tape_core.pytree is not used here: Keras keeps dicts in their own order, and a layer may hold objects of any type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf.conversion import wrap
from tape_tf.tensor import Value
from tape_tf.typing import PyTree


def leaves_with_paths(value: PyTree, place: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the leaves, each with its path, such as `".blocks.0"`."""
    if isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves_with_paths(part, f"{place}.{key}")
    else:
        yield place, wrap(value) if isinstance(value, tc.Variable) else value


def leaves(value: PyTree) -> Iterator[Any]:
    """Iterate over the leaves; dicts in their own order."""
    return (leaf for _, leaf in leaves_with_paths(value))


def map_structure(function: Callable[[Any], Any], structure: PyTree) -> Any:
    """Apply a function to each leaf; returns the same structure."""
    if isinstance(structure, dict):
        return {key: map_structure(function, part) for key, part in structure.items()}
    if isinstance(structure, list | tuple):
        parts = [map_structure(function, part) for part in structure]
        # A named tuple takes its parts as arguments, other sequences as one iterable.
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return function(structure)


def unique(values: Iterable[Any]) -> list[Any]:
    """Return each object once, by identity, in the order of first appearance."""
    # By identity, as Variables are not hashable, and `==` compares their elements.
    return list({id(value): value for value in values}.values())


def is_array(value: object) -> bool:
    """True for a tensor or an array, and for a list or tuple that contains one."""
    return isinstance(value, Value | tc.Tensor | np.ndarray | np.generic) or (
        isinstance(value, list | tuple) and any(map(is_array, value))
    )


def tensor_leaves(structure: PyTree) -> list[Any]:
    """Return the tensors and Variables in a structure."""
    return [leaf for leaf in leaves(structure) if isinstance(leaf, Value)]


def shapes_of(structure: PyTree) -> Any:
    """Replace each leaf by its shape, or by None if it has none."""
    return map_structure(lambda leaf: getattr(leaf, "shape", None), structure)
