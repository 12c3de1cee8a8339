"""Strides, dilations and padding of sliding windows, read and checked once for all backends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

from tape_core.backends.axes import normal_axis
from tape_core.typing import Raw

Ints = int | Sequence[int]
Padding = Literal["valid", "same"] | int | Sequence[int | tuple[int, int]]
Layout = Literal["channels_last", "channels_first"]
Axes = int | tuple[int, ...] | None


class Windows(NamedTuple):
    """Windows along some axes, with one number for each axis: the answer of :func:`windows`."""

    sizes: tuple[int, ...]
    """The lengths, without padding."""
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]
    """The number of windows along each axis."""

    @property
    def padded(self) -> tuple[int, ...]:
        """The lengths with padding."""
        return tuple([n + lo + hi for n, (lo, hi) in zip(self.sizes, self.pads, strict=True)])

    @property
    def rest(self) -> tuple[int, ...]:
        """The number of padded elements after the last window: less than a stride."""
        return tuple(
            [
                n - (m - 1) * s - span(k, d)
                for n, m, k, s, d in zip(self.padded, self.counts, self.window, self.stride, self.dilation, strict=True)
            ]
        )

    def offsets(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Yield each place in a window, in row-major order, and the slices of the elements that windows have there."""
        for place in product(*map(range, self.window)):
            yield (
                place,
                tuple(
                    [
                        slice(k * d, k * d + (m - 1) * s + 1, s)
                        for k, m, s, d in zip(place, self.counts, self.stride, self.dilation, strict=True)
                    ]
                ),
            )

    def inside(self) -> tuple[slice, ...]:
        """Return the slices of the elements that are not padding."""
        return tuple([slice(lo, lo + n) for n, (lo, _) in zip(self.sizes, self.pads, strict=True)])


def span(window: int, dilation: int) -> int:
    """Return the length from a window's first element to its last, both included."""
    return (window - 1) * dilation + 1


def ints(value: Ints, n: int, name: str, least: int = 1) -> tuple[int, ...]:
    """A number for each of n axes, where one number stands for all.

    Raises:
        ValueError: it is no such number, or there are not n.
    """
    values: Any = (value,) * n if isinstance(value, int) else tuple(value) if hasattr(value, "__iter__") else ()
    if len(values) != n or not all(isinstance(v, int) and v >= least for v in values):
        raise ValueError(f"{name} must be an integer of at least {least}, or {n} of them, got {value!r}")
    return tuple(values)


