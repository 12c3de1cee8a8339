"""A training run: what it consists of, where it is, and what one step does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tape_core as tc

from tape_nn.fitting.callbacks import HOOKS, Callback
from tape_nn.fitting.data import examples_in, unpack
from tape_nn.losses import Loss
from tape_nn.metrics import Mean, Metric

Step: TypeAlias = Callable[["Run", Any], Mapping[str, Any]]


class History(dict[str, list[float]]):
    """What was measured, by name: one number for each epoch, NaN where an epoch had none.

    >>> from tape_nn.fitting import History
    >>> history = History()
    >>> history.append({"loss": 2.0})
    >>> history.append({"loss": 1.0, "val_loss": 3.0})
    >>> history, history.epochs
    ({'loss': [2.0, 1.0], 'val_loss': [nan, 3.0]}, 2)
    """

    epochs: int = 0
    """How many epochs there were."""

    def append(self, logs: Mapping[str, float]) -> None:
        """Add an epoch."""
        for name in logs:
            self.setdefault(name, [math.nan] * self.epochs)
        for name, values in self.items():
            values.append(float(logs.get(name, math.nan)))
        self.epochs += 1


class Run:
    """A run of :func:`tape_nn.fit`, as callbacks and steps see it.

    Attributes:
        model, optimizer, loss: what was given to `fit`; a function that was given as loss is a `Loss`.
        metrics: the metrics by name.
        epochs: how many epochs there will be.
        epoch: the number of this one, from 0.
        batch: how many batches of the epoch are done.
        step: how many batches of all epochs are done.
        length: how many batches an epoch has; None where that is not known.
        stopped: whether `stop()` was called.
        history: the epochs that are over.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Iterable[Metric] | Mapping[str, Metric] = (),
        callbacks: Sequence[Any] = (),
        epochs: int = 1,
    ) -> None:
        for name, value in (("loss", loss), ("optimizer", optimizer)):
            if isinstance(value, type):
                raise TypeError(f"{name}: {value.__name__} is a class; pass an object of it, {value.__name__}()")
        if loss is not None and not callable(loss):
            raise TypeError(
                f"loss must be a function of y and the predictions, such as nn.losses.MeanSquaredError(); got {loss!r}"
            )
        self.model = model
        self.optimizer = optimizer
        self.loss = loss if loss is None or isinstance(loss, Loss) else Loss(loss)
        self.metrics = _named(metrics)
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if isinstance(callback, type):
                raise TypeError(
                    f"callbacks: {callback.__name__} is a class; pass an object of it, {callback.__name__}()"
                )
            if not any([hasattr(callback, hook) for hook in HOOKS]):
                raise TypeError(f"callbacks: {callback!r} has none of the methods {', '.join(HOOKS)}")
        self.epochs = epochs
        self.epoch = self.batch = self.step = 0
        self.length: int | None = None
        self.stopped = False
        self.history = History()
        self.arguments: dict[str, Any] = {}  # what must be the same for the run to go on later
        self.epoch_random: dict[str, list[int]] = {}  # the random states when the epoch began
        self.means: dict[str, Mean] = {}
        self._final: dict[str, float] | None = None

    @property
    def logs(self) -> dict[str, float]:
        """The results by name: means over the batches so far, and at the end of an epoch those of the validation."""
        if self._final is not None:
            return self._final
        return {name: metric.result() for name, metric in (*self.means.items(), *self.metrics.items())}

    @property
    def optimizers(self) -> dict[str, Any]:
        """The optimizers by name; one alone has the name `""`."""
        if self.optimizer is None:
            return {}
        return dict(self.optimizer) if isinstance(self.optimizer, Mapping) else {"": self.optimizer}

    @property
    def stateful(self) -> list[Any]:
        """The callbacks that remember something."""
        none = Callback.state_dict
        return [callback for callback in self.callbacks if getattr(type(callback), "state_dict", none) is not none]

    def stop(self) -> None:
        """End the run: after this epoch, or where called from a batch, without the rest of it."""
        self.stopped = True

    def update_metrics(self, y: Any, predictions: Any) -> None:
        """Have all metrics take in a batch."""
        for metric in self.metrics.values():
            metric.update(y, predictions)

    def take(self, results: Mapping[str, Any], batch: Any) -> None:
        """Note what a step has returned: numbers, of which the epoch has the mean."""
        examples = examples_in(batch)
        for name, value in results.items():
            if name not in self.means:
                self.means[name] = Mean(name)
            self.means[name].update(float(value), examples)

    def begin_epoch(self) -> None:
        """Start to count anew."""
        self.batch = 0
        self._final = None
        self.means = {}
        for metric in self.metrics.values():
            metric.reset()

    def end_epoch(self) -> None:
        """From now on `logs` are the results of this epoch, to which others may be added."""
        self._final = self.logs

    def call(self, hook: str) -> None:
        """Call a method of all callbacks that have it."""
        for callback in self.callbacks:
            method = getattr(callback, hook, None)
            if method is not None:
                method(self)


def train_step(run: Run, batch: Any) -> Mapping[str, Any]:
    """What `fit` does with a batch unless told otherwise: record the loss, walk back, move the weights.

    Returns:
        The loss, under the name "loss". The metrics of the run are updated.
    """
    x, y, weights = unpack(batch)
    with tc.GradientTape() as tape:
        predictions = run.model(x)
        loss = _loss(run, y, predictions, weights)
        scaled = run.optimizer.scale_loss(loss)
    variables = run.model.trainable_variables
    run.optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables, strict=True))
    run.update_metrics(y, predictions)
    return {"loss": loss}


def test_step(run: Run, batch: Any) -> Mapping[str, Any]:
    """What `evaluate` does with a batch unless told otherwise; returns the loss, where there is one."""
    x, y, weights = unpack(batch)
    predictions = run.model(x)
    run.update_metrics(y, predictions)
    return {} if run.loss is None else {"loss": _loss(run, y, predictions, weights)}


test_step.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test


def _loss(run: Run, y: Any, predictions: Any, weights: Any) -> tc.Tensor:
    if y is None:
        raise ValueError("the data have no y to compare predictions with; pass (x, y), or a train_step of your own")
    assert run.loss is not None
    loss = run.loss(y, predictions, weights)
    if loss.ndim:
        raise ValueError(f"the loss must be one number; got shape {loss.shape}. Reduce it, by a mean for instance")
    return loss


def _named(metrics: Iterable[Metric] | Mapping[str, Metric]) -> dict[str, Metric]:
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
