"""Where progress is shown: a line of a terminal, an output of a notebook, or now and then a line of a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any, Final

from tape_core.base.forking import Lock

lock = Lock()
"""Held while anything is drawn: tasks of several threads, and what these print, share a terminal."""

_KEPT: Final = 30  # lines of results that the output of a notebook shows
_BAR: Final = 20  # cells
_NARROW: Final = 60  # columns below which a terminal gets no bar


class Shown:
    """What a display keeps of a task.

    Attributes:
        used: whether anything was shown.
        told: whether lines with results were.
        output: the name of its output in a notebook.
        lines: results to be shown there; dropped: how many are not shown any more.
        time: when it was drawn.
    """

    __slots__ = ("dropped", "lines", "output", "time", "told", "used")

    def __init__(self) -> None:
        self.used = self.told = False
        self.output = ""
        self.lines: list[str] = []
        self.dropped = 0
        self.time = 0.0


class Display:
    """Somewhere to show progress.

    Attributes:
        interval: seconds between two drawings; after: those before the first one.
        live: whether what is shown can be replaced, so that it need not stay.
        held: whether somebody types an answer there, as to a debugger, which nothing may be written over.
    """

    interval: float = 0.25
    after: float = 0.0
    live = True
    held = False

    def show(self, view: Shown, texts: list[str], part: float | None) -> None:
        """Show how far a task is.

        Args:
            view: of the outermost task.
            texts: of each task, the innermost last.
            part: how much of the innermost work that is counted is done, from 0 to 1; None if that is not known.
        """
        raise NotImplementedError

    def line(self, view: Shown, text: str) -> None:
        """Write a line that stays."""
        raise NotImplementedError

    def clear(self) -> None:
        """Erase what is shown, as far as it can be erased."""

    def finish(self, view: Shown, text: str) -> None:
        """Say that a task is over which was shown; `text` says what it was."""
        self.clear()


class File(Display):
    """A file, a pipe, or whatever has no lines that can be replaced: a line now and then."""

    interval = 60.0
    after = 60.0
    live = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def show(self, view: Shown, texts: list[str], part: float | None) -> None:
        """Write a line."""
        view.used = True
        _write(self._stream, f"{_plain('  '.join(texts))}\n")

    def line(self, view: Shown, text: str) -> None:
        """Write a line."""
        view.told = True
        _write(self._stream, f"{_plain(text)}\n")

    def finish(self, view: Shown, text: str) -> None:
        """Say how long it took, where no results did."""
        if not view.told:
            self.line(view, text)


class Terminal(Display):
    """The line of a terminal where the cursor is. What others print meanwhile goes above it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.length = 0  # columns of what is shown now
        self.at_start = True  # whether the cursor is at the start of a line, as far as is known
        self._guards: list[tuple[str, _Guard]] = []
        self.flushed = False  # whether nothing was written since standard error was flushed

    def show(self, view: Shown, texts: list[str], part: float | None) -> None:
        """Write the line anew."""
        view.used = True
        if not self.at_start:
            return  # others have begun a line, such as a prompt
        self._guard()
        columns = _columns(self.stream)
        *outer, text = [_plain(text) for text in texts]
        if outer:
            text = f"{' · '.join(outer)} · {text}"
        if part is not None and columns >= _NARROW:
            text = f"{_bar(part, self.stream)} {text}"
        text = _fit(text, columns - 1)
        width = _width(text)
        _write(self.stream, f"\r{text}{' ' * (self.length - width)}")
        self.length = width

    def line(self, view: Shown, text: str) -> None:
        """Write a line above."""
        self.clear()
        _write(self.stream, f"{_plain(text)}\n")

    def clear(self) -> None:
        """Erase the line."""
        if self.length:
            # A few columns more, since the terminal has written ^C there if that is why the work ends.
            length, self.length = min(self.length + 4, _columns(self.stream) - 1), 0
            _write(self.stream, f"\r{' ' * length}\r")

    def finish(self, view: Shown, text: str) -> None:
        """Erase the line; what goes on writes it again."""
        self.clear()
        self._unguard()

    def _guard(self) -> None:
        if self._guards:
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, _Guard) and _is_terminal(stream):
                guard = _Guard(stream, self)
                self._guards.append((name, guard))
                setattr(sys, name, guard)

    def _unguard(self) -> None:
        while self._guards:
            name, guard = self._guards.pop()
            if getattr(sys, name) is guard:  # else somebody has put a stream of theirs there, which may write to ours
                setattr(sys, name, guard._stream)
        self.at_start = True


