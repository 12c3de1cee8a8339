"""Normalisation over features, examples, groups and instances.

`layer_norm`, `batch_norm`, `group_norm` and `instance_norm` are all made of one op, `normalize`, whose rules are one
formula each, in place of a chain of records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tape_core.backends.checks import check_inexact
from tape_core.backends.errors import AxisError
from tape_core.backends.windows import Layout
from tape_core.engine.op import REFUSED, op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import SCALARS, Tensor, read, read_array
from tape_core.modes import batching
from tape_core.ops.elementwise import sqrt
from tape_core.ops.manipulation import reshape, sum_to
from tape_core.ops.statistical import count, normal_axes, restore_axes
from tape_core.typing import Array, ArrayLike, Axis, Cotangent, Namespace, Residuals


def _check(xp: Namespace, x: Array, **parameters: Array | None) -> None:
    """Raise TypeError for a dtype that is not real floating, ValueError for parameters that do not broadcast to `x`."""
    check_inexact(xp, "x", x, real=True)
    shape = tuple(x.shape)
    for name, value in parameters.items():
        if value is None or type(value) in SCALARS:
            continue
        own = tuple(value.shape)
        if len(own) > len(shape) or any(n not in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False)):
            raise ValueError(f"{name} must broadcast to the shape of x, {shape}; it has shape {own}")


def _is_half(xp: Namespace, x: Array) -> bool:
    """Return whether squares of ordinary numbers overflow, as in float16, which has none above 65504."""
    return float(xp.finfo(x.dtype).max) < 1e5


def _in_single(xp: Namespace, *values: Array | None) -> list[Any]:
    return [xp.astype(v, xp.float32) if hasattr(v, "dtype") and _is_half(xp, v) else v for v in values]


def _in_half(xp: Namespace, d: Array) -> Array:
    return xp.astype(d, xp.float16)


# -- minus the mean, divided by the standard deviation


def _normalize_with_residuals(
    xp: Namespace,
    x: Array,
    scale: Array | None = None,
    offset: Array | None = None,
    *,
    axis: tuple[int, ...],
    epsilon: float,
) -> tuple[tuple[Array, Array, Array], Residuals]:
    """The results; and, as residuals, the mean and the variance with `axis` of length 1."""
    _check(xp, x, scale=scale, offset=offset)
    if _is_half(xp, x):
        own = all([not hasattr(v, "dtype") or _is_half(xp, v) for v in (scale, offset)])
        x, scale, offset = _in_single(xp, x, scale, offset)
        results, residuals = _normalize_with_residuals(xp, x, scale, offset, axis=axis, epsilon=epsilon)
        if own:
            # A cast would warn of a variance that float16 does not have: NumPy rounds to infinity from here on.
            variance = xp.where(results[2] >= 65520.0, math.inf, results[2])
            results = (_in_half(xp, results[0]), _in_half(xp, results[1]), _in_half(xp, variance))
        return results, residuals
    mean = xp.mean(x, axis=axis, keepdims=True)
    out = x - mean
    variance = xp.mean(out * out, axis=axis, keepdims=True)
    out = out / xp.sqrt(variance + epsilon)
    out = out if scale is None else out * scale
    out = out if offset is None else out + offset
    return (out, xp.squeeze(mean, axis=axis), xp.squeeze(variance, axis=axis)), (mean, variance)


def _mean_and_variance(xp: Namespace, x: Array, residuals: Residuals, axis: tuple[int, ...]) -> tuple[Array, Array]:
    """The mean and the variance: the residuals, or computed again where a recorded sweep has none."""
    if residuals:
        return residuals[0], residuals[1]
    mean = xp.mean(x, axis=axis, keepdims=True)
    centred = x - mean
    return mean, xp.mean(centred * centred, axis=axis, keepdims=True)


def _normalize_x(
    xp: Namespace,
    g: Cotangent,
    x: Array,
    scale: Array,
    x_spec: Spec,
    residuals: Residuals,
    axis: tuple[int, ...],
    epsilon: float,
) -> Cotangent:
    if _is_half(xp, x):
        x, scale = _in_single(xp, x, scale)
        d = _normalize_x(xp, _in_single(xp, *g), x, scale, x_spec, residuals, axis, epsilon)
        return _in_half(xp, d)
    mean, variance = _mean_and_variance(xp, x, residuals, axis)
    g_mean, g_variance = (None if d is None else restore_axes(xp, d, x_spec.shape, axis, False) for d in g[1:])
    n = count(x_spec.shape, axis)
    # Ioffe and Szegedy, Batch Normalization, 2015, section 3, and in addition the cotangents of the mean and of the
    # variance, which are results as well. The cotangent is d * r + (x - mean) * slope + level.
    slope = 0 if g_variance is None else g_variance * (2 / n)
    level = 0 if g_mean is None else g_mean / n
    centred = x - mean
    if g[0] is None:
        return centred * slope + level
    r = 1 / xp.sqrt(variance + epsilon)
    d = g[0] if scale is None else g[0] * scale
    slope = slope - r * r * r * xp.mean(d * centred, axis=axis, keepdims=True)
    level = level - r * xp.mean(d, axis=axis, keepdims=True)
    return d * r + (centred * slope + level)


def _normalize_scale(
    xp: Namespace,
    g: Cotangent,
    x: Array,
    x_spec: Spec,
    scale_spec: Spec,
    residuals: Residuals,
    axis: tuple[int, ...],
    epsilon: float,
) -> Cotangent:
    if g[0] is None:
        return _zero_cotangent(xp, g, scale_spec)
    if _is_half(xp, x):
        x, *wide = _in_single(xp, x, *g)
        d = _normalize_scale(xp, wide, x, x_spec, scale_spec, residuals, axis, epsilon)
        return xp.astype(d, scale_spec.dtype)
    mean, variance = _mean_and_variance(xp, x, residuals, axis)
    return sum_to(xp, g[0] * (x - mean) / xp.sqrt(variance + epsilon), scale_spec.shape)


def _normalize_offset(xp: Namespace, g: Cotangent, offset_spec: Spec) -> Cotangent:
    return _zero_cotangent(xp, g, offset_spec) if g[0] is None else sum_to(xp, g[0], offset_spec.shape)


def _zero_cotangent(xp: Namespace, g: Sequence[Cotangent], spec: Spec) -> Cotangent:
    """Zeros, for `scale` and `offset` where the first result, the only one that depends on them, was not used."""
    one = next(d for d in g if d is not None)
    return xp.zeros_beside(one, spec.shape, dtype=one.dtype)


def _normalize_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(3, 4), axis=(1,), epsilon=0.01)
    yield Sample(draw(3, 4), draw(4), axis=(1,), epsilon=0.01)
    yield Sample(draw(2, 3, 4), draw(4), draw(3, 1), axis=(0, 2), epsilon=0.01)
    yield Sample(draw(2, 3), None, draw(), axis=(0, 1), epsilon=0.01)
    yield Sample(draw(0, 3), draw(3), axis=(1,), epsilon=0.01)
    yield Refused(ValueError, "scale must broadcast", draw(2, 3), draw(2), axis=(1,), epsilon=0.01)
    yield Refused(ValueError, "offset must broadcast", draw(2), None, draw(1, 2), axis=(0,), epsilon=0.01)
    yield Refused(TypeError, "real numbers", draw.complex(2, 3), axis=(1,), epsilon=0.01)


@op(
    x=vjp(_normalize_x),
    scale=vjp(_normalize_scale),
    offset=vjp(_normalize_offset),
    kernel=lambda xp, *arrays, **parameters: _normalize_with_residuals(xp, *arrays, **parameters)[0],
    residual_kernel=_normalize_with_residuals,
    materialize=False,
    samples=_normalize_samples,
    batch=batching.with_shared,
    complex_kernel=REFUSED,
)
def normalize(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    /,
    *,
    axis: tuple[int, ...],
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset`, and the mean and the variance over `axis`."""


