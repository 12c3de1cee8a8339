"""Rows added to the value of a Variable, which others may be reading: neither in place, nor by a copy of all rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from tape_core.typing import Raw

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

_before: dict[int, tuple[Any, Any, Any]] = {}
"""The id of an array that :func:`rows_added` made: a reference to it, the array before, and the rows that differ."""


def rows_added(backend: Backend, array: Raw, indices: Raw, rows: Raw) -> Any:
    """Return a new array: `array` with `rows` added at `indices` of its first axis. `array` itself is not changed.

    The next value has the memory of the last but one, if nobody else holds that: it differs from `array` in the rows
    of one update, which are brought up to date. So an update costs as much as its rows, and a Variable that is updated
    in this way takes the memory of two.
    """
    xp = backend.xp
    _, spare, differing = _before.pop(id(array), (None, None, None))
    if spare is not None and backend.is_exclusive(spare, 1):
        # Rows that the last update changed are older in the spare memory; all others are equal.
        spare[differing] = array[differing]
        found = xp.add_rows(spare, indices, rows, in_place=True)
    else:
        found = xp.add_rows(array, indices, rows, in_place=False)
    if backend.array_class is not None and array.shape:  # where references can be counted
        key = id(found)
        # By id, since arrays cannot be keys. The weak reference removes the entry before the id can be used again.
        _before[key] = ref(found, partial(_forget, key)), array, backend.asarray(indices, copy=True)
    return found


def _forget(key: int, _: object) -> None:
    _before.pop(key, None)
