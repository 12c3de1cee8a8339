"""What a function finds around it: the Tensors that tapes know, and the Variables that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tape_core.backends.batched import detached
from tape_core.plan import Part
from tape_core.recording import ACTIVE, ASSIGNING
from tape_core.rules import slot_at
from tape_core.tensor import Tensor, wrap
from tape_core.transforms.calls import Readers, reading
from tape_core.variable import Variable


class Closure:
    """What a function has read besides its arguments.

    Attributes:
        tensors: Tensors that the recorders around know.
        variables: Variables with a derivative.
        found: those Tensors and the values of Variables, by the id of their slots.
    """

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.variables: list[Variable] = []
        self.found: dict[int, Tensor] = {}  # it keeps the slots

    def note(self, array: Any, slots: dict[int, int], backend: Any) -> None:
        """A value has been computed with, which has these slots; below a vmap, too, if it is the same there."""
        known = self.found.get(id(slots))
        if known is None or backend.height < known.backend.height:
            self.found[id(slots)] = wrap(detached(array), backend, slots)


class Capture:
    """Where a tape or an accumulator was, under its key: what would be recorded there is noted.

    What is computed gets no slot, so only values from around the function come here.
    """

    __slots__ = ("_closure", "_key", "_parts")

    _forward = _complex = True  # its records say all
    _masked = _sparse = False

    def __init__(self, key: int, closure: Closure) -> None:
        self._key = key
        self._closure = closure
        self._parts: list[dict[int, int]] = []  # the slots of an op's several results

    @property
    def _records(self) -> Any:
        return self

    def _on_read(self, variable: Variable) -> None:
        """Variables are another's matter."""

    def _meet(self, op: Any, backend: Any, out: Any) -> None:
        """Before a record."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, slot: Any) -> None:
        """What recorded a slot: it is not known here."""

    def append(self, rec: tuple[Any, ...]) -> None:
        """An op has computed with what the recorder knows."""
        plan = rec[0]
        if type(plan) is Part:
            del self._parts[plan.k][self._key]
            return
        end = slot_at(plan.n)
        if type(rec[end + 1]) is list:
            self._parts = rec[end + 1]
        else:
            del rec[end + 1][self._key]
        inputs = zip(*rec[2:5], strict=True) if plan.op.sequence else [rec[k : k + 3] for k in range(2, end, 3)]
        for slot, array, slots in inputs:
            if slot is not None:
                self._closure.note(array, slots, plan.backend)


def is_recorded() -> bool:
    """Whether anything records that needs a derivative."""
    return any([type(recorder) not in (Readers, Capture) for recorder in ACTIVE.get()])


def is_noted() -> bool:
    """Whether a function is looked at here, which is run again for its derivative."""
    return ASSIGNING.get() is not None


@contextmanager
def closure_of(what: str) -> Iterator[Closure]:
    """A context in which nothing records, and what is read is noted; arguments must come into it detached.

    Raises:
        RuntimeError: a Variable is assigned in it.
    """

    def refuse(variable: Variable) -> None:
        raise RuntimeError(
            f"{what}: the function assigns to {variable.name or 'a Variable'} of shape {variable.shape} where a tape "
            f"or accumulator records, and would do so again for the derivative; return the new value as part of the "
            f"result or of the carry, and assign it afterwards"
        )

    closure = Closure()
    captures = [Capture(recorder._key, closure) for recorder in ACTIVE.get()]
    assigning = ASSIGNING.set(refuse)
    try:
        with reading(alone=True) as readers:
            token = ACTIVE.set((readers, *captures))
            try:
                yield closure
            finally:
                ACTIVE.reset(token)
    finally:
        ASSIGNING.reset(assigning)
    closure.variables = [v for v in readers.found if v.dtype.inexact]
    known = {id(v._slots) for v in closure.variables}
    closure.tensors = [t for s, t in closure.found.items() if s not in known]
