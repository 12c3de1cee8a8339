"""Layers that call functions: Lambda, and the operators between symbolic tensors."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from tape_core.typing import Shape

from tape_tf import dtypes
from tape_tf.keras.layers.base import Layer, try_broadcast
from tape_tf.keras.masks import mask_of
from tape_tf.keras.naming import auto_name
from tape_tf.keras.structures import is_array, leaves
from tape_tf.keras.symbolic import KerasTensor
from tape_tf.typing import (
    PartialShape,
    PyTree,
    TensorLike,
)


class Lambda(Layer):
    """A layer that calls a function of tensors.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Lambda(lambda x: x ** 2)(tf.constant([3.0])).numpy()
    array([9.], dtype=float32)

    Args:
        function: is called with the input and with `arguments`. Variables that it reads are not weights of the layer.
        output_shape: no effect: the shape of the output is inferred.
        mask: the mask of the output, or a function `mask(inputs, mask_of_inputs)` that returns it.
        arguments: further arguments, by name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: PartialShape | None = None,
        mask: Any = None,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.function = function
        self.mask = mask
        self.supports_masking = mask is not None
        self.arguments = dict(arguments or {})
        # The function gets `mask` and `training` if it has parameters of these names.
        written = inspect.unwrap(function)
        # Of functions written in Python only: to find the signature of others, Python compiles text.
        names = inspect.signature(written).parameters if hasattr(written, "__code__") else ()
        self._takes = tuple([name for name in ("mask", "training") if name in names and name not in self.arguments])

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return try_broadcast(*shapes, *[np.shape(value) for value in leaves(self.arguments) if is_array(value)])

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the mask of the output."""
        return self.mask(inputs, mask) if callable(self.mask) else self.mask

    def call(self, inputs: TensorLike, mask: PyTree = None, training: bool | None = None) -> Any:
        """Call the function."""
        known = {"mask": mask, "training": training}
        return self.function(inputs, **self.arguments, **{name: known[name] for name in self._takes})


class Operation(Layer):
    """The layer that an operator between symbolic tensors becomes; it calls a function of several tensors."""

    _masks_inside = True  # functions of tensors lose masks, as they do eagerly: no warning is due

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(name=name)
        self.function = function

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        if self.function is operator.matmul and len(shapes) == 2 and min(map(len, shapes)) > 0:
            # A product of matrices does not broadcast elementwise: rows of x and columns of y.
            x, y = shapes
            return [(*batch, *x[-2:-1], *y[len(y) - 1 :]) for batch in try_broadcast(x[:-2], y[:-2])]
        return try_broadcast(*shapes)

    def call(self, *inputs: Any) -> Any:
        """Call the function."""
        return self.function(*inputs)


# Keras names the layers of operators after its functions.
_KERAS_NAMES = {
    "getitem": "get_item",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "pow": "power",
    "neg": "negative",
    "abs": "absolute",
}


def _define_operator(name: str, reflected: bool) -> None:
    """Define an operator of KerasTensor, and its reflected form: each use makes an Operation, and calls it."""
    function = getattr(operator, name)
    label = _KERAS_NAMES.get(name, name)

    def forward(self: KerasTensor, *others: Any) -> Any:
        return Operation(function, name=auto_name(label))(self, *others)

    def backward(self: KerasTensor, other: TensorLike) -> Any:
        # A layer makes a tensor of its first argument: of an integer one of int32, which fits no floats.
        if isinstance(other, int) and not isinstance(other, bool) and dtypes.as_dtype(self.dtype).is_floating:
            other = float(other)
        return Operation(function, name=auto_name(label))(other, self)

    setattr(KerasTensor, f"__{name}__", forward)
    if reflected:
        setattr(KerasTensor, f"__r{name}__", backward)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    _define_operator(_name, reflected=True)
for _name in ("lt", "le", "gt", "ge", "neg", "abs", "getitem"):
    _define_operator(_name, reflected=False)


def _symbolic_mask(self: KerasTensor) -> Any:
    """Return the mask of a symbolic tensor, a symbolic tensor as well; None if it has none."""
    return Operation(mask_of, name=auto_name("mask"))(self) if self._mask_ndim is not None else None


KerasTensor._keras_mask = property(_symbolic_mask)
