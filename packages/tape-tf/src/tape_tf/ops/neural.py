"""tf.nn: activations, losses, convolutions, pooling, normalisation.

TensorFlow's filters have the shape (*lengths, in, out) for every data format; those of tape_core follow the layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import tape_core as tc

from tape_tf.conversion import native, static, wrap
from tape_tf.functions import op, unary
from tape_tf.names import exported
from tape_tf.tensor import Value
from tape_tf.typing import IntLike, ShapeLike, TensorLike

Ints: TypeAlias = "IntLike | Sequence[IntLike] | None"
"""Strides and the like: one number for all spatial axes, one for each, or one for each dimension; None for ones."""

Padding: TypeAlias = "str | Sequence[Sequence[IntLike]] | Value"
"""`"SAME"`, `"VALID"`, or pairs of the numbers before and after, for each spatial axis or for each dimension."""

_ACTIVATIONS = {
    "nn.relu": tc.relu,
    "nn.relu6": tc.relu6,
    "nn.elu": tc.elu,
    "nn.selu": tc.selu,
}
for _names, _function in _ACTIVATIONS.items():
    # relu and relu6 take integers in TensorFlow; elu and selu do not.
    unary(_names, _function, floating=_names not in ("nn.relu", "nn.relu6"))


@op("nn.leaky_relu", "features", floating=True)
def leaky_relu(features: tc.Tensor, alpha: float = 0.2) -> tc.Tensor:
    """Return `x` for positive `x`, else `alpha * x`."""
    return tc.leaky_relu(features, alpha)


@op("nn.gelu", "features", floating=True)
def gelu(features: tc.Tensor, approximate: bool = False) -> tc.Tensor:
    """Return `x * Φ(x)`, with the normal distribution function Φ, or its approximation by tanh."""
    return tc.gelu(features, approximate=approximate)


@op("nn.silu nn.swish", "features", floating=True)
def silu(features: tc.Tensor, beta: float = 1.0) -> tc.Tensor:
    """Return `x * sigmoid(beta * x)`."""
    return tc.silu(features) if beta == 1.0 else features * tc.sigmoid(features * beta)


@op("nn.softsign math.softsign", "features", floating=True)
def softsign(features: tc.Tensor) -> tc.Tensor:
    """Return `x / (1 + |x|)`."""
    return features / (1 + tc.abs(features))


@op("nn.crelu", "features", static_args="axis")
def crelu(features: tc.Tensor, axis: int = -1) -> tc.Tensor:
    """Concatenate relu(x) and relu(-x) along `axis`."""
    return tc.concat([tc.relu(features), tc.relu(-features)], axis=axis)


@op("nn.softmax math.softmax", "logits", static_args="axis", floating=True)
def softmax(logits: tc.Tensor, axis: int | None = None) -> tc.Tensor:
    """Return exp(x) divided by its sum along `axis`, by default the last."""
    return tc.softmax(logits, axis=-1 if axis is None else axis)


@op("nn.log_softmax math.log_softmax", "logits", static_args="axis", floating=True)
def log_softmax(logits: tc.Tensor, axis: int | None = None) -> tc.Tensor:
    """Return the logarithm of the softmax, without overflow."""
    return tc.log_softmax(logits, axis=-1 if axis is None else axis)


# -- losses


@op(
    "nn.softmax_cross_entropy_with_logits",
    "labels logits",
    static_args="axis",
    kernel="SoftmaxCrossEntropyWithLogits",
    floating=True,
    differs="the gradient is right also where labels do not add up to 1",
)
def softmax_cross_entropy_with_logits(labels: tc.Tensor, logits: tc.Tensor, axis: int = -1) -> tc.Tensor:
    """Return the cross-entropy of the distributions `labels` and the softmax of `logits`; differentiable in both."""
    # TensorFlow's kernel returns softmax(logits) - labels as the gradient, which is right for labels with the sum 1
    # only.
    return -tc.sum(labels * tc.log_softmax(logits, axis=axis), axis=axis)


@op("nn.sparse_softmax_cross_entropy_with_logits", "logits; labels", floating=True)
def sparse_softmax_cross_entropy_with_logits(labels: tc.Tensor, logits: tc.Tensor) -> tc.Tensor:
    """Return the cross-entropy of class indices `labels` and the softmax of `logits`.

    Raises:
        ValueError: the shape of `labels` is not that of `logits` without the last dimension.
    """
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"`labels.shape` must equal `logits.shape` except for the last dimension. Received: labels.shape="
            f"{labels.shape} and logits.shape={logits.shape}"
        )
    return tc.cross_entropy(logits, labels)


@op("nn.sigmoid_cross_entropy_with_logits", "labels logits", floating=True, kernel="LogisticLoss")
def sigmoid_cross_entropy_with_logits(labels: tc.Tensor, logits: tc.Tensor) -> tc.Tensor:
    """Return the cross-entropy of the probabilities `labels` and the sigmoid of `logits`, element by element."""
    if labels.shape != logits.shape:
        raise ValueError(
            f"`logits` and `labels` must have the same shape, received ({logits.shape} vs {labels.shape})."
        )
    # labels * -log(sigmoid(x)) + (1 - labels) * -log(1 - sigmoid(x)) is this, by log(sigmoid(x)) = x - softplus(x).
    return _softplus(logits) - logits * labels


def _softplus(x: tc.Tensor) -> tc.Tensor:
    """Return log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which overflows nowhere and is exact for large x."""
    positive = x >= 0
    return tc.where(positive, x, 0.0) + tc.softplus(tc.where(positive, -x, x))


@op("nn.weighted_cross_entropy_with_logits", "labels logits", floating=True, kernel="LogisticLoss")
def weighted_cross_entropy_with_logits(
    labels: tc.Tensor, logits: tc.Tensor, pos_weight: float | tc.Tensor
) -> tc.Tensor:
    """Return :func:`sigmoid_cross_entropy_with_logits` with the loss of positive labels times `pos_weight`."""
    # TensorFlow's own formula, see the docstring of tf.nn.weighted_cross_entropy_with_logits.
    weight = 1 + (pos_weight - 1) * labels
    return (1 - labels) * logits + weight * _softplus(-logits)


@op("nn.log_poisson_loss", "targets log_input", floating=True)
def log_poisson_loss(targets: tc.Tensor, log_input: tc.Tensor, compute_full_loss: bool = False) -> tc.Tensor:
    """Return the negative log likelihood of counts, with Stirling's approximation of log(targets!) if asked for."""
    loss = tc.exp(log_input) - log_input * targets
    if compute_full_loss:
        stirling = targets * tc.log(targets) - targets + 0.5 * tc.log(2 * math.pi * targets)
        # log(0!) and log(1!) are 0, where Stirling's approximation is not.
        loss = loss + tc.where((targets >= 0) & (targets <= 1), tc.zeros_like(targets), stirling)
    return loss


