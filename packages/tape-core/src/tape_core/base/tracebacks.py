"""Tracebacks without Tape's own frames: what scripts, prompts, threads and notebooks show of an error.

Nothing happens before an error is displayed: ops and functions are not wrapped, and an exception keeps its whole
`__traceback__`. Frames are left out where that loses nothing: where user code raised, or Tape did on purpose. An error
that arose inside Tape in any other way is shown whole.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from types import FrameType, TracebackType
from typing import Any

from tape_core.base.user_code import is_ours

FULL = "full"
_TAPE, _LIBRARY, _USER = "Tape", "a library", "the user"
# What stands between two frames of Tape on Tape's behalf.
_BETWEEN = frozenset({"contextlib", "functools", "optree"})
# What a thread or `python -m` begins with: a traceback of these alone would not say where the user was.
_STARTING = frozenset({"asyncio", "concurrent", "multiprocessing", "runpy", "threading"})
_STDLIB = os.path.dirname(os.__file__) + os.sep
# Errors that do not need an explicit `raise` to be in the user's terms, and those that are nobody's fault.
_TOLD = (Warning, FloatingPointError)
_BLAMELESS = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RecursionError, OSError)
# How bugs show: as the cause of an error that Tape raised on purpose, they are not left out.
_OF_BUGS = (AttributeError, NameError, KeyError, AssertionError, UnboundLocalError)
# It is compiled when it is needed, which `import tape_core` shall not pay for.
_WRONG_CALL = (
    r"(\S+)\(\) (missing \d+ required|takes .*\b(was|were) given|got an unexpected keyword|got multiple values)"
)

_UNFORESEEN = (
    "this error arose inside Tape, which should have said in your terms what is wrong: please report it. "
    "All frames are shown."
)


def mode() -> str:
    """Return what `TAPE_TRACEBACK` asks for: `"full"` or `"filtered"`, which is the default."""
    return FULL if os.environ.get("TAPE_TRACEBACK", "").strip().lower() == FULL else "filtered"


# -- which frames


def _steps(tb: TracebackType | None) -> list[TracebackType]:
    found = []
    while tb is not None:
        found.append(tb)
        tb = tb.tb_next
    return found


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _owner(frame: FrameType) -> str:
    if _package(frame) not in _BETWEEN and is_ours(frame):
        return _TAPE
    file = frame.f_code.co_filename
    if "site-packages" in file or "dist-packages" in file or file.startswith((_STDLIB, "<frozen ")):
        return _LIBRARY
    return _USER


def _hidden(steps: list[TracebackType], owners: list[str], marked: bool = False) -> list[bool]:
    """Return which steps to leave out: Tape's, and what stands between two of them on its behalf.

    Of an error that is marked as one in the user's terms, a library that Tape called is left out as well.
    """
    hidden = [owner is _TAPE for owner in owners]
    if marked:
        last = max([k for k, owner in enumerate(owners) if owner is not _LIBRARY], default=-1)
        if last >= 0 and owners[last] is _TAPE:
            hidden[last + 1 :] = [True] * (len(owners) - last - 1)
    tapes = [k for k, owner in enumerate(owners) if owner is _TAPE]
    for one, other in pairwise(tapes):
        between = range(one + 1, other)
        if all([owners[k] is _LIBRARY and _package(steps[k].tb_frame) in _BETWEEN for k in between]):
            for k in between:
                hidden[k] = True
    return hidden


def _is_raise(step: TracebackType) -> bool:
    """Return whether a frame was left by a `raise` statement, and not by a call or a subscript that failed."""
    import linecache
    import opcode

    code = step.tb_frame.f_code
    if step.tb_lasti < 0 or code.co_code[step.tb_lasti] != opcode.opmap["RAISE_VARARGS"]:
        return False
    line = linecache.getline(code.co_filename, step.tb_lineno, step.tb_frame.f_globals)
    return not line.lstrip().startswith("assert ")  # which is a raise to Python


def _calls_users(error: BaseException, frame: FrameType) -> bool | None:
    """Return whether a function that was called with other arguments than it takes is the user's.

    None for one that is not found; False for errors that do not say so at all.
    """
    found = re.match(_WRONG_CALL, str(error)) if type(error) is TypeError else None
    if found is None:
        return False
    values = [*frame.f_locals.values()]
    held = getattr(frame.f_locals.get("self"), "__dict__", {})  # as a loss holds its function
    for value in [*values, *held.values()]:
        python = getattr(value, "python", value)  # of a compiled function
        for name in ("__qualname__", "__name__"):
            if getattr(python, name, None) == found[1]:
                return not str(getattr(python, "__module__", "")).startswith("tape_")
    return None


def _is_marked(error: BaseException) -> bool:
    return getattr(error, "_tape_told", False) is True


def _is_told(error: BaseException, steps: list[TracebackType], owners: list[str]) -> bool | None:
    """Return whether an error is in the user's terms: True or False, and None where nobody can tell."""
    last = max(k for k, owner in enumerate(owners) if owner is _TAPE)
    if _USER in owners[last + 1 :] or _is_marked(error):
        return True
    if last + 1 < len(owners):
        return None  # a library raised that Tape called
    innermost = steps[last]
    if _is_raise(innermost):
        # A missing attribute that Tape itself has asked for is a mistake of Tape's.
        asks = innermost.tb_frame.f_code.co_name in ("__getattr__", "__getattribute__")
        return not (asks and last > 0 and owners[last - 1] is _TAPE)
    if isinstance(error, _TOLD):
        return True
    return None if isinstance(error, _BLAMELESS) else _calls_users(error, innermost.tb_frame)


