"""Losses: the distance of predictions from the truth. Arguments and values are those of Keras.

A function returns one loss for each example; a class reduces them to one number, with weights if they are given.

>>> import tape_core as tc
>>> import tape_nn as nn
>>> logits, labels = tc.asarray([[2.0, 0.0, 0.0], [0.0, 0.0, 9.0]]), tc.asarray([0, 2])
>>> loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True)
>>> print(f"{loss(labels, logits):.4f}")
0.1199
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import tape_core as tc
from tape_core import Tensor
from tape_core.staging import value_check
from tape_core.support import lenient
from tape_core.typing import ArrayLike

from tape_nn.clipping import check_positive
from tape_nn.hints import missing
from tape_nn.naming import unknown_names
from tape_nn.thresholds import EPSILON, SQUARED_LENGTH_EPSILON

Reduction: TypeAlias = Literal["sum_over_batch_size", "mean_with_sample_weight", "sum", "none"]

_REDUCTIONS: Final = ("sum_over_batch_size", "mean_with_sample_weight", "sum", "none")


def mean_squared_error(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the mean of `(y_true - y_pred)**2` along the last axis.

    >>> from tape_nn.losses import mean_squared_error
    >>> mean_squared_error([[0.0, 1.0]], [[2.0, 1.0]]).tolist()
    [2.0]
    """
    y_true, y_pred = _tensors_of_one_shape("mean_squared_error", y_true, y_pred)
    error = y_pred - y_true
    return _mean_over_last_axis(error * error)


