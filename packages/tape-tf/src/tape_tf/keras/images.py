"""`tf.keras.utils`: images as objects of Pillow, as arrays and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tape_tf.conversion import convert_to_tensor
from tape_tf.keras.backend import floatx
from tape_tf.names import exported
from tape_tf.ops.codecs import pillow
from tape_tf.ops.files import local_path
from tape_tf.ops.resizing import resize
from tape_tf.typing import NumPyArray, PathLike, TensorLike

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "hamming", "box")
_MODES = {"grayscale": "L", "rgba": "RGBA", "rgb": "RGB"}


def _check_format(data_format: str | None) -> str:
    found = data_format or "channels_last"
    if found not in ("channels_last", "channels_first"):
        raise ValueError(f"Invalid data_format: {data_format}")
    return found


@exported("keras.utils.load_img keras.preprocessing.image.load_img")
def load_img(
    path: PathLike,
    color_mode: str = "rgb",
    target_size: tuple[int, int] | None = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """Read an image file into an object of Pillow.

    Args:
        color_mode: "rgb", "rgba" or "grayscale".
        target_size: (height, width) to resize it to.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos", "hamming" or "box".
        keep_aspect_ratio: cut the largest part of this shape out of the middle before.

    Raises:
        ImportError: Pillow is not installed.
        FileNotFoundError: there is no such file.
        ValueError: an argument is none of these.
    """
    image = pillow("load_img")
    if color_mode not in _MODES:
        raise ValueError(f'color_mode must be "grayscale", "rgb", or "rgba"; got {color_mode!r}')
    if interpolation not in _INTERPOLATIONS:
        raise ValueError(f"Invalid interpolation method {interpolation!r}; there are {', '.join(_INTERPOLATIONS)}")
    with image.open(local_path(path)) as file:
        # Images of more than 8 bits keep them in grey, as in Keras.
        found = (
            file.copy()
            if color_mode == "grayscale" and file.mode in ("I;16", "I", "L")
            else file.convert(_MODES[color_mode])
        )
    if target_size is None or found.size == (target_size[1], target_size[0]):
        return found
    height, width = target_size
    method = getattr(image.Resampling, interpolation.upper())
    box = None
    if keep_aspect_ratio:
        rows, columns = found.height, found.width
        part = (min(rows, columns * height // width), min(columns, rows * width // height))
        top, left = (rows - part[0]) // 2, (columns - part[1]) // 2
        box = (left, top, left + part[1], top + part[0])
    return found.resize((width, height), method, box=box)


@exported("keras.utils.img_to_array keras.preprocessing.image.img_to_array")
def img_to_array(img: Any, data_format: str | None = None, dtype: str | None = None) -> NumPyArray:
    """Return an image of Pillow as an array of shape (height, width, channels), by default of Keras' float type."""
    array = np.asarray(img, dtype=dtype or floatx())
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3:
        raise ValueError(f"Unsupported image shape: {array.shape}")
    return array.transpose(2, 0, 1) if _check_format(data_format) == "channels_first" else array


@exported("keras.utils.array_to_img keras.preprocessing.image.array_to_img")
def array_to_img(x: TensorLike, data_format: str | None = None, scale: bool = True, dtype: str | None = None) -> Any:
    """Return an array of shape (height, width, channels) as an image of Pillow.

    Args:
        scale: spread the values over 0 to 255; otherwise they are cut off to integers.

    Raises:
        ValueError: the array is no image: it has 1, 3 or 4 channels.
    """
    array = np.asarray(x, dtype=dtype or floatx())
    if array.ndim != 3:
        raise ValueError(f"Expected image array to have rank 3 (single image). Got array with shape: {array.shape}")
    if _check_format(data_format) == "channels_first":
        array = array.transpose(1, 2, 0)
    if scale:
        array = array - array.min()
        if (largest := array.max()) != 0:
            array = array / largest
        array = array * 255
    channels = array.shape[-1]
    if channels not in (1, 3, 4):
        raise ValueError(f"Unsupported channel number: {channels}")
    image = pillow("array_to_img")
    if channels == 1:
        grey = array[..., 0]
        # More than 255: an image of 32 bits, which PNG and TIFF can hold.
        return image.fromarray(grey.astype("int32") if grey.max() > 255 else grey.astype("uint8"))
    return image.fromarray(array.astype("uint8"))


@exported("keras.utils.save_img keras.preprocessing.image.save_img")
def save_img(
    path: PathLike,
    x: TensorLike,
    data_format: str | None = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Write an array of shape (height, width, channels) to an image file, whose format its name tells."""
    image = array_to_img(x, data_format, scale)
    form = file_format or Path(local_path(path)).suffix.lstrip(".")
    form = "jpeg" if form.lower() == "jpg" else form
    if image.mode == "RGBA" and form.lower() == "jpeg":
        image = image.convert("RGB")
    image.save(local_path(path), form, **kwargs)


@exported("keras.preprocessing.image.smart_resize")
def smart_resize(
    x: TensorLike, size: tuple[int, int], interpolation: str = "bilinear", data_format: str = "channels_last"
) -> NumPyArray:
    """Resize images to a size without distortion: the largest part of its shape is cut out of the middle."""
    images = np.asarray(x)
    if _check_format(data_format) == "channels_first":
        images = np.moveaxis(images, -3, -1)
    rows, columns = images.shape[-3:-1]
    height, width = size
    part = (min(rows, int(columns * height / width)), min(columns, int(rows * width / height)))
    top, left = (rows - part[0]) // 2, (columns - part[1]) // 2
    cut = images[..., top : top + part[0], left : left + part[1], :]
    found: NumPyArray = resize(convert_to_tensor(cut), size, interpolation).numpy()
    return np.moveaxis(found, -1, -3) if data_format == "channels_first" else found
