"""Recipes: how a functional copy of a Module is taken apart without a walk through all that it holds."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

from tape_core import Variable

if TYPE_CHECKING:
    from tape_nn.module import Module
    from tape_nn.module_tree import Node

LEAVES = "_leaf_places"
"""The attribute of a functional copy that has the places of its leaves: `module_tree.Places`."""

ROOT = 0
"""The number of the Module itself among the nodes."""

_MOST_CONTAINERS = 1000  # among the constants of a Module, to look at in each flattening of a copy


class Leaf(NamedTuple):
    """A leaf, by its number."""

    number: int


class Constant(NamedTuple):
    """Something that is the same object in each copy."""

    value: Any


class _Checked(NamedTuple):
    """What a node of a copy has to be for its leaves to be those of the skeleton.

    Attributes:
        number: of the node.
        keys: of a Module's attributes or a dict's entries; for a list or tuple how many elements there are.
        leaves, nodes: the places in the values that are leaves, and those that are nodes, with their numbers.
        values: all values, with None in these places: the others are the same objects.
    """

    number: int
    keys: Any
    leaves: tuple[tuple[int, int], ...]
    nodes: tuple[tuple[int, int], ...]
    values: list[Any]


class Recipe:
    """How a copy is taken apart: its nodes are looked at one after the other, and may differ in leaves alone.

    Constants are the same objects, and lists and dicts among them have the same parts. Where leaves are tied there is
    no recipe.
    """

    def __init__(self, root: Node, count: int) -> None:
        self.nodes: list[_Checked] = []
        self.variables: list[Variable] = []  # they would be leaves if they were trainable
        self.containers: list[tuple[Any, tuple[object, ...] | None, list[Any]]] = []
        self.count = count
        self.works = True
        self._leaves: set[int] = set()
        self._add(root)

    def _add(self, node: Node) -> None:
        is_module = not issubclass(node.kind, list | tuple | dict)
        values: list[Any] = [None] if is_module else []
        leaves, nodes = [], []
        for part in node.parts:
            at = len(values)
            values.append(None)
            if type(part) is Constant:
                values[at] = part.value
                if isinstance(part.value, Variable):
                    self.variables.append(part.value)
                else:
                    self._add_constant(part.value)
            elif type(part) is Leaf:
                leaves.append((at, part.number))
                self.works = self.works and part.number not in self._leaves
                self._leaves.add(part.number)
            else:
                nodes.append((at, part.number))
        keys: Any = len(values) if issubclass(node.kind, list | tuple) else (LEAVES,) * is_module + node.keys
        self.nodes.append(_Checked(node.number, keys, tuple(leaves), tuple(nodes), values))
        for part in node.parts:
            if type(part) is type(node):
                self._add(part)

    def _add_constant(self, value: Any) -> None:
        if isinstance(value, Variable) or hasattr(type(value), "__tape_node__"):
            self.works = False  # it was put into a list since the copy was made
        elif isinstance(value, list | tuple | dict) and self.works:
            if len(self.containers) >= _MOST_CONTAINERS:
                self.works = False  # or one holds itself
                return
            parts = list(value.values() if isinstance(value, dict) else value)
            if not isinstance(value, tuple):
                self.containers.append((value, tuple(value) if isinstance(value, dict) else None, parts))
            for part in parts:
                self._add_constant(part)

    def leaves_of(self, module: Module, made: dict[int, Any]) -> list[Any] | None:
        """Return the leaves of a copy, of which `made` are the other nodes; None if it may differ in anything else."""
        if not self.works or any([variable.trainable for variable in self.variables]):
            return None
        for container, names, parts in self.containers:
            if names is not None and tuple(container) != names:
                return None
            now = list(container if names is None else container.values())
            if len(now) != len(parts) or not all(map(is_, now, parts)):
                return None
        found: list[Any] = [None] * self.count
        for number, keys, leaves, nodes, expected in self.nodes:
            node: Any = module if number == ROOT else made[number]
            if type(keys) is int:
                values = list(node)
                if len(values) != keys:
                    return None
            else:
                entries = node if isinstance(node, dict) else vars(node)
                if tuple(entries) != keys:
                    return None
                values = list(entries.values())
                if entries is not node:
                    values[0] = None
            for at, k in leaves:
                found[k] = values[at]
                values[at] = None
            for at, k in nodes:
                if values[at] is not (module if k == ROOT else made[k]):
                    return None
                values[at] = None
            if not all(map(is_, values, expected)):
                return None
        return found
