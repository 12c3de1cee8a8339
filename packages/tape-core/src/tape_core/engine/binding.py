"""Bindings: contexts in which Variables have other values, such as those that a transformation gives.

A binding is in a context variable and not in the Variable, so other threads, and code around it, see the Variable as it
is. While there is none in the process nothing asks for one: call paths read Variables directly from their slots, and
are told by `IN_USE` listeners to ask when the first is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tape_core.base.ambient import ACTIVE, BINDINGS, OBSERVERS, OPEN_AXES
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.forking import Lock
from tape_core.engine.levels import BatchedArray
from tape_core.engine.recording import Recorder
from tape_core.engine.tensor import Tensor, own_slots, wrap
from tape_core.staging import BoundNumber, TracedValue, current
from tape_core.typing import Raw, Slots

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.variable import Variable
    from tape_core.staging import HostNumber

in_use = 0
"""The number of bindings in the process, in all threads. Where it is 0 a Variable has its own value."""

ask_for_bindings: list[Callable[[bool], None]] = []
"""Functions that are told when `in_use` becomes positive, or 0 again."""

_lock = Lock()


class Bound:
    """The value that a Variable has in one binding. It stands in for the Variable where values are kept: see `place`.

    Attributes:
        variable: the Variable.
        recorders: those that were active around the binding: for them the value is what it is, and no Variable is read.
    """

    __slots__ = ("_axes", "_observers", "_raw", "_raw_slots", "_root", "_stage", "recorders", "variable")
    _held_as = "_raw"

    def __init__(self, variable: Variable, value: Tensor) -> None:
        self.variable = variable
        self._root = value.backend
        self._raw = value._array
        # The very dict: for each recorder the value and the Variable are one leaf.
        self._raw_slots: Slots = own_slots(value)
        self.recorders: tuple[Recorder, ...] = tuple(ACTIVE.get())
        self._axes = OPEN_AXES.get()
        self._observers = len(OBSERVERS.get())
        self._stage = current()

    @property
    def _holder(self) -> Bound:
        return self

    @property
    def _place(self) -> Bound:
        return self

    @property
    def _home(self) -> Backend:
        # An assigned value may be on another level of vmap than the first one.
        array = self._raw
        if isinstance(array, BatchedArray | TracedValue):
            return array.backend  # type: ignore[union-attr]
        return self._root.library

    @property
    def value(self) -> Tensor:
        """The value as a Tensor, with its slots."""
        return wrap(self._raw, self._home, self._raw_slots)

    def read(self) -> Tensor:
        """Return the value as a Tensor, and tell the recorders that were entered in the binding."""
        slots = self._raw_slots
        for recorder in ACTIVE.get():
            if recorder._key not in slots and recorder not in self.recorders:
                recorder._on_read(self.variable)
        return self.value

    def observers(self) -> tuple[Recorder, ...]:
        """Return the observers of assignments that were entered in the binding."""
        return OBSERVERS.get()[self._observers :]

    def check(self, array: Raw) -> None:
        """Raise a RuntimeError for a value that means nothing where the binding was made."""
        label = f"Variable {self.variable.name!r}" if self.variable.name else "a Variable"
        while isinstance(array, BatchedArray):
            if array.axis is not None and array.axis not in self._axes:
                raise RuntimeError(
                    f"{label}: its value was given outside of a vmap, and inside each example would assign another; "
                    "give the values inside, in the function that is mapped, and return the new ones"
                )
            array = array.value._array

    def assign(self, array: Raw) -> None:
        """Replace the value.

        Raises:
            RuntimeError: the new one means nothing where the binding was made.
        """
        self.check(array)
        stage = current()
        if stage is not None and stage is not self._stage:
            label = f"Variable {self.variable.name!r}" if self.variable.name else "a Variable"
            raise RuntimeError(
                f"{label}: its value was given outside of a branch or loop of a compiled function, which assigns to "
                "it; give the values inside, and return the new ones"
            )
        self._raw = array


def bound_to(variable: Any) -> Bound | None:
    """Return the value that a Variable is bound to here, or None."""
    bindings = BINDINGS.get()
    return None if bindings is None else bindings.get(id(variable))


@contextmanager
def bind(variables: Sequence[Variable], values: Sequence[Tensor]) -> Iterator[list[Bound]]:
    """Give Variables these values in a context, and yield them with what is assigned to them there."""
    # One that is given twice has the last value, in one place.
    made = {id(variable): Bound(variable, value) for variable, value in zip(variables, values, strict=True)}
    with _counted(), setting(BINDINGS, {**(BINDINGS.get() or {}), **made}):
        yield [made[id(variable)] for variable in variables]


@contextmanager
def held_for_a_while(holders: Iterable[Variable | HostNumber], values: Iterable[Raw]) -> Iterator[None]:
    """Enter a context, outside of traces, in which Variables and host numbers have other raw values.

    What is assigned to them there stays in it. Other threads, and whoever looks after an error, see them as they are.
    """
    bounds: dict[int, Any] = {}
    for holder, value in zip(holders, values, strict=True):
        library = holder.backend
        bounds[id(holder)] = BoundNumber(value) if library is None else Bound(holder, wrap(value, library))  # type: ignore[arg-type]
    with _counted(), setting(BINDINGS, {**(BINDINGS.get() or {}), **bounds}):
        yield


class _Open:
    """A binding that is open. They are counted by weak references: one that an interrupt leaves behind goes as well."""

    __slots__ = ("__weakref__",)


_open: WeakSet[_Open] = WeakSet()


@contextmanager
def _counted() -> Iterator[None]:
    own = _Open()
    try:
        _begin(own)
        yield
    finally:
        try:
            _end(own)
        except BaseException:  # an interrupt
            _end(own)
            raise


# An interrupt may come between any two lines: call paths are told before the first binding counts, and after the last.


def _begin(own: _Open) -> None:
    global in_use
    with _lock.now:
        if not in_use:
            _tell(on=True)
        _open.add(own)
        in_use = len(_open)


def _end(own: _Open) -> None:
    global in_use
    with _lock.now:
        _open.discard(own)
        in_use = len(_open)
        if not in_use:
            _tell(on=False)


def _tell(*, on: bool) -> None:
    for ask in ask_for_bindings:
        ask(on)


def differing_specs() -> tuple[object, ...]:
    """Return, as part of a cache key, the backends, shapes and dtypes of bound values that are not the Variables'."""
    found: list[object] = []
    for bound in (BINDINGS.get() or {}).values():
        if type(bound) is BoundNumber:
            continue
        variable, value = bound.variable, bound._raw
        own = variable._raw
        spec = bound._home, tuple(value.shape), value.dtype, value.device
        if spec != (variable._home, tuple(own.shape), own.dtype, own.device):
            found += [variable._serial, *spec]
    return tuple(found)
