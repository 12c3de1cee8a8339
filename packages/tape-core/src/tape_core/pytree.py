"""Nested structures, through optree; the common cases (a leaf, a flat list or tuple) without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.tensor import Tensor

Structure = Any
Paths = Callable[[], list[str]]


def flatten(tree: Any, *, none_is_leaf: bool = True) -> tuple[list[Any], Paths, Structure]:
    """The leaves of a structure, a function that names them (`['w']`, `[0]`), and the structure.

    Dict views (`model.values()`) flatten as lists.
    """
    kind = type(tree)
    if isinstance(tree, Tensor):
        return [tree], lambda: [""], None
    if (kind is list or kind is tuple) and all(isinstance(leaf, Tensor) for leaf in tree):
        return list(tree), lambda: [f"[{k}]" for k in range(len(tree))], kind
    if isinstance(tree, _DICT_VIEWS):
        tree = list(tree)
    import optree

    leaves, structure = optree.tree_flatten(tree, none_is_leaf=none_is_leaf, namespace="tape")

    def paths() -> list[str]:
        return ["".join(f"[{part!r}]" for part in path) for path in structure.paths()]

    return leaves, paths, structure


def unflatten(structure: Structure, leaves: list[Any]) -> Any:
    """The structure with other leaves."""
    if structure is None:
        return leaves[0]
    if structure is list:
        return leaves
    if structure is tuple:
        return tuple(leaves)
    return structure.unflatten(leaves)


_DICT_VIEWS: Any = (type({}.values()), type({}.keys()))
