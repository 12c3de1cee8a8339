"""Which thread traces a function that several call for the first time."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar

from tape_core.support import Lock, contextmanager

TRACING: ContextVar[bool] = ContextVar("tape_core.tracing", default=False)
"""Whether this context traces, what runs as it is amid a trace included."""


@contextmanager
def its_turn(lock: Lock) -> Iterator[bool]:
    """A context that other threads wait for.

    Who traces a function already does not wait: the other thread may wait for that function. Then it is not its turn.
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
