"""The types that signatures of this package name, in the manner of `numpy.typing` and `jax.typing`.

TensorFlow's functions accept far more than tensors, so the `...Like` types are wide: each is what one conversion
accepts, and that conversion narrows it. Nothing here has a meaning at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import os

    import numpy as np
    import tape_core as tc

    from tape_tf.dtypes import DType
    from tape_tf.keras.metric import Metric
    from tape_tf.keras.optimizers import Optimizer
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
"""A value for `tf.convert_to_tensor`: tensors and Variables of tape_tf or tape_core, arrays, numbers, lists."""

DTypeLike: TypeAlias = "DType | tc.DType | np.dtype[Any] | type | str | None"
"""A value that `tf.as_dtype` accepts; None asks for the default."""

ShapeLike: TypeAlias = "TensorShape | Value | tc.Tensor | NumPyArray | Sequence[int | Value | None] | int | None"
"""A shape: lengths, None where one is not known, or a tensor of lengths. None alone is a shape of unknown rank."""

IntLike: TypeAlias = "int | Value | tc.Tensor | NumPyArray | np.integer[Any]"
"""A count or an axis: an int, or a tensor of one."""

Axis: TypeAlias = "IntLike | Sequence[IntLike] | None"
"""One axis, or several; None stands for all of them."""

IndexLike: TypeAlias = Any
"""A value that `tensor[...]` accepts: an int, a slice, `...`, `tf.newaxis`, a boolean mask, or a tuple of them."""

PyTree: TypeAlias = Any
"""A nested structure of tuples, lists, dicts and registered classes; the docstring says what its leaves are."""

# -- files

PathLike: TypeAlias = "str | os.PathLike[str]"

# -- tf.data

Element: TypeAlias = Any
"""An element of a dataset: a tuple, a named tuple or a dict, nested to any depth, of NumPy arrays; or one array."""

Leaf: TypeAlias = Any
"""A leaf of an element: a NumPy array, a tensor-like value, None, or a dataset that `window` made."""

# -- tf.keras

PartialShape: TypeAlias = "TensorShape | Sequence[Any]"
"""A shape with lengths that may not be known: ints, and None, above all for the number of examples of a batch."""

PerAxis: TypeAlias = "int | Sequence[int]"
"""A number for each spatial axis, or one for all of them."""

Config: TypeAlias = dict[str, Any]
"""The arguments of an object by name, as `get_config` returns and `from_config` takes them."""

Json: TypeAlias = Any
"""A value that JSON can hold: dicts with keys of text, lists, text, numbers, truth values and None."""

Logs: TypeAlias = "dict[str, Any] | None"
"""The numbers that callbacks receive, by name: `loss`, `val_loss`, the results of metrics."""

ActivationLike: TypeAlias = "Callable[[Any], Any] | str | None"
"""A value for `tf.keras.activations.get`: a function of a tensor, or a name."""

InitializerLike: TypeAlias = "Callable[..., Any] | str"
"""A value for `tf.keras.initializers.get`: an Initializer, a class, a function `f(shape, dtype)`, or a name."""

RegularizerLike: TypeAlias = "Callable[[Any], Any] | str | None"
"""A value for `tf.keras.regularizers.get`: a Regularizer, a function of a tensor that returns a penalty, or a name."""

ConstraintLike: TypeAlias = "Callable[[Any], Any] | str | None"
"""A value for `tf.keras.constraints.get`: a Constraint, a function of a weight that returns a weight, or a name."""

LossLike: TypeAlias = "Callable[..., Any] | str | None"
"""A value for `tf.keras.losses.get`: a Loss, a class, a function of labels and predictions, or a name."""

MetricLike: TypeAlias = "Metric | Callable[..., Any] | str | None"
"""A value for `tf.keras.metrics.get`: a Metric, a class, a function of labels and predictions, or a name."""

OptimizerLike: TypeAlias = "Optimizer | type[Optimizer] | str"
"""A value for `tf.keras.optimizers.get`: an Optimizer, a class, or a name."""
