"""tf.image: how alike two images are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native
from tape_tf.functions import op
from tape_tf.typing import TensorLike

_MULTISCALE = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # Wang, Simoncelli and Bovik, 2003


def _floating(images: Sequence[tc.Tensor], max_val: TensorLike) -> tuple[list[tc.Tensor], float]:
    """Return images and the range of their pixels as floats: integers are converted as `convert_image_dtype` does.

    Raises:
        ValueError: the last three axes of the images differ.
    """
    shapes = [image.shape[-3:] for image in images]
    if any(len(shape) < 3 for shape in shapes) or shapes[0] != shapes[1]:
        raise ValueError(f"the images must have the same height, width and channels; got {shapes[0]} and {shapes[1]}")
    range_ = float(np.asarray(native(max_val).numpy()))
    dtype = dtypes.of(images[0].dtype)
    if not dtype.is_integer:
        return list(images), range_
    most = int(dtype.max)
    return [tc.astype(image, tc.float32) / most for image in images], range_ / most


@op("image.psnr", "a b", kernel="Psnr")
def psnr(a: tc.Tensor, b: tc.Tensor, max_val: TensorLike) -> tc.Tensor:
    """Return the peak signal-to-noise ratio of each pair of images in decibels.

    Args:
        max_val: the largest difference that pixels can have, such as 1.0 or 255.

    Raises:
        ValueError: the images differ in size.
    """
    (a, b), range_ = _floating([a, b], max_val)
    error = tc.mean(tc.square(a - b), axis=(-3, -2, -1))
    return 20 * float(np.log10(range_)) - 10 * tc.log10(error)


def _blurred(images: tc.Tensor, size: int, sigma: float) -> tc.Tensor:
    """Return the means around each pixel, weighted by a bell curve, where the window fits into the image."""
    places = np.arange(size) - (size - 1) / 2
    weights = np.exp(-(places**2) / (2 * sigma**2))
    window = native((weights / weights.sum()).astype(images.dtype.name), like=images)
    # Each channel is an image of one channel, and the curve is a product: rows first, then columns.
    x = tc.moveaxis(images, -1, -3)
    flat = tc.reshape(x, (-1, *x.shape[-2:], 1))
    flat = tc.conv(flat, tc.reshape(window, (size, 1, 1, 1)))
    flat = tc.conv(flat, tc.reshape(window, (1, size, 1, 1)))
    return tc.moveaxis(tc.reshape(flat, (*x.shape[:-2], *flat.shape[1:3])), -3, -1)


def _compared(
    x: tc.Tensor, y: tc.Tensor, range_: float, size: int, sigma: float, k1: float, k2: float
) -> tuple[tc.Tensor, tc.Tensor]:
    """Return the structural similarity around each pixel, and its factor without the brightness."""
    if min(*x.shape[-3:-1]) < size:
        raise ValueError(f"images of shape {x.shape} are smaller than the window of {size} x {size}; give filter_size")

    def mean(images: tc.Tensor) -> tc.Tensor:
        return _blurred(images, size, sigma)

    a, b = (k1 * range_) ** 2, (k2 * range_) ** 2
    first, second = mean(x), mean(y)
    both, squares = first * second * 2, first**2 + second**2
    structure = (mean(x * y) * 2 - both + b) / (mean(x**2 + y**2) - squares + b)
    return (both + a) / (squares + a) * structure, structure


@op("image.ssim", "img1 img2")
def ssim(
    img1: tc.Tensor,
    img2: tc.Tensor,
    max_val: TensorLike,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> tc.Tensor:
    """Return the structural similarity of each pair of images, 1 for equal ones; the mean over their channels.

    >>> import tape_tf as tf
    >>> x = tf.random.uniform((2, 16, 16, 3))
    >>> tf.image.ssim(x, x, max_val=1.0).numpy().round(4).tolist()
    [1.0, 1.0]

    Args:
        max_val: the largest difference that pixels can have, such as 1.0 or 255.
        filter_size, filter_sigma: the window around a pixel, and the width of the bell curve in it.
        k1, k2: what keeps the quotients finite, as a share of `max_val`.
        return_index_map: return the similarity around each pixel, and not their mean.

    Raises:
        ValueError: the images differ in size, or are smaller than the window.
    """
    (x, y), range_ = _floating([img1, img2], max_val)
    found, _ = _compared(x, y, range_, filter_size, filter_sigma, k1, k2)
    return tc.mean(found, axis=-1) if return_index_map else tc.mean(found, axis=(-3, -2, -1))


@op("image.ssim_multiscale", "img1 img2")
def ssim_multiscale(
    img1: tc.Tensor,
    img2: tc.Tensor,
    max_val: TensorLike,
    power_factors: Sequence[float] = _MULTISCALE,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> tc.Tensor:
    """Return the structural similarity of each pair of images over several sizes, each half of the one before.

    Args:
        power_factors: how much each size counts, the largest first.
        max_val and the others: as for :func:`tf.image.ssim`.

    Raises:
        ValueError: the images differ in size, or the smallest is smaller than the window.
    """
    (x, y), range_ = _floating([img1, img2], max_val)
    factors: list[tc.Tensor] = []
    for k, power in enumerate(power_factors):
        if k:
            x, y = _halved(x), _halved(y)
        whole, structure = _compared(x, y, range_, filter_size, filter_sigma, k1, k2)
        last = k == len(power_factors) - 1
        # The brightness counts at the smallest size only.
        score = tc.mean(whole if last else structure, axis=(-3, -2))
        factors.append(tc.relu(score) ** power)
    found = factors[0]
    for factor in factors[1:]:
        found = found * factor
    return tc.mean(found, axis=-1)


def _halved(images: tc.Tensor) -> tc.Tensor:
    """Return images of half the size, by means of 2 x 2 pixels; an odd last row or column counts twice."""
    odd = [(0, n % 2) for n in images.shape[-3:-1]]
    x = tc.pad(images, [(0, 0)] * (images.ndim - 3) + [*odd, (0, 0)], mode="symmetric")
    rows = (x[..., ::2, :, :] + x[..., 1::2, :, :]) / 2
    return (rows[..., ::2, :] + rows[..., 1::2, :]) / 2
