"""Assignments that become visible all at once: to signal handlers, other threads, and whoever catches an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ProxyTypes, ref

from tape_core.base.ambient import FORMER
from tape_core.base.attributes import set_attribute
from tape_core.base.heap import give_back
from tape_core.base.spares import Spare
from tape_core.base.undoing import keep_former
from tape_core.engine import binding, layouts
from tape_core.engine.binding import Bound
from tape_core.engine.overwriting import Call, Overwriting, may_overwrite
from tape_core.engine.recording import report_assigned
from tape_core.staging import current
from tape_core.typing import Raw

if TYPE_CHECKING:
    from tape_core.engine.variable import Variable
    from tape_core.staging import HostNumber


_PROXIES = frozenset(ProxyTypes)


class Commit:
    """New values of Variables, host numbers and attributes, which nobody sees before :meth:`make`.

    CPython runs signal handlers between bytecodes, and switches threads there. `make` is one call of a C function that
    runs no Python code, so on builds with a GIL nothing comes between two of the assignments, and an exception such as
    KeyboardInterrupt comes before all of them or after all. Without a GIL each single one is whole.

    Args:
        assigns: whether these are assignments, which may bring former values back, and no update.
    """

    __slots__ = (
        "_arrays",
        "_assigns",
        "_kept",
        "_names",
        "_objects",
        "_otherwise",
        "_over",
        "_overwritten",
        "_told",
        "_values",
        "_variables",
    )

    def __init__(self, *, assigns: bool = False) -> None:
        self._assigns = assigns
        self._variables: list[Any] = []
        self._kept: list[tuple[Any, Spare, int]] = []
        self._arrays: list[Any] = []
        self._told: list[tuple[Any, Any, Any]] = []
        self._objects: list[Any] = []
        self._names: list[str] = []
        self._values: list[Any] = []
        self._over: Overwriting | None = None
        self._overwritten: list[tuple[Any, Spare]] = []
        self._otherwise: list[Callable[[Commit], None]] = []

    def value(self, variable: Variable | HostNumber, array: Raw, given: object = None) -> None:
        """Add a new raw value of a Variable or a host number; debugging tapes are told that it was made of `given`."""
        self._variables.append(variable)
        self._arrays.append(array)
        if given is not None:
            self._told.append((variable, array, given))

    @property
    def arrays(self) -> list[Raw]:
        """The new raw values of Variables, in the order in which they were added."""
        return self._arrays

    def keep(self, variable: Variable, spare: Spare, nbytes: int) -> None:
        """Have the former array of a Variable kept as spare memory, of so many bytes, once it has its new one."""
        self._kept.append((variable, spare, nbytes))

    def overwrite(
        self,
        written: Iterable[tuple[Variable, Spare]],
        counts: Sequence[Call],
        expected: Sequence[int],
        calls: Sequence[Call],
        otherwise: Callable[[Commit], None],
    ) -> None:
        """Have calls write over the old values of Variables, whose new values have been added, in the same memory.

        Args:
            written: the Variables, each with its spare memory, which it needs no more.
            counts, expected: calls that count references to the old values, and what they return if nobody else has
                them; see `engine/overwriting.py`.
            calls: what computes the new values, in this order.
            otherwise: called with another commit if somebody has them after all: adds all these values to that.
        """
        self._over = self._over or Overwriting()
        self._over.add(counts, expected, calls)
        self._overwritten += written
        self._otherwise.append(otherwise)

    def attribute(self, instance: object, name: str, value: object) -> None:
        """Add a new value of an attribute, which must be a plain one: the setter of a property is Python code.

        A `__setattr__` of the class is not called.
        """
        self._objects.append(instance)
        self._names.append(name)
        self._values.append(value)

    def make(self) -> None:
        """Make all assignments. In a trace the Variables get their values one by one: nobody else sees them yet."""
        for variable, array, given in self._told:
            report_assigned(variable, array, "assign", given)
        # `set_all` writes past the properties of a Variable; in a trace the value must go through them, into the trace.
        if current() is not None:
            for variable, array in zip(self._variables, self._arrays, strict=True):
                variable._array, variable._slots = array, {}
            any(map(set_attribute, self._objects, self._names, self._values))
            return
        if self._over is not None and not may_overwrite():
            self._renounce()
        before = [variable._raw for variable, _, _ in self._kept]
        others = self._objects, self._names, self._values
        if not set_all(self._variables, self._arrays, *others, self._over, assigns=self._assigns):
            del before
            self._renounce()
            before = [variable._raw for variable, _, _ in self._kept]
            set_all(self._variables, self._arrays, *others, assigns=self._assigns)
        for variable, spare in self._overwritten:
            spare.kept.clear()
            spare.made = ref(variable._raw)
        freed = 0
        while before:
            variable, spare, nbytes = self._kept.pop()
            if spare.keep(before.pop(), variable._raw):
                freed += nbytes
        give_back(freed)

    def _renounce(self) -> None:
        """Compute in other memory what was to be written over old values."""
        instead = Commit()
        self._over, self._overwritten = None, []
        for compute in self._otherwise:
            compute(instead)
        arrays = {id(v): array for v, array in zip(instead._variables, instead._arrays, strict=True)}
        self._arrays = [arrays.get(id(v), array) for v, array in zip(self._variables, self._arrays, strict=True)]
        self._kept = [kept for kept in self._kept if id(kept[0]) not in arrays] + instead._kept


def set_all(
    variables: Iterable[Any],
    arrays: Iterable[Any],
    objects: Iterable[Any] = (),
    names: Iterable[str] = (),
    values: Iterable[Any] = (),
    overwriting: Overwriting | None = None,
    *,
    assigns: bool = False,
) -> bool:
    """Give Variables and host numbers these raw values, and objects these attributes, all at once; see :class:`Commit`.

    Their values in a running trace stay: those outside of traces are set.

    Returns:
        False if nothing was done, since somebody has what was to be overwritten.
    """
    variables, arrays = [*variables], [*arrays]
    if binding.in_use or _PROXIES.intersection(map(type, variables)):  # compiled functions have weak proxies
        variables = [variable._place for variable in variables]
        for place, array in zip(variables, arrays, strict=True):
            if type(place) is Bound:
                place.check(array)
    holders, places = _places(variables)
    before = list(map(getattr, holders, places))  # kept to the end: what is freed may run code of others
    if layouts.in_use:
        arrays = layouts.settled(arrays, before)
    values = [*arrays, *values, *[{} for _ in variables]]  # new values are new leaves
    targets, attributes = [*holders, *objects, *variables], [*places, *names, *["_raw_slots"] * len(variables)]
    if FORMER.get():
        keep_former(targets, attributes)
    if overwriting is None:
        any(map(set_attribute, targets, attributes, values))  # which gives None
    elif not overwriting.make(targets, attributes, values):
        return False
    if layouts.are_compared:
        layouts.count(variables, *(before, arrays) if assigns else ())
    del before
    return True


def _places(variables: list[Any]) -> tuple[list[Any], list[str]]:
    """Return the objects and attributes in which Variables and host numbers keep their values."""
    # Variables keep their value in a slot of their own; host numbers in an attribute of another object, their holder.
    if all([getattr(kind, "_held_as", None) == "_raw" for kind in {*map(type, variables)}]):
        return variables, ["_raw"] * len(variables)
    return [v._holder for v in variables], [v._held_as for v in variables]


def assign_together(variables: Iterable[Any], values: Iterable[Any]) -> None:
    """Assign to Variables, as `Variable.assign` does, all at once and after all values have been checked.

    Raises:
        TypeError, ValueError: a value does not fit its Variable. Nothing is changed.
    """
    commit = Commit(assigns=True)
    for variable, value in zip(variables, values, strict=True):
        commit.value(variable, variable._assignable(value), value)
    commit.make()
