"""`tf.keras.losses`: loss functions and loss classes, on those of :mod:`tape_nn.losses`.

>>> import tape_tf as tf
>>> tf.keras.losses.MeanSquaredError()([[0.0], [1.0]], [[1.0], [1.0]])
<tf.Tensor: shape=(), dtype=float32, numpy=0.5>
>>> tf.keras.losses.mean_squared_error([[0.0, 1.0]], [[2.0, 1.0]]).numpy()
array([2.], dtype=float32)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tape_core as tc
import tape_nn as nn

from tape_tf.conversion import native, wrap
from tape_tf.keras.backend import floatx
from tape_tf.keras.conversion import cast, match_ranks, to_class_ids
from tape_tf.keras.masks import mask_of, masked_weights
from tape_tf.keras.naming import by_name, snake_case
from tape_tf.names import absent
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import DTypeLike, LossLike, PyTree, TensorLike


def _as_floats(y_true: TensorLike, y_pred: TensorLike) -> tuple[tc.Tensor, tc.Tensor]:
    """Convert predictions to floating numbers, and labels to their dtype and rank."""
    prediction = native(y_pred)
    if prediction.dtype.kind != "real floating":
        prediction = cast(prediction)
    return match_ranks(cast(y_true, prediction.dtype), prediction)


def _loss_function(
    native_loss: Callable[..., Any], text: str, arguments: Callable[..., Any] = _as_floats
) -> Callable[..., Any]:
    """Wrap a loss of tape_nn as a function that converts its arguments as Keras does."""

    def loss(y_true: TensorLike, y_pred: TensorLike, *options: Any, **named: Any) -> Tensor:
        return wrap_tensor(native_loss(*arguments(y_true, y_pred), *options, **named))

    loss.__name__ = loss.__qualname__ = native_loss.__name__
    loss.__doc__ = f"{text} See :func:`tape_nn.losses.{native_loss.__name__}`."
    # The parameters are read: metrics refuse others, and saved models find losses by the first two.
    loss.__signature__ = inspect.signature(native_loss)  # type: ignore[attr-defined]
    return loss


mean_squared_error = _loss_function(
    nn.losses.mean_squared_error, "The mean of `(y_true - y_pred)**2` along the last axis."
)
mean_absolute_error = _loss_function(
    nn.losses.mean_absolute_error, "The mean of `abs(y_true - y_pred)` on the last axis."
)
huber = _loss_function(nn.losses.huber, "Quadratic for small errors, linear for large ones.")
mean_absolute_percentage_error = _loss_function(nn.losses.mean_absolute_percentage_error, "The mean error in per cent.")
mean_squared_logarithmic_error = _loss_function(
    nn.losses.mean_squared_logarithmic_error, "The mean error of logarithms."
)
log_cosh = _loss_function(nn.losses.log_cosh, "The mean of `log(cosh(y_pred - y_true))` along the last axis.")
cosine_similarity = _loss_function(nn.losses.cosine_similarity, "The negative cosine of the angle between the two.")
hinge = _loss_function(nn.losses.hinge, "The mean of `max(1 - y_true * y_pred, 0)` along the last axis.")
squared_hinge = _loss_function(
    nn.losses.squared_hinge, "The mean of `max(1 - y_true * y_pred, 0)**2` along the last axis."
)
categorical_hinge = _loss_function(nn.losses.categorical_hinge, "The margin between the right class and the others.")
kl_divergence = _loss_function(nn.losses.kl_divergence, "The sum of `y_true * log(y_true / y_pred)`.")
poisson = _loss_function(nn.losses.poisson, "The mean of `y_pred - y_true * log(y_pred)` along the last axis.")
categorical_crossentropy = _loss_function(nn.losses.categorical_crossentropy, "The cross-entropy of one-hot classes.")


def binary_crossentropy(
    y_true: TensorLike, y_pred: TensorLike, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Tensor:
    """The cross-entropy of independent yes-or-no answers, averaged along `axis`.

    See :func:`tape_nn.losses.binary_crossentropy`.
    """
    truth, prediction = _as_floats(y_true, y_pred)
    if axis != -1:
        # tape_nn averages along the last axis.
        truth, prediction = (tc.moveaxis(x, axis, -1) for x in (truth, prediction))
    return wrap_tensor(nn.losses.binary_crossentropy(truth, prediction, from_logits, label_smoothing))


def sparse_categorical_crossentropy(
    y_true: TensorLike, y_pred: TensorLike, from_logits: bool = False, ignore_class: int | None = None, axis: int = -1
) -> Tensor:
    """The cross-entropy for class numbers as labels. See :func:`tape_nn.losses.sparse_categorical_crossentropy`.

    Labels may be floating numbers, and may have a last axis of length 1.
    """
    prediction = native(y_pred)
    if prediction.dtype.kind != "real floating":
        prediction = cast(prediction)
    labels = to_class_ids(native(y_true), prediction, axis)
    options: dict[str, Any] = {"from_logits": from_logits, "ignore_class": ignore_class, "axis": axis}
    return wrap_tensor(nn.losses.sparse_categorical_crossentropy(labels, prediction, **options))


class Loss:
    """Base class of losses. A new one defines `call(y_true, y_pred)`, which returns a loss for each example.

    >>> import tape_tf as tf
    >>> class Cubic(tf.keras.losses.Loss):
    ...     def call(self, y_true, y_pred):
    ...         return tf.reduce_mean(tf.abs(y_true - y_pred) ** 3, axis=-1)
    >>> Cubic()([[0.0], [0.0]], [[1.0], [2.0]]).numpy()
    np.float32(4.5)

    Args:
        name: shown when the loss is printed, and used in its config.
        reduction: "sum_over_batch_size" (or "mean"), the mean over the examples, each times its weight;
            "mean_with_sample_weight", divided by the sum of the weights instead; "sum"; or "none" or None.
        dtype: the dtype of the loss; by default Keras' float type.

    Raises:
        ValueError: the reduction is unknown.
    """

    def __init__(
        self, name: str | None = None, reduction: str | None = "sum_over_batch_size", dtype: DTypeLike = None
    ) -> None:
        self.name = name or snake_case(type(self).__name__)
        self.reduction = reduction
        # Keras has several names for this reduction.
        chosen: Any = "sum_over_batch_size" if reduction in ("mean", "auto") else reduction
        self.dtype = getattr(dtype, "name", dtype) or floatx()
        # tape_nn applies the weights and the reduction to the losses that `call` returns.
        self.native = nn.losses.Loss(lambda y_true, y_pred: native(self.call(y_true, y_pred)), chosen)

    def __call__(self, y_true: PyTree, y_pred: PyTree, sample_weight: TensorLike | None = None) -> Tensor:
        """Return the loss of a batch. Steps that the mask of `y_pred` hides do not count.

        Args:
            sample_weight: a weight for each example.
        """
        mask = mask_of(y_pred)
        y_true, y_pred = self._cast(y_true), self._cast(y_pred)
        if sample_weight is not None:
            sample_weight = cast(sample_weight, self.dtype)
            # Keras squeezes weights of shape (n, 1), as it does labels.
            if sample_weight.ndim > 1 and sample_weight.shape[-1] == 1:
                sample_weight = tc.squeeze(sample_weight, axis=-1)
        weights = masked_weights(sample_weight, mask, self.dtype, self.native.reduction == "sum_over_batch_size")
        return wrap_tensor(self.native(y_true, y_pred, weights))

    def _cast(self, value: PyTree) -> Any:
        if isinstance(value, dict):
            return {key: self._cast(part) for key, part in value.items()}
        return wrap(cast(value, self.dtype))

    def call(self, y_true: PyTree, y_pred: PyTree) -> Any:
        """Return the loss of each example."""
        raise NotImplementedError(f"{type(self).__name__} must define call(self, y_true, y_pred)")

    def get_config(self) -> dict[str, Any]:
        """The arguments that the loss was made with."""
        return {"name": self.name, "reduction": self.reduction}


class Reduction:
    """The names of Keras 2 for the argument `reduction` of losses."""

    AUTO = SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    SUM = "sum"
    NONE = "none"

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all names."""
        return (cls.SUM_OVER_BATCH_SIZE, cls.SUM, cls.NONE)


