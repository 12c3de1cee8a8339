"""Functions of pytrees: map over leaves, take apart, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tape_core.base.mistakes import check_callable
from tape_core.engine import pytree
from tape_core.typing import PyTree


def tree_map(f: Callable[..., Any], tree: PyTree, *rest: PyTree) -> Any:
    """Return a pytree of `f` of each leaf, and of the leaves at its place in other pytrees.

    >>> import tape_core as tc
    >>> weights, gradients = {"a": 1.0, "b": (2.0, 3.0)}, {"a": 0.5, "b": (1.0, 0.0)}
    >>> tc.tree_map(lambda w, g: w - g, weights, gradients)
    {'a': 0.5, 'b': (1.0, 3.0)}

    Args:
        f: a function of as many arguments as there are pytrees. None is a leaf; where it is one in all of them the
            result is None, and `f` is not called.
        tree: a pytree: lists, tuples, dicts, dataclasses, Modules, and classes of :func:`register_pytree`.
        rest: pytrees of the same structure.

    Raises:
        ValueError: the structures differ.
    """
    check_callable("tree_map", "f", f)
    leaves, structure = pytree.flatten(tree)
    columns = [leaves]
    for k, other in enumerate(rest):
        found, other_structure = pytree.flatten(other)
        if len(found) != len(leaves) or not pytree.same(structure, other_structure, len(leaves)):
            shown = pytree.difference("the first", structure, len(leaves), "it", other_structure, len(found))
            raise ValueError(f"tree_map: pytree {k + 2} must have the structure of the first; {shown}")
        columns.append(found)
    mapped = [None if all([leaf is None for leaf in row]) else f(*row) for row in zip(*columns, strict=True)]
    return pytree.unflatten(structure, mapped)


def tree_leaves(tree: PyTree) -> list[Any]:
    """Return the leaves of a pytree, None among them, in the order of its structure.

    >>> import tape_core as tc
    >>> tc.tree_leaves({"b": 2.0, "a": [1.0, None]})
    [1.0, None, 2.0]
    """
    return pytree.leaves(tree)


class TreeStructure:
    """The structure of a pytree, as :func:`tree_flatten` returns it; it can be compared and hashed."""

    __slots__ = ("_n", "_structure")

    def __init__(self, structure: pytree.Structure, n: int) -> None:
        self._structure = pytree.general(structure, n)
        self._n = n

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return self._n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeStructure) and bool(self._structure == other._structure)

    def __hash__(self) -> int:
        return hash(self._structure)

    def __repr__(self) -> str:
        return f"TreeStructure({pytree.shown(self._structure, self._n)})"


def tree_flatten(tree: PyTree) -> tuple[list[Any], TreeStructure]:
    """Return the leaves of a pytree, and its structure, of which :func:`tree_unflatten` makes one like it.

    >>> import tape_core as tc
    >>> leaves, structure = tc.tree_flatten({"a": 1.0, "b": (2.0, 3.0)})
    >>> leaves
    [1.0, 2.0, 3.0]
    >>> tc.tree_unflatten(structure, [10 * x for x in leaves])
    {'a': 10.0, 'b': (20.0, 30.0)}
    """
    leaves, structure = pytree.flatten(tree)
    return list(leaves), TreeStructure(structure, len(leaves))


def tree_unflatten(structure: TreeStructure, leaves: Sequence[Any]) -> Any:
    """Return a pytree of this structure with these leaves.

    Raises:
        TypeError: `structure` is none that :func:`tree_flatten` returned.
        ValueError: the number of leaves is not that of the structure.
    """
    if not isinstance(structure, TreeStructure):
        raise TypeError(f"tree_unflatten: the first argument is a structure of tree_flatten; got {structure!r}")
    leaves = list(leaves)
    if len(leaves) != structure._n:
        raise ValueError(f"tree_unflatten: the structure has {structure._n} leaves; got {len(leaves)}")
    return pytree.unflatten(structure._structure, leaves)
