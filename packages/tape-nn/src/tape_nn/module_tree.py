"""Modules as pytrees: the trainable Variables are the leaves, everything else is the structure.

A Module that is made of other leaves, a *functional copy*, has them in place of the Variables: Tensors, gradients, or
anything else. It notes in `LEAVES` which of its attributes they are, since a gradient may be None, and a Module may
hold Tensors that are no parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import tape_core as tc
from tape_core import Tensor, Variable
from tape_core.support import pytree

from tape_nn.recipes import LEAVES, ROOT, Constant, Leaf, Recipe

if TYPE_CHECKING:
    from typing import Self

    from tape_nn.module import Module

Place: TypeAlias = tuple[object, ...]
"""The keys that lead from a Module to a value, through lists, tuples and dicts but through no other Module."""

_SKIPPED = frozenset({LEAVES, "_compiled_methods"})  # attributes that copies do not take over
_ATOMS = frozenset(
    {Tensor, Variable, tc.DType, type(None), bool, int, float, complex, str, bytes, FunctionType, BuiltinFunctionType}
)
"""Classes in whose instances there are no Modules: most attributes are of these."""

_CONTAINERS = (list, tuple, dict)


_noted: set[int] = set()
"""The ids of the places in all functional copies that exist."""


class Places(dict[Place, object]):
    """Each place of a leaf, with a token that tied places, which had one Variable, have in common.

    A functional copy, and each Module in one, has its own, also one that was copied or unpickled. While none exists no
    Module is a functional copy, nor holds one, so that a compiled call need not look through its Modules.
    """

    __slots__ = ()

    def __new__(cls, *_: object) -> Self:
        made = super().__new__(cls)
        _noted.add(id(made))
        return made

    # In a tenth of the time of a weak reference. The function is kept, since globals may be gone at the end.
    def __del__(self, forget: Callable[[int], None] = _noted.discard) -> None:
        forget(id(self))


class RootPlaces(Places):
    """The `Places` of the copy itself, with what it was made of, so that it is taken apart again without a walk.

    A pickle and a deep copy have the places alone: the nodes are others there.
    """

    __slots__ = ("nodes", "skeleton")

    def __init__(self, skeleton: Skeleton) -> None:
        self.skeleton = skeleton
        # The nodes by number but for the copy itself, which is then freed when nobody refers to it any more.
        self.nodes: dict[int, Any] = {}

    def __reduce__(self) -> Any:
        return Places, (dict(self),)


class _Shared(NamedTuple):
    """A node that was met before, in another place or around this one."""

    number: int


class Node(NamedTuple):
    """A Module, or a list, tuple or dict in which there is a Variable, a leaf or a Module.

    Attributes:
        kind: the class of the object. The object itself would keep the Variables alive.
        empty: for a list or dict of a class of its own an empty one, of which copies are made; else None.
        number: the count of nodes before it.
        keys, parts: its attributes, elements or entries.
    """

    kind: type
    empty: Any
    number: int
    keys: tuple[object, ...]
    parts: tuple[Any, ...]


class _Outline(NamedTuple):
    """The attributes of a Module that are the same in each copy, and the places of the others.

    Attributes:
        attributes: all of them in their order, with None for the others.
        places: of its leaves among the attributes, for `Places`.
        leaves: the keys of these leaves, and their numbers.
        others: the keys of nodes, and what stands for them.
    """

    attributes: dict[str, Any]
    places: dict[Place, object]
    leaves: list[tuple[str, int]]
    others: list[tuple[str, Any]]


class Skeleton:
    """The structure of a Module in the terms of pytrees: everything but the leaves.

    Two are the same if the Modules have the same classes, attributes and leaves, and the rest is equal, or the same
    objects: Variables that are not trained, generators and functions are compared by identity.
    """

    __slots__ = ("_hash", "_recipe", "names", "outlines", "root", "tokens")

    def __init__(self, root: Node, names: list[str], tokens: list[object]) -> None:
        self.root = root
        self.names = names
        self.tokens = tokens
        self._recipe: Recipe | None = None
        self.outlines: dict[int, _Outline] = {}  # of the Modules, by number, from the first copy on
        self._hash = hash((root.kind, *names))

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Return a functional copy with these leaves."""
        return _Build(leaves, self).copy()

    @property
    def recipe(self) -> Recipe:
        """How a copy is taken apart without a walk."""
        if self._recipe is None:
            self._recipe = Recipe(self.root, len(self.names))
        return self._recipe

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Skeleton) and self.names == other.names and _same(self.root, other.root)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.root.kind.__name__


def taken_apart(module: Module) -> tuple[list[Any], Skeleton] | None:
    """Return the leaves of a functional copy and its skeleton, if nothing but leaves has changed since it was made."""
    places = vars(module).get(LEAVES)
    if type(places) is not RootPlaces or places.skeleton.root.kind is not type(module):
        return None
    leaves = places.skeleton.recipe.leaves_of(module, places.nodes)
    return None if leaves is None else (leaves, places.skeleton)


