"""Metrics, such as an accuracy: means over batches, accumulated in Python floats.

>>> import tape_nn as nn
>>> accuracy = nn.metrics.SparseCategoricalAccuracy()
>>> accuracy.update([1, 0], [[0.2, 0.8], [0.3, 0.7]])
>>> accuracy.update([1, 1], [[0.2, 0.8], [0.3, 0.7]])
>>> accuracy.result()
0.75
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import tape_core as tc
from tape_core import Tensor
from tape_core.meshes import whole
from tape_core.staging import (
    HostNumber,
    TracingError,
    current,
    host_callback,
    host_function,
    host_number,
    opaque,
    stateful,
)
from tape_core.support import Commit, lenient
from tape_core.typing import ArrayLike

from tape_nn.naming import describe_settings
from tape_nn.types import StateDict

PythonNumber: TypeAlias = Any
"""A Python number; while a function is compiled, the traced value of one."""


class Metric:
    """Base class of metrics: the (weighted) mean of a number for each example. Subclasses define `values`.

    Args:
        name: the name in a history; by default one for each class, such as "accuracy".
    """

    name = "metric"

    # Python numbers, since float64 sums are the same on every backend. `host_number()` lets compiled functions read and
    # assign them, as they do Variables.
    _total: Any = host_number()
    _count: Any = host_number()

    def __init__(self, name: str | None = None) -> None:
        if name is not None:
            self.name = name
        self.reset()

    @lenient
    def __repr__(self) -> str:
        return describe_settings(self, name=self.name)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return a number for each example: an array whose first axis is that of the examples."""
        raise NotImplementedError

    def _holders(self) -> list[HostNumber]:
        """The numbers that an update changes; see `stateful`."""
        return [Metric._total.of(self), Metric._count.of(self)]

    @stateful(_holders)
    def update(self, y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Add a batch.

        Args:
            sample_weight: a weight for each example.

        Raises:
            ValueError: the shapes do not go together.
        """
        # Inside a tape's block, what a metric computes is not recorded.
        y_pred = tc.stop_gradient(y_pred if isinstance(y_pred, Tensor) else tc.asarray(y_pred))
        if not isinstance(y_true, Tensor):
            y_true = tc.asarray(y_true, backend=y_pred.backend, device=y_pred.device)
        self._add_values(self.values(tc.stop_gradient(y_true), y_pred), sample_weight)

    def _add_values(self, values: Tensor, sample_weight: ArrayLike | None) -> None:
        # In float64, since float32 cannot count beyond 2**24.
        values = tc.astype(values, tc.float64)
        if sample_weight is None:
            # The sum comes to the host in each update: with a GPU, this waits for it.
            self._accumulate(_as_number(tc.sum(values)), values.size)
            return
        weights = tc.asarray(sample_weight, dtype=tc.float64, backend=values.backend, device=values.device)
        if weights.shape != values.shape[: weights.ndim]:
            raise ValueError(
                f"{self.name}: sample_weight of shape {weights.shape} must have the shape of the examples, "
                f"{values.shape}, or of their first axes"
            )
        weights = tc.reshape(weights, weights.shape + (1,) * (values.ndim - weights.ndim))
        total = _as_number(tc.sum(values * weights))
        self._accumulate(total, _as_number(tc.sum(tc.broadcast_to(weights, values.shape))))

    def _accumulate(self, total: PythonNumber, count: PythonNumber) -> None:
        self._assign(self._total + total, self._count + count)

    def _assign(self, total: PythonNumber, count: PythonNumber) -> None:
        """Assign both at once: an interrupt does not leave a total of one batch more than the count."""
        commit = Commit()
        commit.value(Metric._total.of(self), total)
        commit.value(Metric._count.of(self), count)
        commit.make()

    def result(self) -> float:
        """Return the metric of all batches since the last reset; NaN before the first."""
        return _mean(self._total, self._count)

    def reset(self) -> None:
        """Forget all batches."""
        self._total = 0.0
        self._count = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far, for a checkpoint."""
        return {"total": self._total, "count": self._count}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state that `state_dict` gave."""
        self._assign(state["total"], state["count"])


class Mean(Metric):
    """The mean of numbers, such as losses: `update(values, sample_weight)`.

    >>> import tape_nn as nn
    >>> mean = nn.metrics.Mean()
    >>> mean.update([1.0, 3.0])
    >>> mean.update(8.0)
    >>> mean.result()
    4.0
    """

    name = "mean"

    @stateful(Metric._holders)
    def update(self, values: ArrayLike, sample_weight: ArrayLike | None = None) -> None:  # type: ignore[override]
        """Add numbers."""
        # The numbers of a step of `fit`, one for each batch: no array is made of them.
        if isinstance(values, float) and isinstance(sample_weight, int | float):
            self._accumulate(values * sample_weight, sample_weight)
            return
        self._add_values(tc.stop_gradient(values if isinstance(values, Tensor) else tc.asarray(values)), sample_weight)


class Accuracy(Metric):
    """The share of examples whose `y_pred` equals `y_true`, both class numbers.

    >>> import tape_nn as nn
    >>> accuracy = nn.metrics.Accuracy()
    >>> accuracy.update([1, 2, 3, 4], [1, 2, 3, 0])
    >>> accuracy.result()
    0.75
    """

    name = "accuracy"

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return True for each prediction that equals the truth."""
        return _check_same_shape(self.name, y_true, y_pred) == y_pred


class BinaryAccuracy(Metric):
    """The share of yes-or-no predictions that are right: `y_pred > threshold` means 1. For logits take the threshold 0.

    >>> import tape_nn as nn
    >>> accuracy = nn.metrics.BinaryAccuracy()
    >>> accuracy.update([1, 0, 1, 1], [0.9, 0.2, 0.5, 0.6])
    >>> accuracy.result()
    0.75
    """

    name = "binary_accuracy"

    def __init__(self, threshold: float = 0.5, name: str | None = None) -> None:
        super().__init__(name)
        self.threshold = float(threshold)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return True for each prediction on the side of the threshold that the truth is on."""
        # The truth has its own threshold, 1/2, whatever that of the predictions is: labels may be smoothed.
        return (_check_same_shape(self.name, y_true, y_pred) > 0.5) == (y_pred > self.threshold)


class CategoricalAccuracy(Metric):
    """The share of examples whose largest `y_pred` along the last axis is that of the class, with one-hot `y_true`.

    >>> import tape_nn as nn
    >>> accuracy = nn.metrics.CategoricalAccuracy()
    >>> accuracy.update([[0, 1], [1, 0]], [[0.2, 0.8], [0.3, 0.7]])
    >>> accuracy.result()
    0.5
    """

    name = "categorical_accuracy"

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return True for each example whose class is predicted."""
        return tc.argmax(_check_same_shape(self.name, y_true, y_pred), axis=-1) == tc.argmax(y_pred, axis=-1)


class SparseCategoricalAccuracy(Metric):
    """The share of examples whose largest `y_pred` along the last axis is that of the class number `y_true`."""

    name = "sparse_categorical_accuracy"

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return True for each example whose class is predicted."""
        return tc.argmax(y_pred, axis=-1) == _check_class_numbers(self.name, y_true, y_pred)


class SparseTopKCategoricalAccuracy(Metric):
    """The share of examples whose class number `y_true` is among the `k` largest of `y_pred` along the last axis.

    Classes that tie with the k-th are among them. Where an element of `y_pred` is infinite or NaN, or there is no such
    class, the example counts as wrong, as in TensorFlow.

    >>> import tape_nn as nn
    >>> accuracy = nn.metrics.SparseTopKCategoricalAccuracy(k=2)
    >>> accuracy.update([1, 2], [[0.5, 0.2, 0.3], [0.1, 0.5, 0.4]])
    >>> accuracy.result()
    0.5
    """

    name = "sparse_top_k_categorical_accuracy"

    def __init__(self, k: int = 5, name: str | None = None) -> None:
        super().__init__(name)
        self.k = int(k)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return True for each example whose class is among the `k` largest."""
        # A class is among the k largest if fewer than k predictions are larger. This sorts nothing, and ties count.
        # Labels may come as floats, as Keras allows, and those index nothing. A label that is no class is replaced by 0
        # for the lookup, and counted as wrong by `known`.
        labels = tc.astype(_check_class_numbers(self.name, y_true, y_pred), tc.int64)
        known = (labels >= 0) & (labels < y_pred.shape[-1]) & tc.all(tc.isfinite(y_pred), axis=-1)
        of_class = tc.take_along_axis(y_pred, tc.expand_dims(tc.where(known, labels, 0), axis=-1), axis=-1)
        # Strictly larger, so that a tie with the k-th counts as right.
        return known & (tc.count_nonzero(y_pred > of_class, axis=-1) < self.k)


class TopKCategoricalAccuracy(SparseTopKCategoricalAccuracy):
    """:class:`SparseTopKCategoricalAccuracy` for `y_true` that is one-hot."""

    name = "top_k_categorical_accuracy"

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return True for each example whose class is among the `k` largest."""
        return super().values(tc.argmax(_check_same_shape(self.name, y_true, y_pred), axis=-1), y_pred)


class AUC(Metric):
    """The area under the ROC curve: the probability that a positive example has a larger `y_pred` than a negative one.

    Equal predictions count half. The area is exact (Mann and Whitney, 1947), where Keras sums over 200 thresholds; so
    all predictions are kept until the next reset. It is NaN while one of the two classes has no example.

    With `curve="PR"` it is the area under the curve of precision over recall, whose points lie at all different
    predictions, interpolated between them as Davis and Goadrich (2006) do; it needs positive examples alone.

    >>> import tape_nn as nn
    >>> auc = nn.metrics.AUC()
    >>> auc.update([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])
    >>> auc.result()
    0.75

    Args:
        curve: "ROC" or "PR".
        summation: "interpolation", or for steps of the smaller or larger height of each two neighbouring points
            "minoring" or "majoring".

    Raises:
        ValueError: the curve or the summation is none of these.
    """

    name = "auc"

    def __init__(self, curve: str = "ROC", summation: str = "interpolation") -> None:
        if curve not in ("ROC", "PR"):
            raise ValueError(f"AUC: curve must be 'ROC' or 'PR'; got {curve!r}")
        if summation not in ("interpolation", "minoring", "majoring"):
            raise ValueError(f"AUC: summation must be 'interpolation', 'minoring' or 'majoring'; got {summation!r}")
        self.curve, self.summation = curve, summation
        super().__init__()

    # Lists that grow are no numbers that a trace could follow: a compiled function calls this in Python.
    @opaque
    def update(self, y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Add a batch: 0 or 1, probabilities or logits of the same shape, and a weight for each."""
        y_pred = tc.stop_gradient(y_pred if isinstance(y_pred, Tensor) else tc.asarray(y_pred))
        truth = y_true if isinstance(y_true, Tensor) else tc.asarray(y_true, backend=y_pred.backend)
        weight = tc.asarray(1.0 if sample_weight is None else sample_weight, dtype=tc.float64, backend=y_pred.backend)
        if weight.shape not in ((), y_pred.shape):
            raise ValueError(
                f"auc: sample_weight of shape {weight.shape} must have the shape of y_pred, {y_pred.shape}"
            )
        # Of divided batches each process has some examples, and the area is that of all.
        truth, scores, weight = map(whole, (_check_same_shape(self.name, truth, y_pred), y_pred, weight))
        self._truth += tc.reshape(truth > 0.5, (-1,)).tolist()
        self._scores += tc.reshape(tc.astype(scores, tc.float64), (-1,)).tolist()
        self._weights += tc.reshape(tc.broadcast_to(weight, scores.shape), (-1,)).tolist()

    def result(self) -> float:
        """Return the area for all batches since the last reset."""
        if current() is not None:
            raise TracingError("auc: its result is computed in Python; ask for it outside of the compiled function")
        # NaN has no rank among the predictions: a result would depend on where the sort happens to put it.
        if not self._scores or any(map(math.isnan, self._scores)):
            return math.nan
        weights, truth = tc.asarray(self._weights, dtype=tc.float64), tc.asarray(self._truth)
        values, groups = tc.unique_inverse(tc.asarray(self._scores, dtype=tc.float64))
        n = values.shape[0]
        # For each different prediction: the weight of the positive and of the negative examples that have it.
        positive = tc.segment_sum(tc.where(truth, weights, 0.0), groups, n)
        negative = tc.segment_sum(tc.where(truth, 0.0, weights), groups, n)
        if not float(tc.sum(positive) * (1.0 if self.curve == "PR" else tc.sum(negative))):
            return math.nan
        # Of the examples at or above each threshold, which goes from above all predictions to below them all.
        start = tc.zeros(1, dtype=tc.float64)
        hits = tc.concat([start, tc.cumulative_sum(tc.flip(positive))])
        alarms = tc.concat([start, tc.cumulative_sum(tc.flip(negative))])
        return float(self._area(hits, alarms))

    def _area(self, hits: Tensor, alarms: Tensor) -> Tensor:
        """Return the area, from the weights of true and of false positives at falling thresholds."""
        found = hits + alarms
        recall = hits / hits[-1]
        if self.curve == "PR" and self.summation == "interpolation":
            # Between two points the false positives grow linearly with the true ones: precision is no straight line.
            gained, grown = hits[1:] - hits[:-1], found[1:] - found[:-1]
            slope = gained / tc.where(grown > 0.0, grown, 1.0)
            offset = hits[1:] - slope * found[1:]
            ratio = tc.where(found[:-1] > 0.0, found[1:] / tc.where(found[:-1] > 0.0, found[:-1], 1.0), 1.0)
            return tc.sum(slope * (gained + offset * tc.log(ratio))) / hits[-1]
        if self.curve == "PR":
            along, height = recall, hits / tc.where(found > 0.0, found, 1.0)
        else:
            along, height = alarms / alarms[-1], recall
        first, second = height[:-1], height[1:]
        if self.summation == "interpolation":
            between = (first + second) / 2.0
        else:
            between = (tc.minimum if self.summation == "minoring" else tc.maximum)(first, second)
        return tc.sum((along[1:] - along[:-1]) * between)

    def _holders(self) -> list[HostNumber]:
        return []

    @host_callback
    def reset(self) -> None:
        """Forget all batches."""
        self._truth: list[bool] = []
        self._scores: list[float] = []
        self._weights: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        """Return all predictions so far, for a checkpoint."""
        return {"truth": list(self._truth), "scores": list(self._scores), "weights": list(self._weights)}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state that `state_dict` gave."""
        self._truth, self._scores, self._weights = (list(state[key]) for key in ("truth", "scores", "weights"))


@host_function
def _mean(total: float, count: float) -> float:
    return total / count if count else math.nan


def _as_number(value: Tensor) -> PythonNumber:
    """Return a Tensor of shape () as a Python float, which a trace follows."""
    return _float(value._array)


_float = host_function(float)


def _check_class_numbers(name: str, y_true: Tensor, y_pred: Tensor) -> Tensor:
    if y_true.shape != y_pred.shape[:-1]:
        raise ValueError(
            f"{name}: y_true of shape {y_true.shape} must have the shape of y_pred without its classes, "
            f"{y_pred.shape[:-1]}"
        )
    return y_true


def _check_same_shape(name: str, y_true: Tensor, y_pred: Tensor) -> Tensor:
    if y_true.shape != y_pred.shape:
        raise ValueError(f"{name}: y_true of shape {y_true.shape} and y_pred of {y_pred.shape} differ")
    return y_true
