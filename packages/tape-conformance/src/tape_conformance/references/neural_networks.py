"""References of functions of neural networks: loops written from the definitions, or NumPy's functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tape_conformance.references import Array, Axis, Padding, PadWidth, PerAxis
from tape_conformance.references.activations import softplus


def _per_axis(value: PerAxis, n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value)


def _pad_widths(
    padding: Padding, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the number of zeros before and after each axis."""
    pairs = []
    for i, n in enumerate(sizes):
        if padding == "valid":
            pair = (0, 0)
        elif padding == "same":
            # As TensorFlow does, with any stride: an odd zero goes to the end.
            outputs = math.ceil(n / stride[i])
            total = max(0, (outputs - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - n)
            pair = (total // 2, total - total // 2)
        else:
            width: Any = padding if isinstance(padding, int) else padding[i]
            pair = (width, width) if isinstance(width, int) else tuple(width)
        pairs.append(pair)
    return pairs


def _terms(
    sizes: Sequence[int],
    outputs: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the terms of a convolution as index tuples: into x, into the kernel, and into the result."""
    # `at` is outside of x where the kernel lies over the padding, whose zeros add nothing.
    for p in product(*map(range, outputs)):
        for k in product(*map(range, kernel)):
            at = tuple(a * s + b * d - lo for a, b, s, d, (lo, _) in zip(p, k, stride, dilation, pads, strict=True))
            if all(0 <= i < n for i, n in zip(at, sizes, strict=True)):
                yield at, k, p


def _channels_first(x: Array, layout: str) -> Any:
    return np.moveaxis(x, -1, 1) if layout == "channels_last" else x


def _in_layout(x: Array, layout: str) -> Any:
    """Bring a result with channels first to the layout asked for."""
    return np.moveaxis(x, 1, -1) if layout == "channels_last" else x


def _kernel_channels_first(w: Array, layout: str) -> Any:
    """Return a kernel of shape (out, in / groups, *kernel)."""
    return np.moveaxis(w, (-1, -2), (0, 1)) if layout == "channels_last" else w


def _output_sizes(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> list[int]:
    return [
        (n + lo + hi - (k - 1) * d - 1) // s + 1
        for n, k, s, d, (lo, hi) in zip(sizes, kernel, stride, dilation, pads, strict=True)
    ]


def conv(
    x: Array,
    w: Array,
    *,
    stride: PerAxis = 1,
    padding: Padding = "valid",
    dilation: PerAxis = 1,
    groups: int = 1,
    layout: str = "channels_last",
) -> Any:
    x, w = _channels_first(x, layout), _kernel_channels_first(w, layout)
    sizes, kernel = x.shape[2:], w.shape[2:]
    stride, dilation = _per_axis(stride, len(sizes)), _per_axis(dilation, len(sizes))
    pads = _pad_widths(padding, sizes, kernel, stride, dilation)
    outputs = _output_sizes(sizes, kernel, stride, dilation, pads)
    # One term after the other, for all examples at once: out[o] += w[o, c] * x[c of the group of o].
    out: Any = np.zeros((x.shape[0], w.shape[0], *outputs), np.result_type(x, w))
    each = w.shape[0] // groups
    for at, k, p in _terms(sizes, outputs, kernel, stride, dilation, pads):
        for o, c in product(range(w.shape[0]), range(w.shape[1])):
            out[(slice(None), o, *p)] += w[(o, c, *k)] * x[(slice(None), o // each * w.shape[1] + c, *at)]
    return _in_layout(out, layout)


def conv_transpose(
    x: Array,
    w: Array,
    *,
    stride: PerAxis = 1,
    padding: Padding = "valid",
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    layout: str = "channels_last",
) -> Any:
    x, w = _channels_first(x, layout), _kernel_channels_first(w, layout)
    outputs, kernel = x.shape[2:], w.shape[2:]
    n = len(kernel)
    stride, dilation, rest = _per_axis(stride, n), _per_axis(dilation, n), _per_axis(output_padding, n)
    if padding == "same":
        # A result that `conv` with this stride and padding makes `outputs` of, though not the only one.
        sizes = [m * s for m, s in zip(outputs, stride, strict=True)]
        pads = _pad_widths(padding, sizes, kernel, stride, dilation)
    else:
        pads = _pad_widths(padding, outputs, kernel, stride, dilation)
        sizes = [
            (m - 1) * s + (k - 1) * d + 1 + r - lo - hi
            for m, s, k, d, r, (lo, hi) in zip(outputs, stride, kernel, dilation, rest, pads, strict=True)
        ]
    # The transpose of `conv`: the same terms, with the roles of x and out exchanged.
    out: Any = np.zeros((x.shape[0], w.shape[1] * groups, *sizes), np.result_type(x, w))
    each = w.shape[0] // groups
    for at, k, p in _terms(sizes, outputs, kernel, stride, dilation, pads):
        for o, c in product(range(w.shape[0]), range(w.shape[1])):
            key: tuple[Any, ...] = (slice(None), o, *p)
            out[(slice(None), o // each * w.shape[1] + c, *at)] += w[(o, c, *k)] * x[key]
    return _in_layout(out, layout)


def conv_weight_vjp(
    x: Array,
    cotangent: Array,
    size: Sequence[int],
    *,
    stride: PerAxis = 1,
    padding: Padding = "valid",
    dilation: PerAxis = 1,
    groups: int = 1,
    layout: str = "channels_last",
) -> Any:
    x, cotangent = _channels_first(x, layout), _channels_first(cotangent, layout)
    sizes, outputs = x.shape[2:], cotangent.shape[2:]
    stride, dilation = _per_axis(stride, len(sizes)), _per_axis(dilation, len(sizes))
    pads = _pad_widths(padding, sizes, size, stride, dilation)
    channels = x.shape[1] // groups
    out: Any = np.zeros((cotangent.shape[1], channels, *size), np.result_type(x, cotangent))
    each = cotangent.shape[1] // groups
    for at, k, p in _terms(sizes, outputs, size, stride, dilation, pads):
        for o, c in product(range(out.shape[0]), range(channels)):
            key: tuple[Any, ...] = (slice(None), o, *p)
            out[(o, c, *k)] += np.sum(cotangent[key] * x[(slice(None), o // each * channels + c, *at)])
    return np.moveaxis(out, (0, 1), (-1, -2)) if layout == "channels_last" else out


def _normalize_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axis is None else tuple(a % ndim for a in _per_axis(axis, 1))


def sliding_windows(x: Array, window: PerAxis, *, axis: Axis = None, stride: PerAxis = 1, dilation: PerAxis = 1) -> Any:
    axes = _normalize_axes(axis, x.ndim)
    n = len(axes)
    window, stride, dilation = _per_axis(window, n), _per_axis(stride, n), _per_axis(dilation, n)
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axes)
    key: list[Any] = [slice(None)] * view.ndim
    for i, a in enumerate(axes):
        key[a] = slice(None, None, stride[i])
        key[x.ndim + i] = slice(None, None, dilation[i])
    return view[tuple(key)].copy()


def add_windows(
    parts: Array, shape: tuple[int, ...], *, axis: Axis = None, stride: PerAxis = 1, dilation: PerAxis = 1
) -> Any:
    # The windows of an array of flat indices tell where each element of `parts` goes.
    numbers = np.arange(math.prod(shape)).reshape(shape)
    window = parts.shape[len(shape) :]
    places = sliding_windows(numbers, window, axis=axis, stride=stride, dilation=dilation)
    out = np.zeros(math.prod(shape), parts.dtype)
    np.add.at(out, places.ravel(), parts.ravel())
    return out.reshape(shape)


def _pools(x: Array, window: PerAxis, stride: PerAxis | None, padding: Padding, layout: str) -> Any:
    """Return the windows of a pooling, with channels first.

    Returns:
        x; the shape of the result; for each place in the result the slices of x in its window; the window's size.
    """
    x = _channels_first(x, layout)
    sizes = x.shape[2:]
    window = _per_axis(window, len(sizes))
    stride = window if stride is None else _per_axis(stride, len(sizes))
    ones = (1,) * len(sizes)
    pads = _pad_widths(padding, sizes, window, stride, ones)
    outputs = _output_sizes(sizes, window, stride, ones, pads)
    slices = {}
    for p in product(*map(range, outputs)):
        # Windows are cut at the edges: padding is never the maximum, and is in a mean only as zeros that are counted.
        starts = [a * s - lo for a, s, (lo, _) in zip(p, stride, pads, strict=True)]
        slices[p] = tuple(slice(max(0, i), min(n, i + k)) for i, k, n in zip(starts, window, sizes, strict=True))
    return x, (*x.shape[:2], *outputs), slices, math.prod(window)


def _flatten_window(x: Array) -> Any:
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def max_pool(
    x: Array,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "valid",
    layout: str = "channels_last",
) -> Any:
    x, shape, seen, _ = _pools(x, window, stride, padding, layout)
    out = np.zeros(shape, x.dtype)
    for p, key in seen.items():
        out[(..., *p)] = _flatten_window(x[(..., *key)]).max(axis=-1)
    return _in_layout(out, layout)


def _argmax_of_windows(
    x: Array, window: PerAxis, stride: PerAxis | None, padding: Padding, layout: str
) -> tuple[Any, Any]:
    """Return x with channels first, and the flat index in it of the first greatest element of each window."""
    numbers = np.arange(x.size).reshape(_channels_first(x, layout).shape)
    x, shape, seen, _ = _pools(x, window, stride, padding, layout)
    out = np.zeros(shape, np.int64)
    for p, key in seen.items():
        inside = _flatten_window(x[(..., *key)])
        # np.argmax takes the first of equal elements, and a NaN for the greatest.
        at = inside.argmax(axis=-1)[..., None]
        out[(..., *p)] = np.take_along_axis(numbers[(..., *key)].reshape(inside.shape), at, axis=-1)[..., 0]
    return x, out


def max_pool_vjp(
    cotangent: Array,
    x: Array,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "valid",
    layout: str = "channels_last",
) -> Any:
    x, places = _argmax_of_windows(x, window, stride, padding, layout)
    out = np.zeros(x.size, cotangent.dtype)
    np.add.at(out, places.ravel(), _channels_first(cotangent, layout).ravel())
    return _in_layout(out.reshape(x.shape), layout)


def max_pool_jvp(
    tangent: Array,
    x: Array,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "valid",
    layout: str = "channels_last",
) -> Any:
    _, places = _argmax_of_windows(x, window, stride, padding, layout)
    return _in_layout(_channels_first(tangent, layout).ravel()[places], layout)


def avg_pool(
    x: Array,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "valid",
    count_include_pad: bool = False,
    layout: str = "channels_last",
) -> Any:
    x, shape, seen, size = _pools(x, window, stride, padding, layout)
    out = np.zeros(shape, x.dtype)
    for p, key in seen.items():
        inside = _flatten_window(x[(..., *key)])
        out[(..., *p)] = inside.sum(axis=-1) / (size if count_include_pad else inside.shape[-1])
    return _in_layout(out, layout)


def pad(x: Array, pad_width: PadWidth, mode: str = "constant", *, constant_values: float = 0) -> Any:
    if x.ndim == 0:
        return x
    if mode == "constant":
        return np.pad(x, pad_width, constant_values=constant_values)
    return np.pad(x, pad_width, mode)  # type: ignore[call-overload]


def normalize(
    x: Array, scale: Array | None = None, offset: Array | None = None, *, axis: Axis, epsilon: float
) -> tuple[Any, Any, Any]:
    mean, variance = x.mean(axis=axis), x.var(axis=axis)
    out = (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(x.var(axis=axis, keepdims=True) + epsilon)
    # var() divides by n, not n - 1: the biased variance, as batch norms use it in training.
    return out * (1 if scale is None else scale) + (0 if offset is None else offset), mean, variance


def rms_norm(x: Array, scale: Array | None = None, *, axis: Axis = -1, epsilon: float = 1e-6) -> Any:
    out = x / np.sqrt((x**2).mean(axis=axis, keepdims=True) + epsilon)
    return out if scale is None else out * scale


def attend(arrays: Sequence[Array], *, is_causal: bool = False, scale: float | None = None) -> Any:
    query, key, value = arrays[:3]
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = np.einsum("...ie,...je->...ij", query, key) * scale
    allowed = np.ones(scores.shape, np.bool)
    if is_causal:
        allowed &= np.tri(*scores.shape[-2:], dtype=np.bool)
    if len(arrays) > 3:
        mask = arrays[3]
        if mask.dtype == np.bool:
            scores, allowed = np.broadcast_arrays(scores, allowed & mask)
        else:
            scores, allowed = np.broadcast_arrays(scores + mask, allowed)
    # Without the usual shift by the maximum: the samples are small.
    weights = np.where(allowed, np.exp(scores), 0)
    total = weights.sum(axis=-1)
    # A query that may attend to no key gets zeros, not 0 / 0.
    shares = weights / np.where(total == 0, 1, total)[..., None]
    return np.einsum("...ij,...jo->...io", shares, value)


def drop(x: Array, keep: Array, *, rate: float) -> Any:
    return np.where(keep, x / (1 - rate) if rate < 1 else 0, 0)


REFERENCES: dict[str, Callable[..., Any]] = {
    "add_windows": add_windows,
    "attend": attend,
    "avg_pool": avg_pool,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "conv_weight_vjp": conv_weight_vjp,
    "convolve": np.convolve,
    "drop": drop,
    # np.where computes both branches: the minimum keeps exp from overflowing where it is not used.
    "elu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1)),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    # Below -3 written out, since -inf * 0 is NaN.
    "hard_silu": lambda x: np.where(x <= -3, 0, x * np.clip(x / 6 + 0.5, 0, 1)),
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, slope * x),
    "log_sigmoid": lambda x: -softplus(-x),
    "max_pool": max_pool,
    "max_pool_jvp": max_pool_jvp,
    "max_pool_vjp": max_pool_vjp,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "normalize": normalize,
    "pad": pad,
    "relu6": lambda x: np.clip(x, 0, 6),
    "rms_norm": rms_norm,
    # The two numbers are those of Klambauer et al., "Self-normalizing neural networks" (2017).
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(np.minimum(x, 0)) - 1)),
    "sliding_windows": sliding_windows,
}
