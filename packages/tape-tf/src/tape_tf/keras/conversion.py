"""Conversion of the inputs of layers, losses and metrics: Keras casts where TensorFlow refuses another dtype."""

from __future__ import annotations

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native
from tape_tf.keras.backend import floatx
from tape_tf.typing import DTypeLike, TensorLike


def cast(value: TensorLike, dtype: DTypeLike = None) -> tc.Tensor:
    """Convert a tensor-like value to a tape_core Tensor of a dtype, by default Keras' float type."""
    wanted = dtypes.native_dtype(floatx() if dtype is None else dtype)
    tensor = native(value)
    return tensor if tensor.dtype is wanted else tc.astype(tensor, wanted)


def autocast(value: TensorLike, dtype: DTypeLike) -> tc.Tensor:
    """Convert a tensor-like value to a tape_core Tensor, and cast it to `dtype` if it is real floating."""
    tensor = native(value)
    return cast(tensor, dtype) if tensor.dtype.kind == "real floating" else tensor


def match_ranks(y_true: tc.Tensor, y_pred: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
    """Add or remove a last axis of length 1, so that labels and predictions have the same number of axes.

    Keras does so, and thus accepts labels of shape (n,) for predictions of shape (n, 1), and the reverse.
    """
    if y_true.ndim == y_pred.ndim + 1 and y_true.shape[-1] == 1:
        # (n, 1) and (n,) meet as (n, 1): a loss takes its mean along the last axis, and of (n,) that would be one
        # number.
        if y_pred.ndim == 1:
            return y_true, tc.expand_dims(y_pred, axis=-1)
        return tc.squeeze(y_true, axis=-1), y_pred
    if y_pred.ndim == y_true.ndim + 1 and y_pred.shape[-1] == 1:
        if y_true.ndim == 1:
            return tc.expand_dims(y_true, axis=-1), y_pred
        return y_true, tc.squeeze(y_pred, axis=-1)
    return y_true, y_pred


def to_class_ids(y_true: tc.Tensor, y_pred: tc.Tensor, axis: int = -1) -> tc.Tensor:
    """Return labels as integers, without the axis of classes that `y_pred` has."""
    if not y_true.dtype.kind.endswith("integer"):
        y_true = tc.astype(y_true, tc.int64)
    # Labels of shape (n, 1), as data sets often have them.
    if y_true.ndim == y_pred.ndim and y_true.ndim and y_true.shape[axis] == 1:
        y_true = tc.squeeze(y_true, axis=axis)
    return y_true
