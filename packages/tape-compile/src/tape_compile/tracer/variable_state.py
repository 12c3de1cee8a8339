"""The state of Variables and host numbers during a trace, which nobody outside the trace can see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from tape_core import Variable
from tape_core.staging import HostNumber
from tape_core.tracing import Bound

from tape_compile.program import Raw
from tape_compile.tracer.traced_array import TracedArray
from tape_compile.tracer.traced_backend import tracing_backend

Bindings: TypeAlias = Mapping[int, Bound] | None


def real_place(variable: Variable | HostNumber, bindings: Bindings) -> Any:
    """Return what keeps the value outside of traces: the Variable, or what it is bound to around the trace."""
    return (bindings and bindings.get(id(variable))) or variable


def tracing_backend_of(variable: Variable | HostNumber, bindings: Bindings) -> Any:
    return None if isinstance(variable, HostNumber) else tracing_backend(real_place(variable, bindings)._home)


class VariableState:
    """The state of a Variable in a trace; the Variable itself keeps its value until the commit.

    Attributes:
        first: the value at the start, an input of the program; None if the Variable was made in this run.
        now: the value at this point.
        trainable: the flag at the start; a trace fits only while it is the same.
    """

    __slots__ = ("first", "now", "trainable", "variable")

    def __init__(self, variable: Variable | HostNumber, first: Raw, now: Raw) -> None:
        self.variable: Any = variable  # callers know which of the two kinds it is
        self.first = first
        self.now = now
        self.trainable = getattr(variable, "trainable", True)

    @property
    def written(self) -> bool:
        """Return whether it was assigned, to another value than at the start."""
        # By ids, not by objects: each read of a Variable makes a tracer of its own (`Trace.read`).
        if type(self.first) is TracedArray and type(self.now) is TracedArray:
            return bool(self.first.id != self.now.id)
        return self.first is not self.now
