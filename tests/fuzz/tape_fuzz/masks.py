"""Masks in random programs: what `tc.where` does not take leaves no NaN in a gradient, whatever its derivative is.

A program says `masked(mask, f, g, x)`. Run as it is, that is `where(mask, f(x), g(x))`, in which both functions meet
values beyond their domains. Run in `guarded()`, each function is given other values where it is not taken: the "double
where" that other frameworks need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tape_core as tc

_GUARDS: ContextVar[bool] = ContextVar("guards", default=False)
_INSIDE = (0.75, -0.75)
"""Numbers in the domain of the first function, where a mask is true, and of the second one, where it is not."""


@contextmanager
def guarded() -> Iterator[None]:
    """Keep values beyond the domains of masked functions out of them."""
    token = _GUARDS.set(True)
    try:
        yield
    finally:
        _GUARDS.reset(token)


def masked(mask: Any, f: Callable[[Any], Any], g: Callable[[Any], Any], x: Any) -> Any:
    """Return `f(x)` where a mask is true, else `g(x)`."""
    if not _GUARDS.get():
        return tc.where(mask, f(x), g(x))
    taken, other = (tc.astype(tc.ones_like(x) * number, x.dtype) for number in _INSIDE)
    return tc.where(mask, f(tc.where(mask, x, taken)), g(tc.where(mask, other, x)))


root = tc.custom_jvp(tc.sqrt)
"""A square root with a rule of its own, which divides by 0 at 0 as that of `tc.sqrt` does."""
root.defjvp(lambda primals, tangents: (tc.sqrt(primals[0]), tangents[0] * 0.5 / tc.sqrt(primals[0])))
