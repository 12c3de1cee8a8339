"""What a function finds around it: the Tensors that tapes know, and the Variables that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from tape_core.backends.batched import BatchedArray
from tape_core.backends.traced import value_of
from tape_core.recording import ACTIVE
from tape_core.tensor import Tensor, own_slots
from tape_core.transforms.calls import reading
from tape_core.variable import Variable

_array: Any = Tensor.__dict__["_array"]  # the slot, which `_Noting` hides


class Closure:
    """What a function has read besides its arguments.

    Attributes:
        tensors: Tensors that the recorders around know.
        variables: Variables with a derivative.
    """

    def __init__(self, keys: frozenset[int]) -> None:
        self.around = _closure.get()
        self.keys = keys
        self.tensors: list[Tensor] = []
        self.variables: list[Variable] = []
        self._seen: dict[int, Tensor] = {}  # by the id of their slots; what keeps those
        self._before: dict[int, tuple[Variable, Any]] = {}  # what Variables held that were assigned

    def read(self, tensor: Tensor) -> None:
        """A Tensor is read."""
        if self.around is not None:
            self.around.read(tensor)
        if id(tensor._slots) in self._seen or type(tensor) is Variable:
            return
        if self._knows(tensor):
            self.tensors.append(tensor)
            self._seen[id(own_slots(tensor))] = tensor
            while type(array := _array.__get__(tensor)) is BatchedArray:
                tensor = array.value  # what is below is this one's matter
                self._seen[id(own_slots(tensor))] = tensor

    def _knows(self, tensor: Tensor) -> bool:
        while self.keys.isdisjoint(tensor._slots):
            array = _array.__get__(tensor)
            if type(array) is not BatchedArray:
                return False
            tensor = array.value
        return True

    def written(self, variable: Variable) -> None:
        """A Variable is about to be assigned."""
        if self.around is not None:
            self.around.written(variable)
        if id(variable) not in self._before and hasattr(variable, "_slots"):
            self._before[id(variable)] = variable, value_of(variable._array)

    def finish(self, variables: Iterable[Variable], what: str) -> None:
        """Settle what was found.

        Raises:
            RuntimeError: a Variable is another than before.
        """
        for variable, before in self._before.values():
            if value_of(variable._array) is not before:
                raise _refused(variable, what)
        self.variables = [v for v in variables if v.dtype.inexact]
        known = {id(v._slots) for v in self.variables}
        self.tensors = [t for t in self.tensors if id(t._slots) not in known and t.dtype.inexact]


def is_noted() -> bool:
    """Whether a function is looked at here, which is run again for its derivative."""
    return _closure.get() is not None


def refuse_assignment(variable: Variable, what: str) -> None:
    """For an assignment that is about to be made: it must not be where a closure is noted.

    Raises:
        RuntimeError: it is.
    """
    if _closure.get() is not None:
        raise _refused(variable, what)


def _refused(variable: Variable, what: str) -> RuntimeError:
    return RuntimeError(
        f"{what}: the function assigns to {variable.name or 'a Variable'} of shape {variable.shape} where a tape or "
        f"accumulator records, and would do so again for the derivative; return the new value as part of the result or "
        f"of the carry, and assign it afterwards"
    )


_closure: ContextVar[Closure | None] = ContextVar("tape_core.closure", default=None)


def _get_array(self: Tensor) -> Any:
    if (closure := _closure.get()) is not None:
        closure.read(self)
    return _array.__get__(self)


def _set_array(self: Tensor, array: Any) -> None:
    if (closure := _closure.get()) is not None and type(self) is Variable:
        closure.written(self)
    _array.__set__(self, array)


_lock = Lock()
_open = 0


def _note(change: int) -> None:
    """While any function is looked at, in any thread, Tensors say that they are read."""
    global _open
    with _lock:
        _open += change
        if change == 1 and _open == 1:
            type.__setattr__(Tensor, "_array", property(_get_array, _set_array))
        elif _open == 0:
            type.__setattr__(Tensor, "_array", _array)


@contextmanager
def closure_of(what: str) -> Iterator[Closure]:
    """A context in which nothing records, and what is read is noted; arguments must come into it detached.

    Raises:
        RuntimeError: a Variable is assigned in it.
    """
    closure = Closure(frozenset([recorder._key for recorder in ACTIVE.get()]))
    token = _closure.set(closure)
    _note(1)
    try:
        with reading(alone=True) as readers:
            yield closure
    finally:
        _note(-1)
        _closure.reset(token)
    closure.finish(readers.found, what)
