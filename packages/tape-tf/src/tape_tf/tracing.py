"""What the façade says to a function that is being traced, and asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tape_core as tc
from tape_core.engine.tensor import wrap
from tape_core.modes.batched import OPEN
from tape_core.staging import TracedValue, current, value_of

NOT = object()
"""In place of a result: it is no instruction."""


def require_value(what: str) -> None:
    """In a function that is being traced: it depends on this, so it cannot be compiled and runs as it is."""
    if (trace := current()) is not None:
        trace.require_value(what)


def runs_now(what: str) -> None:
    """The same, of what reads Variables without the trace: they are given what was assigned to them."""
    if (trace := current()) is not None:
        trace.require_value(what)
        trace.commit()


def is_assigned(*variables: tc.Variable) -> bool:
    """Whether one of these Variables, or any, is assigned before by the function that is being traced."""
    stage = current()
    return stage is not None and stage.is_assigned(*variables)


def is_traced(tensor: tc.Tensor) -> bool:
    """Whether a tensor of tape_core differs between the runs of the function that is being traced."""
    array = tensor._array
    return isinstance(array, TracedValue) and array.made_in.is_traced(array)


def as_value(tensor: Any) -> Any:
    """A tensor of tape_core without the trace that it is from."""
    return wrap(value_of(tensor._array), tensor.backend.library)


def symbol(tensor: tc.Tensor) -> str | None:
    """The name of a tensor that differs between runs; None where it has one value."""
    array = tensor._array
    return array.made_in.symbol(tensor) if isinstance(array, TracedValue) else None


def as_instruction(make: Callable[[], Any]) -> Any:
    """What `make` gives: a branch or loop of tape_core, in a function that is being traced. `NOT` where none is.

    Where it is no instruction, since its functions are not alike or do what no branch may, the function that is traced
    runs as it is.
    """
    trace = current()
    if trace is None or trace.failed is not None or OPEN.get():
        return NOT
    try:
        return make()
    except (TypeError, ValueError, RuntimeError) as error:
        trace.require_value(f"a branch or a loop ({error})")
        return NOT
