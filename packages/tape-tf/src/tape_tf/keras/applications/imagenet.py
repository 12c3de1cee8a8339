"""What goes into networks that were trained on ImageNet, and what comes out: pixels, and names of classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tape_tf.conversion import convert_to_tensor, wrap
from tape_tf.keras.backend import floatx, resolve_data_format
from tape_tf.keras.conversion import cast
from tape_tf.keras.downloads import get_file
from tape_tf.keras.symbolic import KerasTensor
from tape_tf.names import export
from tape_tf.tensor import Value
from tape_tf.typing import TensorLike

_CLASSES_FILE = "imagenet_class_index.json"
_CLASSES_FROM = f"https://storage.googleapis.com/download.tensorflow.org/data/{_CLASSES_FILE}"

# The mean and the standard deviation of the pixels of ImageNet: red, green, blue, from 0 to 1.
MEAN_RGB = (0.485, 0.456, 0.406)
STDDEV_RGB = (0.229, 0.224, 0.225)
# The means that the first networks, of the library Caffe, were trained with: blue, green, red, from 0 to 255.
_CAFFE_MEAN_BGR = (103.939, 116.779, 123.68)


def published_file(name: str, origin: str) -> Path:
    """Return the path of a file that Keras publishes: in `~/.keras/models`, to which it is downloaded if need be.

    Raises:
        OSError: it is not there, and cannot be downloaded; the message says where to put it.
    """
    return Path(get_file(name, origin, cache_subdir="models"))


def _preprocess(x: Any, data_format: str | None, mode: str) -> Any:
    """Scale pixels from 0 to 255 as a network expects them.

    Args:
        x: images (..., height, width, channels) in red, green and blue: an array, which becomes another array, a tensor
            or a symbolic tensor. Integers become floats.
        data_format: "channels_last" or "channels_first"; None for the one of Keras' backend.
        mode: "tf": from -1 to 1. "torch": from 0 to 1, less the mean of ImageNet, by its deviation. "caffe": blue,
            green and red, less the mean of ImageNet.

    Raises:
        ValueError: there is no such mode.
    """
    if mode not in ("tf", "torch", "caffe"):
        raise ValueError(f"Expected mode to be one of `caffe`, `tf` or `torch`. Received: mode={mode}")
    if isinstance(x, KerasTensor):
        dtype = x.dtype.name
    elif isinstance(x, Value):
        x = x if x.dtype.is_floating else wrap(cast(x))
        dtype = x.dtype.name
    else:
        x = np.asarray(x)
        x = x if x.dtype.kind == "f" else x.astype(floatx())
        dtype = x.dtype.name
    if mode == "tf":
        return x / 127.5 - 1.0
    axis = -1 if resolve_data_format(data_format) == "channels_last" else -3

    def channels(values: tuple[float, ...]) -> Any:
        array = np.asarray(values, dtype=dtype).reshape((-1,) + (1,) * (-axis - 1))
        return convert_to_tensor(array) if isinstance(x, Value) else array

    if mode == "torch":
        return (x / 255.0 - channels(MEAN_RGB)) / channels(STDDEV_RGB)
    reversed_channels = (..., slice(None, None, -1)) + (slice(None),) * (-axis - 1)
    return x[reversed_channels] - channels(_CAFFE_MEAN_BGR)


def _decode(preds: TensorLike, top: int = 5) -> list[list[tuple[str, str, float]]]:
    """Return the names of the most likely classes of ImageNet, from Keras' file `imagenet_class_index.json`.

    Args:
        preds: probabilities, shape (examples, 1000).
        top: how many for each example.

    Returns:
        For each example a list of (identifier in WordNet, name, probability), the most likely first.

    Raises:
        ValueError: the shape is another one, or the file does not have 1000 names.
        OSError: the file is not there, and cannot be downloaded; the message says where to put it.
    """
    values = np.asarray(preds)
    if values.ndim != 2 or values.shape[1] != 1000:
        raise ValueError(
            "`decode_predictions` expects a batch of predictions (i.e. a 2D array of shape (samples, 1000)). Received "
            f"array with shape: {values.shape}"
        )
    path = published_file(_CLASSES_FILE, _CLASSES_FROM)
    try:
        classes = {int(number): tuple(names) for number, names in json.loads(path.read_text("utf-8")).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is no list of classes: {error}") from error
    if classes.keys() != set(range(1000)) or any(len(names) != 2 for names in classes.values()):
        raise ValueError(f"{path} does not have an identifier and a name for each number from 0 to 999")
    # Of equal ones the later class first, as in Keras.
    best = [row.argsort()[-top:][::-1] for row in values]
    return [[(*classes[int(k)], row[k]) for k in order] for order, row in zip(best, values, strict=True)]


def publish_helpers(space: str, mode: str | None) -> None:
    """Publish `preprocess_input` and `decode_predictions` in the module of a network, with its scaling of pixels.

    Args:
        mode: a mode of :func:`_preprocess`; None for a network that scales pixels itself.
    """

    def preprocess_input(x: Any, data_format: str | None = None) -> Any:
        return x if mode is None else _preprocess(x, data_format, mode)

    unchanged = "Return the images: the network scales pixels from 0 to 255 itself."
    preprocess_input.__doc__ = unchanged if mode is None else f"{_preprocess.__doc__}".split("\n\n")[0]
    export(f"keras.applications.{space}.preprocess_input", preprocess_input)
    export(f"keras.applications.{space}.decode_predictions", _decode)


def _preprocess_by_mode(x: Any, data_format: str | None = None, mode: str = "caffe") -> Any:
    return _preprocess(x, data_format, mode)


_preprocess_by_mode.__name__, _preprocess_by_mode.__doc__ = "preprocess_input", _preprocess.__doc__
_decode.__name__ = "decode_predictions"
preprocess_input: Callable[..., Any] = export("keras.applications.imagenet_utils.preprocess_input", _preprocess_by_mode)
export("keras.applications.imagenet_utils.decode_predictions", _decode)
