"""tf.image.resize: images of another size, by matrices of weights along rows and columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tape_core as tc

from tape_tf.conversion import native
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.typing import NumPyArray

_Curve = Callable[[NumPyArray], NumPyArray]


@exported("image.ResizeMethod")
class ResizeMethod:
    """The names of the methods of :func:`tf.image.resize`."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


class _Filter(NamedTuple):
    """The weight of a pixel by its distance, in pixels, from where a new one is; 0 from `radius` on."""

    radius: float
    curve: _Curve


def _cubic(near: tuple[float, ...], far: tuple[float, ...]) -> _Curve:
    """Return a curve of two cubic polynomials: up to a distance of 1, and from there to 2."""
    return lambda x: np.where(x < 1, np.polyval(near, x), np.polyval(far, x))


def _lanczos(radius: int) -> _Filter:
    return _Filter(radius, lambda x: np.sinc(x) * np.sinc(x / radius))


_FILTERS = {
    "bilinear": _Filter(1, lambda x: 1 - x),
    "bicubic": _Filter(2, _cubic((1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2))),  # Keys' with A = -1/2
    "mitchellcubic": _Filter(2, _cubic((7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9))),
    "gaussian": _Filter(1.5, lambda x: np.exp(-2 * x * x)),
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
}


METHODS = (*_FILTERS, "area", "nearest")
_CUBIC_STEPS = 1024  # TensorFlow's plain bicubic method looks its weights up in a table of so many for each pixel


def _filter_weights(before: int, after: int, method: str, antialias: bool) -> NumPyArray:
    """Return the matrix (after, before) of the weights of a filter."""
    radius, curve = _FILTERS[method]
    scale = before / after
    spread = max(scale, 1.0) if antialias else 1.0  # antialiasing widens the filter when it shrinks an image
    # TensorFlow 2's convention: pixels are areas, and their centres are at halves (`half_pixel_centers=True`).
    middles = (np.arange(after) + 0.5) * scale - 0.5
    if method == "bilinear" and not antialias:
        middles = np.clip(middles, 0, before - 1)
    if method == "bicubic" and not antialias:
        middles = np.rint(middles * _CUBIC_STEPS) / _CUBIC_STEPS
    distances = np.abs(middles[:, None] - np.arange(before)) / spread
    weights = np.where(distances < radius, curve(distances), 0.0)
    # At the edge a part of the filter lies outside: the weights that are left add up to 1.
    found: NumPyArray = weights / weights.sum(axis=1, keepdims=True)
    return found


def _area_weights(before: int, after: int) -> NumPyArray:
    """Return the matrix (after, before) of the shares that old pixels have in the area of new ones."""
    edges = np.arange(after + 1) * (before / after)
    pixels = np.arange(before)
    shares = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    found: NumPyArray = np.maximum(shares, 0.0) * (after / before)
    return found


def _sizes(shape: tuple[int, ...], size: tuple[int, ...], preserve_aspect_ratio: bool) -> tuple[int, int]:
    if len(shape) not in (3, 4):
        raise ValueError("'images' must have either 3 or 4 dimensions.")
    if len(size) != 2:
        raise ValueError("'size' must be a 1-D Tensor of 2 elements: new_height, new_width")
    rows, columns = size
    if preserve_aspect_ratio:
        share = min(rows / shape[-3], columns / shape[-2])
        rows, columns = round(shape[-3] * share), round(shape[-2] * share)
    return rows, columns


def _resized(images: tc.Tensor, rows: int, columns: int, method: str, antialias: bool) -> tc.Tensor:
    height, width = images.shape[-3:-1]
    if method == "nearest":
        places = [
            # The pixel whose area holds the centre of the new one.
            native(np.minimum(((np.arange(n) + 0.5) * (old / n)).astype("int64"), old - 1), like=images)
            for old, n in ((height, rows), (width, columns))
        ]
        return tc.take(tc.take(images, places[0], axis=-3), places[1], axis=-2)
    if method not in METHODS:
        raise ValueError(f"Resize method is not implemented: {method}; there are {', '.join(METHODS)}")
    x = tc.astype(images, tc.float32)
    # Interpolation is linear in each direction, so it is a matrix product along rows and one along columns.
    down, across = (
        native(
            (_area_weights(old, n) if method == "area" else _filter_weights(old, n, method, antialias)).astype(
                "float32"
            ),
            like=x,
        )
        for old, n in ((height, rows), (width, columns))
    )
    return tc.einsum("oh,...hwc,pw->...opc", down, x, across)


@op("image.resize", "images", static_args="size")
def resize(
    images: tc.Tensor,
    size: tuple[int, int],
    method: str = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
) -> tc.Tensor:
    """Resize images: a float32 tensor, or with `"nearest"` one of the images' dtype.

    Args:
        size: the new height and width.
        method: one of `tf.image.ResizeMethod`, or its name.
        preserve_aspect_ratio: make them as large as fits into `size`.
        antialias: when the image shrinks, let a new pixel depend on all that it covers.

    Raises:
        ValueError: the shape is not that of images, or there is no such method.
    """
    rows, columns = _sizes(images.shape, tuple(size), preserve_aspect_ratio)
    return _resized(images, rows, columns, method, antialias)


@op("image.resize_with_pad", "image", static_args="target_height target_width")
def resize_with_pad(
    image: tc.Tensor, target_height: int, target_width: int, method: str = "bilinear", antialias: bool = False
) -> tc.Tensor:
    """Resize images as far as fits, and surround them with zeros on the sides that are left.

    Raises:
        ValueError: the shape is not that of images, or there is no such method.
    """
    _sizes(image.shape, (target_height, target_width), False)
    height, width = image.shape[-3:-1]
    ratio = max(height / target_height, width / target_width)
    rows, columns = int(height / ratio), int(width / ratio)
    found = _resized(image, rows, columns, method, antialias)
    above = max(0, int((target_height - height / ratio) / 2))
    before = max(0, int((target_width - width / ratio) / 2))
    margins = [(above, target_height - above - rows), (before, target_width - before - columns), (0, 0)]
    return tc.pad(found, [(0, 0)] * (image.ndim - 3) + margins)