def _before(error: BaseException) -> BaseException | None:
    """Return the error that is displayed before another one."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


class _Plan:
    """What to show of an error and of those that led to it."""

    def __init__(self, error: BaseException, tb: TracebackType | None) -> None:
        self.tracebacks: list[tuple[BaseException, TracebackType | None]] = []
        # What led to these is not shown, but for what the user was about when it happened: an error, or None.
        self.ends: list[tuple[BaseException, BaseException | None]] = []
        self.left_out = 0
        self.told: bool | None = True
        self._seen: set[int] = set()
        self._add(error, tb)

    def _add(self, error: BaseException, tb: TracebackType | None) -> None:
        self._seen.add(id(error))
        steps = _steps(tb)
        owners = [_owner(step.tb_frame) for step in steps]
        told: bool | None = None
        if _TAPE in owners:
            told = _is_told(error, steps, owners)
            if told is False or (told is None and self.told):
                self.told = told
            hidden = _hidden(steps, owners, _is_marked(error))
            kept = [step for step, left_out in zip(steps, hidden, strict=True) if not left_out]
            if all([_package(step.tb_frame) in _STARTING for step in kept]):
                kept = steps  # Tape alone, as in `python -m tape_core`
            self.left_out += len(steps) - len(kept)
            shown = None
            for step in reversed(kept):
                shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
            self.tracebacks.append((error, shown))
        cause = _before(error)
        if cause is not None and id(cause) not in self._seen:
            end = False
            # What Tape caught and has put in the user's terms; it has no frame of theirs.
            while told is True and cause is not None and id(cause) not in self._seen:
                inner = _steps(cause.__traceback__)
                within = [_owner(step.tb_frame) for step in inner]
                if not within or within[0] is not _TAPE or _USER in within:
                    break
                if len(inner) > 1 and isinstance(cause, _OF_BUGS) and _is_told(cause, inner, within) is False:
                    self.told = False
                end = True
                self._seen.add(id(cause))
                self.left_out += len(inner)
                cause = _before(cause)
            if cause is not None and id(cause) in self._seen:
                cause = None
            if end:
                self.ends.append((error, cause))
            if cause is not None:
                self._add(cause, cause.__traceback__)
        if isinstance(error, BaseExceptionGroup):
            for part in error.exceptions:
                if id(part) not in self._seen:
                    self._add(part, part.__traceback__)

    @property
    def note(self) -> str | None:
        if self.told is False:
            return _UNFORESEEN
        if self.told is None or not self.left_out:
            return None
        frames = "1 frame of Tape is" if self.left_out == 1 else f"{self.left_out} frames of Tape are"
        return f"({frames} left out; the environment variable TAPE_TRACEBACK=full shows all)"


# -- display


@contextmanager
def filtered(error: BaseException, tb: TracebackType | None) -> Iterator[TracebackType | None]:
    """Have an error look, in the block, as it is displayed; yield its traceback. Afterwards it is as before."""
    try:
        plan = _Plan(error, tb)
        note = plan.note
    except Exception:  # noqa: BLE001 - an error must be shown, whatever is odd about it
        yield tb
        return
    undo: list[Callable[[], None]] = []

    def change(one: BaseException, name: str, value: object) -> None:
        former = getattr(one, name)
        undo.append(lambda: setattr(one, name, former))
        setattr(one, name, value)

    shown = tb
    try:
        if note is not None and plan.told is True:
            for one, found in plan.tracebacks:
                change(one, "__traceback__", found)
                shown = found if one is error else shown
            for one, earlier in plan.ends:
                suppressed = one.__suppress_context__
                # Assigning a cause sets __suppress_context__, so that is put back last, and set last.
                undo.insert(0, partial(setattr, one, "__suppress_context__", suppressed))
                change(one, "__cause__", None)
                change(one, "__context__", earlier)
                one.__suppress_context__ = earlier is None
        if note is not None:
            notes = getattr(error, "__notes__", None)
            if notes is None:
                undo.append(lambda: delattr(error, "__notes__"))
                error.__notes__ = [note]
            elif isinstance(notes, list):
                change(error, "__notes__", [*notes, note])
        yield shown
    finally:
        for step in reversed(undo):
            with suppress(AttributeError, TypeError):
                step()


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error as Tape displays it: without Tape's own frames where that loses nothing.

    For code that catches an error and writes it somewhere; `traceback.print_exc` and `logging` write all frames.
    With `TAPE_TRACEBACK=full` in the environment, the text is that of `traceback.format_exception`.

    Args:
        error: the exception. It is not changed.

    >>> import tape_core as tc
    >>> from tape_core.debugging import traceback_text
    >>> try:
    ...     tc.ones(3) @ tc.ones(4)
    ... except ValueError as error:
    ...     text = traceback_text(error)
    >>> text.startswith("Traceback"), "matmul(x1: float32[3], x2: float32[4])" in text
    (True, True)
    """
    import traceback

    if mode() == FULL:
        return "".join(traceback.format_exception(error))
    with filtered(error, error.__traceback__):
        return "".join(traceback.format_exception(error))


