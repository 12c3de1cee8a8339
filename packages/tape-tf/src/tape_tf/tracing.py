"""The façade's questions and reports to the trace of the function that is being compiled, if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tape_core as tc
from tape_core.staging import TracedValue, current, value_of
from tape_core.support import OPEN_AXES, wrap

NOT_TRACED = object()
"""The result of :func:`as_instruction` where there is no instruction; None may be a result."""


def require_value(what: str) -> None:
    """Tell the trace, if one runs, that Python depends on the value of `what`: the function cannot be compiled."""
    if (trace := current()) is not None:
        trace.require_value(what)


def run_uncompiled(what: str) -> None:
    """Like :func:`require_value`, for code that reads Variables without the trace: assign their new values now."""
    if (trace := current()) is not None:
        trace.require_value(what)
        trace.commit()


def is_assigned(*variables: tc.Variable) -> bool:
    """Return whether the function being traced has assigned to one of these Variables (to any, if none is given)."""
    stage = current()
    return stage is not None and stage.is_assigned(*variables)


def is_traced(tensor: tc.Tensor) -> bool:
    """Return whether a tape_core tensor is computed by the trace: its value differs from call to call."""
    array = tensor._array
    return isinstance(array, TracedValue) and array.made_in.is_traced(array)


def without_trace(tensor: tc.Tensor) -> Any:
    """Return a tape_core tensor with its present value, detached from its trace."""
    return wrap(value_of(tensor._array), tensor.backend.library)


def symbol(tensor: tc.Tensor) -> str | None:
    """Return the name under which a traced tensor is printed, as in a TensorFlow graph; None for others."""
    array = tensor._array
    return array.made_in.symbol(tensor) if isinstance(array, TracedValue) else None


def as_instruction(make: Callable[[], Any]) -> Any:
    """Run `make`, a branch or a loop of tape_core, as one instruction of the trace; :data:`NOT_TRACED` if none runs.

    The branches of an instruction must return alike values and may not do what depends on Python. Where that does not
    hold, the function that is being traced falls back to plain Python.
    """
    trace = current()
    if trace is None or trace.failed is not None or OPEN_AXES.get():  # inside vmap branches run as Python
        return NOT_TRACED
    try:
        return make()
    except (TypeError, ValueError, RuntimeError) as error:
        # The error is kept for the message, and the branch or loop runs again in Python, where it may well work.
        trace.require_value(f"a branch or a loop ({error})")
        return NOT_TRACED
