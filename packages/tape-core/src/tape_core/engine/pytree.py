"""Nested structures, through optree; the common cases (a leaf, a flat list or tuple) without it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from enum import Enum
from numbers import Number
from threading import RLock
from typing import Any, TypeVar

from tape_core.base.ambient import KEEP_MODULES
from tape_core.engine.tensor import Tensor
from tape_core.engine.variable import Variable
from tape_core.typing import PyTree

# A PyTreeSpec of optree or, in the cases that do without optree, None for a leaf, and the class of a flat list or tuple
# of Tensors. `same` and `difference` bring both to optree's terms.
Structure = Any

_TENSORS = frozenset({Tensor, Variable})
_STR = frozenset({str})


def flatten(tree: PyTree) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree, None among them, and its structure. Dict views (`model.values()`) count as lists."""
    kind = type(tree)
    if kind in _TENSORS:
        return [tree], None
    if (kind is list or kind is tuple) and are_tensors(tree):
        return list(tree), kind
    return _flatten_general(tree)


def leaves(tree: PyTree) -> list[Any]:
    """Return the leaves of a tree, None among them, in a list of their own."""
    if type(tree) in _nodes_by_method:
        found, _, _ = tree.__tape_node__()
        if _PLAIN.issuperset(map(type, found)):
            return list(found)
    return list(flatten(tree)[0])


def _flatten_general(tree: PyTree) -> tuple[list[Any], Any]:
    if isinstance(tree, _DICT_VIEWS):
        tree = list(tree)
    import optree

    try:
        found = optree.tree_flatten(tree, none_is_leaf=True, namespace="tape")
        # A class is registered when its first instance is met: importing optree takes longer than a small program.
        while not _PLAIN.issuperset(map(type, found[0])) and _registered_any(found[0]):
            found = optree.tree_flatten(tree, none_is_leaf=True, namespace="tape")
        return found
    except RecursionError:
        raise ValueError(
            f"a {type(tree).__name__} that contains itself, or is nested very deeply, is no structure of arrays"
        ) from None


def flatten_call(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[Any], Structure, list[tuple[Any, ...]]]:
    """Return the leaves and the structure of the arguments of a call, as `flatten_whole` does, and their `orders`."""
    tree = args if not kwargs else (args, kwargs)
    if _nodes_by_method and not _nodes_by_method.isdisjoint(map(type, [*args, *kwargs.values()])):
        # A Module is gone through once: that takes longer than all else.
        found: list[tuple[Any, ...]] = []
        try:
            leaves, structure = _noted(tree, found)
        except RecursionError:
            return *flatten_whole(tree), []  # which says what is wrong
        if not _registered_any([leaf for leaf in leaves if type(leaf) is not _Whole]):
            return [leaf.node if type(leaf) is _Whole else leaf for leaf in leaves], structure, found
    leaves, structure = flatten_whole(tree)
    return leaves, structure, orders(tree, structure)


def is_whole(node: Any) -> bool:
    """Return whether an object is a Module that is one leaf among the arguments of a call: it holds its Variables."""
    kind = type(node)
    if not hasattr(kind, "__tape_node__") or (kind in _known and kind not in _nodes_by_method):
        return False
    return bool(node.__tape_is_whole__())


def known_parts(node: Any) -> Callable[[Any], list[Any] | None] | None:
    """Return a function of any object that returns the children of a Module with the structure of this one, else None.

    It may return None of some Modules with an equal structure, and is None if it would of this one.
    """
    if type(node) not in _nodes_by_method:
        return None
    leaves_of: Callable[[Any], list[Any] | None] = node.__tape_node__()[1].leaves_of
    return None if leaves_of(node) is None else leaves_of


def orders(tree: PyTree, structure: Structure) -> list[tuple[Any, ...]]:
    """Return the keys of each dict in a tree, in order and with their types, in which structures do not differ."""
    if structure is None or structure is list or structure is tuple:
        return []
    found: list[tuple[Any, ...]] = []
    # As many nodes as optree has counted: then none of other kinds is hidden in what looks like a leaf here.
    if type(tree) in _NODES and _walked(tree, found) == structure.num_nodes:
        return found
    # There are nodes of other kinds, which only optree can look into.
    found = []
    _noted(tree, found)
    return found


def _noted(tree: PyTree, found: list[tuple[Any, ...]]) -> tuple[list[Any], Any]:
    """Flatten a tree, with Modules that hold Variables as leaves; add the keys of each dict to `found`."""
    import optree

    def note(node: object) -> bool:
        if isinstance(node, dict):
            found.append(_keys(node))
        return False

    token = KEEP_MODULES.set(True)  # only keys of compiled calls ask
    try:
        return optree.tree_flatten(tree, note, none_is_leaf=True, namespace="tape")
    finally:
        KEEP_MODULES.reset(token)


