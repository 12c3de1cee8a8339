"""Progress is shown where somebody looks, after a while, in one line; and it disturbs nobody."""

from __future__ import annotations

import gc
import io
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import wraps
from typing import Any
from unittest.mock import Mock

import pytest
import tape_core as tc
from tape_core.base import displays, progress
from tape_core.support import first_process_only, progress_of, report_stage


class Terminal(io.StringIO):
    """A terminal: what is written to it, and what can be seen there."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count

    @property
    def screen(self) -> list[str]:
        lines: list[list[str]] = [[]]
        column = 0
        for c in self.getvalue():
            if c == "\n":
                lines.append([])
            column = 0 if c in "\r\n" else column + 1
            if c not in "\r\n":
                line = lines[-1]
                line += " " * (column - len(line))
                line[column - 1] = c
        return [text for line in lines if (text := "".join(line).rstrip())]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show everything at once, and whatever the environment says."""
    for name in ("TAPE_PROGRESS", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "AFTER", 0.0)
    monkeypatch.setattr(progress, "TICK", 0.01)
    for kind in (displays.Display, displays.File):
        monkeypatch.setattr(kind, "interval", 0.0)
        monkeypatch.setattr(kind, "after", 0.0)
    monkeypatch.setattr(displays, "_terminal", None)
    monkeypatch.setattr(displays, "_asked", (None, False))
    monkeypatch.setattr(progress, "_open", [])
    yield
    assert progress._open == []


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def file() -> io.StringIO:
    return io.StringIO()


def watched(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test where the streams are its terminal or its file; pytest would put its own in place of a fixture's."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        stream = fixtures.get("terminal") or fixtures.get("file")
        with redirect_stderr(stream), redirect_stdout(fixtures.get("terminal", sys.stdout)):
            test(**fixtures)
            assert sys.stderr is stream

    return run


@watched
def test_a_terminal_has_one_line_which_goes_when_the_work_is_done(terminal: Terminal) -> None:
    with progress_of("sampling", 4, "samples") as task:
        for _ in range(3):
            task.advance()
        assert terminal.screen[0].startswith("━━━━━━━━━━━━━━━───── sampling  3/4 samples  0.0 s, 0.0 s left")
        task.advance()
    assert terminal.screen == []


@watched
def test_short_work_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 3600.0)
    with progress_of("sampling", 4, ticking=True) as task:
        task.advance()
    assert terminal.getvalue() == ""


@watched
def test_what_the_user_prints_stays_above_the_line(terminal: Terminal) -> None:
    with progress_of("sampling", 3) as task:
        task.advance()
        print("mine")  # noqa: T201 - what users do
        task.advance()
        assert terminal.screen[0] == "mine"
        assert "sampling  2/3" in terminal.screen[1]
        print("a line in ", end="")  # noqa: T201
        task.advance()
        print("two parts")  # noqa: T201
        print("one", "other", file=sys.stderr)  # noqa: T201
    assert terminal.screen == ["mine", "a line in two parts", "one other"]


@watched
def test_nothing_is_written_over_an_answer_that_is_typed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = Terminal()
    monkeypatch.setattr(sys, "stdout", stdout)
    with progress_of("sampling", 3) as task:
        task.advance()
        # As `input` does it, which then writes to the terminal past Python's streams.
        sys.stderr.flush()
        sys.stdout.flush()
        before = terminal.getvalue()
        progress._draw(task, works=False)
        assert terminal.getvalue() == before
        assert terminal.screen == []
        task.advance()
        assert "2/3" in terminal.screen[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, GeneratorExit])
@watched
def test_an_error_leaves_a_clean_line(terminal: Terminal, error: type[BaseException]) -> None:
    with pytest.raises(error), progress_of("outer", 3) as outer:
        outer.advance()
        with progress_of("inner", 3) as inner:
            inner.advance()
            raise error
    assert terminal.screen == []
    assert terminal.getvalue().endswith("\r")
    assert sys.stdout is terminal


@watched
def test_work_inside_of_other_work_is_shown_beside_it(terminal: Terminal) -> None:
    with progress_of("outer", 3, "steps") as outer:
        with progress_of("inner") as inner:
            inner.stage("first")
            assert "outer  0/3 steps · inner: first  0.0 s" in terminal.screen[0]
            report_stage("second")
            assert "inner: second" in terminal.screen[0]
        assert "inner" not in terminal.screen[0]
        outer.advance()
        assert "outer  1/3 steps" in terminal.screen[0]


