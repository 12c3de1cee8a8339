"""The progress of long work: one line on a terminal or in a notebook, once the work has taken two seconds.

Work says how far it is (`Task.advance`, `report_stage`); most of it ends before anything is shown, and has paid for a
look at the clock. A terminal has one line, which is written anew and in the end erased; a notebook one output, which is
updated in place; a file now and then a line of its own. `displays.py` draws them. Of several processes the first one
shows its progress, and children that were forked do not. `TAPE_PROGRESS=0` silences all.

Where the work says nothing for a long time, as while a compiler is busy, a thread draws (`ticking`). It exists for the
time of the work, and only where somebody looks at a terminal or a notebook.

A bar of tqdm counts the steps of one loop. Here several tasks, one inside another, share a line, a stage may have no
steps to count, and nothing may be drawn by forked children or stay after an interrupt; and tape-core depends on little.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from time import perf_counter
from typing import Final
from weakref import ref

from tape_core.base.ambient import PROGRESS
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.displays import Display, Shown, display, forget, is_looked_at, lock
from tape_core.base.forking import forget_in_children
from tape_core.base.logs import log

AFTER: Final = 2.0  # seconds after which work is shown
TICK: Final = 0.5  # seconds between two drawings by the thread
LOGGED: Final = 60.0  # seconds between two lines for loggers

_DEBUG, _INFO = 10, 20
_NEVER = float("inf")
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")  # of torchrun, Open MPI, MPICH and Slurm

# Weakly: an interrupt may come while a task ends, and nothing of it may stay then.
_open: list[ref[Task]] = []
_ranks: list[Callable[[], int]] = []
_in_child = False


def first_process_only(rank: Callable[[], int]) -> None:
    """Have progress shown only where this returns 0; it is asked when there is something to show."""
    _ranks.append(rank)


def _on_fork() -> None:
    global _in_child
    _in_child = True
    _open.clear()
    forget()


forget_in_children(_on_fork)


def _is_first() -> bool:
    for name in _RANKS:
        if os.environ.get(name, "0").strip() not in ("", "0"):
            return False
    return all([rank() == 0 for rank in _ranks])


def _display() -> Display | None:
    """Return where progress is shown now; None for nowhere."""
    if _in_child or os.environ.get("TAPE_PROGRESS", "").strip().lower() in ("0", "off", "false", "no"):
        return None
    with suppress(Exception):  # whatever is odd about streams and ranks, the work goes on
        return display() if _is_first() else None
    return None


class Task:
    """Work whose progress is shown; :func:`progress_of` makes one.

    Attributes:
        total, done: how much there is to do, or None, and how much is done.
        unit: of both, in the plural.
        detail: what is going on, or results so far.
        results: a function that returns `detail`; it is called when that is to be shown, by the thread that works.
    """

    __slots__ = (
        "__weakref__", "_began", "_ended", "_failed", "_logger", "_next", "_next_log", "_thread", "_title", "detail",
        "done", "results", "shown", "total", "unit", "view",
    )  # fmt: skip

    def __init__(
        self, title: str | Callable[[], str], total: int | None, unit: str, logger: str | None, shown: bool
    ) -> None:
        self._title, self.total, self.unit = title, total, unit
        self.done = 0
        self.detail = ""
        self.results: Callable[[], str] | None = None
        self.shown = shown
        self.view = Shown()  # what the display keeps of it
        self._logger = logger
        self._thread = _thread.get_ident()
        self._failed = False
        self._ended = False
        self._began = perf_counter()
        self._next_log = self._began + LOGGED
        self._next = self._began + AFTER if shown else _NEVER

    @property
    def title(self) -> str:
        """What it is; the text is made when it is first shown."""
        if not isinstance(self._title, str):
            self._title = self._title()
        return self._title

    def advance(self, amount: int = 1) -> None:
        """Say that so much more is done."""
        self.done += amount
        if perf_counter() >= self._next:
            _draw(self)

    def stage(self, detail: str) -> None:
        """Say what is going on from now on."""
        self.detail = detail
        if perf_counter() >= self._next:
            _draw(self)

    def restart(self, title: str, total: int | None, done: int = 0) -> None:
        """Begin the next part of the work, such as an epoch, whose progress is counted by itself."""
        self._title, self.total, self.done = title, total, done
        self._began = perf_counter()
        self._next = self._began + AFTER if self.shown else _NEVER

    def line(self, text: str) -> None:
        """Write a line that stays, such as the results of an epoch."""
        where = _display() if self.shown else None
        if where is not None:
            with suppress(Exception), lock.now:
                where.line(self.view, text)
        if self._logger is not None:
            log(self._logger, _INFO, lambda: text)

    @property
    def seconds(self) -> float:
        """The time since it began."""
        return perf_counter() - self._began

    def described(self, *, timed: bool = True) -> str:
        """Return how far it is, in words."""
        seconds = self.seconds
        detail = self.detail
        parts = [f"{self.title}: {detail}" if detail and self.total is None else self.title]
        if self.total is not None:
            parts.append(f"{self.done:,}/{self.total:,} {self.unit}".rstrip())
        elif self.done:
            parts.append(f"{self.done:,} {self.unit}".rstrip())
        if detail and self.total is not None:
            parts.append(detail)
        if not timed:
            return "  ".join(parts)
        time = duration(seconds)
        if self.total is not None and 0 < self.done < self.total:
            time += f", {duration(seconds / self.done * (self.total - self.done))} left"
        return "  ".join([*parts, time])

    def summary(self) -> str:
        """Return what it was and how long it took."""
        done = f"{self.done:,} {self.unit}" if self.unit and self.done else ""
        if not self._failed:
            return f"{self.title}{done and ': '}{done} in {duration(self.seconds)}"
        if done and self.total is not None:
            done = f"{self.done:,} of {self.total:,} {self.unit}"
        return f"{self.title}: stopped after {done}{done and ', '}{duration(self.seconds)}"


def _draw(task: Task, *, works: bool = True) -> None:
    """Show how far the work is; called when it is time, by the thread that works or by another one."""
    now = perf_counter()
    where = _display()
    if works and where is not None:
        where.held = False  # who works does not wait for an answer
        if task.results is not None:
            with suppress(Exception):
                task.detail = task.results()
    # Where nothing is shown now, something may be later: a notebook may set the environment variable.
    task._next = now + (AFTER if where is None else where.interval)
    if task._logger is not None and now >= task._next_log:
        task._next_log = now + LOGGED
        log(task._logger, _INFO, task.described)
    if where is None or where.held:
        return
    if now - task._began < where.after:
        task._next = task._began + where.after
        return
    with suppress(Exception), lock.now:
        if not task._ended:
            _show(where, now)


def _tasks() -> list[Task]:
    return [task for each in _open if (task := each()) is not None and not task._ended]


def _show(where: Display, now: float) -> None:
    """Draw what is open, as the thread whose work began first sees it; the lock is held."""
    due = [task for task in _tasks() if task.shown and now - task._began >= AFTER]
    if not due:
        where.clear()
        return
    chain = [task for task in due if task._thread == due[0]._thread]
    outer, inner = chain[0], chain[-1]
    texts = [task.described(timed=task is inner) for task in chain]
    counted = inner if inner.total is not None else outer
    part = counted.done / counted.total if counted.total else None
    where.show(outer.view, texts, part)


def _tick(over: _thread.LockType, watched: ref[Task]) -> None:
    """Draw a task every now and then until it is over."""
    wait = AFTER
    while not over.acquire(timeout=wait):
        task = watched()
        if task is None or task._ended:
            return
        with suppress(Exception):
            _draw(task, works=False)
        del task
        wait = TICK


@contextmanager
def progress_of(
    title: str | Callable[[], str],
    total: int | None = None,
    unit: str = "",
    *,
    logger: str | None = "tape_core",
    shown: bool = True,
    ticking: bool = False,
) -> Iterator[Task]:
    """Return a context for long work: its progress is shown on standard error, or in a notebook, after two seconds.

    Work inside of it, such as the compilation of a function, is shown beside it. When the block is left, in whatever
    way, the line is erased; the loggers are told what it was.

    >>> with progress_of("sampling", total=1000, unit="samples") as task:
    ...     for _ in range(10):
    ...         task.advance(100)

    Args:
        title: what is done, or a function that returns it.
        total: how much there is to do, if that is known; `unit`: of what, in the plural.
        logger: the name of the logger that is told, at DEBUG, or at INFO of what took so long that it is shown; None
            for none.
        shown: whether to show it; if False, nothing inside the block is shown either.
        ticking: the block may be silent for a long time, so that a thread is to draw the time that it takes.
    """
    around = PROGRESS.get()
    task = Task(title, total, unit, logger, shown and (around is None or around.shown))
    over: _thread.LockType | None = None
    # As it is outside: the thread shall not keep the task.
    context = copy_context() if ticking and task.shown and not _in_child and is_looked_at() else None
    with setting(PROGRESS, task):
        try:
            with lock.now:
                _open.append(ref(task))
            if context is not None:
                over = _thread.allocate_lock()
                over.acquire()
                with suppress(RuntimeError):  # no more threads can be started
                    _thread.start_new_thread(context.run, (_tick, over, ref(task)))
            yield task
        except BaseException:
            task._failed = True
            raise
        finally:
            task._ended = True
            if over is not None:
                over.release()
            _close(task)


def _close(task: Task) -> None:
    with lock.now:
        _open[:] = map(ref, _tasks())
    if task.view.used:
        where = _display()
        if where is not None:
            with suppress(Exception), lock.now:
                where.finish(task.view, task.summary())
    if task.shown and perf_counter() - task._began >= AFTER:
        where = _display()
        if where is not None and where.live:
            with suppress(Exception), lock.now:
                _show(where, perf_counter())
    if task._logger is not None:
        log(task._logger, _DEBUG if perf_counter() - task._began < AFTER else _INFO, task.summary)


def report_stage(detail: str) -> None:
    """Say what the innermost work that is going on here does from now on; nothing if there is none."""
    task = PROGRESS.get()
    if task is not None:
        task.stage(detail)


def duration(seconds: float) -> str:
    """Return a time in words that fit into a line.

    >>> duration(0.31), duration(75), duration(7500)
    ('0.3 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
