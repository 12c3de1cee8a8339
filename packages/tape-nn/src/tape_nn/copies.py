"""Functional copies of Modules: how they are made of leaves, and taken apart without a walk through all they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tape_core import Variable

from tape_nn import thresholds
from tape_nn.copy_source import StraightFunctions, straight_functions

if TYPE_CHECKING:
    from typing import Self

Place: TypeAlias = tuple[object, ...]
"""The keys that lead from a Module to a value, through lists, tuples and dicts but through no other Module."""

LEAVES = "_leaf_places"
"""The attribute of a functional copy, and of each Module in it, that has the places of its leaves: `Places`."""

ROOT = 0
"""The number of the Module itself among the nodes."""

_NOTHING = object()

existing: set[int] = set()
"""The ids of the `Alive` of all functional copies that exist."""


class Alive:
    """What all Modules of one functional copy hold, also those that are left of one; a copy of a copy has its own.

    While there is none no Module is a functional copy, nor holds one, so that a compiled call need not look through its
    Modules.
    """

    __slots__ = ()

    def __new__(cls) -> Self:
        made = object.__new__(cls)
        existing.add(id(made))
        return made

    # In a tenth of the time of a weak reference. The function is kept, since globals may be gone at the end.
    def __del__(self, forget: Callable[[int], None] = existing.discard) -> None:
        forget(id(self))

    def __reduce__(self) -> Any:
        return Alive, ()


class Places(NamedTuple):
    """Where the leaves are in a Module of a functional copy."""

    alive: Alive

    tokens: Mapping[Place, object]
    """Each place of a leaf, with a token that tied places, which had one Variable, have in common."""


class RootPlaces:
    """The `Places` of the copy itself, with what it was made of, so that it is taken apart again without a walk.

    A pickle and a deep copy have the places alone: the nodes are others there.
    """

    __slots__ = ("alive", "nodes", "skeleton", "tokens")

    def __init__(self, alive: Alive, tokens: Mapping[Place, object], skeleton: Any, nodes: list[Any]) -> None:
        self.alive, self.tokens = alive, tokens
        self.skeleton = skeleton
        # By number, without the copy itself, which is then freed when nobody refers to it any more.
        self.nodes = nodes

    def __reduce__(self) -> Any:
        return Places, (self.alive, self.tokens)


class Leaf(NamedTuple):
    """A leaf, by its number."""

    number: int


class Shared(NamedTuple):
    """A node that was met before, in another place or around this one."""

    number: int


class Constant(NamedTuple):
    """Something that is the same object in each copy."""

    value: Any

    seen: Any
    """What tells it from others: itself, or what a list, tuple or dict had in it, as `Contents`."""


class Contents(NamedTuple):
    """What was in a list, tuple or dict, which may have changed since."""

    kind: Any

    keys: tuple[object, ...] | None
    """Those of a dict."""

    parts: tuple[Any, ...]
    """Each part, or its `Contents`."""


class Node(NamedTuple):
    """A Module, or a list, tuple or dict in which there is a Variable, a leaf or a Module."""

    kind: type
    """The class of the object. The object itself would keep the Variables alive."""

    empty: Any
    """For a list or dict of a class of its own an empty one, of which copies are made; else None."""

    number: int
    """The count of nodes before it."""

    keys: tuple[object, ...]

    parts: tuple[Any, ...]
    """Its attributes, elements or entries."""


class Step(NamedTuple):
    """How a node of a copy is made, and what it has to be when the copy is taken apart."""

    number: int

    kind: Any

    of: Any
    """`list`, `tuple` or `dict`, of which it is; None for a Module."""

    empty: Any

    keys: tuple[object, ...]
    """Of its attributes, elements or entries."""

    parts: list[Any]
    """All values, with None in the places of leaves and nodes: the others are the same objects in each copy."""

    leaves: list[tuple[int, int]]
    """Of each leaf the place among the parts, and the number."""

    nodes: list[tuple[int, int]]
    """Of each node the same."""

    tokens: dict[Place, object]
    """Of a Module, for its `Places`."""


class Plan:
    """How copies with one skeleton are made and taken apart: step by step, parts before wholes.

    What is done often is written as functions in straight lines.
    """

    def __init__(self, root: Node, tokens: Sequence[object]) -> None:
        self.tokens = tokens
        self.steps: list[Step] = []
        self.variables: list[Variable] = []  # they would be leaves if they were trainable
        self.settings: list[Constant] = []  # that may change and stay the same object
        self._unfinished: set[int] = set()
        self._add(root, (), {})
        self._before_written: float = thresholds.COPIES_BEFORE_WRITTEN
        self._written: StraightFunctions | None = None

    def _add(self, node: Node, place: Place, around: dict[Place, object]) -> None:
        """Add the steps for a node, which is at a place of a Module; notes its leaves in the tokens of that."""
        of: Any = None
        if issubclass(node.kind, (list, tuple, dict)):
            of = list if issubclass(node.kind, list) else dict if issubclass(node.kind, dict) else tuple
        if of is tuple:
            self._unfinished.add(node.number)
        keys, parts = node.keys, list[Any]()
        if of is None:
            place, around = (), {}
            keys, parts = (LEAVES, *keys), [None]
        leaves, nodes = [], []
        for key, part in zip(node.keys, node.parts, strict=True):
            at = len(parts)
            parts.append(part.value if type(part) is Constant else None)
            if type(part) is Constant:
                if isinstance(part.value, Variable):
                    self.variables.append(part.value)
                elif part.seen is not part.value:
                    self.settings.append(part)
            elif type(part) is Leaf:
                leaves.append((at, part.number))
                around[(*place, key)] = self.tokens[part.number]
            else:
                if type(part) is Node:
                    self._add(part, (*place, key), around)
                elif part.number in self._unfinished:
                    raise ValueError("a tuple in a Module holds, through another Module, itself: use a list")
                nodes.append((at, part.number))
        self._unfinished.discard(node.number)
        tokens = around if of is None else {}
        self.steps.append(Step(node.number, node.kind, of, node.empty, keys, parts, leaves, nodes, tokens))

    def copy(self, leaves: Sequence[Any], skeleton: object) -> Any:
        """Return a functional copy with these leaves, which notes the skeleton."""
        return (self._make if self._written is None else self._written.made)(leaves, Alive(), skeleton)

    def leaves_of(self, module: Any, nodes: list[Any]) -> list[Any] | None:
        """Return the leaves of a copy with these other nodes; None if it may differ in anything else."""
        if self._written is not None:
            return self._written.apart(module, nodes)
        self._before_written -= 1
        if self._before_written <= 0:
            self._before_written = inf  # in this thread alone
            self._write()
        return self._take_apart(module, nodes)

    def _write(self) -> None:
        size = sum([len(step.parts) for step in self.steps]) + sum([_size(seen) for _, seen in self.settings])
        if size <= thresholds.WRITTEN_PARTS:
            names = {"Places": Places, "RootPlaces": RootPlaces, "empty": _empty, "fill": _fill, "as_tuple": _as_tuple}
            self._written = straight_functions(self.steps, self.variables, self.settings, names)

    def _make(self, leaves: Sequence[Any], alive: Alive, skeleton: object) -> Any:
        nodes: list[Any] = [None] * len(self.steps)
        # All objects exist before they are filled, since parts may refer to what is around them.
        for step in self.steps:
            if step.of is not tuple:
                nodes[step.number] = object.__new__(step.kind) if step.of is None else _empty(step.kind, step.empty)
        for number, kind, of, _, keys, parts, own, others, tokens in self.steps:
            values = parts.copy()
            for at, k in own:
                values[at] = leaves[k]
            for at, k in others:
                values[at] = nodes[k]
            if of is tuple:
                nodes[number] = _as_tuple(kind, values)
            elif of is None:
                is_root = number == ROOT
                values[0] = RootPlaces(alive, tokens, skeleton, nodes) if is_root else Places(alive, tokens)
                # Past `__setattr__`, which a class may have defined to check or convert what users assign.
                object.__setattr__(nodes[number], "__dict__", dict(zip(keys, values, strict=True)))
            else:
                _fill(nodes[number], values if of is list else dict(zip(keys, values, strict=True)))
        made, nodes[ROOT] = nodes[ROOT], None
        return made

    def _take_apart(self, module: Any, nodes: list[Any]) -> list[Any] | None:
        if any([variable.trainable for variable in self.variables]):
            return None
        if self.settings and not all([_is_as_seen(value, seen) for value, seen in self.settings]):
            return None
        found: list[Any] = [_NOTHING] * len(self.tokens)
        for number, kind, of, _, keys, expected, own, others, _ in self.steps:
            node: Any = module if number == ROOT else nodes[number]
            if type(node) is not kind:
                return None
            if of is list or of is tuple:
                parts = list(node)
                if len(parts) != len(keys):
                    return None
            else:
                entries = vars(node) if of is None else node
                if tuple(entries) != keys:
                    return None
                parts = list(entries.values())
                if of is None:
                    parts[0] = None
            for at, k in own:
                if found[k] is not _NOTHING and found[k] is not parts[at]:
                    return None  # tied leaves that are no more
                found[k] = parts[at]
                parts[at] = None
            for at, k in others:
                if parts[at] is not (module if k == ROOT else nodes[k]):
                    return None
                parts[at] = None
            if not all(map(is_, parts, expected)):
                return None
        return found


def empty_like(value: Any) -> Any:
    """Return a container of the class of another one, and with its attributes, such as a `default_factory`."""
    from copy import copy

    made = copy(value)
    made.clear()
    return made


def _empty(kind: Any, empty: Any) -> Any:
    return kind() if empty is None else empty_like(empty)


def _fill(made: Any, values: Any) -> None:
    """Put elements or entries into an empty list or dict by the methods that its class may have defined."""
    if isinstance(made, list):
        for value in values:
            made.append(value)
    else:
        for key, value in values.items():
            made[key] = value


def _as_tuple(kind: Any, values: list[Any]) -> Any:
    return kind._make(values) if hasattr(kind, "_make") else kind(values)


def _size(seen: Any) -> int:
    """Return how many parts a list, tuple or dict had, with those in them."""
    return len(seen.parts) + sum([_size(part) for part in seen.parts if type(part) is Contents])


def _is_as_seen(value: Any, seen: Any) -> bool:
    """Return whether a value is the same object as when it was seen, with the same parts."""
    if type(seen) is not Contents:
        return value is seen
    if type(value) is not seen.kind or len(value) != len(seen.parts):
        return False
    if seen.keys is not None:
        if not all(map(is_, value, seen.keys)):
            return False
        value = value.values()
    return all([now is then or _is_as_seen(now, then) for now, then in zip(value, seen.parts, strict=True)])