def mean_absolute_error(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the mean of `abs(y_true - y_pred)` along the last axis.

    >>> from tape_nn.losses import mean_absolute_error
    >>> mean_absolute_error([[0.0, 1.0]], [[2.0, 1.0]]).tolist()
    [1.0]
    """
    y_true, y_pred = _tensors_of_one_shape("mean_absolute_error", y_true, y_pred)
    return _mean_over_last_axis(tc.abs(y_pred - y_true))


def huber(y_true: ArrayLike, y_pred: ArrayLike, delta: float = 1.0) -> Tensor:
    """Return the mean along the last axis of `e**2 / 2`, for errors `e` beyond `delta` continued in a straight line.

    >>> from tape_nn.losses import huber
    >>> huber([[0.0, 0.0]], [[0.5, 3.0]]).tolist()
    [1.3125]
    """
    check_positive("huber: delta", delta)
    y_true, y_pred = _tensors_of_one_shape("huber", y_true, y_pred)
    size = tc.abs(y_pred - y_true)
    near = tc.minimum(size, delta)  # size**2 / 2 if size <= delta, else delta * (size - delta / 2)
    return _mean_over_last_axis(near * (size - 0.5 * near))


def binary_crossentropy(
    y_true: ArrayLike, y_pred: ArrayLike, from_logits: bool = False, label_smoothing: float = 0.0
) -> Tensor:
    """Return the cross-entropy of yes-or-no questions: the mean along the last axis.

    >>> from tape_nn.losses import binary_crossentropy
    >>> [round(x, 4) for x in binary_crossentropy([[1.0, 0.0]], [[0.5, 0.5]]).tolist()]
    [0.6931]

    Args:
        y_true: 0 or 1, or a probability; of the shape of `y_pred`.
        y_pred: probabilities, or with `from_logits` the logits, of which `tc.sigmoid` would make them. Logits are more
            exact.
        label_smoothing: from 0 to 1, how far the truth is moved towards 1/2.
    """
    name = "binary_crossentropy"
    y_true, y_pred = _tensors_of_one_shape(name, y_true, y_pred)
    y_true = _smooth_labels(name, y_true, label_smoothing, 0.5)
    if from_logits:
        # -log(sigmoid(z)) = softplus(-z) and -log(1 - sigmoid(z)) = softplus(z), exact also where sigmoid rounds to 1.
        return _mean_over_last_axis(y_true * tc.softplus(-y_pred) + (1 - y_true) * tc.softplus(y_pred))
    p = _clip_probabilities(y_pred)
    return -_mean_over_last_axis(y_true * tc.log(p) + (1 - y_true) * tc.log(1 - p))


def categorical_crossentropy(
    y_true: ArrayLike, y_pred: ArrayLike, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Tensor:
    """Return the cross-entropy of classes, with the truth as a probability for each of them.

    >>> from tape_nn.losses import categorical_crossentropy
    >>> [round(x, 4) for x in categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]]).tolist()]
    [0.6931]

    Args:
        y_true: for each class 0 or 1, or a probability; of the shape of `y_pred`. For class numbers see
            :func:`sparse_categorical_crossentropy`.
        y_pred: probabilities along `axis`, which are scaled to a sum of 1, or with `from_logits` the logits, of which
            `tc.softmax` would make them. Logits are more exact.
        label_smoothing: from 0 to 1, how far the truth is moved towards equal probabilities.
    """
    name = "categorical_crossentropy"
    y_true, y_pred = _tensors_of_one_shape(name, y_true, y_pred)
    if y_pred.ndim == 0:
        raise ValueError(f"{name}: y_pred needs an axis of classes; got shape ()")
    # Towards the uniform distribution: each of n classes has 1 / n.
    y_true = _smooth_labels(name, y_true, label_smoothing, 1 / y_pred.shape[axis])
    return -tc.sum(y_true * _log_probabilities(y_pred, from_logits, axis), axis=axis)


def sparse_categorical_crossentropy(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Tensor:
    """Return the cross-entropy of classes, with the truth as class numbers.

    >>> from tape_nn.losses import sparse_categorical_crossentropy
    >>> [round(x, 4) for x in sparse_categorical_crossentropy([1], [[0.5, 0.5]]).tolist()]
    [0.6931]

    Args:
        y_true: integers, of the shape of `y_pred` without `axis`.
        y_pred, from_logits, label_smoothing, axis: as for :func:`categorical_crossentropy`.
        ignore_class: examples of this class have the loss 0.

    Raises:
        TypeError: the class numbers are not integers.
        ValueError: they are not of that shape, or one of them is no class.
    """
    name = "sparse_categorical_crossentropy"
    y_pred = _float_predictions(name, y_pred)
    if not isinstance(y_true, Tensor):
        y_true = tc.asarray(y_true, backend=y_pred.backend, device=y_pred.device)
    if "integer" not in y_true.dtype.kind:
        raise TypeError(
            f"{name}: y_true must be class numbers, integers; got dtype {y_true.dtype}. "
            "Probabilities are for categorical_crossentropy"
        )
    shape = list(y_pred.shape)
    classes = shape.pop(axis) if shape else 0
    if y_true.shape != tuple(shape):
        raise ValueError(
            f"{name}: y_true of shape {y_true.shape} must have the shape of y_pred without its classes, {tuple(shape)}"
        )
    ignored = None if ignore_class is None else y_true == ignore_class
    # An ignored class, such as -1, may be none of the classes: 0 stands for it, and its loss is dropped below.
    labels = y_true if ignored is None else tc.where(ignored, 0, y_true)
    _check_classes(name, labels, classes)
    if from_logits and not label_smoothing:
        # One op for both, which makes no one-hot array of the size of the predictions.
        loss = tc.cross_entropy(y_pred, labels, axis=axis)
    else:
        truth = tc.one_hot(labels, classes, dtype=y_pred.dtype, axis=axis)
        truth = _smooth_labels(name, truth, label_smoothing, 1 / classes)
        loss = -tc.sum(truth * _log_probabilities(y_pred, from_logits, axis), axis=axis)
    return loss if ignored is None else tc.where(ignored, 0.0, loss)


@value_check(between=lambda name, labels, classes: (0, classes - 1))
def _check_classes(name: str, labels: Tensor, classes: int) -> None:
    wrong = (labels < 0) | (labels >= classes)
    if bool(tc.any(wrong)):
        # Only here, where an error is certain, is a value fetched from the device.
        found = int(labels[wrong][0])
        raise ValueError(f"{name}: y_true has class {found}; there are {classes} classes, from 0 to {classes - 1}")


def mean_absolute_percentage_error(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return 100 times the mean of `abs((y_true - y_pred) / y_true)` along the last axis, dividing by at least 1e-7.

    >>> from tape_nn.losses import mean_absolute_percentage_error
    >>> mean_absolute_percentage_error([[2.0, 4.0]], [[3.0, 4.0]]).tolist()
    [25.0]
    """
    y_true, y_pred = _tensors_of_one_shape("mean_absolute_percentage_error", y_true, y_pred)
    # Keras divides by max(|y_true|, epsilon) as well; the values for a truth of 0 are huge in both.
    return 100.0 * _mean_over_last_axis(tc.abs(y_true - y_pred) / tc.maximum(tc.abs(y_true), EPSILON))


