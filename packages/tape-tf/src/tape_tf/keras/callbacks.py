"""`tf.keras.callbacks`: objects that `fit`, `evaluate` and `predict` call while they run."""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import tape_nn as nn

from tape_tf.keras.saving import Weights
from tape_tf.names import absent
from tape_tf.typing import Logs, PathLike

if TYPE_CHECKING:
    from tape_nn.extend import Mode

    from tape_tf.keras.training import Trainer

__all__ = [
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "ReduceLROnPlateau",
    "TerminateOnNaN",
]


class Callback:
    """Base class of callbacks. Override the methods that you need.

    >>> import tape_tf as tf
    >>> class Losses(tf.keras.callbacks.Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         if logs["loss"] < 0.1:
    ...             self.model.stop_training = True
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    >>> model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    >>> history = model.fit(tf.ones((4, 1)), tf.zeros((4, 1)), epochs=100, verbose=0, callbacks=[Losses()])
    >>> history.history["loss"][-1] < 0.1, len(history.epoch) < 100
    (True, True)

    Attributes:
        model: the model.
        params: `verbose`, `epochs` and `steps`, the number of batches where it is known.
    """

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.model: Any = None

    def set_params(self, params: dict[str, Any]) -> None:
        """Store the parameters of the run; called by `fit`."""
        self.params = params

    def set_model(self, model: Trainer) -> None:
        """Store the model that is trained; called by `fit`."""
        self.model = model

    def on_train_begin(self, logs: Logs = None) -> None:
        """Called before the first epoch."""

    def on_train_end(self, logs: Logs = None) -> None:
        """Called after the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Called before an epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Called after an epoch and its validation. Entries added to `logs` enter the history."""

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before a step of `fit`: the older name of :meth:`on_train_batch_begin`."""

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after a step of `fit`: the older name of :meth:`on_train_batch_end`."""

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before a step of `fit`."""
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after a step of `fit`."""
        self.on_batch_end(batch, logs)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Called before `evaluate`, and before each validation of `fit`."""

    def on_test_end(self, logs: Logs = None) -> None:
        """Called after `evaluate`, and after each validation of `fit`."""

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before a batch of `evaluate` or of a validation."""

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after a batch of `evaluate` or of a validation."""

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Called before `predict`."""

    def on_predict_end(self, logs: Logs = None) -> None:
        """Called after `predict`."""

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before a batch of `predict`."""

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after a batch of `predict`."""


class CallbackList:
    """Several callbacks, called together: `call("on_epoch_end", epoch, logs)`."""

    def __init__(self, callbacks: Sequence[Any], model: Trainer, params: dict[str, Any]) -> None:
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise ValueError(f"callbacks must be tf.keras.callbacks.Callback; got {callback!r}")
            callback.set_model(model)
            callback.set_params(params)

    def call(self, hook: str, *args: Any) -> None:
        """Call one method of each callback, in order."""
        for callback in self.callbacks:
            getattr(callback, hook)(*args)