def _walked(tree: PyTree, found: list[tuple[Any, ...]]) -> int:
    """Return the number of nodes of a tree of dicts, lists and tuples; add the keys of dicts to `found`."""
    count, nodes = 1, [tree]
    # The list grows while it is walked: breadth first, without recursion.
    for node in nodes:
        if type(node) is dict:
            if len(node) > 1 or not _STR.issuperset(map(type, node)):
                found.append(_keys(node))
            node = node.values()
        count += len(node)
        nodes += [part for part in node if type(part) in _NODES]
    return count


def _keys(node: dict[Any, Any]) -> tuple[Any, ...]:
    """Return the keys of a dict, equal to others if no function can tell them apart: 1, 1.0 and True are three."""
    return tuple(node) if _STR.issuperset(map(type, node)) else tuple(map(Constant, node))


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
    return bool(a == b) or bool(general(a, n) == general(b, n))


def difference(what: str, a: Structure, n: int, other: str, b: Structure, m: int) -> str:
    """Return a text on how two structures differ, of n and m leaves: how each is nested, or its number of leaves.

    >>> difference("tangents", list, 2, "primals", tuple, 2)
    'tangents is [*, *], primals is (*, *), where * is a leaf'
    """
    one, two = shown(a, n), shown(b, m)
    if max(len(one), len(two)) <= 120 and one != two:
        return f"{what} is {one}, {other} is {two}, where * is a leaf"
    if n != m:
        return f"{what} has {n} leaves, {other} has {m}"
    return f"both have {n} leaves, and they are nested in different ways"


def shown(structure: Structure, n: int) -> str:
    """Return a structure of n leaves as text, with * for each leaf."""
    text = str(general(structure, n)).removeprefix("PyTreeSpec(")
    return text.partition(", NoneIsLeaf")[0]


def general(structure: Structure, n: int) -> Any:
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
    leaves, structure = flatten(tree)  # this registers the classes of nodes that are new
    if prefix is None or type(prefix) is int:
        return [prefix] * len(leaves)
    if structure is type(prefix) and len(prefix) == len(leaves) and _PLAIN.issuperset(map(type, prefix)):
        return list(prefix)
    flatten(prefix)
    import optree

    try:
        found: list[Any] = optree.broadcast_prefix(prefix, tree, none_is_leaf=True, namespace="tape")
    except ValueError as error:
        raise ValueError(f"{what} {prefix!r} does not fit the structure of the {of}: {error}") from None
    return found


# -- classes that are nodes

Cls = TypeVar("Cls", bound=type)

_PLAIN = frozenset({Tensor, Variable, type(None), bool, int, float, complex, str, bytes})
"""Classes of leaves that need no look: they are no nodes."""

_registering = RLock()
_known: set[type] = set()
_nodes_by_method: set[type] = set()  # those of `_known` with a `__tape_node__`


class Constant:
    """A value in a structure; equal to another one if no function can tell the two apart."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and same_constant(self.value, other.value)

    def __hash__(self) -> int:
        # Values that have no hash themselves, such as lists, may be constants, too.
        return hash(type(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


_DEEPEST = 100  # levels; values that are nested more deeply, or in themselves, count as different


def same_constant(a: Any, b: Any, depth: int = 0) -> bool:
    """Return whether two values are the same object, or equal down to the types of numbers and the sign of zero.

    Arrays, functions and other objects without a hash of their own are compared by identity: they may be equal now and
    not later.
    """
    if a is b:
        return True
    if type(a) is not type(b) or depth > _DEEPEST:
        return False
    depth += 1
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all([same_constant(x, y, depth) for x, y in zip(a, b, strict=True)])
    if isinstance(a, dict):
        return same_constant([*a.items()], [*b.items()], depth)
    if isinstance(a, Number) and not isinstance(a, Enum):
        return repr(a) == repr(b)  # NaN is NaN, and 0.0 is not -0.0
    if isinstance(a, frozenset):
        return {(type(part), repr(part)) for part in a} == {(type(part), repr(part)) for part in b}
    # Those that compare by identity have the hash of `object`, those that compare and may change have none.
    own_hash: object = type(a).__hash__
    if own_hash is None or own_hash is object.__hash__ or a != b:
        return False
    names = [field.name for field in fields(a) if field.compare] if hasattr(a, "__dataclass_fields__") else []
    return all([same_constant(getattr(a, name), getattr(b, name), depth) for name in names])


def register_pytree(
    cls: Cls,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
) -> Cls:
    """Register a class whose instances are nodes of pytrees, so that every transformation looks into them.

    Dataclasses and named tuples need no registration: their fields are the children. Of a dataclass,
    `dataclasses.field(metadata={"static": True})` marks a field that is no child but part of the structure.

    >>> import tape_core as tc
    >>> class Line:
    ...     def __init__(self, slope, offset, name):
    ...         self.slope, self.offset, self.name = slope, offset, name
    >>> _ = tc.register_pytree(Line, lambda line: ((line.slope, line.offset), line.name),
    ...                        lambda name, children: Line(*children, name))
    >>> found = tc.grad(lambda line: line.slope * 3.0 + line.offset)(Line(2.0, 1.0, "a"))
    >>> found.slope.item(), found.offset.item(), found.name
    (3.0, 1.0, 'a')

    Args:
        cls: the class; its subclasses are registered on their own.
        flatten: a function of an instance that returns `(children, structure)`: pytrees, and what else it takes to make
            an equal instance, which is compared and hashed.
        unflatten: a function `(structure, children)` that makes an instance; the children may be anything, such as
            None, so it should not check them.

    Returns:
        The class.

    Raises:
        TypeError: `cls` is no class, or is one of Tape's own leaves.
        ValueError: the class is registered already.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_pytree: the first argument must be a class, got {cls!r}")
    if issubclass(cls, Tensor) or cls in _PLAIN:
        raise TypeError(f"register_pytree: {cls.__qualname__} is a leaf, in which nothing is looked for")
    for name, function in (("flatten", flatten), ("unflatten", unflatten)):
        if not callable(function):
            raise TypeError(f"register_pytree: {name} must be a function, got {function!r}")
    with _registering:
        if cls in _known:
            raise ValueError(f"register_pytree: {cls.__qualname__} is registered already, or is a dataclass in use")
        _register(cls, flatten, unflatten)
    return cls


