"""Copies of arrays from around compiled functions, which are constants: writing to the original changes no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from tape_core.backends import backend_of_type

from tape_compile.program import Raw

# By the id of an original weak references to it and to its copy, which traces keep alive.
_copies: dict[int, tuple[Any, Any]] = {}
_own: dict[int, Any] = {}  # by id weak references to the copies: nobody writes to them, so they need no copy again


def frozen(array: Raw) -> Raw:
    """A copy of an array with its values of now, which all traces share while the original does not change.

    Immutable arrays are returned themselves.
    """
    key = id(array)
    kept = _own.get(key)
    if kept is not None and kept() is array:
        return array
    backend = backend_of_type(type(array))
    if backend is None or type(array) in backend.scalar_types:
        return array
    entry = _copies.get(key)
    if entry is not None and entry[0]() is array:
        copy = entry[1]()
        if copy is not None and _alike(array, copy) and backend.is_as(array, copy):
            return copy
    copy = backend.frozen(array)
    if copy is array:
        return array
    try:
        _copies[key] = ref(array, _forget(_copies, key)), ref(copy)
        _own[id(copy)] = ref(copy, _forget(_own, id(copy)))
    except TypeError:  # arrays of that kind have no weak references
        _copies.pop(key, None)
    return copy


def _forget(table: dict[int, Any], key: int) -> Callable[[ref[Any]], None]:
    """A callback of a weak reference: drop its entry, unless another array has got the id meanwhile."""

    def forget(gone: ref[Any]) -> None:
        found = table.get(key)
        if found is gone or (type(found) is tuple and found[0] is gone):
            table.pop(key, None)

    return forget


def _alike(a: Raw, b: Raw) -> bool:
    strides = getattr(a, "strides", None)
    return bool(a.shape == b.shape and a.dtype == b.dtype and strides == getattr(b, "strides", None))
