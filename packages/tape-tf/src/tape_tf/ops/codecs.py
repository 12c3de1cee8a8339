"""tf.io and tf.image: images from and to files, by Pillow."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor
from tape_tf.errors import InvalidArgumentError
from tape_tf.names import exported
from tape_tf.ops.text import Text
from tape_tf.string_tensor import StringTensor, strings_of, wrap_strings
from tape_tf.typing import DTypeLike, NumPyArray, TensorLike

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's, by the number of channels
_FORMATS = ("JPEG", "PNG", "GIF", "BMP")


def pillow(what: str) -> Any:
    """Import Pillow.

    Raises:
        ImportError: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{what} needs Pillow, which is not installed: pip install 'tape-tf[images]'") from None
    return Image


def _opened(contents: Text, what: str, formats: tuple[str, ...]) -> Any:
    image = pillow(what)
    data = strings_of(contents)
    if data.ndim:
        raise InvalidArgumentError(
            None, None, f"{what}: contents must be scalar, got shape {list(data.shape)}; map it over a dataset"
        )
    try:
        with warnings.catch_warnings():
            # A small file may claim to be a huge image.
            warnings.simplefilter("error", image.DecompressionBombWarning)
            return image.open(io.BytesIO(data.item()), formats=formats)
    except (image.UnidentifiedImageError, image.DecompressionBombWarning, image.DecompressionBombError) as error:
        raise InvalidArgumentError(
            None, None, f"{what}: this is no image in the format {' or '.join(formats)} that can be read: {error}"
        ) from None


def _pixels(image: Any, channels: int, what: str, bits: int = 8) -> NumPyArray:
    """Return the pixels of an open image, shape (height, width, channels), as uint8 or uint16."""
    try:
        if bits == 16:
            if not image.mode.startswith("I;16") and image.mode != "I":
                raise InvalidArgumentError(None, None, f"{what}: of 16 bits there are grey images only here")
            return np.asarray(image).astype(np.uint16)[..., None]
        if not channels:
            # The file's own channels; a palette is one of colours.
            grey = {"1": 1, "L": 1, "LA": 2, "I;16": 1, "I": 1}
            channels = grey.get(image.mode, 4 if image.mode in ("RGBA", "PA") or "transparency" in image.info else 3)
        if image.mode.startswith("I"):
            found = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)[..., None]
            return np.repeat(found, channels, axis=-1) if channels > 1 else found
        found = np.asarray(image.convert(_MODES[channels]))
    except (OSError, SyntaxError) as error:  # Pillow raises SyntaxError for broken PNG files
        raise InvalidArgumentError(None, None, f"{what}: the image is damaged: {error}") from None
    return found if found.ndim == 3 else found[..., None]


def _check_channels(channels: int, allowed: tuple[int, ...], what: str) -> None:
    if channels not in allowed:
        raise InvalidArgumentError(None, None, f"{what}: channels must be one of {allowed}, got {channels}")


def _as_dtype(pixels: NumPyArray, dtype: DTypeLike, what: str) -> Any:
    wanted = dtypes.as_dtype(dtype)
    if wanted is dtypes.uint8 or wanted is dtypes.uint16:
        return convert_to_tensor(pixels if wanted is dtypes.uint8 else pixels.astype(np.uint16))
    if wanted.is_floating:
        return convert_to_tensor((pixels.astype(np.float32) / 255).astype(wanted.as_numpy_dtype))
    raise InvalidArgumentError(None, None, f"{what}: dtype must be uint8, uint16 or a floating one; got {wanted.name}")


@exported("io.decode_jpeg image.decode_jpeg", "by Pillow: values differ by a few units")
def decode_jpeg(
    contents: Text, channels: int = 0, ratio: int = 1, fancy_upscaling: bool = True,
    try_recover_truncated: bool = False, acceptable_fraction: float = 1, dct_method: str = "", name: str | None = None,
) -> Any:  # fmt: skip
    """Return the pixels of a JPEG image, uint8, of shape (height, width, channels); PNG is read as well.

    Args:
        contents: the bytes of the file.
        channels: 1 for grey, 3 for RGB, 0 for what the file has.
        ratio: keep every pixel of so many.

    Raises:
        InvalidArgumentError: it is no image, or damaged.
        ImportError: Pillow is not installed.
    """
    _check_channels(channels, (0, 1, 3), "decode_jpeg")
    pixels = _pixels(_opened(contents, "decode_jpeg", _FORMATS), channels, "decode_jpeg")
    return convert_to_tensor(np.ascontiguousarray(pixels[::ratio, ::ratio]))


@exported("io.decode_png image.decode_png")
def decode_png(contents: Text, channels: int = 0, dtype: DTypeLike = dtypes.uint8, name: str | None = None) -> Any:
    """Return the pixels of a PNG image, of shape (height, width, channels); JPEG is read as well.

    Args:
        channels: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA, 0 what the file has.
        dtype: uint8, or uint16 for grey images of 16 bits.
    """
    _check_channels(channels, (0, 1, 2, 3, 4), "decode_png")
    bits = 16 if dtypes.as_dtype(dtype) is dtypes.uint16 else 8
    return convert_to_tensor(_pixels(_opened(contents, "decode_png", _FORMATS), channels, "decode_png", bits).copy())