@op("nn.l2_loss", "t", floating=True)
def l2_loss(t: tc.Tensor) -> tc.Tensor:
    """Return half the sum of the squares."""
    return tc.sum(tc.square(t)) / 2


@op("nn.compute_average_loss", "per_example_loss")
def compute_average_loss(
    per_example_loss: tc.Tensor, sample_weight: TensorLike | None = None, global_batch_size: IntLike | None = None
) -> tc.Tensor:
    """Return the sum of the weighted losses, divided by the number of examples; a float64 for integers.

    Raises:
        InvalidArgumentError: there is one loss, without an axis of examples.
    """
    if not per_example_loss.ndim:
        raise ValueError("Invalid value passed for `per_example_loss`. Expected a tensor with at least rank 1.")
    if not per_example_loss.dtype.inexact:
        per_example_loss = tc.astype(per_example_loss, tc.float64)
    if sample_weight is not None:
        per_example_loss = per_example_loss * native(sample_weight, like=per_example_loss)
    n = per_example_loss.shape[0] if global_batch_size is None else static(global_batch_size)
    return tc.sum(per_example_loss) / n


# -- convolutions and pooling


def _layout(data_format: str | None, ndim: int) -> Literal["channels_last", "channels_first"]:
    """Return the core's name for a data format such as `"NHWC"` or `"NCHW"`."""
    given = data_format or "NHWC"
    if given in ("NWC", "NHWC", "NDHWC"):
        return "channels_last"
    if given in ("NCW", "NCHW", "NCDHW"):
        return "channels_first"
    raise ValueError(f"data_format must be one such as 'NHWC' or 'NCHW', got {data_format!r}")


