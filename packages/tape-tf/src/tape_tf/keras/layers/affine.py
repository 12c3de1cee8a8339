"""Affine transformations of images: each pixel of the result is read at a place of the image, and interpolated.

A transformation is two rows of three numbers for each image, of shape (examples, 2, 3): pixel (x, y) of the result is
read at `(a0 * x + a1 * y + a2, b0 * x + b1 * y + b2)`, where x counts columns and y rows.
"""

from __future__ import annotations

from typing import Any, Final

import tape_core as tc

FILL_MODES: Final = ("reflect", "wrap", "constant", "nearest")
INTERPOLATIONS: Final = ("bilinear", "nearest")


def rotation(angle: tc.Tensor, height: int, width: int) -> tc.Tensor:
    """Return transformations that rotate by angles in radians, against the clock, about the middle."""
    cos, sin = tc.cos(angle), tc.sin(angle)
    x, y = (width - 1) / 2, (height - 1) / 2
    return _matrix(cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos)


def translation(down: tc.Tensor, right: tc.Tensor) -> tc.Tensor:
    """Return transformations that move by numbers of pixels."""
    one, zero = tc.ones_like(down), tc.zeros_like(down)
    return _matrix(one, zero, -right, zero, one, -down)


def zoom(down: tc.Tensor, across: tc.Tensor, height: int, width: int) -> tc.Tensor:
    """Return transformations that show `down` times the height and `across` times the width."""
    zero = tc.zeros_like(down)
    x, y = (width - 1) / 2 * (1 - across), (height - 1) / 2 * (1 - down)
    return _matrix(across, zero, x, zero, down, y)


def _matrix(*entries: tc.Tensor) -> tc.Tensor:
    return tc.reshape(tc.stack(entries, axis=-1), (-1, 2, 3))


def transform(images: tc.Tensor, matrix: tc.Tensor, interpolation: str, fill_mode: str, fill_value: float) -> tc.Tensor:
    """Return transformed images of the same shape, (examples, height, width, channels)."""
    height, width = images.shape[1:3]
    where: dict[str, Any] = {"dtype": matrix.dtype, "backend": images.backend.root, "device": images.device}
    columns = tc.arange(width, **where)
    rows = tc.expand_dims(tc.arange(height, **where), axis=-1)
    a, b = (tc.reshape(matrix[:, k], (-1, 3, 1, 1)) for k in (0, 1))
    x = _inside(a[:, 0] * columns + a[:, 1] * rows + a[:, 2], width, fill_mode)
    y = _inside(b[:, 0] * columns + b[:, 1] * rows + b[:, 2], height, fill_mode)
    if interpolation == "nearest":
        return _read(images, tc.floor(y + 0.5), tc.floor(x + 0.5), fill_value)
    left, top = tc.floor(x), tc.floor(y)
    right_share, low_share = (tc.astype(tc.expand_dims(v, axis=-1), images.dtype) for v in (x - left, y - top))
    upper = _between(images, top, left, right_share, fill_value)
    lower = _between(images, top + 1, left, right_share, fill_value)
    return upper + (lower - upper) * low_share


def _between(images: tc.Tensor, row: tc.Tensor, left: tc.Tensor, share: tc.Tensor, fill_value: float) -> tc.Tensor:
    """Return values between the pixels at `left` and to the right of it."""
    first = _read(images, row, left, fill_value)
    return first + (_read(images, row, left + 1, fill_value) - first) * share


def _inside(place: tc.Tensor, length: int, fill_mode: str) -> tc.Tensor:
    """Return places inside an image that stand for places beside it; with "constant" they stay outside."""
    if fill_mode == "constant":
        return place
    if fill_mode == "reflect":  # d c b a | a b c d | d c b a
        place = place - 2 * length * tc.floor(place / (2 * length)) if length > 1 else tc.zeros_like(place)
        # A place of -0.5 is the left edge of pixel 0: TensorFlow reflects there, and so at 2 * length - 0.5.
        place = tc.where(place > length - 1, 2 * length - 1 - place, place)
    elif fill_mode == "wrap":  # a b c d | a b c d
        # As in TensorFlow, half a pixel before the first is the last, and half a pixel after the last the first.
        turns = tc.where(place < 0, tc.floor(place / length), tc.ceil((place + 1) / length) - 1)
        place = place - length * turns
    return tc.clip(place, 0.0, length - 1.0)


def _read(images: tc.Tensor, row: tc.Tensor, column: tc.Tensor, fill_value: float) -> tc.Tensor:
    """Return the pixels at whole places, `fill_value` outside of the image; the shape is that of `images`."""
    n, height, width, channels = images.shape
    inside = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
    rows, columns = (tc.astype(tc.clip(v, 0, m - 1), tc.int64) for v, m in ((row, height), (column, width)))
    first = tc.arange(n, dtype=tc.int64, backend=images.backend.root, device=images.device) * (height * width)
    places = tc.reshape(first, (-1, 1, 1)) + rows * width + columns
    found = tc.take(tc.reshape(images, (n * height * width, channels)), tc.reshape(places, (-1,)), axis=0)
    return tc.where(tc.expand_dims(inside, axis=-1), tc.reshape(found, images.shape), fill_value)
