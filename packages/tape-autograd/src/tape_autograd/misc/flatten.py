"""Structures of arrays as one vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.support import pytree
from tape_core.typing import ArrayLike, PyTree

import tape_autograd.numpy as np
from tape_autograd.boxes import isbox

Function = Callable[..., Any]


def flatten(value: PyTree) -> tuple[Any, Function]:
    """Return nested lists, tuples and dicts of arrays as one vector, and the function that turns vectors back.

    >>> vector, unflatten = flatten({"w": np.ones((2, 2)), "b": [0.5]})
    >>> print(vector)
    [0.5 1.  1.  1.  1. ]
    >>> print(unflatten(vector)["w"].shape)
    (2, 2)

    Both can be differentiated. Dicts are in the order of their keys, which must be sortable. The vector has the dtype
    that all parts have in common, and the parts of what `unflatten` returns their own, where they are floats.
    """
    leaves, structure = pytree.flatten(value)
    shapes = [np.shape(leaf) for leaf in leaves]
    kinds = [np.result_type(leaf) for leaf in leaves]
    vector = np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.array([])

    def unflatten(vector: ArrayLike) -> Any:
        parts, start = [], 0
        for shape, kind in zip(shapes, kinds, strict=True):
            size = 1
            for n in shape:
                size *= n
            part = np.reshape(vector[start : start + size], shape)
            if kind.kind in "fc" and part.dtype != kind:
                part = np.real(part) if kind.kind == "f" and np.iscomplexobj(part) else part
                part = part.astype(kind)
            parts.append(part if shape or isbox(part) else part[()])
            start += size
        if start != len(vector):
            raise ValueError(f"unflatten: the vector has {len(vector)} elements, the structure {start}")
        return pytree.unflatten(structure, parts)

    return vector, unflatten


def flatten_func(func: Function, example: PyTree) -> tuple[Function, Function, Any]:
    """Return a function of vectors that computes `func` of structures like `example`; `unflatten`; the flat example."""
    vector, unflatten = flatten(example)
    return (lambda x, *args: flatten(func(unflatten(x), *args))[0]), unflatten, vector
