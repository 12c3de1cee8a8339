"""Batch, layer and other normalizations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tape_core as tc
import tape_nn as nn
from tape_core.typing import Shape

from tape_tf.conversion import native
from tape_tf.data import Dataset
from tape_tf.keras import initializers
from tape_tf.keras.backend import SQUARED_NORM_FLOOR, epsilon
from tape_tf.keras.conversion import cast
from tape_tf.keras.layers.base import Layer, try_broadcast
from tape_tf.keras.layers.native import NativeLayer
from tape_tf.keras.masks import as_mask
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import ConstraintLike, InitializerLike, RegularizerLike, TensorLike


class BatchNormalization(NativeLayer):
    """Subtract each channel's mean, and divide by its standard deviation: see :class:`tape_nn.BatchNorm`.

    In training the statistics are those of the batch, and moving averages follow them. Otherwise, and if `trainable` is
    False, they are the moving averages.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.BatchNormalization(momentum=0.5)
    >>> y = layer(tf.constant([[1.0], [3.0]]), training=True)
    >>> layer.moving_mean.numpy(), len(layer.trainable_variables), len(layer.non_trainable_variables)
    (array([1.], dtype=float32), 2, 2)

    Args:
        axis: the axis of the channels: the last, or 1.
        momentum, epsilon, center, scale: as for :class:`tape_nn.BatchNorm`.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer: see
            `tf.keras.initializers`.
        beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint: as for :class:`Dense`.
    """

    supports_masking = True

    def __init__(
        self,
        axis: int | list[int] | tuple[int, ...] = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        moving_mean_initializer: InitializerLike = "zeros",
        moving_variance_initializer: InitializerLike = "ones",
        beta_regularizer: RegularizerLike = None,
        gamma_regularizer: RegularizerLike = None,
        beta_constraint: ConstraintLike = None,
        gamma_constraint: ConstraintLike = None,
        **kwargs: Any,
    ) -> None:
        # Configs of Keras have a list of one axis here.
        self.axis = int(axis[0]) if isinstance(axis, list | tuple) and len(axis) == 1 else axis
        native_layer = nn.BatchNorm(
            momentum,
            epsilon,
            center,
            scale,
            "channels_first" if self.axis == 1 else "channels_last",
            *map(
                initializers.for_tape_nn,
                (beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer),
            ),
        )
        extras = {
            "beta_regularizer": beta_regularizer,
            "gamma_regularizer": gamma_regularizer,
            "beta_constraint": beta_constraint,
            "gamma_constraint": gamma_constraint,
        }
        kwargs.pop("synchronized", None)  # there is one process, so no statistics to synchronize
        super().__init__(native_layer, kwargs, extras)

    def build(self, *shapes: Any) -> None:
        """Make the weights, for inputs of this shape."""
        rank = len(shapes[0])
        # The layout of the native layer is one of two; any other axis would need a transpose before and after.
        if self.axis not in (-1, 1, rank - 1):
            raise ValueError(f"BatchNormalization: axis must be the last or 1; got {self.axis} for shape {shapes[0]}")
        super().build(*shapes)

    def call(self, inputs: TensorLike, training: bool = False, mask: TensorLike | None = None) -> Tensor:
        """Normalize the input. In training, steps that a mask hides do not count for mean and variance."""
        # TensorFlow 2's rule for fine-tuning: a frozen layer uses its moving averages, also in training.
        learns = bool(training) and self.trainable
        if mask is not None and learns:
            return wrap_tensor(self._normalize_masked(native(inputs), as_mask(mask)))
        return wrap_tensor(self.native(native(inputs), training=learns))

    def _normalize_masked(self, x: tc.Tensor, mask: tc.Tensor) -> tc.Tensor:
        """Normalize with the statistics of the steps that count, and let the moving averages follow them."""
        if mask.ndim != x.ndim - 1 or self.axis == 1:
            raise ValueError(
                f"{self.name!r}: a mask must have one axis less than the input, whose last axis is that of the "
                f"channels; got shapes {mask.shape} and {x.shape}, axis={self.axis}"
            )
        own = self.native
        counts = tc.expand_dims(mask, axis=-1)
        over = tuple(range(mask.ndim))
        number = tc.sum(tc.astype(mask, x.dtype)) + epsilon()
        mean = tc.sum(tc.where(counts, x, 0), axis=over) / number
        deviation = tc.where(counts, x - mean, 0)
        variance = tc.sum(deviation * deviation, axis=over) / number
        for moving, batch in ((own.moving_mean, mean), (own.moving_variance, variance)):
            batch = tc.astype(tc.stop_gradient(batch), moving.dtype)
            moving.assign(moving + (batch - moving) * (1 - own.momentum))
        y = (x - mean) / tc.sqrt(variance + own.epsilon)
        if own.gamma is not None:
            y = y * own.gamma
        return y if own.beta is None else y + own.beta


class LayerNormalization(NativeLayer):
    """Normalize each example over `axis` to mean 0 and variance 1: see :class:`tape_nn.LayerNorm`.

    Args:
        axis: the axes to normalize over; a number or a list.
        epsilon, center, scale: as for :class:`tape_nn.LayerNorm`.
        beta_initializer and the others: as for :class:`BatchNormalization`.
    """

    supports_masking = True

    def __init__(
        self,
        axis: int | list[int] | tuple[int, ...] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        beta_regularizer: RegularizerLike = None,
        gamma_regularizer: RegularizerLike = None,
        beta_constraint: ConstraintLike = None,
        gamma_constraint: ConstraintLike = None,
        **kwargs: Any,
    ) -> None:
        axes = tuple(axis) if isinstance(axis, list | tuple) else axis
        beta, gamma = initializers.for_tape_nn(beta_initializer), initializers.for_tape_nn(gamma_initializer)
        extras = {
            "beta_regularizer": beta_regularizer,
            "gamma_regularizer": gamma_regularizer,
            "beta_constraint": beta_constraint,
            "gamma_constraint": gamma_constraint,
        }
        super().__init__(nn.LayerNorm(axes, epsilon, center, scale, beta, gamma), kwargs, extras)


class RMSNormalization(NativeLayer):
    """Divide each example by the root of its mean square over `axis`: see :class:`tape_nn.RMSNorm`."""

    supports_masking = True

    def __init__(self, axis: int = -1, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(nn.RMSNorm(axis, epsilon), kwargs)


class UnitNormalization(Layer):
    """Divide each example by its Euclidean norm over `axis`; vectors of zeros stay zero."""

    supports_masking = True

    def __init__(self, axis: int | list[int] | tuple[int, ...] = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = tuple(axis) if isinstance(axis, list | tuple) else axis

    def call(self, inputs: TensorLike) -> Tensor:
        """Scale the input to norm 1."""
        value = native(inputs)
        square = tc.sum(value * value, axis=self.axis, keepdims=True)
        return wrap_tensor(value / tc.sqrt(tc.maximum(square, SQUARED_NORM_FLOOR)))


_MIN_DEVIATION = 1e-7  # the least standard deviation of a feature to divide by, as in Keras


class Normalization(Layer):
    """Subtract each feature's mean, and divide by its standard deviation, both taken from data by `adapt`, or given.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.Normalization(axis=-1)
    >>> layer.adapt([[0.0, 10.0], [2.0, 30.0]])
    >>> layer([[2.0, 30.0]]).numpy()
    array([[1., 1.]], dtype=float32)

    Args:
        axis: the axis or axes along which each element has its own mean and variance; None for one of all elements.
        mean, variance: numbers, or arrays with the lengths of `axis`; then `adapt` is not needed.
        invert: apply the inverse.
    """

    supports_masking = True

    def __init__(
        self,
        axis: int | list[int] | tuple[int, ...] | None = -1,
        mean: TensorLike | None = None,
        variance: TensorLike | None = None,
        invert: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (mean is None) != (variance is None):
            raise ValueError("When setting values directly, both `mean` and `variance` must be set; got one of them")
        self.axis = () if axis is None else tuple(axis) if isinstance(axis, list | tuple) else (axis,)
        self.invert = invert
        self.adapted = False  # as opposed to statistics that were given as arguments
        self._mean: Any = None  # NumPy arrays of float64
        self._variance: Any = None
        if mean is not None:
            self._mean, self._variance = (np.asarray(v, dtype=np.float64) for v in (mean, variance))

    @property
    def mean(self) -> Any:
        """The mean of each feature, of the layer's dtype; None while there is none."""
        return self._as_tensor(self._mean)

    @property
    def variance(self) -> Any:
        """The variance of each feature, of the layer's dtype; None while there is none."""
        return self._as_tensor(self._variance)

    def _as_tensor(self, statistics: Any) -> Tensor | None:
        return None if statistics is None else wrap_tensor(cast(statistics, self.dtype))

    def set_statistics(self, **values: Any) -> None:
        """Set `mean` or `variance`, or both, to arrays with the lengths of `axis`."""
        for name, value in values.items():
            setattr(self, f"_{name}", self.along_axes(value))
        self.adapted = self.built = True

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return try_broadcast(*shapes, np.shape(self._mean), np.shape(self._variance))

    def adapt(self, data: TensorLike | Dataset, batch_size: int | None = None, steps: int | None = None) -> None:
        """Compute mean and variance of data: an array, or a `tf.data.Dataset` of batches.

        Args:
            batch_size: no effect.
            steps: the number of batches to read; all by default.
        """
        if isinstance(data, Dataset):
            batches = [
                np.asarray(b[0] if isinstance(b, tuple) else b)
                for k, b in enumerate(data)
                if steps is None or k < steps
            ]
            # All of the data in memory: the variance is computed around the mean of the whole, in two passes.
            values = np.concatenate(batches)
        else:
            values = np.asarray(cast(data).numpy())
        # The statistics are taken over all other axes, and keep axes of length 1 there, as in Keras.
        kept = {a % values.ndim for a in self.axis}
        over = tuple([a for a in range(values.ndim) if a not in kept])
        values = values.astype(np.float64)  # sums of many float32 lose digits
        self._mean, self._variance = (f(values, axis=over, keepdims=True) for f in (np.mean, np.var))
        self.adapted = self.built = True

    def along_axes(self, statistics: Any) -> Any:
        """Return statistics that are an array with the lengths of `axis` in the shape in which they broadcast."""
        values = np.asarray(statistics, dtype=np.float64)
        if self._mean is not None:
            return values.reshape(np.shape(self._mean))
        if any(axis >= 0 for axis in self.axis) or sorted(self.axis) != list(range(-len(self.axis), 0)):
            raise ValueError(f"layer {self.name!r} normalizes other axes than the last: call it, or adapt it, before")
        return values

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer, with the statistics that `adapt` computed as `mean` and `variance`."""
        # They are no weights here: a file of the model would lose them otherwise.
        return super().get_config() | {"mean": self._mean, "variance": self._variance}

    def call(self, inputs: TensorLike) -> Tensor:
        """Normalize the input."""
        if self._mean is None:
            raise ValueError(f"Layer {self.name!r} has no mean and variance yet: call adapt(data) before")
        value = cast(inputs, self.compute_dtype)
        where: dict[str, Any] = {"dtype": value.dtype, "backend": value.backend.root, "device": value.device}
        mean = tc.asarray(self._mean, **where)
        # In NumPy, at float64; the tensors are made for the input's dtype and device in each call.
        deviation = tc.asarray(np.maximum(np.sqrt(self._variance), _MIN_DEVIATION), **where)
        return wrap_tensor(mean + value * deviation if self.invert else (value - mean) / deviation)
