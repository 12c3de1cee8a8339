"""Closures: the Tensors and Variables that a function uses without being given them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tape_core.base.ambient import ACTIVE, OBSERVERS
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine import record
from tape_core.engine.cuts import Cuts
from tape_core.engine.levels import BatchedArray, detached
from tape_core.engine.plan import Part
from tape_core.engine.record import PLAN
from tape_core.engine.recording import COMPLEX, Recorder
from tape_core.engine.tensor import Tensor, wrap
from tape_core.engine.variable import Variable
from tape_core.staging import current
from tape_core.transforms.calls import Readers, reading
from tape_core.typing import Record, Slots

Shared = tuple[dict[int, int], dict[int, int]]


class Closure:
    """What a function has read besides its arguments.

    Attributes:
        tensors: Tensors that the recorders around know.
        variables: Variables with a derivative.
        found: those Tensors and the values of Variables, by the id of their slots.
        shared: of Tensors that all examples of a vmap share the slots, and those of their values below.
        cuts: where it is told why nothing flows through the function, of the recorders that know what goes in.
    """

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.variables: list[Variable] = []
        self.found: dict[int, Tensor] = {}  # it keeps the slots
        self.shared: list[Shared] = []
        self.cuts: list[Cuts] = []
        self._trace = current()

    def note(self, array: Any, slots: dict[int, int], backend: Any) -> None:
        """A value has been computed with, which has these slots; below a vmap, too, if it is the same there."""
        known = self.found.get(id(slots))
        if known is None or backend.height < known.backend.height:
            made_in = getattr(array, "made_in", None)
            if made_in is not None and made_in.is_inside(self._trace):
                array = array.value  # a constant, which is one of a branch or a loop there
            self.found[id(slots)] = wrap(detached(array), backend, slots)
            self._note_shared(array, slots)

    def _note_shared(self, array: Any, slots: dict[int, int]) -> None:
        if type(array) is BatchedArray and array.axis is None:
            below = array.value
            self._note_shared(below._array, below._slots)
            if below._slots and below._slots is not slots:
                self.shared.append((slots, below._slots))


class Capture(Recorder):
    """Has the key of a tape or an accumulator, in its place, and notes what that would record.

    What is computed gets no slot, so only values from around the function come here.
    """

    __slots__ = ("_closure", "_cuts", "_key", "_parts")

    _forward = True
    _special = COMPLEX  # its records have specs

    def __init__(self, key: int, closure: Closure, cuts: Cuts | None = None) -> None:
        self._key = key
        self._cuts = cuts
        self._closure = closure
        self._parts: list[Slots] = []  # the slots of an op's several results

    def _on_twin(self, tensor: Tensor) -> bool:
        """Note that a transformation reads this Tensor: the next run makes another twin of it."""
        self._closure.note(tensor._array, tensor._slots, tensor.backend)
        return False

    def _on_op(self, rec: Record) -> None:
        """Note what an op has computed with, and take back the slot of its result."""
        plan = rec[PLAN]
        if type(plan) is Part:
            del self._parts[plan.k][self._key]
            return
        slots_of_out = record.out_slots(rec)
        if type(slots_of_out) is list:
            self._parts = slots_of_out
        else:
            del slots_of_out[self._key]
        for slot, array, slots in record.inputs(rec):
            if slot is not None:
                self._closure.note(array, slots, plan.backend)


class _Refusal(Recorder):
    """Refuses assignments in a function that will run again for its derivative, and would assign once more."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def _on_assign(self, variable: Variable) -> None:
        raise RuntimeError(
            f"{self._what}: the function assigns to {variable.name or 'a Variable'} of shape {variable.shape} where a "
            f"tape or accumulator records, and would do so again for the derivative; return the new value as part of "
            f"the result or of the carry, and assign it afterwards"
        )


def is_recorded() -> bool:
    """Whether anything records that needs a derivative."""
    return any([type(recorder) not in (Readers, Capture) for recorder in ACTIVE.get()])


def is_noted() -> bool:
    """Whether a function is looked at here, which is run again for its derivative."""
    return any([type(observer) is _Refusal for observer in OBSERVERS.get()])


def taken_over(tensors: Iterable[Tensor]) -> None:
    """Tell what looks at a function that it reads these Tensors, though no op may compute with them.

    They are what it gives, which may be a Tensor from around it as it is, and what an instruction of a compiled
    function is given, which goes on with the arrays underneath.
    """
    captures = [recorder for recorder in ACTIVE.get() if type(recorder) is Capture]
    for tensor in tensors if captures else ():
        while True:
            for capture in captures:
                if capture._key in tensor._slots:
                    capture._on_twin(tensor)
            array = tensor._array
            if type(array) is not BatchedArray:
                break
            tensor = array.value


@contextmanager
def known_where_shared(shared: Sequence[Shared], key: int) -> Iterator[None]:
    """A context in which a recorder that knows values below vmaps knows what is shared in these, as if lifted there.

    A function may read both such a value and a Tensor made of it in a vmap, which has slots of its own.
    """
    given = []
    for slots, below in shared:  # the lowest first
        if key in below and key not in slots:
            slots[key] = below[key]
            given.append(slots)
    try:
        yield
    finally:
        for slots in given:
            slots.pop(key, None)


@contextmanager
def closure_of(what: str, *, assigns: bool = False) -> Iterator[Closure]:
    """A context in which nothing records, and what is read is noted; arguments must come into it detached.

    Args:
        assigns: whether the function may assign to Variables.

    Raises:
        RuntimeError: a Variable is assigned in it, and may not be.
    """
    closure = Closure()
    captures = [Capture(recorder._key, closure, recorder._cuts) for recorder in ACTIVE.get()]
    observers = OBSERVERS.get()
    with setting(OBSERVERS, observers if assigns else (*observers, _Refusal(what))):
        with reading(alone=True) as readers:
            with setting(ACTIVE, (readers, *captures)):
                yield closure
    closure.variables = [v for v in readers.found if v.dtype.inexact]
    known = {id(v._slots) for v in closure.variables}
    closure.tensors = [t for s, t in closure.found.items() if s not in known]
