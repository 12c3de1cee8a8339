"""What `fit` does around its steps: the callbacks of a run, and the arrays that are held out for validation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tape_tf.conversion import wrap
from tape_tf.keras.callbacks import CallbackList
from tape_tf.keras.data import make_batches, unpack_x_y_sample_weight
from tape_tf.keras.structures import map_structure, tensor_leaves
from tape_tf.typing import PyTree

if TYPE_CHECKING:
    from tape_nn.extend import Run

    from tape_tf.keras.training import Trainer


class FitAdapter:
    """Adapter between a run of `tape_nn.fit` and Keras: it is the step function and the only callback of that run."""

    def __init__(self, model: Trainer, callbacks: CallbackList, initial_epoch: int) -> None:
        self.model, self.callbacks, self.first = model, callbacks, initial_epoch
        self.logs: dict[str, float] = {}
        self.validate: Any = lambda epoch: {}  # returns the logs of the validation after an epoch

    def train(self, run: Run, batch: PyTree) -> dict[str, Any]:
        """Train on one batch, and keep its logs for the callbacks of Keras; tape_nn gets none."""
        self.logs = as_floats(self.model._step("train_step", batch))
        return {}

    def on_train_begin(self, run: Run) -> None:
        self.callbacks.call("on_train_begin", {})

    def on_epoch_begin(self, run: Run) -> None:
        # The metrics are Keras' own: the run of tape_nn knows none of them, and cannot reset them.
        self.model.reset_metrics()
        self.callbacks.call("on_epoch_begin", self.first + run.epoch, {})

    def on_batch_begin(self, run: Run) -> None:
        self.callbacks.call("on_train_batch_begin", run.batch, {})

    def on_batch_end(self, run: Run) -> None:
        # tape_nn counts a batch before it calls `on_batch_end`; Keras numbers batches from 0.
        self.callbacks.call("on_train_batch_end", run.batch - 1, dict(self.logs))
        self._stop(run)

    def on_epoch_end(self, run: Run) -> None:
        logs = dict(self.logs)
        logs.update({f"val_{name}": value for name, value in self.validate(self.first + run.epoch).items()})
        # The history comes last here: it has to record what other callbacks put into the logs.
        history, *others = self.callbacks.callbacks
        for callback in (*others, history):
            callback.on_epoch_end(self.first + run.epoch, logs)
        self._stop(run)

    def on_train_end(self, run: Run) -> None:
        self.callbacks.call("on_train_end", self.logs)

    def _stop(self, run: Run) -> None:
        if self.model.stop_training:
            run.stop()


def as_floats(logs: object) -> dict[str, float]:
    """Convert the result of a step to Python floats by name; a metric with several results becomes several entries."""
    if not isinstance(logs, Mapping):
        raise TypeError(f"train_step and test_step must return numbers by name; got {type(logs).__name__!r}")
    found: dict[str, float] = {}
    for name, value in sorted(logs.items()):  # in the order in which Keras shows them
        if isinstance(value, Mapping):
            found.update(as_floats(value))
        else:
            found[name] = float(value)
    return found


def validates_after(epoch: int, frequency: int | Collection[int]) -> bool:
    """True if an epoch, counted from 0, is followed by a validation."""
    return (epoch + 1) % frequency == 0 if isinstance(frequency, int) else epoch + 1 in frequency


def split_validation(
    x: PyTree, y: PyTree, weights: PyTree, part: float
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Split arrays into the examples to train on and the last `part` of them, to validate on."""
    if not 0 < part < 1:
        raise ValueError(f"validation_split must be between 0 and 1; got {part}")
    data = make_batches(x, y, weights, None, None)
    whole = data.as_one_batch()
    length = tensor_leaves(wrap(whole))[0].shape[0]
    # Keras' rounding, so that the same examples are held out.
    at = int(np.floor(length * (1.0 - part)))
    if at in (0, length):
        raise ValueError(f"validation_split={part} of {length} examples leaves none for training or for validation")
    # The last examples are held out, before any shuffling: so Keras does.
    first = map_structure(lambda leaf: wrap(leaf[:at]), whole)
    last = map_structure(lambda leaf: wrap(leaf[at:]), whole)
    return unpack_x_y_sample_weight(first), unpack_x_y_sample_weight(last)


def concatenate(parts: list[Any]) -> Any:
    """Concatenate the arrays in structures along their first axis."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: concatenate([part[key] for part in parts]) for key in first}
    if isinstance(first, list | tuple):
        return type(first)([concatenate(list(column)) for column in zip(*parts, strict=True)])
    return np.concatenate(parts, axis=0)
