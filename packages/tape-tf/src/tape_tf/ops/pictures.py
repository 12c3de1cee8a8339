"""tf.image: functions of images of shape (..., height, width, channels)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import tape_core as tc
from tape_core.random import Generator as NativeGenerator

from tape_tf import dtypes
from tape_tf.conversion import native, static, wrap
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.ops.sampling import Seed, generator, stateless_generator
from tape_tf.typing import DTypeLike, IntLike, ShapeLike, TensorLike

_DIFFERS = "other random numbers than TensorFlow's"


def _as_floats(adjust: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for ops of images: integers are computed on as floats from 0 to 1, and converted back, saturated."""

    name = next(iter(inspect.signature(adjust).parameters))

    @wraps(adjust)
    def adjusted(**given: Any) -> Any:  # `op` passes arguments by name
        kind = dtypes.of(given[name].dtype)
        if not kind.is_integer:
            return adjust(**given)
        floats = native(convert_image_dtype(wrap(given[name]), dtypes.float32))
        found = adjust(**{**given, name: floats})
        return native(convert_image_dtype(wrap(found), kind, saturate=True))

    return adjusted


def _without_rule(kernel: str, adjust: Callable[..., tc.Tensor], instead: str) -> Callable[..., Any]:
    """Return a function of tensors without a derivative: by the formula, code would work that fails in TensorFlow."""

    @tc.custom_gradient
    def adjusted(*tensors: tc.Tensor) -> Any:
        def no_rule(upstream: object) -> Any:
            raise LookupError(
                f"gradient registry has no entry for: {kernel}; write it out to differentiate it: {instead}"
            )

        return adjust(*tensors), no_rule

    return adjusted


@op("image.adjust_contrast", "images", kernel="AdjustContrastv2")
@_as_floats
def adjust_contrast(images: tc.Tensor, contrast_factor: TensorLike) -> Any:
    """Multiply the distance of each pixel from its channel's mean by a factor.

    Raises:
        LookupError: when the gradient is computed: there is none, as in TensorFlow.
    """

    factor = native(contrast_factor, dtypes.of(images.dtype), like=images)

    def adjusted(images: tc.Tensor, factor: tc.Tensor) -> tc.Tensor:
        mean = tc.mean(images, axis=(-3, -2), keepdims=True)
        return (images - mean) * factor + mean

    instead = "with mean = tf.reduce_mean(x, axis=[-3, -2], keepdims=True) it is (x - mean) * factor + mean"
    return _without_rule("AdjustContrastv2", adjusted, instead)(images, factor)


@op("image.adjust_brightness", "image")
@_as_floats
def adjust_brightness(image: tc.Tensor, delta: TensorLike) -> tc.Tensor:
    """Add `delta` to all pixels; integers count as from 0 to 1."""
    return image + native(delta, dtypes.of(image.dtype), like=image)


@op("image.adjust_saturation", "image", kernel="AdjustSaturation")
@_as_floats
def adjust_saturation(image: tc.Tensor, saturation_factor: TensorLike) -> Any:
    """Multiply the saturation of RGB images, in HSV, by a factor; it ends at 1.

    >>> import tape_tf as tf
    >>> tf.image.adjust_saturation(tf.constant([[[1.0, 0.5, 0.75]]]), 0.5).numpy().tolist()
    [[[1.0, 0.75, 0.875]]]

    Raises:
        LookupError: when the gradient is computed: there is none, as in TensorFlow.
    """
    if image.ndim < 3 or image.shape[-1] != 3:
        raise ValueError(f"adjust_saturation takes RGB images (..., height, width, 3); got shape {image.shape}")
    factor = native(saturation_factor, dtypes.of(image.dtype), like=image)

    def adjusted(image: tc.Tensor, factor: tc.Tensor) -> tc.Tensor:
        # The largest channel is HSV's value and stays; the distances of the others from it are proportional to
        # saturation.
        most = tc.max(image, axis=-1, keepdims=True)
        spread = most - tc.min(image, axis=-1, keepdims=True)
        grey = spread == 0
        limit = tc.where(grey, tc.ones_like(most), most / tc.where(grey, tc.ones_like(spread), spread))
        return most - (most - image) * tc.minimum(tc.maximum(factor, tc.zeros_like(factor)), limit)

    instead = "with most = tf.reduce_max(x, -1, keepdims=True) it is most - (most - x) * factor, where that is positive"
    return _without_rule("AdjustSaturation", adjusted, instead)(image, factor)


