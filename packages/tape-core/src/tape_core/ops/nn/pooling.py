"""Pooling: the maximum or the mean of the elements of windows.

Both are separable, so the kernels work along one axis after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from tape_core.backends.checks import check_inexact
from tape_core.backends.windows import Ints, Layout, Padding, Windows, pool_windows, spatial_axes
from tape_core.engine.op import NONDIFF, REFUSED, linear, op, transpose, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace, RawDType, Tangent


def _pad_widths(ndim: int, axes: tuple[int, ...], geometry: Windows) -> tuple[tuple[int, int], ...]:
    pads = dict(zip(axes, geometry.pads, strict=True))
    return tuple([pads.get(a, (0, 0)) for a in range(ndim)])


def _unpadded_key(ndim: int, axes: tuple[int, ...], geometry: Windows) -> tuple[slice, ...]:
    """The index key of the elements that are not padding."""
    slices = dict(zip(axes, geometry.inside(), strict=True))
    return tuple([slices.get(a, slice(None)) for a in range(ndim)])


def _combine_windows(x: Array, axes: tuple[int, ...], geometry: Windows, combine: Callable[[Any, Any], Any]) -> Array:
    """Combine the elements of each window, along one axis after another, by strided slices."""
    # Element i of all m windows is a strided slice, so k slices are combined, and no window is copied.
    for a, k, s, m in zip(axes, geometry.window, geometry.stride, geometry.counts, strict=True):
        before = (slice(None),) * a
        result: Any = None
        for i in range(k):
            part = x[(*before, slice(i, i + (m - 1) * s + 1, s), ...)]
            result = part if result is None else combine(result, part)
        x = result
    return x


# -- maximum


def _lowest_value(xp: Namespace, dtype: RawDType) -> float:
    return -math.inf if xp.isdtype(dtype, "real floating") else xp.iinfo(dtype).min


def _max_pool_kernel(
    xp: Namespace,
    x: Array,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Array:
    if not xp.isdtype(x.dtype, ("real floating", "integral")):
        raise TypeError(f"x must be of a real numeric dtype, not {x.dtype}")
    geometry = pool_windows(x, window, stride, padding, layout)
    axes = spatial_axes(x, layout)
    if geometry.padded != geometry.sizes:
        x = xp.pad(x, _pad_widths(len(x.shape), axes, geometry), constant_values=_lowest_value(xp, x.dtype))
    return _combine_windows(x, axes, geometry, xp.maximum)


def _first_maxima(xp: Namespace, x: Array, axes: tuple[int, ...], geometry: Windows) -> Array:
    """A mask over the elements of each window, along a last axis: True for the first of the greatest elements."""
    widths = _pad_widths(len(x.shape), axes, geometry)
    padded = geometry.padded != geometry.sizes
    lowest = _lowest_value(xp, x.dtype)

    def parts(values: Array) -> Array:
        inside = xp.sliding_windows(values, geometry.window, axis=axes, stride=geometry.stride)
        return xp.reshape(inside, (*inside.shape[: len(x.shape)], math.prod(geometry.window)))

    values = parts(xp.pad(x, widths, constant_values=lowest) if padded else x)
    # NaN counts as the greatest; padding never does, not even where all elements are -inf.
    great = xp.logical_or(values == xp.max(values, axis=-1, keepdims=True), values != values)
    if padded:
        great = xp.logical_and(great, parts(xp.pad(xp.ones_like(x, dtype=xp.bool), widths)))
    # argmax gives the first of equal values.
    places = xp.arange_beside(x, math.prod(geometry.window))
    return xp.argmax(xp.astype(great, places.dtype), axis=-1, keepdims=True) == places


def _max_pool_vjp_kernel(
    xp: Namespace,
    cotangent: Cotangent,
    x: Array,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Array:
    geometry = pool_windows(x, window, stride, padding, layout)
    axes, ndim = spatial_axes(x, layout), len(x.shape)
    # Put the cotangent of each window at its maximum, and add up windows that overlap.
    parts = xp.where(_first_maxima(xp, x, axes, geometry), xp.expand_dims(cotangent, axis=-1), 0)
    shape = list(x.shape)
    for a, n in zip(axes, geometry.padded, strict=True):
        shape[a] = n
    parts = xp.reshape(parts, (*parts.shape[:-1], *geometry.window))
    whole = xp.add_windows(parts, tuple(shape), axis=axes, stride=geometry.stride)
    return whole[_unpadded_key(ndim, axes, geometry)]


def _max_pool_jvp_kernel(
    xp: Namespace,
    tangent: Tangent,
    x: Array,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Array:
    geometry = pool_windows(x, window, stride, padding, layout)
    axes, ndim = spatial_axes(x, layout), len(x.shape)
    first = _first_maxima(xp, x, axes, geometry)
    tangent = xp.pad(tangent, _pad_widths(ndim, axes, geometry))
    parts = xp.sliding_windows(tangent, geometry.window, axis=axes, stride=geometry.stride)
    return xp.sum(xp.where(first, xp.reshape(parts, first.shape), 0), axis=-1)


def _cases(draw: Draw) -> Iterator[tuple[tuple[int, ...], Ints, dict[str, Any]]]:
    """The shapes of `x`, windows and parameters."""
    yield (2, 6, 3), 2, {}
    yield (2, 3, 5), 3, {"stride": 2, "padding": "same", "layout": "channels_first"}
    yield (2, 4, 5, 2), (2, 3), {"stride": (2, 1)}
    yield (1, 2, 5, 4), (3, 2), {"stride": 2, "padding": ((1, 2), 1), "layout": "channels_first"}
    yield (1, 3, 4, 2, 1), (2, 2, 1), {"padding": (1, 0, 0)}
    yield (0, 4, 4, 2), 2, {}


def _max_pool_samples(draw: Draw) -> Iterator[Sample]:
    for shape, window, parameters in _cases(draw):
        yield Sample(draw.distinct(*shape), window, **parameters)
    yield Refused(ValueError, "x must have 3 to 5", draw(2, 3), 2)
    yield Refused(ValueError, "does not fit", draw(1, 2, 2), 3)
    yield Refused(ValueError, "must see an element", draw(1, 2, 2), 2, padding=2)
    yield Refused(ValueError, "window must", draw(1, 2, 2), (2, 2))
    yield Refused(TypeError, "real numbers", draw.complex(1, 2, 2), 2)


def _max_pool_vjp_samples(draw: Draw) -> Iterator[Sample]:
    for shape, window, parameters in _cases(draw):
        x = draw.distinct(*shape)
        yield Sample(draw(*max_pool(x, window, **parameters).shape), x, window, **parameters)


def _max_pool_jvp_samples(draw: Draw) -> Iterator[Sample]:
    for shape, window, parameters in _cases(draw):
        yield Sample(draw(*shape), draw.distinct(*shape), window, **parameters)


@op(
    x=vjp(
        lambda xp, g, x, window, stride, padding, layout: xp.max_pool_vjp(
            g, x, window, stride=stride, padding=padding, layout=layout
        )
    ),
    kernel=_max_pool_kernel,
    samples=_max_pool_samples,
    batch=batching.merged,
    complex_kernel=REFUSED,
)
def max_pool(
    x: ArrayLike,
    /,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Tensor:
    """The greatest element of each window, for each channel. The first of equal ones gets the gradient.

    >>> import tape_core as tc
    >>> x = tc.reshape(tc.arange(16), (1, 4, 4, 1))
    >>> tc.max_pool(x, 2)[0, ..., 0].tolist()
    [[5, 7], [13, 15]]
    >>> tc.max_pool(x, 3, stride=2, padding="same")[0, ..., 0].tolist()
    [[10, 11], [14, 15]]

    Args:
        x: of shape `(examples, *lengths, channels)`, or `(examples, channels, *lengths)` with the channels first.
        window: the length of a window along each of the 1, 2 or 3 axes.
        stride: the distance from a window to the next; by default the length of a window.
        padding, layout: as for :func:`conv`. Padding is never the greatest element.

    Raises:
        TypeError: `x` is of a complex or boolean dtype.
        ValueError: a window does not fit or has only padding in it, or a parameter is out of its range.
    """


@linear(
    cotangent=transpose(
        lambda xp, g, x, window, stride, padding, layout: xp.max_pool_jvp(
            g, x, window, stride=stride, padding=padding, layout=layout
        )
    ),
    x=NONDIFF,
    kernel=_max_pool_vjp_kernel,
    samples=_max_pool_vjp_samples,
    batch=batching.merged,
    complex_kernel=REFUSED,
)
def max_pool_vjp(
    cotangent: ArrayLike,
    x: ArrayLike,
    /,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Tensor:
    """The cotangent of `x` of :func:`max_pool`. It is an op, so that a backend can fuse it."""


@linear(
    tangent=transpose(
        lambda xp, g, x, window, stride, padding, layout: xp.max_pool_vjp(
            g, x, window, stride=stride, padding=padding, layout=layout
        )
    ),
    x=NONDIFF,
    kernel=_max_pool_jvp_kernel,
    samples=_max_pool_jvp_samples,
    batch=batching.merged,
    complex_kernel=REFUSED,
)
def max_pool_jvp(
    tangent: ArrayLike,
    x: ArrayLike,
    /,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Tensor:
    """The elements of `tangent` at the places of the maxima of `x`: the JVP of :func:`max_pool`, and the transpose of
    :func:`max_pool_vjp`."""


# -- mean


def _divide_by_counts(
    xp: Namespace, sums: Array, axes: tuple[int, ...], geometry: Windows, count_include_pad: bool
) -> Array:
    """Divide sums over windows by the number of elements of each; padding counts if `count_include_pad`."""
    if count_include_pad or geometry.padded == geometry.sizes:
        return sums / math.prod(geometry.window)
    # A window's share along each axis: the part of [start, start + k) that lies inside [0, n).
    for a, k, s, n, m, (lo, _) in zip(
        axes, geometry.window, geometry.stride, geometry.sizes, geometry.counts, geometry.pads, strict=True
    ):
        starts = xp.arange_beside(sums, m) * s - lo
        counts = xp.minimum(starts + k, n) - xp.maximum(starts, 0)
        shape = [1] * len(sums.shape)
        shape[a] = m
        sums = sums / xp.astype(xp.reshape(counts, tuple(shape)), sums.dtype)
    return sums


def _avg_pool_kernel(
    xp: Namespace,
    x: Array,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    count_include_pad: bool = False,
    layout: Layout = "channels_last",
) -> Array:
    check_inexact(xp, "x", x)
    geometry = pool_windows(x, window, stride, padding, layout)
    axes = spatial_axes(x, layout)
    if geometry.padded != geometry.sizes:
        x = xp.pad(x, _pad_widths(len(x.shape), axes, geometry))
    return _divide_by_counts(xp, _combine_windows(x, axes, geometry, xp.add), axes, geometry, count_include_pad)


def _avg_pool_transpose(
    xp: Namespace,
    g: Cotangent,
    x_spec: Spec,
    window: Ints,
    stride: Ints | None,
    padding: Padding,
    count_include_pad: bool,
    layout: Layout,
) -> Cotangent:
    geometry = pool_windows(x_spec, window, stride, padding, layout)
    axes = spatial_axes(x_spec, layout)
    g = _divide_by_counts(xp, g, axes, geometry, count_include_pad)
    # The mean is separable, and so is its transpose: spread along one axis after another.
    for a, k, s, n in zip(axes, geometry.window, geometry.stride, geometry.padded, strict=True):
        parts = xp.broadcast_to(xp.expand_dims(g, axis=-1), (*g.shape, k))
        g = xp.add_windows(parts, (*g.shape[:a], n, *g.shape[a + 1 :]), axis=a, stride=s)
    return g[_unpadded_key(len(x_spec.shape), axes, geometry)]


def _avg_pool_samples(draw: Draw) -> Iterator[Sample]:
    for shape, window, parameters in _cases(draw):
        yield Sample(draw(*shape), window, **parameters)
        yield Sample(draw(*shape), window, count_include_pad=True, **parameters)
    yield Sample(draw.complex(1, 3, 1), 2)
    yield Refused(ValueError, "must see an element", draw(1, 2, 2), 2, padding=2)


@linear(x=transpose(_avg_pool_transpose), kernel=_avg_pool_kernel, samples=_avg_pool_samples, batch=batching.merged)
def avg_pool(
    x: ArrayLike,
    /,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    count_include_pad: bool = False,
    layout: Layout = "channels_last",
) -> Tensor:
    """The mean of each window, for each channel.

    >>> import tape_core as tc
    >>> x = tc.reshape(tc.asarray([2.0, 4.0, 6.0]), (1, 3, 1))
    >>> tc.avg_pool(x, 2, stride=1, padding="same")[0, :, 0].tolist()
    [3.0, 5.0, 6.0]
    >>> tc.avg_pool(x, 2, stride=1, padding="same", count_include_pad=True)[0, :, 0].tolist()
    [3.0, 5.0, 3.0]

    Args:
        x, window, stride, padding, layout: as for :func:`max_pool`.
        count_include_pad: whether padding counts in the mean, as in PyTorch by default; in TensorFlow it does not.

    Raises:
        TypeError: `x` is not of a floating dtype.
        ValueError: as for :func:`max_pool`.
    """
