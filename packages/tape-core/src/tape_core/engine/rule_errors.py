"""Errors of rules and of array libraries, in words that say which op and which backend they come from."""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any

from tape_core.engine.record import PLAN
from tape_core.engine.tensor import Tensor

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

_OF_THE_STANDARD = frozenset({"T", "device", "dtype", "mT", "ndim", "shape", "size", "to_device"})
"""Attributes of arrays that Tape reads, as the standard has them."""


def missing_attribute(error: Exception, backend: Backend) -> str | None:
    """Return what to say of an attribute that the arrays of a library should have, and do not; None of other errors."""
    array = getattr(error, "obj", None)
    if type(error) is not AttributeError or error.name not in _OF_THE_STANDARD or isinstance(array, Tensor):
        return None
    if not hasattr(array, "shape") and not hasattr(array, "dtype"):
        return None
    return (
        f"arrays of backend {backend.library.name!r}, of type {type(array).__name__!r}, have no attribute "
        f"{error.name!r}, which the Array API standard asks for; a plugin can make up for it, as array_api_compat does"
    )


def place_in_sweep(error: Exception, walks: tuple[CodeType, ...], backend: Backend) -> str:
    """Return which rule of which op has failed in a sweep, where it stands, and the backend.

    Args:
        error: what the sweep has raised; it is looked up in the traceback, so that the sweep need not keep it.
        walks: the code of the functions that walk over records, whose variable `rec` is the record.
        backend: the backend of the sweep.
    """
    where = f"in the backward pass on backend {backend.library.name!r}"
    rec: Any = None
    called: list[CodeType] = []
    step: TracebackType | None = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if rec is None and code in walks:
            rec = step.tb_frame.f_locals.get("rec")
        called.append(code)
        step = step.tb_next
    plan = rec[PLAN] if rec is not None else None
    rules = getattr(plan, "rules", ())
    if not rules:
        return where
    # A rule that shares a part with others is called by a function of its own: then it may be any of them.
    own = [rule for rule in rules if getattr(rule.fn, "__code__", None) in called] or rules
    return f"{where}: {', '.join([rule.where for rule in own])}"
