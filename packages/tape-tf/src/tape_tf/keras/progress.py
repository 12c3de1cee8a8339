"""The progress of `fit`, `evaluate` and `predict` on standard output, in Keras' format."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tape_tf.keras.callbacks import Callback
from tape_tf.names import exported
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
        if self.verbose == 1 and now - self._shown >= _REFRESH_SECONDS and _can_rewrite():
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
        if not _can_rewrite():
            if end:  # in a file the last line of an epoch is enough, and has no colours
                sys.stdout.write(re.sub(r"\x1b\[\d+m", "", text) + end)
            return
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


def _can_rewrite() -> bool:
    """Return whether a line of standard output can be written anew: in a terminal or a notebook, not in a file."""
    try:
        return bool(sys.stdout.isatty()) or "ipykernel" in sys.modules
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


@exported("keras.utils.Progbar")
class Progbar:
    """A bar of progress for a loop of one's own, in the format of `fit`.

    >>> import tape_tf as tf
    >>> bar = tf.keras.utils.Progbar(3, verbose=2)
    >>> for step in range(3):
    ...     bar.update(step + 1, values=[("loss", float(step))])  # doctest: +ELLIPSIS
    3/3 - 0s - .../step - loss: 1.0000

    Args:
        target: the number of steps; None if it is not known.
        width, interval: no effect.
        verbose: 0 for silence, 1 for a bar, 2 for a line at the end.
        stateful_metrics: names of values that are shown as they are; others are averaged over the steps.
        unit_name: no effect.
    """

    def __init__(
        self,
        target: int | None,
        width: int = _BAR_WIDTH,
        verbose: int = 1,
        interval: float = _REFRESH_SECONDS,
        stateful_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
    ) -> None:
        self.target, self.verbose = target, verbose
        self.stateful_metrics = set(stateful_metrics or ())
        self._progress = Progress(verbose)
        self._progress.params = {"steps": target}
        self._progress._start()
        self._sums: dict[str, tuple[float, float]] = {}  # of values times steps, and of steps
        self._seen = 0

    def update(
        self, current: int, values: Iterable[tuple[str, Any]] | None = None, finalize: bool | None = None
    ) -> None:
        """Show that `current` steps are done.

        Args:
            values: names and numbers of the steps since the last update.
            finalize: this is the last update; by default it is when `current` reaches the target.
        """
        steps = max(current - self._seen, 1)
        for name, value in values or ():
            total, count = self._sums.get(name, (0.0, 0.0))
            kept = name in self.stateful_metrics
            self._sums[name] = (float(value), 1.0) if kept else (total + float(value) * steps, count + steps)
        self._seen = current
        if not self.verbose:
            return
        logs = {name: total / count for name, (total, count) in self._sums.items()}
        last = self.target is not None and current >= self.target if finalize is None else finalize
        self._progress._update(current, logs)
        if last:
            self._progress._finish(logs)

    def add(self, n: int, values: Iterable[tuple[str, Any]] | None = None) -> None:
        """Show that `n` more steps are done."""
        self.update(self._seen + n, values)


def _format_numbers(logs: Mapping[str, Any] | None) -> str:
    """The numbers, each as ` - name: value`."""
    shown = [
        f" - {name}: " + (f"{v:.4f}" if abs(v) > _SCIENTIFIC_UP_TO else f"{v:.4e}") for name, v in (logs or {}).items()
    ]
    return "".join(shown)
