"""The Variables of an executable whose values its code keeps from call to call; see `tape_core.engine.deferred`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from tape_core.support import COUNTS_REFERENCES, deferred, picking
from tape_core.typing import Raw, Slots

_raw_of: Callable[[Any], Raw] = attrgetter("_raw")


class Deferral:
    """The Variables of an executable whose values are deferred.

    Args:
        groups: of each array in which values are, the places of the new ones among the outputs.
        first: the place of the first new value of a Variable; assigned: the Variables that get new values.
        reads: all Variables that are read, in order.
        places: the objects and attributes that get the new values, and after them those that get new slots.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        first: int,
        assigned: list[Any],
        reads: list[Any],
        places: tuple[list[Any], list[str]],
    ) -> None:
        deferred.enable()
        self._groups = groups
        self._variables = variables = [assigned[at - first] for group in groups for at in group]
        self._reads = reads
        own = set(map(id, variables))
        self._others = [variable for variable in reads if id(variable) not in own]
        # The inputs in a call that is given what the last one has returned: others' values, those of groups, and None.
        given = [*self._others, *[assigned[group[0] - first] for group in groups]]
        inputs = {id(variable): at for at, variable in enumerate(given)}
        in_order = [inputs.get(id(variable), -1) for variable in reads]
        self._in_order = picking(in_order)
        self._cell = cell = deferred.cell_of([[assigned[at - first] for at in group] for group in groups])
        self._where = [(cell, n, at) for n, group in enumerate(groups) for at in range(len(group))]
        kept = [at for at, instance in enumerate(places[0]) if id(instance) not in own]
        self._objects = [cell, *[places[0][at] for at in kept]]
        self._names = ["values", *[places[1][at] for at in kept]]
        results = [first + at for at in kept if at < len(assigned)]
        self._with_values = self._objects[: 1 + len(results)]
        self._new_leaves = len(kept) - len(results)
        self._pick_values = picking([group[0] for group in groups])
        self._pick_others = picking(results)

    def values(self) -> tuple[Iterable[Any], bool]:
        """Return the values of all Variables that are read, and whether they are as the last call has left them."""
        slots = self._cell.slots
        if slots and all(map(is_, map(deferred.slots_of, self._variables), slots)):
            return self._in_order((*map(_raw_of, self._others), *self._cell.values, None)), True
        return map(_raw_of, self._reads), False

    def commit(self, found: tuple[Any, ...], as_left: bool) -> bool:
        """Assign the new values of all Variables at once; False, with nothing done, where they are plain arrays.

        Args:
            found: the outputs.
            as_left: what `values` has said.
        """
        values = self._pick_values(found)
        for value in values:
            if not isinstance(value, deferred.Held):
                return False
        objects, names, cell = self._objects, self._names, self._cell
        # The end of an old value may run others' code, which waits until all are assigned.
        before = list(map(getattr, self._with_values, names))
        news = [values, *self._pick_others(found), *[{} for _ in range(self._new_leaves)]]
        # New values need new slots where somebody knows the old ones: a recorder that watches, or who has read a value,
        # as assigning does, too.
        if as_left and not cell.is_read and not any(cell.slots):
            any(map(setattr, objects, names, news))
        else:
            slots: list[Slots] = [{} for _ in self._variables]
            # First, since an interrupt may come after each line: without slots the next call takes nothing as known.
            cell.slots = ()
            cell.is_read = False
            every = deferred.assignments(self._variables, self._where, slots)
            any(chain(map(setattr, objects, names, news), every))
            cell.slots = slots
        del before
        return True

    def settled(self, found: Sequence[Any]) -> tuple[Raw, ...]:
        """Return the outputs of a call with arrays for deferred values."""
        return tuple(deferred.settled(found, self._groups))


def deferrable(assigned: Sequence[Any], outputs: Sequence[int]) -> frozenset[int]:
    """Return the outputs that may be deferred values: those of Variables that keep their values themselves."""
    if not COUNTS_REFERENCES:  # without a GIL, values are not replaced in one call of C
        return frozenset()
    own = [v.backend is not None and v._held_as == "_raw" for v in assigned]
    return frozenset([k for k, is_own in zip(outputs, own, strict=True) if is_own])