class History(Callback):
    """The callback that `fit` returns: `history`, a list of numbers by name, and `epoch`, the numbers of the epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[float]] = {}
        self.epoch: list[int] = []

    def on_train_begin(self, logs: Logs = None) -> None:
        self.epoch = []

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)


class LambdaCallback(Callback):
    """A callback made of functions: `LambdaCallback(on_epoch_end=lambda epoch, logs: ...)`.

    Raises:
        TypeError: an argument is not the name of a callback's method.
    """

    def __init__(self, **hooks: Callable[..., Any] | None) -> None:
        super().__init__()
        for name, function in hooks.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                raise TypeError(f"LambdaCallback: callbacks have no method {name!r}")
            if function is not None:
                setattr(self, name, function)


class _NativeRun:
    """The part of a run of tape_nn that its callbacks read, filled in by a callback of Keras."""

    def __init__(self, model: nn.Module, epoch: int, logs: Mapping[str, float], stop: Callable[[], None]) -> None:
        self.model, self.epoch, self.logs, self.stop = model, epoch, logs, stop


class _NativeCallback(Callback):
    """A callback that delegates to one of tape_nn, `native`, which watches one of the logged numbers."""

    native: Any

    def _native_run(self, epoch: int = 0, logs: Logs = None) -> _NativeRun:
        return _NativeRun(Weights(self.model), epoch, logs or {}, self._stop)

    def _stop(self) -> None:
        self.model.stop_training = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "native":
            # `native` itself is asked for here when an instance is copied or unpickled, before it is set.
            raise AttributeError(name)
        return getattr(self.native, name)


class EarlyStopping(_NativeCallback):
    """Stop `fit` when a number has not improved for `patience` epochs: see :class:`tape_nn.EarlyStopping`.

    Args:
        monitor, min_delta, patience, mode, start_from_epoch: as for :class:`tape_nn.EarlyStopping`.
        verbose: 1 to print a line on stopping.
        baseline: a value that the first epochs have to improve on.
        restore_best_weights: set the weights of the best epoch at the end.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: Mode = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__()
        self.verbose, self.baseline = verbose, baseline
        self.stopped_epoch = 0
        # `abs`, as Keras takes a negative `min_delta` for one in the direction of "min".
        self.native = nn.EarlyStopping(monitor, patience, abs(min_delta), mode, restore_best_weights, start_from_epoch)

    def on_train_begin(self, logs: Logs = None) -> None:
        self.stopped_epoch = 0
        self.native.on_train_begin(self._native_run())
        if self.baseline is not None:
            self.native.best = self.baseline  # as if an epoch before the first had reached it

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch
        self.native.on_epoch_end(self._native_run(epoch, logs))

    def on_train_end(self, logs: Logs = None) -> None:
        if self.stopped_epoch and self.verbose:
            sys.stdout.write(f"Epoch {self.stopped_epoch + 1}: early stopping\n")
        self.native.on_train_end(self._native_run())

    def _stop(self) -> None:
        self.stopped_epoch = self._epoch
        super()._stop()


class ModelCheckpoint(_NativeCallback):
    """Save the model to a file after each epoch, or after each epoch that is better than all before.

    Args:
        filepath: a format string for `{epoch}` and the names in the logs: "{epoch:02d}-{val_loss:.2f}.keras". The name
            of a whole model's file ends in ".keras"; see `Model.save` and `Model.load_weights`.
        monitor, mode: as for :class:`EarlyStopping`.
        verbose: 1 to print a line on saving.
        save_best_only: save only after epochs that improve on all before.
        save_weights_only: save only the weights.
        save_freq: "epoch", or a number of batches, counted over epochs, after which to save; the name may then have
            `{batch}`.
        initial_value_threshold: a value that the first saved epoch has to improve on.

    Raises:
        ValueError: `save_freq` is neither, or the file's name does not fit.
    """

    __tf_differs__ = "weights in the safetensors format"

    def __init__(
        self,
        filepath: PathLike,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: Mode = "auto",
        save_freq: int | str = "epoch",
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__()
        counts = isinstance(save_freq, int) and not isinstance(save_freq, bool) and save_freq > 0
        if save_freq != "epoch" and not counts:
            raise ValueError(
                f"ModelCheckpoint: save_freq must be 'epoch' or a positive number of batches; got {save_freq!r}"
            )
        self.save_freq = save_freq
        self._epoch = self._waiting = 0  # batches since the last file
        self.filepath = os.fspath(filepath)
        self.verbose, self.save_best_only, self.save_weights_only = verbose, save_best_only, save_weights_only
        if not (save_weights_only or self.filepath.endswith(".keras")):
            raise ValueError(
                f"ModelCheckpoint: the name of a whole model's file must end in .keras; got {self.filepath!r}. For the "
                "weights alone pass save_weights_only=True"
            )
        self.native = nn.SaveBest(self.filepath, monitor, mode)
        if initial_value_threshold is not None:
            self.native.best = initial_value_threshold

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if isinstance(self.save_freq, int):
            self._waiting += 1
            if self._waiting >= self.save_freq:
                self._waiting = 0
                self._save(self._epoch, logs, batch=batch + 1)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, logs)

    def _save(self, epoch: int, logs: Logs, **numbers: int) -> None:
        # tape_nn's callback only judges here: it would write a file of its own form.
        if self.save_best_only and not self.native.improved(self._native_run(epoch, logs)):
            return
        known = {"epoch": epoch + 1, **numbers, **(logs or {})}
        try:
            path = self.filepath.format(**known)
        except KeyError as error:
            raise KeyError(f"ModelCheckpoint: filepath names {error}; there are {', '.join(known)}") from error
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if self.verbose:
            sys.stdout.write(f"\nEpoch {epoch + 1}: saving model to {path}\n")
        if self.save_weights_only:
            self.model.save_weights(path)
        else:
            self.model.save(path)