def hide_frames(error: BaseException) -> None:
    """Mark Tape's frames in the traceback of an error as hidden, for pytest and IPython's debugger.

    They leave out frames with a local variable `__tracebackhide__`. With `TAPE_TRACEBACK=full`, and where an error
    arose inside Tape without being foreseen, nothing is marked. In a conftest.py::

        def pytest_runtest_makereport(item, call):
            if call.excinfo is not None:
                tape_core.debugging.hide_frames(call.excinfo.value)

    Args:
        error: the exception.
    """
    if mode() == FULL or _Plan(error, error.__traceback__).told is not True:
        return
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        steps = _steps(one.__traceback__)
        hidden = _hidden(steps, [_owner(s.tb_frame) for s in steps], _is_marked(one))
        for step, left_out in zip(steps, hidden, strict=True):
            if left_out:
                step.tb_frame.f_locals["__tracebackhide__"] = True
        one = one.__cause__ or one.__context__


# -- hooks


def install() -> None:
    """Have errors that nobody catches displayed without Tape's frames: in scripts, at prompts, in threads, in IPython.

    Where another library has a hook of its own already, that hook displays errors as it did, with all frames.
    """
    before: Any = sys.excepthook
    before_in_threads: Any = threading.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
        if before is not sys.__excepthook__ or mode() == FULL:
            before(kind, error, tb)
            return
        with filtered(error, tb) as shown:
            before(kind, error, shown)

    def in_threads(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if before_in_threads is not threading.__excepthook__ or error is None or mode() == FULL:
            before_in_threads(args)
            return
        with filtered(error, args.exc_traceback) as shown:
            before_in_threads(threading.ExceptHookArgs((args.exc_type, error, shown, args.thread)))

    sys.excepthook = excepthook
    threading.excepthook = in_threads
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    if shell is not None and not getattr(shell.showtraceback, "of_tape", False):
        shell.showtraceback = _for_ipython(shell.showtraceback)


def _for_ipython(before: Callable[..., object]) -> Callable[..., None]:
    """Return IPython's function that displays errors, for errors without Tape's frames."""

    def showtraceback(exc_tuple: Any = None, *args: object, **kwargs: object) -> None:
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1] or getattr(sys, "last_value", None)
        if not isinstance(error, BaseException) or mode() == FULL:
            before(exc_tuple, *args, **kwargs)
            return
        whole = exc_tuple[2] if exc_tuple else error.__traceback__
        with filtered(error, whole) as shown:
            before((type(error), error, shown), *args, **kwargs)
        if getattr(sys, "last_value", None) is error:
            sys.last_traceback = whole  # for %debug

    showtraceback.of_tape = True  # type: ignore[attr-defined]
    return showtraceback
