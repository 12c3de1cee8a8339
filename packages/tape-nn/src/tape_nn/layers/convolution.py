"""Convolutions and pooling over 1, 2 or 3 axes."""

from __future__ import annotations

from typing import Any, ClassVar

import tape_core as tc
from tape_core.backends import Ints, Layout, Padding, ints
from tape_core.typing import ArrayLike

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import AddVariable, Function, Layer, activation_of, check_positive_integer
from tape_nn.module import Module

_SPATIAL_AXES = ((), ("steps",), ("height", "width"), ("depth", "height", "width"))  # by rank


def _describe_input(rank: int, layout: Layout) -> str:
    axes = _SPATIAL_AXES[rank]
    parts = (*axes, "channels") if layout == "channels_last" else ("channels", *axes)
    return f"(examples, {', '.join(parts)})"


def _check_layout(name: str, layout: Layout) -> Layout:
    if layout not in ("channels_last", "channels_first"):
        raise ValueError(f"{name}: layout must be 'channels_last' or 'channels_first'; got {layout!r}")
    return layout


class _Conv(Layer):
    """Base class of convolutions; :class:`Conv1D` documents the arguments."""

    rank: ClassVar[int]

    def __init__(
        self,
        filters: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Padding = "valid",
        dilation: Ints = 1,
        groups: int = 1,
        layout: Layout = "channels_last",
        activation: Function | str | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer | str = "glorot_uniform",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
    ) -> None:
        name, n = type(self).__name__, self.rank
        self.filters = check_positive_integer(self, "filters", filters)
        self.kernel_size = ints(kernel_size, n, f"{name}: kernel_size")
        self.stride = ints(stride, n, f"{name}: stride")
        self.padding = padding
        self.dilation = ints(dilation, n, f"{name}: dilation")
        self.groups = check_positive_integer(self, "groups", groups)
        if self.filters % self.groups:
            raise ValueError(f"{name}: groups must divide filters; got {groups} and {filters}")
        self.layout = _check_layout(name, layout)
        self.activation = activation_of(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.rng = rng
        self.kernel: tc.Variable | None = None
        self.bias: tc.Variable | None = None
        self._input_ndim = n + 2
        self._input_form = _describe_input(n, layout)
        self._sized_axes = (-1,) if layout == "channels_last" else (1,)

    def __call__(self, x: ArrayLike) -> tc.Tensor:
        y: tc.Tensor = tc.conv(
            self._cast_input(x),
            self._cast_variable(self.kernel),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            layout=self.layout,
        )
        if self.bias is not None:
            # With channels first, a bias of shape (filters, 1, 1) broadcasts over the spatial axes.
            last = self.layout == "channels_last"
            bias = self._cast_variable(self.bias)
            y = y + (bias if last else tc.reshape(bias, (self.filters, *(1,) * self.rank)))
        return y if self.activation is None else self.activation(y)

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        channels = shape[self._sized_axes[0]]
        if channels % self.groups:
            raise ValueError(
                f"{type(self).__name__}: groups must divide the channels of the input; got {self.groups} groups for "
                f"shape {shape}"
            )
        last = (*self.kernel_size, channels // self.groups, self.filters)
        if self.layout == "channels_last":
            add("kernel", last, self.kernel_initializer)
        else:
            # The numbers of the other layout, transposed: so both start alike, and the fans are the right ones.
            def initializer(shape: tuple[int, ...], **keywords: Any) -> tc.Tensor:
                kernel = self.kernel_initializer(last, **keywords)
                return tc.permute_dims(kernel, (self.rank + 1, self.rank, *range(self.rank)))

            add("kernel", (last[-1], last[-2], *self.kernel_size), initializer)
        if self.use_bias:
            add("bias", (self.filters,), self.bias_initializer)


class Conv1D(_Conv):
    """A convolution over one axis: `activation(conv(x, kernel) + bias)`, see :func:`tape_core.conv`.

    Inputs have shape `(examples, steps, channels)`, with channels first `(examples, channels, steps)`.
    `kernel` has shape `(kernel_size, channels / groups, filters)`, with channels first
    `(filters, channels / groups, kernel_size)`, and `bias` `(filters,)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.Conv1D(8, 3, padding="same")(tc.ones((2, 10, 4))).shape
    (2, 10, 8)

    Args:
        filters: the number of output channels.
        kernel_size: the kernel's length along each axis; one number is used for all axes.
        stride, padding, dilation, groups, layout: as for :func:`tape_core.conv`.
        activation, use_bias, kernel_initializer, bias_initializer, rng: as for :class:`Dense`. Both layouts start with
            the same numbers.

    Raises:
        ValueError: an argument is out of range; in a call, the input has another number of dimensions or channels.
    """

    rank = 1


class Conv2D(_Conv):
    """A convolution over two axes, of inputs `(examples, height, width, channels)`; else as :class:`Conv1D`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.Conv2D(8, 3, stride=2, activation="relu")
    >>> layer(tc.ones((2, 9, 9, 3))).shape
    (2, 4, 4, 8)
    >>> [(name, v.shape) for name, v in layer.named_variables()]
    [('kernel', (3, 3, 3, 8)), ('bias', (8,))]
    """

    rank = 2


class Conv3D(_Conv):
    """A convolution over three axes, of inputs `(examples, depth, height, width, channels)`; else as :class:`Conv1D`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.Conv3D(4, (1, 3, 3))(tc.ones((2, 5, 6, 6, 3))).shape
    (2, 5, 4, 4, 4)
    """

    rank = 3


class _Pool(Module):
    """Base class of pooling layers; :class:`MaxPool1D` documents the arguments."""

    rank: ClassVar[int]

    def __init__(
        self,
        pool_size: Ints = 2,
        stride: Ints | None = None,
        padding: Padding = "valid",
        layout: Layout = "channels_last",
    ) -> None:
        name = type(self).__name__
        self.pool_size = ints(pool_size, self.rank, f"{name}: pool_size")
        self.stride = self.pool_size if stride is None else ints(stride, self.rank, f"{name}: stride")
        self.padding = padding
        self.layout = _check_layout(name, layout)

    def _check_input(self, value: ArrayLike) -> tc.Tensor:
        x: tc.Tensor = value if isinstance(value, tc.Tensor) else tc.asarray(value)
        if x.ndim != self.rank + 2:
            form = _describe_input(self.rank, self.layout)
            raise ValueError(f"{type(self).__name__} takes inputs of shape {form}; got shape {x.shape}")
        return x


class _MaxPool(_Pool):
    def __call__(self, x: ArrayLike) -> tc.Tensor:
        result: tc.Tensor = tc.max_pool(
            self._check_input(x), self.pool_size, stride=self.stride, padding=self.padding, layout=self.layout
        )
        return result


class _AvgPool(_Pool):
    def __call__(self, x: ArrayLike) -> tc.Tensor:
        result: tc.Tensor = tc.avg_pool(
            self._check_input(x), self.pool_size, stride=self.stride, padding=self.padding, layout=self.layout
        )
        return result


class MaxPool1D(_MaxPool):
    """The greatest element of each window over one axis, for each channel, see :func:`tape_core.max_pool`.

    Inputs have shape `(examples, steps, channels)`, with channels first `(examples, channels, steps)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.MaxPool1D(2)(tc.reshape(tc.arange(6), (1, 6, 1))).tolist()
    [[[1], [3], [5]]]

    Args:
        pool_size: the window's length along each axis; one number is used for all axes.
        stride: the distance from one window to the next; by default `pool_size`, so that windows do not overlap.
        padding, layout: as for :class:`Conv1D`. Padding is never the greatest element.
    """

    rank = 1


class MaxPool2D(_MaxPool):
    """The greatest element of windows over two axes, of `(examples, height, width, channels)`; see :class:`MaxPool1D`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.MaxPool2D(3, stride=2, padding="same")(tc.ones((1, 7, 8, 5))).shape
    (1, 4, 4, 5)
    """

    rank = 2


class MaxPool3D(_MaxPool):
    """The greatest element of windows over three axes, of `(examples, depth, height, width, channels)`; see
    :class:`MaxPool1D`."""

    rank = 3


class AvgPool1D(_AvgPool):
    """The mean of each window over one axis, for each channel; else as :class:`MaxPool1D`.

    Padding is left out of the means, as in Keras; :func:`tape_core.avg_pool` can include it.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.AvgPool1D(2, stride=1, padding="same")(tc.asarray([[[2.0], [4.0], [6.0]]])).tolist()
    [[[3.0], [5.0], [6.0]]]
    """

    rank = 1


class AvgPool2D(_AvgPool):
    """The mean of windows over two axes, of `(examples, height, width, channels)`; see :class:`AvgPool1D`."""

    rank = 2


class AvgPool3D(_AvgPool):
    """The mean of windows over three axes, of `(examples, depth, height, width, channels)`; see :class:`AvgPool1D`."""

    rank = 3
