"""`tf.keras.metrics`: the metrics of :mod:`tape_nn.metrics` and of the losses, under TensorFlow's names.

>>> import tape_tf as tf
>>> accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
>>> accuracy.update_state([1, 0], [[0.2, 0.8], [0.3, 0.7]])
>>> accuracy.result()
<tf.Tensor: shape=(), dtype=float32, numpy=0.5>
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

import tape_core as tc
import tape_nn as nn

from tape_tf.conversion import native, wrap
from tape_tf.keras import losses
from tape_tf.keras.conversion import autocast, cast, to_class_ids
from tape_tf.keras.losses import (  # a loss of each example is a metric, too: Keras has them in both places
    KLD,
    MAE,
    MAPE,
    MSE,
    MSLE,
    binary_crossentropy,
    categorical_crossentropy,
    categorical_hinge,
    hinge,
    huber,
    kld,
    kullback_leibler_divergence,
    logcosh,
    mae,
    mape,
    mse,
    msle,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)
from tape_tf.keras.metric import Mean, MeanMetricWrapper, Metric, NativeMetric, Sum, as_weights
from tape_tf.keras.naming import auto_name, by_name, snake_case
from tape_tf.names import absent
from tape_tf.tensor import Value
from tape_tf.typing import DTypeLike, MetricLike, TensorLike


def _mean_of_loss(loss: Callable[..., Any], kind: str) -> type[MeanMetricWrapper]:
    """Make a metric: the mean of a loss over all examples."""
    # Keyword arguments that the loss does not take are refused here, and not at the first batch.
    options = [p for p in inspect.signature(loss).parameters.values() if p.name not in ("y_true", "y_pred")]
    label = snake_case(kind)

    def __init__(self: MeanMetricWrapper, name: str = label, dtype: DTypeLike = None, **kwargs: Any) -> None:
        if unknown := sorted(kwargs.keys() - {p.name for p in options}):
            raise TypeError(f"{kind} has no argument {', '.join(unknown)}")
        MeanMetricWrapper.__init__(self, loss, name, dtype, **kwargs)

    text = f"The mean of :func:`tf.keras.losses.{loss.__name__}` over all examples."
    return type(kind, (MeanMetricWrapper,), {"__init__": __init__, "__doc__": text, "__module__": __name__})


MeanSquaredError = _mean_of_loss(losses.mean_squared_error, "MeanSquaredError")
MeanAbsoluteError = _mean_of_loss(losses.mean_absolute_error, "MeanAbsoluteError")
MeanAbsolutePercentageError = _mean_of_loss(losses.mean_absolute_percentage_error, "MeanAbsolutePercentageError")
MeanSquaredLogarithmicError = _mean_of_loss(losses.mean_squared_logarithmic_error, "MeanSquaredLogarithmicError")
LogCoshError = _mean_of_loss(losses.log_cosh, "LogCoshError")
Hinge = _mean_of_loss(losses.hinge, "Hinge")
SquaredHinge = _mean_of_loss(losses.squared_hinge, "SquaredHinge")
CategoricalHinge = _mean_of_loss(losses.categorical_hinge, "CategoricalHinge")
KLDivergence = _mean_of_loss(losses.kl_divergence, "KLDivergence")
Poisson = _mean_of_loss(losses.poisson, "Poisson")
BinaryCrossentropy = _mean_of_loss(losses.binary_crossentropy, "BinaryCrossentropy")
CategoricalCrossentropy = _mean_of_loss(losses.categorical_crossentropy, "CategoricalCrossentropy")
SparseCategoricalCrossentropy = _mean_of_loss(losses.sparse_categorical_crossentropy, "SparseCategoricalCrossentropy")


class CosineSimilarity(MeanMetricWrapper):
    """The mean cosine of the angle between truth and prediction. The loss of that name has the opposite sign."""

    def __init__(self, name: str | None = "cosine_similarity", dtype: DTypeLike = None, axis: int = -1) -> None:
        super().__init__(lambda y_true, y_pred: -losses.cosine_similarity(y_true, y_pred, axis), name, dtype)


class RootMeanSquaredError(MeanMetricWrapper):
    """The square root of the mean squared error over all examples."""

    def __init__(self, name: str | None = "root_mean_squared_error", dtype: DTypeLike = None) -> None:
        super().__init__(lambda y_true, y_pred: (y_pred - y_true) ** 2, name, dtype)

    def result(self) -> Any:
        """Return the root."""
        # The root of the mean over all batches, and not a mean of roots.
        return super().result() ** 0.5


class Accuracy(NativeMetric):
    """The share of examples for which `y_pred` equals `y_true`, both class numbers."""

    _uses_mask = True

    def __init__(self, name: str | None = "accuracy", dtype: DTypeLike = None) -> None:
        super().__init__(nn.metrics.Accuracy(), name, dtype)


class BinaryAccuracy(NativeMetric):
    """The share of examples for which `y_pred > threshold` agrees with `y_true`, 0 or 1."""

    _uses_mask = True

    def __init__(self, name: str | None = "binary_accuracy", dtype: DTypeLike = None, threshold: float = 0.5) -> None:
        super().__init__(nn.metrics.BinaryAccuracy(threshold), name, dtype)


class CategoricalAccuracy(NativeMetric):
    """The share of examples for which `y_pred` is largest at the 1 of `y_true`, one-hot."""

    _uses_mask = True

    def __init__(self, name: str | None = "categorical_accuracy", dtype: DTypeLike = None) -> None:
        super().__init__(nn.metrics.CategoricalAccuracy(), name, dtype)


class _ClassIdMetric(NativeMetric):
    """A metric whose labels are class numbers."""

    _uses_mask = True

    def _inputs(self, y_true: tc.Tensor, y_pred: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        # Only the predictions: class numbers as floats would lose digits beyond 2**24.
        y_pred = autocast(y_pred, self.dtype)
        return to_class_ids(y_true, y_pred), y_pred


class SparseCategoricalAccuracy(_ClassIdMetric):
    """The share of examples for which `y_pred` is largest at the class number `y_true`."""

    def __init__(self, name: str | None = "sparse_categorical_accuracy", dtype: DTypeLike = None) -> None:
        super().__init__(nn.metrics.SparseCategoricalAccuracy(), name, dtype)


class SparseTopKCategoricalAccuracy(_ClassIdMetric):
    """The share of examples for which the class number `y_true` is among the `k` largest of `y_pred`."""

    def __init__(
        self, k: int = 5, name: str | None = "sparse_top_k_categorical_accuracy", dtype: DTypeLike = None
    ) -> None:
        super().__init__(nn.metrics.SparseTopKCategoricalAccuracy(k), name, dtype)


class TopKCategoricalAccuracy(NativeMetric):
    """The share of examples for which the 1 of `y_true`, one-hot, is among the `k` largest of `y_pred`."""

    _uses_mask = True

    def __init__(self, k: int = 5, name: str | None = "top_k_categorical_accuracy", dtype: DTypeLike = None) -> None:
        super().__init__(nn.metrics.TopKCategoricalAccuracy(k), name, dtype)


class _CountRatio(NativeMetric):
    """A ratio of two numbers of examples, both counted by comparing predictions with a threshold."""

    def __init__(self, thresholds: float | None = None, name: str | None = None, dtype: DTypeLike = None) -> None:
        if thresholds is not None and not isinstance(thresholds, int | float):
            raise ValueError(f"{type(self).__name__}: thresholds must be one number; got {thresholds!r}")
        super().__init__(nn.metrics.Mean(), name or auto_name(type(self).__name__), dtype)
        self.thresholds = 0.5 if thresholds is None else float(thresholds)

    def update_state(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None) -> None:
        """Update the counts with a batch: labels 0 or 1, probabilities of the same shape, and weights."""
        truth, prediction = self._inputs(native(y_true), native(y_pred))
        if truth.shape != prediction.shape:
            raise ValueError(f"{self.name}: y_true of shape {truth.shape} and y_pred of {prediction.shape} differ")
        counted, among = self._masks(truth > 0.5, prediction > self.thresholds)
        # The ratio is a mean: of `counted`, weighted by `among`, so that examples outside `among` have weight 0.
        weight = cast(wrap(among), self.dtype)
        if sample_weight is not None:
            given = as_weights(sample_weight)
            weight = weight * tc.reshape(given, given.shape + (1,) * (weight.ndim - given.ndim))
        self.native.update(counted, weight)

    def _masks(self, positive: tc.Tensor, predicted: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        """Return the masks of the examples that are counted, and of those among which they are counted."""
        raise NotImplementedError


class Precision(_CountRatio):
    """The share of examples with `y_true` 1 among those with `y_pred > thresholds` (0.5); 0 while there are none.

    >>> import tape_tf as tf
    >>> tf.keras.metrics.Precision()([0, 1, 1, 1], [0.9, 0.0, 0.8, 0.7]).numpy().round(4)
    np.float32(0.6667)
    """

    def _masks(self, positive: tc.Tensor, predicted: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        return positive, predicted


class Recall(_CountRatio):
    """The share of examples with `y_pred > thresholds` (0.5) among those with `y_true` 1; 0 while there are none."""

    def _masks(self, positive: tc.Tensor, predicted: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        return predicted, positive


class _ConfusionCount(_CountRatio):
    """A field of the confusion matrix: the total weight of the examples with one label and one prediction."""

    _positive: ClassVar[bool]  # the label that is counted, and the prediction that is counted
    _predicted: ClassVar[bool]

    def _masks(self, positive: tc.Tensor, predicted: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        return positive == self._positive, predicted == self._predicted

    def _python_result(self) -> float:
        return float(self.native.state_dict()["total"])


class TruePositives(_ConfusionCount):
    """The number of examples with `y_true` 1 and `y_pred > thresholds` (0.5), weighted."""

    _positive, _predicted = True, True


class TrueNegatives(_ConfusionCount):
    """The number of examples with `y_true` 0 and `y_pred <= thresholds` (0.5), weighted."""

    _positive, _predicted = False, False


class FalsePositives(_ConfusionCount):
    """The number of examples with `y_true` 0 and `y_pred > thresholds` (0.5), weighted."""

    _positive, _predicted = False, True


class FalseNegatives(_ConfusionCount):
    """The number of examples with `y_true` 1 and `y_pred <= thresholds` (0.5), weighted."""

    _positive, _predicted = True, False


class AUC(NativeMetric):
    """The area under the ROC or the precision-recall curve, exact: see :class:`tape_nn.metrics.AUC`.

    Keras approximates it by a sum over `num_thresholds`; that argument is accepted and has no effect.

    Args:
        curve: "ROC" or "PR", the curve of precision over recall.
        summation_method: "interpolation", "minoring" or "majoring".
        from_logits: no effect, since only the order of the predictions matters.

    Raises:
        ValueError: another curve or summation is asked for.
    """

    __tf_differs__ = "the area is exact; num_thresholds has no effect"

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str | None = None,
        dtype: DTypeLike = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(nn.metrics.AUC(curve, summation_method), name or auto_name("auc"), dtype)

    def _python_result(self) -> float:
        # With labels of one class alone the area is undefined: NaN in tape_nn, 0 in Keras.
        area = self.native.result()
        return self._empty_result if math.isnan(area) and len(set(self.native.state_dict()["truth"])) < 2 else area


def _per_example(metric: type[NativeMetric]) -> Callable[..., Any]:
    """Make the function that returns a metric's value for each example."""
    label = snake_case(metric.__name__)

    def values(y_true: TensorLike, y_pred: TensorLike, **options: Any) -> Any:
        # The metric itself is only asked for its values; its state stays empty.
        made = metric(**options)
        return wrap(cast(wrap(made.native.values(*made._inputs(native(y_true), native(y_pred)))), made.dtype))

    values.__name__ = values.__qualname__ = label
    values.__doc__ = f"The values, one for each example and 0 or 1, of which :class:`{metric.__name__}` is the mean."
    return values


