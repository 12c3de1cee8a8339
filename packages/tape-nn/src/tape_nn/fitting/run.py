"""The state of a training run, and the default steps of training and evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tape_core as tc
from tape_core.staging import host_number
from tape_core.typing import PyTree

from tape_nn.averaging import ExponentialMovingAverage
from tape_nn.fitting.callbacks import HOOKS, Callback
from tape_nn.fitting.data import Batch, examples_in, unpack
from tape_nn.losses import Loss
from tape_nn.metrics import Mean, Metric
from tape_nn.module import Module
from tape_nn.optimizers import GradientAccumulation
from tape_nn.parallel import Strategy
from tape_nn.thresholds import SMALLEST_WEIGHT
from tape_nn.types import OptimizerLike

Step: TypeAlias = Callable[["Run", Batch], Mapping[str, Any]]
"""A step of a run with one batch; it returns numbers by name, such as the loss."""

LossLike: TypeAlias = Callable[..., Any]
"""A :class:`~tape_nn.losses.Loss`, or a function of y and the predictions."""


class History(dict[str, list[float]]):
    """The results of a run by name: one number for each epoch, NaN for an epoch without that result.

    >>> from tape_nn.fitting import History
    >>> history = History()
    >>> history.append({"loss": 2.0})
    >>> history.append({"loss": 1.0, "val_loss": 3.0})
    >>> history, history.epochs
    ({'loss': [2.0, 1.0], 'val_loss': [nan, 3.0]}, 2)
    """

    epochs: int = 0
    """The number of epochs."""

    def append(self, logs: Mapping[str, float]) -> None:
        """Add the results of an epoch."""
        for name in logs:
            # A result that appears late, such as one of a callback, gets NaN for the epochs before: lists stay of one
            # length.
            self.setdefault(name, [math.nan] * self.epochs)
        for name, values in self.items():
            values.append(float(logs.get(name, math.nan)))
        self.epochs += 1


class Run:
    """The state of a run of :func:`tape_nn.fit`, which callbacks and steps get.

    Attributes:
        model, optimizer, loss: the arguments of `fit`; a plain function as loss is wrapped in a `Loss`.
        metrics: the metrics by name.
        parallel: the strategy of a run on several devices, or None.
        epochs: the total number of epochs.
        epoch: the number of the current epoch, counted from 0.
        batch: the number of batches of this epoch that are done.
        step: the number of batches of all epochs that are done.
        length: the number of batches in an epoch; None if it is not known.
        stopped: whether `stop()` was called.
        history: the results of the epochs that are done.
    """

    # Compiled steps read these in each call.
    epoch: Any = host_number()
    batch: Any = host_number()
    step: Any = host_number()

    def __init__(
        self,
        model: Module,
        optimizer: OptimizerLike | Mapping[str, OptimizerLike] | None = None,
        loss: LossLike | None = None,
        metrics: Iterable[Metric] | Mapping[str, Metric] = (),
        callbacks: Sequence[object] = (),
        epochs: int = 1,
        parallel: Strategy | None = None,
    ) -> None:
        for name, value in (("loss", loss), ("optimizer", optimizer)):
            if isinstance(value, type):
                raise TypeError(f"{name}: {value.__name__} is a class; pass an object of it, {value.__name__}()")
        if loss is not None and not callable(loss):
            raise TypeError(
                f"loss must be a function of y and the predictions, such as nn.losses.MeanSquaredError(); got {loss!r}"
            )
        self.model: Any = model  # Any, since a Module promises no `__call__`
        self.optimizer: Any = optimizer
        self.loss = loss if loss is None or isinstance(loss, Loss) else Loss(loss)
        self.metrics = _by_name(metrics)
        self.callbacks: list[Any] = list(callbacks)
        for callback in self.callbacks:
            if isinstance(callback, type):
                raise TypeError(
                    f"callbacks: {callback.__name__} is a class; pass an object of it, {callback.__name__}()"
                )
            if not any([hasattr(callback, hook) for hook in HOOKS]):
                raise TypeError(f"callbacks: {callback!r} has none of the methods {', '.join(HOOKS)}")
        self.parallel = parallel
        self.epochs = epochs
        self.epoch = self.batch = self.step = 0
        self.length: int | None = None
        self.stopped = False
        self.history = History()
        self.arguments: dict[str, Any] = {}  # plain values that must be equal for the run to be resumed
        self.epoch_random: dict[str, list[int]] = {}  # the random states when the epoch began
        self.means: dict[str, Mean] = {}  # of the numbers that steps return
        self._final: dict[str, float] | None = None  # the results of the epoch when all its batches are done

    @property
    def logs(self) -> dict[str, float]:
        """The results by name: means over the batches so far; at the end of an epoch also those of the validation."""
        if self._final is not None:
            return self._final
        return {name: metric.result() for name, metric in (*self.means.items(), *self.metrics.items())}

    @property
    def optimizers(self) -> dict[str, Any]:
        """The optimizers by name; a single one has the name `""`."""
        if self.optimizer is None:
            return {}
        return dict(self.optimizer) if isinstance(self.optimizer, Mapping) else {"": self.optimizer}

    @property
    def accumulations(self) -> list[GradientAccumulation]:
        """The optimizers that accumulate gradients, also those inside of a LossScaler."""
        found = []
        for optimizer in self.optimizers.values():
            while optimizer is not None:
                if isinstance(optimizer, GradientAccumulation):
                    found.append(optimizer)
                optimizer = getattr(optimizer, "optimizer", None)
        return found

    @property
    def is_accumulating(self) -> bool:
        """Whether gradients wait for the next update, so that the last step has changed no weights."""
        return any([accumulation.pending for accumulation in self.accumulations])

    @property
    def stateful(self) -> list[Any]:
        """The callbacks with a state of their own, which checkpoints contain."""
        # Those whose class overrides `state_dict`, or has one without deriving from Callback.
        none = Callback.state_dict
        return [callback for callback in self.callbacks if getattr(type(callback), "state_dict", none) is not none]

    def stop(self) -> None:
        """End the run after this epoch; if called from a batch, without the rest of the epoch."""
        self.stopped = True

    def compare_stops(self, where: str) -> None:
        """Check that the run was stopped on all processes or on none: else they would wait for each other.

        Raises:
            ValueError: one has stopped it, and another has not.
        """
        if self.parallel is not None:
            cure = "Callbacks and steps must stop a run on all processes or on none"
            self.parallel.compare({"stopped": str(self.stopped)}, f"fit, {where}", "decisions", cure)

    def accumulate(self, steps: int) -> None:
        """Have the optimizers update the weights once for so many batches."""
        reduction: Any = "sum" if getattr(self.loss, "reduction", None) == "sum" else "mean"
        wrapped = {name: GradientAccumulation(own, steps, reduction) for name, own in self.optimizers.items()}
        self.optimizer = wrapped if isinstance(self.optimizer, Mapping) else wrapped[""]

    def tell_examples(self, batch: Batch) -> None:
        """Tell the optimizers that accumulate gradients by how much the batch counts in the mean."""
        accumulations = self.accumulations
        if not accumulations:
            return
        number: float = examples_in(batch)
        if self.loss is not None:
            _, y, weights = unpack(batch)
            number = self.loss.divisor(y, weights, examples_in(batch))
        for accumulation in accumulations:
            # A batch of which nothing counts has a gradient of 0, and must not lead to 0 / 0.
            accumulation.set_examples(max(number, SMALLEST_WEIGHT))

    def flush(self) -> None:
        """Update the weights with gradients that wait for further batches."""
        for accumulation in self.accumulations:
            accumulation.flush()

    def flush_at_end(self) -> None:
        """Do as `flush`, after the last step's callbacks: averages of the weights must see that update, too."""
        if self.is_accumulating:
            self.flush()
            for callback in self.callbacks:
                if isinstance(callback, ExponentialMovingAverage):
                    callback.update()

    def update_metrics(self, y: PyTree, predictions: PyTree) -> None:
        """Add a batch to all metrics."""
        for metric in self.metrics.values():
            metric.update(y, predictions)

    def take(self, results: Mapping[str, Any], batch: Batch) -> None:
        """Add the numbers that a step has returned to the means of the epoch."""
        examples = examples_in(batch)
        for name, value in results.items():
            if name not in self.means:
                self.means[name] = Mean(name)
            # Weighted by the number of examples, as the last batch of an epoch may be smaller.
            self.means[name].update(float(value), examples)

    def begin_epoch(self) -> None:
        """Reset the means and the metrics."""
        self.batch = 0
        self._final = None
        self.means = {}
        for metric in self.metrics.values():
            metric.reset()

    def end_epoch(self) -> None:
        """Fix the results of the epoch: from now on `logs` is a dictionary to which others may be added."""
        self._final = self.logs  # a copy of the numbers: the property makes a dictionary each time before this

    def call(self, hook: str) -> None:
        """Call a method, such as "on_epoch_end", of all callbacks that have it."""
        for callback in self.callbacks:
            method = getattr(callback, hook, None)
            if method is not None:
                method(self)


