"""`tf.keras.backend` and `tf.keras.config`: Keras' global settings."""

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

SQUARED_NORM_FLOOR: Final = 1e-12
"""The least squared norm to divide by, so that a vector of zeros stays zero; Keras' value."""

_FLOATS: Final = ("bfloat16", "float16", "float32", "float64")
_LAYOUTS: Final = ("channels_last", "channels_first")
_settings: Final[dict[str, Any]] = {"epsilon": 1e-7, "floatx": "float32", "image_data_format": "channels_last"}
# One dictionary, so that a setting is global to the process, as in Keras; not a context variable.


def epsilon() -> float:
    """The small constant that losses and constraints add to denominators; 1e-7 unless it was set."""
    return float(_settings["epsilon"])


def set_epsilon(value: float) -> None:
    """Set what :func:`epsilon` returns."""
    _settings["epsilon"] = float(value)


def floatx() -> str:
    """The name of the default dtype of layers, losses and metrics; "float32" unless it was set."""
    return str(_settings["floatx"])


def set_floatx(value: str) -> None:
    """Set what :func:`floatx` returns.

    Raises:
        ValueError: the value is no floating dtype.
    """
    name = getattr(value, "name", value)
    if name not in _FLOATS:
        raise ValueError(f"Unknown `floatx` value: {value!r}. Expected one of {', '.join(_FLOATS)}")
    _settings["floatx"] = name


def image_data_format() -> str:
    """The default order of axes, "channels_last" or "channels_first"; "channels_last" unless it was set."""
    return str(_settings["image_data_format"])


def set_image_data_format(data_format: str) -> None:
    """Set what :func:`image_data_format` returns.

    Raises:
        ValueError: the value is neither "channels_last" nor "channels_first".
    """
    if data_format not in _LAYOUTS:
        raise ValueError(f"data_format must be one of {', '.join(_LAYOUTS)}; got {data_format!r}")
    _settings["image_data_format"] = data_format


def resolve_data_format(data_format: str | None) -> str:
    """Return a layer's `data_format` argument, checked; the global default for None."""
    if data_format is None:
        return image_data_format()
    if data_format not in _LAYOUTS:
        raise ValueError(f"data_format must be one of {', '.join(_LAYOUTS)}; got {data_format!r}")
    return data_format


__getattr__ = absent("keras.backend")
