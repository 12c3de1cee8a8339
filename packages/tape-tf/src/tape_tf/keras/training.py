"""Trainer: `compile`, `fit`, `evaluate` and `predict`. The loop over epochs and batches is that of `tape_nn.fit`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import tape_nn as nn
from tape_compile.extend import Methods, WeakMethod
from tape_core.support import warn_user
from tape_nn.extend import with_class_weights

from tape_tf.conversion import wrap
from tape_tf.distribute.strategies import get_strategy
from tape_tf.keras import optimizers
from tape_tf.keras.backup import BackupAndRestore
from tape_tf.keras.callbacks import Callback, CallbackList, History
from tape_tf.keras.compiled import CompiledLoss, CompiledMetrics
from tape_tf.keras.data import Batches, HostStrings, batch_to_native, make_batches, unpack_x_y_sample_weight
from tape_tf.keras.fitting import FitAdapter, as_floats, concatenate, split_validation, validates_after
from tape_tf.keras.metrics import Mean, Metric
from tape_tf.keras.optimizers.loss_scaling import LossScaleOptimizer
from tape_tf.keras.progress import Progress
from tape_tf.keras.saving import Weights
from tape_tf.keras.structures import leaves, map_structure, tensor_leaves
from tape_tf.names import published
from tape_tf.ops.function import Function
from tape_tf.tape import GradientTape
from tape_tf.typing import OptimizerLike, PyTree

if TYPE_CHECKING:
    pass

_STEP_FUNCTIONS = "_step_functions"  # the attribute of a model that holds its steps as tf.functions


class Trainer:
    """Base class of Model: training with `compile` and `fit`."""

    optimizer: Any = None
    compiled: bool = False
    stop_training: bool = False
    run_eagerly: bool = False
    loss: Any = None
    output_names: list[str] | None = None
    distribute_strategy: Any = get_strategy()  # whose scope was open at `compile`: its `run` calls the steps
    _compiled_loss: CompiledLoss | None = None
    _compiled_metrics: CompiledMetrics | None = None
    _compiled_mean: Mean | None = None
    _compile_arguments: dict[str, Any]

    def compile(
        self,
        optimizer: OptimizerLike = "rmsprop",
        loss: PyTree = None,
        loss_weights: PyTree = None,
        metrics: PyTree = None,
        weighted_metrics: PyTree = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Set the optimizer, the loss and the metrics.

        Args:
            optimizer: an optimizer of `tf.keras.optimizers` or its name.
            loss: a loss, a function `loss(y_true, y_pred)` or a name; for several outputs a list or dict of these.
            loss_weights: factors of the outputs' losses.
            metrics: a list of metrics, functions or names, such as "accuracy"; for several outputs a list or dict.
            weighted_metrics: metrics to which the weights of examples apply.
            run_eagerly: run each step of `fit`, `evaluate` and `predict` eagerly. By default a step is a
                `tf.function`.
            steps_per_execution, jit_compile: no effect.
            auto_scale_loss: under the policy "mixed_float16" wrap the optimizer in a LossScaleOptimizer.

        Raises:
            ValueError: a name is unknown; metrics are no list or dict, or weights of losses text.
        """
        for name, value in (("metrics", metrics), ("weighted_metrics", weighted_metrics)):
            if value is not None and not isinstance(value, list | tuple | dict):
                raise ValueError(
                    f"Expected `{name}` argument to be a list, tuple, or dict. Received instead: {value!r}"
                )
        if any(isinstance(weight, str) for weight in leaves(loss_weights)):
            raise ValueError(
                f"compile: loss_weights, the third argument, are numbers, as in Keras; got {loss_weights!r}. Pass "
                "metrics by name: compile(optimizer, loss, metrics=[...])"
            )
        # Everything is made before the first attribute is set: a `compile` that fails leaves the model as it was.
        made = optimizers.get(optimizer)
        mixed = self.dtype_policy.name == "mixed_float16"  # type: ignore[attr-defined]
        if mixed and auto_scale_loss and not isinstance(made, LossScaleOptimizer):
            made = LossScaleOptimizer(made, name="loss_scale_optimizer")
        compiled_loss = None
        if loss is not None:
            compiled_loss = CompiledLoss(loss, loss_weights, self.output_names)
            compiled_loss.check()
        compiled_metrics = None
        if metrics or weighted_metrics:
            compiled_metrics = CompiledMetrics(metrics, weighted_metrics, self.output_names)
            compiled_metrics.check()
        self._compile_arguments = {
            "optimizer": optimizer,
            "loss": loss,
            "loss_weights": loss_weights,
            "metrics": metrics,
            "weighted_metrics": weighted_metrics,
            "run_eagerly": run_eagerly,
        }
        self.optimizer, self.loss = made, loss
        self._compiled_loss, self._compiled_metrics = compiled_loss, compiled_metrics
        self._compiled_mean = Mean(name="loss")
        self.stop_training = False
        self.distribute_strategy = get_strategy()
        self.run_eagerly = bool(run_eagerly)
        vars(self).pop(_STEP_FUNCTIONS, None)  # they were traced with the former optimizer, loss and metrics
        self.compiled = True

    def get_compile_config(self) -> dict[str, Any] | None:
        """Describe the arguments of `compile`, for :meth:`compile_from_config`; None before `compile`."""
        if not self.compiled:
            return None
        describe = published()["keras.saving.serialize_keras_object"]
        return {name: describe(value) for name, value in self._compile_arguments.items()}

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Call `compile` with the arguments that :meth:`get_compile_config` described."""
        restored = published()["keras.saving.deserialize_keras_object"]
        self.compile(**{name: restored(value) for name, value in config.items()})

    def make_train_function(self, force: bool = False) -> Callable[[Iterator[Any]], dict[str, Any]]:
        """Return a function that trains on the next batch of an iterator, and returns the logs of the step."""
        return lambda iterator: self._next_step("train_step", iterator)

    def make_test_function(self, force: bool = False) -> Callable[[Iterator[Any]], dict[str, Any]]:
        """Return a function that evaluates the next batch of an iterator, and returns the logs of the step."""
        return lambda iterator: self._next_step("test_step", iterator)

    def make_predict_function(self, force: bool = False) -> Callable[[Iterator[Any]], Any]:
        """Return a function that predicts the next batch of an iterator."""
        return lambda iterator: self._next_step("predict_step", iterator)

    def _next_step(self, name: str, iterator: Iterator[Any]) -> Any:
        return self._step(name, batch_to_native(next(iterator)))

    # -- loss and metrics

    @property
    def metrics(self) -> list[Metric]:
        """The mean loss, the metrics of `compile` as one metric, and the metrics held as attributes."""
        found: list[Metric] = []
        if self._compiled_mean is not None:
            found.append(self._compiled_mean)
        if self._compiled_metrics is not None:
            found.append(self._compiled_metrics)
        if self._compiled_loss is not None:
            found += self._compiled_loss.metrics
        held: list[Metric] = self._metrics()  # type: ignore[attr-defined]
        return found + held

    @property
    def metrics_names(self) -> list[str]:
        """The names of the metrics."""
        return [metric.name for metric in self.metrics]

    @property
    def compiled_loss(self) -> Any:
        """The loss of `compile`, a function of labels and predictions."""
        return self._compiled_loss

    @property
    def compiled_metrics(self) -> Any:
        """The metrics of `compile`, as one metric with `update_state`."""
        return self._compiled_metrics or CompiledMetrics(None, None, None)

    def reset_metrics(self) -> None:
        """Reset all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def compute_loss(
        self,
        x: PyTree = None,
        y: PyTree = None,
        y_pred: PyTree = None,
        sample_weight: PyTree = None,
        training: bool = True,
    ) -> Any:
        """Return the loss of `compile` plus :attr:`losses`. Override it to define another loss.

        Raises:
            ValueError: there is neither a loss nor a penalty.
        """
        total = None if self._compiled_loss is None else self._compiled_loss(y, y_pred, sample_weight)
        # The layers' penalties are not weighted by examples, as in Keras.
        for penalty in self.losses:  # type: ignore[attr-defined]
            total = penalty if total is None else total + penalty
        if total is None:
            raise ValueError("No loss to compute. Provide a `loss` argument in `compile()`.")
        return total

    def compute_metrics(self, x: PyTree, y: PyTree, y_pred: PyTree, sample_weight: PyTree = None) -> dict[str, Any]:
        """Update the metrics of `compile` with a batch, and return the results of all metrics by name."""
        if self._compiled_metrics is not None:
            self._compiled_metrics.update_state(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def get_metrics_result(self) -> dict[str, Any]:
        """Return the results of all metrics by name."""
        found: dict[str, Any] = {}
        for metric in self.metrics:
            result = metric.result()
            found.update(result if isinstance(result, dict) else {metric.name: result})
        return found

    def _tracked_loss(self, x: PyTree, y: PyTree, y_pred: PyTree, sample_weight: PyTree, training: bool) -> Any:
        """Return the loss of a batch, and update the mean loss with it."""
        compute: Any = self.compute_loss
        # An overridden `compute_loss` may have been written for a Keras that did not pass `training`.
        options = {"training": training} if _takes_training(getattr(compute, "__func__", compute)) else {}
        loss = compute(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, **options)
        if self._compiled_mean is not None:
            # The loss is a mean over examples: weigh it by their number, so that a last, smaller batch counts less.
            examples = tensor_leaves(x)[0].shape
            self._compiled_mean.update_state(loss, sample_weight=examples[0] if examples else 1)
        return loss

    # -- steps

    def train_step(self, data: PyTree) -> dict[str, Any]:
        """Train on one batch; `fit` calls it for each. Override it to define another step.

        Args:
            data: `(x, y)`, `(x, y, sample_weight)` or `x`, as tensors.

        Returns:
            Numbers by name, for the logs; those of the last batch are the logs of the epoch.
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        with GradientTape() as tape:
            y_pred = self(x, training=True)  # type: ignore[operator]
            loss = self._tracked_loss(x, y, y_pred, sample_weight, training=True)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables  # type: ignore[attr-defined]
        if variables:
            self.optimizer.apply(tape.gradient(scaled, variables), variables)
        else:
            warn_user("The model does not have any trainable weights.")
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: PyTree) -> dict[str, Any]:
        """Evaluate one batch; `evaluate` calls it for each. Arguments and result are those of :meth:`train_step`."""
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)  # type: ignore[operator]
        self._tracked_loss(x, y, y_pred, sample_weight, training=False)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data: PyTree) -> Any:
        """Predict one batch; `predict` calls it for each."""
        return self(unpack_x_y_sample_weight(data)[0], training=False)  # type: ignore[operator]

    def _step(self, name: str, batch: PyTree) -> Any:
        """Run the step method `name` on a batch, as a `tf.function` unless `run_eagerly` is set."""
        step = getattr(self, name)
        if not self.run_eagerly:
            # The key has the function itself: a method that is replaced is traced anew.
            written = getattr(step, "__func__", step)
            step = Methods.find(
                self, (name, written), lambda: Function(WeakMethod.of(getattr(self, name), self)), _STEP_FUNCTIONS
            )
        return self.distribute_strategy.run(step, args=(_step_argument(batch),))

    # -- loops

    def fit(
        self,
        x: PyTree = None,
        y: PyTree = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Callback | Sequence[Callback] | None = None,
        validation_split: float = 0.0,
        validation_data: PyTree = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: PyTree = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | Collection[int] = 1,
    ) -> History:
        """Train the model: see :func:`tape_nn.fit`, which runs the loop.

        Args:
            x: arrays with the examples along the first axis, alone or in a list, tuple or dict; or a `tf.data.Dataset`,
                a generator or another iterable of batches `(x, y)` or `(x, y, sample_weight)`.
            y: arrays likewise; None for batches.
            batch_size: the number of examples in a batch of arrays; 32 by default.
            epochs: the number of the last epoch, which is also the number of epochs unless `initial_epoch` is given.
            verbose: 0 for silence, 1 for a bar for each epoch ("auto"), 2 for a line.
            callbacks: a list of `tf.keras.callbacks`.
            validation_split: the share of the arrays, from the end, that is held out for validation.
            validation_data: `(x, y)`, `(x, y, sample_weight)` or batches, on which loss and metrics are computed, too.
            shuffle: draw the examples of arrays in another order in each epoch.
            class_weight: factors of the weights of examples, by class.
            sample_weight: a weight for each example.
            initial_epoch: the number of the first epoch.
            steps_per_epoch, validation_steps: the number of batches in an epoch, in a validation; by default all.
            validation_batch_size: by default `batch_size`.
            validation_freq: the number of epochs between validations; or the epochs, from 1, to validate after.

        Returns:
            The history: `history.history` has a list of numbers by name, one for each epoch.

        Raises:
            ValueError: `compile` was not called, arrays differ in length, or an argument does not go with the data.
        """
        self._check_compiled("fit")
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split_validation(x, y, sample_weight, validation_split)
        data = make_batches(x, y, sample_weight, batch_size, steps_per_epoch)
        held_out = None
        if validation_data is not None:
            parts = validation_data if isinstance(validation_data, tuple) else (validation_data,)
            held_out = make_batches(
                *unpack_x_y_sample_weight(parts), validation_batch_size or batch_size, validation_steps
            )
        for callback in _as_list(callbacks):
            if isinstance(callback, BackupAndRestore):  # a run that was interrupted decides where this one begins
                initial_epoch = max(initial_epoch, callback.restore(self))
        history = History()
        verbose = _verbosity(verbose)
        params = {"verbose": verbose, "epochs": epochs, "steps": data.length}
        shown = [Progress(verbose)] if verbose else []
        # Keras' order: the history first, then the bar, then the user's callbacks.
        run = FitAdapter(self, CallbackList([history, *shown, *_as_list(callbacks)], self, params), initial_epoch)
        if held_out is not None:
            # Validation runs inside the epoch's end, before the callbacks of Keras see the logs.
            run.validate = lambda epoch: (
                self._evaluate(held_out, run.callbacks) if validates_after(epoch, validation_freq) else {}
            )
        self.stop_training = False
        nn.fit(
            Weights(self, quiet=True),  # type: ignore[arg-type]
            data.epochs(self, shuffle),
            batch_size=data.batch_size,
            train_step=run.train,
            epochs=max(epochs - initial_epoch, 0),
            callbacks=[run],
            shuffle=shuffle,
            class_weight=class_weight,
            progress=False,
        )
        if self.optimizer is not None:
            # With `use_ema`, the model has the averages after `fit`, as in Keras.
            self.optimizer.finalize_variable_values(self.trainable_variables)  # type: ignore[attr-defined]
        self.history = history
        return history

    def evaluate(
        self,
        x: PyTree = None,
        y: PyTree = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: PyTree = None,
        steps: int | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Return the loss and the metrics on data; the arguments are those of :meth:`fit`.

        Returns:
            The loss, or a list of the loss and the metrics; with `return_dict` a dict of them by name.

        Raises:
            ValueError: the cases of :meth:`fit`.
        """
        self._check_compiled("evaluate")
        data = make_batches(x, y, sample_weight, batch_size, steps)
        verbose = _verbosity(verbose)
        shown = [Progress(verbose)] if verbose else []
        params = {"verbose": verbose, "steps": data.length}
        found = self._evaluate(data, CallbackList([*shown, *_as_list(callbacks)], self, params))
        return self._as_results(found, return_dict)

    def _evaluate(self, data: Batches, callbacks: CallbackList) -> dict[str, float]:
        """Run `test_step` on all batches, and return the logs of the last one."""
        self.reset_metrics()
        callbacks.call("on_test_begin", {})
        logs: dict[str, float] = {}
        for k, batch in enumerate(data.iterate()):
            callbacks.call("on_test_batch_begin", k, {})
            # Metrics accumulate, so that the logs of the last batch are those of all.
            logs = as_floats(self._step("test_step", batch))
            callbacks.call("on_test_batch_end", k, logs)
        if not logs:
            raise ValueError("evaluate: the data have no batches, or test_step gave no numbers")
        callbacks.call("on_test_end", logs)
        return logs

    def predict(
        self,
        x: PyTree,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> Any:
        """Return the outputs for data, computed in batches, as NumPy arrays; the arguments are those of :meth:`fit`."""
        data = make_batches(x, None, None, batch_size, steps)
        verbose = _verbosity(verbose)
        shown = [Progress(verbose)] if verbose else []
        called = CallbackList([*shown, *_as_list(callbacks)], self, {"verbose": verbose, "steps": data.length})
        called.call("on_predict_begin", {})
        parts = []
        for k, batch in enumerate(data.iterate()):
            called.call("on_predict_batch_begin", k, {})
            parts.append(map_structure(np.asarray, self._step("predict_step", batch)))
            called.call("on_predict_batch_end", k, {})
        if not parts:
            raise ValueError("predict: the data have no batches")
        called.call("on_predict_end", {})
        return concatenate(parts)

    def train_on_batch(
        self,
        x: PyTree,
        y: PyTree = None,
        sample_weight: PyTree = None,
        class_weight: Mapping[int, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Train on one batch; returns the loss and the metrics so far, in the form of :meth:`evaluate`."""
        self._check_compiled("train_on_batch")
        batch = make_batches(x, y, sample_weight, None, None).as_one_batch()
        if class_weight is not None:
            batch = with_class_weights(batch, class_weight)
        return self._as_results(as_floats(self._step("train_step", batch)), return_dict)

    def test_on_batch(
        self, x: PyTree, y: PyTree = None, sample_weight: PyTree = None, return_dict: bool = False
    ) -> Any:
        """Evaluate one batch; returns the loss and the metrics so far, in the form of :meth:`evaluate`."""
        self._check_compiled("test_on_batch")
        batch = make_batches(x, y, sample_weight, None, None).as_one_batch()
        return self._as_results(as_floats(self._step("test_step", batch)), return_dict)

    def predict_on_batch(self, x: PyTree) -> Any:
        """Return the outputs for one batch, as NumPy arrays."""
        return map_structure(
            np.asarray, self._step("predict_step", make_batches(x, None, None, None, None).as_one_batch())
        )

    def _as_results(self, logs: dict[str, float], return_dict: bool) -> Any:
        """Return logs in the form of `evaluate`: the loss and the metrics, in the order of :attr:`metrics`."""
        if return_dict:
            return logs
        # A step of the user's may return names that are no metric: they come last.
        order = [name for metric in self.metrics for name in getattr(metric, "metric_names", [metric.name])]
        values = [logs[name] for name in order if name in logs]
        values += [value for name, value in logs.items() if name not in order]
        return values[0] if len(values) == 1 else values

    def _check_compiled(self, method: str) -> None:
        if not self.compiled:
            raise ValueError(f"You must call `compile()` before using the model: {method} needs it.")


def _step_argument(batch: PyTree) -> Any:
    """Return a batch in the form that a step method receives: `x` alone if it is one tensor and there is no `y`."""
    data = wrap(map_structure(HostStrings.content, batch))
    return data[0] if isinstance(data, tuple) and len(data) == 1 and not isinstance(data[0], tuple | list) else data


@cache
def _takes_training(function: Callable[..., Any]) -> bool:
    """True if a `compute_loss`, which the user may have overridden, has the parameter `training`."""
    return "training" in inspect.signature(function).parameters


def _as_list(value: Callback | Sequence[Callback] | None) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _verbosity(verbose: int | str) -> int:
    """Return `verbose` as 0, 1 or 2; "auto" is 1."""
    number = 1 if verbose == "auto" else int(verbose)
    if number not in (0, 1, 2):
        raise ValueError(f"verbose must be 0, 1, 2 or 'auto'; got {verbose!r}")
    return number
