"""Filters of images: correlation and convolution, Gaussian and uniform filters, derivatives, extremes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tape_core as tc
from tape_core.scipy.arguments import choose, constant, floats, refuse
from tape_core.typing import ArrayLike

MODES: dict[str, Any] = {
    "reflect": "symmetric",
    "grid-mirror": "symmetric",
    "constant": "constant",
    "grid-constant": "constant",
    "nearest": "edge",
    "mirror": "reflect",
    "wrap": "wrap",
    "grid-wrap": "wrap",
}
"""SciPy's names of what lies around an image, and those of `tape_core.pad`."""


def read(function: str, input: ArrayLike, output: object = None) -> tc.Tensor:
    """The image, after the argument that no function here has a use for."""
    refuse(f"scipy.ndimage.{function}", output=(output, (None,)))
    return floats(f"scipy.ndimage.{function}", input=input)[0]


def _operands(function: str, input: ArrayLike, weights: ArrayLike, output: object) -> list[tc.Tensor]:
    """The image and the weights."""
    return floats(f"scipy.ndimage.{function}", input=read(function, input, output), weights=weights)


def _extended(function: str, x: tc.Tensor, widths: Sequence[tuple[int, int]], mode: str, cval: float) -> tc.Tensor:
    choose(f"scipy.ndimage.{function}", "mode", mode, tuple(MODES))
    kind = MODES[mode]
    if kind == "constant":
        return tc.pad(x, tuple(widths), constant_values=cval)
    return tc.pad(x, tuple(widths), kind)


def _width(function: str, size: int, origin: int) -> tuple[int, int]:
    before = size // 2 + origin
    if not 0 <= before < size:
        raise ValueError(f"scipy.ndimage.{function}: origin must keep the centre inside of the {size} weights")
    return before, size - 1 - before


def _along(
    function: str, x: tc.Tensor, weights: tc.Tensor, axis: int, mode: str, cval: float, origin: int = 0
) -> tc.Tensor:
    if weights.ndim != 1 or weights.shape[0] == 0:
        raise ValueError(f"scipy.ndimage.{function}: weights must be a vector, got shape {weights.shape}")
    size, axis = weights.shape[0], axis % x.ndim
    widths = [_width(function, size, origin) if k == axis else (0, 0) for k in range(x.ndim)]
    return tc.sliding_windows(_extended(function, x, widths, mode, cval), size, axis=axis) @ weights


