"""Turns of threads: one thread traces a function that several call for the first time, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar

from tape_core.support import Lock, contextmanager

TRACING: ContextVar[bool] = ContextVar("tape_core.tracing", default=False)
"""True while this context traces a function, and also while that calls host code outside of the trace."""


@contextmanager
def tracing_turn(lock: Lock) -> Iterator[bool]:
    """Enter a context in which one thread at a time may trace; its value says whether this thread may.

    A thread that already traces another function does not wait, since that would deadlock where two threads trace
    functions that call each other: then it may not trace, and runs the function as Python.
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
