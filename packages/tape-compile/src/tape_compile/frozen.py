"""Copies of the arrays that a trace keeps as constants, so that later writes to the originals do not change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from tape_core.backends import backend_of_type

from tape_compile.program import Raw

# The id of an original to weak references to it and to its copy, which traces keep alive.
_copies: dict[int, tuple[Any, Any]] = {}
_own_copies: dict[int, Any] = {}  # weak references to the copies by id: nobody writes to them, so none is copied


def frozen(array: Raw) -> Raw:
    """Return a copy of an array with its present values, which all traces share until the original changes.

    Immutable arrays are returned themselves.
    """
    key = id(array)
    kept = _own_copies.get(key)
    if kept is not None and kept() is array:
        return array
    backend = backend_of_type(type(array))
    if backend is None or type(array) in backend.scalar_types:
        return array
    entry = _copies.get(key)
    if entry is not None and entry[0]() is array:
        copy = entry[1]()
        if copy is not None and _have_same_layout(array, copy) and backend.is_as(array, copy):
            return copy
    copy = backend.frozen(array)
    if copy is array:
        return array
    try:
        _copies[key] = ref(array, _forget(_copies, key)), ref(copy)
        _own_copies[id(copy)] = ref(copy, _forget(_own_copies, id(copy)))
    except TypeError:  # arrays of that kind have no weak references
        _copies.pop(key, None)
    return copy


def _forget(table: dict[int, Any], key: int) -> Callable[[ref[Any]], None]:
    """Return a callback for a weak reference that drops its entry, unless a new array has taken the id."""

    def forget(gone: ref[Any]) -> None:
        found = table.get(key)
        if found is gone or (type(found) is tuple and found[0] is gone):
            table.pop(key, None)

    return forget


def _have_same_layout(a: Raw, b: Raw) -> bool:
    strides = getattr(a, "strides", None)
    return bool(a.shape == b.shape and a.dtype == b.dtype and strides == getattr(b, "strides", None))
