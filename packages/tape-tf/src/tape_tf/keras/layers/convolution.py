"""Convolutions, pooling, padding and upsampling, over 1, 2 or 3 axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import tape_core as tc
import tape_nn as nn
from tape_core.backends import Ints, Padding, windows
from tape_core.typing import Shape

from tape_tf.conversion import native
from tape_tf.keras import activations, initializers
from tape_tf.keras.backend import resolve_data_format
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.native import NativeLayer
from tape_tf.keras.masks import as_mask
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import ActivationLike, ConstraintLike, InitializerLike, PerAxis, PyTree, RegularizerLike, TensorLike

Margins: TypeAlias = "int | Sequence[int] | Sequence[Sequence[int]]"
"""The widths of margins: one for all, one for each spatial axis, or (before, after) for each spatial axis."""


class _Conv(NativeLayer):
    """The base class of convolutions; see :class:`Conv2D` for the arguments."""

    _native_class: ClassVar[Any]

    def __init__(
        self,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: PerAxis = 1,
        groups: int = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        activity_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **kwargs: Any,
    ) -> None:
        self.strides, self.dilation_rate = (
            per_axis(strides, self._native_class.rank),
            per_axis(dilation_rate, self._native_class.rank),
        )
        self.data_format = resolve_data_format(data_format)
        self.activation = activations.get(activation)
        native_layer = self._native_class(
            filters,
            per_axis(kernel_size, self._native_class.rank),
            self.strides,
            core_padding(padding, per_axis(kernel_size, self._native_class.rank), self.dilation_rate),
            self.dilation_rate,
            groups,
            self.data_format,
            activations.for_tape_nn(activation),
            use_bias,
            initializers.for_tape_nn(kernel_initializer),
            initializers.for_tape_nn(bias_initializer),
        )
        extras = {
            "kernel_regularizer": kernel_regularizer,
            "bias_regularizer": bias_regularizer,
            "kernel_constraint": kernel_constraint,
            "bias_constraint": bias_constraint,
        }
        super().__init__(native_layer, {"activity_regularizer": activity_regularizer, **kwargs}, extras)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        native_layer = self.native
        return window_shapes(
            shapes[0],
            native_layer.layout,
            native_layer.filters,
            native_layer.kernel_size,
            native_layer.stride,
            native_layer.padding,
            native_layer.dilation,
        )


class Conv1D(_Conv):
    """A convolution over one axis, for inputs of shape (examples, steps, channels); see :class:`Conv2D`.

    Unlike the others it takes `padding="causal"`: an output depends on no later step.
    """

    __tf_differs__ = "with channels_first the kernel has the filters first"

    _native_class = nn.Conv1D


class Conv2D(_Conv):
    """A convolution over two axes, for inputs (examples, height, width, channels): see :class:`tape_nn.Conv2D`.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(tf.ones((2, 9, 9, 3))).shape
    TensorShape([2, 5, 5, 8])

    Args:
        filters: the number of output channels.
        kernel_size, strides, dilation_rate: along each axis; one number stands for all.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first".
        groups: the number of groups of channels that are convolved separately.
        activation, use_bias and the others: as for :class:`Dense`. With channels first the kernel has shape
            `(filters, channels / groups, *kernel_size)`, as in tape_nn.

    Raises:
        ValueError: an argument is invalid; or, when called, the input has other axes or channels.
    """

    __tf_differs__ = "with channels_first the kernel has the filters first"

    _native_class = nn.Conv2D


class Conv3D(_Conv):
    """A convolution over three axes, for inputs (examples, depth, height, width, channels); see :class:`Conv2D`."""

    __tf_differs__ = "with channels_first the kernel has the filters first"

    _native_class = nn.Conv3D


class _Pool(NativeLayer):
    """The base class of pooling layers; see :class:`MaxPooling2D` for the arguments."""

    _native_class: ClassVar[Any]

    def __init__(
        self,
        pool_size: PerAxis = 2,
        strides: PerAxis | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        rank = self._native_class.rank
        self.strides = per_axis(pool_size if strides is None else strides, rank)
        self.data_format = resolve_data_format(data_format)
        native_layer = self._native_class(
            per_axis(pool_size, rank), self.strides, core_padding(padding), self.data_format
        )
        super().__init__(native_layer, kwargs)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        native_layer = self.native
        return window_shapes(
            shapes[0], native_layer.layout, 1, native_layer.pool_size, native_layer.stride, native_layer.padding
        )


class MaxPooling1D(_Pool):
    """The maximum of each window over one axis; see :class:`MaxPooling2D`."""

    _native_class = nn.MaxPool1D


class MaxPooling2D(_Pool):
    """The maximum of each window over two axes, for each channel: see :class:`tape_nn.MaxPool2D`.

    Args:
        pool_size: the lengths of the window; one number stands for all.
        strides: the distance from one window to the next; by default the lengths of the window.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first".
    """

    _native_class = nn.MaxPool2D


class MaxPooling3D(_Pool):
    """The maximum of each window over three axes; see :class:`MaxPooling2D`."""

    _native_class = nn.MaxPool3D


class AveragePooling1D(_Pool):
    """The mean of each window over one axis; see :class:`MaxPooling2D`."""

    _native_class = nn.AvgPool1D


class AveragePooling2D(_Pool):
    """The mean of each window over two axes; see :class:`MaxPooling2D`."""

    _native_class = nn.AvgPool2D


class AveragePooling3D(_Pool):
    """The mean of each window over three axes; see :class:`MaxPooling2D`."""

    _native_class = nn.AvgPool3D


class SpatialLayer(Layer):
    """The base class of layers that treat all spatial axes alike."""

    rank: ClassVar[int]

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = resolve_data_format(data_format)

    def _map_spatial(self, shape: Shape, by: Iterable[Any], change: Callable[[int, Any], int]) -> Shape:
        """Return a shape with each spatial length n replaced by `change(n, other)`, where `other` is from `by`."""
        # The spatial axes come after the examples, or after the channels.
        first = 1 if self.data_format == "channels_last" else 2
        space = [change(n, other) for n, other in zip(shape[first : first + self.rank], by, strict=False)]
        return (*shape[:first], *space, *shape[first + self.rank :])

    def _spatial_axes(self, value: tc.Tensor) -> tuple[int, ...]:
        """Return the spatial axes of an input; raise a ValueError if it has another number of axes."""
        if value.ndim != self.rank + 2:
            raise ValueError(
                f"Input of layer {self.name!r} is incompatible with the layer: expected ndim={self.rank + 2}, found "
                f"ndim={value.ndim}. Full shape received: {value.shape}"
            )
        first = 1 if self.data_format == "channels_last" else 2
        return tuple(range(first, first + self.rank))


class _GlobalPooling(SpatialLayer):
    _reduce: ClassVar[Any]

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.keepdims = keepdims

    def call(self, inputs: TensorLike) -> Tensor:
        """Reduce each channel to a number."""
        value = native(inputs)
        return wrap_tensor(type(self)._reduce(value, axis=self._spatial_axes(value), keepdims=self.keepdims))


class GlobalAveragePooling1D(_GlobalPooling):
    """The mean over one spatial axis, for each channel; only of the steps that the mask of the input does not hide."""

    rank, _reduce = 1, staticmethod(tc.mean)

    def call(self, inputs: TensorLike, mask: TensorLike | None = None) -> Tensor:
        """Reduce each channel to a number."""
        if mask is None:
            return super().call(inputs)
        value = native(inputs)
        axes = self._spatial_axes(value)
        counts = tc.expand_dims(as_mask(mask), axis=-1 if axes == (1,) else 1)
        total = tc.sum(tc.where(counts, value, 0), axis=axes, keepdims=self.keepdims)
        number = tc.sum(tc.astype(counts, value.dtype), axis=axes, keepdims=self.keepdims)
        return wrap_tensor(total / tc.maximum(number, 1.0))  # zeros where nothing counts, not 0 / 0

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> None:
        """Return None: there are no steps left."""


class GlobalAveragePooling2D(_GlobalPooling):
    """The mean over two spatial axes, for each channel.

    >>> import tape_tf as tf
    >>> tf.keras.layers.GlobalAveragePooling2D()(tf.ones((2, 4, 4, 3))).shape
    TensorShape([2, 3])
    """

    rank, _reduce = 2, staticmethod(tc.mean)


class GlobalAveragePooling3D(_GlobalPooling):
    """The mean over three spatial axes, for each channel."""

    rank, _reduce = 3, staticmethod(tc.mean)


class GlobalMaxPooling1D(_GlobalPooling):
    """The maximum over one spatial axis, for each channel."""

    rank, _reduce = 1, staticmethod(tc.max)


class GlobalMaxPooling2D(_GlobalPooling):
    """The maximum over two spatial axes, for each channel."""

    rank, _reduce = 2, staticmethod(tc.max)


class GlobalMaxPooling3D(_GlobalPooling):
    """The maximum over three spatial axes, for each channel."""

    rank, _reduce = 3, staticmethod(tc.max)


class _ZeroPadding(SpatialLayer):
    def __init__(self, padding: Margins = 1, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.padding = margins_per_axis(f"{type(self).__name__}: padding", padding, self.rank)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [self._map_spatial(shape, self.padding, lambda n, width: n + sum(width)) for shape in shapes]

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the input with zeros around it."""
        value = native(inputs)
        widths = [(0, 0)] * value.ndim
        for axis, width in zip(self._spatial_axes(value), self.padding, strict=True):
            widths[axis] = width
        return wrap_tensor(tc.pad(value, widths))