def holds_leaves(module: Module) -> bool:
    """Return whether a Module, or one in it, is a functional copy."""
    if not _noted:
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
    if (known := taken_apart(module)) is not None:
        return known
    flattening = _Flatten()
    root = flattening.look(module, (), "", None, ())
    assert isinstance(root, Node)
    return flattening.leaves, Skeleton(root, flattening.names, flattening.tokens)


def leaves_in(module: Module) -> Mapping[Place, object]:
    """Return the places of the leaves in the attributes of a functional copy; of any other Module there are none."""
    found: Mapping[Place, object] = vars(module).get(LEAVES, {})
    return found


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
            return self._parameter(value, path) if value.trainable else Constant(value)
        items = _items_of(value)
        if items is None:
            return Constant(value)
        if id(value) in self._nodes:
            return _Shared(self._nodes[id(value)])
        number = self._nodes[id(value)] = len(self._held)
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
            return Constant(value)  # it stays the same object, as a setting that several layers share
        kind = type(value)
        empty = _empty_like(value) if issubclass(kind, list | dict) and kind is not list and kind is not dict else None
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


class _Build:
    """One copy of a Module."""

    def __init__(self, leaves: Sequence[Any], skeleton: Skeleton) -> None:
        self.leaves, self.skeleton = leaves, skeleton
        self._made: dict[int, Any] = {}

    def copy(self) -> Any:
        """Return the copy."""
        places = RootPlaces(self.skeleton)
        made = self._module(self.skeleton.root, places)
        del self._made[ROOT]
        places.nodes = self._made
        return made

    def _module(self, node: Node, own: Places) -> Any:
        made: Any = object.__new__(node.kind)
        self._made[node.number] = made
        outlines = self.skeleton.outlines
        outline = outlines.get(node.number) or outlines.setdefault(node.number, self._outline(node))
        # Past `__setattr__`, which a class may have defined to check or convert what users assign.
        attributes = vars(made)
        attributes.update(outline.attributes)
        attributes[LEAVES] = own
        own.update(outline.places)
        for key, number in outline.leaves:
            attributes[key] = self.leaves[number]
        for key, part in outline.others:
            attributes[key] = self.make(part, (key,), own)
        return made

    def _outline(self, node: Node) -> _Outline:
        """Return the outline of a Module; most of its attributes are settings."""
        parts: dict[Any, Any] = dict(zip(node.keys, node.parts, strict=True))
        leaves = [(key, part.number) for key, part in parts.items() if type(part) is Leaf]
        return _Outline(
            {LEAVES: None, **{key: part.value if type(part) is Constant else None for key, part in parts.items()}},
            {(key,): self.skeleton.tokens[number] for key, number in leaves},
            leaves,
            [(key, part) for key, part in parts.items() if type(part) is not Leaf and type(part) is not Constant],
        )

    def make(self, node: Any, place: Place, places: Places) -> Any:
        """Return the value that stands at a node; notes the leaves in `places`, those of the Module around it."""
        if type(node) is Constant:
            return node.value
        if type(node) is _Shared:
            if node.number not in self._made:
                raise ValueError("a tuple in a Module holds, through another Module, itself: use a list")
            return self._made[node.number]
        if type(node) is Leaf:
            places[place] = self.skeleton.tokens[node.number]
            return self.leaves[node.number]
        kind = node.kind
        if issubclass(kind, list | dict):
            made: Any = kind() if node.empty is None else _empty_like(node.empty)
            self._made[node.number] = made
            for key, part in zip(node.keys, node.parts, strict=True):
                value = self.make(part, (*place, key), places)
                if isinstance(made, list):
                    made.append(value)
                else:
                    made[key] = value
            return made
        if issubclass(kind, tuple):
            values = [self.make(part, (*place, key), places) for key, part in zip(node.keys, node.parts, strict=True)]
            made = kind._make(values) if hasattr(kind, "_make") else kind(values)
            self._made[node.number] = made
            return made
        return self._module(node, Places())


def _items_of(value: Any) -> Any:
    """Return the (key, part) pairs of a Module or a container, and None for anything else."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if hasattr(type(value), "__tape_node__"):
        return list(vars(value).items())
    return None


def _empty_like(value: Any) -> Any:
    """Return a container of the class of another one, and with its attributes, such as a `default_factory`."""
    from copy import copy

    made = copy(value)
    made.clear()
    return made


def _same(a: Any, b: Any) -> bool:
    """Return whether two nodes, or what stands in their places, are the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Node):
        if a.kind is not b.kind or a.keys != b.keys or a.number != b.number:
            return False
        return all(map(_same, a.parts, b.parts))
    return bool(a.number == b.number) if isinstance(a, Leaf | _Shared) else pytree.same_constant(a.value, b.value)


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
