"""Nested structures, through optree; the common cases (a leaf, a flat list or tuple) without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape_core.tensor import Tensor
from tape_core.variable import Variable

Structure = Any

_TENSORS = frozenset({Tensor, Variable})


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a structure, None among them, and the structure. Dict views (`model.values()`) are lists."""
    kind = type(tree)
    if kind in _TENSORS:
        return [tree], None
    if (kind is list or kind is tuple) and are_tensors(tree):
        return list(tree), kind
    if isinstance(tree, _DICT_VIEWS):
        tree = list(tree)
    import optree

    return optree.tree_flatten(tree, none_is_leaf=True, namespace="tape")


def are_tensors(leaves: Sequence[Any]) -> bool:
    """Whether all leaves are Tensors or Variables."""
    return _TENSORS.issuperset(map(type, leaves)) or all([isinstance(leaf, Tensor) for leaf in leaves])


def path(structure: Structure, k: int) -> str:
    """How messages name leaf k: `['w']`, `[0]`."""
    if structure is None:
        return ""
    if structure is list or structure is tuple:
        return f"[{k}]"
    return "".join(f"[{part!r}]" for part in structure.paths()[k])


def same(a: Structure, b: Structure, n: int) -> bool:
    """Whether two structures of n leaves are the same."""
    return bool(a == b) or bool(_general(a, n) == _general(b, n))


def _general(structure: Structure, n: int) -> Any:
    """A structure in optree's terms."""
    if structure is not None and structure is not list and structure is not tuple:
        return structure
    import optree

    tree: Any = 0 if structure is None else structure([0] * n)
    return optree.tree_structure(tree, none_is_leaf=True, namespace="tape")


def unflatten(structure: Structure, leaves: list[Any]) -> Any:
    """The structure with other leaves."""
    if structure is None:
        return leaves[0]
    if structure is list:
        return leaves
    if structure is tuple:
        return tuple(leaves)
    return structure.unflatten(leaves)


def prefix(prefix: Any, tree: Any, what: str, of: str) -> list[Any]:
    """For each leaf of a tree what a prefix of it says: a leaf of the prefix stands for all that is below it.

    Raises:
        ValueError: `prefix` is not one of the tree's.
    """
    if prefix is None or type(prefix) is int:
        return [prefix] * len(flatten(tree)[0])
    import optree

    try:
        found: list[Any] = optree.broadcast_prefix(prefix, tree, none_is_leaf=True, namespace="tape")
    except ValueError as error:
        raise ValueError(f"{what} {prefix!r} does not fit the structure of the {of}: {error}") from None
    return found


_DICT_VIEWS: Any = (type({}.values()), type({}.keys()))