def _register(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
    import optree

    optree.register_pytree_node(cls, flatten, unflatten, namespace="tape")
    _known.add(cls)


def _registered_any(leaves: Sequence[Any]) -> bool:
    """Register the classes of leaves that turn out to be nodes; return if there were any."""
    found = False
    flatten: Callable[[Any], Any]
    unflatten: Callable[[Any, Any], Any]
    for kind in {*map(type, leaves)} - _PLAIN:
        if hasattr(kind, "__tape_node__"):
            flatten, unflatten = _whole_or_parts, _from_parts
            _nodes_by_method.add(kind)
        elif hasattr(kind, "__dataclass_fields__") and not hasattr(kind, "__tape_tensor__"):
            flatten, unflatten = _dataclass_functions(kind)
        else:
            continue
        with _registering:
            if kind not in _known:
                _register(kind, flatten, unflatten)
            found = True
    return found


def _dataclass_functions(kind: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Return the functions that take a dataclass apart and put it together."""
    names = tuple([field.name for field in fields(kind) if not _is_static(field)])
    static = tuple([field.name for field in fields(kind) if _is_static(field)])

    def flatten(instance: Any) -> tuple[Any, ...]:
        children = [getattr(instance, name) for name in names]
        return children, Constant(tuple([getattr(instance, name) for name in static])), names

    def unflatten(constant: Constant, children: Sequence[Any]) -> Any:
        # Past `__init__` and `__post_init__`, which may compute or check: the children may be gradients, axes or None.
        instance = object.__new__(kind)
        for name, value in (*zip(names, children, strict=True), *zip(static, constant.value, strict=True)):
            object.__setattr__(instance, name, value)  # a frozen one refuses plain assignments
        return instance

    return flatten, unflatten


def _is_static(field: Field[Any]) -> bool:
    return bool(field.metadata.get("static", False))


# Classes of other packages, the Modules of tape_nn, are nodes by a method: `__tape_node__()` returns the children, the
# structure, which has a method `unflatten`, and the names of the children. Its method `leaves_of` returns the
# children of what it has made, if they alone have changed since, and None of any other object. Whether all leaves are
# Variables still, so that the object may as well be one leaf, is what `__tape_is_whole__()` tells.


class _Whole:
    """A node that is kept as one leaf; in a wrapper, since optree would look into it."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node


def _whole_or_parts(node: Any) -> tuple[Any, ...]:
    if KEEP_MODULES.get() and node.__tape_is_whole__():
        return (_Whole(node),), None, ("",)
    return node.__tape_node__()  # type: ignore[no-any-return]


def _from_parts(structure: Any, children: Sequence[Any]) -> Any:
    return children[0] if structure is None else structure.unflatten(children)


def flatten_whole(tree: PyTree) -> tuple[list[Any], Structure]:
    """Return the leaves and the structure of a tree in which a Module that holds Variables is one leaf.

    That is for arguments of compiled functions, which may train the Module, and for TensorFlow's structures. A Module
    that holds Tensors in place of its Variables is a node, as everywhere.
    """
    kind = type(tree)
    if kind in _TENSORS:
        return [tree], None
    if (kind is list or kind is tuple) and are_tensors(tree):
        return list(tree), kind
    token = KEEP_MODULES.set(True)
    try:
        leaves, structure = _flatten_general(tree)
    finally:
        KEEP_MODULES.reset(token)
    if not _PLAIN.issuperset(map(type, leaves)):
        leaves = [leaf.node if type(leaf) is _Whole else leaf for leaf in leaves]
    return leaves, structure


_NODES = frozenset({dict, list, tuple})
_DICT_VIEWS: Any = (type({}.values()), type({}.keys()))