# -- orientation


@op("image.flip_left_right", "image")
def flip_left_right(image: tc.Tensor) -> tc.Tensor:
    """Mirror images left to right."""
    return tc.flip(image, axis=-2)


@op("image.flip_up_down", "image")
def flip_up_down(image: tc.Tensor) -> tc.Tensor:
    """Mirror images top to bottom."""
    return tc.flip(image, axis=-3)


@op("image.transpose", "image")
def transpose(image: tc.Tensor) -> tc.Tensor:
    """Swap rows and columns."""
    return tc.moveaxis(image, -3, -2)


@op("image.rot90", "image")
def rot90(image: tc.Tensor, k: int = 1) -> tc.Tensor:
    """Rotate images `k` times by 90° counter-clockwise."""
    # A transpose and a flip of the rows are a quarter turn counter-clockwise.
    for _ in range(k % 4):
        image = tc.flip(tc.moveaxis(image, -3, -2), axis=-3)
    return image


# -- differences, statistics, colours


@op("image.total_variation", "images")
def total_variation(images: tc.Tensor) -> tc.Tensor:
    """Return, for each image, the sum of the absolute differences of neighbouring pixels."""
    down = tc.abs(images[..., 1:, :, :] - images[..., :-1, :, :])
    right = tc.abs(images[..., :, 1:, :] - images[..., :, :-1, :])
    return tc.sum(down, axis=(-3, -2, -1)) + tc.sum(right, axis=(-3, -2, -1))


