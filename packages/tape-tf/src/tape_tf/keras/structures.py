"""Tensors in lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf.conversion import wrap
from tape_tf.tensor import Value


def placed_leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """What is in lists, tuples and dicts, nested to any depth, after its place, such as `"blocks.0"`."""
    if isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from placed_leaves(part, f"{place}.{key}")
    else:
        yield place, wrap(value) if isinstance(value, tc.Variable) else value


def leaves(value: Any) -> Iterator[Any]:
    """What is in lists, tuples and dicts, nested to any depth; dicts in their own order."""
    return (leaf for _, leaf in placed_leaves(value))


def mapped(function: Callable[[Any], Any], structure: Any) -> Any:
    """The same structure, of what the function makes of each leaf."""
    if isinstance(structure, dict):
        return {key: mapped(function, part) for key, part in structure.items()}
    if isinstance(structure, list | tuple):
        parts = [mapped(function, part) for part in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return function(structure)


def once(values: Iterable[Any]) -> list[Any]:
    """Each object once, in the order of first appearance."""
    return list({id(value): value for value in values}.values())


def is_array(value: Any) -> bool:
    """Whether it is a tensor or an array, or a list that has one in it."""
    return isinstance(value, Value | tc.Tensor | np.ndarray | np.generic) or (
        isinstance(value, list | tuple) and any(map(is_array, value))
    )


def tensors(structure: Any) -> list[Any]:
    """The tensors and Variables in a structure."""
    return [leaf for leaf in leaves(structure) if isinstance(leaf, Value)]


def shapes(structure: Any) -> Any:
    """The shapes of the tensors in a structure, None for what has none."""
    return mapped(lambda leaf: getattr(leaf, "shape", None), structure)
