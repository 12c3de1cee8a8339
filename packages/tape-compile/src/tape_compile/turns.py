"""Turns: of several threads that call a function for the first time, one traces it, and the others wait for that."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar

from tape_core.support import Lock, contextmanager

TRACING: ContextVar[bool] = ContextVar("tape_core.tracing", default=False)
"""Whether this context traces a function, also while host code runs in the middle of it."""


@contextmanager
def tracing_turn(lock: Lock) -> Iterator[bool]:
    """A context that one thread is in at a time; it gives whether it is this thread's turn to trace.

    A thread that is tracing a function already does not wait, since the other one may wait for that function: it is not
    its turn then.
    """
    if not TRACING.get():
        with lock.held():
            yield True
    elif lock.now.acquire(blocking=False):
        try:
            yield True
        finally:
            lock.now.release()
    else:
        yield False
