"""Callbacks: objects whose methods `fit` calls before and after the run, each epoch and each batch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tape_core.support import integer, lenient, real, warn_user

from tape_nn.naming import describe_settings
from tape_nn.types import StateDict

if TYPE_CHECKING:
    from tape_nn.fitting.run import Run

Mode: TypeAlias = Literal["auto", "min", "max"]

UPWARD_SUFFIXES: Final = ("acc", "accuracy", "auc")
"""Endings of the names of results that mode "auto" takes to improve by growing; all others improve by falling."""

HOOKS: Final = ("on_train_begin", "on_epoch_begin", "on_batch_begin", "on_batch_end", "on_epoch_end", "on_train_end")


class Callback:
    """Base class of callbacks of :func:`tape_nn.fit`. Override the methods that are needed.

    Each method gets the :class:`~tape_nn.fitting.Run`: its `model` and `optimizer`, its `logs` (the metrics so
    far), `epoch` and `step`, and `stop()`. Any object with some of these methods is a callback. State that a callback
    keeps from one call to the next belongs in `state_dict`; otherwise a resumed run differs from an uninterrupted one.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> class StopBelow(nn.Callback):
    ...     def __init__(self, loss):
    ...         self.loss = loss
    ...     def on_epoch_end(self, run):
    ...         if run.logs["loss"] < self.loss:
    ...             run.stop()
    >>> x = tc.linspace(-1.0, 1.0, 32)[:, None]
    >>> history = nn.fit(
    ...     nn.Dense(1), (x, 3.0 * x), loss=nn.losses.MeanSquaredError(), optimizer=nn.Adam(0.1),
    ...     epochs=1000, callbacks=[StopBelow(0.01)], progress=False,
    ... )
    >>> history["loss"][-1] < 0.01, history.epochs < 1000
    (True, True)
    """

    @lenient
    def __repr__(self) -> str:
        return describe_settings(self)

    def on_train_begin(self, run: Run) -> None:
        """Called before the first epoch."""

    def on_epoch_begin(self, run: Run) -> None:
        """Called before the first batch of an epoch, and again where a run is resumed in the middle of one."""

    def on_batch_begin(self, run: Run) -> None:
        """Called before a step."""

    def on_batch_end(self, run: Run) -> None:
        """Called after a step."""

    def on_epoch_end(self, run: Run) -> None:
        """Called after the last batch and the validation. Numbers put into `run.logs` go into the history."""

    def on_train_end(self, run: Run) -> None:
        """Called after the last epoch."""

    def state_dict(self) -> StateDict:
        """Return the state that a resumed run needs: numbers, text and Tensors, in dictionaries and lists."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state that `state_dict` gave."""