class LossFunctionWrapper(Loss):
    """A Loss made of a function of `y_true` and `y_pred`.

    Args:
        fn: returns a loss for each example, or their mean.
        kwargs: further arguments of `fn`.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name or getattr(fn, "__name__", None), reduction, dtype)
        self.fn = fn
        self._fn_kwargs = kwargs

    def call(self, y_true: PyTree, y_pred: PyTree) -> Any:
        """Return what the function returns."""
        # A function of the user's gets labels and predictions of the same rank, as in Keras.
        if not isinstance(y_true, dict) and not isinstance(y_pred, dict):
            y_true, y_pred = map(wrap, match_ranks(y_true.native, y_pred.native))
        return self.fn(y_true, y_pred, **self._fn_kwargs)

    def get_config(self) -> dict[str, Any]:
        """The arguments that the loss was made with."""
        return super().get_config() | self._fn_kwargs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def _loss_class(function: Callable[..., Any], kind: str) -> type[LossFunctionWrapper]:
    """Make the class of a loss whose function has no options of its own."""
    label = function.__name__

    def __init__(
        self: LossFunctionWrapper,
        reduction: str | None = "sum_over_batch_size",
        name: str = label,
        dtype: DTypeLike = None,
    ) -> None:
        LossFunctionWrapper.__init__(self, function, reduction, name, dtype)

    content = {"__init__": __init__, "__doc__": f":func:`{label}` of a batch.", "__module__": __name__}
    return type(kind, (LossFunctionWrapper,), content)


MeanSquaredError = _loss_class(mean_squared_error, "MeanSquaredError")
MeanAbsoluteError = _loss_class(mean_absolute_error, "MeanAbsoluteError")
MeanAbsolutePercentageError = _loss_class(mean_absolute_percentage_error, "MeanAbsolutePercentageError")
MeanSquaredLogarithmicError = _loss_class(mean_squared_logarithmic_error, "MeanSquaredLogarithmicError")
LogCosh = _loss_class(log_cosh, "LogCosh")
Hinge = _loss_class(hinge, "Hinge")
SquaredHinge = _loss_class(squared_hinge, "SquaredHinge")
CategoricalHinge = _loss_class(categorical_hinge, "CategoricalHinge")
KLDivergence = _loss_class(kl_divergence, "KLDivergence")
Poisson = _loss_class(poisson, "Poisson")


class CosineSimilarity(LossFunctionWrapper):
    """:func:`cosine_similarity` of a batch."""

    def __init__(
        self,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "cosine_similarity",
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__(cosine_similarity, reduction, name, dtype, axis=axis)


class Huber(LossFunctionWrapper):
    """:func:`huber` of a batch."""

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "huber_loss",
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__(huber, reduction, name, dtype, delta=delta)


class BinaryCrossentropy(LossFunctionWrapper):
    """:func:`binary_crossentropy` of a batch."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "binary_crossentropy",
        dtype: DTypeLike = None,
    ) -> None:
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing, "axis": axis}
        super().__init__(binary_crossentropy, reduction, name, dtype, **options)


