"""The closure of a function: the Tensors that it captures, as far as a recorder knows them, and its Variables.

A function that is recorded as one op (a checkpoint, a loop) has derivatives for these too, so they become inputs of the
record beside its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tape_core.backends.protocol import Backend
from tape_core.base.ambient import ACTIVE, OBSERVERS
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine import record
from tape_core.engine.changes import Moment
from tape_core.engine.cuts import Cuts
from tape_core.engine.levels import BatchedArray, detached
from tape_core.engine.plan import Part
from tape_core.engine.record import PLAN
from tape_core.engine.recording import COMPLEX, Recorder
from tape_core.engine.tensor import Tensor, wrap
from tape_core.engine.variable import Variable
from tape_core.staging import current
from tape_core.transforms.calls import Readers, reading
from tape_core.typing import Raw, Record, Slots

Shared = tuple[dict[int, int], dict[int, int]]


class Closure:
    """The values that a function has read besides its arguments.

    Attributes:
        tensors: the captured Tensors that a recorder around the function knows.
        variables: the Variables of inexact dtype.
        found: those Tensors and the values of the Variables, by the id of their slots.
        shared: pairs of slots, of a Tensor inside a vmap that all examples share and of its value outside.
        read: the slots of captured Tensors that are values of Variables, too, by their id: one input stands for both.
        cuts: the `Cuts` of the recorders that know an input; the derivative reports to them why nothing flows.
        moment: when the function ran first, to find Tensors as they were then.
    """

    def __init__(self, what: str = "") -> None:
        self.what = what
        self.moment = Moment()
        self.tensors: list[Tensor] = []
        self.variables: list[Variable] = []
        self.found: dict[int, Tensor] = {}  # the Tensors keep their slots alive, so that no id is used twice
        self.shared: list[Shared] = []
        self.read: dict[int, dict[int, int]] = {}
        self.cuts: list[Cuts] = []
        self._trace = current()

    def settled(self, outs: list[Any]) -> list[Any]:
        """Return the results of the function; see :meth:`Moment.settled`.

        Raises:
            RepeatedEffectError: it has changed a Tensor from around it in place.
        """
        return self.moment.settled(outs, self._refuse)

    def _refuse(self, what: str) -> Exception:
        return RepeatedEffectError(
            f"{self.what}: the function {what}, where a tape or accumulator records, and would do so again for the "
            f"derivative; return the new value as part of the result or of the carry"
        )

    def note(self, array: Raw, slots: dict[int, int], backend: Backend) -> None:
        """Note a value with these slots as read by the function; of a value and its twin in a vmap the outer one."""
        # By the identity of the slots: Tensors with one dict are one value.
        known = self.found.get(id(slots))
        if known is None or backend.height < known.backend.height:
            made_in = getattr(array, "made_in", None)
            if made_in is not None and made_in.is_inside(self._trace):
                array = array.value  # traced inside this function's own branch or loop: outside it is a constant
            self.found[id(slots)] = wrap(detached(array), backend, slots)
            self._note_shared(array, slots)

    def _note_shared(self, array: Raw, slots: dict[int, int]) -> None:
        if type(array) is BatchedArray and array.axis is None:
            below = array.value
            self._note_shared(below._array, below._slots)
            if below._slots and below._slots is not slots:
                self.shared.append((slots, below._slots))

    def shared_with(self, at: Sequence[Tensor], fresh: Sequence[Tensor]) -> list[Shared]:
        """Return the pairs for :func:`share_slots` where the function runs again, at copies of its inputs.

        A Variable reads as a copy there. A captured Tensor that is its value is the same input: it shares the slots.
        """
        pairs = list(self.shared)
        for tensor, copy in zip(at, fresh, strict=True):
            while tensor._slots and tensor._slots is self.read.get(id(tensor._slots)):
                pairs.insert(0, (tensor._slots, copy._slots))
                if type(tensor._array) is not BatchedArray or type(copy._array) is not BatchedArray:
                    break
                tensor, copy = tensor._array.value, copy._array.value
        return pairs


class Capture(Recorder):
    """A recorder that stands in for a tape or an accumulator, with its key, and notes the captured inputs of ops.

    The results of ops lose their slot again, so only values from outside the function are known to it.
    """

    __slots__ = ("_closure", "_cuts", "_key", "_parts")

    _forward = True
    _special = COMPLEX  # asks for records that hold the inputs' slots, arrays and specs

    def __init__(self, key: int, closure: Closure, cuts: Cuts | None = None) -> None:
        self._key = key
        self._cuts = cuts
        self._closure = closure
        self._parts: list[Slots] = []  # the slots of the results of the last op with several

    def _on_twin(self, tensor: Tensor) -> bool:
        """Note a Tensor that a transformation copies: each run makes a new twin of it, so the original is the input."""
        self._closure.note(tensor._array, tensor._slots, tensor.backend)
        return False

    def _on_op(self, rec: Record) -> None:
        """Note the inputs of an op, and remove the slot that its result was given."""
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


class RepeatedEffectError(RuntimeError):
    """A function that runs again for its derivative does what must happen once."""


class _Refusal(Recorder):
    """An observer that refuses assignments in a function: its derivative runs it again, which would assign twice."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def _on_assign(self, variable: Variable) -> None:
        raise RepeatedEffectError(
            f"{self._what}: the function assigns to {variable.name or 'a Variable'} of shape {variable.shape} where a "
            f"tape or accumulator records, and would do so again for the derivative; return the new value as part of "
            f"the result or of the carry, and assign it afterwards"
        )