def mean_squared_logarithmic_error(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the mean of `(log(1 + y_true) - log(1 + y_pred))**2` along the last axis; negative numbers count as 0.

    >>> from tape_nn.losses import mean_squared_logarithmic_error
    >>> [round(x, 4) for x in mean_squared_logarithmic_error([[1.0]], [[0.0]]).tolist()]
    [0.4805]
    """
    y_true, y_pred = _tensors_of_one_shape("mean_squared_logarithmic_error", y_true, y_pred)
    # As in Keras, which takes epsilon and not 0 for what is not positive.
    error = tc.log1p(tc.maximum(y_true, EPSILON)) - tc.log1p(tc.maximum(y_pred, EPSILON))
    return _mean_over_last_axis(error * error)


def log_cosh(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the mean of `log(cosh(y_pred - y_true))` along the last axis: like :func:`huber`, and smooth.

    >>> from tape_nn.losses import log_cosh
    >>> [round(x, 4) for x in log_cosh([[0.0]], [[100.0]]).tolist()]
    [99.3069]
    """
    y_true, y_pred = _tensors_of_one_shape("log_cosh", y_true, y_pred)
    size = tc.abs(y_pred - y_true)
    # cosh overflows where log(cosh(e)) is just |e| - log(2); this form does not.
    return _mean_over_last_axis(size + tc.log1p(tc.exp(-2.0 * size)) - math.log(2.0))


def cosine_similarity(y_true: ArrayLike, y_pred: ArrayLike, axis: int = -1) -> Tensor:
    """Return the negative cosine of the angle between the two along `axis`: -1 where they point the same way.

    >>> from tape_nn.losses import cosine_similarity
    >>> cosine_similarity([[0.0, 1.0]], [[0.0, 3.0]]).tolist()
    [-1.0]
    """
    y_true, y_pred = _tensors_of_one_shape("cosine_similarity", y_true, y_pred)
    # The maximum, not a sum: it leaves the cosine of vectors of usual length exact, and sqrt has a finite derivative.
    lengths = [tc.sqrt(tc.maximum(tc.sum(y * y, axis=axis), SQUARED_LENGTH_EPSILON)) for y in (y_true, y_pred)]
    return -tc.sum(y_true * y_pred, axis=axis) / (lengths[0] * lengths[1])


def hinge(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the mean of `max(1 - y_true * y_pred, 0)` along the last axis. The truth is -1 or 1; or else 0 or 1.

    >>> from tape_nn.losses import hinge
    >>> hinge([[-1.0, 1.0]], [[-2.0, 0.5]]).tolist() == hinge([[0.0, 1.0]], [[-2.0, 0.5]]).tolist() == [0.25]
    True
    """
    return _mean_over_last_axis(_hinge_of_each("hinge", y_true, y_pred))


def squared_hinge(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the mean of `max(1 - y_true * y_pred, 0)**2` along the last axis; see :func:`hinge` for the truth."""
    return _mean_over_last_axis(tc.square(_hinge_of_each("squared_hinge", y_true, y_pred)))


def categorical_hinge(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return `max(wrong - right + 1, 0)`: the largest prediction of a wrong class, and that of the right class.

    >>> from tape_nn.losses import categorical_hinge
    >>> categorical_hinge([[0.0, 1.0]], [[0.25, 0.75]]).tolist()
    [0.5]
    """
    y_true, y_pred = _tensors_of_one_shape("categorical_hinge", y_true, y_pred)
    # As in Keras: the right class takes part in the maximum with 0, so that `wrong` is never negative.
    right, wrong = tc.sum(y_true * y_pred, axis=-1), tc.max((1 - y_true) * y_pred, axis=-1)
    return tc.relu(wrong - right + 1)


def kl_divergence(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the Kullback-Leibler divergence: the sum of `y_true * log(y_true / y_pred)` along the last axis.

    >>> from tape_nn.losses import kl_divergence
    >>> [round(x, 4) for x in kl_divergence([[0.0, 1.0]], [[0.5, 0.5]]).tolist()]
    [0.6931]
    """
    # Clipped, since 0 * log(0) is 0 in the definition and NaN in arithmetic.
    y_true, y_pred = (tc.clip(y, EPSILON, 1.0) for y in _tensors_of_one_shape("kl_divergence", y_true, y_pred))
    return tc.sum(y_true * tc.log(y_true / y_pred), axis=-1)


def poisson(y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    """Return the mean of `y_pred - y_true * log(y_pred)` along the last axis, for counts and their expected values.

    >>> from tape_nn.losses import poisson
    >>> [round(x, 4) for x in poisson([[1.0]], [[2.0]]).tolist()]
    [1.3069]
    """
    y_true, y_pred = _tensors_of_one_shape("poisson", y_true, y_pred)
    # Without log(y_true!), which does not depend on the prediction: the loss may be negative.
    return _mean_over_last_axis(y_pred - y_true * tc.log(y_pred + EPSILON))


class Loss:
    """A loss function with its reduction to one number: `loss(y_true, y_pred, sample_weight=None)`.

    >>> import tape_nn as nn
    >>> loss = nn.losses.Loss(nn.losses.huber, delta=2.0)
    >>> loss([[0.0], [0.0]], [[1.0], [3.0]]).item()
    2.25

    Args:
        function: a function of `y_true` and `y_pred` that returns one loss for each example.
        reduction: `"sum_over_batch_size"`, the weighted sum over the examples divided by their number;
            `"mean_with_sample_weight"`, the same divided by the sum of the weights; `"sum"`; or `"none"`.
        options: further arguments of the function.
    """

    def __init__(
        self, function: Callable[..., Any], reduction: Reduction | None = "sum_over_batch_size", **options: Any
    ) -> None:
        self.function = function
        self.reduction = "none" if reduction is None else reduction
        if self.reduction not in _REDUCTIONS:
            raise ValueError(unknown_names("reduction", [str(reduction)], _REDUCTIONS))
        self.options = options

    @lenient
    def __repr__(self) -> str:
        function = [getattr(self.function, "__name__", repr(self.function))] if type(self) is Loss else []
        options = {name: value for name, value in self.options.items() if isinstance(value, str | int | float)}
        settings = [f"{name}={value!r}" for name, value in {**options, "reduction": self.reduction}.items()]
        return f"{type(self).__name__}({', '.join([*function, *settings])})"

    def __call__(self, y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            sample_weight: a weight for each example, of the shape of the losses or of their first axes.

        Raises:
            TypeError: the function returned no array.
            ValueError: the weights do not have such a shape.
        """
        losses: Tensor = self.function(y_true, y_pred, **self.options)
        if not hasattr(losses, "shape"):
            name = getattr(self.function, "__name__", repr(self.function))
            raise TypeError(
                f"loss: {name} must return a Tensor, of which there is a derivative; it returned {losses!r}, of type "
                f"{type(losses).__name__!r}: compute by functions of tape_core, without float() and numpy()"
            )
        weights = None
        if sample_weight is not None:
            weights = tc.asarray(sample_weight, dtype=losses.dtype, backend=losses.backend, device=losses.device)
            if weights.shape != losses.shape[: weights.ndim]:
                raise ValueError(
                    f"sample_weight of shape {weights.shape} must have the shape of the losses, {losses.shape}, or of "
                    "their first axes"
                )
            # One weight for an example counts for all its losses: aligned on the left, where broadcasting aligns on the
            # right.
            weights = tc.reshape(weights, weights.shape + (1,) * (losses.ndim - weights.ndim))
            losses = losses * weights
        if self.reduction == "none":
            return losses
        total = tc.sum(losses)
        if self.reduction == "sum":
            return total
        # "sum_over_batch_size" divides by the number of examples and not by the sum of weights: so Keras does, and a
        # batch of small weights has a small loss.
        counts = self._example_counts(y_true, losses)
        if self.reduction == "mean_with_sample_weight" and weights is not None:
            counts = tc.broadcast_to(weights, losses.shape) * (1 if counts is None else counts)
        if counts is None:
            # The loss of an empty batch is 0, and not 0 / 0.
            return total / max(losses.size, 1)
        divisor = tc.sum(counts)
        # Without an example that counts, the loss is 0 and not NaN.
        return total / tc.where(divisor == 0, 1.0, divisor)

    def divisor(self, y_true: object, sample_weight: ArrayLike | None, examples: int) -> float:
        """Return what the mean over a batch of so many examples divides by, up to a factor common to all batches.

        By this, means of several batches are put together to the mean of all.
        """
        weighs = self.reduction == "mean_with_sample_weight" and sample_weight is not None
        weights = tc.asarray(sample_weight if weighs else 1.0)
        counts = self._example_counts(y_true, weights) if isinstance(y_true, Tensor) else None
        if counts is None:
            return float(tc.sum(weights)) if weighs else examples
        weights = tc.reshape(weights, weights.shape + (1,) * (counts.ndim - weights.ndim))
        return float(tc.sum(counts * weights))

    def _example_counts(self, y_true: ArrayLike, losses: Tensor) -> Tensor | None:
        """Return 1 for each example that a mean counts, and 0 for others; None where all count."""
        return None


class MeanSquaredError(Loss):
    """:func:`mean_squared_error` of a batch."""

    def __init__(self, reduction: Reduction | None = "sum_over_batch_size") -> None:
        super().__init__(mean_squared_error, reduction)


class MeanAbsoluteError(Loss):
    """:func:`mean_absolute_error` of a batch."""

    def __init__(self, reduction: Reduction | None = "sum_over_batch_size") -> None:
        super().__init__(mean_absolute_error, reduction)


class Huber(Loss):
    """:func:`huber` of a batch."""

    def __init__(self, delta: float = 1.0, reduction: Reduction | None = "sum_over_batch_size") -> None:
        super().__init__(huber, reduction, delta=check_positive("Huber: delta", delta))


class BinaryCrossentropy(Loss):
    """:func:`binary_crossentropy` of a batch."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        reduction: Reduction | None = "sum_over_batch_size",
    ) -> None:
        super().__init__(binary_crossentropy, reduction, from_logits=from_logits, label_smoothing=label_smoothing)


class CategoricalCrossentropy(Loss):
    """:func:`categorical_crossentropy` of a batch."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: Reduction | None = "sum_over_batch_size",
    ) -> None:
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing, "axis": axis}
        super().__init__(categorical_crossentropy, reduction, **options)


class SparseCategoricalCrossentropy(Loss):
    """:func:`sparse_categorical_crossentropy` of a batch. Means are over the examples that are not of `ignore_class`.

    >>> import tape_nn as nn
    >>> loss = nn.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    >>> round(loss([1, -1, -1], [[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]).item(), 4)
    0.6931
    """

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: Reduction | None = "sum_over_batch_size",
        axis: int = -1,
        label_smoothing: float = 0.0,
    ) -> None:
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing, "axis": axis}
        super().__init__(sparse_categorical_crossentropy, reduction, ignore_class=ignore_class, **options)
        self.ignore_class = ignore_class

    def _example_counts(self, y_true: ArrayLike, losses: Tensor) -> Tensor | None:
        if self.ignore_class is None:
            return None
        truth = tc.asarray(y_true, backend=losses.backend, device=losses.device)
        return tc.astype(truth != self.ignore_class, losses.dtype)


def _float_predictions(name: str, y_pred: Any) -> Tensor:
    prediction = y_pred if isinstance(y_pred, Tensor) else tc.asarray(y_pred)
    # Integers are refused rather than converted: as predictions they are nearly always class numbers, passed in the
    # wrong order.
    if prediction.dtype.kind != "real floating":
        raise TypeError(f"{name}: y_pred must be real numbers; got dtype {prediction.dtype}")
    # As in Keras: squares overflow in half precision, and sums lose small terms.
    return tc.astype(prediction, tc.float32) if tc.finfo(prediction.dtype).bits < 32 else prediction


def _tensors_of_one_shape(name: str, y_true: ArrayLike, y_pred: ArrayLike) -> tuple[Tensor, Tensor]:
    prediction = _float_predictions(name, y_pred)
    if not isinstance(y_true, Tensor):
        y_true = tc.asarray(y_true, dtype=prediction.dtype, backend=prediction.backend, device=prediction.device)
    truth: Tensor = y_true if y_true.dtype is prediction.dtype else tc.astype(y_true, prediction.dtype)
    if truth.shape != prediction.shape:  # silently broadcasting (n,) with (n, 1) to (n, n) hides many a mistake
        hint = ""
        if (*truth.shape, 1) == prediction.shape:
            hint = "; use y_true[..., None]"
        elif truth.shape == (*prediction.shape, 1):
            hint = "; use y_pred[..., None]"
        raise ValueError(f"{name}: y_true of shape {truth.shape} and y_pred of {prediction.shape} differ{hint}")
    return truth, prediction


def _hinge_of_each(name: str, y_true: ArrayLike, y_pred: ArrayLike) -> Tensor:
    y_true, y_pred = _tensors_of_one_shape(name, y_true, y_pred)
    # 0 and 1 become -1 and 1, if the whole batch consists of them, as in Keras; without branching on a value.
    y_true = tc.where(tc.all((y_true == 0) | (y_true == 1)), 2 * y_true - 1, y_true)
    return tc.relu(1 - y_true * y_pred)


def _mean_over_last_axis(values: Tensor) -> Tensor:
    return tc.mean(values, axis=-1) if values.ndim else values


def _smooth_labels(name: str, y_true: Tensor, label_smoothing: float, towards: float) -> Tensor:
    """Move the truth by the fraction `label_smoothing` towards the number `towards`."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing must be between 0 and 1; got {label_smoothing}")
    return y_true * (1 - label_smoothing) + label_smoothing * towards if label_smoothing else y_true


def _clip_probabilities(p: Tensor) -> Tensor:
    # eps / 2 is the distance from 1 to the next smaller number: 1 - 1e-7 would round to 1 in a narrow dtype.
    epsilon = max(EPSILON, float(tc.finfo(p.dtype).eps) / 2)
    return tc.clip(p, epsilon, 1 - epsilon)


def _log_probabilities(y_pred: Tensor, from_logits: bool, axis: int) -> Tensor:
    if from_logits:
        return tc.log_softmax(y_pred, axis=axis)
    return tc.log(_clip_probabilities(y_pred / tc.sum(y_pred, axis=axis, keepdims=True)))


if not TYPE_CHECKING:
    __getattr__ = missing(__name__, lambda: globals())
