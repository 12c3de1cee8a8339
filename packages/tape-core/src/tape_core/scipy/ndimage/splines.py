"""Images between their elements: `map_coordinates` and what is made of it, by splines of order 0 to 5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import tape_core as tc
from tape_core.scipy.arguments import choose, constant, floats, refuse
from tape_core.scipy.ndimage.filters import MODES, read
from tape_core.typing import ArrayLike

_AT_KNOTS = {
    2: (6 / 8, 1 / 8),
    3: (4 / 6, 1 / 6),
    4: (230 / 384, 76 / 384, 1 / 384),
    5: (66 / 120, 26 / 120, 1 / 120),
}
"""By order, the values of a B-spline at its centre and at the integers beside it."""

_PADDING = 12
"""By how many elements SciPy extends an image before it finds coefficients, where splines know no such boundary."""


def _folded(index: tc.Tensor, n: int, mode: str) -> tc.Tensor:
    """Numbers of elements outside of an image as numbers of those inside, as a boundary says."""
    if mode == "grid-wrap":
        return tc.remainder(index, n)
    if mode in ("reflect", "grid-mirror"):
        around = tc.remainder(index, 2 * n)
        return tc.where(around < n, around, 2 * n - 1 - around)
    if mode in ("mirror", "constant", "wrap") and n > 1:
        around = tc.remainder(index, 2 * n - 2)
        return tc.where(around < n, around, 2 * n - 2 - around)
    return tc.clip(index, 0, n - 1)


def _numbers(x: tc.Tensor, n: int) -> tc.Tensor:
    return tc.arange(n, backend=x.backend.root, device=x.device)


def _coefficients(x: tc.Tensor, order: int, axis: int, mode: str) -> tc.Tensor:
    """The coefficients of the spline that has the values `x` at the integers along an axis."""
    n = x.shape[axis]
    if n == 1:
        return x
    kind = {"grid-wrap": "grid-wrap", "nearest": "reflect", "reflect": "reflect", "grid-mirror": "reflect"}
    rows = _numbers(x, n)
    whole: Any = 0.0
    for far in range(-(order // 2), order // 2 + 1):
        columns = _folded(rows + far, n, kind.get(mode, "mirror"))
        whole = whole + _AT_KNOTS[order][abs(far)] * tc.astype(columns[:, None] == rows[None, :], x.dtype)
    first = tc.moveaxis(x, axis, 0)
    found = tc.linalg.solve(whole, tc.reshape(first, (n, -1)))
    return tc.moveaxis(tc.reshape(found, first.shape), 0, axis)


def spline_filter(input: ArrayLike, order: int = 3, output: Any = float, mode: str = "mirror") -> tc.Tensor:
    """The coefficients of the spline that goes through the elements of an image.

    >>> spline_filter(tc.ones((3, 3))).round(4).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]

    Args:
        order: from 2 to 5; an image is its own coefficients for 0 and 1.
        output: without effect: the dtype is that of the image.
    """
    x = read("spline_filter", input)
    _check("scipy.ndimage.spline_filter", order, mode)
    for axis in range(x.ndim if order > 1 else 0):
        x = _coefficients(x, order, axis, mode)
    return x


def _check(name: str, order: int, mode: str) -> None:
    choose(name, "order", order, range(6))
    choose(name, "mode", mode, tuple(MODES))


def _weights(t: tc.Tensor, order: int) -> list[tc.Tensor]:
    """The values of the B-splines that are not 0 at a point, by the recursion of Cox and de Boor for integer knots."""
    found = [tc.ones_like(t)]
    for d in range(1, order + 1):
        nothing = [tc.zeros_like(t)]
        left, right = nothing + found, found + nothing
        found = [((t + (d - j)) * left[j] + (1 - t + j) * right[j]) / d for j in range(d + 1)]
    return found


def _sample(
    function: str, x: tc.Tensor, places: Sequence[tc.Tensor], order: int, mode: str, cval: float, prefilter: bool
) -> tc.Tensor:
    """The values of an image at points, of which there is one coordinate for each axis."""
    _check(f"scipy.ndimage.{function}", order, mode)
    inside: Any = True
    if mode == "constant":  # nothing is interpolated beyond the edges
        for n, place in zip(x.shape, places, strict=True):
            inside = tc.logical_and(inside, tc.logical_and(place >= 0, place <= n - 1))
    padding = _PADDING if prefilter and order > 1 and mode in ("nearest", "grid-constant") else 0
    if padding:
        x = tc.pad(x, padding, "edge") if mode == "nearest" else tc.pad(x, padding, constant_values=cval)
        places = [place + padding for place in places]
    if prefilter and order > 1:
        x = spline_filter(x, order, mode=mode)
    # Along each axis: numbers of elements, whether they are there, and their weights.
    parts = []
    for n, place in zip(x.shape, places, strict=True):
        if mode == "nearest":
            place = tc.clip(place, 0, n - 1)
        elif mode == "wrap" and n > 1:
            within = tc.logical_and(place >= 0, place <= n - 1)
            place = tc.where(within, place, place - (n - 1) * tc.stop_gradient(tc.floor(place / (n - 1))))
        moved = place if order % 2 else place + 0.5
        whole = tc.stop_gradient(tc.floor(moved))
        start = tc.astype(whole, tc.int64) - order // 2
        weights = _weights(moved - whole, order)
        parts.append(
            [
                (_folded(start + k, n, mode), tc.logical_and(start + k >= 0, start + k < n), weight)
                for k, weight in enumerate(weights)
            ]
        )
    flat = tc.reshape(x, (-1,))
    total: Any = 0.0
    for chosen in product(*parts):
        index: Any = 0
        weight: Any = 1.0
        there: Any = True
        for n, (one, known, w) in zip(x.shape, chosen, strict=True):
            index, weight, there = index * n + one, weight * w, tc.logical_and(there, known)
        value = tc.reshape(tc.take(flat, tc.reshape(index, (-1,)), axis=0), index.shape)
        if mode == "grid-constant":
            value = tc.where(there, value, cval)
        total = total + weight * value
    found: tc.Tensor = tc.where(inside, total, cval) if mode == "constant" else total
    return found


def map_coordinates(
    input: ArrayLike,
    coordinates: ArrayLike | Sequence[ArrayLike],
    output: None = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> tc.Tensor:
    """The values of an image at points, by a spline through its elements; differentiable by both.

    >>> x = tc.asarray([[0.0, 1.0], [2.0, 3.0]])
    >>> map_coordinates(x, tc.asarray([[0.5], [0.25]]), order=1).tolist()
    [1.25]

    Args:
        input: an image of n dimensions.
        coordinates: shape (n, ...): for each axis, where along it.
        order: of the spline, from 0 to 5.
        mode: what lies around the image: "constant" with `cval`, "grid-constant", "nearest", "reflect", "mirror",
            "wrap" or "grid-wrap". For small images and "reflect", SciPy's own splines miss the elements by a little.
        prefilter: whether coefficients are found first; without it `input` is taken for these.

    Raises:
        ValueError: an argument is out of its range, or there is not one coordinate for each axis.
        NotImplementedError: `output` is given.
    """
    name = "scipy.ndimage.map_coordinates"
    x = read("map_coordinates", input, output)
    if isinstance(coordinates, list | tuple):
        _, *places = floats(name, input=x, **{f"coordinates[{k}]": one for k, one in enumerate(coordinates)})
    else:
        _, whole = floats(name, input=x, coordinates=coordinates)
        places = [whole[k] for k in range(whole.shape[0])] if whole.ndim else []
    if len(places) != x.ndim:
        raise ValueError(f"{name}: coordinates must have one row for each of {x.ndim} axes, got {len(places)}")
    return _sample("map_coordinates", x, places, order, mode, cval, prefilter)


def _grid(x: tc.Tensor, shape: Sequence[int]) -> list[tc.Tensor]:
    """The coordinates of all elements of an image, each along its axis."""
    found = []
    for k, n in enumerate(shape):
        places = constant(x, list(range(n)))
        found.append(tc.reshape(places, tuple(n if j == k else 1 for j in range(len(shape)))))
    return found


def _sized(places: Sequence[tc.Tensor], shape: Sequence[int]) -> list[tc.Tensor]:
    return [tc.broadcast_to(place, tuple(shape)) for place in places]


def shift(
    input: ArrayLike,
    shift: Any,
    output: None = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> tc.Tensor:
    """An image moved by `shift` elements, one number for all axes or one for each; differentiable by it, too.

    >>> shift(tc.asarray([1.0, 2.0, 3.0]), 0.5, order=1).tolist()
    [0.0, 1.5, 2.5]

    Args, Raises: as for :func:`map_coordinates`.
    """
    x = read("shift", input, output)
    x, by = floats("scipy.ndimage.shift", input=x, shift=shift)
    by = tc.broadcast_to(by, (x.ndim,))
    places = [place - by[k] for k, place in enumerate(_grid(x, x.shape))]
    return _sample("shift", x, _sized(places, x.shape), order, mode, cval, prefilter)


def zoom(
    input: ArrayLike,
    zoom: float | Sequence[float],
    output: None = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
    *,
    grid_mode: bool = False,
) -> tc.Tensor:
    """An image with `zoom` times as many elements along each axis; the first and the last stay where they are.

    >>> zoom(tc.asarray([1.0, 3.0]), 1.5, order=1).tolist()
    [1.0, 2.0, 3.0]

    Raises:
        NotImplementedError: `grid_mode` or `output` is given.
    """
    x = read("zoom", input, output)
    refuse("scipy.ndimage.zoom", grid_mode=(grid_mode, (False,)))
    factors = [zoom] * x.ndim if isinstance(zoom, int | float) else [float(z) for z in zoom]
    shape = [round(n * z) for n, z in zip(x.shape, factors, strict=True)]
    places = [
        place * ((n - 1) / (m - 1) if m > 1 else 1.0)
        for place, n, m in zip(_grid(x, shape), x.shape, shape, strict=True)
    ]
    return _sample("zoom", x, _sized(places, shape), order, mode, cval, prefilter)


def affine_transform(
    input: ArrayLike,
    matrix: ArrayLike,
    offset: ArrayLike | Sequence[float] = 0.0,
    output_shape: Sequence[int] | None = None,
    output: None = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> tc.Tensor:
    """The image at `matrix @ o + offset` for each element `o` of the result; differentiable by both, too.

    >>> affine_transform(tc.asarray([1.0, 2.0, 3.0]), tc.asarray([[1.0]]), 0.5, order=1).tolist()
    [1.5, 2.5, 0.0]

    Args:
        matrix: shape (n, n); (n,) for a diagonal one; (n, n + 1) or (n + 1, n + 1) with the offset as a last column.
        offset: a number, or one for each axis.
        output_shape: that of the image by default.

    Raises:
        ValueError: the matrix has another shape.
    """
    name = "scipy.ndimage.affine_transform"
    x = read("affine_transform", input, output)
    x, matrix, by = floats(name, input=x, matrix=matrix, offset=offset)
    n = x.ndim
    if matrix.shape == (n + 1, n + 1):
        matrix = matrix[:n]
    if matrix.shape == (n, n + 1):
        by, matrix = matrix[:, n], matrix[:, :n]
    if matrix.shape not in ((n,), (n, n)):
        raise ValueError(f"{name}: matrix must have shape {(n,)}, {(n, n)}, {(n, n + 1)} or {(n + 1, n + 1)}")
    by = tc.broadcast_to(by, (n,))
    shape = x.shape if output_shape is None else tuple(output_shape)
    grid = _grid(x, shape)
    if matrix.ndim == 1:
        places = [matrix[k] * grid[k] + by[k] for k in range(n)]
    else:
        places = [sum([matrix[k, j] * grid[j] for j in range(n)], by[k]) for k in range(n)]
    return _sample("affine_transform", x, _sized(places, shape), order, mode, cval, prefilter)


def rotate(
    input: ArrayLike,
    angle: Any,
    axes: Sequence[int] = (1, 0),
    reshape: bool = True,
    output: None = None,
    order: int = 3,
    mode: str = "constant",
    cval: float = 0.0,
    prefilter: bool = True,
) -> tc.Tensor:
    """An image rotated by an angle in degrees, in the plane of two axes; differentiable by the angle, too.

    >>> rotate(tc.asarray([[1.0, 2.0], [3.0, 4.0]]), 90.0, order=1).round(4).tolist()
    [[2.0, 4.0], [1.0, 3.0]]

    Args:
        angle: a number. With `reshape`, its value must be known.
        reshape: whether the result is as large as the whole rotated image; else it has the size of the image.

    Raises:
        ValueError: the axes are not two of the image's.
    """
    name = "scipy.ndimage.rotate"
    x = read("rotate", input, output)
    if x.ndim < 2 or len(axes) != 2 or axes[0] % x.ndim == axes[1] % x.ndim:
        raise ValueError(f"{name}: axes must be two of the {x.ndim} axes of the image; got {axes}")
    first, second = sorted(k % x.ndim for k in axes)
    x, turn = floats(name, input=x, angle=angle)
    turn = turn * (math.pi / 180)
    cosine, sine = tc.cos(turn), tc.sin(turn)
    rows, columns = x.shape[first], x.shape[second]
    height, width = rows, columns
    if reshape:
        c, s = math.cos(float(turn)), math.sin(float(turn))
        corners = [(c * i + s * j, -s * i + c * j) for i in (0, rows) for j in (0, columns)]
        height, width = (int(max(v) - min(v) + 0.5) for v in zip(*corners, strict=True))
    shape = [height if k == first else width if k == second else n for k, n in enumerate(x.shape)]
    grid = _grid(x, shape)
    i, j = grid[first] - (height - 1) / 2, grid[second] - (width - 1) / 2
    grid[first] = cosine * i + sine * j + (rows - 1) / 2
    grid[second] = -sine * i + cosine * j + (columns - 1) / 2
    if x.ndim > 2:  # one plane after the other: along the other axes nothing is interpolated
        flat = tc.moveaxis(x, (first, second), (-2, -1))
        planes = tc.reshape(flat, (-1, rows, columns))
        places = [tc.reshape(tc.moveaxis(grid[k], (first, second), (-2, -1)), (height, width)) for k in (first, second)]
        found = [_sample("rotate", planes[k], places, order, mode, cval, prefilter) for k in range(planes.shape[0])]
        whole = tc.reshape(tc.stack(found), (*flat.shape[:-2], height, width))
        return tc.moveaxis(whole, (-2, -1), (first, second))
    return _sample("rotate", x, _sized(grid, shape), order, mode, cval, prefilter)