class _Monitor(Callback):
    """Base class of callbacks that watch one number of `run.logs` for improvement."""

    def __init__(self, monitor: str, mode: Mode, min_delta: float) -> None:
        if not isinstance(monitor, str):
            raise TypeError(
                f"{type(self).__name__}: monitor must be the name of a result, such as 'val_loss'; got {monitor!r}"
            )
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"{type(self).__name__}: mode must be 'auto', 'min' or 'max'; got {mode!r}")
        min_delta = real(type(self).__name__, "min_delta", min_delta)
        if not min_delta >= 0:
            raise ValueError(f"{type(self).__name__}: min_delta must be at least 0; got {min_delta}")
        self.monitor = monitor
        self.min_delta = min_delta
        upward = mode == "max" or (mode == "auto" and monitor.endswith(UPWARD_SUFFIXES))
        self._sign = -1.0 if upward else 1.0  # with this factor, less is better
        self.best = math.nan

    def on_train_begin(self, run: Run) -> None:
        """Forget the best value of earlier runs."""
        # The object may have been a callback of an earlier run; a resumed one gets its state back after this call.
        self.best = math.nan

    def improved(self, run: Run) -> bool | None:
        """Return whether the number beats the best so far by more than `min_delta`; None if `run.logs` lacks it."""
        if self.monitor not in run.logs:
            warn_user(
                f"{type(self).__name__} watches {self.monitor!r}, which is not there; there are "
                f"{', '.join(map(repr, run.logs)) or 'none'}"
            )
            return None
        value = run.logs[self.monitor]
        # `not ... <=`, so that any number is better than the NaN at the start.
        better = not math.isnan(value) and not self._sign * (self.best - value) <= self.min_delta
        if better:
            self.best = value
        return better

    def state_dict(self) -> StateDict:
        """Return the best value so far."""
        return {"best": self.best}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state that `state_dict` gave."""
        self.best = float(state["best"])


class EarlyStopping(_Monitor):
    """A callback that ends the run when a metric has not improved for `patience` epochs.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> x, noise = tc.ones((8, 1)), tc.default_rng(0).normal((8, 1))
    >>> stopping = nn.EarlyStopping("loss", patience=2, min_delta=0.01)
    >>> history = nn.fit(
    ...     nn.Dense(1), (x, noise), loss=nn.losses.MeanSquaredError(), optimizer=nn.SGD(0.1),
    ...     epochs=1000, callbacks=[stopping], progress=False,
    ... )
    >>> history.epochs < 100
    True

    Args:
        monitor: the name of a number in the history.
        patience: the number of epochs without improvement after which the run ends.
        min_delta: a change of at most this size is no improvement.
        mode: "min" if less is better, "max" if more is; "auto" means "max" for names that end in "accuracy", "acc" or
            "auc", and "min" for all others.
        restore_best: whether the model gets the weights of the best epoch at the end of the run.
        start_from_epoch: epochs before this one, counted from 0, are ignored.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 0,
        min_delta: float = 0.0,
        mode: Mode = "auto",
        restore_best: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        patience = integer("EarlyStopping", "patience", patience, 0)
        self.patience = patience
        self.restore_best = restore_best
        self.start_from_epoch = start_from_epoch
        self._forget()

    def _forget(self) -> None:
        self.wait = 0
        self.best_epoch: int | None = None
        self._weights: dict[str, Any] = {}

    def on_train_begin(self, run: Run) -> None:
        """Forget the best epoch of earlier runs."""
        super().on_train_begin(run)
        self._forget()

    def on_epoch_end(self, run: Run) -> None:
        """Compare with the best epoch, and stop the run if its time is up."""
        if run.epoch < self.start_from_epoch:
            return
        better = self.improved(run)
        if better is None:
            return
        if better:
            self.wait, self.best_epoch = 0, run.epoch
            if self.restore_best:
                # No copies of arrays: a Variable's assignment replaces its array, so that these values stay.
                self._weights = run.model.state_dict()
            return
        self.wait += 1
        if self.wait >= max(self.patience, 1):  # patience 0 and 1 are the same, as in Keras
            run.stop()

    def on_train_end(self, run: Run) -> None:
        """Give the model its best weights back."""
        if self._weights:
            run.model.load_state_dict(self._weights)

    def state_dict(self) -> StateDict:
        """Return the best value, its epoch and its weights, and the number of epochs since."""
        own = {"wait": self.wait, "best_epoch": self.best_epoch, "weights": self._weights}
        return super().state_dict() | own

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state that `state_dict` gave."""
        super().load_state_dict(state)
        best_epoch = state["best_epoch"]
        self.wait, self.best_epoch = int(state["wait"]), None if best_epoch is None else int(best_epoch)
        self._weights = dict(state["weights"])


class SaveBest(_Monitor):
    """A callback that writes the weights to a file after each epoch that is better than all before.

    >>> import os, tempfile
    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> path = os.path.join(tempfile.mkdtemp(), "best.safetensors")
    >>> model, x = nn.Dense(1), tc.ones((4, 2))
    >>> history = nn.fit(
    ...     model, (x, x[:, :1]), loss=nn.losses.MeanSquaredError(), optimizer=nn.SGD(0.1),
    ...     callbacks=[nn.SaveBest(path, "loss")], progress=False,
    ... )
    >>> model.load_weights(path)["epoch"]
    '0'

    Args:
        path: of the file, in the safetensors format; see :meth:`Module.load_weights`.
        monitor, mode, min_delta: as for :class:`EarlyStopping`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str = "val_loss",
        mode: Mode = "auto",
        min_delta: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.path = path

    def on_epoch_end(self, run: Run) -> None:
        """Compare with the best epoch, and write the file if this one is better."""
        if self.improved(run):
            notes = {"epoch": str(run.epoch), self.monitor: repr(self.best)}
            if run.parallel is None:
                run.model.save_weights(self.path, notes)
            else:
                run.parallel.save_weights(run.model, self.path, notes)


class LearningRate(Callback):
    """A callback that puts the learning rate of each epoch into the history, and with a `schedule` sets it.

    A schedule that changes the rate with each update is given to the optimizer, see :mod:`tape_nn.schedules`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> x = tc.ones((4, 2))
    >>> history = nn.fit(
    ...     nn.Dense(1), (x, x[:, :1]), loss=nn.losses.MeanSquaredError(), optimizer=nn.SGD(0.1),
    ...     epochs=3, callbacks=[nn.LearningRate(lambda epoch: 0.1 / (epoch + 1))], progress=False,
    ... )
    >>> [round(rate, 3) for rate in history["learning_rate"]]
    [0.1, 0.05, 0.033]

    Args:
        schedule: a function from the epoch, counted from 0, to the learning rate.
    """

    def __init__(self, schedule: Callable[[int], float] | None = None) -> None:
        self.schedule = schedule

    def on_epoch_begin(self, run: Run) -> None:
        """Set the learning rate."""
        if self.schedule is not None:
            run.optimizer.learning_rate = self.schedule(run.epoch)

    def on_epoch_end(self, run: Run) -> None:
        """Put the learning rate into the history."""
        run.logs["learning_rate"] = run.optimizer.learning_rate
