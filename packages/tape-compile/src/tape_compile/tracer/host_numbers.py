"""Python numbers that are others in each call of a compiled function: counts of updates, learning rates, sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from tape_core.engine.recording import TRACE

from tape_compile.tracer.traced_array import TRACED

T = TypeVar("T", bound=Callable[..., Any])


class Number:
    """A Python number that compiled functions read and assign in each call, as they do Variables.

    Attributes:
        kept: the number, outside of traces.
        name: what files that stand alone call it.
    """

    __slots__ = ("__weakref__", "_slots", "kept", "name")
    _raw: Any  # the slot `kept`, by the name that it has in a Variable
    backend = None
    shape = ()
    _held_as = "_raw"

    def __init__(self, value: float, name: str) -> None:
        self.kept = value
        self.name = name
        self._slots: dict[int, int] = {}

    @property
    def _holder(self) -> Number:
        """Where its value is, in the attribute `_held_as`; see `tape_core.base.commit`."""
        return self

    @property
    def _array(self) -> Any:
        trace = TRACE.get()
        return self.kept if trace is None else trace.read(self)

    @_array.setter
    def _array(self, value: Any) -> None:
        trace = TRACE.get()
        if trace is None:
            self.kept = value
        else:
            trace.write(self, value)


Number._raw = Number.__dict__["kept"]


class number:
    """An attribute that is a Python number, which compiled functions read and assign in each call."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.place = f"_{name}_held"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else vars(instance)[self.place]._array

    def __set__(self, instance: Any, value: Any) -> None:
        held = vars(instance).get(self.place)
        if held is None:
            vars(instance)[self.place] = Number(value, self.name.lstrip("_"))
        else:
            held._array = value

    def of(self, instance: Any) -> Number:
        """What holds it."""
        held: Number = vars(instance)[self.place]
        return held


def of_numbers(function: T) -> T:
    """A function that gives a Python number, of numbers and arrays: in compiled code a call is one instruction.

    Of its other arguments it must need only what stays as it is.
    """

    @wraps(function)
    def run(*args: Any) -> Any:
        trace = TRACE.get()
        if trace is None or not any([type(arg) in TRACED for arg in args]):
            return function(*args)
        return trace.number(getattr(function, "__name__", "number"), function, args)

    return run  # type: ignore[return-value]
