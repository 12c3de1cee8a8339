"""Convolution and its transposes: three ops, each of which is in the rules of the others.

With T(x, w, g) = sum of g[p, o] * w[k, c, o] * x[p * stride + k * dilation, c], `conv` is dT/dg, `conv_transpose`
is dT/dx and `conv_weight_vjp` is dT/dw. T is linear in each argument, so the derivatives of any one are the other two.

All kernels compute with the channels last; arrays with the channels first are permuted views. A convolution is one
matrix product, whose rows are the elements of the windows ("im2col").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tape_core.backends.checks import check_conv
from tape_core.backends.windows import Ints, Layout, Padding, Windows, spatial_axes, transposed_windows, windows
from tape_core.base.thresholds import WINDOWS_CHUNK_ELEMENTS, WINDOWS_COLUMNS_BELOW
from tape_core.engine.op import op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

# -- layouts


def to_last(xp: Namespace, x: Array, layout: Layout) -> Array:
    """A view with the channels last."""
    if layout == "channels_last":
        return x
    return xp.permute_dims(x, (0, *range(2, len(x.shape)), 1))


def from_last(xp: Namespace, x: Array, layout: Layout) -> Array:
    """The inverse of `to_last`."""
    if layout == "channels_last":
        return x
    n = len(x.shape)
    return xp.permute_dims(x, (0, n - 1, *range(1, n - 1)))


def _weights_to_last(xp: Namespace, w: Array, layout: Layout) -> Array:
    """A view of the shape (*kernel, in, out)."""
    return w if layout == "channels_last" else xp.permute_dims(w, (*range(2, len(w.shape)), 1, 0))


def _weights_from_last(xp: Namespace, w: Array, layout: Layout) -> Array:
    n = len(w.shape)
    return w if layout == "channels_last" else xp.permute_dims(w, (n - 1, n - 2, *range(n - 2)))


def _sizes(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The lengths of the spatial axes of `x`."""
    return tuple(shape[1:-1] if layout == "channels_last" else shape[2:])


