"""What layers, losses and metrics do with their inputs: Keras casts where TensorFlow would refuse."""

from __future__ import annotations

from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native
from tape_tf.keras.backend import floatx


def cast(value: Any, dtype: Any = None) -> tc.Tensor:
    """A tensor-like value as a tape_core Tensor of this dtype, by default Keras' float type."""
    wanted = dtypes.native_dtype(floatx() if dtype is None else dtype)
    tensor = native(value)
    return tensor if tensor.dtype is wanted else tc.astype(tensor, wanted)


def autocast(value: Any, dtype: Any) -> tc.Tensor:
    """The same for real floating values; others keep their dtype."""
    tensor = native(value)
    return cast(tensor, dtype) if tensor.dtype.kind == "real floating" else tensor


def same_rank(y_true: tc.Tensor, y_pred: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
    """Where one of the two has a last axis of length 1 more than the other: the two with as many axes.

    Keras does so, and so shape (n,) goes together with (n, 1).
    """
    if y_true.ndim == y_pred.ndim + 1 and y_true.shape[-1] == 1:
        if y_pred.ndim == 1:
            return y_true, tc.expand_dims(y_pred, axis=-1)
        return tc.squeeze(y_true, axis=-1), y_pred
    if y_pred.ndim == y_true.ndim + 1 and y_pred.shape[-1] == 1:
        if y_true.ndim == 1:
            return tc.expand_dims(y_true, axis=-1), y_pred
        return y_true, tc.squeeze(y_pred, axis=-1)
    return y_true, y_pred


def class_numbers(y_true: tc.Tensor, y_pred: tc.Tensor, axis: int = -1) -> tc.Tensor:
    """Labels as integers of the shape of `y_pred` without its classes."""
    if not y_true.dtype.kind.endswith("integer"):
        y_true = tc.astype(y_true, tc.int64)
    if y_true.ndim == y_pred.ndim and y_true.ndim and y_true.shape[axis] == 1:
        y_true = tc.squeeze(y_true, axis=axis)
    return y_true