def layer_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    /,
    *,
    axis: int | tuple[int, ...] = -1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Subtract the mean of `x` over `axis`, divide by the standard deviation, multiply by `scale`, add `offset`.

    >>> import tape_core as tc
    >>> tc.layer_norm(tc.asarray([[1.0, 3.0], [2.0, 8.0]]), epsilon=0.0).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    >>> tc.layer_norm(tc.asarray([1.0, 3.0]), 2.0, 10.0, epsilon=0.0).tolist()
    [8.0, 12.0]

    Source: Ba, Kiros and Hinton, Layer Normalization, 2016.

    Args:
        scale, offset: arrays that broadcast to the shape of `x`, or numbers.
        axis: the axes of mean and standard deviation.
        epsilon: a number that is added to the variance.

    Raises:
        TypeError: `x` is not of a real floating dtype.
        ValueError: `scale` or `offset` does not broadcast to the shape of `x`.
    """
    x = read_array(x, "layer_norm: x", scale)
    return normalize(x, scale, offset, axis=_axes("layer_norm", x, axis), epsilon=epsilon)[0]


def _axes(name: str, x: Array, axis: int | tuple[int, ...]) -> tuple[int, ...]:
    ndim = len(getattr(x, "shape", ()))
    axes = axis if isinstance(axis, tuple) else (axis,)
    if not axes or any(not -ndim <= a < ndim for a in axes):
        raise AxisError(f"{name}: axis {axis} is out of bounds for {ndim} dimensions")
    return normal_axes(axes, ndim)


# -- by channels


class BatchNormResult(NamedTuple):
    """The result of :func:`batch_norm`."""

    output: Tensor
    mean: Tensor
    variance: Tensor


def _spatial_axes(
    name: str, x: ArrayLike, layout: Layout, least: int, beside: ArrayLike | None
) -> tuple[Any, tuple[int, ...]]:
    """Read `x`, of at least `least` dimensions; return it and its axes without those of examples and channels."""
    x = read(x, f"{name}: x", beside)
    ndim = len(getattr(x, "shape", ()))
    if layout not in ("channels_last", "channels_first"):
        raise ValueError(f"{name}: layout must be 'channels_last' or 'channels_first', got {layout!r}")
    if ndim < least:
        raise ValueError(f"{name}: x must have {least} dimensions or more, got shape {getattr(x, 'shape', ())}")
    return x, tuple(range(1, ndim - 1) if layout == "channels_last" else range(2, ndim))


def _channel_parameter(
    value: ArrayLike | None, name: str, x: ArrayLike, channels: tuple[int, ...], spatial: int, layout: Layout
) -> Any:
    """Read a parameter with a number for each channel, and reshape it so that it broadcasts against `x`."""
    if value is None:
        return None
    value = read(value, name, x)
    if type(value) in SCALARS:
        return value
    total = 1
    for n in channels:
        total *= n
    if tuple(value.shape) != (total,):
        raise ValueError(f"{name} must have shape ({total},), a number for each channel, got {tuple(value.shape)}")
    shape = (*channels, *((1,) * spatial if layout == "channels_first" else ()))
    return value if shape == tuple(value.shape) else reshape(value, shape)


def batch_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    /,
    *,
    epsilon: float = 1e-5,
    layout: Layout = "channels_last",
) -> BatchNormResult:
    """Subtract the mean of each channel, divide by the standard deviation, multiply by `scale`, add `offset`.

    In training, leave `mean` and `variance` out: those of the batch are used, and returned for running averages.
    Otherwise, pass the ones to use. All inputs are differentiable.

    >>> import tape_core as tc
    >>> x = tc.asarray([[1.0, 4.0], [3.0, 8.0]])
    >>> y, mean, variance = tc.batch_norm(x, epsilon=0.0)
    >>> y.tolist(), mean.tolist(), variance.tolist()
    ([[-1.0, -1.0], [1.0, 1.0]], [2.0, 6.0], [1.0, 4.0])
    >>> tc.batch_norm(x, None, None, mean, variance, epsilon=0.0).output.tolist()
    [[-1.0, -1.0], [1.0, 1.0]]

    Source: Ioffe and Szegedy, Batch Normalization, 2015.

    Args:
        x: of shape (examples, ..., channels), or (examples, channels, ...) with the channels first.
        scale, offset: a number for each channel, or one for all.
        mean, variance: a number for each channel. The variance of a batch is the biased one: the sum of squares divided
            by n, not n - 1.
        epsilon: a number that is added to the variance.

    Raises:
        TypeError: `x` is not of a real floating dtype.
        ValueError: only one of `mean` and `variance` is given, or a parameter does not have a number for each channel.
    """
    x, spatial = _spatial_axes("batch_norm", x, layout, 2, scale)
    channels = (x.shape[-1 if layout == "channels_last" else 1],)

    def parameter(value: ArrayLike | None, name: str) -> Any:
        return _channel_parameter(value, f"batch_norm: {name}", x, channels, len(spatial), layout)

    scale, offset = parameter(scale, "scale"), parameter(offset, "offset")
    if mean is None and variance is None:
        return BatchNormResult(*normalize(x, scale, offset, axis=(0, *spatial), epsilon=epsilon))
    if mean is None or variance is None:
        raise ValueError("batch_norm: give both mean and variance, or neither")
    check_inexact(x.backend.xp, "batch_norm: x", x._array, real=True)
    # With given statistics this is an affine function of x: its two factors are as small as the channels.
    factor = (1 if scale is None else scale) / sqrt(parameter(variance, "variance") + epsilon)
    level = (0 if offset is None else offset) - parameter(mean, "mean") * factor
    given = [read(value, f"batch_norm: {name}", x) for value, name in ((mean, "mean"), (variance, "variance"))]
    return BatchNormResult(x * factor + level, *given)


def group_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    /,
    *,
    groups: int,
    epsilon: float = 1e-5,
    layout: Layout = "channels_last",
) -> Tensor:
    """Normalise each group of channels of each example: subtract its mean, divide by its standard deviation.

    Then multiply by `scale` and add `offset`.

    >>> import tape_core as tc
    >>> tc.group_norm(tc.asarray([[1.0, 3.0, 10.0, 30.0]]), groups=2, epsilon=0.0).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]

    Source: Wu and He, Group Normalization, 2018.

    Args:
        x: of shape (examples, ..., channels), or (examples, channels, ...) with the channels first.
        scale, offset: a number for each channel, or one for all.
        groups: the number of groups of neighbouring channels.
        epsilon: a number that is added to the variance.

    Raises:
        TypeError: `x` is not of a real floating dtype.
        ValueError: `groups` does not divide the number of channels, or a parameter does not have a number for each
            channel.
    """
    x, spatial = _spatial_axes("group_norm", x, layout, 2, scale)
    shape = x.shape
    last = layout == "channels_last"
    n = shape[-1] if last else shape[1]
    if type(groups) is not int or groups < 1 or n % groups:
        raise ValueError(f"group_norm: groups must be a positive integer that divides the {n} channels, got {groups!r}")
    channels = (groups, n // groups)
    scale, offset = (
        _channel_parameter(value, f"group_norm: {name}", x, channels, len(spatial), layout)
        for name, value in (("scale", scale), ("offset", offset))
    )
    # Split the axis of channels into groups and channels of a group, and normalise over the latter and the lengths.
    if last:
        x, axes = reshape(x, (*shape[:-1], *channels)), (*spatial, len(shape))
    else:
        x, axes = reshape(x, (shape[0], *channels, *shape[2:])), (2, *(a + 1 for a in spatial))
    return reshape(normalize(x, scale, offset, axis=axes, epsilon=epsilon)[0], shape)


def instance_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    /,
    *,
    epsilon: float = 1e-5,
    layout: Layout = "channels_last",
) -> Tensor:
    """Normalise each channel of each example: subtract its mean, divide by its standard deviation.

    Then multiply by `scale` and add `offset`.

    >>> import tape_core as tc
    >>> tc.instance_norm(tc.asarray([[[1.0, 4.0], [3.0, 8.0]]]), epsilon=0.0).tolist()
    [[[-1.0, -1.0], [1.0, 1.0]]]

    Source: Ulyanov, Vedaldi and Lempitsky, Instance Normalization, 2016.

    Args:
        x: of shape `(examples, *lengths, channels)`, or `(examples, channels, *lengths)` with the channels first.
        scale, offset: a number for each channel, or one for all.
        epsilon: a number that is added to the variance.

    Raises:
        TypeError: `x` is not of a real floating dtype.
        ValueError: there are fewer than three dimensions, or a parameter does not have a number for each channel.
    """
    x, spatial = _spatial_axes("instance_norm", x, layout, 3, scale)
    channels = (x.shape[-1 if layout == "channels_last" else 1],)
    scale, offset = (
        _channel_parameter(value, f"instance_norm: {name}", x, channels, len(spatial), layout)
        for name, value in (("scale", scale), ("offset", offset))
    )
    return normalize(x, scale, offset, axis=spatial, epsilon=epsilon)[0]


# -- divided by the root of the mean square


def _inverse_root(xp: Namespace, x: Array, axis: Axis, epsilon: float) -> Array:
    return 1 / xp.sqrt(xp.mean(x * x, axis=axis, keepdims=True) + epsilon)


def _rms_norm_kernel(
    xp: Namespace, x: Array, scale: Array | None = None, *, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-6
) -> Array:
    _check(xp, x, scale=scale)
    if _is_half(xp, x):
        own = not hasattr(scale, "dtype") or _is_half(xp, scale)
        x, scale = _in_single(xp, x, scale)
        out = _rms_norm_kernel(xp, x, scale, axis=axis, epsilon=epsilon)
        return _in_half(xp, out) if own else out
    out = x * _inverse_root(xp, x, axis, epsilon)
    return out if scale is None else out * scale


def _rms_norm_x(xp: Namespace, g: Cotangent, x: Array, scale: Array | None, axis: Axis, epsilon: float) -> Cotangent:
    if _is_half(xp, x):
        g, x, scale = _in_single(xp, g, x, scale)
        return _in_half(xp, _rms_norm_x(xp, g, x, scale, axis, epsilon))
    # With r = (mean(x**2) + epsilon)**(-1/2): dr = -r**3 * mean(x * dx).
    r = _inverse_root(xp, x, axis, epsilon)
    d = g if scale is None else g * scale
    return d * r - x * (r * r * r * xp.mean(d * x, axis=axis, keepdims=True))


def _rms_norm_scale(xp: Namespace, g: Cotangent, x: Array, scale_spec: Spec, axis: Axis, epsilon: float) -> Cotangent:
    if _is_half(xp, x):
        g, x = _in_single(xp, g, x)
        return xp.astype(_rms_norm_scale(xp, g, x, scale_spec, axis, epsilon), scale_spec.dtype)
    return sum_to(xp, g * x * _inverse_root(xp, x, axis, epsilon), scale_spec.shape)


def _rms_norm_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(3, 4))
    yield Sample(draw(3, 4), draw(4), epsilon=0.01)
    yield Sample(draw(2, 3, 4), draw(3, 1), axis=(0, -1))
    yield Sample(draw(4), 2.0)
    yield Sample(draw(0, 3), draw(3))
    yield Refused(ValueError, "scale must broadcast", draw(2, 3), draw(2))
    yield Refused(ValueError, "axis", draw(2, 3), axis=2)


@op(
    x=vjp(_rms_norm_x),
    scale=vjp(_rms_norm_scale),
    kernel=_rms_norm_kernel,
    samples=_rms_norm_samples,
    batch=batching.with_shared,
    complex_kernel=REFUSED,
)
def rms_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    /,
    *,
    axis: int | tuple[int, ...] = -1,
    epsilon: float = 1e-6,
) -> Tensor:
    """Divide `x` by `sqrt(mean(x**2) + epsilon)`, with the mean over `axis`, and multiply by `scale`.

    >>> import tape_core as tc
    >>> tc.rms_norm(tc.asarray([3.0, 4.0, 0.0, 0.0]), 5.0, epsilon=0.0).tolist()
    [6.0, 8.0, 0.0, 0.0]

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.

    Args:
        scale: an array that broadcasts to the shape of `x`, or a number.

    Raises:
        TypeError: `x` is not of a real floating dtype.
        ValueError: `scale` does not broadcast to the shape of `x`.
    """