def _spatial(given: Ints, n: int, layout: str, name: str) -> tuple[int, ...]:
    """Return one number for each of n spatial axes, given one, n, or one for each dimension of the input."""
    if given is None:
        return (1,) * n
    values = (given,) if isinstance(given, int) else tuple(static(given))
    if len(values) == 1:
        return values * n
    if len(values) == n + 2:
        return values[1:-1] if layout == "channels_last" else values[2:]
    if len(values) != n:
        raise ValueError(f"{name} should be of length 1, {n} or {n + 2}, but was {len(values)}")
    return values


def _padding(given: Padding, n: int, layout: str) -> Any:
    """Convert `"SAME"`, `"VALID"` or pairs of numbers to the core's padding of n spatial axes."""
    if isinstance(given, str):
        if given.upper() not in ("SAME", "VALID"):
            raise ValueError(f"padding must be 'SAME', 'VALID' or pairs of numbers, got {given!r}")
        return given.lower()
    # Pairs for each dimension include those of the batch and the channels, which are never padded.
    pairs = [tuple(pair) for pair in static(given)]
    if len(pairs) == n + 2:
        pairs = pairs[1:-1] if layout == "channels_last" else pairs[2:]
    return pairs


def _filters_in_layout(filters: tc.Tensor, layout: str) -> tc.Tensor:
    """Transpose TensorFlow's filters, which have the channels last, as the core's layout wants them."""
    if layout == "channels_last":
        return filters
    n = filters.ndim - 2
    return tc.permute_dims(filters, (n + 1, n, *range(n)))


def _channels(x: tc.Tensor, layout: str) -> int:
    return x.shape[-1 if layout == "channels_last" else 1]


def _conv(
    x: tc.Tensor, w: tc.Tensor, strides: Ints, padding: Padding, data_format: str | None, dilations: Ints
) -> tc.Tensor:
    n = w.ndim - 2
    if x.ndim != n + 2:
        raise ValueError(
            f"input must have {n + 2} dimensions, examples, {n} lengths and channels; its shape is {x.shape}"
        )
    layout = _layout(data_format, n)
    if _channels(x, layout) % w.shape[-2]:
        raise ValueError(
            f"input depth must be evenly divisible by filter depth: {_channels(x, layout)} vs {w.shape[-2]}"
        )
    return tc.conv(
        x,
        _filters_in_layout(w, layout),
        stride=_spatial(strides, n, layout, "strides"),
        padding=_padding(padding, n, layout),
        dilation=_spatial(dilations, n, layout, "dilations"),
        # TensorFlow has no argument for groups: they follow from filters with fewer channels than the input.
        groups=_channels(x, layout) // w.shape[-2],
        layout=layout,
    )


def _publish_convolution(n: int) -> None:
    @op(f"nn.conv{n}d", "input filters", static_args="strides dilations", kernel=f"Conv{n}D")
    def conv(
        input: tc.Tensor,
        filters: tc.Tensor,
        strides: Ints,
        padding: Padding,
        data_format: str | None = None,
        dilations: Ints = None,
    ) -> tc.Tensor:
        return _conv(input, filters, strides, padding, data_format, dilations)

    conv.__doc__ = (
        f"Convolve over {n} axes, as neural networks do; `filters` have the shape (*lengths, in / groups, out)."
    )


@op("nn.conv1d", "input filters", static_args="dilations", kernel="Conv2D")
def conv1d(
    input: tc.Tensor,
    filters: tc.Tensor,
    stride: Ints,
    padding: Padding,
    data_format: str | None = None,
    dilations: Ints = None,
) -> tc.Tensor:
    """Convolve over one axis, as neural networks do; `filters` have the shape (length, in / groups, out)."""
    return _conv(input, filters, stride, padding, data_format, dilations)


