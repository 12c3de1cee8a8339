"""Contexts in which functions are traced."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the functions of `signal` without its enumerations, which take longer
from collections.abc import Iterator
from threading import current_thread, main_thread
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tape_core.backends import selection
from tape_core.support import ACTIVE, Lock, contextmanager, forget_in_children, setting
from tape_core.tracing import STAGE
from tape_core.tracing import call_paths as hotpath

from tape_compile.tracer.traced_array import current_trace
from tape_compile.tracer.traced_backend import tracing_backend
from tape_compile.turns import TRACING

if TYPE_CHECKING:
    from tape_compile.tracer.trace import Trace


_lock = Lock()
_running: WeakSet[Trace] = WeakSet()


def _begin(trace: Trace) -> None:
    with _lock.now:
        _running.add(trace)
        hotpath.read_variables_by_name(on=True)


def _end(trace: Trace) -> None:
    with _lock.now:
        _running.discard(trace)
        hotpath.read_variables_by_name(on=bool(_running))


def _forget_other_threads() -> None:
    """In a forked child: the traces of other threads do not run any more."""
    _running.clear()
    trace = current_trace()
    while trace is not None:
        _running.add(trace)
        trace = trace.parent
    hotpath.read_variables_by_name(on=bool(_running))


forget_in_children(_forget_other_threads)


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """A context that is noted, in which new arrays are constants and nothing else records."""
    chosen = selection.select()
    backend = selection.use_backend(tracing_backend(chosen.backend), chosen.device)
    with _handlers_outside(), setting(TRACING, True), setting(ACTIVE, ()), backend, setting(STAGE, trace):
        try:
            _begin(trace)
            yield
        finally:
            _end(trace)


class _Outside:
    """A signal handler that sees what is there outside of the trace that it comes into the middle of."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> Any:
        with outside():
            return self.handler(number, frame)


@contextmanager
def _handlers_outside() -> Iterator[None]:
    """A context in which handlers of signals run as outside of the trace that they interrupt.

    Python calls them in its main thread only. The one that raises KeyboardInterrupt, and those in C, see no Variables.
    """
    if current_thread() is not main_thread():
        yield
        return
    wrapped: dict[int, _Outside] = {}
    try:
        for number in range(1, _signal.NSIG):
            handler = _signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Outside | BuiltinFunctionType):
                wrapped[number] = _Outside(handler)
                _signal.signal(number, wrapped[number])
        yield
    finally:
        for number, handler in wrapped.items():
            if _signal.getsignal(number) is handler:
                _signal.signal(number, handler.handler)


@contextmanager
def outside() -> Iterator[None]:
    """A context in the middle of a trace that is not noted."""
    with setting(ACTIVE, ()), setting(STAGE, None):
        yield
