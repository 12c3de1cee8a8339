"""What happens before a chosen instruction of Tape's that a call runs: for the fuzzer of faults, and for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from tape_core.base import forking

OURS = f"{os.sep}src{os.sep}tape_"
"""In the paths of all sources of Tape, and not in those of its tests."""


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
        if event == "opcode":
            self.seen += 1
            if self.seen == self.at and self.act is not None:
                self.act()
        return self._trace

    def into(self, call: Callable[[], Any]) -> None:
        """Call it."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        finally:
            sys.settrace(before)


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
