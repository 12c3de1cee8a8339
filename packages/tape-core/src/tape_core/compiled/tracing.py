"""Contexts in which functions are traced and compiled: what they do to Variables and to Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from tape_core.backends import selection
from tape_core.backends.traced import TRACE, Traced
from tape_core.compiled.held import ARRAY, BACKEND
from tape_core.recording import ACTIVE
from tape_core.variable import Variable

if TYPE_CHECKING:
    from tape_core.compiled.trace import Trace


def _get_array(self: Variable) -> Any:
    trace = TRACE.get()
    return ARRAY.__get__(self) if trace is None else trace.read(self)


def _set_array(self: Variable, array: Any) -> None:
    trace = TRACE.get()
    if trace is None:
        ARRAY.__set__(self, array)
    else:
        trace.write(self, array)


def _get_backend(self: Variable) -> Any:
    backend = BACKEND.__get__(self)
    return backend if TRACE.get() is None else backend.traced


def _set_backend(self: Variable, backend: Any) -> None:
    BACKEND.__set__(self, backend.base if isinstance(backend, Traced) else backend)


_SHOWN = {"_array": property(_get_array, _set_array), "backend": property(_get_backend, _set_backend)}
_lock = Lock()
_running = 0
_collects = True  # whether Python's garbage collector was on


def _hide(change: int) -> None:
    """While any trace runs, in any thread, Variables ask whether it is in theirs.

    There is no garbage collection: it would look through all that a trace makes again and again, and find it in use.
    """
    global _running, _collects
    with _lock:
        _running += change
        if change == 1 and _running == 1:
            _collects = gc.isenabled()
            gc.disable()
            for name, shown in _SHOWN.items():
                setattr(Variable, name, shown)
        elif _running == 0:
            if _collects:
                gc.enable()
            for name in _SHOWN:
                delattr(Variable, name)


@contextmanager
def compiling() -> Iterator[None]:
    """A context in which a trace becomes code, after which all that is there is old to the garbage collector.

    It would look through the code's programs, which stay. What the function has left, a function inside it that calls
    itself, say, it looks through before.
    """
    if _collects:
        gc.collect(0)
    yield
    if _collects and gc.get_freeze_count() == 0:  # what somebody has frozen would thaw
        gc.freeze()
        gc.unfreeze()


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """A context that is noted, in which new arrays are constants and nothing else records."""
    chosen = selection.select()
    token, tapes = TRACE.set(trace), ACTIVE.set(())
    _hide(1)
    try:
        with selection.use_backend(chosen.backend.traced, chosen.device):
            yield
    finally:
        _hide(-1)
        ACTIVE.reset(tapes)
        TRACE.reset(token)


@contextmanager
def outside() -> Iterator[None]:
    """A context in the middle of a trace that is not noted."""
    token, tapes = TRACE.set(None), ACTIVE.set(())
    try:
        yield
    finally:
        ACTIVE.reset(tapes)
        TRACE.reset(token)
