"""Activations as layers, some with parameters of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tape_core as tc

from tape_tf.conversion import native
from tape_tf.keras import activations, initializers
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.masks import as_mask
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    PartialShape,
    RegularizerLike,
    TensorLike,
)


class Activation(Layer):
    """A layer that applies an activation, given by name or as a function."""

    supports_masking = True

    def __init__(self, activation: ActivationLike, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activations.get(activation)

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return self.activation(inputs)


class ReLU(Layer):
    """The activation :func:`tf.keras.activations.relu` as a layer."""

    supports_masking = True

    def __init__(
        self, max_value: float | None = None, negative_slope: float = 0.0, threshold: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.max_value, self.negative_slope, self.threshold = max_value, negative_slope, threshold

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return activations.relu(inputs, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(Layer):
    """Multiply negative elements by `negative_slope`."""

    supports_masking = True

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any) -> None:
        # Keras 2 called it `alpha`.
        negative_slope = kwargs.pop("alpha", negative_slope)
        super().__init__(**kwargs)
        if negative_slope < 0:
            raise ValueError(f"LeakyReLU: negative_slope must be at least 0; got {negative_slope}")
        self.negative_slope = float(negative_slope)

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return activations.leaky_relu(inputs, self.negative_slope)


class PReLU(Layer):
    """A :class:`LeakyReLU` whose slope is learned, one for each feature; features along `shared_axes` share one."""

    supports_masking = True

    def __init__(
        self,
        alpha_initializer: InitializerLike = "Zeros",
        alpha_regularizer: RegularizerLike = None,
        alpha_constraint: ConstraintLike = None,
        shared_axes: int | Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha_initializer = initializers.get(alpha_initializer)
        self.alpha_regularizer, self.alpha_constraint = alpha_regularizer, alpha_constraint
        self.shared_axes = (
            [] if shared_axes is None else [shared_axes] if isinstance(shared_axes, int) else [*shared_axes]
        )

    def build(self, input_shape: PartialShape) -> None:
        """Make the slopes, for inputs of this shape."""
        shape = [1 if axis in self.shared_axes else n for axis, n in enumerate(input_shape)][1:]
        extras: dict[str, Any] = {"regularizer": self.alpha_regularizer, "constraint": self.alpha_constraint}
        self.alpha = self.add_weight(tuple(shape), self.alpha_initializer, name="alpha", **extras)
        self.built = True

    def call(self, inputs: TensorLike) -> Tensor:
        """Apply the activation."""
        value = native(inputs)
        return wrap_tensor(tc.relu(value) - native(self.alpha) * tc.relu(-value))


class ELU(Layer):
    """The activation :func:`tf.keras.activations.elu` as a layer."""

    supports_masking = True

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = float(alpha)

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return activations.elu(inputs, self.alpha)


class Softmax(Layer):
    """The activation :func:`tf.keras.activations.softmax` as a layer."""

    supports_masking = True

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: TensorLike, mask: TensorLike | None = None) -> Any:
        """Apply the activation; elements that a mask hides get 0."""
        if mask is None:
            return activations.softmax(inputs, self.axis)
        value, counts = native(inputs), as_mask(mask)
        # Not minus infinity: where everything is hidden, the softmax would be NaN, and so its gradient.
        hidden = tc.where(counts, value, tc.finfo(value.dtype).min / 2)
        return wrap_tensor(tc.where(counts, tc.softmax(hidden, axis=self.axis), 0.0))
