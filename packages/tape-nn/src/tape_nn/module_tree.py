"""Modules as pytrees: the trainable Variables are the leaves, everything else is the structure.

A Module that is made of other leaves, a *functional copy*, has them in place of the Variables: Tensors, gradients, or
anything else. It notes in `LEAVES` which of its attributes they are, since a gradient may be None, and a Module may
hold Tensors that are no parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import tape_core as tc
from tape_core import Tensor, Variable
from tape_core.support import pytree

from tape_nn.copies import (
    LEAVES,
    Constant,
    Contents,
    Leaf,
    Node,
    Place,
    Plan,
    RootPlaces,
    Shared,
    empty_like,
    existing,
)

if TYPE_CHECKING:
    from tape_nn.module import Module

_SKIPPED = frozenset({LEAVES, "_compiled_methods"})  # attributes that copies do not take over
_ATOMS = frozenset(
    {Tensor, Variable, tc.DType, type(None), bool, int, float, complex, str, bytes, FunctionType, BuiltinFunctionType}
)
"""Classes in whose instances there are no Modules: most attributes are of these."""

_CONTAINERS = (list, tuple, dict)


class Skeleton:
    """The structure of a Module in the terms of pytrees: everything but the leaves.

    Two are the same if the Modules had the same classes, attributes and leaves, and the rest is equal, or the same
    objects: Variables that are not trained, generators and functions are compared by identity.
    """

    __slots__ = ("_hash", "_plan", "names", "root", "tokens")

    def __init__(self, root: Node, names: list[str], tokens: list[object]) -> None:
        self.root = root
        self.names = names
        self.tokens = tokens
        self._plan: Plan | None = None  # from the first copy on
        self._hash = hash((root.kind, *names))

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Return a functional copy with these leaves."""
        if self._plan is None:
            self._plan = Plan(self.root, self.tokens)
        return self._plan.copy(leaves, self)

    def leaves_of(self, module: Any) -> list[Any] | None:
        """Return the leaves of a copy with this skeleton in which only leaves have changed since it was made.

        None of any other object, also of a Module whose skeleton is equal.
        """
        if type(module) is not self.root.kind or self._plan is None:
            return None
        places = vars(module).get(LEAVES)
        if type(places) is not RootPlaces or places.skeleton is not self:
            return None
        return self._plan.leaves_of(module, places.nodes)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Skeleton) and self.names == other.names and _same(self.root, other.root)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.root.kind.__name__


def holds_leaves(module: Module) -> bool:
    """Return whether a Module, or one in it, is a functional copy."""
    if not existing:
        return False
    nodes: list[Any] = [module]
    seen = {id(module)}
    # The list grows while it is gone through.
    for node in nodes:
        parts: Any = node
        kind = type(node)
        if kind is list or kind is tuple:  # which need no question to their class, and most are
            pass
        elif hasattr(kind, "__tape_node__"):
            attributes = vars(node)
            if LEAVES in attributes:
                return True
            parts = attributes.values()
        elif isinstance(node, dict):
            parts = node.values()
        for part in parts:
            kind = type(part)
            if kind in _ATOMS or id(part) in seen:
                continue
            if issubclass(kind, _CONTAINERS) or hasattr(kind, "__tape_node__"):
                seen.add(id(part))
                nodes.append(part)
    return False


def flatten_module(module: Module) -> tuple[list[Any], Skeleton]:
    """Return the leaves of a Module and its skeleton.

    Raises:
        ValueError: a layer has not made its Variables yet.
    """
    places = vars(module).get(LEAVES)
    if type(places) is RootPlaces and (leaves := places.skeleton.leaves_of(module)) is not None:
        return leaves, places.skeleton
    flattening = _Flatten()
    root = flattening.look(module, (), "", None, ())
    assert isinstance(root, Node)
    return flattening.leaves, Skeleton(root, flattening.names, flattening.tokens)


def leaves_in(module: Module) -> Mapping[Place, object]:
    """Return the places of the leaves in the attributes of a functional copy; of any other Module there are none."""
    places = vars(module).get(LEAVES)
    return {} if places is None else places.tokens


def named_state(module: Module, method: str) -> dict[str, Variable]:
    """Return all Variables by name.

    Raises:
        ValueError: a layer has not made its Variables yet, or two have one name.
    """
    waiting = [
        f"{path!r} ({type(found).__name__})" if path else type(found).__name__
        for path, found in module.named_modules()
        # Only a Layer can be unbuilt; a Module of the user's has no such attribute.
        if not getattr(found, "built", True)
    ]
    if waiting:
        raise ValueError(
            f"{method}: {', '.join(waiting)} {'has' if len(waiting) == 1 else 'have'} no Variables yet; call it once "
            "with an input, or build(input_shape)"
        )
    variables: dict[str, Variable] = {}
    for name, variable in module.named_variables():
        # Paths are joined by dots, so that an attribute `a` with the key "b.c" and one `a.b` with `c` would collide.
        if name in variables:
            raise ValueError(f"{method}: two Variables have the name {name!r}; rename an attribute or a key")
        variables[name] = variable
    return variables