binary_accuracy = _per_example(BinaryAccuracy)
categorical_accuracy = _per_example(CategoricalAccuracy)
sparse_categorical_accuracy = _per_example(SparseCategoricalAccuracy)
top_k_categorical_accuracy = _per_example(TopKCategoricalAccuracy)
sparse_top_k_categorical_accuracy = _per_example(SparseTopKCategoricalAccuracy)

_CLASSES: dict[str, type[Metric]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, Metric) and not name.startswith("_")
}
_BY_NAME: dict[str, Any] = {
    **_CLASSES,
    **{snake_case(name): kind for name, kind in _CLASSES.items()},
    **dict.fromkeys(("mse", "MSE"), MeanSquaredError),
    **dict.fromkeys(("mae", "MAE"), MeanAbsoluteError),
}

__all__ = [
    "AUC",
    "KLD",
    "MAE",
    "MAPE",
    "MSE",
    "MSLE",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "CosineSimilarity",
    "FalseNegatives",
    "FalsePositives",
    "Hinge",
    "KLDivergence",
    "LogCoshError",
    "Mean",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanMetricWrapper",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Metric",
    "Poisson",
    "Precision",
    "Recall",
    "RootMeanSquaredError",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
    "SquaredHinge",
    "Sum",
    "TopKCategoricalAccuracy",
    "TrueNegatives",
    "TruePositives",
    "binary_accuracy",
    "binary_crossentropy",
    "categorical_accuracy",
    "categorical_crossentropy",
    "categorical_hinge",
    "get",
    "hinge",
    "huber",
    "kld",
    "kullback_leibler_divergence",
    "logcosh",
    "mae",
    "mape",
    "mse",
    "msle",
    "poisson",
    "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy",
    "sparse_top_k_categorical_accuracy",
    "squared_hinge",
    "top_k_categorical_accuracy",
]


