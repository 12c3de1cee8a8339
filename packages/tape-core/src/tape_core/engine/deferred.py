"""Deferred values of Variables: a compiler keeps them in larger arrays; they become arrays when they are read.

A step of training has new values for each parameter, and for what an optimizer keeps of it. To make arrays of some
hundred small ones, and to give them to the code again in the next step, may take longer than the arithmetic. So the
values of an executable's Variables are in one object, a :class:`Cell`, and a new value of that replaces all of them.

Of such a Variable the slot `_raw` is empty, so that Python asks `__getattr__` for it, which goes by the slot
`_deferred`. A value in `_raw` comes first: who assigns need not know of all this. A class with `__getattr__` is slower
in every access, so Variables have it from the first deferred value in the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

from tape_core.engine.variable import Variable
from tape_core.typing import Raw, Slots

slots_of: Callable[[Any], Slots] = attrgetter("_raw_slots")


class Held:
    """The values of several Variables in the form in which a compiler keeps them.

    In the inputs and outputs of code it is in the place of the first of these values, and None in those of the others.
    """

    __slots__ = ()

    @property
    def arrays(self) -> list[Raw]:
        """The values as arrays: the same ones each time."""
        raise NotImplementedError

    def array(self, number: int) -> Raw:
        """Return one of them."""
        return self.arrays[number]


class Cell:
    """The deferred values of the Variables of an executable, and of others that have the same ones.

    Attributes:
        serials: of these Variables, for each of the values.
        values: theirs.
        slots: those that Variables have with these values: with another value, a Variable has others. None are known
            before there are values.
        is_read: whether one has been read since Variables were told of this cell: somebody may put it back, as an
            array, and then a Variable has that.
    """

    __slots__ = ("is_read", "serials", "slots", "values")

    def __init__(self, serials: Sequence[Sequence[int]]) -> None:
        self.serials = serials
        self.values: Sequence[Held] = ()
        self.slots: Sequence[Slots] = ()
        self.is_read = False


Place = tuple[Cell, int, int]
"""Where the value of a Variable is: the cell, which of its values, and which of the arrays of that."""


def cell_of(groups: Sequence[Sequence[Any]]) -> Cell:
    """Return a cell for the values of these Variables: the one in which they are already, if there is one."""
    serials = [[variable._serial for variable in group] for group in groups]
    place: Place | None = getattr(groups[0][0], "_deferred", None)
    return place[0] if place is not None and place[0].serials == serials else Cell(serials)


def settled(values: Iterable[Any], groups: Iterable[Sequence[int]]) -> list[Raw]:
    """Return inputs or outputs of code with arrays for deferred values, whose places are in groups."""
    found = list(values)
    for places in groups:
        held = found[places[0]]
        if isinstance(held, Held):
            for at, array in zip(places, held.arrays, strict=True):
                found[at] = array
    return found


def enable() -> None:
    """Have Variables look for deferred values."""
    setattr(Variable, "__getattr__", _getattr)  # noqa: B010 - for type checkers, Variable has none


def _getattr(self: Variable, name: str) -> Any:
    if name == "_raw":
        try:
            cell, at, number = self._deferred
        except AttributeError:
            pass  # it has no value yet
        else:
            cell.is_read = True
            return cell.values[at].array(number)
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


def assignments(variables: Iterable[Variable], places: Iterable[Place], slots: Iterable[Slots]) -> Iterable[None]:
    """Return an iterator that tells Variables where their values are, in calls of C functions.

    All are made in one call of `any`, as those of :class:`~tape_core.engine.commit.Commit`. That needs a GIL: without
    one, others would see a Variable without a value.
    """
    raw = repeat("_raw")
    return chain(
        map(setattr, variables, repeat("_deferred"), places),
        # The slot may be empty already, which `delattr` would refuse.
        map(setattr, variables, raw, repeat(None)),
        map(delattr, variables, raw),
        map(setattr, variables, repeat("_raw_slots"), slots),
    )
