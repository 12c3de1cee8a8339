"""Type aliases that tell a reader which arrays a parameter takes: a Tensor, a raw array, or whatever becomes one."""

from __future__ import annotations

from typing import Any, TypeAlias

from tape_core import IndexedSlices
from tape_core.backends import Backend
from tape_core.engine.tensor import ArrayLike

Raw: TypeAlias = Any
"""An array of the wrapped library, such as a NumPy array or a torch tensor: what a Tensor holds. No tape records
what is computed with it."""

Namespace: TypeAlias = Any
"""Every op by name: `backend.xp` computes on raw arrays, the module `tape_core` on Tensors."""

Gradient: TypeAlias = ArrayLike | IndexedSlices | None
"""A gradient as `tape.gradient` returns it: a Tensor, IndexedSlices from a gather, or None."""

PyTree: TypeAlias = Any
"""Tensors in tuples, lists, dictionaries and named tuples, nested to any depth; None for an absent part."""

DTypeLike: TypeAlias = object
"""A dtype of tape_core, its name, or the array library's own; None for the default."""

BackendLike: TypeAlias = str | Backend | None
"""A backend or its name; None for the selected one."""

StateDict: TypeAlias = dict[str, Any]
"""Numbers, text, None and Tensors by name, in dictionaries and lists: what a checkpoint of `fit` can hold."""

__all__ = ["ArrayLike", "BackendLike", "DTypeLike", "Gradient", "Namespace", "PyTree", "Raw", "StateDict"]