class ZeroPadding1D(_ZeroPadding):
    """Zeros before and after one spatial axis; `padding` is a number, or (before, after)."""

    rank = 1


class ZeroPadding2D(_ZeroPadding):
    """Zeros around two spatial axes; `padding` is a number, one for each axis, or (before, after) for each."""

    rank = 2


class ZeroPadding3D(_ZeroPadding):
    """Zeros around three spatial axes; see :class:`ZeroPadding2D`."""

    rank = 3


class _UpSampling(SpatialLayer):
    def __init__(
        self, size: PerAxis = 2, data_format: str | None = None, interpolation: str = "nearest", **kwargs: Any
    ) -> None:
        super().__init__(data_format, **kwargs)
        if interpolation != "nearest":
            raise ValueError(f"{type(self).__name__}: there is only interpolation='nearest'; got {interpolation!r}")
        self.size = per_axis(size, self.rank)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [self._map_spatial(shape, self.size, operator.mul) for shape in shapes]

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the input with each element repeated."""
        value = native(inputs)
        # "nearest" with whole factors is a repetition along one axis after the other.
        for axis, times in zip(self._spatial_axes(value), self.size, strict=True):
            value = tc.repeat(value, times, axis=axis)
        return wrap_tensor(value)


class UpSampling1D(_UpSampling):
    """Repeat each element `size` times along one spatial axis."""

    __tf_differs__ = "only interpolation='nearest'"

    rank = 1


class UpSampling2D(_UpSampling):
    """Repeat each element `size` times along two spatial axes."""

    __tf_differs__ = "only interpolation='nearest'"

    rank = 2


class UpSampling3D(_UpSampling):
    """Repeat each element `size` times along three spatial axes."""

    __tf_differs__ = "only interpolation='nearest'"

    rank = 3


def window_shapes(
    shape: Shape,
    layout: str,
    filters: int,
    window: Sequence[int],
    stride: Ints,
    padding: Padding,
    dilation: Ints = 1,
) -> Iterator[Shape]:
    """The shapes of values in a convolution or a pooling: the padded input, the result, the windows of a channel."""
    if len(shape) != len(window) + 2:
        return  # the call will report it
    last = layout == "channels_last"
    seen = windows(shape[1:-1] if last else shape[2:], window, stride, padding, dilation)
    yield (shape[0], *seen.padded, shape[-1] if last else shape[1])
    yield (shape[0], *seen.counts, filters)
    yield (*seen.counts, *seen.window)  # for one channel of one example; a backend may lay out its windows like this


def per_axis(value: PerAxis, rank: int) -> tuple[int, ...]:
    """Return a number for each axis; one number stands for all."""
    return (value,) * rank if isinstance(value, int) else tuple(map(int, value))


def margins_per_axis(what: str, widths: Margins, rank: int) -> tuple[tuple[int, int], ...]:
    """Return the widths (before, after) of each spatial axis; raise a ValueError unless there are `rank` axes."""
    parts: Any = (widths,) * rank if isinstance(widths, int) or rank == 1 else widths  # at rank 1: (before, after)
    pairs = tuple([(part, part) if isinstance(part, int) else tuple(part) for part in parts])
    if len(pairs) != rank:
        raise ValueError(f"{what} must be for {rank} axes; got {widths}")
    return pairs


def core_padding(padding: object, kernel: Sequence[int] | None = None, dilation: Sequence[int] | None = None) -> Any:
    """Return Keras' `padding` in the core's terms; "causal" becomes padding before the first step only."""
    name = padding.lower() if isinstance(padding, str) else padding
    # With (kernel - 1) * dilation zeros in front, the last element of the kernel meets the current step.
    if name == "causal" and kernel is not None and dilation is not None and len(kernel) == 1:
        return [((kernel[0] - 1) * dilation[0], 0)]
    if name not in ("valid", "same"):
        raise ValueError(f"padding must be 'valid' or 'same' (in Conv1D also 'causal'); got {padding!r}")
    return name


Convolution1D, Convolution2D, Convolution3D = Conv1D, Conv2D, Conv3D
MaxPool1D, MaxPool2D, MaxPool3D = MaxPooling1D, MaxPooling2D, MaxPooling3D
AvgPool1D, AvgPool2D, AvgPool3D = AveragePooling1D, AveragePooling2D, AveragePooling3D
GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D = (
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalAveragePooling3D,
)
GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D = GlobalMaxPooling1D, GlobalMaxPooling2D, GlobalMaxPooling3D