class _Flatten:
    """One walk through a Module, in the order of `Module.named_variables`."""

    def __init__(self) -> None:
        self.leaves: list[Any] = []
        self.names: list[str] = []
        self.tokens: list[object] = []
        self._variables: dict[int, int] = {}
        self._by_token: dict[int, int] = {}
        self._nodes: dict[int, int] = {}  # by id; `_held` keeps the objects alive, so that no id is used twice
        self._held: list[object] = []

    def look(self, value: Any, place: Place, path: str, around: Module | None, places: Any) -> Any:
        """Return what stands for a value, which is at a place of the Module around it."""
        if place in places:
            return self._tied(value, places[place], path)
        if isinstance(value, Variable):
            return self._parameter(value, path) if value.trainable else Constant(value, value)
        items = _items_of(value)
        if items is None:
            return Constant(value, value)
        if id(value) in self._nodes:
            return Shared(self._nodes[id(value)])
        number = self._nodes[id(value)] = len(self._nodes)
        self._held.append(value)
        keys, parts = [], []
        is_module = not isinstance(value, list | tuple | dict)
        if is_module:
            if not getattr(value, "built", True):
                named = f"{path!r} ({type(value).__name__})" if path else type(value).__name__
                raise ValueError(
                    f"{named} has no Variables yet, so no leaves for a transformation; call it once with an input, or "
                    "build(input_shape), before"
                )
            around, place, places = value, (), leaves_in(value)
        for key, part in items:
            if is_module and key in _SKIPPED:
                continue
            keys.append(key)
            parts.append(self.look(part, (*place, key), f"{path}.{key}" if path else str(key), around, places))
        if not is_module and all([type(part) is Constant and not isinstance(part.value, Variable) for part in parts]):
            del self._nodes[id(value)]
            return Constant(value, _contents(value, keys, parts))  # the same object: several layers may share it
        kind = type(value)
        empty = empty_like(value) if issubclass(kind, list | dict) and kind is not list and kind is not dict else None
        return Node(kind, empty, number, tuple(keys), tuple(parts))

    def _parameter(self, variable: Variable, path: str) -> Leaf:
        number = self._variables.get(id(variable))
        if number is None:
            number = self._variables[id(variable)] = self._add(variable, object(), path)
        return Leaf(number)

    def _tied(self, value: Any, token: object, path: str) -> Leaf:
        number = self._by_token.get(id(token))
        # A place that the user has given another value since is tied no more.
        if number is None or self.leaves[number] is not value:
            fresh = token if number is None else object()
            number = self._add(value, fresh, path)
            self._by_token.setdefault(id(token), number)
        return Leaf(number)

    def _add(self, leaf: Any, token: object, path: str) -> int:
        self.leaves.append(leaf)
        self.tokens.append(token)
        self.names.append(path)
        return len(self.leaves) - 1


def _contents(value: Any, keys: list[object], parts: list[Constant]) -> Any:
    """Return what was in a list, tuple or dict; a tuple in which nothing can change is that itself."""
    if isinstance(value, tuple) and all([part.seen is part.value for part in parts]):
        return value
    return Contents(type(value), tuple(keys) if isinstance(value, dict) else None, tuple([part.seen for part in parts]))


def _items_of(value: Any) -> Any:
    """Return the (key, part) pairs of a Module or a container, and None for anything else."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if hasattr(type(value), "__tape_node__"):
        return list(vars(value).items())
    return None


def _same(a: Any, b: Any) -> bool:
    """Return whether two nodes, or what stands in their places, are the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Node):
        if a.kind is not b.kind or a.keys != b.keys or a.number != b.number:
            return False
        return all(map(_same, a.parts, b.parts))
    return bool(a.number == b.number) if isinstance(a, Leaf | Shared) else pytree.same_constant(a.seen, b.seen)


def stack_modules(modules: Sequence[Module]) -> Any:
    """Return a Module whose leaves are those of several, stacked along a new first axis, for :func:`tape_core.vmap`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> members = [nn.Dense(2) for _ in range(5)]
    >>> for member in members:
    ...     member.build((None, 3))
    >>> ensemble = nn.stack_modules(members)
    >>> ensemble.kernel.shape
    (5, 3, 2)
    >>> tc.vmap(lambda member, x: member(x), in_axes=(0, None))(ensemble, tc.ones((4, 3))).shape
    (5, 4, 2)

    Args:
        modules: built Modules of one class, structure and configuration.

    Raises:
        ValueError: there are none, they differ, or they have Variables that are not trainable, such as the statistics
            of a BatchNorm: these are no leaves, so the members would share those of the first.
    """
    modules = list(modules)
    if not modules:
        raise ValueError("stack_modules: there are no Modules to stack")
    for module in modules:
        for name, variable in module.named_variables():
            if not getattr(variable, "trainable", True):
                raise ValueError(
                    f"stack_modules: {name!r} is not trainable, so it is no leaf, and the members would share it; "
                    "stack the states, {name: tape_core.stack(...)} of state_dict(), and call one Module with each by "
                    "tape_nn.functional_call"
                )
    try:
        return tc.tree_map(lambda *leaves: tc.stack(leaves), *modules)
    except ValueError as error:
        raise ValueError(f"stack_modules: the Modules do not fit together: {error}") from error


def unstack_modules(module: Module) -> list[Any]:
    """Return the members of :func:`stack_modules`: a Module for each element of the leaves' first axis.

    Raises:
        ValueError: the leaves have no first axis of one length.
    """
    lengths = {leaf.shape[:1] for leaf in tc.tree_leaves(module)}
    if len(lengths) != 1 or () in lengths:
        raise ValueError("unstack_modules: the leaves must have a first axis of one length, that of the members")
    return [tc.tree_map(lambda leaf, k=k: leaf[k], module) for k in range(lengths.pop()[0])]
