"""Layers that crop, resize and, in training, change images at random."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import tape_core as tc
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras.backend import resolve_data_format
from tape_tf.keras.conversion import cast
from tape_tf.keras.layers.affine import FILL_MODES, INTERPOLATIONS, rotation, transform, translation, zoom
from tape_tf.keras.layers.base import Layer
from tape_tf.ops.resizing import METHODS, resize
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import TensorLike

Factor = float | Sequence[float]
"""A range of random numbers: two ends, or one number for the range from its negative to itself."""


class ImageLayer(Layer):
    """Base class of layers for one image, or a batch of images; subclasses define `_change` for a batch.

    Images are (height, width, channels) or (examples, height, width, channels), or have the channels first with
    `data_format="channels_first"`. Integers are cast to the layer's dtype.
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = resolve_data_format(data_format)

    def _change(self, images: tc.Tensor, training: bool) -> tc.Tensor:
        """Return the images, (examples, height, width, channels), changed."""
        raise NotImplementedError

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the image or the images, changed."""
        return self._call_on_batch(inputs, training=False)

    def _call_on_batch(self, inputs: TensorLike, training: bool) -> Tensor:
        if isinstance(inputs, dict):
            raise ValueError(f"{type(self).__name__} takes images alone; give it the entry of the dictionary")
        images = native(inputs)
        if images.ndim not in (3, 4):
            raise ValueError(
                f"{type(self).__name__} takes an image (height, width, channels) or a batch of them (examples, height, "
                f"width, channels); got shape {images.shape}"
            )
        single, first = images.ndim == 3, self.data_format == "channels_first"
        batch = tc.expand_dims(images, axis=0) if single else images
        if first:
            batch = tc.moveaxis(batch, 1, -1)
        found = self._change(self._cast_images(batch), training)
        if first:
            found = tc.moveaxis(found, -1, 1)
        return wrap_tensor(found[0] if single else found)

    def _cast_images(self, images: tc.Tensor) -> tc.Tensor:
        return cast(wrap(images), self.compute_dtype)


def _resized(
    images: tc.Tensor, height: int, width: int, method: str = "bilinear", antialias: bool = False
) -> tc.Tensor:
    """Return images of another size, in their dtype."""
    if images.shape[1:3] == (height, width):
        return images
    found = native(resize(wrap(images), (height, width), method, antialias=antialias))
    if found.dtype is images.dtype:
        return found
    if images.dtype.kind.endswith("integer"):
        limits = tc.iinfo(images.dtype)
        found = tc.clip(tc.round(found), limits.min, limits.max)
    return tc.astype(found, images.dtype)


def _central_window(height: int, width: int, rows: int, columns: int) -> tuple[int, int, int, int]:
    """Return the first row and column, and the size, of the largest window in the middle of the form `rows:columns`."""
    high = max(min(height, width * rows // columns), 1)
    wide = max(min(width, height * columns // rows), 1)
    return (height - high) // 2, (width - wide) // 2, high, wide


class CenterCrop(ImageLayer):
    """The middle of images; images that are too small are cropped to the right form, and enlarged.

    >>> import tape_tf as tf
    >>> tf.keras.layers.CenterCrop(2, 2)(tf.ones((5, 4, 6, 3))).shape
    TensorShape([5, 2, 2, 3])
    """

    def __init__(self, height: int, width: int, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.height, self.width = int(height), int(width)

    def _change(self, images: tc.Tensor, training: bool) -> tc.Tensor:
        height, width = images.shape[1:3]
        top, left = (height - self.height) // 2, (width - self.width) // 2
        if top >= 0 and left >= 0:
            return images[:, top : top + self.height, left : left + self.width]
        return _fitted(images, self.height, self.width)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shape, self.height, self.width) for shape in shapes]


def _fitted(images: tc.Tensor, height: int, width: int, method: str = "bilinear", antialias: bool = False) -> tc.Tensor:
    """Return the largest window in the middle that has the right form, resized."""
    rows, columns = images.shape[1:3]
    top, left, high, wide = _central_window(rows, columns, height, width)
    return _resized(images[:, top : top + high, left : left + wide], height, width, method, antialias)


class Resizing(ImageLayer):
    """Images of another size, in the dtype of the input.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Resizing(2, 8)(tf.ones((5, 4, 6, 3))).shape
    TensorShape([5, 2, 8, 3])

    Args:
        height, width: the new size.
        interpolation: a method of `tf.image.resize`.
        crop_to_aspect_ratio: crop images of another form, in place of distorting them.
        pad_to_aspect_ratio: fill up images of another form with `fill_value`, in place of distorting them.
        antialias: average over the pixels that a smaller image leaves out.
    """

    def __init__(
        self,
        height: int,
        width: int,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        antialias: bool = False,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format, **kwargs)
        if interpolation not in METHODS:
            raise ValueError(f"Resizing: interpolation must be one of {', '.join(METHODS)}; got {interpolation!r}")
        if crop_to_aspect_ratio and pad_to_aspect_ratio:
            raise ValueError("Resizing: crop_to_aspect_ratio and pad_to_aspect_ratio exclude each other")
        if fill_mode != "constant":
            raise ValueError(f"Resizing: fill_mode must be 'constant'; got {fill_mode!r}")
        self.height, self.width, self.interpolation = int(height), int(width), interpolation
        self.crop_to_aspect_ratio, self.pad_to_aspect_ratio = crop_to_aspect_ratio, pad_to_aspect_ratio
        self.fill_value, self.antialias = float(fill_value), bool(antialias)

    def _cast_images(self, images: tc.Tensor) -> tc.Tensor:
        return images

    def _change(self, images: tc.Tensor, training: bool) -> tc.Tensor:
        size = (self.height, self.width)
        if self.crop_to_aspect_ratio:
            return _fitted(images, *size, self.interpolation, self.antialias)
        if self.pad_to_aspect_ratio:
            height, width = images.shape[1:3]
            high = max(height, width * self.height // self.width)
            wide = max(width, height * self.width // self.height)
            top, left = (high - height) // 2, (wide - width) // 2
            margins = [(0, 0), (top, high - height - top), (left, wide - width - left), (0, 0)]
            images = tc.pad(images, margins, constant_values=self.fill_value)
        return _resized(images, *size, self.interpolation, self.antialias)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shape, self.height, self.width) for shape in shapes]


# -- at random


class RandomImageLayer(ImageLayer):
    """Base class of layers that change images in training only, each image of a batch differently."""

    __tf_differs__ = "other random numbers than TensorFlow's; takes images alone, no dictionaries with boxes"

    _bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)  # of the ends of a range

    def __init__(self, seed: int | None = None, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.seed = seed
        self._rng = None if seed is None else tc.default_rng(seed)

    def call(self, inputs: TensorLike, training: bool = True) -> Tensor:
        """Return the image or the images; in training changed at random."""
        return self._call_on_batch(inputs, training=bool(training))

    def _change(self, images: tc.Tensor, training: bool) -> tc.Tensor:
        return self._vary(images) if training else images

    def _vary(self, images: tc.Tensor) -> tc.Tensor:
        """Return the images, (examples, height, width, channels), changed at random."""
        raise NotImplementedError

    def _range(self, name: str, factor: Any) -> tuple[float, float]:
        """Return the ends of a range of random numbers.

        Raises:
            ValueError: there are not one or two numbers, or they are out of bounds.
        """
        low, high = self._bounds
        ends = list(factor) if isinstance(factor, list | tuple) else [-abs(factor), abs(factor)]
        if len(ends) != 2 or any([not low <= end <= high for end in ends if isinstance(factor, list | tuple)]):
            raise ValueError(
                f"{type(self).__name__}: {name} must be a number or two numbers from {low} to {high}; got {factor!r}"
            )
        if ends[1] > high:
            raise ValueError(f"{type(self).__name__}: {name} must be at most {high}; got {factor!r}")
        first, last = sorted(map(float, ends))
        return max(first, low), last

    def _draw(self, images: tc.Tensor, ends: tuple[float, float], each: bool = True) -> tc.Tensor:
        """Return a uniform random number for each image, or one for all, of shape () then."""
        rng = tc.random.global_rng() if self._rng is None else self._rng
        shape = (images.shape[0],) if each else ()
        where: dict[str, Any] = {"dtype": tc.float32, "backend": images.backend.root, "device": images.device}
        return rng.uniform(shape, **where) * (ends[1] - ends[0]) + ends[0]


class RandomFlip(RandomImageLayer):
    """In training flip half of the images, left to right, upside down, or both.

    >>> import tape_tf as tf
    >>> image = tf.constant([[[1.0], [2.0]]])
    >>> flip = tf.keras.layers.RandomFlip("horizontal", seed=1)
    >>> flip(image, training=False).numpy().ravel()
    array([1., 2.], dtype=float32)

    Args:
        mode: "horizontal", "vertical" or "horizontal_and_vertical".
        seed: the seed of the random numbers.
        data_format: "channels_last" or "channels_first".
    """

    def __init__(
        self,
        mode: str = "horizontal_and_vertical",
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed, data_format, **kwargs)
        if mode not in ("horizontal", "vertical", "horizontal_and_vertical"):
            raise ValueError(
                f"RandomFlip: mode must be 'horizontal', 'vertical' or 'horizontal_and_vertical'; got {mode!r}"
            )
        self.mode = mode

    def _vary(self, images: tc.Tensor) -> tc.Tensor:
        for name, axis in (("horizontal", 2), ("vertical", 1)):
            if name in self.mode:
                chosen = self._draw(images, (0.0, 1.0)) < 0.5
                images = tc.where(tc.reshape(chosen, (-1, 1, 1, 1)), tc.flip(images, axis=axis), images)
        return images


class RandomCrop(RandomImageLayer):
    """In training a window of images at a random place, the same for a batch; otherwise the middle, resized.

    Images that are too small are cropped to the right form, and enlarged.

    Args:
        height, width: the size of the result.
    """

    def __init__(
        self, height: int, width: int, seed: int | None = None, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(seed, data_format, **kwargs)
        self.height, self.width = int(height), int(width)

    def _change(self, images: tc.Tensor, training: bool) -> tc.Tensor:
        height, width = images.shape[1:3]
        if not training or height < self.height or width < self.width:
            return _fitted(images, self.height, self.width)
        for axis, length, wanted in ((1, height, self.height), (2, width, self.width)):
            start = tc.astype(tc.floor(self._draw(images, (0.0, length - wanted + 1.0), each=False)), tc.int64)
            # The largest float below the upper end may round up to it.
            start = tc.minimum(start, length - wanted)
            places = tc.arange(wanted, backend=images.backend.root, device=images.device) + start
            images = tc.take(images, places, axis=axis)
        return images

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shape, self.height, self.width) for shape in shapes]


class RandomContrast(RandomImageLayer):
    """In training multiply the distance of pixels from their channel's mean by a number from 1 - a to 1 + b.

    Args:
        factor: two numbers a and b, or one for both.
        value_range: the least and the largest value of a pixel; the result is clipped to it.
    """

    _bounds = (0.0, 1.0)

    def __init__(
        self, factor: Factor, value_range: Sequence[float] = (0, 255), seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(seed, **kwargs)
        ends = factor if isinstance(factor, list | tuple) else (factor, factor)
        if len(ends) != 2 or any([not 0 <= end <= 1 for end in ends]):
            raise ValueError(f"RandomContrast: factor must be a number or two numbers from 0 to 1; got {factor!r}")
        self.factor, self.value_range = (float(ends[0]), float(ends[1])), _value_range(self, value_range)

    def _vary(self, images: tc.Tensor) -> tc.Tensor:
        drawn = self._draw(images, (1.0 - self.factor[0], 1.0 + self.factor[1]))
        mean = tc.mean(images, axis=(1, 2), keepdims=True)
        scale = tc.astype(tc.reshape(drawn, (-1, 1, 1, 1)), images.dtype)
        return tc.clip((images - mean) * scale + mean, *self.value_range)


class RandomBrightness(RandomImageLayer):
    """In training add a number to all pixels of an image.

    Args:
        factor: the range of the number, as a share of that of values.
        value_range: the least and the largest value of a pixel; the result is clipped to it.
    """

    def __init__(
        self, factor: Factor, value_range: Sequence[float] = (0, 255), seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(seed, **kwargs)
        self.factor, self.value_range = self._range("factor", factor), _value_range(self, value_range)

    def _vary(self, images: tc.Tensor) -> tc.Tensor:
        low, high = self.value_range
        added = tc.reshape(self._draw(images, self.factor), (-1, 1, 1, 1)) * (high - low)
        return tc.clip(images + tc.astype(added, images.dtype), low, high)


def _value_range(layer: Layer, given: Sequence[float]) -> tuple[float, float]:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ValueError(f"{type(layer).__name__}: value_range must be two numbers; got {given!r}")
    return float(min(given)), float(max(given))


class _AffineLayer(RandomImageLayer):
    """Base class of layers that move pixels: each pixel of the result is read at a place of the image.

    Args:
        fill_mode: what is read beside the image: "reflect", "wrap", "nearest", or "constant" for `fill_value`.
        interpolation: "bilinear" or "nearest".
    """

    def __init__(
        self,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: int | None = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed, data_format, **kwargs)
        for name, value, known in (
            ("fill_mode", fill_mode, FILL_MODES),
            ("interpolation", interpolation, INTERPOLATIONS),
        ):
            if value not in known:
                raise ValueError(f"{type(self).__name__}: {name} must be one of {', '.join(known)}; got {value!r}")
        self.fill_mode, self.interpolation, self.fill_value = fill_mode, interpolation, float(fill_value)

    def _matrix(self, images: tc.Tensor) -> tc.Tensor:
        """Return for each image the two rows of numbers that give the place to read at, of shape (examples, 2, 3)."""
        raise NotImplementedError

    def _vary(self, images: tc.Tensor) -> tc.Tensor:
        return transform(images, self._matrix(images), self.interpolation, self.fill_mode, self.fill_value)


class RandomRotation(_AffineLayer):
    """In training rotate images about their middle.

    >>> import tape_tf as tf
    >>> quarter = tf.keras.layers.RandomRotation((0.25, 0.25))
    >>> quarter(tf.constant([[[1.0], [2.0]], [[3.0], [4.0]]]), training=True).numpy().round()[..., 0]
    array([[2., 4.],
           [1., 3.]], dtype=float32)

    Args:
        factor: the range of the angle, as a share of a full turn; positive angles turn against the clock.
        fill_mode: what is read beside the image: "reflect", "wrap", "nearest", or "constant" for `fill_value`.
        interpolation: "bilinear" or "nearest".
        seed: the seed of the random numbers.
        fill_value: for `fill_mode="constant"`.
        data_format: "channels_last" or "channels_first".
    """

    def __init__(
        self,
        factor: Factor,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: int | None = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **kwargs)
        self.factor = self._range("factor", factor)

    def _matrix(self, images: tc.Tensor) -> tc.Tensor:
        return rotation(self._draw(images, self.factor) * (2 * math.pi), *images.shape[1:3])


class RandomTranslation(_AffineLayer):
    """In training move images; the arguments after the factors are those of :class:`RandomRotation`.

    Args:
        height_factor: the range of the way down, as a share of the height; negative numbers move up.
        width_factor: the range of the way to the right, as a share of the width.
    """

    def __init__(
        self,
        height_factor: Factor,
        width_factor: Factor,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: int | None = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **kwargs)
        self.height_factor = self._range("height_factor", height_factor)
        self.width_factor = self._range("width_factor", width_factor)

    def _matrix(self, images: tc.Tensor) -> tc.Tensor:
        height, width = images.shape[1:3]
        down = self._draw(images, self.height_factor) * height
        return translation(down, self._draw(images, self.width_factor) * width)


class RandomZoom(_AffineLayer):
    """In training enlarge or shrink images; the arguments after the factors are those of :class:`RandomRotation`.

    Args:
        height_factor: the range of the change; positive numbers zoom out, negative ones in: 0.2 shows 20 % more.
        width_factor: the same for the width; by default the numbers of the height.
    """

    def __init__(
        self,
        height_factor: Factor,
        width_factor: Factor | None = None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: int | None = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **kwargs)
        self.height_factor = self._range("height_factor", height_factor)
        self.width_factor = None if width_factor is None else self._range("width_factor", width_factor)

    def _matrix(self, images: tc.Tensor) -> tc.Tensor:
        down = self._draw(images, self.height_factor) + 1.0
        across = down if self.width_factor is None else self._draw(images, self.width_factor) + 1.0
        return zoom(down, across, *images.shape[1:3])