class CategoricalCrossentropy(LossFunctionWrapper):
    """:func:`categorical_crossentropy` of a batch."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "categorical_crossentropy",
        dtype: DTypeLike = None,
    ) -> None:
        options = {"from_logits": from_logits, "label_smoothing": label_smoothing, "axis": axis}
        super().__init__(categorical_crossentropy, reduction, name, dtype, **options)


class SparseCategoricalCrossentropy(LossFunctionWrapper):
    """:func:`sparse_categorical_crossentropy` of a batch."""

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: int = -1,
        name: str = "sparse_categorical_crossentropy",
        dtype: DTypeLike = None,
    ) -> None:
        options = {"from_logits": from_logits, "ignore_class": ignore_class, "axis": axis}
        super().__init__(sparse_categorical_crossentropy, reduction, name, dtype, **options)


mse = MSE = mean_squared_error
mae = MAE = mean_absolute_error
mape = MAPE = mean_absolute_percentage_error
msle = MSLE = mean_squared_logarithmic_error
kld = KLD = kullback_leibler_divergence = kl_divergence
logcosh = log_cosh

# All public functions and classes of this module are losses, and found by their names in `get` and in saved models.
_PUBLIC = {
    name: value
    for name, value in list(globals().items())
    if not name.startswith("_") and getattr(value, "__module__", None) == __name__
}
_CLASSES: dict[str, type[Loss]] = {
    name: value for name, value in _PUBLIC.items() if isinstance(value, type) and issubclass(value, LossFunctionWrapper)
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: value
    for name, value in _PUBLIC.items()
    if list(inspect.signature(value).parameters)[:2] == ["y_true", "y_pred"]
}

__all__ = [
    "KLD",
    "MAE",
    "MAPE",
    "MSE",
    "MSLE",
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "CosineSimilarity",
    "Hinge",
    "Huber",
    "KLDivergence",
    "LogCosh",
    "Loss",
    "LossFunctionWrapper",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Poisson",
    "Reduction",
    "SparseCategoricalCrossentropy",
    "SquaredHinge",
    "binary_crossentropy",
    "categorical_crossentropy",
    "categorical_hinge",
    "cosine_similarity",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "kld",
    "kullback_leibler_divergence",
    "log_cosh",
    "logcosh",
    "mae",
    "mape",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "mse",
    "msle",
    "poisson",
    "sparse_categorical_crossentropy",
    "squared_hinge",
]


def get(identifier: LossLike) -> Any:
    """Return the loss of a name; a callable and None are returned unchanged, a class is called.

    Raises:
        ValueError: no loss has this name.
    """
    if isinstance(identifier, type) and issubclass(identifier, Loss):
        return identifier()
    if identifier is None or callable(identifier):
        return identifier
    found = by_name("loss", identifier, _FUNCTIONS | _CLASSES)
    return found() if isinstance(found, type) else found


def as_loss(identifier: LossLike) -> Loss:
    """Return a Loss for an argument of `compile`: a Loss, a function or the name of one."""
    found = get(identifier)
    return found if isinstance(found, Loss) else LossFunctionWrapper(found, name=getattr(found, "__name__", "loss"))


__getattr__ = absent("keras.losses")
