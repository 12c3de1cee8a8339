"""What happens before a chosen instruction of Tape's that a call runs: for the fuzzer of faults, and for tests."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tape_core.base import forking

OURS = f"{os.sep}src{os.sep}tape_"
"""In the paths of all sources of Tape, and not in those of its tests."""

FINALIZE = weakref.finalize.__call__.__code__
TOOL = 4
"""The number of this tool for `sys.monitoring`: those with names of their own are for debuggers and profilers."""


class Injection:
    """Does something before one of the instructions of Tape's that a call runs.

    Attributes:
        seen: how many there were.
    """

    def __init__(self, at: int, act: Callable[[], Any] | None) -> None:
        self.seen = 0
        self.at = at
        self.act = act

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        if OURS not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not _finalizing(frame):
            self.seen += 1
            if self.seen == self.at and self.act is not None:
                self.act()
        return self._trace

    def into(self, call: Callable[[], Any]) -> None:
        """Call it."""
        if sys.version_info >= (3, 12):
            # A function that is traced for a second time does not always tell its instructions to `sys.settrace`.
            self._monitor(call)
            return
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        finally:
            sys.settrace(before)

    if sys.version_info >= (3, 12):

        def _monitor(self, call: Callable[[], Any]) -> None:
            monitoring, thread = sys.monitoring, threading.get_ident()
            event = monitoring.events.INSTRUCTION

            def on_instruction(code: CodeType, _: int) -> Any:
                if OURS not in code.co_filename:
                    return monitoring.DISABLE
                # Where an object goes, Python drops what is raised, so nothing is to be raised there.
                if threading.get_ident() == thread and not _finalizing(sys._getframe(1)):
                    self.seen += 1
                    if self.seen == self.at and self.act is not None:
                        self.act()
                return None

            monitoring.use_tool_id(TOOL, "tape_fuzz")
            monitoring.register_callback(TOOL, event, on_instruction)
            monitoring.restart_events()
            monitoring.set_events(TOOL, event)
            try:
                call()
            finally:
                monitoring.set_events(TOOL, monitoring.events.NO_EVENTS)
                monitoring.register_callback(TOOL, event, None)
                monitoring.free_tool_id(TOOL)


def _finalizing(frame: FrameType | None) -> bool:
    """Whether a frame is of what Python calls when an object goes."""
    while frame is not None and (OURS in frame.f_code.co_filename or frame.f_code is FINALIZE):
        if frame.f_code is FINALIZE or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def interrupted_at(number: int, call: Callable[[], Any], error: BaseException | None = None) -> bool:
    """Whether an error, by default Ctrl-C's, before an instruction of a call has ended it: it has as many or more."""
    raised = KeyboardInterrupt() if error is None else error

    def act() -> None:
        raise raised

    try:
        Injection(number, act).into(call)
    except type(raised):
        return True
    finally:
        let_go_of_locks()
    return False


def let_go_of_locks() -> None:
    """Release what a real interrupt cannot leave locked, and one at any instruction can.

    CPython looks for signals after calls and where it jumps back, so never between the last instruction of `with lock:`
    and the call that releases the lock. Another test's thread would wait for it for ever.
    """
    for lock in list(forking._LOCKS):
        while lock.now._is_owned():  # type: ignore[attr-defined]
            lock.now.release()
