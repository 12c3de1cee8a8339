"""Errors of rules and of array libraries, in words that say which op and which backend they come from."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

from tape_core.engine.record import PLAN, kwargs
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


def record_in(error: Exception, walks: tuple[CodeType, ...]) -> Any:
    """Return the record at which a sweep has failed, from the traceback, so that the sweep need not keep it.

    Args:
        error: what the sweep has raised.
        walks: the code of the functions that walk over records, whose variable `rec` is the record.
    """
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in walks:
            return step.tb_frame.f_locals.get("rec")
        step = step.tb_next
    return None


def place_of_rule(error: Exception, rec: Any, doing: str, backend: Backend) -> str:
    """Return which rule has failed, where it stands, and on which backend.

    Args:
        error: what was raised while a rule ran.
        rec: the record whose rule it is; anything else, or None, where there was none.
        doing: what the rule was called for.
        backend: the backend of its arrays.
    """
    called: list[CodeType] = []
    step = error.__traceback__
    while step is not None:
        called.append(step.tb_frame.f_code)
        step = step.tb_next
    where = f"{doing} on backend {backend.library.name!r}"
    plan = None if rec is None else rec[PLAN]
    if getattr(getattr(plan, "op", None), "of_functions", False):
        # One op stands for all functions with derivatives of their own; where its rule stands says nothing.
        return f"{where}, in the derivative of {kwargs(rec)['call'].name}"
    rules = getattr(plan, "rules", ())
    # A rule that shares a part with others is called by a function of its own: then it may be any of them.
    own = [rule for rule in rules if getattr(rule.fn, "__code__", None) in called] or rules
    return f"{where}: {', '.join([rule.where for rule in own])}" if own else where
