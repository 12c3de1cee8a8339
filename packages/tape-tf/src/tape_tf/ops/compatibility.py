"""tf.compat: conversions of text, `tf.compat.v2`, and of `tf.compat.v1` what means something without graphs.

What else TensorFlow 1 had is absent, and each name says what there is instead: see `tape_tf.absences_v1`.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf.names import export, export_space, exported
from tape_tf.typing import IntLike, PathLike


@exported("compat.as_bytes")
def as_bytes(bytes_or_text: str | bytes | bytearray, encoding: str = "utf-8") -> bytes:
    """Encode text; bytes are returned as they are.

    >>> import tape_tf as tf
    >>> tf.compat.as_bytes("ä")
    b'\\xc3\\xa4'

    Raises:
        TypeError: it is neither.
    """
    if isinstance(bytes_or_text, bytes | bytearray):
        return bytes(bytes_or_text)
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@exported("compat.as_text compat.as_str")
def as_text(bytes_or_text: str | bytes | bytearray, encoding: str = "utf-8") -> str:
    """Decode bytes; text is returned as it is.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, bytes | bytearray):
        return bytes(bytes_or_text).decode(encoding)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@exported("compat.as_str_any")
def as_str_any(value: object, encoding: str = "utf-8") -> str:
    """Return `str(value)`; bytes are decoded."""
    return as_text(value, encoding) if isinstance(value, bytes | bytearray) else str(value)


@exported("compat.path_to_str")
def path_to_str(path: PathLike) -> str:
    """Return a path as text."""
    return as_str_any(os.fspath(path))


@exported("compat.dimension_value")
def dimension_value(dimension: int | None) -> int | None:
    """Return a length of a shape, which is an int, or None where it is not known."""
    return dimension


@exported("compat.dimension_at_index", "returns the length: there are no Dimension objects")
def dimension_at_index(shape: Any, index: int) -> int | None:
    """Return the length of an axis; None if it is not known."""
    length: int | None = tuple(shape)[index]
    return length


export("compat.bytes_or_text_types", (bytes, str))
export("compat.integral_types", (int, np.integer))
export("compat.real_types", (int, float, np.integer, np.floating))
export("compat.complex_types", (int, float, complex, np.number))

# -- TensorFlow 1


def _already_so(names: str) -> None:
    """Publish functions that switch something on which is always on here."""

    def function() -> None:
        """Do nothing: it is always so."""

    export(names, function)


_already_so(
    "compat.v1.enable_eager_execution compat.v1.enable_v2_behavior compat.v1.enable_v2_tensorshape "
    "compat.v1.enable_resource_variables compat.v1.enable_control_flow_v2 compat.v1.enable_tensor_equality"
)


@exported("compat.v1.executing_eagerly_outside_functions compat.v1.resource_variables_enabled")
def always() -> bool:
    """Return True."""
    return True


@exported("compat.v1.set_random_seed compat.v1.random.set_random_seed")
def set_random_seed(seed: IntLike | None) -> None:
    """Seed the random numbers, as `tf.random.set_seed` does."""
    tc.set_seed(0 if seed is None else int(seed))


for _name, _level in (
    ("DEBUG", logging.DEBUG),
    ("INFO", logging.INFO),
    ("WARN", logging.WARNING),
    ("ERROR", logging.ERROR),
    ("FATAL", logging.CRITICAL),
):
    export(f"compat.v1.logging.{_name}", _level)
_logger = logging.getLogger("tensorflow")
for _name in ("debug", "info", "warning", "error", "fatal"):
    export(f"compat.v1.logging.{_name}", getattr(_logger, _name))
export("compat.v1.logging.warn", _logger.warning)


@exported("compat.v1.logging.set_verbosity")
def set_verbosity(v: int) -> None:
    """Set from which level on messages to the logger "tensorflow" are shown."""
    _logger.setLevel(v)


@exported("compat.v1.logging.get_verbosity")
def get_verbosity() -> int:
    """Return from which level on messages to the logger "tensorflow" are shown."""
    return _logger.getEffectiveLevel()


@exported("keras.backend.experimental.enable_tf_random_generator")
def enable_tf_random_generator() -> None:
    """Do nothing: random numbers come of generators always."""


@exported("keras.backend.experimental.is_tf_random_generator_enabled")
def is_tf_random_generator_enabled() -> bool:
    """Return True: random numbers come of generators always."""
    return True


# So that what is missing in them says what to use instead, name by name.
for _space in ("data", "GraphKeys", "initializers", "layers", "losses", "metrics", "nn", "train"):
    export_space(f"compat.v1.{_space}")
export_space("estimator")
