"""The shapes of outputs where they follow from those of inputs without a computation.

A symbolic call of any other layer runs it on arrays of ones, which takes long for convolutions of large images. A rule
belongs to exactly one class: a class derived from it may compute something else. A rule returns None for what it does
not know, or what is wrong: then the layer is called after all, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tape_tf.keras import activations
from tape_tf.keras.layers import activation_layers, channels, convolution, core, merging, normalization
from tape_tf.keras.symbolic import SHAPE_RULES

Lengths: TypeAlias = "tuple[int | None, ...]"
"""A shape, with None for each unknown length."""


def _preserves_shapes(activation: object) -> bool:
    """True for an activation of Keras: a function of the user's may return another shape."""
    return getattr(activation, "__module__", None) == activations.__name__


def _windows(
    lengths: Lengths, sizes: Sequence[int], strides: Sequence[int], padding: object, dilation: Sequence[int]
) -> Lengths | None:
    """Return the number of windows along each axis; None if there is an axis without any."""
    found: list[int | None] = []
    for axis, (n, size, stride, spread) in enumerate(zip(lengths, sizes, strides, dilation, strict=True)):
        if n is None:
            found.append(None)
        elif padding == "same":
            found.append(-(-n // stride))
        else:
            width = 0 if padding == "valid" else sum(padding[axis])  # type: ignore[index]
            count = (n + width - spread * (size - 1) - 1) // stride + 1
            if count < 1:
                return None
            found.append(count)
    return tuple(found)


def _split(shape: Lengths, layout: str, rank: int) -> tuple[Lengths, int | None] | None:
    """Return the spatial lengths of a shape and the number of channels; None if it has another number of axes."""
    if len(shape) != rank + 2:
        return None
    return (shape[1:-1], shape[-1]) if layout == "channels_last" else (shape[2:], shape[1])


def _joined(shape: Lengths, layout: str, lengths: Lengths | None, channels: int | None) -> Lengths | None:
    if lengths is None or channels is None:
        return None
    return (shape[0], *lengths, channels) if layout == "channels_last" else (shape[0], channels, *lengths)


def _ints(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _convolution(layer: Any, shape: Lengths) -> Lengths | None:
    inner = layer.native
    rank = inner.rank
    if (parts := _split(shape, inner.layout, rank)) is None or not _preserves_shapes(layer.activation):
        return None
    lengths, count = parts
    if count is None:
        return None
    if layer.built:
        # The axis of channels of a kernel: the last but one, or with channels first the second.
        taken = layer.kernel.shape[-2 if inner.layout == "channels_last" else 1] * inner.groups
        if taken != count:
            return None
    size, stride, dilation = (_ints(v, rank) for v in (inner.kernel_size, inner.stride, inner.dilation))
    return _joined(shape, inner.layout, _windows(lengths, size, stride, inner.padding, dilation), inner.filters)


def _depthwise(layer: Any, shape: Lengths) -> Lengths | None:
    if (parts := _split(shape, layer.data_format, layer.rank)) is None or not _preserves_shapes(layer.activation):
        return None
    lengths, count = parts
    if count is None or (layer.built and layer.kernel.shape[-2] != count):
        return None
    filters = getattr(layer, "filters", count * layer.depth_multiplier)
    found = _windows(lengths, layer.kernel_size, layer.strides, layer.padding, layer.dilation_rate)
    return _joined(shape, layer.data_format, found, filters)


def _pooling(layer: Any, shape: Lengths) -> Lengths | None:
    inner = layer.native
    rank = len(inner.pool_size)
    if (parts := _split(shape, inner.layout, rank)) is None:
        return None
    found = _windows(parts[0], inner.pool_size, _ints(inner.stride, rank), inner.padding, (1,) * rank)
    return _joined(shape, inner.layout, found, parts[1])


def _global_pooling(layer: Any, shape: Lengths) -> Lengths | None:
    if (parts := _split(shape, layer.data_format, layer.rank)) is None:
        return None
    return _joined(shape, layer.data_format, (1,) * layer.rank if layer.keepdims else (), parts[1])


def _zero_padding(layer: Any, shape: Lengths) -> Lengths | None:
    if (parts := _split(shape, layer.data_format, layer.rank)) is None:
        return None
    lengths = tuple([None if n is None else n + sum(w) for n, w in zip(parts[0], layer.padding, strict=True)])
    return _joined(shape, layer.data_format, lengths, parts[1])


def _batch_normalization(layer: Any, shape: Lengths) -> Lengths | None:
    rank = len(shape)
    axis = layer.axis if isinstance(layer.axis, int) else rank
    if axis not in (-1, 1, rank - 1) or shape[axis] is None:
        return None
    if layer.built and any([variable.shape[0] != shape[axis] for variable in layer.variables]):
        return None
    return shape


def _dense(layer: Any, shape: Lengths) -> Lengths | None:
    if len(shape) < 2 or shape[-1] is None or not _preserves_shapes(layer.activation):
        return None
    if layer.built and layer.kernel.shape[0] != shape[-1]:
        return None
    return (*shape[:-1], layer.native.units)


def _activation(layer: Any, shape: Lengths) -> Lengths | None:
    return shape if _preserves_shapes(layer.activation) else None


def _same(layer: Any, shape: Lengths) -> Lengths | None:
    return shape


def _flatten(layer: Any, shape: Lengths) -> Lengths | None:
    rest = [n for n in shape[1:] if n is not None]
    if len(shape) < 2:
        return None
    return (shape[0], math.prod(rest) if len(rest) == len(shape) - 1 else None)


def _reshape(layer: Any, shape: Lengths) -> Lengths | None:
    rest = [n for n in shape[1:] if n is not None]
    target = layer.target_shape
    if len(rest) != len(shape) - 1 or any([n < 1 for n in target if n != -1]) or target.count(-1) > 1:
        return None
    size, known = math.prod(rest), math.prod([n for n in target if n != -1])
    if size % known or (-1 not in target and size != known):
        return None
    return (shape[0], *[size // known if n == -1 else n for n in target])


def _elementwise_merge(layer: Any, *shapes: Lengths) -> Lengths | None:
    few = len(shapes) < layer._min_inputs or len(shapes) > layer._max_inputs
    return None if few or len(set(shapes)) > 1 else shapes[0]


def _concatenate(layer: Any, *shapes: Lengths) -> Lengths | None:
    rank = len(shapes[0])
    if any([len(shape) != rank for shape in shapes]) or not -rank <= layer.axis < rank:
        return None
    axis = layer.axis % rank
    if axis == 0 or len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        return None
    parts = [shape[axis] for shape in shapes]
    whole = None if None in parts else sum([n for n in parts if n is not None])
    return (*shapes[0][:axis], whole, *shapes[0][axis + 1 :])


_RULES: dict[Callable[..., Lengths | None], list[type]] = {
    _convolution: [convolution.Conv1D, convolution.Conv2D, convolution.Conv3D],
    _depthwise: [
        channels.DepthwiseConv1D,
        channels.DepthwiseConv2D,
        channels.SeparableConv1D,
        channels.SeparableConv2D,
    ],
    _pooling: [
        convolution.MaxPooling1D,
        convolution.MaxPooling2D,
        convolution.MaxPooling3D,
        convolution.AveragePooling1D,
        convolution.AveragePooling2D,
        convolution.AveragePooling3D,
    ],
    _global_pooling: [
        convolution.GlobalAveragePooling1D,
        convolution.GlobalAveragePooling2D,
        convolution.GlobalAveragePooling3D,
        convolution.GlobalMaxPooling1D,
        convolution.GlobalMaxPooling2D,
        convolution.GlobalMaxPooling3D,
    ],
    _zero_padding: [convolution.ZeroPadding1D, convolution.ZeroPadding2D, convolution.ZeroPadding3D],
    _batch_normalization: [normalization.BatchNormalization],
    _dense: [core.Dense],
    _activation: [activation_layers.Activation],
    _same: [
        core.Dropout,
        core.Identity,
        activation_layers.ReLU,
        activation_layers.LeakyReLU,
        activation_layers.ELU,
    ],
    _flatten: [core.Flatten],
    _reshape: [core.Reshape],
    _elementwise_merge: [
        merging.Add,
        merging.Subtract,
        merging.Multiply,
        merging.Maximum,
        merging.Minimum,
        merging.Average,
    ],
    _concatenate: [merging.Concatenate],
}

SHAPE_RULES.update(
    {kind: (rule, rule in (_elementwise_merge, _concatenate)) for rule, kinds in _RULES.items() for kind in kinds}
)