def _kernel_sizes(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The lengths of the spatial axes of `w`."""
    return tuple(shape[:-2] if layout == "channels_last" else shape[2:])


# -- matrices


def _chunks(n: int, elements: int) -> list[slice]:
    """Slices of n examples, whose windows have `elements` elements, each of at most `WINDOWS_CHUNK_ELEMENTS`."""
    each = max(1, WINDOWS_CHUNK_ELEMENTS // max(1, elements // max(1, n)))
    return [slice(i, min(i + each, n)) for i in range(0, n, each)] if n > each else [slice(0, n)]


def _window_rows(xp: Namespace, x: Array, geometry: Windows, groups: int) -> Iterator[tuple[slice, Any]]:
    """Slices of the examples, and the elements of their windows: (groups, windows, elements of a window)."""
    n, channels, m = x.shape[0], x.shape[-1], len(geometry.window)
    each, size, count = channels // groups, math.prod(geometry.window), math.prod(geometry.counts)
    if geometry.padded != geometry.sizes:
        x = xp.pad(x, ((0, 0), *geometry.pads, (0, 0)))
    space, inside = range(1, m + 1), range(m + 2, 2 * m + 2)
    for piece in _chunks(n, n * count * size * channels):
        part = xp.sliding_windows(
            x[piece, ...], geometry.window, axis=tuple(space), stride=geometry.stride, dilation=geometry.dilation
        )
        rows = part.shape[0] * count
        # Copy in an order in which the innermost runs are long: along a window's row, or along the windows.
        if geometry.window[-1] * channels < WINDOWS_COLUMNS_BELOW:
            part = xp.reshape(xp.permute_dims(part, (*inside, m + 1, 0, *space)), (size, groups, each, rows))
            yield piece, xp.reshape(xp.permute_dims(part, (1, 0, 2, 3)), (groups, size * each, rows)).mT
        else:
            part = xp.reshape(xp.permute_dims(part, (0, *space, *inside, m + 1)), (rows, size, groups, each))
            yield piece, xp.reshape(xp.permute_dims(part, (2, 0, 1, 3)), (groups, rows, size * each))


def _split_groups(xp: Namespace, x: Array, groups: int) -> Array:
    """Reshape an array with the channels last to (groups, everything else, channels of a group)."""
    channels = x.shape[-1]
    shape = (math.prod(x.shape[:-1]), groups, channels // groups)
    return xp.permute_dims(xp.reshape(x, shape), (1, 0, 2))


def _concat(xp: Namespace, pieces: list[Array]) -> Array:
    return pieces[0] if len(pieces) == 1 else xp.concat(pieces, axis=0)


def _conv_kernel(
    xp: Namespace,
    x: Array,
    w: Array,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Array:
    check_conv(x, w, groups, layout)
    x, w = to_last(xp, x, layout), _weights_to_last(xp, w, layout)
    geometry = windows(x.shape[1:-1], w.shape[:-2], stride, padding, dilation, name="a kernel")
    size, each, out = math.prod(geometry.window), w.shape[-2], w.shape[-1]
    # The weights as matrices, one for each group: (groups, elements of a window, outputs of a group).
    w = xp.permute_dims(xp.reshape(w, (size, each, groups, out // groups)), (2, 0, 1, 3))
    w = xp.reshape(w, (groups, size * each, out // groups))
    pieces = []
    for piece, rows in _window_rows(xp, x, geometry, groups):
        product = xp.permute_dims(xp.matmul(rows, w), (1, 0, 2))
        pieces.append(xp.reshape(product, (piece.stop - piece.start, *geometry.counts, out)))
    return from_last(xp, _concat(xp, pieces), layout)


def _conv_transpose_kernel(
    xp: Namespace,
    x: Array,
    w: Array,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Array:
    check_conv(x, w, groups, layout, transposed=True)
    x, w = to_last(xp, x, layout), _weights_to_last(xp, w, layout)
    geometry = transposed_windows(
        x.shape[1:-1], w.shape[:-2], stride, padding, dilation, output_padding, name="a kernel"
    )
    m, size, each, out = len(geometry.window), math.prod(geometry.window), w.shape[-2], w.shape[-1]
    channels = each * groups
    # Multiply by the transposed weights, which gives the elements of each window; then add up the windows.
    w = xp.permute_dims(xp.reshape(w, (size, each, groups, out // groups)), (0, 2, 3, 1))
    space = tuple(range(1, m + 1))
    pieces = []
    for piece in _chunks(x.shape[0], x.shape[0] * math.prod(geometry.counts) * size * channels):
        n = piece.stop - piece.start
        rows = _split_groups(xp, x[piece, ...], groups)
        if each == 1:
            # With one channel in a group, one large product replaces many by a vector.
            flat = xp.reshape(xp.permute_dims(w, (1, 0, 3, 2)), (groups, size, out // groups))
            parts = xp.permute_dims(xp.matmul(flat, rows.mT), (1, 2, 0))
        else:
            parts = xp.permute_dims(xp.matmul(rows, w), (0, 2, 1, 3))
        parts = xp.reshape(parts, (*geometry.window, n, *geometry.counts, channels))
        parts = xp.permute_dims(parts, (*range(m, 2 * m + 2), *range(m)))
        whole = xp.add_windows(
            parts, (n, *geometry.padded, channels), axis=space, stride=geometry.stride, dilation=geometry.dilation
        )
        # What was padding for the convolution is cut off.
        pieces.append(whole[(slice(None), *geometry.inside(), slice(None))])
    return from_last(xp, _concat(xp, pieces), layout)


def _conv_weight_vjp_kernel(
    xp: Namespace,
    x: Array,
    cotangent: Cotangent,
    size: tuple[int, ...],
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Array:
    spatial_axes(x, layout)
    x, cotangent = to_last(xp, x, layout), to_last(xp, cotangent, layout)
    geometry = windows(x.shape[1:-1], size, stride, padding, dilation, name="a kernel")
    channels, out = x.shape[-1], cotangent.shape[-1]
    each = channels // groups
    # The same rows as in the convolution, transposed, times the cotangent; the sum is over examples and windows.
    total: Any = None
    for piece, rows in _window_rows(xp, x, geometry, groups):
        product = xp.matmul(rows.mT, _split_groups(xp, cotangent[piece, ...], groups))
        total = product if total is None else total + product
    count = math.prod(geometry.window)
    total = xp.permute_dims(xp.reshape(total, (groups, count, each, out // groups)), (1, 2, 0, 3))
    return _weights_from_last(xp, xp.reshape(total, (*geometry.window, each, out)), layout)


# -- rules


def _conv_x(
    xp: Namespace,
    g: Cotangent,
    w: Array,
    x_spec: Spec,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    groups: int,
    layout: Layout,
) -> Cotangent:
    # "same" and strides depend on the lengths of x, so the transpose gets the numbers that they stand for. Several
    # lengths of x have results of one length; `output_padding` says which of them it was.
    sizes, kernel = _sizes(x_spec.shape, layout), _kernel_sizes(tuple(w.shape), layout)
    geometry = windows(sizes, kernel, stride, padding, dilation)
    return xp.conv_transpose(
        g,
        w,
        stride=geometry.stride,
        padding=geometry.pads,
        output_padding=geometry.rest,
        dilation=geometry.dilation,
        groups=groups,
        layout=layout,
    )


def _conv_w(
    xp: Namespace,
    g: Cotangent,
    x: Array,
    w_spec: Spec,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    groups: int,
    layout: Layout,
) -> Cotangent:
    size = _kernel_sizes(w_spec.shape, layout)
    return xp.conv_weight_vjp(
        x, g, size, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout
    )


def _conv_parameters(
    counts: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Ints,
    padding: Padding,
    output_padding: Ints,
    dilation: Ints,
    groups: int,
    layout: Layout,
) -> dict[str, Any]:
    """The parameters of the `conv` of which a `conv_transpose` with these parameters is the transpose."""
    geometry = transposed_windows(counts, kernel, stride, padding, dilation, output_padding)
    return {
        "stride": geometry.stride,
        "padding": geometry.pads,
        "dilation": geometry.dilation,
        "groups": groups,
        "layout": layout,
    }


def _conv_transpose_x(
    xp: Namespace,
    g: Cotangent,
    w: Array,
    x_spec: Spec,
    stride: Ints,
    padding: Padding,
    output_padding: Ints,
    dilation: Ints,
    groups: int,
    layout: Layout,
) -> Cotangent:
    counts, kernel = _sizes(x_spec.shape, layout), _kernel_sizes(tuple(w.shape), layout)
    return xp.conv(g, w, **_conv_parameters(counts, kernel, stride, padding, output_padding, dilation, groups, layout))


def _conv_transpose_w(
    xp: Namespace,
    g: Cotangent,
    x: Array,
    w_spec: Spec,
    stride: Ints,
    padding: Padding,
    output_padding: Ints,
    dilation: Ints,
    groups: int,
    layout: Layout,
) -> Cotangent:
    counts, kernel = _sizes(tuple(x.shape), layout), _kernel_sizes(w_spec.shape, layout)
    return xp.conv_weight_vjp(
        g, x, kernel, **_conv_parameters(counts, kernel, stride, padding, output_padding, dilation, groups, layout)
    )


# -- ops

# The lengths of x and of the kernel, and parameters.
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((5,), (3,), {}),
    ((6,), (2,), {"stride": 2, "padding": ((0, 1),), "dilation": 3}),
    ((5, 4), (3, 2), {"padding": "same"}),
    ((5, 6), (2, 3), {"stride": (2, 3), "padding": (1, (2, 0)), "dilation": (2, 1)}),
    ((6, 5), (3, 3), {"stride": 2, "padding": "same"}),
    ((3, 2, 4), (2, 1, 3), {"padding": 1, "stride": (1, 2, 1)}),
)


def _cases(draw: Draw, *, transposed: bool) -> Iterator[tuple[Any, Any, dict[str, Any], Windows]]:
    """Arguments `x` and `w`, parameters, and the geometry of a convolution, or of a transposed one."""
    for sizes, kernel, parameters in _CASES:
        for groups, layout in ((1, "channels_last"), (2, "channels_first")):
            geometry = windows(sizes, kernel, **parameters)
            # The transposed op starts from the lengths that the convolution ends with.
            given = {**parameters, "groups": groups, "layout": layout}
            if transposed:
                given |= {"output_padding": geometry.rest, "padding": geometry.pads}
            outside, channels = (geometry.counts, 2 * groups) if transposed else (sizes, 2 * groups)
            last = layout == "channels_last"
            x = draw(2, *outside, channels) if last else draw(2, channels, *outside)
            w = draw(*kernel, 2, 2 * groups) if last else draw(2 * groups, 2, *kernel)
            yield x, w, given, geometry


def _conv_samples(draw: Draw) -> Iterator[Sample]:
    for x, w, given, _ in _cases(draw, transposed=False):
        yield Sample(x, w, **given)
    yield Sample(draw.complex(1, 4, 1), draw.complex(2, 1, 2))
    yield Sample(draw(0, 4, 2), draw(2, 2, 3))
    yield Sample(draw(2, 4, 4, 3), draw(2, 2, 1, 6), groups=3)
    yield Refused(ValueError, "x must have 3 to 5 dimensions", draw(4, 2), draw(2, 2))
    yield Refused(ValueError, "w must have as many", draw(1, 4, 2), draw(2, 2))
    yield Refused(ValueError, "x has 3 channels", draw(1, 4, 3), draw(2, 2, 4))
    yield Refused(ValueError, "groups must", draw(1, 4, 4), draw(2, 2, 3), groups=2)
    yield Refused(ValueError, "does not fit", draw(1, 4, 2), draw(5, 2, 3))
    yield Refused(ValueError, "padding must", draw(1, 4, 2), draw(2, 2, 3), padding="full")
    yield Refused(ValueError, "stride must", draw(1, 4, 2), draw(2, 2, 3), stride=0)
    yield Refused(ValueError, "layout must", draw(1, 4, 2), draw(2, 2, 3), layout="NWC")


@op(
    x=vjp(_conv_x),
    w=vjp(_conv_w),
    kernel=_conv_kernel,
    samples=_conv_samples,
    batch=batching.with_one_kernel,
    multilinear=True,
)
def conv(
    x: ArrayLike,
    w: ArrayLike,
    /,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Tensor:
    """The convolution of neural networks (a cross-correlation: the kernel is not mirrored) over 1, 2 or 3 axes.

    >>> import tape_core as tc
    >>> x, w = tc.ones((1, 5, 5, 2)), tc.ones((3, 3, 2, 4))
    >>> tc.conv(x, w).shape, tc.conv(x, w, stride=2, padding="same").shape
    ((1, 3, 3, 4), (1, 3, 3, 4))
    >>> x, w = tc.ones((1, 2, 5, 5)), tc.ones((4, 2, 3, 3))
    >>> tc.conv(x, w, padding=1, layout="channels_first").shape
    (1, 4, 5, 5)

    Args:
        x: of shape `(examples, *lengths, in)` with the channels last, or `(examples, in, *lengths)` with the
            channels first.
        w: of shape `(*kernel, in / groups, out)` with the channels last, or `(out, in / groups, *kernel)` with the
            channels first.
        stride: the distance by which the kernel moves; one number, or one for each axis.
        padding: the zeros at both ends: "valid" for none; "same" for as many as make the lengths of the result those of
            `x` divided by the stride and rounded up, with an odd zero at the end; numbers; or pairs (before, after).
        dilation: the distance from an element of the kernel to the next.
        groups: the number of convolutions side by side, each on its share of the channels.
        layout: "channels_last", as in TensorFlow, or "channels_first", as in PyTorch. The kernels compute with the
            channels last; a result with the channels first is a view of theirs.

    Raises:
        ValueError: shapes do not fit, the kernel is longer than `x`, or a parameter is out of its range.
    """


def _conv_transpose_samples(draw: Draw) -> Iterator[Sample]:
    for x, w, given, _ in _cases(draw, transposed=True):
        yield Sample(x, w, **given)
    yield Sample(draw(2, 3, 2), draw(3, 2, 2), padding="same", stride=2)
    yield Sample(draw.complex(1, 4, 2), draw.complex(2, 1, 2))
    yield Sample(draw(2, 2, 2, 6), draw(2, 3, 1, 6), groups=3, stride=2)
    yield Refused(ValueError, "x has 3 channels", draw(1, 4, 3), draw(2, 2, 4))
    yield Refused(ValueError, "output_padding must be less", draw(1, 4, 2), draw(2, 2, 2), output_padding=1)
    yield Refused(
        ValueError, "output_padding goes", draw(1, 4, 2), draw(2, 2, 2), padding="same", stride=2, output_padding=1
    )
    yield Refused(ValueError, "nothing is left", draw(1, 1, 2), draw(2, 2, 2), padding=1)


@op(
    x=vjp(_conv_transpose_x),
    w=vjp(_conv_transpose_w),
    kernel=_conv_transpose_kernel,
    samples=_conv_transpose_samples,
    batch=batching.with_one_kernel,
    multilinear=True,
)
def conv_transpose(
    x: ArrayLike,
    w: ArrayLike,
    /,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Tensor:
    """The transpose of :func:`conv` with the same `w` and parameters: it maps arrays like its result to those like `x`.

    >>> import tape_core as tc
    >>> x, w = tc.ones((1, 3, 3, 4)), tc.ones((3, 3, 2, 4))
    >>> tc.conv_transpose(x, w).shape, tc.conv_transpose(x, w, stride=2, padding="same").shape
    ((1, 5, 5, 2), (1, 6, 6, 2))

    Args:
        x: an array like the result of :func:`conv`; it has the channels that are `out` in `w`.
        w: as for :func:`conv`. The result has the channels that are `in` there.
        stride, dilation, groups, layout: as for :func:`conv`.
        padding: as for :func:`conv`; the elements that it pads are cut off here. With "same" the lengths are those of
            `x` times the stride.
        output_padding: the length to add at the end, less than the stride. :func:`conv` gives the same lengths for
            that many different ones, of which this chooses one.

    Raises:
        ValueError: shapes do not fit, the result has no elements, or a parameter is out of its range.
    """


def _conv_weight_vjp_samples(draw: Draw) -> Iterator[Sample]:
    for x, w, given, geometry in _cases(draw, transposed=False):
        last = given["layout"] == "channels_last"
        out = w.shape[-1] if last else w.shape[0]
        cotangent = draw(2, *geometry.counts, out) if last else draw(2, out, *geometry.counts)
        yield Sample(x, cotangent, geometry.window, **given)
    yield Sample(draw.complex(1, 4, 1), draw.complex(1, 3, 2), (2,))


def _conv_weight_vjp_x(
    xp: Namespace,
    g: Cotangent,
    cotangent: Cotangent,
    x_spec: Spec,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    groups: int,
    layout: Layout,
) -> Cotangent:
    return _conv_x(xp, cotangent, g, x_spec, stride, padding, dilation, groups, layout)


@op(
    x=vjp(_conv_weight_vjp_x),
    cotangent=vjp(
        lambda xp, g, x, stride, padding, dilation, groups, layout: xp.conv(
            x, g, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout
        )
    ),
    kernel=_conv_weight_vjp_kernel,
    samples=_conv_weight_vjp_samples,
    multilinear=True,
)
def conv_weight_vjp(
    x: ArrayLike,
    cotangent: ArrayLike,
    /,
    size: tuple[int, ...],
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Tensor:
    """The cotangent of `w` of :func:`conv`, with a kernel of lengths `size`; an op, so that a backend can fuse it."""