def normal_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """The axes that windows slide along, all of them non-negative.

    Raises:
        AxisError: there is no such axis.
        ValueError: one is named twice.
    """
    axes = tuple(range(ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    places = tuple([normal_axis(a, ndim) for a in axes])
    if len(set(places)) < len(places):
        raise ValueError(f"axis must name different axes of {ndim}, got {axis!r}")
    return places


def windows(
    sizes: Sequence[int],
    window: Ints,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    *,
    name: str = "window",
) -> Windows:
    """Windows along axes of lengths `sizes`.

    `padding` is "valid" for none; "same" for as many windows as a stride of 1 would give, divided by the stride and
    rounded up, with the odd element of padding at the end, as in TensorFlow; or numbers for each axis, the same for
    both ends or a pair of them.

    Raises:
        ValueError: an argument is not what it must be, or a window does not fit.
    """
    n = len(sizes)
    window = ints(window, n, name)
    stride, dilation = ints(stride, n, "stride"), ints(dilation, n, "dilation")
    spans = tuple(map(span, window, dilation))
    pads = _pads(padding, tuple(sizes), spans, stride)
    counts = []
    for size, (lo, hi), reach, step in zip(sizes, pads, spans, stride, strict=True):
        if size + lo + hi < reach:
            raise ValueError(
                f"{name} {window} with dilation {dilation} does not fit into lengths {tuple(sizes)} with padding {pads}"
            )
        counts.append((size + lo + hi - reach) // step + 1)
    return Windows(tuple(sizes), window, stride, dilation, pads, tuple(counts))


def transposed_windows(
    counts: Sequence[int],
    window: Ints,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    output_padding: Ints = 0,
    *,
    name: str = "window",
) -> Windows:
    """The windows of which there are `counts`, over lengths that end `output_padding` after the last one.

    With padding "same" the lengths are `counts` times the stride.

    Raises:
        ValueError: an argument is not what it must be, or no length is left.
    """
    n = len(counts)
    window = ints(window, n, name)
    stride, dilation = ints(stride, n, "stride"), ints(dilation, n, "dilation")
    rest = ints(output_padding, n, "output_padding", least=0)
    if any(r >= s for r, s in zip(rest, stride, strict=True)):
        raise ValueError(f"output_padding must be less than the stride {stride}, got {output_padding!r}")
    spans = tuple(map(span, window, dilation))
    if padding == "same":
        if any(rest):
            raise ValueError("output_padding goes with numbers for padding; with 'same' the result's length is known")
        sizes = tuple([m * s for m, s in zip(counts, stride, strict=True)])
        return windows(sizes, window, stride, padding, dilation, name=name)
    pads = _pads(padding, (0,) * n, spans, stride)
    sizes = tuple(
        [
            (m - 1) * s + reach + r - lo - hi
            for m, s, reach, r, (lo, hi) in zip(counts, stride, spans, rest, pads, strict=True)
        ]
    )
    if any(size < 1 for size in sizes):
        raise ValueError(f"nothing is left: with padding {pads} the result would have lengths {sizes}")
    return Windows(sizes, window, stride, dilation, pads, tuple(counts))


def _pads(
    padding: Any, sizes: tuple[int, ...], spans: tuple[int, ...], stride: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """The padding before and after, for each axis."""
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding == "same":
        totals = [max((-(-n // s) - 1) * s + reach - n, 0) for n, reach, s in zip(sizes, spans, stride, strict=True)]
        return tuple([(total // 2, total - total // 2) for total in totals])
    values: Any = (padding,) * len(sizes) if isinstance(padding, int) else padding
    if isinstance(values, tuple | list) and len(values) == len(sizes):
        pairs = tuple([(v, v) if isinstance(v, int) else tuple(v) for v in values])
        if all(len(pair) == 2 and all(isinstance(v, int) and v >= 0 for v in pair) for pair in pairs):
            return pairs
    raise ValueError(
        f"padding must be 'valid', 'same', an integer of at least 0, or {len(sizes)} of them or of pairs of them, "
        f"got {padding!r}"
    )


def spatial_axes(x: Raw, layout: Layout, name: str = "x") -> tuple[int, ...]:
    """The axes between those of examples and channels: the last ones, or those before the channels.

    Raises:
        ValueError: the layout is unknown, or there are less than 1 or more than 3 such axes.
    """
    if layout not in ("channels_last", "channels_first"):
        raise ValueError(f"layout must be 'channels_last' or 'channels_first', got {layout!r}")
    shape = tuple(getattr(x, "shape", ()))
    if not 3 <= len(shape) <= 5:
        raise ValueError(f"{name} must have 3 to 5 dimensions: examples, channels and 1 to 3 more, got shape {shape}")
    return tuple(range(1, len(shape) - 1) if layout == "channels_last" else range(2, len(shape)))


def pool_windows(x: Raw, window: Ints, stride: Ints | None, padding: Padding, layout: Layout) -> Windows:
    """The windows of a pooling of `x`, of which only shape counts.

    Raises:
        ValueError: an argument is not what it must be, or a window would see nothing but padding.
    """
    sizes = [x.shape[a] for a in spatial_axes(x, layout)]
    seen = windows(sizes, window, window if stride is None else stride, padding)
    if 0 in seen.sizes or any(max(pair) >= k for pair, k in zip(seen.pads, seen.window, strict=True)):
        raise ValueError(
            f"each window must see an element: padding {seen.pads} must be less than the window {seen.window}, and the "
            f"lengths {seen.sizes} must not be 0"
        )
    return seen
