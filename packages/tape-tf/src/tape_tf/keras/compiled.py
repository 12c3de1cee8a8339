"""The loss and the metrics of `compile`, applied to labels and predictions, for one output or several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tape_tf.conversion import convert_to_tensor
from tape_tf.keras.losses import Loss, as_loss
from tape_tf.keras.losses import get as get_loss
from tape_tf.keras.metrics import Mean, Metric, as_metric
from tape_tf.keras.metrics import get as get_metric
from tape_tf.keras.structures import leaves
from tape_tf.typing import PyTree, TensorLike


def _by_output(value: PyTree, names: Sequence[str], what: str, for_all: bool = False) -> list[Any]:
    """Distribute an argument of `compile` or `fit` over the outputs of a model; returns a list with a part for each.

    Args:
        what: the name of the argument, for messages.
        for_all: a value that is no list or dict stands for every output.

    Raises:
        ValueError: the number of parts differs from the number of outputs, or a name is none of an output.
    """
    if isinstance(value, dict):
        if unknown := sorted(map(str, value.keys() - set(names))):
            raise ValueError(
                f"{what} has {', '.join(map(repr, unknown))}; the outputs are {', '.join(map(repr, names))}"
            )
        return [value.get(name) for name in names]
    if value is None or (for_all and not isinstance(value, list | tuple)):
        return [value] * len(names)
    if not isinstance(value, list | tuple) or len(value) != len(names):
        raise ValueError(
            f"{what} must have a part for each of the outputs {', '.join(map(repr, names))}; got {value!r}"
        )
    return list(value)


class _Outputs:
    """Base class that splits labels and predictions by output."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names = names

    def split(self, y: PyTree, y_pred: PyTree) -> tuple[list[str], list[Any], list[Any]]:
        """Return the names of the outputs, their labels and their predictions; a single output has the name ""."""
        if isinstance(y_pred, dict):
            names = list(y_pred)
            return names, _by_output(y, names, "y"), list(y_pred.values())
        if isinstance(y_pred, list | tuple):
            names = list(self.names or [f"output_{k}" for k in range(1, len(y_pred) + 1)])
            return names, _by_output(y, names, "y"), list(y_pred)
        return [""], [y], [y_pred]


class CompiledLoss(_Outputs):
    """The loss of `compile`, for all outputs.

    Attributes:
        metrics: for several outputs, the mean loss of each.
    """

    def __init__(self, loss: PyTree, weights: PyTree, names: Sequence[str] | None) -> None:
        super().__init__(names)
        self.loss, self.weights = loss, weights
        self.metrics: list[Metric] = []
        self._losses: list[Loss | None] | None = None
        self._loss_weights: list[Any] = []

    def check(self) -> None:
        """Raise a ValueError for a name that is no loss."""
        for loss in leaves(self.loss):
            # Only whether it exists: the losses are made at the first batch, when the outputs are known.
            get_loss(loss)

    def __call__(
        self,
        y_true: PyTree,
        y_pred: PyTree,
        sample_weight: PyTree = None,
        regularization_losses: Iterable[TensorLike] | None = None,
    ) -> Any:
        """Return the sum of the outputs' losses, each times its weight; None if there is no loss at all."""
        names, labels, predictions = self.split(y_true, y_pred)
        if self._losses is None:
            # The number of outputs is known only now, at the first batch.
            several = len(names) > 1 or names != [""]
            given = _by_output(self.loss, names, "loss", for_all=True) if several else [self.loss]
            self._losses = [None if loss is None else as_loss(loss) for loss in given]
            self._loss_weights = _by_output(self.weights, names, "loss_weights", for_all=True)
            if several:
                self.metrics = [Mean(name=f"{name}_loss") for name in names]
        weights = _by_output(sample_weight, names, "sample_weight", for_all=True)
        total: Any = None
        rows = zip(self._losses, labels, predictions, weights, self._loss_weights, strict=True)
        for k, (loss, label, prediction, weight, factor) in enumerate(rows):
            if loss is None:
                continue
            if label is None:
                raise ValueError(
                    "the data have no y to compare predictions with: pass y, or leave loss out of compile() and use "
                    "add_loss or a train_step of your own"
                )
            value = loss(label, prediction, weight)
            if self.metrics:
                # The metric averages over examples; `value` is the mean of a batch, so it counts with the batch's size.
                self.metrics[k].update_state(value, sample_weight=prediction.shape[0])
            if factor is not None:
                value = value * factor
            total = value if total is None else total + value
        for penalty in regularization_losses or []:
            total = penalty if total is None else total + penalty
        return total


class CompiledMetrics(Metric, _Outputs):
    """The metrics of `compile`, weighted and unweighted, for all outputs."""

    def __init__(self, metrics: PyTree, weighted: PyTree, names: Sequence[str] | None) -> None:
        Metric.__init__(self, name="compile_metrics")
        self.names = names
        self._configured = (metrics, weighted)
        self._resolved: list[tuple[int, Metric, bool]] | None = None

    def check(self) -> None:
        """Raise a ValueError for a name that is no metric."""
        for metric in leaves(self._configured):
            # "accuracy" stands for one of three metrics, depending on the shapes of labels: see `as_metric`.
            if metric not in ("accuracy", "acc"):
                get_metric(metric)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics; empty before the first batch, since names such as "accuracy" are resolved by its shapes."""
        return [metric for _, metric, _ in self._resolved or []]

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics."""
        return [metric.name for metric in self.metrics]

    def update_state(self, y_true: PyTree, y_pred: PyTree, sample_weight: PyTree = None) -> None:
        """Update the metrics with a batch."""
        names, labels, predictions = self.split(y_true, y_pred)
        if self._resolved is None:
            self._resolved = self._resolve(names, labels, predictions)
        weights = _by_output(sample_weight, names, "sample_weight", for_all=True)
        for k, metric, weighted in self._resolved:
            if labels[k] is None:
                raise ValueError(f"metric {metric.name!r}: the data have no y to compare predictions with")
            metric.update_state(labels[k], predictions[k], sample_weight=weights[k] if weighted else None)

    def _resolve(self, names: list[str], labels: list[Any], predictions: list[Any]) -> list[tuple[int, Metric, bool]]:
        """Make the metrics, each with the number of its output and with True if weights of examples count for it."""
        found = []
        for given, weighted in zip(self._configured, (False, True), strict=True):
            # With a single output the list, or the values of a dict, are the metrics of that output.
            parts = [given] if names == [""] else _by_output(given, names, "metrics")
            if names == [""] and isinstance(given, dict):
                parts = list(given.values())
            for k, part in enumerate(parts):
                for identifier in part if isinstance(part, list | tuple) else [] if part is None else [part]:
                    label, prediction = convert_to_tensor(labels[k]), convert_to_tensor(predictions[k])
                    metric = as_metric(identifier, label, prediction)
                    # With several outputs the log needs to tell whose metric it is: "output_1_accuracy".
                    if names[k]:
                        metric.name = f"{names[k]}_{metric.name}"
                    found.append((k, metric, weighted))
        return found

    def result(self) -> dict[str, Any]:
        """Return the results of all metrics, by name."""
        return {metric.name: metric.result() for metric in self.metrics}

    def reset_state(self) -> None:
        """Reset all metrics."""
        for metric in self.metrics:
            metric.reset_state()
