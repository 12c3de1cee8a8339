"""Depthwise and separable convolutions, group normalization, spatial dropout and cropping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import tape_core as tc
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras import activations
from tape_tf.keras.backend import resolve_data_format
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.convolution import (
    Margins,
    SpatialLayer,
    core_padding,
    margins_per_axis,
    per_axis,
    window_shapes,
)
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    PartialShape,
    PerAxis,
    RegularizerLike,
    TensorLike,
)


class _Depthwise(Layer):
    """The base class of depthwise convolutions; see :class:`DepthwiseConv2D` for the arguments."""

    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: PerAxis,
        strides: PerAxis = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: PerAxis = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        depthwise_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size, self.strides = per_axis(kernel_size, self.rank), per_axis(strides, self.rank)
        self.dilation_rate = per_axis(dilation_rate, self.rank)
        self.padding, self.data_format = core_padding(padding), resolve_data_format(data_format)
        if depth_multiplier < 1:
            raise ValueError(f"{type(self).__name__}: depth_multiplier must be at least 1; got {depth_multiplier}")
        self.depth_multiplier, self.use_bias = depth_multiplier, use_bias
        self.activation = activations.get(activation)
        self._kernel: dict[str, Any] = {
            "initializer": depthwise_initializer,
            "regularizer": depthwise_regularizer,
            "constraint": depthwise_constraint,
        }
        self._bias: dict[str, Any] = {
            "initializer": bias_initializer,
            "regularizer": bias_regularizer,
            "constraint": bias_constraint,
        }

    def build(self, input_shape: PartialShape) -> None:
        """Make the weights, for inputs of this shape."""
        channels = _channels(self, input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self.kernel = self.add_weight(shape, name="kernel", **self._kernel)
        self.bias = self._make_bias(channels * self.depth_multiplier)
        self.built = True

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        # The depthwise convolution, then the pointwise one of a separable layer, which has `filters`.
        shape, last = shapes[0], self.data_format == "channels_last"
        channels = (shape[-1] if last else shape[1]) * self.depth_multiplier
        for filters in (channels, getattr(self, "filters", channels)):
            yield from window_shapes(
                shape, self.data_format, filters, self.kernel_size, self.strides, self.padding, self.dilation_rate
            )

    def _make_bias(self, length: int) -> Any:
        return self.add_weight((length,), name="bias", **self._bias) if self.use_bias else None

    def call(self, inputs: TensorLike) -> Any:
        """Convolve each channel, and apply the activation."""
        return self.activation(wrap(self._add_bias(self._each_channel(native(inputs)))))

    def _each_channel(self, value: tc.Tensor) -> tc.Tensor:
        kernel = native(self.kernel)  # shape (*kernel_size, channels, depth_multiplier)
        # A grouped convolution with one group for each channel; the core has the filters of all groups in one axis.
        channels = kernel.shape[-2]
        kernel = tc.reshape(kernel, (*self.kernel_size, 1, channels * self.depth_multiplier))
        return self._conv(
            value, kernel, channels, stride=self.strides, padding=self.padding, dilation=self.dilation_rate
        )

    def _conv(self, value: tc.Tensor, kernel: tc.Tensor, groups: int, **options: Any) -> tc.Tensor:
        if self.data_format == "channels_first":  # then the core's kernels are (filters, channels, *kernel_size)
            kernel = tc.permute_dims(kernel, (self.rank + 1, self.rank, *range(self.rank)))
        options["layout"] = self.data_format
        found: tc.Tensor = tc.conv(value, kernel, groups=groups, **options)
        return found

    def _add_bias(self, value: tc.Tensor) -> tc.Tensor:
        if self.bias is None:
            return value
        bias = native(self.bias)
        return value + (bias if self.data_format == "channels_last" else tc.reshape(bias, (-1, *(1,) * self.rank)))


class DepthwiseConv1D(_Depthwise):
    """A convolution of each channel by itself, over one axis; see :class:`DepthwiseConv2D`."""

    rank = 1


class DepthwiseConv2D(_Depthwise):
    """A convolution of each channel by itself, over two axes.

    >>> import tape_tf as tf
    >>> tf.keras.layers.DepthwiseConv2D(3, depth_multiplier=2)(tf.ones((1, 5, 5, 4))).shape
    TensorShape([1, 3, 3, 8])

    Args:
        depth_multiplier: the number of output channels for each input channel.
        kernel_size and the others: as for :class:`Conv2D`. The kernel has shape (height, width, channels,
            depth_multiplier).

    Raises:
        ValueError: an argument is invalid; or, when called, the input has another number of axes.
    """

    rank = 2


class _Separable(_Depthwise):
    """A depthwise convolution, followed by a pointwise one: a convolution of length 1 over all channels."""

    def __init__(
        self,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: PerAxis = 1,
        depth_multiplier: int = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        pointwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike = None,
        pointwise_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        depthwise_constraint: ConstraintLike = None,
        pointwise_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            kernel_size,
            strides,
            padding,
            depth_multiplier,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            depthwise_initializer,
            bias_initializer,
            depthwise_regularizer,
            bias_regularizer,
            depthwise_constraint,
            bias_constraint,
            **kwargs,
        )
        self.filters = filters
        self._pointwise: dict[str, Any] = {
            "initializer": pointwise_initializer,
            "regularizer": pointwise_regularizer,
            "constraint": pointwise_constraint,
        }

    def build(self, input_shape: PartialShape) -> None:
        """Make the weights, for inputs of this shape."""
        channels = _channels(self, input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self.kernel = self.add_weight(shape, name="depthwise_kernel", **self._kernel)
        # A kernel of length 1 mixes the channels of a pixel, and touches no other.
        shape = (*(1,) * self.rank, channels * self.depth_multiplier, self.filters)
        self.pointwise_kernel = self.add_weight(shape, name="pointwise_kernel", **self._pointwise)
        self.bias = self._make_bias(self.filters)
        self.built = True

    def call(self, inputs: TensorLike) -> Any:
        """Apply both convolutions and the activation."""
        mixed = self._conv(self._each_channel(native(inputs)), native(self.pointwise_kernel), 1)
        return self.activation(wrap(self._add_bias(mixed)))


class SeparableConv1D(_Separable):
    """A :class:`DepthwiseConv1D`, followed by a convolution of length 1 over all channels."""

    rank = 1


class SeparableConv2D(_Separable):
    """A :class:`DepthwiseConv2D`, followed by a convolution of length 1 over all channels."""

    rank = 2


class GroupNormalization(Layer):
    """Subtract the mean of each group of channels of each example, and divide by its standard deviation.

    See :func:`tape_core.group_norm`.

    Args:
        groups: the number of groups; -1 for one group for each channel.
        axis: the axis of the channels: the last, or 1.
        epsilon, center, scale and the others: as for :class:`LayerNormalization`.

    Raises:
        ValueError: when built for a number of channels that `groups` does not divide.
    """

    supports_masking = True

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
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
        super().__init__(**kwargs)
        self.groups, self.axis, self.epsilon, self.center, self.scale = groups, axis, epsilon, center, scale
        self._beta: dict[str, Any] = {
            "initializer": beta_initializer,
            "regularizer": beta_regularizer,
            "constraint": beta_constraint,
        }
        self._gamma: dict[str, Any] = {
            "initializer": gamma_initializer,
            "regularizer": gamma_regularizer,
            "constraint": gamma_constraint,
        }

    def build(self, input_shape: PartialShape) -> None:
        """Make the weights, for inputs of this shape."""
        if self.axis not in (-1, 1, len(input_shape) - 1):
            raise ValueError(f"GroupNormalization: axis must be the last or 1; got {self.axis} for shape {input_shape}")
        channels = input_shape[self.axis]
        # Instance normalization: a group for each channel.
        self.groups = channels if self.groups == -1 else self.groups
        if channels % self.groups:
            raise ValueError(f"GroupNormalization: {self.groups} groups do not divide {channels} channels")
        self.gamma = self.add_weight((channels,), name="gamma", **self._gamma) if self.scale else None
        self.beta = self.add_weight((channels,), name="beta", **self._beta) if self.center else None
        self.built = True

    def call(self, inputs: TensorLike) -> Tensor:
        """Normalize the input."""
        value = native(inputs)
        first = self.axis == 1 and value.ndim > 2
        gamma, beta = (None if v is None else native(v) for v in (self.gamma, self.beta))
        options: dict[str, Any] = {"groups": self.groups, "epsilon": self.epsilon}
        return wrap_tensor(
            tc.group_norm(value, gamma, beta, layout="channels_first" if first else "channels_last", **options)
        )


class _SpatialDropout(SpatialLayer):
    supports_masking = True

    def __init__(self, rate: float, data_format: str | None = None, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        if not 0 <= rate <= 1:
            raise ValueError(f"{type(self).__name__}: rate must be from 0 to 1; got {rate}")
        self.rate = rate
        self._rng = None if seed is None else tc.default_rng(seed)

    def call(self, inputs: TensorLike, training: bool = False) -> Tensor:
        """Return the input; in training each channel of each example is kept or zeroed as a whole."""
        value = native(inputs)
        axes = self._spatial_axes(value)
        # One random number for all positions of a channel: length 1 along the spatial axes broadcasts.
        shape = tuple([1 if axis in axes else n for axis, n in enumerate(value.shape)])
        return wrap_tensor(tc.dropout(value, self.rate, training=bool(training), rng=self._rng, noise_shape=shape))


class SpatialDropout1D(_SpatialDropout):
    """Dropout of whole channels, for inputs of shape (examples, steps, channels)."""

    rank = 1


class SpatialDropout2D(_SpatialDropout):
    """Dropout of whole channels, for inputs of shape (examples, height, width, channels)."""

    rank = 2


class SpatialDropout3D(_SpatialDropout):
    """Dropout of whole channels, for inputs of shape (examples, depth, height, width, channels)."""

    rank = 3


class _Cropping(SpatialLayer):
    def __init__(self, cropping: Margins | None = None, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        cropping = (1 if self.rank != 2 else 0) if cropping is None else cropping  # Keras' defaults, uneven as they are
        self.cropping = margins_per_axis(f"{type(self).__name__}: cropping", cropping, self.rank)

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the input without its margins."""
        value = native(inputs)
        key: list[slice] = [slice(None)] * value.ndim
        for axis, (before, after) in zip(self._spatial_axes(value), self.cropping, strict=True):
            # A slice would be empty without an error, or, with a negative end, count from the other side.
            if before + after >= value.shape[axis]:
                raise ValueError(f"{self.name}: cropping {before} and {after} leaves nothing of shape {value.shape}")
            key[axis] = slice(before, value.shape[axis] - after)
        return wrap_tensor(value[tuple(key)])


class Cropping1D(_Cropping):
    """Crop the first and last steps; `cropping` is a number, or (first, last)."""

    rank = 1


class Cropping2D(_Cropping):
    """Crop the margins of images; `cropping` is a number, one for each axis, or (before, after) for each."""

    rank = 2


class Cropping3D(_Cropping):
    """Crop the margins of three axes; see :class:`Cropping2D`."""

    rank = 3


def _channels(layer: _Depthwise, shape: PartialShape) -> int:
    """Return the number of channels of inputs of this shape; raise a ValueError unless it has the layer's rank."""
    if len(shape) != layer.rank + 2:
        raise ValueError(
            f"Input of layer {layer.name!r} is incompatible with the layer: expected ndim={layer.rank + 2}, found "
            f"ndim={len(shape)}. Full shape received: {tuple(shape)}"
        )
    return int(shape[-1 if layer.data_format == "channels_last" else 1])
