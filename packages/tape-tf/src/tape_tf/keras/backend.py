"""`tf.keras.backend` and `tf.keras.config`: what Keras takes when it is told nothing else."""

from __future__ import annotations

from typing import Any, Final

from tape_tf.keras.naming import clear_session
from tape_tf.names import absent

__all__ = [
    "clear_session",
    "epsilon",
    "floatx",
    "image_data_format",
    "set_epsilon",
    "set_floatx",
    "set_image_data_format",
]

_FLOATS: Final = ("bfloat16", "float16", "float32", "float64")
_LAYOUTS: Final = ("channels_last", "channels_first")
_settings: Final[dict[str, Any]] = {"epsilon": 1e-7, "floatx": "float32", "image_data_format": "channels_last"}


def epsilon() -> float:
    """The small number of `tf.keras.backend.set_epsilon`."""
    return float(_settings["epsilon"])


def set_epsilon(value: float) -> None:
    """Set what :func:`epsilon` returns."""
    _settings["epsilon"] = float(value)


def floatx() -> str:
    """The dtype of layers, losses and metrics that are given none: "float32" unless it was set."""
    return str(_settings["floatx"])


def set_floatx(value: str) -> None:
    """Set what :func:`floatx` returns.

    Raises:
        ValueError: this is no floating dtype.
    """
    name = getattr(value, "name", value)
    if name not in _FLOATS:
        raise ValueError(f"Unknown `floatx` value: {value!r}. Expected one of {', '.join(_FLOATS)}")
    _settings["floatx"] = name


def image_data_format() -> str:
    """Which axis has the channels where a layer is not told: "channels_last" unless it was set."""
    return str(_settings["image_data_format"])


def set_image_data_format(data_format: str) -> None:
    """Set what :func:`image_data_format` returns.

    Raises:
        ValueError: it is neither "channels_last" nor "channels_first".
    """
    if data_format not in _LAYOUTS:
        raise ValueError(f"data_format must be one of {', '.join(_LAYOUTS)}; got {data_format!r}")
    _settings["image_data_format"] = data_format


def layout(data_format: str | None) -> str:
    """The axis of the channels that a layer was told, or the default."""
    if data_format is None:
        return image_data_format()
    if data_format not in _LAYOUTS:
        raise ValueError(f"data_format must be one of {', '.join(_LAYOUTS)}; got {data_format!r}")
    return data_format


__getattr__ = absent("keras.backend")