@watched
def test_a_line_is_never_longer_than_the_terminal_is_wide(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_of("求" * 50 + "\x1b[31m\n" + "x" * 100, 2, "rows") as task:
        for columns in ("80", "40", "5"):
            monkeypatch.setenv("COLUMNS", columns)
            task.advance(0)
            shown = terminal.getvalue().rpartition("\r")[2].rstrip(" ")
            assert displays._width(shown) < int(columns)
            assert "\x1b" not in shown
            assert columns == "5" or "s" in shown[-3:]  # the time is there


@watched
def test_a_terminal_that_knows_only_ascii(terminal: Terminal) -> None:
    terminal.encoding = "ascii"  # type: ignore[misc]
    with progress_of("sampling", 2) as task:
        task.advance()
        assert terminal.screen[0].startswith("[##########----------] sampling")


@watched
def test_a_thread_shows_work_that_says_nothing(terminal: Terminal) -> None:
    with progress_of("compiling", ticking=True):
        assert terminal.written.wait(120)
    over = threading.Event()
    with progress_of("other", ticking=False):
        over.set()
    assert terminal.screen == []


@watched
def test_a_file_gets_plain_lines(file: io.StringIO) -> None:
    with progress_of("sampling", 2, "samples") as task:
        task.advance()
        task.advance()
    lines = file.getvalue().splitlines()
    assert [line.split("  ")[:2] for line in lines[:2]] == [["sampling", "1/2 samples"], ["sampling", "2/2 samples"]]
    assert lines[2] == "sampling: 2 samples in 0.0 s"
    assert "\r" not in file.getvalue()


@watched
def test_a_file_gets_no_line_in_the_first_minute(file: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays.File, "interval", 60.0)
    monkeypatch.setattr(displays.File, "after", 60.0)
    monkeypatch.setattr(progress, "AFTER", 2.0)
    with progress_of("sampling", 2) as task:
        task._began -= 30.0
        task._next -= 30.0
        task.advance()
        assert file.getvalue() == ""
        task._began -= 31.0
        task._next -= 61.0
        task.advance()
        assert file.getvalue().startswith("sampling  2/2  1 min 1 s")


class Raising(io.StringIO):
    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError("gone")


def _closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, _closed(), Raising(), object()], ids=["none", "closed", "raising", "odd"])
def test_a_stream_that_cannot_be_written_to_disturbs_nobody(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_of("sampling", 2, ticking=True) as task:
        task.advance()
        task.line("done")
    assert sys.stderr is stream


@watched
def test_it_can_be_silenced(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(**options: Any) -> None:
        with progress_of("sampling", 2, **options) as task, progress_of("inner", ticking=True) as inner:
            task.advance()
            inner.stage("x")
            inner.line("done")

    work(shown=False)
    for name, value in (("TAPE_PROGRESS", "0"), ("TAPE_PROGRESS", "off"), ("RANK", "1"), ("SLURM_PROCID", "3")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            work()
    with monkeypatch.context() as patch:
        patch.setattr(progress, "_ranks", [])
        first_process_only(lambda: 1)
        work()
    assert terminal.getvalue() == ""
    monkeypatch.setenv("RANK", "0")
    work()
    assert terminal.screen == ["done"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@watched
def test_a_forked_child_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_of("sampling", 3) as task:
        task.advance()
        before = terminal.getvalue()
        # What a child does first; a child itself would fork the threads of the tests' libraries, too.
        with monkeypatch.context() as patch:
            patch.setattr(progress, "_open", [*progress._open])
            patch.setattr(progress, "_in_child", False)
            progress._on_fork()
            assert sys.stderr is terminal
            task.advance()
            with progress_of("inner") as inner:
                inner.line("done")
        assert terminal.getvalue() == before


@watched
def test_work_that_was_abandoned_is_forgotten(terminal: Terminal) -> None:
    block = progress_of("abandoned", 3, ticking=True)
    block.__enter__().advance()
    assert "abandoned" in terminal.screen[0]
    del block
    gc.collect()
    assert progress._tasks() == []
    with progress_of("other", 3) as task:
        task.advance()
        assert "abandoned" not in terminal.screen[0]


@watched
def test_threads_share_the_line(terminal: Terminal) -> None:
    def work(name: str) -> None:
        with progress_of(name, 50) as task:
            for k in range(50):
                task.advance()
                if k % 10 == 0:
                    sys.stdout.write(f"{name} {k}\n")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(terminal.screen) == [f"{name} {k}" for name in "abc" for k in range(0, 50, 10)]
    assert sys.stdout is terminal


class Shell:
    """A notebook's shell."""

    kernel = object()

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, str]] = {}
        self.display_pub = self

    def publish(self, *, data: dict[str, str], metadata: object, transient: dict[str, str], update: bool) -> None:
        assert update is (transient["display_id"] in self.outputs)
        self.outputs[transient["display_id"]] = data


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell()
    module: Any = type(sys)("IPython")
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    return shell


def test_a_notebook_has_one_output_which_is_updated(notebook: Shell) -> None:
    with progress_of("<sampling>", 4, "samples") as task:
        task.advance()
        (data,) = notebook.outputs.values()
        assert '<progress value="0.250" max="1">' in data["text/html"]
        assert "&lt;sampling&gt;" in data["text/html"]
        assert "color" not in data["text/html"]
        task.advance(3)
    (data,) = notebook.outputs.values()
    assert data["text/plain"] == "<sampling>: 4 samples in 0.0 s"


def test_a_notebook_keeps_the_last_lines(notebook: Shell) -> None:
    with progress_of("fit") as task:
        for k in range(40):
            task.line(f"epoch {k}")
    (data,) = notebook.outputs.values()
    lines = data["text/plain"].splitlines()
    assert lines[0] == "(10 lines before)"
    assert lines[1::29] == ["epoch 10", "epoch 39"]


def test_a_notebook_says_what_was_stopped(notebook: Shell) -> None:
    with pytest.raises(KeyboardInterrupt), progress_of("sampling", 4, "samples") as task:
        task.advance()
        raise KeyboardInterrupt
    (data,) = notebook.outputs.values()
    assert data["text/plain"] == "sampling: stopped after 1 of 4 samples, 0.0 s"


def test_loggers_are_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(level: int) -> list[tuple[str, str, str]]:
        caplog.clear()
        with caplog.at_level(level, "tape_core"), progress_of("sampling", 2, "samples", shown=False) as task:
            task.advance(2)
        return [(record.name, record.levelname, record.getMessage()) for record in caplog.records]

    assert told(logging.INFO) == [("tape_core", "INFO", "sampling: 2 samples in 0.0 s")]
    monkeypatch.setattr(progress, "AFTER", 3600.0)
    assert told(logging.INFO) == []
    assert told(logging.DEBUG) == [("tape_core", "DEBUG", "sampling: 2 samples in 0.0 s")]


def _jacobian(x: Any) -> object:
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    return tape.jacobian(y, x, parallel_iterations=2)


LONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "jacobian": (_jacobian, "Jacobian  4/5 rows"),
    "jacrev": (lambda x: tc.jacrev(tc.sin, chunk_size=2)(x), "Jacobian  4/5 rows"),
    "jacfwd": (lambda x: tc.jacfwd(tc.sin, chunk_size=2)(x), "jacfwd of sin  4/5 columns"),
    "hessian": (lambda x: tc.hessian(lambda x: tc.sum(x**3), chunk_size=2)(x), "hessian of <lambda>  4/5 columns"),
    "vmap of an object": (
        lambda x: tc.vmap(Mock(side_effect=tc.sin), chunk_size=2)(x),
        "vmap of a function  4/5 examples",
    ),
    "vmap": (lambda x: tc.vmap(tc.sin, chunk_size=2)(x), "vmap of sin  4/5 examples"),
    "function": (lambda x: tc.function(tc.sin)(x), "compiling sin for (float32[5]): passes"),
}


def test_sparse_derivatives_by_chunks_are_shown() -> None:
    pytest.importorskip("scipy")
    terminal, x = Terminal(), tc.ones(5)
    with redirect_stderr(terminal):
        tc.sparse_hessian(lambda x: tc.sum(x[1:] * x[:-1]) ** 2, x, chunk_size=2)
        tc.sparse_jacobian(lambda x: x[1:] * x[:-1], x, chunk_size=1)
    for name in ("sparse_hessian", "sparse_jacobian"):
        assert re.search(rf"{name} of <lambda>  \d/\d products", terminal.getvalue())


@pytest.mark.parametrize("case", LONG)
@watched
def test_what_takes_long_in_tape_is_shown(case: str, terminal: Terminal) -> None:
    work, expected = LONG[case]
    work(tc.ones(5))
    assert expected in terminal.getvalue()
    assert terminal.screen == []


@watched
def test_a_compiled_function_that_fails_is_not_shown_any_more(terminal: Terminal) -> None:
    @tc.function
    def f(x: Any) -> Any:
        return x[9]

    with pytest.raises(IndexError):
        f(tc.ones(3))
    assert terminal.screen == []
