"""Base class of layers that are layers of tape_nn under Keras' names."""

from __future__ import annotations

from typing import Any

import tape_nn as nn

from tape_tf import dtypes
from tape_tf.conversion import native, wrap
from tape_tf.keras.layers.base import Layer
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import TensorLike
from tape_tf.variable import Variable


class NativeLayer(Layer):
    """A layer that delegates to one of tape_nn, `native`.

    The Variables of the native layer are the weights of this layer and, once they are made, its attributes.
    """

    native: Any

    def __init__(
        self, native_layer: nn.Module, options: dict[str, Any], weight_options: dict[str, Any] | None = None
    ) -> None:
        """Wrap a layer of tape_nn.

        Args:
            native_layer: the layer of tape_nn.
            options: arguments of :class:`Layer`.
            weight_options: regularizers and constraints by the names of weights, such as `kernel_regularizer`.
        """
        super().__init__(**options)
        self.native = native_layer
        if self._autocast_weights is not None and hasattr(native_layer, "compute_dtype"):
            native_layer.compute_dtype = self._autocast_weights
        self._weight_options = weight_options or {}
        self._bind()

    def _bind(self) -> None:
        """Adopt the Variables of the native layer, if it has made them."""
        for name, variable in self.native.named_variables():
            # The façade of the very Variable that the native layer computes with: an assignment to one is one to both.
            own: Variable = wrap(variable)
            variable.name = f"{self._scope()}{name}"
            self._register_weight(
                own, self._weight_options.get(f"{name}_regularizer"), self._weight_options.get(f"{name}_constraint")
            )
            # Past our own __setattr__, which refuses to replace a weight.
            object.__setattr__(self, name, own)

    def build(self, *shapes: Any) -> None:
        """Make the weights, for inputs of this shape."""
        if not self.built and not getattr(self.native, "built", True):
            self.native.build(*map(tuple, shapes), dtype=dtypes.native_dtype(self._dtype))
            self._bind()
        self.built = True

    def call(self, inputs: TensorLike) -> Tensor:
        """Call the native layer."""
        return wrap_tensor(self.native(native(inputs)))

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(vars(self).get(name), Variable):
            raise AttributeError(f"{self.name}.{name} is a weight of the layer; set its value with {name}.assign(...)")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not found otherwise: a weight that is not made yet, or an argument of the
        # native layer, such as `units`.
        if name.startswith("_") or name == "native" or not hasattr(self.native, name):
            return super().__getattr__(name)
        found = getattr(self.native, name)
        if found is None and not self.built and f"{name}_regularizer" in self._weight_options:
            raise AttributeError(
                f"You must build the layer before accessing `{name}`: call {self.name!r} once with an input, or "
                "build(input_shape)"
            )
        return wrap(found)


def refuse_options(layer: str, options: dict[str, Any], **defaults: Any) -> None:
    """Refuse options of a Keras layer that the layer here does not support, unless they have Keras' default.

    Raises:
        ValueError: an option is unknown, or has another value.
    """
    for name, value in options.items():
        if name not in defaults or value != defaults[name]:
            raise ValueError(
                f"{layer}: {name}={value!r} is not taken" + (f", only {defaults[name]!r}" if name in defaults else "")
            )