def is_recorded() -> bool:
    """Return True if a tape or an accumulator records."""
    # These two stand in for others, or collect Variables; neither keeps records.
    return any([type(recorder) not in (Readers, Capture) for recorder in ACTIVE.get()])


def will_run_again() -> bool:
    """Return True inside a function that runs again for its derivative."""
    return any([type(observer) is _Refusal for observer in OBSERVERS.get()])


def is_captured() -> bool:
    """Return True in a function whose closure is captured, such as a checkpoint: its derivative runs it again."""
    return any([type(recorder) is Capture for recorder in ACTIVE.get()])


def note_uses(tensors: Iterable[Tensor]) -> None:
    """Note these Tensors as read by the functions whose closures are captured, even if no op computes with them.

    That is for the results of a function, which may be captured Tensors themselves, and for the operands of an
    instruction in a compiled function, which works on the raw arrays.
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
def share_slots(shared: Sequence[Shared], key: int) -> Iterator[None]:
    """Make values that are shared by all examples of a vmap known to a recorder inside it, in this context.

    A function may read both a value outside a vmap and its twin inside, which has slots of its own: the derivative
    must arrive at one input, so the twin gets the recorder's slot of the value.
    """
    given = []
    for slots, below in shared:  # the outermost vmap first, so that slots pass from level to level
        if key in below and key not in slots:
            slots[key] = below[key]
            given.append(slots)
    try:
        yield
    finally:
        for slots in given:
            slots.pop(key, None)


@contextmanager
def capture_closure(what: str, *, assigns: bool = False) -> Iterator[Closure]:
    """Capture the closure of a function that runs in the context, where nothing is recorded.

    Its arguments must enter detached, by `stop_gradient`. The closure is complete when the context ends.

    Args:
        what: the name of the function in messages.
        assigns: True if the function may assign to Variables.

    Raises:
        RuntimeError: the function assigns to a Variable and `assigns` is False.
    """
    closure = Closure(what)
    # With the key of the recorder that each stands in for: the slots of values say what that recorder knows.
    captures = [Capture(recorder._key, closure, recorder._cuts) for recorder in ACTIVE.get()]
    observers = OBSERVERS.get()
    with setting(OBSERVERS, observers if assigns else (*observers, _Refusal(what))):
        with reading(alone=True) as readers:
            with setting(ACTIVE, (readers, *captures)), closure.moment.undone_on_error():
                yield closure
    closure.variables = [v for v in readers.found if v.dtype.inexact]
    # Values of Variables are inputs already, and must not be so twice.
    known = {id(v._slots) for v in closure.variables}
    closure.tensors = [t for s, t in closure.found.items() if s not in known]
    closure.read = {s: t._slots for s, t in closure.found.items() if s in known}
