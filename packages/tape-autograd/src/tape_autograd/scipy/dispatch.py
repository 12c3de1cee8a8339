"""Functions of SciPy that call Tape's where a value is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tape_autograd.boxes import applied, getval, holds_box
from tape_autograd.primitives import call_with_rules, has_rules

Function = Callable[..., Any]


def dispatching(raw: Function, own: Function | None, name: str, *, constant: bool = False) -> Function:
    """Return a function that calls `raw` on plain arrays, and `own` where a value is differentiated.

    Args:
        raw: SciPy's function.
        own: Tape's function of the same arguments; None if there is none.
        constant: its derivative is zero.
    """

    @wraps(raw)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not holds_box(args) and not holds_box(kwargs):
            return raw(*args, **kwargs)
        if has_rules(call):
            return call_with_rules(call, raw, args, kwargs)
        if constant:
            return raw(*map(getval, args), **{k: getval(v) for k, v in kwargs.items()})
        if own is None:
            raise NotImplementedError(
                f"{name} has no derivative here; give it one with defvjp({name}, ...), or write the function as a "
                f"primitive"
            )
        return applied(own, args, kwargs)

    return call