def correlate1d(
    input: ArrayLike,
    weights: ArrayLike,
    axis: int = -1,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> tc.Tensor:
    """The correlation of an image with a vector of weights along one axis.

    >>> correlate1d(tc.asarray([1.0, 2.0, 4.0]), tc.asarray([1.0, 0.0, -1.0])).tolist()
    [-1.0, -3.0, -2.0]

    Args:
        mode: what lies around the image: "reflect", "constant" with `cval`, "nearest", "mirror" or "wrap".
        origin: by how much the weights are moved to the left.

    Raises:
        ValueError: an argument is out of its range.
        NotImplementedError: `output` is given.
    """
    x, w = _operands("correlate1d", input, weights, output)
    return _along("correlate1d", x, w, axis, mode, cval, origin)


def convolve1d(
    input: ArrayLike,
    weights: ArrayLike,
    axis: int = -1,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> tc.Tensor:
    """The convolution of an image with a vector of weights along one axis; see :func:`correlate1d`.

    >>> convolve1d(tc.asarray([1.0, 2.0, 4.0]), tc.asarray([1.0, 0.0, -1.0])).tolist()
    [1.0, 3.0, 2.0]
    """
    x, w = _operands("convolve1d", input, weights, output)
    even = w.shape[0] % 2 == 0 if w.ndim else False
    return _along("convolve1d", x, tc.flip(w), axis, mode, cval, -origin - even)


def _all_axes(
    function: str, x: tc.Tensor, w: tc.Tensor, mode: str, cval: float, origin: int | Sequence[int], mirrored: bool
) -> tc.Tensor:
    if w.ndim != x.ndim or 0 in w.shape:
        raise ValueError(
            f"scipy.ndimage.{function}: weights must have as many dimensions as input; got {w.shape} and {x.shape}"
        )
    n = x.ndim
    origins = [origin] * n if isinstance(origin, int) else list(origin)
    if mirrored:
        w = tc.flip(w)
        origins = [-o - (size % 2 == 0) for o, size in zip(origins, w.shape, strict=True)]
    widths = [_width(function, size, o) for size, o in zip(w.shape, origins, strict=True)]
    windows = tc.sliding_windows(_extended(function, x, widths, mode, cval), w.shape)
    return tc.tensordot(windows, w, axes=(tuple(range(n, 2 * n)), tuple(range(n))))


def correlate(
    input: ArrayLike,
    weights: ArrayLike,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: None = None,
) -> tc.Tensor:
    """The correlation of an image with weights of as many dimensions; see :func:`correlate1d`.

    >>> correlate(tc.ones((3, 3)), tc.ones((3, 3)), mode="constant").tolist()
    [[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]

    Raises:
        NotImplementedError: `output` or `axes` is given.
    """
    refuse("scipy.ndimage.correlate", axes=(axes, (None,)))
    x, w = _operands("correlate", input, weights, output)
    return _all_axes("correlate", x, w, mode, cval, origin, False)


def convolve(
    input: ArrayLike,
    weights: ArrayLike,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: None = None,
) -> tc.Tensor:
    """The convolution of an image with weights of as many dimensions; see :func:`correlate1d`.

    >>> convolve(tc.ones((3, 3)), tc.ones((3, 3)), mode="constant").tolist()
    [[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]

    Raises:
        NotImplementedError: `output` or `axes` is given.
    """
    refuse("scipy.ndimage.convolve", axes=(axes, (None,)))
    x, w = _operands("convolve", input, weights, output)
    return _all_axes("convolve", x, w, mode, cval, origin, True)


def _gaussian(x: tc.Tensor, sigma: Any, order: int, radius: int) -> tc.Tensor:
    """The weights of a Gaussian filter, or of its derivative."""
    sigma = sigma if isinstance(sigma, tc.Tensor) else float(sigma)
    places = constant(x, list(range(-radius, radius + 1)))
    variance = sigma * sigma
    weights = tc.exp(-0.5 / variance * places * places)
    weights = weights / tc.sum(weights)
    # Each derivative multiplies by a polynomial: (q f)' = (q' - q x / variance) f.
    q: list[Any] = [1.0]
    for _ in range(order):
        longer = [*q, 0.0, 0.0]
        q = [(k + 1) * longer[k + 1] - (longer[k - 1] / variance if k else 0.0) for k in range(len(q) + 1)]
    total: Any = 0.0
    for coefficient in reversed(q):
        total = total * places + coefficient
    return tc.flip(weights * total)


def _gaussian_along(
    function: str,
    x: tc.Tensor,
    sigma: Any,
    axis: int,
    order: int,
    mode: str,
    cval: float,
    truncate: float,
    radius: int | None,
) -> tc.Tensor:
    if radius is None:
        radius = int(truncate * float(sigma) + 0.5)
    if order < 0 or radius < 0:
        raise ValueError(f"scipy.ndimage.{function}: order and radius must not be negative; got {order} and {radius}")
    return _along(function, x, _gaussian(x, sigma, order, radius), axis, mode, cval)


def gaussian_filter1d(
    input: ArrayLike,
    sigma: ArrayLike,
    axis: int = -1,
    order: int = 0,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | None = None,
) -> tc.Tensor:
    """A Gaussian filter along one axis; it is differentiable by `sigma`, too, with the radius kept.

    >>> [f"{v:.4f}" for v in gaussian_filter1d(tc.asarray([0.0, 0.0, 1.0, 0.0, 0.0]), 1.0, radius=1)]
    ['0.0000', '0.2741', '0.4519', '0.2741', '0.0000']

    Args:
        sigma: the standard deviation, a number. In a trace or vmap its value is not known: give `radius`.
        order: which derivative of the Gaussian.
        truncate: the filter ends there, in standard deviations.
        radius: where it ends, in elements.
        axis, output, mode, cval: as for :func:`correlate1d`.

    Raises:
        ValueError: an argument is out of its range.
    """
    x = read("gaussian_filter1d", input, output)
    return _gaussian_along("gaussian_filter1d", x, sigma, axis, order, mode, cval, truncate, radius)


def _each(x: tc.Tensor, axes: int | Sequence[int] | None, *values: Any) -> list[tuple[Any, ...]]:
    """Axes, with the values for each; one value is for all."""
    along = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    places = [k % x.ndim for k in along]
    rows = []
    for value in values:
        several = isinstance(value, list | tuple) or (hasattr(value, "shape") and len(value.shape) == 1)
        rows.append([value[k] for k in range(len(places))] if several else [value] * len(places))
    return list(zip(places, *rows, strict=True))


def gaussian_filter(
    input: ArrayLike,
    sigma: Any,
    order: int | Sequence[int] = 0,
    output: None = None,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
) -> tc.Tensor:
    """A Gaussian filter along all axes, or `axes`; the arguments are those of :func:`gaussian_filter1d`, for each.

    >>> f"{gaussian_filter(tc.eye(3), 1.0)[1, 1]:.4f}"
    '0.3417'
    """
    x = read("gaussian_filter", input, output)
    for axis, s, o, m, r in _each(x, axes, sigma, order, mode, radius):
        if isinstance(s, tc.Tensor) or s > 1e-15:
            x = _gaussian_along("gaussian_filter", x, s, axis, o, m, cval, truncate, r)
    return x


def uniform_filter1d(
    input: ArrayLike,
    size: int,
    axis: int = -1,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> tc.Tensor:
    """The mean of `size` elements along one axis.

    >>> uniform_filter1d(tc.asarray([0.0, 3.0, 0.0]), 3).tolist()
    [1.0, 1.0, 1.0]

    Raises:
        ValueError: an argument is out of its range.
    """
    x = read("uniform_filter1d", input, output)
    if size < 1:
        raise ValueError(f"scipy.ndimage.uniform_filter1d: size must be positive; got {size}")
    return _along("uniform_filter1d", x, constant(x, [1.0 / size] * size), axis, mode, cval, origin)


def uniform_filter(
    input: ArrayLike,
    size: int | Sequence[int] = 3,
    output: None = None,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: int | Sequence[int] | None = None,
) -> tc.Tensor:
    """The mean of boxes of a size.

    >>> uniform_filter(tc.eye(2), 2, mode="nearest").tolist()
    [[1.0, 0.5], [0.5, 0.5]]
    """
    x = read("uniform_filter", input, output)
    for axis, n, m, o in _each(x, axes, size, mode, origin):
        x = uniform_filter1d(x, int(n), axis, None, m, cval, o)
    return x


def laplace(
    input: ArrayLike, output: None = None, mode: str = "reflect", cval: float = 0.0, *, axes: Any = None
) -> tc.Tensor:
    """The sum of second differences.

    >>> laplace(tc.asarray([0.0, 1.0, 4.0, 9.0])).tolist()
    [1.0, 2.0, 2.0, -5.0]
    """
    x = read("laplace", input, output)
    w = constant(x, [1.0, -2.0, 1.0])
    parts = [_along("laplace", x, w, axis, mode, cval) for (axis,) in _each(x, axes)]
    return tc.sum(tc.stack(parts), axis=0)


def _derivative(function: str, x: tc.Tensor, axis: int, mode: str, cval: float, across: list[float]) -> tc.Tensor:
    found = _along(function, x, constant(x, [-1.0, 0.0, 1.0]), axis, mode, cval)
    for k in range(x.ndim):
        if k != axis % x.ndim:
            found = _along(function, found, constant(x, across), k, mode, cval)
    return found


def sobel(input: ArrayLike, axis: int = -1, output: None = None, mode: str = "reflect", cval: float = 0.0) -> tc.Tensor:
    """Differences along an axis, with the weights 1, 2, 1 across.

    >>> sobel(tc.asarray([0.0, 1.0, 4.0])).tolist()
    [1.0, 4.0, 3.0]
    """
    return _derivative("sobel", read("sobel", input, output), axis, mode, cval, [1.0, 2.0, 1.0])


def prewitt(
    input: ArrayLike, axis: int = -1, output: None = None, mode: str = "reflect", cval: float = 0.0
) -> tc.Tensor:
    """Differences along an axis, with the weights 1, 1, 1 across.

    >>> prewitt(tc.asarray([0.0, 1.0, 4.0])).tolist()
    [1.0, 4.0, 3.0]
    """
    return _derivative("prewitt", read("prewitt", input, output), axis, mode, cval, [1.0, 1.0, 1.0])


def gaussian_laplace(
    input: ArrayLike,
    sigma: Any,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    *,
    axes: Any = None,
    **kwargs: Any,
) -> tc.Tensor:
    """The sum of second derivatives by Gaussian filters; `kwargs` go to :func:`gaussian_filter`.

    >>> gaussian_laplace(tc.ones(5), 1.0).shape
    (5,)
    """
    x = read("gaussian_laplace", input, output)
    return tc.sum(tc.stack(_derivatives(x, sigma, 2, mode, cval, axes, kwargs)), axis=0)


def gaussian_gradient_magnitude(
    input: ArrayLike,
    sigma: Any,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    *,
    axes: Any = None,
    **kwargs: Any,
) -> tc.Tensor:
    """The length of the gradient by Gaussian filters; `kwargs` go to :func:`gaussian_filter`.

    >>> gaussian_gradient_magnitude(tc.eye(5), 1.0).shape
    (5, 5)
    """
    x = read("gaussian_gradient_magnitude", input, output)
    parts = _derivatives(x, sigma, 1, mode, cval, axes, kwargs)
    return tc.sqrt(tc.sum(tc.square(tc.stack(parts)), axis=0))


def _derivatives(
    x: tc.Tensor, sigma: Any, order: int, mode: str, cval: float, axes: Any, options: dict[str, Any]
) -> list[tc.Tensor]:
    places = [axis for (axis,) in _each(x, axes)]
    return [
        gaussian_filter(x, sigma, [order * (k == one) for k in places], None, mode, cval, axes=places, **options)
        for one in places
    ]


def _extreme(
    function: str,
    input: ArrayLike,
    size: Any,
    footprint: Any,
    output: None,
    mode: str,
    cval: float,
    origin: int | Sequence[int],
    axes: None,
) -> tc.Tensor:
    name = f"scipy.ndimage.{function}"
    x = read(function, input, output)
    refuse(name, axes=(axes, (None,)))
    n, most = x.ndim, function == "maximum_filter"
    shape = size if size is not None or footprint is None else tc.asarray(footprint).shape
    if shape is None:
        raise ValueError(f"{name}: size or footprint must be given")
    sizes = [shape] * n if isinstance(shape, int) else [int(k) for k in shape]
    origins = [origin] * n if isinstance(origin, int) else list(origin)
    widths = [_width(function, k, o) for k, o in zip(sizes, origins, strict=True)]
    windows = tc.sliding_windows(_extended(function, x, widths, mode, cval), tuple(sizes))
    if footprint is not None:
        inside = tc.asarray(footprint, dtype=tc.bool, backend=x.backend.root, device=x.device)
        windows = tc.where(inside, windows, -math.inf if most else math.inf)
    return (tc.max if most else tc.min)(windows, axis=tuple(range(n, 2 * n)))


def maximum_filter(
    input: ArrayLike,
    size: int | Sequence[int] | None = None,
    footprint: Any = None,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: None = None,
) -> tc.Tensor:
    """The largest element around each one, in a box or where `footprint` is true.

    >>> maximum_filter(tc.asarray([1.0, 3.0, 2.0, 0.0]), 3).tolist()
    [3.0, 3.0, 3.0, 2.0]

    Raises:
        ValueError: neither `size` nor `footprint` is given.
        NotImplementedError: `output` or `axes` is given.
    """
    return _extreme("maximum_filter", input, size, footprint, output, mode, cval, origin, axes)


def minimum_filter(
    input: ArrayLike,
    size: int | Sequence[int] | None = None,
    footprint: Any = None,
    output: None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: None = None,
) -> tc.Tensor:
    """The smallest element around each one; see :func:`maximum_filter`.

    >>> minimum_filter(tc.asarray([1.0, 3.0, 2.0, 0.0]), 3).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    return _extreme("minimum_filter", input, size, footprint, output, mode, cval, origin, axes)
