"""The types that signatures of this package name, in the manner of `numpy.typing` and `jax.typing`.

TensorFlow's functions accept far more than tensors, so the `...Like` types are wide: each is what one conversion
accepts, and that conversion narrows it. Nothing here has a meaning at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import os

    import numpy as np
    import tape_core as tc

    from tape_tf.dtypes import DType
    from tape_tf.shapes import TensorShape
    from tape_tf.tensor import IndexedSlices, Value

# -- tensors

Scalar: TypeAlias = "int | float | complex | np.generic"  # spelled out, so that isinstance narrows it
"""A Python number or a NumPy scalar."""

NumPyArray: TypeAlias = "np.ndarray[Any, Any]"
"""A NumPy array of any shape and dtype."""

TensorLike: TypeAlias = (
    "Value | IndexedSlices | tc.Tensor | tc.IndexedSlices | NumPyArray | Scalar | Sequence[TensorLike]"
)
"""What `tf.convert_to_tensor` accepts: tensors and Variables of tape_tf or tape_core, arrays, numbers, nested lists."""

DTypeLike: TypeAlias = "DType | tc.DType | np.dtype[Any] | type | str | None"
"""What `tf.as_dtype` accepts; None asks for the default."""

ShapeLike: TypeAlias = "TensorShape | Value | tc.Tensor | NumPyArray | Sequence[int | Value | None] | int | None"
"""A shape: lengths, None where one is not known, or a tensor of lengths. None alone is a shape of unknown rank."""

IntLike: TypeAlias = "int | Value | tc.Tensor | NumPyArray | np.integer[Any]"
"""A count or an axis: an int, or a tensor of one."""

Axis: TypeAlias = "IntLike | Sequence[IntLike] | None"
"""One axis, or several; None stands for all of them."""

IndexLike: TypeAlias = Any
"""What `tensor[...]` accepts: an int, a slice, `...`, `tf.newaxis`, a boolean mask, or a tuple of them."""

PyTree: TypeAlias = Any
"""A nested structure of tuples, lists, dicts and registered classes; the docstring says what its leaves are."""

# -- files

PathLike: TypeAlias = "str | os.PathLike[str]"

# -- tf.keras

Shape: TypeAlias = tuple[int | None, ...]
"""A shape as Keras writes it: None for a length that differs between batches, in front of all the batch itself."""

Config: TypeAlias = dict[str, Any]
"""What `get_config` returns: plain values from which `from_config` makes the object again, as they are in a file."""

Logs: TypeAlias = "dict[str, Any] | None"
"""The numbers that callbacks get, by name: `loss`, `val_loss`, those of metrics."""

Function: TypeAlias = Callable[..., Any]
"""A function of the user's, called with façade tensors."""

Weighting: TypeAlias = "Mapping[str, Any] | Sequence[Any] | float | None"
"""Factors of the outputs of a model: by output's name, in order, or one for all."""
