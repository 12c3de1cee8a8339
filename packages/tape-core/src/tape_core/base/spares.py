"""Spare memory: what the former values of Variables had, and into which a later update writes new values.

A step of training has the old state and the new one in memory until it commits. If it frees the old arrays afterwards
and allocates new ones in the next step, the C library's heap falls to pieces, and the process grows far beyond two
states. So optimizers and compiled functions keep the old arrays, and take their memory for the next values, if nobody
else has it by then: as two buffers that take turns. Current values of Variables are not written to: an update that
fails leaves them as they are, and other threads see one state or the other. `engine/overwriting.py` has updates that
need no second state.

What the first steps have freed lies in pieces of the heap, in which nothing fits any more: it is given back to the
system, see `heap.py`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary, ref

from tape_core.typing import Raw

_GIVEN_BACK_MOST = 2  # times that a Variable has its former value given back, which is not kept: the first ones


class Spare:
    """The former array of a Variable; all that update the Variable have the same object.

    Attributes:
        kept: a list of that array, or of none: `pop` takes it once, whatever other threads do.
        made: a weak reference to the last array that an update has made. Arrays from elsewhere are not kept: their
            memory may be a file's, or a part of other memory.
    """

    __slots__ = ("__weakref__", "_given_back", "kept", "made")

    def __init__(self) -> None:
        self.kept: list[Raw] = []
        self.made: ref[Any] | None = None
        self._given_back = 0

    def keep(self, before: Raw, after: Raw) -> bool:
        """Keep the old array, after the new one was assigned; return whether its memory is to be given back instead."""
        last, self.made = self.made, ref(after)
        if last is not None and last() is before:
            self.kept[:] = (before,)
            return False
        self._given_back += 1
        return self._given_back <= _GIVEN_BACK_MOST


_spares: WeakValueDictionary[tuple[int, str], Spare] = WeakValueDictionary()
"""By the identity of what holds a Variable's value, and the attribute. That the identity may be one of a former object
does no harm, since an array is taken by its shape and dtype."""


def spare_of(holder: object, attribute: str) -> Spare:
    """Return the spare memory of a Variable, by the object that holds its value, and the attribute."""
    key = id(holder), attribute
    found = _spares.get(key)
    if found is None:
        found = _spares[key] = Spare()
    return found


def release_spares() -> None:
    """Free all spare memory: what comes now may need it, and takes none."""
    for spare in list(_spares.values()):
        spare.kept.clear()
