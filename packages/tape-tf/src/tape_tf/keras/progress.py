"""The progress of `fit`, `evaluate` and `predict` on standard output, in Keras' format."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from tape_tf.keras.callbacks import Callback
from tape_tf.typing import Logs

_BAR_WIDTH = 20  # characters
_REFRESH_SECONDS = 0.05  # the shortest time between two drawings of the bar, so that writing does not slow training
_SCIENTIFIC_UP_TO = 1e-3  # numbers with an absolute value up to this are shown with an exponent


class Progress(Callback):
    """A callback that shows a bar for each epoch with `verbose=1`, and a line with `verbose=2`."""

    def __init__(self, verbose: int) -> None:
        super().__init__()
        self.verbose = verbose
        self._fitting = False  # in `fit`: then a validation shows nothing of its own
        self._target: int | None = None
        self._shown = 0.0
        self._length = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        self._fitting = True

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._start()
        if self.params.get("epochs", 1) > 1:
            sys.stdout.write(f"Epoch {epoch + 1}/{self.params['epochs']}\n")

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._update(batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._finish(logs)

    def on_test_begin(self, logs: Logs = None) -> None:
        if not self._fitting:
            self._start()

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        if not self._fitting:
            self._update(batch + 1, logs)

    def on_test_end(self, logs: Logs = None) -> None:
        if not self._fitting:
            self._finish(logs)

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._start()

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._update(batch + 1, None)

    def on_predict_end(self, logs: Logs = None) -> None:
        self._finish(None)

    def _start(self) -> None:
        self._target = self.params.get("steps")
        self._started = time.perf_counter()
        self._first_step = 0.0  # seconds of the first step; left out of the mean, since it builds and compiles
        self._done = self._length = 0
        self._shown = 0.0

    def _update(self, done: int, logs: Mapping[str, Any] | None) -> None:
        self._done, now = done, time.perf_counter()
        if done == 1:
            self._first_step = now - self._started
        if self.verbose == 1 and now - self._shown >= _REFRESH_SECONDS:
            self._write(self._format_bar(logs), "")
            self._shown = now

    def _finish(self, logs: Mapping[str, Any] | None) -> None:
        self._target = self._done
        if self.verbose == 1:
            self._write(self._format_bar(logs), "\n")
        else:
            sys.stdout.write(f"{self._done}/{self._done} -{self._format_time(' - ')}{_format_numbers(logs)}\n")
        sys.stdout.flush()

    def _write(self, text: str, end: str) -> None:
        sys.stdout.write("\r" + text.ljust(self._length) + end)  # spaces erase the rest of a longer text
        sys.stdout.flush()
        self._length = len(text)

    def _format_bar(self, logs: Mapping[str, Any] | None) -> str:
        if self._target is None:
            return f"{self._done:7d}/Unknown{self._format_time(' ')}{_format_numbers(logs)}"
        filled = _BAR_WIDTH * self._done // max(self._target, 1)
        count = f"{self._done:{len(str(self._target))}d}/{self._target}"
        bar = f"\x1b[32m{'━' * filled}\x1b[0m\x1b[37m{'━' * (_BAR_WIDTH - filled)}\x1b[0m"
        return f"\x1b[1m{count}\x1b[0m {bar}{self._format_time(' ')}{_format_numbers(logs)}"

    def _format_time(self, between: str) -> str:
        """The time since the start, or the time left, and the time of a step."""
        passed = time.perf_counter() - self._started
        step = (passed - self._first_step) / (self._done - 1) if self._done > 1 else passed
        shown = passed
        if self._target is not None and self._done < self._target:
            shown = step * (self._target - self._done)
        unit = f"{step:.0f}s" if step >= 1 else f"{step * 1e3:.0f}ms" if step >= 1e-3 else f"{step * 1e6:.0f}us"
        return f" {shown:.0f}s{between}{unit}/step"


def _format_numbers(logs: Mapping[str, Any] | None) -> str:
    """The numbers, each as ` - name: value`."""
    shown = [
        f" - {name}: " + (f"{v:.4f}" if abs(v) > _SCIENTIFIC_UP_TO else f"{v:.4e}") for name, v in (logs or {}).items()
    ]
    return "".join(shown)