for _n in (2, 3):
    _publish_convolution(_n)


@op("nn.convolution", "input filters", static_args="strides dilations", kernel="Convolution")
def convolution(
    input: tc.Tensor,
    filters: tc.Tensor,
    strides: Ints = None,
    padding: Padding = "VALID",
    data_format: str | None = None,
    dilations: Ints = None,
) -> tc.Tensor:
    """Convolve over as many axes as `filters` has, as neural networks do."""
    return _conv(input, filters, strides, padding, data_format, dilations)


@op("nn.atrous_conv2d", "value filters", kernel="Conv2D")
def atrous_conv2d(value: tc.Tensor, filters: tc.Tensor, rate: int, padding: Padding) -> tc.Tensor:
    """Convolve with `rate` elements from one element of the filters to the next (a dilated convolution)."""
    return _conv(value, filters, 1, padding, "NHWC", rate)


@op("nn.depthwise_conv2d", "input filter", static_args="strides dilations", kernel="DepthwiseConv2dNative")
def depthwise_conv2d(
    input: tc.Tensor,
    filter: tc.Tensor,
    strides: Ints,
    padding: Padding,
    data_format: str | None = None,
    dilations: Ints = None,
) -> tc.Tensor:
    """Convolve each channel by itself; `filter` has the shape (h, w, in, multiplier)."""
    h, w, channels, multiplier = filter.shape
    # A grouped convolution with a group for each channel: its output channels are ordered as (in, multiplier).
    return _conv(input, tc.reshape(filter, (h, w, 1, channels * multiplier)), strides, padding, data_format, dilations)


@op("nn.separable_conv2d", "input depthwise_filter pointwise_filter", static_args="strides dilations", kernel="Conv2D")
def separable_conv2d(
    input: tc.Tensor,
    depthwise_filter: tc.Tensor,
    pointwise_filter: tc.Tensor,
    strides: Ints,
    padding: Padding,
    data_format: str | None = None,
    dilations: Ints = None,
) -> tc.Tensor:
    """Convolve each channel by itself, then mix the channels of each pixel."""
    h, w, channels, multiplier = depthwise_filter.shape
    deep = tc.reshape(depthwise_filter, (h, w, 1, channels * multiplier))
    between = _conv(input, deep, strides, padding, data_format, dilations)
    return _conv(between, pointwise_filter, 1, "VALID", data_format, None)