def train_step(run: Run, batch: Batch) -> Mapping[str, Any]:
    """Do the default step of `fit`: compute the loss and its gradients, update the weights.

    Returns:
        The loss, under the name "loss". The metrics of the run are updated.
    """
    x, y, weights = unpack(batch)
    with tc.GradientTape() as tape:
        predictions = run.model(x)
        loss = _loss(run, y, predictions, weights)
        # The identity for all optimizers but LossScaler; the loss that is reported is not scaled.
        scaled = run.optimizer.scale_loss(loss)
    variables = run.model.trainable_variables
    # Outside of the tape's block: the update is nothing to be differentiated, and needs no records.
    run.optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables, strict=True))
    run.update_metrics(y, predictions)
    return {"loss": loss}


def test_step(run: Run, batch: Batch) -> Mapping[str, Any]:
    """Do the default step of `evaluate`: update the metrics, and return the loss if there is one."""
    x, y, weights = unpack(batch)
    predictions = run.model(x)
    run.update_metrics(y, predictions)
    return {} if run.loss is None else {"loss": _loss(run, y, predictions, weights)}


# pytest would collect it as a test in modules that import it.
test_step.__test__ = False  # type: ignore[attr-defined]


def compiled_step(run: Run, step: Step, compile: bool | str) -> Step:
    """Return a step that is compiled for this run, or `step` itself if `compile` is False."""
    if compile is False:
        return step
    if compile is not True and not isinstance(compile, str):
        raise TypeError(f"fit: compile must be True, False or the name of a compiler; got {compile!r}")

    def on_batch(batch: Batch) -> Mapping[str, Any]:
        # A number that is read anew in each call, such as `run.epoch`, is returned as a Tensor.
        return {
            name: value if isinstance(value, tc.Tensor | Metric) else tc.asarray(value, dtype=tc.float64)
            for name, value in step(run, batch).items()
        }

    on_batch.__name__ = getattr(step, "__name__", "step")  # for messages
    compiled = tc.function(compile=None if compile is True else compile)(on_batch)

    def run_compiled(run: Run, batch: Batch) -> Mapping[str, Any]:
        found: Mapping[str, Any] = compiled(batch)
        return found

    return run_compiled


def _loss(run: Run, y: PyTree, predictions: PyTree, weights: tc.Tensor | None) -> tc.Tensor:
    if y is None:
        raise ValueError("the data have no y to compare predictions with; pass (x, y), or a train_step of your own")
    assert run.loss is not None
    loss = run.loss(y, predictions, weights)
    if loss.ndim:
        raise ValueError(f"the loss must be one number; got shape {loss.shape}. Reduce it, by a mean for instance")
    return loss


def _by_name(metrics: Iterable[Metric] | Mapping[str, Metric]) -> dict[str, Metric]:
    if isinstance(metrics, Metric):
        raise TypeError(f"metrics must be a list of metrics; got {metrics!r}: write metrics=[...]")
    pairs = metrics.items() if isinstance(metrics, Mapping) else [(getattr(m, "name", ""), m) for m in metrics]
    found: dict[str, Metric] = {}
    for name, metric in pairs:
        if not isinstance(metric, Metric):
            raise TypeError(f"metrics must be metrics, such as nn.metrics.Accuracy(); got {metric!r}")
        if name in found or name == "loss":
            raise ValueError(f"metrics: the name {name!r} is taken; name one of them, as in Mean(name='other')")
        found[name] = metric
    return found