@exported("io.decode_bmp image.decode_bmp")
def decode_bmp(contents: Text, channels: int = 0, name: str | None = None) -> Any:
    """Return the pixels of a BMP image, uint8, of shape (height, width, channels)."""
    _check_channels(channels, (0, 1, 3, 4), "decode_bmp")
    return convert_to_tensor(_pixels(_opened(contents, "decode_bmp", ("BMP",)), channels, "decode_bmp").copy())


@exported("io.decode_gif image.decode_gif")
def decode_gif(contents: Text, name: str | None = None) -> Any:
    """Return the frames of a GIF, uint8, of shape (frames, height, width, 3)."""
    return convert_to_tensor(_frames(_opened(contents, "decode_gif", ("GIF",))))


def _frames(image: Any) -> NumPyArray:
    found = []
    for k in range(getattr(image, "n_frames", 1)):
        image.seek(k)
        found.append(np.asarray(image.convert("RGB")))
    return np.stack(found)


@exported("io.decode_image image.decode_image")
def decode_image(
    contents: Text, channels: int | None = None, dtype: DTypeLike = dtypes.uint8, name: str | None = None,
    expand_animations: bool = True,
) -> Any:  # fmt: skip
    """Return the pixels of a JPEG, PNG, GIF or BMP image, of shape (height, width, channels).

    Args:
        channels: 1 grey, 3 RGB, 4 RGBA; 0 or None for what the file has.
        dtype: uint8, uint16, or a floating one, in which intensities go from 0 to 1.
        expand_animations: return all frames of a GIF, with the frames as first dimension; otherwise the first.
    """
    _check_channels(channels or 0, (0, 1, 3, 4), "decode_image")
    image = _opened(contents, "decode_image", _FORMATS)
    if image.format == "GIF":
        frames = _frames(image)
        return _as_dtype(frames if expand_animations else frames[0], dtype, "decode_image")
    return _as_dtype(_pixels(image, channels or 0, "decode_image").copy(), dtype, "decode_image")


@exported("io.is_jpeg image.is_jpeg")
def is_jpeg(contents: Text, name: str | None = None) -> Any:
    """Return whether the bytes begin as those of a JPEG image do."""
    return convert_to_tensor(strings_of(contents).item().startswith(b"\xff\xd8\xff"))


@exported("io.extract_jpeg_shape image.extract_jpeg_shape")
def extract_jpeg_shape(contents: Text, output_type: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """Return the shape (height, width, channels) of a JPEG image, without decoding it."""
    image = _opened(contents, "extract_jpeg_shape", ("JPEG",))
    return convert_to_tensor([image.height, image.width, len(image.getbands())], dtype=output_type)


# -- to files


def encode_pixels(pixels: NumPyArray, form: str, what: str, **options: Any) -> StringTensor:
    """Return an image file, as a string, of pixels of shape (height, width, channels).

    Raises:
        InvalidArgumentError: they are no image.
    """
    if pixels.ndim != 3 or pixels.shape[-1] not in _MODES or pixels.dtype not in (np.uint8, np.uint16):
        raise InvalidArgumentError(
            None,
            None,
            f"{what}: an image is uint8 of shape (height, width, 1 to 4); got {pixels.dtype} of shape {pixels.shape}",
        )
    if pixels.dtype == np.uint16 and (form != "PNG" or pixels.shape[-1] != 1):
        raise InvalidArgumentError(None, None, f"{what}: of 16 bits there are grey PNG images only here")
    image = pillow(what).fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    out = io.BytesIO()
    image.save(out, form, **options)
    return wrap_strings(out.getvalue())


@exported("io.encode_jpeg image.encode_jpeg")
def encode_jpeg(
    image: TensorLike, format: str = "", quality: int = 95, progressive: bool = False, optimize_size: bool = False,
    chroma_downsampling: bool = True, density_unit: str = "in", x_density: int = 300, y_density: int = 300,
    xmp_metadata: str = "", name: str | None = None,
) -> StringTensor:  # fmt: skip
    """Return a JPEG file, as a string, of an image of uint8, with 1 or 3 channels.

    Args:
        format: `"grayscale"` or `"rgb"`; by default what the image is.
        quality: from 0 to 100.
        progressive, optimize_size, chroma_downsampling, density_unit, x_density, y_density: as in JPEG files.
        xmp_metadata: must be empty.
    """
    pixels = np.asarray(convert_to_tensor(image).numpy())
    if pixels.shape[-1] not in (1, 3):
        raise InvalidArgumentError(None, None, f"encode_jpeg: an image has 1 or 3 channels, got shape {pixels.shape}")
    if xmp_metadata or format not in ("", "grayscale" if pixels.shape[-1] == 1 else "rgb"):
        raise InvalidArgumentError(
            None,
            None,
            f"encode_jpeg: the image has {pixels.shape[-1]} channels, got format={format!r}; no xmp_metadata",
        )
    scale = 1.0 if density_unit == "in" else 2.54
    return encode_pixels(
        pixels,
        "JPEG",
        "encode_jpeg",
        quality=quality,
        progressive=progressive,
        optimize=optimize_size,
        subsampling="4:2:0" if chroma_downsampling else "4:4:4",
        dpi=(round(x_density * scale), round(y_density * scale)),
    )


@exported("io.encode_png image.encode_png")
def encode_png(image: TensorLike, compression: int = -1, name: str | None = None) -> StringTensor:
    """Return a PNG file, as a string, of an image of uint8 (or grey uint16)."""
    options = {} if compression < 0 else {"compress_level": compression}
    return encode_pixels(np.asarray(convert_to_tensor(image).numpy()), "PNG", "encode_png", **options)