@op("image.image_gradients", "image")
def image_gradients(image: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
    """Return each pixel's differences to the one below and to the one on the right; zeros at the end."""
    if image.ndim != 4:
        raise ValueError(f"image_gradients expects a 4D tensor (batch, h, w, channels), got shape {image.shape}")
    down = tc.pad(image[:, 1:] - image[:, :-1], [(0, 0), (0, 1), (0, 0), (0, 0)])
    right = tc.pad(image[:, :, 1:] - image[:, :, :-1], [(0, 0), (0, 0), (0, 1), (0, 0)])
    return down, right


@op("image.per_image_standardization", "image")
def per_image_standardization(image: tc.Tensor) -> tc.Tensor:
    """Subtract each image's mean and divide by its standard deviation, which counts as at least 1/√(elements)."""
    x = image if image.dtype.inexact else tc.astype(image, tc.float32)
    axes = (-3, -2, -1)
    size = x.shape[-1] * x.shape[-2] * x.shape[-3]
    deviation = tc.std(x, axis=axes, keepdims=True)
    return (x - tc.mean(x, axis=axes, keepdims=True)) / tc.maximum(deviation, tc.full_like(deviation, size**-0.5))


@op("image.rgb_to_grayscale", "images")
@_as_floats
def rgb_to_grayscale(images: tc.Tensor) -> tc.Tensor:
    """Return the luma of RGB images, one channel."""
    # Weights of red, green and blue of ITU-R BT.601, rounded as in TensorFlow.
    weights = native([0.2989, 0.5870, 0.1140], dtypes.of(images.dtype), like=images)
    return tc.sum(images * weights, axis=-1, keepdims=True)


@op("image.grayscale_to_rgb", "images")
def grayscale_to_rgb(images: tc.Tensor) -> tc.Tensor:
    """Repeat one channel three times."""
    return tc.concat([images] * 3, axis=-1)


@exported("image.convert_image_dtype")
def convert_image_dtype(image: TensorLike, dtype: DTypeLike, saturate: bool = False, name: str | None = None) -> Any:
    """Convert intensities to another dtype: floats go from 0 to 1, integers from 0 to their maximum."""
    from tape_tf.ops.elementwise import saturate_cast

    x, target = native(image), dtypes.as_dtype(dtype)
    source = dtypes.of(x.dtype)
    if source == target:
        return wrap(x)
    if source.is_integer and target.is_integer:
        raise ValueError(f"convert_image_dtype: from {source.name} to {target.name} by way of a floating dtype")
    if target.is_floating:
        found = tc.astype(x, target.native)
        return wrap(found / int(source.max) if source.is_integer else found)
    scaled = x * (int(target.max) + 0.5)  # the cast cuts off: without the half, only 1.0 would become the maximum
    return saturate_cast(wrap(scaled), target) if saturate else wrap(tc.astype(scaled, target.native))


# -- crops


@op("image.crop_to_bounding_box", "image")
def crop_to_bounding_box(
    image: tc.Tensor, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> tc.Tensor:
    """Cut the rectangle of this size and offset out of images."""
    height, width = image.shape[-3:-1]
    if offset_height + target_height > height or offset_width + target_width > width:
        raise ValueError(f"the part does not fit into the image's {height} rows and {width} columns")
    rows, columns = (slice(o, o + n) for o, n in ((offset_height, target_height), (offset_width, target_width)))
    return image[..., rows, columns, :]


@op("image.pad_to_bounding_box", "image")
def pad_to_bounding_box(
    image: tc.Tensor, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> tc.Tensor:
    """Pad images with zeros to this size, at this offset."""
    height, width = image.shape[-3:-1]
    after = (target_height - offset_height - height, target_width - offset_width - width)
    if min(after) < 0:
        raise ValueError(f"an image of {height} rows and {width} columns does not fit there")
    widths = [(0, 0)] * (image.ndim - 3) + [(offset_height, after[0]), (offset_width, after[1]), (0, 0)]
    return tc.pad(image, widths)


@op("image.central_crop", "image")
def central_crop(image: tc.Tensor, central_fraction: float) -> tc.Tensor:
    """Cut out the central rectangle, whose sides are `central_fraction` of the image's."""
    height, width = image.shape[-3:-1]
    # TensorFlow's rounding, which may leave a pixel more than the fraction.
    rows, columns = (int((n - n * central_fraction) / 2) for n in (height, width))
    return image[..., rows : height - rows, columns : width - columns, :]


# -- at random


def _publish_random_flip(names: str, axis: int, doc: str) -> None:
    @op(names, "image", differs="other random numbers than TensorFlow's")
    def flip(image: tc.Tensor, seed: IntLike | None = None) -> tc.Tensor:
        if image.ndim == 3:
            return tc.flip(image, axis=axis) if generator(seed).uniform(()).item() < 0.5 else image
        chosen = (
            generator(seed).uniform((image.shape[0], 1, 1, 1), backend=image.backend.root, device=image.device) < 0.5
        )
        return tc.where(chosen, tc.flip(image, axis=axis), image)

    flip.__doc__ = doc


_publish_random_flip("image.random_flip_left_right", -2, "Mirror each image left to right with probability 1/2.")
_publish_random_flip("image.random_flip_up_down", -3, "Mirror each image top to bottom with probability 1/2.")


def _between(low: float, high: float, numbers: NativeGenerator) -> float:
    return numbers.uniform((), low=low, high=high).item()


def _brightness(image: TensorLike, max_delta: float, numbers: NativeGenerator) -> Any:
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, _between(-max_delta, max_delta, numbers))


def _factor(lower: float, upper: float, numbers: NativeGenerator) -> float:
    if not 0 <= lower < upper:
        raise ValueError("upper must be > lower, and lower must be non-negative")
    return _between(lower, upper, numbers)


def _crop(value: TensorLike, size: ShapeLike, numbers: Callable[[], NativeGenerator]) -> Any:
    x, lengths = native(value), tuple(static(size))
    if len(lengths) != x.ndim or any(n > m for n, m in zip(lengths, x.shape, strict=True)):
        raise ValueError(f"Need value.shape >= size, got {x.shape} and {lengths}")
    drawn = numbers()
    starts = [int(drawn.integers(0, m - n + 1)) for n, m in zip(lengths, x.shape, strict=True)]
    return wrap(x[tuple(slice(start, start + n) for start, n in zip(starts, lengths, strict=True))])


@exported("image.random_brightness", _DIFFERS)
def random_brightness(image: TensorLike, max_delta: float, seed: IntLike | None = None) -> Any:
    """Add a random number from [-`max_delta`, `max_delta`)."""
    return _brightness(image, max_delta, generator(seed))


@exported("image.stateless_random_brightness", _DIFFERS)
def stateless_random_brightness(image: TensorLike, max_delta: float, seed: Seed) -> Any:
    """Do as :func:`random_brightness`; the same seed, two integers, gives the same picture."""
    return _brightness(image, max_delta, stateless_generator(seed))


@exported("image.random_contrast", _DIFFERS)
def random_contrast(image: TensorLike, lower: float, upper: float, seed: IntLike | None = None) -> Any:
    """Multiply the contrast by a random number from [`lower`, `upper`)."""
    return adjust_contrast(image, _factor(lower, upper, generator(seed)))


@exported("image.stateless_random_contrast", _DIFFERS)
def stateless_random_contrast(image: TensorLike, lower: float, upper: float, seed: Seed) -> Any:
    """Do as :func:`random_contrast`; the same seed, two integers, gives the same picture."""
    return adjust_contrast(image, _factor(lower, upper, stateless_generator(seed)))


@exported("image.random_saturation", _DIFFERS)
def random_saturation(image: TensorLike, lower: float, upper: float, seed: IntLike | None = None) -> Any:
    """Multiply the saturation of RGB images by a random number from [`lower`, `upper`)."""
    return adjust_saturation(image, _factor(lower, upper, generator(seed)))


@exported("image.stateless_random_saturation", _DIFFERS)
def stateless_random_saturation(image: TensorLike, lower: float, upper: float, seed: Seed) -> Any:
    """Do as :func:`random_saturation`; the same seed, two integers, gives the same picture."""
    return adjust_saturation(image, _factor(lower, upper, stateless_generator(seed)))


@exported("image.random_crop", _DIFFERS)
def random_crop(value: TensorLike, size: ShapeLike, seed: IntLike | None = None, name: str | None = None) -> Any:
    """Cut a part of this size out of the tensor, at a random place."""
    return _crop(value, size, lambda: generator(seed))


@exported("image.stateless_random_crop", _DIFFERS)
def stateless_random_crop(value: TensorLike, size: ShapeLike, seed: Seed, name: str | None = None) -> Any:
    """Do as :func:`random_crop`; the same seed, two integers, gives the same part."""
    return _crop(value, size, lambda: stateless_generator(seed))


# -- filters, and sizes of other proportions


@exported("image.resize_with_crop_or_pad")
def resize_with_crop_or_pad(image: TensorLike, target_height: int, target_width: int) -> Any:
    """Cut the middle of images, or pad them with zeros, to a size."""
    x = native(image)
    height, width = x.shape[-3:-1]
    rows, columns = min(height, target_height), min(width, target_width)
    cut = crop_to_bounding_box(wrap(x), (height - rows) // 2, (width - columns) // 2, rows, columns)
    return pad_to_bounding_box(
        cut, (target_height - rows) // 2, (target_width - columns) // 2, target_height, target_width
    )


@op("image.sobel_edges", "image")
def sobel_edges(image: tc.Tensor) -> tc.Tensor:
    """Return the vertical and the horizontal differences of each pixel's neighbours, along a new last dimension."""
    if image.ndim != 4:
        raise ValueError(f"sobel_edges expects a 4D tensor (batch, h, w, channels), got shape {image.shape}")
    x = tc.pad(image, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    # Sobel's filters are a difference in one direction, and a weighted mean, (1, 2, 1), in the other.
    down = x[:, 2:] - x[:, :-2]
    across = x[:, :, 2:] - x[:, :, :-2]
    vertical = down[:, :, :-2] + 2 * down[:, :, 1:-1] + down[:, :, 2:]
    horizontal = across[:, :-2] + 2 * across[:, 1:-1] + across[:, 2:]
    return tc.stack([vertical, horizontal], axis=-1)
