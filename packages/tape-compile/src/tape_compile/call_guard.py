"""Guards of calls: whether a call is one for a known trace, without its cache key.

To make the cache key takes longer than all else that Python does in a small call. So of a trace that is used again, a
function is written that looks at the arguments one after the other, in straight lines. It may say no where keys are
equal: then the key decides.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias
from weakref import ref

from tape_core import Tensor, Variable
from tape_core.support import generated, layouts, pytree

from tape_compile.cache_key import EXACT, Args, Kwargs, Signature, environment, is_identity_all

CallGuard: TypeAlias = Callable[[Args, Kwargs], "list[Any] | None"]
"""Returns the leaves of the arguments where the call is for the trace, else None."""

_numbers = count()
_CONTAINERS = frozenset({dict, list, tuple})


class _UnguardedError(Exception):
    """An argument that the key alone can tell from others."""


def call_guard(signature: Signature, args: Args, kwargs: Kwargs) -> CallGuard:
    """Return the guard of calls with this signature; where there is none, a function that always returns None.

    Args:
        signature: without static arguments.
        args, kwargs: those of which it is.
    """
    try:
        return _Writer(signature, args, kwargs).written()
    except _UnguardedError:
        return _no_leaves


def _no_leaves(args: Args, kwargs: Kwargs) -> list[Any] | None:
    return None


class _Writer:
    """The source of a guard, while it is written."""

    def __init__(self, signature: Signature, args: Args, kwargs: Kwargs) -> None:
        self._names: dict[str, Any] = {
            "Tensor": Tensor, "Variable": Variable, "environment": environment, "known": environment(),
            "is_whole": pytree.is_whole, "layouts": layouts,
        }  # fmt: skip
        self._lines: list[str] = []
        self._leaves = [""] * len(signature.leaves)
        numbers = pytree.unflatten(signature.structure, [*range(len(signature.leaves))])
        named = numbers[1] if kwargs else {}
        self._add_container(args, numbers[0] if kwargs else tuple(numbers), "args")
        if kwargs:
            self._add_container(dict(kwargs), named, "kwargs")
        else:
            self._unless("not kwargs")

    def written(self) -> CallGuard:
        """Return the function."""
        self._unless("environment() == known and not layouts.in_use")
        lines = ["def leaves_of(args, kwargs):", *self._lines, f"    return [{', '.join(self._leaves)}]"]
        return generated("\n".join(lines), "leaves_of", f"<guard of calls {next(_numbers)}>", self._names)

    def _unless(self, condition: str) -> None:
        self._lines += [f"    if not ({condition}):", "        return None"]

    def _name(self, value: object) -> str:
        name = f"v{len(self._names)}"
        self._names[name] = value
        return name

    def _add(self, value: Any, number: Any, name: str) -> None:
        """Add the conditions for an argument, or a part of one, which the function has under a name."""
        kind: Any = type(value)
        if type(number) is not int:
            if kind in _CONTAINERS:
                self._add_container(value, number, name)
            else:
                self._add_copy(value, number, name)
            return
        self._leaves[number] = name
        if kind is Tensor:
            backend, key = self._name(value.backend), self._name(value.backend.argument_guard(value._array))
            of = self._name(value.backend.argument_guard)
            self._unless(f"type({name}) is Tensor and {name}.backend is {backend} and {of}({name}._array) == {key}")
        elif kind is Variable:
            self._unless(f"type({name}) is Variable and {name}._serial == {value._serial}")
        elif kind in EXACT:
            self._unless(f"type({name}) is {self._name(kind)} and {name} == {self._name(value)}")
        elif hasattr(kind, "__tape_node__") and is_identity_all(kind):  # a Module, which the guard keeps not alive
            self._unless(f"{name} is {self._name(ref(value))}() and is_whole({name})")
        else:
            raise _UnguardedError

    def _add_copy(self, value: Any, numbers: Any, name: str) -> None:
        """Add the conditions for a Module that has other leaves than its Variables: its structure, and its leaves."""
        parts_of = pytree.known_parts(value)
        parts, known = (None, None) if parts_of is None else (parts_of(value), parts_of(numbers))
        if parts is None or known is None:
            raise _UnguardedError
        names = [f"{name}_{at}" for at in range(len(parts))]
        self._lines.append(f"    {name} = {self._name(parts_of)}({name})")
        self._unless(f"{name} is not None")
        self._lines.append(f"    [{', '.join(names)}] = {name}")
        for part, number, of in zip(parts, known, names, strict=True):
            self._add(part, number, of)

    def _add_container(self, value: Any, numbers: Any, name: str) -> None:
        """Add the conditions for a tuple, list or dict: its length, or its keys in their order, and its parts."""
        kind = type(value)
        parts = [f"{name}_{at}" for at in range(len(value))]
        if kind is dict:
            if not all([type(key) is str for key in value]):
                raise _UnguardedError  # 1, 1.0 and True are equal keys, which the function can tell apart
            self._unless(f"type({name}) is dict and tuple({name}) == {self._name(tuple(value))}")
            keys: Any = value
            what = f"{name}.values()"
        else:
            self._unless(f"type({name}) is {self._name(kind)} and len({name}) == {len(value)}")
            keys, what = range(len(value)), name
        if parts:
            self._lines.append(f"    [{', '.join(parts)}] = {what}")
        for key, part in zip(keys, parts, strict=True):
            self._add(value[key], numbers[key], part)
