"""The progress of a run: a line of results for each epoch, and meanwhile how far the epoch is."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tape_core.support import contextmanager, progress_of

from tape_nn.fitting.callbacks import Callback
from tape_nn.fitting.run import Run
from tape_nn.thresholds import REFRESH_INTERVAL

LOGGER = "tape_nn"


class Progress(Callback):
    """A callback that says how far the run is, and writes a line of results after each epoch."""

    def __init__(self, shown: bool = True, running: bool = True) -> None:
        self._shown = shown
        # Results so far are computed now and then; by one process of several they could not be.
        self._running = running
        self._computed = self._started = 0.0
        self._text = ""

    @contextmanager
    def of(self, run: Run) -> Iterator[None]:
        """Return a context for the epochs of the run."""
        with progress_of("fit", unit="batches", logger=LOGGER, shown=self._shown) as self._task:
            self._started = time.perf_counter()
            self._task.restart(_title(run), run.length, run.batch)  # a run may be resumed within an epoch
            if self._running:
                self._task.results = lambda: self._numbers(run)
            yield

    def on_epoch_begin(self, run: Run) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._text = ""
        self._task.restart(_title(run), run.length, run.batch)

    def on_batch_end(self, run: Run) -> None:
        """Say how far the epoch is."""
        self._task.advance()

    def on_epoch_end(self, run: Run) -> None:
        """Write the line of results."""
        self._task.line(f"{_title(run)}: {_numbers(run)}  ({time.perf_counter() - self._started:.1f} s)")

    def on_train_end(self, run: Run) -> None:
        """Write a line if the run was stopped early."""
        if run.epoch < run.epochs:
            self._task.line(f"stopped after {run.epoch} of {run.epochs} epochs")

    def _numbers(self, run: Run) -> str:
        if time.perf_counter() - self._computed > REFRESH_INTERVAL:
            # Not at each drawing: `logs` computes the result of every metric.
            self._text = _numbers(run)
            self._computed = time.perf_counter()
        return self._text


def _title(run: Run) -> str:
    return f"epoch {run.epoch + 1}/{run.epochs}"


def _numbers(run: Run) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in run.logs.items())
