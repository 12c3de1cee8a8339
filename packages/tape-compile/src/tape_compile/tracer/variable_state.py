"""What Variables and Numbers hold while a trace runs, which hides it from others, and what they hold outside of it."""

from __future__ import annotations

from typing import Any

from tape_core import Variable
from tape_core.staging import HostNumber

from tape_compile.tracer.traced_array import TracedArray
from tape_compile.tracer.traced_backend import tracing_backend


def real_value(variable: Variable | HostNumber) -> Any:
    """What it holds outside of traces."""
    return variable._raw


def tracing_backend_of(variable: Variable | HostNumber) -> Any:
    return None if isinstance(variable, HostNumber) else tracing_backend(variable._home)


class VariableState:
    """What a Variable holds while a trace runs: the Variable itself keeps its value until the end.

    Attributes:
        first: what it held at first; None if it was made in this run.
        now: what it holds now.
    """

    __slots__ = ("first", "now", "trainable", "variable")

    def __init__(self, variable: Any, first: Any, now: Any) -> None:
        self.variable = variable
        self.first = first
        self.now = now
        self.trainable = getattr(variable, "trainable", True)

    @property
    def written(self) -> bool:
        """Whether it holds something else than at first."""
        if type(self.first) is TracedArray and type(self.now) is TracedArray:
            return bool(self.first.id != self.now.id)
        return self.first is not self.now
