"""Arrays from around compiled functions: each is copied once, so that what is written to it later changes no trace."""

from __future__ import annotations

from typing import Any
from weakref import ref

from tape_core.backends import backend_of_type

# By the id of the original: both are there as long as somebody else has them.
_copies: dict[int, tuple[Any, Any]] = {}
_own: dict[int, Any] = {}  # the copies, by their ids: nobody else writes to them


def frozen(array: Any) -> Any:
    """What an array from around holds now: a copy, which all traces that use it share while it stays as it is.

    Immutable arrays are given back.
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


def _forget(table: dict[int, Any], key: int) -> Any:
    def forget(gone: Any) -> None:
        found = table.get(key)
        if found is gone or (type(found) is tuple and found[0] is gone):
            table.pop(key, None)

    return forget


def _alike(a: Any, b: Any) -> bool:
    strides = getattr(a, "strides", None)
    return bool(a.shape == b.shape and a.dtype == b.dtype and strides == getattr(b, "strides", None))
