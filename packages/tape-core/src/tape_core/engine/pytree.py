"""Nested structures, through optree; the common cases (a leaf, a flat list or tuple) without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape_core.engine.tensor import Tensor
from tape_core.engine.variable import Variable
from tape_core.typing import PyTree

# A PyTreeSpec of optree or, in the cases that do without optree, None for a leaf, and the class of a flat list or tuple
# of Tensors. `same` and `difference` bring both to optree's terms.
Structure = Any

_TENSORS = frozenset({Tensor, Variable})


def flatten(tree: PyTree) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree, None among them, and its structure. Dict views (`model.values()`) count as lists."""
    kind = type(tree)
    if kind in _TENSORS:
        return [tree], None
    if (kind is list or kind is tuple) and are_tensors(tree):
        return list(tree), kind
    if isinstance(tree, _DICT_VIEWS):
        tree = list(tree)
    import optree

    try:
        return optree.tree_flatten(tree, none_is_leaf=True, namespace="tape")
    except RecursionError:
        raise ValueError(
            f"a {kind.__name__} that contains itself, or is nested very deeply, is no structure of arrays"
        ) from None


def orders(tree: PyTree, structure: Structure) -> list[tuple[Any, ...]]:
    """Return the keys of each dict in a tree, in their order, in which structures do not differ."""
    if structure is None or structure is list or structure is tuple:
        return []
    found: list[tuple[Any, ...]] = []
    # As many nodes as optree has counted: then none of other kinds is hidden in what looks like a leaf here.
    if type(tree) in _NODES and _walked(tree, found) == structure.num_nodes:
        return found
    # There are nodes of other kinds, which only optree can look into.
    import optree

    found = []

    def note(node: object) -> bool:
        if isinstance(node, dict):
            found.append(tuple(node))
        return False

    optree.tree_flatten(tree, note, none_is_leaf=True, namespace="tape")
    return found


def _walked(tree: PyTree, found: list[tuple[Any, ...]]) -> int:
    """Return the number of nodes of a tree of dicts, lists and tuples; add the keys of dicts to `found`."""
    count, nodes = 1, [tree]
    # The list grows while it is walked: breadth first, without recursion.
    for node in nodes:
        if type(node) is dict:
            if len(node) > 1:
                found.append(tuple(node))
            node = node.values()
        count += len(node)
        nodes += [part for part in node if type(part) in _NODES]
    return count


def are_tensors(leaves: Sequence[Any]) -> bool:
    """Return whether all leaves are Tensors or Variables."""
    return _TENSORS.issuperset(map(type, leaves)) or all([isinstance(leaf, Tensor) for leaf in leaves])


def path(structure: Structure, k: int) -> str:
    """Return the path of leaf k for messages: `['w']`, `[0]`."""
    if structure is None:
        return ""
    if structure is list or structure is tuple:
        return f"[{k}]"
    return "".join(f"[{part!r}]" for part in structure.paths()[k])


def same(a: Structure, b: Structure, n: int) -> bool:
    """Return whether two structures of n leaves are the same."""
    return bool(a == b) or bool(_general(a, n) == _general(b, n))


def difference(what: str, a: Structure, n: int, other: str, b: Structure, m: int) -> str:
    """Return a text on how two structures differ, of n and m leaves: how each is nested, or its number of leaves.

    >>> difference("tangents", list, 2, "primals", tuple, 2)
    'tangents is [*, *], primals is (*, *), where * is a leaf'
    """
    shown = [_shown(a, n), _shown(b, m)]
    if max(map(len, shown)) <= 120:
        return f"{what} is {shown[0]}, {other} is {shown[1]}, where * is a leaf"
    if n != m:
        return f"{what} has {n} leaves, {other} has {m}"
    return f"both have {n} leaves, and they are nested in different ways"


def _shown(structure: Structure, n: int) -> str:
    text = str(_general(structure, n)).removeprefix("PyTreeSpec(")
    return text.partition(", NoneIsLeaf")[0]


def _general(structure: Structure, n: int) -> Any:
    """Return a structure in optree's terms."""
    if structure is not None and structure is not list and structure is not tuple:
        return structure
    import optree

    tree: Any = 0 if structure is None else structure([0] * n)
    return optree.tree_structure(tree, none_is_leaf=True, namespace="tape")


def unflatten(structure: Structure, leaves: list[Any]) -> Any:
    """Return a tree of this structure with these leaves."""
    if structure is None:
        return leaves[0]
    if structure is list:
        return leaves
    if structure is tuple:
        return tuple(leaves)
    return structure.unflatten(leaves)


def prefix(prefix: PyTree, tree: PyTree, what: str, of: str) -> list[Any]:
    """Return for each leaf of a tree the leaf of a prefix: each leaf of the prefix stands for all leaves below it.

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


_NODES = frozenset({dict, list, tuple})
_DICT_VIEWS: Any = (type({}.values()), type({}.keys()))
