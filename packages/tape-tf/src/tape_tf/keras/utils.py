"""`tf.keras.utils`: seeds, one-hot encoding, normalization and the parts of batches."""

from __future__ import annotations

import random as stdlib
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf.keras.data import pack_x_y_sample_weight, unpack_x_y_sample_weight
from tape_tf.keras.naming import clear_session
from tape_tf.names import absent
from tape_tf.typing import TensorLike

__all__ = [
    "clear_session",
    "normalize",
    "pack_x_y_sample_weight",
    "set_random_seed",
    "to_categorical",
    "unpack_x_y_sample_weight",
]


def set_random_seed(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and Tape.

    >>> import tape_tf as tf
    >>> tf.keras.utils.set_random_seed(1)
    """
    if not isinstance(seed, int):
        raise ValueError(f"Expected `seed` argument to be an integer. Received: {seed!r}")
    stdlib.seed(seed)
    np.random.seed(seed)
    tc.set_seed(seed)


def to_categorical(x: TensorLike, num_classes: int | None = None) -> Any:
    """Encode class numbers as vectors with a single 1, a float64 NumPy array.

    >>> import tape_tf as tf
    >>> tf.keras.utils.to_categorical([0, 2])
    array([[1., 0., 0.],
           [0., 0., 1.]])

    Raises:
        ValueError: a number is negative or not below `num_classes`.
    """
    numbers = np.asarray(x).astype(np.int64)
    if numbers.ndim > 1 and numbers.shape[-1] == 1:
        numbers = numbers[..., 0]
    count = int(numbers.max()) + 1 if num_classes is None else num_classes
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < count):
        raise ValueError(
            f"to_categorical: class numbers must be from 0 to {count - 1}; got {numbers.min()} to {numbers.max()}"
        )
    return np.eye(count)[numbers]


def normalize(x: TensorLike, axis: int = -1, order: int = 2) -> Any:
    """Divide an array by its norms along `axis`; vectors of zeros stay zero. Returns a NumPy array."""
    array = np.asarray(x)
    norm = np.linalg.norm(array, order, axis, keepdims=True)
    return array / np.where(norm == 0, 1, norm)


__getattr__ = absent("keras.utils")