class _Guard:
    """A stream of the terminal that has the line, while it is there: what is written goes above it."""

    def __init__(self, stream: Any, terminal: Terminal) -> None:
        self._stream = stream
        self._terminal = terminal

    def write(self, text: str) -> Any:
        with lock.now:
            if text:
                terminal = self._terminal
                terminal.clear()
                terminal.at_start = text.endswith("\n")
                terminal.held = terminal.flushed = False
            return self._stream.write(text)

    def flush(self) -> None:
        with lock.now:
            terminal = self._terminal
            # `input`, by which a debugger asks as well, writes past this object. It flushes first the one stream and
            # then the other, which hardly anything else does.
            if self._stream is not terminal.stream:
                terminal.held = terminal.held or terminal.flushed
            terminal.flushed = self._stream is terminal.stream
            if terminal.held:
                terminal.clear()
            self._stream.flush()

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Notebook(Display):
    """The output of a cell, which is updated in place."""

    def __init__(self, publish: Callable[..., object]) -> None:
        self._publish = publish

    def show(self, view: Shown, texts: list[str], part: float | None) -> None:
        """Update the output."""
        from html import escape  # imported late, since most programs are in no notebook

        view.used = True
        rows = _rows(view)
        bar = "" if part is None else f'<progress value="{part:.3f}" max="1"></progress> '
        # No colours, so that it can be read on any background.
        html = f"<pre>{escape(chr(10).join(rows))}</pre>" if rows else ""
        html += f"<div>{bar}{escape(' · '.join(texts))}</div>"
        self._put(view, {"text/plain": "\n".join([*rows, " · ".join(texts)]), "text/html": html})

    def line(self, view: Shown, text: str) -> None:
        """Add a line to the output."""
        view.used = True
        view.lines.append(text)
        if len(view.lines) > _KEPT:
            view.dropped += len(view.lines) - _KEPT
            del view.lines[:-_KEPT]
        # There may be many lines in little time; the last ones are shown at the end at the latest.
        if perf_counter() - view.time >= self.interval:
            self._put_lines(view)

    def finish(self, view: Shown, text: str) -> None:
        """Leave the lines, or else what it was and how long it took."""
        if not view.lines:
            view.lines.append(text)
        self._put_lines(view)

    def _put_lines(self, view: Shown) -> None:
        from html import escape

        text = "\n".join(_rows(view))
        self._put(view, {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"})

    def _put(self, view: Shown, data: dict[str, str]) -> None:
        known = view.output
        view.output = known or f"tape-{os.getpid()}-{id(view)}-{perf_counter():.6f}"
        view.time = perf_counter()
        self._publish(data=data, metadata={}, transient={"display_id": view.output}, update=bool(known))


def _rows(view: Shown) -> list[str]:
    earlier = [f"({view.dropped:,} lines before)"] if view.dropped else []
    return [*earlier, *view.lines]


# -- finding it

_terminal: Terminal | None = None


_asked: tuple[Any, bool] = (None, False)  # a stream, and whether it is a terminal


def is_looked_at() -> bool:
    """Return whether somebody may see a line that is replaced: quickly, since it is asked before all work."""
    global _asked
    stream = sys.stderr
    if stream is not _asked[0]:
        _asked = stream, _is_terminal(stream)
    return _asked[1] or "ipykernel" in sys.modules


def display() -> Display | None:
    """Return where progress is shown: the notebook, or what standard error is; None where that is closed."""
    global _terminal
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        return Notebook(shell.display_pub.publish)
    stream = sys.stderr
    if isinstance(stream, _Guard):
        return stream._terminal
    if stream is None or getattr(stream, "closed", False):
        return None
    if not _is_terminal(stream):
        return File(stream)
    if _terminal is None or _terminal.stream is not stream:
        _terminal = Terminal(stream)
    return _terminal


def forget() -> None:
    """Leave the line to the process that wrote it, in a child that was forked."""
    global _terminal
    if _terminal is not None:
        _terminal.length = 0
        _terminal._unguard()
        _terminal = None


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError, OSError):
        return False


# -- text


def _write(stream: Any, text: str) -> None:
    with suppress(Exception):  # a closed stream, a full disk
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "replace").decode())
        stream.flush()


def _plain(text: str) -> str:
    """Return a text in one line, without what would steer a terminal."""
    return text if text.isprintable() else "".join([c if c.isprintable() else " " for c in text])


def _columns(stream: Any) -> int:
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, ValueError, OSError):
        found = 0
    named = os.environ.get("COLUMNS", "")
    return found or (int(named) if named.isdecimal() else 0) or 80


def _width(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum([0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text])


def _fit(text: str, columns: int) -> str:
    """Return a text that takes at most so many columns: the middle of a longer one is left out."""
    if _width(text) <= columns:
        return text
    if columns < 8:
        return ""
    tail = text[-columns // 3 :]
    while _width(tail) > columns // 2:
        tail = tail[1:]
    head = text
    while _width(head) > columns - 3 - _width(tail):
        head = head[:-1]
    return f"{head}...{tail}"


def _bar(part: float, stream: Any) -> str:
    full = min(_BAR, int(part * _BAR))
    try:
        "━─".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return f"[{'#' * full}{'-' * (_BAR - full)}]"
    return "━" * full + "─" * (_BAR - full)
