"""What the façade says to a function that is being traced, and asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tape_core as tc
from tape_compile.tracer.traced_array import TracedArray, value_of
from tape_core.engine.recording import TRACE
from tape_core.engine.tensor import wrap
from tape_core.modes.batched import OPEN

NOT = object()
"""In place of a result: it is no instruction."""


def decided_by_value(what: str) -> None:
    """In a function that is being traced: it depends on this, so it cannot be compiled and runs as it is."""
    if (trace := TRACE.get()) is not None:
        trace.decided_by_value(what)


def runs_now(what: str) -> None:
    """The same, of what reads Variables without the trace: they are given what was assigned to them."""
    if (trace := TRACE.get()) is not None:
        trace.decided_by_value(what)
        trace.commit()


def is_assigned(*variables: tc.Variable) -> bool:
    """Whether one of these Variables, or any, is assigned before by the function that is being traced."""
    trace = TRACE.get()
    if trace is None:
        return False
    chosen = {id(variable) for variable in variables}
    return any(held.written and (not chosen or key in chosen) for key, held in trace.held.items())


def is_traced(tensor: Any) -> bool:
    """Whether a tensor of tape_core will have another value in another call."""
    array = tensor._array
    if type(array) is not TracedArray:
        return False
    trace = array.made_in
    return trace.failed is None and array.id not in trace.constants


def as_value(tensor: Any) -> Any:
    """A tensor of tape_core without the trace that it is from."""
    return wrap(value_of(tensor._array), tensor.backend.library)


def symbol(tensor: tc.Tensor) -> str | None:
    """What a tensor is called that has no one value; None where it has one."""
    if not is_traced(tensor):
        return None
    array = tensor._array
    trace = array.made_in
    if array.id in trace.inputs:
        return f"args_{trace.inputs.index(array.id)}:0"
    for instruction in reversed(trace.instructions):
        if array.id in (found := instruction.outputs):
            return f"{instruction.name}:{found.index(array.id)}"
    return "Tensor:0"


def as_instruction(make: Callable[[], Any]) -> Any:
    """What `make` gives: a branch or loop of tape_core, in a function that is being traced. `NOT` where none is.

    Where it is no instruction, since its functions are not alike or do what no branch may, the function that is traced
    runs as it is.
    """
    trace = TRACE.get()
    if trace is None or trace.failed is not None or OPEN.get():
        return NOT
    try:
        return make()
    except (TypeError, ValueError, RuntimeError) as error:
        trace.decided_by_value(f"a branch or a loop ({error})")
        return NOT