def get(identifier: MetricLike) -> Any:
    """Return the metric of a name; a callable and None are returned unchanged, a class is called.

    Raises:
        ValueError: no metric has this name.
    """
    if isinstance(identifier, type) and issubclass(identifier, Metric):
        return identifier()
    if identifier is None or callable(identifier):
        return identifier
    return losses.huber if identifier == "huber" else by_name("metric", identifier, _BY_NAME)()


def as_metric(identifier: MetricLike, y_true: Value, y_pred: Value) -> Metric:
    """Return a Metric for an argument of `compile`: a Metric, a function or a name.

    "accuracy" is one of three metrics, chosen by the shapes of labels and predictions, as in Keras.
    """
    if isinstance(identifier, str) and identifier in ("accuracy", "acc"):
        classes = y_pred.shape[-1] if y_pred.shape else 1
        kind: type[Metric] = CategoricalAccuracy
        if classes == 1:
            kind = BinaryAccuracy
        elif len(y_true.shape) < len(y_pred.shape) or y_true.shape[-1] == 1:
            kind = SparseCategoricalAccuracy
        return kind(name=identifier)
    given = get(identifier)
    found: Metric = given if isinstance(given, Metric) else MeanMetricWrapper(given)
    if isinstance(identifier, str):
        # The log has the name under which the metric was asked for: "mse", not "mean_squared_error".
        found.name = identifier
    return found


__getattr__ = absent("keras.metrics")
