"""Transposed convolutions, over 1, 2 or 3 axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from tape_core.typing import Shape

from tape_tf.keras import activations
from tape_tf.keras.backend import resolve_data_format
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.convolution import core_padding, per_axis
from tape_tf.names import published
from tape_tf.tensor import Value
from tape_tf.typing import ActivationLike, ConstraintLike, InitializerLike, PartialShape, PerAxis, RegularizerLike


class _Transposed(Layer):
    """The base class of transposed convolutions; see :class:`Conv2DTranspose` for the arguments."""

    rank: ClassVar[int]

    def __init__(
        self,
        filters: object,
        kernel_size: PerAxis,
        strides: PerAxis = 1,
        padding: str = "valid",
        output_padding: PerAxis | None = None,
        data_format: str | None = None,
        dilation_rate: PerAxis = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(filters, bool) or not isinstance(filters, int) or filters < 1:
            raise ValueError(f"{type(self).__name__}: filters must be a positive integer, got {filters!r}")
        self.filters, self.use_bias = filters, use_bias
        self.kernel_size, self.strides = per_axis(kernel_size, self.rank), per_axis(strides, self.rank)
        self.dilation_rate = per_axis(dilation_rate, self.rank)
        self.output_padding = None if output_padding is None else per_axis(output_padding, self.rank)
        self.padding, self.data_format = core_padding(padding), resolve_data_format(data_format)
        self.activation = activations.get(activation)
        self._kernel: dict[str, Any] = {
            "initializer": kernel_initializer,
            "regularizer": kernel_regularizer,
            "constraint": kernel_constraint,
        }
        self._bias: dict[str, Any] = {
            "initializer": bias_initializer,
            "regularizer": bias_regularizer,
            "constraint": bias_constraint,
        }

    def build(self, input_shape: PartialShape) -> None:
        """Make the weights, for inputs of this shape."""
        if len(input_shape) != self.rank + 2:
            raise ValueError(
                f"Input of layer {self.name!r} is incompatible with it: expected {self.rank + 2} axes, found shape "
                f"{input_shape}"
            )
        channels = input_shape[-1 if self.data_format == "channels_last" else 1]
        # Filters before channels: the kernel of the convolution that this one transposes.
        self.kernel = self.add_weight((*self.kernel_size, self.filters, channels), name="kernel", **self._kernel)
        self.bias = self.add_weight((self.filters,), name="bias", **self._bias) if self.use_bias else None
        self.built = True

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        # The output, before it is cut to its length, and the products of each input element with the kernel.
        shape, last = shapes[0], self.data_format == "channels_last"
        space = shape[1:-1] if last else shape[2:]
        reach = [
            (n - 1) * stride + (kernel - 1) * dilation + 1
            for n, stride, kernel, dilation in zip(
                space, self.strides, self.kernel_size, self.dilation_rate, strict=False
            )
        ]
        lengths = [max(self._length(n, axis), reach[axis]) for axis, n in enumerate(space[: self.rank])]
        return [(shape[0], *lengths, self.filters), (*space, *self.kernel_size, self.filters)]

    def call(self, inputs: Value) -> Any:
        """Apply the transposed convolution, the bias and the activation."""
        last = self.data_format == "channels_last"
        shape = list(inputs.shape)
        spatial = shape[1:-1] if last else shape[2:]
        lengths = [self._length(n, axis) for axis, n in enumerate(spatial)]
        output = [shape[0], *lengths, self.filters] if last else [shape[0], self.filters, *lengths]
        # TensorFlow's letters for the order of axes: batch, depth, height, width, channels.
        code = {1: "NWC NCW", 2: "NHWC NCHW", 3: "NDHWC NCDHW"}[self.rank].split()[not last]
        # By the published name: an import of `tape_tf.ops` from here would be a cycle.
        out = published()[f"nn.conv{self.rank}d_transpose"](
            inputs,
            self.kernel,
            output,
            self.strides,
            padding=self.padding.upper(),
            data_format=code,
            dilations=self.dilation_rate,
        )
        if self.bias is not None:
            out = published()["nn.bias_add"](out, self.bias, data_format=code)
        return self.activation(out)

    def _length(self, n: int, axis: int) -> int:
        """Return the length of the output along an axis, by Keras' rules."""
        kernel = (self.kernel_size[axis] - 1) * self.dilation_rate[axis] + 1
        stride = self.strides[axis]
        # The convolution maps `stride` different lengths to n, so the length of its transpose is a choice. Keras takes
        # these, unless `output_padding` is given.
        if self.output_padding is None:
            return n * stride + (max(kernel - stride, 0) if self.padding == "valid" else 0)
        cut = 2 * (kernel // 2) if self.padding == "same" else 0
        return (n - 1) * stride + kernel - cut + self.output_padding[axis]


class Conv1DTranspose(_Transposed):
    """The transpose of :class:`Conv1D`, for inputs (examples, steps, channels); see :class:`Conv2DTranspose`."""

    rank = 1


class Conv2DTranspose(_Transposed):
    """The transpose of :class:`Conv2D`: with strides it enlarges images.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Conv2DTranspose(8, 5, strides=2, padding="same")(tf.ones((2, 7, 7, 3))).shape
    TensorShape([2, 14, 14, 8])

    Args:
        filters: the number of output channels.
        kernel_size, strides, dilation_rate: a number, or one for each axis.
        padding: "valid" turns a length n into `n * stride + max(kernel - stride, 0)`, "same" into `n * stride`.
        output_padding: the length to add, at the end, to `(n - 1) * stride + kernel`; with "same" minus `kernel`
            rounded down to an even number.
        data_format: "channels_last" or "channels_first".
        activation: a function or its name.
        use_bias: add a bias.
        kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, kernel_constraint, bias_constraint:
            as for :class:`Dense`.

    The kernel has the shape `(*kernel_size, filters, channels)`.
    """

    rank = 2


class Conv3DTranspose(_Transposed):
    """The transpose of :class:`Conv3D`; see :class:`Conv2DTranspose`."""

    rank = 3


Convolution1DTranspose, Convolution2DTranspose, Convolution3DTranspose = (
    Conv1DTranspose,
    Conv2DTranspose,
    Conv3DTranspose,
)