_Plateau = type("ReduceLROnPlateau", (nn.EarlyStopping,), {})  # a subclass for its name, which its warnings quote


class ReduceLROnPlateau(_NativeCallback):
    """Multiply the learning rate by `factor` when a number has not improved for `patience` epochs.

    Args:
        monitor, mode, min_delta, verbose: as for :class:`EarlyStopping`.
        cooldown: the number of epochs after a reduction that do not count.
        min_lr: the lower bound of the learning rate.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: Mode = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= factor < 1:
            raise ValueError(f"ReduceLROnPlateau does not support a factor >= 1.0. Got {factor}")
        self.factor, self.verbose, self.cooldown, self.min_lr = factor, verbose, cooldown, min_lr
        self.native = _Plateau(monitor, patience, min_delta, mode)

    def on_train_begin(self, logs: Logs = None) -> None:
        self.native.on_train_begin(self._native_run())
        self._cooldown_left = 0

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        # As in Keras the rate of an epoch is logged, and so part of the history.
        rate = float(self.model.optimizer.learning_rate)
        if logs is not None:
            logs["learning_rate"] = rate
        self._epoch = epoch
        waited = self.native.wait
        self.native.on_epoch_end(self._native_run(epoch, logs))
        if self._cooldown_left:  # in the cooldown the native callback must not count the epoch it has just counted
            self._cooldown_left -= 1
            self.native.wait = min(waited, self.native.wait)

    def _stop(self) -> None:
        # Called by the native callback, which stops training when its patience ends; here it lowers the rate instead.
        if self._cooldown_left:
            return
        optimizer = self.model.optimizer
        rate = float(optimizer.learning_rate)
        if rate > self.min_lr:
            optimizer.learning_rate = max(rate * self.factor, self.min_lr)
            if self.verbose:
                new = float(optimizer.learning_rate)
                sys.stdout.write(f"\nEpoch {self._epoch + 1}: ReduceLROnPlateau reducing learning rate to {new}.\n")
            self._cooldown_left, self.native.wait = self.cooldown, 0


class LearningRateScheduler(Callback):
    """Set the learning rate of each epoch.

    Args:
        schedule: a function of the epoch, from 0, or of the epoch and the current learning rate.
        verbose: 1 to print a line for each epoch.
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        self.schedule, self.verbose = schedule, verbose

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        optimizer = self.model.optimizer
        try:
            rate = self.schedule(epoch, float(optimizer.learning_rate))
        except TypeError:  # Keras' older form, a function of the epoch alone
            rate = self.schedule(epoch)
        optimizer.learning_rate = float(rate)
        if self.verbose:
            sys.stdout.write(f"\nEpoch {epoch + 1}: LearningRateScheduler setting learning rate to {float(rate)}.\n")

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs["learning_rate"] = float(self.model.optimizer.learning_rate)


class TerminateOnNaN(Callback):
    """Stop `fit` when the loss is NaN or infinite."""

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            sys.stdout.write(f"Batch {batch}: Invalid loss, terminating training\n")
            self.model.stop_training = True


class CSVLogger(Callback):
    """Write the results of each epoch to a CSV file, one line for each.

    Args:
        filename: the path of the file.
        separator: the text between two numbers.
        append: continue an existing file.
    """

    def __init__(self, filename: PathLike, separator: str = ",", append: bool = False) -> None:
        super().__init__()
        self.filename, self.separator, self.append = os.fspath(filename), separator, append
        self._file: TextIO | None = None
        self._writer: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        # A file that is continued has its header already.
        self._write_header = not (self.append and os.path.exists(self.filename) and os.path.getsize(self.filename))
        self._file = open(self.filename, "a" if self.append else "w", newline="", encoding="utf-8")  # noqa: SIM115
        self._writer = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        assert self._file is not None
        logs = logs or {}
        if self._writer is None:
            # The columns are fixed by the first epoch: a result that appears later has none, and one that is missing is
            # "NA".
            names = ["epoch", *logs]
            self._writer = csv.DictWriter(
                self._file, names, restval="NA", extrasaction="ignore", delimiter=self.separator
            )
            if self._write_header:
                self._writer.writeheader()
        self._writer.writerow({"epoch": epoch, **logs})
        # A run that is killed leaves the lines of all epochs that are done.
        self._file.flush()

    def on_train_end(self, logs: Logs = None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


__getattr__ = absent("keras.callbacks")
