"""The contexts that begin and end a trace, or leave it for a while."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the functions of `signal` without its enumerations, which take longer
from collections.abc import Callable, Iterator
from threading import current_thread, main_thread
from types import BuiltinFunctionType, FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tape_core.backends import selection
from tape_core.support import ACTIVE, Lock, contextmanager, forget_in_children, setting
from tape_core.tracing import BINDINGS, STAGE
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
        # Call paths read Variables from their slots; while a trace runs in any thread, they must ask for it.
        hotpath.read_variables_by_name(on=True)


def _end(trace: Trace) -> None:
    with _lock.now:
        _running.discard(trace)
        hotpath.read_variables_by_name(on=bool(_running))


def _forget_other_threads() -> None:
    """Drop the traces of other threads, which do not run in a forked child."""
    _running.clear()
    trace = current_trace()
    while trace is not None:
        _running.add(trace)
        trace = trace.parent
    hotpath.read_variables_by_name(on=bool(_running))


forget_in_children(_forget_other_threads)


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Enter a context that is traced: new arrays are constants, and no tape records."""
    chosen = selection.select()
    backend = selection.use_backend(tracing_backend(chosen.backend, trace), chosen.device)
    inner = setting(BINDINGS, None if trace.parent is None else BINDINGS.get())
    with handlers_outside(), setting(TRACING, True), setting(ACTIVE, ()), backend, setting(STAGE, trace), inner:
        try:
            _begin(trace)
            yield
        finally:
            _end(trace)


class _Outside:
    """A signal handler wrapped so that it runs outside of the trace or the opaque call that it interrupts."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.bindings = BINDINGS.get()

    def __call__(self, number: int, frame: FrameType | None) -> object:
        with setting(ACTIVE, ()), setting(STAGE, None), setting(BINDINGS, self.bindings):
            return self.handler(number, frame)


@contextmanager
def handlers_outside() -> Iterator[None]:
    """Enter a context in which signal handlers run outside of what they interrupt, with the values of Variables there.

    Python calls handlers in its main thread only. Those written in C, such as the default one of SIGINT, read no
    Variables, so they stay.
    """
    if current_thread() is not main_thread():
        yield
        return
    wrapped: dict[int, _Outside] = {}
    try:
        for number in range(1, _signal.NSIG):
            handler = _signal.getsignal(number)
            # An `_Outside` is there already where a trace or an opaque call is begun inside another one.
            if callable(handler) and not isinstance(handler, _Outside | BuiltinFunctionType):
                wrapped[number] = _Outside(handler)
                _signal.signal(number, wrapped[number])
        yield
    finally:
        for number, handler in wrapped.items():
            # A handler that the traced function has installed stays.
            if _signal.getsignal(number) is handler:
                _signal.signal(number, handler.handler)


@contextmanager
def outside() -> Iterator[None]:
    """Enter a context inside a trace in which nothing is traced or recorded."""
    stage: Any = STAGE.get()
    bindings = BINDINGS.get()
    if stage is not None and stage.bindings:
        bindings = {**stage.bindings, **(bindings or {})}
    with setting(ACTIVE, ()), setting(STAGE, None), setting(BINDINGS, bindings):
        yield
