"""The progress of a run, on standard error."""

from __future__ import annotations

import sys
import time
from typing import Any

from tape_nn.fitting.callbacks import Callback
from tape_nn.fitting.run import Run
from tape_nn.thresholds import REFRESH_INTERVAL


class Progress(Callback):
    """A callback that shows a bar for each epoch in a terminal, if tqdm is installed, and then a line of results."""

    def __init__(self, running: bool = True) -> None:
        # Results so far are computed now and then; by one process of several they could not be.
        self._running = running
        self._bar: Any = None
        self._shown = 0.0

    def on_epoch_begin(self, run: Run) -> None:
        """Start the clock and the bar."""
        self._close()
        self._started = time.perf_counter()
        # In a file or a log a bar would be a line for each refresh.
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=run.length, desc=_title(run), unit="batch", leave=False, initial=run.batch)

    def on_batch_end(self, run: Run) -> None:
        """Move the bar, and now and then show the results so far."""
        if self._bar is None:
            return
        self._bar.update()
        if self._running and time.perf_counter() - self._shown > REFRESH_INTERVAL:
            # Not in each batch: `logs` computes the result of every metric.
            self._bar.set_postfix_str(_numbers(run), refresh=False)
            self._shown = time.perf_counter()

    def on_epoch_end(self, run: Run) -> None:
        """Write the line of results."""
        self._close()
        sys.stderr.write(f"{_title(run)}: {_numbers(run)}  ({time.perf_counter() - self._started:.1f} s)\n")
        sys.stderr.flush()

    def on_train_end(self, run: Run) -> None:
        """Write a line if the run was stopped early."""
        if run.epoch < run.epochs:
            sys.stderr.write(f"stopped after {run.epoch} of {run.epochs} epochs\n")

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _title(run: Run) -> str:
    return f"epoch {run.epoch + 1}/{run.epochs}"


def _numbers(run: Run) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in run.logs.items())