def _conv_transpose(
    x: tc.Tensor,
    w: tc.Tensor,
    output_shape: Ints,
    strides: Ints,
    padding: Padding,
    data_format: str | None,
    dilations: Ints,
) -> tc.Tensor:
    n = w.ndim - 2
    layout = _layout(data_format, n)
    stride = _spatial(strides, n, layout, "strides")
    dilation = _spatial(dilations, n, layout, "dilations")
    lengths = tuple(static(output_shape))
    if len(lengths) == n + 2:
        lengths = lengths[1:-1] if layout == "channels_last" else lengths[2:]
    given = x.shape[1:-1] if layout == "channels_last" else x.shape[2:]
    explicit = _padding(padding, n, layout)
    pads, extra = [], []
    for k in range(n):
        # The length that the transpose has without padding: that of the input whose convolution gives `given`.
        full = (given[k] - 1) * stride[k] + (w.shape[k] - 1) * dilation[k] + 1
        if explicit == "same":  # TensorFlow puts the odd one of the padding at the end
            total = max(full - lengths[k], 0)
            pads.append((total // 2, total - total // 2))
        else:
            pads.append((0, 0) if explicit == "valid" else tuple(explicit[k]))
        # Several input lengths have a convolution of one length, where the stride skips some: `output_padding` tells
        # which.
        extra.append(lengths[k] - (full - sum(pads[k])))
        if not 0 <= extra[k] < stride[k]:
            raise ValueError(
                f"output_shape {lengths} does not fit the input's lengths {given}, strides {stride} and padding"
            )
    return tc.conv_transpose(
        x,
        _filters_in_layout(w, layout),
        stride=stride,
        padding=pads,
        output_padding=tuple(extra),
        dilation=dilation,
        layout=layout,
    )


def _publish_transposed(n: int) -> None:
    @op(
        f"nn.conv{n}d_transpose",
        "input filters",
        static_args="output_shape strides dilations",
        kernel=f"Conv{n}DBackpropInput",
    )
    def conv_transpose(
        input: tc.Tensor,
        filters: tc.Tensor,
        output_shape: Ints,
        strides: Ints,
        padding: Padding = "SAME",
        data_format: str | None = None,
        dilations: Ints = None,
    ) -> tc.Tensor:
        return _conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations)

    conv_transpose.__doc__ = f"Transpose a convolution over {n} axes; `filters` have the shape (*lengths, out, in)."


for _n in (1, 2, 3):
    _publish_transposed(_n)


def _pool(
    function: Callable[..., Any], x: tc.Tensor, ksize: Ints, strides: Ints, padding: Padding, data_format: str | None
) -> Any:
    n = x.ndim - 2
    layout = _layout(data_format, n)
    return function(
        x,
        _spatial(ksize, n, layout, "ksize"),
        stride=_spatial(strides, n, layout, "strides"),
        padding=_padding(padding, n, layout),
        layout=layout,
    )


def _publish_pools(short: str, function: Callable[..., Any]) -> None:
    for suffix, ndim in (("", None), ("1d", 3), ("2d", 4), ("3d", 5)):

        @op(f"nn.{short}_pool{suffix}", "input", static_args="ksize strides", kernel=f"{short.capitalize()}Pool")
        def pool(
            input: tc.Tensor,
            ksize: Ints,
            strides: Ints,
            padding: Padding,
            data_format: str | None = None,
            ndim: int | None = ndim,
        ) -> Any:
            if ndim is not None and input.ndim != ndim:
                raise ValueError(f"input must have {ndim} dimensions, its shape is {input.shape}")
            return _pool(function, input, ksize, strides, padding, data_format)

        pool.__doc__ = f"Return the {'greatest element' if short == 'max' else 'mean'} of each window."


_publish_pools("max", tc.max_pool)
_publish_pools("avg", tc.avg_pool)


@exported("nn.pool")
def pool(
    input: TensorLike,
    window_shape: Ints,
    pooling_type: str,
    strides: Ints = None,
    padding: Padding = "VALID",
    data_format: str | None = None,
    dilations: Ints = None,
    name: str | None = None,
) -> Any:
    """Return the greatest element (`"MAX"`) or the mean (`"AVG"`) of each window."""
    if pooling_type not in ("MAX", "AVG"):
        raise ValueError(f"pooling_type must be 'MAX' or 'AVG', got {pooling_type!r}")
    if dilations is not None and set(_spatial(dilations, native(input).ndim - 2, "channels_last", "dilations")) != {1}:
        raise ValueError("nn.pool: dilations are not there; use tape_core.sliding_windows")
    function = tc.max_pool if pooling_type == "MAX" else tc.avg_pool
    return wrap(_pool(function, native(input), window_shape, strides, padding, data_format))


# -- normalisation


@op("nn.bias_add", "value bias", kernel="BiasAdd")
def bias_add(value: tc.Tensor, bias: tc.Tensor, data_format: str | None = None) -> tc.Tensor:
    """Add a number to each channel."""
    layout = _layout(data_format, value.ndim - 2)
    if bias.ndim != 1 or bias.shape[0] != _channels(value, layout):
        raise ValueError(f"bias must have shape ({_channels(value, layout)},), one for each channel; got {bias.shape}")
    return value + (bias if layout == "channels_last" else tc.reshape(bias, (-1,) + (1,) * (value.ndim - 2)))


@op("nn.moments", "x", static_args="axes", floating=True)
def moments(
    x: tc.Tensor, axes: int | tuple[int, ...], shift: object = None, keepdims: bool = False
) -> tuple[tc.Tensor, tc.Tensor]:
    """Return the mean and the variance along `axes`."""
    axis = tuple(axes) if isinstance(axes, tuple) else axes
    return tc.mean(x, axis=axis, keepdims=keepdims), tc.var(x, axis=axis, keepdims=keepdims)


@op("nn.weighted_moments", "x frequency_weights", static_args="axes")
def weighted_moments(
    x: tc.Tensor, axes: int | tuple[int, ...], frequency_weights: tc.Tensor, keepdims: bool = False
) -> tuple[tc.Tensor, tc.Tensor]:
    """Return the mean and the variance along `axes`, weighted by `frequency_weights`."""
    # The weights are summed in the shape of `x`: one that broadcasts counts for each element.
    weights = tc.broadcast_to(frequency_weights, tc.broadcast_shapes(x.shape, frequency_weights.shape))
    total = tc.sum(weights, axis=axes, keepdims=True)
    mean = tc.sum(weights * x, axis=axes, keepdims=True) / total
    variance = tc.sum(weights * tc.square(x - mean), axis=axes, keepdims=True) / total
    if keepdims:
        return mean, variance
    # A sum over axes of length 1 drops them.
    return tc.sum(mean, axis=axes), tc.sum(variance, axis=axes)


@op("nn.batch_normalization", "x mean variance offset scale", kernel="BatchNorm")
def batch_normalization(
    x: tc.Tensor,
    mean: tc.Tensor,
    variance: tc.Tensor,
    offset: tc.Tensor | None,
    scale: tc.Tensor | None,
    variance_epsilon: float,
) -> tc.Tensor:
    """Return `(x - mean) / √(variance + variance_epsilon) * scale + offset`; the last two may be None."""
    # As in TensorFlow, the statistics and the scale become one factor, so that `x` is multiplied once.
    factor = tc.reciprocal(tc.sqrt(variance + variance_epsilon))
    if scale is not None:
        factor = factor * scale
    found = x * factor - mean * factor
    return found if offset is None else found + offset


@op("nn.local_response_normalization nn.lrn", "input", kernel="LRN")
def local_response_normalization(
    input: tc.Tensor, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> tc.Tensor:
    """Divide each element by a power of the sum of squares in the `depth_radius` channels on either side."""
    padded = tc.pad(tc.square(input), [(0, 0)] * (input.ndim - 1) + [(depth_radius, depth_radius)])
    total = tc.sum(tc.sliding_windows(padded, 2 * depth_radius + 1, axis=-1), axis=-1)
    return input / (bias + alpha * total) ** beta


@exported("nn.dropout", differs="other random numbers than TensorFlow's")
def dropout(
    x: TensorLike, rate: TensorLike, noise_shape: ShapeLike = None, seed: IntLike | None = None, name: str | None = None
) -> Any:
    """Set each element to 0 with probability `rate`, and divide the others by `1 - rate`."""
    from tape_tf.ops.sampling import generator

    value = native(x)
    share = float(native(rate))
    if not 0 <= share < 1:
        raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). Received: rate={rate}")
    shape = static(noise_shape)
    if shape is not None:
        # None in noise_shape stands for the length of `x`.
        shape = tuple(n if s is None else s for s, n in zip(shape, value.shape, strict=True))
    return wrap(tc.dropout(value, share, rng=generator(seed), noise_shape=shape))


@op("math.in_top_k nn.in_top_k", "targets; predictions", static_args="k")
def in_top_k(targets: tc.Tensor, predictions: tc.Tensor, k: int) -> tc.Tensor:
    """Return whether each target's score is among the `k` best of its row; False in rows with infinity or NaN."""
    import tape_nn as nn

    return nn.metrics.SparseTopKCategoricalAccuracy(k).values(targets, predictions)


@exported("nn.scale_regularization_loss")
def scale_regularization_loss(regularization_loss: TensorLike) -> Any:
    """Return the sum of the losses: there is one replica."""
    return wrap(tc.sum(native(regularization_loss)))
