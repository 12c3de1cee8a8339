"""Sliding windows over an array, and the sum of overlapping windows, which is the transpose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.backends.windows import Axes, Ints, Windows, normal_axes, windows
from tape_core.engine.levels import BatchedArray
from tape_core.engine.op import linear, transpose
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.modes.batching import Call
from tape_core.typing import Array, ArrayLike, Namespace


def _window_geometry(
    shape: tuple[int, ...], axes: tuple[int, ...], window: Ints, stride: Ints, dilation: Ints
) -> Windows:
    return windows([shape[a] for a in axes], window, stride, "valid", dilation)


def _sliding_kernel(
    xp: Namespace, x: Array, window: Ints, *, axis: Axes = None, stride: Ints = 1, dilation: Ints = 1
) -> Array:
    ndim = len(x.shape)
    axes = normal_axes(axis, ndim)
    geometry = _window_geometry(x.shape, axes, window, stride, dilation)
    for a, m, k, s, d in zip(axes, geometry.counts, geometry.window, geometry.stride, geometry.dilation, strict=True):
        starts, inside = xp.arange_beside(x, m) * s, xp.arange_beside(x, k) * d
        x = xp.take(x, xp.reshape(starts[:, None] + inside, (m * k,)), axis=a)
    # Each windowed axis is now (number of the window, place in it); move the places to the end, in the order of `axes`.
    shape: list[int] = []
    outer, inner = [], {}
    for a in range(ndim):
        outer.append(len(shape))
        if a in axes:
            j = axes.index(a)
            inner[j] = len(shape) + 1
            shape += [geometry.counts[j], geometry.window[j]]
        else:
            shape.append(x.shape[a])
    return xp.permute_dims(xp.reshape(x, tuple(shape)), (*outer, *(inner[j] for j in range(len(axes)))))


def _add_kernel(
    xp: Namespace, parts: Array, shape: tuple[int, ...], *, axis: Axes = None, stride: Ints = 1, dilation: Ints = 1
) -> Array:
    axes = normal_axes(axis, len(shape))
    window = tuple(parts.shape[len(shape) :])
    if len(window) != len(axes):
        raise ValueError(
            f"parts must have the {len(shape)} axes of shape {shape} and one for each of {len(axes)} windows, "
            f"got shape {tuple(parts.shape)}"
        )
    geometry = _window_geometry(shape, axes, window, stride, dilation)
    expected = list(shape)
    for a, m in zip(axes, geometry.counts, strict=True):
        expected[a] = m
    if tuple(parts.shape) != (*expected, *window):
        raise ValueError(
            f"parts must have shape {(*expected, *window)} for windows {window} over shape {shape}, "
            f"got {tuple(parts.shape)}"
        )
    # Windows overlap, but the elements at one place of all windows do not: one strided addition for each place.
    out = xp.zeros_beside(parts, shape, dtype=parts.dtype)
    for place, slices in geometry.offsets():
        key: list[Any] = [slice(None)] * len(shape)
        for a, part in zip(axes, slices, strict=True):
            key[a] = part
        out = xp.put(out, tuple(key), out[tuple(key)] + parts[(..., *place)])
    return out


def _sliding_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(5), 3)
    yield Sample(draw(5, 4), (3, 2), stride=(2, 1))
    yield Sample(draw(2, 7, 3), 2, axis=1, stride=2, dilation=3)
    yield Sample(draw(4, 2, 5), (2, 3), axis=(-1, 0), stride=2)
    yield Sample(draw.complex(4), 2)
    yield Sample(draw(0, 3), 2, axis=1)
    yield Refused(ValueError, "does not fit", draw(3), 4)
    yield Refused(ValueError, "axis", draw(3), 2, axis=1)
    yield Refused(ValueError, "window must be", draw(3, 3), 0)
    yield Refused(ValueError, "stride must be", draw(3, 3), 2, stride=(1, 1, 1))


def _add_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(3, 3), (5,))
    yield Sample(draw(2, 3, 3, 2), (6, 4), stride=(2, 1))
    yield Sample(draw(2, 2, 3, 2), (2, 7, 3), axis=1, stride=2, dilation=3)
    yield Sample(draw.complex(3, 2), (4,))
    yield Refused(ValueError, "parts must have shape", draw(3, 3), (6,))
    yield Refused(ValueError, "parts must have the 2 axes", draw(3, 3), (5, 5))


@linear(
    x=transpose(
        lambda xp, g, x_spec, axis, stride, dilation: xp.add_windows(
            g, x_spec.shape, axis=axis, stride=stride, dilation=dilation
        )
    ),
    kernel=_sliding_kernel,
    samples=_sliding_samples,
    batch=batching.along,
    keeps_integers=True,
)
def sliding_windows(
    x: ArrayLike, /, window: Ints, *, axis: Axes = None, stride: Ints = 1, dilation: Ints = 1
) -> Tensor:
    """All windows of a length, as in `numpy.lib.stride_tricks.sliding_window_view`; elements lie along new last axes.

    >>> import tape_core as tc
    >>> tc.sliding_windows(tc.arange(5), 3).tolist()
    [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    >>> tc.sliding_windows(tc.arange(6), 2, stride=2, dilation=3).tolist()
    [[0, 3], [2, 5]]
    >>> tc.sliding_windows(tc.ones((8, 9)), (2, 3)).shape
    (7, 7, 2, 3)

    Args:
        window: the length along each axis.
        axis: the axes along which windows slide (all axes by default); the others stay.
        stride: the distance from a window to the next.
        dilation: the distance from an element of a window to the next.

    Raises:
        ValueError: a window does not fit, or an argument is out of its range.
    """


def _add_batch(call: Call, parts: BatchedArray) -> Any:
    shape = tuple(call.params["shape"])
    axis = batching.from_end(call.params["axis"], len(shape))
    return call(parts.value, shape=(batching.size_of([parts]), *shape), axis=axis)


@linear(
    parts=transpose(
        lambda xp, g, parts_spec, shape, axis, stride, dilation: xp.sliding_windows(
            g, parts_spec.shape[len(shape) :], axis=axis, stride=stride, dilation=dilation
        )
    ),
    kernel=_add_kernel,
    axes_of=None,  # they are those of `shape`
    samples=_add_samples,
    batch=_add_batch,
    keeps_integers=True,
)
def add_windows(
    parts: ArrayLike, /, shape: tuple[int, ...], *, axis: Axes = None, stride: Ints = 1, dilation: Ints = 1
) -> Tensor:
    """The transpose of :func:`sliding_windows`: add the elements of windows up to an array of `shape`.

    >>> import tape_core as tc
    >>> tc.add_windows(tc.ones((3, 3)), (5,)).tolist()
    [1.0, 2.0, 3.0, 2.0, 1.0]
    """
