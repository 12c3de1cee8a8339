"""Pooling: the maximum or the mean of what is in windows.

Both are separable: they are taken along one axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from tape_core.backends.checks import check_inexact
from tape_core.backends.windows import Ints, Layout, Padding, Windows, pool_windows, spatial_axes
from tape_core.engine.op import NONDIFF, linear, op, transpose, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.typing import Array, ArrayLike, Cotangent, DTypeLike, Namespace, Tangent


def _widths(ndim: int, axes: tuple[int, ...], seen: Windows) -> tuple[tuple[int, int], ...]:
    pads = dict(zip(axes, seen.pads, strict=True))
    return tuple([pads.get(a, (0, 0)) for a in range(ndim)])


def _inside(ndim: int, axes: tuple[int, ...], seen: Windows) -> tuple[slice, ...]:
    """The key of what is not padding."""
    slices = dict(zip(axes, seen.inside(), strict=True))
    return tuple([slices.get(a, slice(None)) for a in range(ndim)])


def _along_each_axis(x: Array, axes: tuple[int, ...], seen: Windows, combine: Callable[[Any, Any], Any]) -> Any:
    """The elements of each window combined: along one axis after the other."""
    for a, k, s, m in zip(axes, seen.window, seen.stride, seen.counts, strict=True):
        before = (slice(None),) * a
        result: Any = None
        for i in range(k):
            part = x[(*before, slice(i, i + (m - 1) * s + 1, s), ...)]
            result = part if result is None else combine(result, part)
        x = result
    return x


# -- maximum


def _lowest(xp: Namespace, dtype: DTypeLike) -> Array:
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
    seen = pool_windows(x, window, stride, padding, layout)
    axes = spatial_axes(x, layout)
    if seen.padded != seen.sizes:
        x = xp.pad(x, _widths(len(x.shape), axes, seen), constant_values=_lowest(xp, x.dtype))
    return _along_each_axis(x, axes, seen, xp.maximum)


def _first(xp: Namespace, x: Array, axes: tuple[int, ...], seen: Windows) -> Array:
    """For what is in each window, along one last axis, whether it is the first of the greatest."""
    widths = _widths(len(x.shape), axes, seen)
    padded = seen.padded != seen.sizes
    lowest = _lowest(xp, x.dtype)

    def parts(values: Any) -> Any:
        inside = xp.sliding_windows(values, seen.window, axis=axes, stride=seen.stride)
        return xp.reshape(inside, (*inside.shape[: len(x.shape)], math.prod(seen.window)))

    values = parts(xp.pad(x, widths, constant_values=lowest) if padded else x)
    # A NaN is the greatest, and padding never is, not even where all elements are -inf.
    great = xp.logical_or(values == xp.max(values, axis=-1, keepdims=True), values != values)
    if padded:
        great = xp.logical_and(great, parts(xp.pad(xp.ones_like(x, dtype=xp.bool), widths)))
    places = xp.arange_beside(x, math.prod(seen.window))
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
    seen = pool_windows(x, window, stride, padding, layout)
    axes, ndim = spatial_axes(x, layout), len(x.shape)
    parts = xp.where(_first(xp, x, axes, seen), xp.expand_dims(cotangent, axis=-1), 0)
    shape = list(x.shape)
    for a, n in zip(axes, seen.padded, strict=True):
        shape[a] = n
    parts = xp.reshape(parts, (*parts.shape[:-1], *seen.window))
    whole = xp.add_windows(parts, tuple(shape), axis=axes, stride=seen.stride)
    return whole[_inside(ndim, axes, seen)]


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
    seen = pool_windows(x, window, stride, padding, layout)
    axes, ndim = spatial_axes(x, layout), len(x.shape)
    first = _first(xp, x, axes, seen)
    tangent = xp.pad(tangent, _widths(ndim, axes, seen))
    parts = xp.sliding_windows(tangent, seen.window, axis=axes, stride=seen.stride)
    return xp.sum(xp.where(first, xp.reshape(parts, first.shape), 0), axis=-1)


def _cases(draw: Draw) -> Iterator[tuple[tuple[int, ...], Any, dict[str, Any]]]:
    """Shapes of `x`, windows and parameters."""
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
    yield Refused(TypeError, "x must be of a real", draw.complex(1, 2, 2), 2)


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
    """The greatest element of each window, for each channel. Of equal ones the first gets the gradient.

    >>> import tape_core as tc
    >>> x = tc.reshape(tc.arange(16), (1, 4, 4, 1))
    >>> tc.max_pool(x, 2)[0, ..., 0].tolist()
    [[5, 7], [13, 15]]
    >>> tc.max_pool(x, 3, stride=2, padding="same")[0, ..., 0].tolist()
    [[10, 11], [14, 15]]

    Args:
        x: `(examples, *lengths, channels)`, or with channels first `(examples, channels, *lengths)`.
        window: its length along each of the 1, 2 or 3 axes.
        stride: from a window to the next; by default its length.
        padding, layout: as for :func:`conv`. What is added at the ends is never the greatest.

    Raises:
        TypeError: `x` is of a complex or boolean dtype.
        ValueError: a window does not fit, sees nothing but padding, or a parameter is not what it must be.
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
    """The cotangent of `x` of :func:`max_pool`: an op, so that a backend can fuse it."""


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
    """What `tangent` has where :func:`max_pool` of `x` finds the greatest elements; the transpose of its vjp."""


# -- mean


def _divide_by_counts(
    xp: Namespace, sums: Array, axes: tuple[int, ...], seen: Windows, count_include_pad: bool
) -> Array:
    """Sums over windows, divided by how many elements each has; without padding, if it does not count."""
    if count_include_pad or seen.padded == seen.sizes:
        return sums / math.prod(seen.window)
    for a, k, s, n, m, (lo, _) in zip(axes, seen.window, seen.stride, seen.sizes, seen.counts, seen.pads, strict=True):
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
    seen = pool_windows(x, window, stride, padding, layout)
    axes = spatial_axes(x, layout)
    if seen.padded != seen.sizes:
        x = xp.pad(x, _widths(len(x.shape), axes, seen))
    return _divide_by_counts(xp, _along_each_axis(x, axes, seen, xp.add), axes, seen, count_include_pad)


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
    seen = pool_windows(x_spec, window, stride, padding, layout)
    axes = spatial_axes(x_spec, layout)
    g = _divide_by_counts(xp, g, axes, seen, count_include_pad)
    for a, k, s, n in zip(axes, seen.window, seen.stride, seen.padded, strict=True):
        parts = xp.broadcast_to(xp.expand_dims(g, axis=-1), (*g.shape, k))
        g = xp.add_windows(parts, (*g.shape[:a], n, *g.shape[a + 1 :]), axis=a, stride=s)
    return g[_inside(len(x_spec.shape), axes, seen)]


def _avg_pool_samples(draw: Draw) -> Iterator[Sample]:
    for shape, window, parameters in _cases(draw):
        yield Sample(draw(*shape), window, **parameters)
        yield Sample(draw(*shape), window, count_include_pad=True, **parameters)
    yield Sample(draw.complex(1, 3, 1), 2)
    yield Refused(TypeError, "x must be of a floating", draw.rng.integers(0, 9, (1, 4, 1)), 2)
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
        count_include_pad: whether what is added at the ends counts, as in PyTorch by default. In TensorFlow it does
            not.

    Raises:
        TypeError: `x` is of no floating dtype.
        ValueError: as for :func:`max_pool`.
    """
