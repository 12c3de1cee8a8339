"""The cache key of a call: the structure of its arguments, and of each leaf the dtype and shape, or the value.

Two calls with equal keys run one trace; so a key has all on which the instructions of a trace may depend besides the
values in arrays and Variables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from numbers import Number
from typing import Any, TypeAlias
from weakref import ref

from tape_core import IndexedSlices, Tensor, Variable
from tape_core.backends import backend_of_type, selection
from tape_core.support import SCALARS, binding, dtypes, is_number, layouts, placement, pytree, read, wrap

from tape_compile.cache import compares_by_identity, identity_compares
from tape_compile.methods import Bound, unbound

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = Mapping[str, Any]
Static: TypeAlias = Sequence[tuple[str, Any, Hashable]]
"""Static arguments: name, value, key."""

_NO_ARRAYS = frozenset({str, type(None), *SCALARS})  # classes that are no arrays: no backend need be asked
_NOTHING = object()
EXACT = frozenset({bool, int, str, type(None)})  # classes whose equal values cannot be told apart; of floats they can
STATIC, TENSOR, SLICES = 0, 1, 2


class Signature:
    """The arguments of a call as leaves, and the cache key.

    Attributes:
        key: equal for calls that one trace serves.
        leaves, structure: the arguments as a pytree; raw arrays as Tensors.
        kinds: of each leaf `STATIC`, `TENSOR` or `SLICES`.
        host: of each leaf of host data that is yet to be moved to its library its place, the data, and the function's
            name; `upload` moves them.
        uploaded: the Tensor that was made of the first leaf of host data, if no other argument said where it belongs.
    """

    __slots__ = ("_beside", "host", "key", "kinds", "leaves", "structure", "uploaded")

    def __init__(
        self, args: Args, kwargs: Kwargs, static: Sequence[Hashable], name: str, place: Tensor | None = None
    ) -> None:
        self.uploaded: Tensor | None = None
        self._beside: Any = None
        self.host: list[tuple[int, Any, str]] = []
        self.leaves: list[Any]
        self.structure: Any
        orders: Sequence[Any] = ()
        if not kwargs and all([type(arg) is Tensor or _is_leaf(arg) for arg in args]):
            self.leaves, self.structure = list(args), tuple
        else:
            self.leaves, self.structure, orders = pytree.flatten_call(args, kwargs)
        self.kinds: list[int] = []
        # The count of keyword arguments tells f(1, a=x) from f((1,), {'a': x}), whose trees are equal.
        parts: list[Any] = [self.structure, len(kwargs), *orders, *static, *environment()]
        for k, leaf in enumerate(self.leaves):
            kind = type(leaf)
            if kind is not Tensor:
                if kind is IndexedSlices:
                    self.kinds.append(SLICES)
                    for part in (leaf.values, leaf.indices):
                        parts += [part.backend, part._array.shape, part._array.dtype, part._array.device]
                    parts.append(leaf.dense_shape)
                    continue
                # A raw array is an input as a Tensor is; only what is no array at all becomes a constant of the trace.
                if kind in _NO_ARRAYS or isinstance(leaf, Variable) or (raw := self._of_raw(k, name, place)) is None:
                    self.kinds.append(STATIC)
                    where = lambda k=k: f"{name}: argument {self._path(k, bool(kwargs))}"  # noqa: E731
                    parts.append(static_key(leaf, where))
                    continue
                if type(raw) is tuple:
                    self.kinds.append(TENSOR)
                    parts += raw
                    continue
                leaf = self.leaves[k] = raw
            # Not the values: they are inputs of the program. All that an instruction may depend on besides is here.
            array = leaf._array
            self.kinds.append(TENSOR)
            parts += (leaf.backend, array.shape, array.dtype, array.device)
            if layouts.in_use:
                parts.append(leaf.backend.place(array))
        self.key = tuple(parts)

    def _of_raw(self, k: int, name: str, place: Tensor | None) -> Tensor | tuple[Any, ...] | None:
        """Return a leaf as a Tensor, or its part of the key where its array is yet to be moved; None if it is no array.

        Host data go where the other arguments are, as they do beside an operand.
        """
        leaf = self.leaves[k]
        owner = backend_of_type(type(leaf))
        if owner is None:
            return None
        if not owner.host_data:
            return read(leaf, name)  # type: ignore[no-any-return]
        if is_number(leaf):
            return None  # NumPy's numbers are weak as Python's are, and as these constants of the trace
        if self._beside is None:
            tensors = (other for other in self.leaves if isinstance(other, Tensor))
            self._beside = next(tensors, _NOTHING) if place is None else place
        beside = self._beside
        if isinstance(beside, Tensor):
            target = beside.backend.library
            device = None if target is owner else beside.device
        else:
            target, device, _ = selection.select()
        as_argument = None if target is owner else target.as_argument(leaf, device)
        if as_argument is None:
            tensor = read(leaf, name, beside)
        else:
            array, raw_device = as_argument
            tensor = self.leaves[k] = wrap(array, target)
            self.host.append((k, leaf, name))
        if self.uploaded is None and beside is _NOTHING:
            self.uploaded = tensor
        return tensor if as_argument is None else (target, array.shape, array.dtype, raw_device)

    def upload(self) -> None:
        """Move host arrays that are still as code of a compiler takes them: anything else needs the library's."""
        for k, leaf, name in self.host:
            self.leaves[k] = read(leaf, name, self._beside)
        self.host = []

    def arguments(self, leaves: list[Any], with_kwargs: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments of this structure with other leaves."""
        return arguments_of(self.structure, leaves, with_kwargs)

    def _path(self, k: int, with_kwargs: bool) -> str:
        path = pytree.path(self.structure, k)
        return path[path.index("]") + 1 :] if with_kwargs else path


def _is_leaf(value: Any) -> bool:
    kind = type(value)
    if kind is Variable or kind in _NO_ARRAYS or backend_of_type(kind) is not None:
        return True
    return pytree.is_whole(value)


def arguments_of(
    structure: pytree.Structure, leaves: list[Any], with_kwargs: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments made of leaves."""
    tree = pytree.unflatten(structure, leaves)
    return tree if with_kwargs else (tuple(tree), {})


def call_with_static(
    python: Callable[..., Any], signature: inspect.Signature | None, args: Args, kwargs: Kwargs, static: Static
) -> Any:
    """Call a function, with the static arguments back in their places; without a signature it has none."""
    if signature is None:
        return python(*args, **kwargs)
    arguments = {**kwargs, **{name: value for name, value, _ in static}}
    bound = inspect.BoundArguments(
        signature, {name: arguments[name] for name in signature.parameters if name in arguments}
    )
    return python(*bound.args, **bound.kwargs)


def environment() -> tuple[Any, ...]:
    """Return the part of a key for the settings that a trace depends on: the places of new arrays and of Variables."""
    chosen = selection.select()
    default = dtypes.get_default_dtype()
    if binding.in_use:
        return chosen.backend, chosen.device, default, placement.moves, *binding.differing_specs()
    return chosen.backend, chosen.device, default, placement.moves


def sees_keyword_order(python: Callable[..., Any]) -> bool:
    """Return whether a function may see the order of keyword arguments: it has `**kwargs`, or no code to look at."""
    code = getattr(getattr(python, "__func__", python), "__code__", None)
    return code is None or bool(code.co_flags & inspect.CO_VARKEYWORDS)


def static_key(value: Any, where: Callable[[], str]) -> Hashable:
    """Return the part of a key for a value that is no array: equal for values that a function cannot tell apart.

    Raises:
        TypeError: it is not hashable.
    """
    kind: Any = type(value)
    if kind in EXACT:
        return kind, value
    if is_identity_all(kind):
        return kind, ref(value)
    if isinstance(value, Bound):
        value = unbound(value)
    if isinstance(value, Variable):
        return kind, value._serial
    if isinstance(value, Number) and not isinstance(value, Enum):
        return kind, repr(value)  # 0.0 is not -0.0, and NaN is NaN
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"{where()} is a {kind.__name__}, which is neither an array nor hashable, so it cannot be told whether it "
            f"is the same as in another call; give it as a Tensor, or as a tuple or frozen dataclass"
        ) from None
    # Two that are equal may have parts that are equal and can be told apart: 2 and 2.0, 0.0 and -0.0.
    if isinstance(value, frozenset):
        return kind, frozenset([static_key(part, where) for part in value])
    parts: list[Any] = []
    if isinstance(value, tuple):
        parts = list(value)
    elif is_dataclass(value):
        parts = [getattr(value, field.name, None) for field in fields(value) if field.compare]
    elif hasattr(kind, "__attrs_attrs__"):
        parts = [getattr(value, field.name, None) for field in kind.__attrs_attrs__ if field.eq]
    # A key must not keep an object alive that nobody else can compare with; weak references compare as their objects
    # do.
    known = ref(value) if compares_by_identity(value) else value
    return (kind, known, *[_part_key(part, where) for part in parts]) if parts else (kind, known)


@lru_cache(maxsize=256)
def is_identity_all(kind: type) -> bool:
    """Return whether nothing but which one it is tells an instance of a class from others, as with Modules."""
    if issubclass(kind, Variable | Bound | Number | frozenset | tuple) or hasattr(kind, "__attrs_attrs__"):
        return False
    return not is_dataclass(kind) and identity_compares(kind)


def _part_key(part: object, where: Callable[[], str]) -> object:
    """Return the key of a part of a hashable value: its class if it has no hash, since the whole has compared it."""
    try:
        return static_key(part, where)
    except TypeError:
        return type(part)
