"""Recurrent layers, and wrappers that apply a layer along an axis of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tape_core as tc
import tape_nn as nn
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras import activations, initializers
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.native import NativeLayer, refuse_options
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import ActivationLike, ConstraintLike, InitializerLike, PyTree, RegularizerLike, TensorLike

_UNSUPPORTED: dict[str, Any] = {"dropout": 0.0, "recurrent_dropout": 0.0, "stateful": False, "reset_after": True}
"""Options of Keras' recurrent layers that are not supported, with the values at which they change nothing."""

_IGNORED = ("unroll", "use_cudnn", "time_major", "implementation", "seed")
"""Options that are accepted and ignored: they choose an implementation, or seed a dropout that there is not."""

_LAYER_OPTIONS = ("name", "trainable", "dtype", "autocast", "input_shape", "input_dim")
"""Options of every layer."""

_GATES = 4  # of an LSTM; a GRU has 3


class _Recurrent(NativeLayer):
    """Base class of LSTM and GRU; see :class:`LSTM` for the arguments."""

    _native_class: Any

    def __init__(
        self,
        units: int,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        recurrent_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        activity_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        recurrent_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        **kwargs: Any,
    ) -> None:
        # Sort the keyword arguments: those of every layer, those of the LSTM, those without effect. The rest must
        # have Keras' defaults.
        own = {name: kwargs.pop(name) for name in _LAYER_OPTIONS if name in kwargs}
        gates = {
            name: kwargs.pop(name) for name in ("unit_forget_bias",) if name in kwargs and self._native_class is nn.LSTM
        }
        for name in _IGNORED:
            kwargs.pop(name, None)
        refuse_options(type(self).__name__, kwargs, **_UNSUPPORTED)
        self.activation = activations.get(activation)
        self.recurrent_activation = activations.get(recurrent_activation)
        self.go_backwards = go_backwards
        native_layer = self._native_class(
            units,
            activations.for_tape_nn(activation),
            activations.for_tape_nn(recurrent_activation),
            use_bias,
            return_sequences,
            return_state,
            kernel_initializer=initializers.for_tape_nn(kernel_initializer),
            recurrent_initializer=initializers.for_tape_nn(recurrent_initializer),
            bias_initializer=initializers.for_tape_nn(bias_initializer),
            **gates,
        )
        extras = {
            "kernel_regularizer": kernel_regularizer,
            "recurrent_kernel_regularizer": recurrent_regularizer,
            "bias_regularizer": bias_regularizer,
            "kernel_constraint": kernel_constraint,
            "recurrent_kernel_constraint": recurrent_constraint,
            "bias_constraint": bias_constraint,
        }
        super().__init__(native_layer, {"activity_regularizer": activity_regularizer, **own}, extras)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shape[:-1], _GATES, self.native.units) for shape in shapes]

    def call(
        self, sequences: TensorLike, initial_state: PyTree = None, mask: None = None, training: bool = False
    ) -> Any:
        """Return the output of the last step, or of all; with `return_state` the last state, too."""
        if mask is not None:
            raise ValueError(f"{type(self).__name__}: there are no masks")
        value = native(sequences)
        if self.go_backwards:
            # The outputs stay in the order in which they were computed, from the last step to the first, as in Keras.
            value = tc.flip(value, axis=1)
        state = None if initial_state is None else [native(s) for s in _as_list(initial_state)]
        found = wrap(self.native(value, state))
        return list(found) if isinstance(found, tuple) else found


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997): see :class:`tape_nn.LSTM`.

    >>> import tape_tf as tf
    >>> tf.keras.layers.LSTM(4, return_sequences=True)(tf.ones((2, 5, 3))).shape
    TensorShape([2, 5, 4])

    Args:
        units: the number of outputs for each step.
        activation, recurrent_activation, use_bias, return_sequences, return_state: as for :class:`tape_nn.LSTM`.
        go_backwards: read the steps from the last to the first.
        kernel_initializer and the others: as for :class:`Dense`.
        kwargs: `unit_forget_bias`, and the arguments of :class:`Layer`.

    Raises:
        ValueError: `dropout`, `recurrent_dropout` or `stateful` is set; they are not supported.
    """

    __tf_differs__ = "no dropout inside, no state from batch to batch, no masks"

    _native_class = nn.LSTM


class GRU(_Recurrent):
    """A gated recurrent unit (Cho et al., 2014): see :class:`tape_nn.GRU`, and :class:`LSTM` for the arguments."""

    __tf_differs__ = "no dropout inside, no state from batch to batch, no masks"

    _native_class = nn.GRU


class Bidirectional(Layer):
    """A recurrent layer that reads the steps in order, and another that reads them from the last to the first.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(4))(tf.ones((2, 5, 3))).shape
    TensorShape([2, 8])

    Args:
        layer: an LSTM or GRU.
        merge_mode: how the two outputs are merged: "concat", "sum", "mul", "ave", or None for a list.
        backward_layer: the layer that reads backwards; by default a copy of `layer`, with weights of its own.
    """

    __tf_differs__ = "of LSTM and GRU; no masks"

    def __init__(
        self, layer: Layer, merge_mode: str | None = "concat", backward_layer: Layer | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(layer, _Recurrent):
            raise ValueError(f"Bidirectional takes an LSTM or GRU; got {type(layer).__name__!r}")
        if merge_mode not in _MERGES:
            raise ValueError(f"merge_mode must be one of {', '.join(map(repr, _MERGES))}; got {merge_mode!r}")
        self.forward_layer = layer
        # The copy reads backwards, and its sequence of outputs is flipped back in `call`.
        config = layer.get_config() | {"name": f"backward_{layer.name}", "go_backwards": not layer.go_backwards}
        self.backward_layer = type(layer).from_config(config) if backward_layer is None else backward_layer
        self.merge_mode = merge_mode

    def call(self, sequences: TensorLike, initial_state: PyTree = None, training: bool = False) -> Any:
        """Return both outputs, merged; with `return_state` the states, too."""
        states: list[Any] = [None, None]
        if initial_state is not None:
            given = _as_list(initial_state)
            # One list for both directions, the forward one's first: Keras' order.
            states = [given[: len(given) // 2], given[len(given) // 2 :]]
        forward = _as_list(self.forward_layer(sequences, initial_state=states[0]))
        backward = _as_list(self.backward_layer(sequences, initial_state=states[1]))
        y, z = forward[0], backward[0]
        if self.backward_layer.return_sequences:
            z = wrap(tc.flip(native(z), axis=1))  # into the order of the steps
        merged = _MERGES[self.merge_mode](y, z)
        if not self.forward_layer.return_state:
            return merged
        return [*_as_list(merged), *forward[1:], *backward[1:]]


class TimeDistributed(Layer):
    """Apply a layer to each step of inputs of shape (examples, steps, ...)."""

    def __init__(self, layer: Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer

    def call(self, inputs: TensorLike, training: bool | None = None) -> Tensor:
        """Return shape (examples, steps, ...)."""
        value = native(inputs)
        if value.ndim < 3:
            raise ValueError(f"TimeDistributed takes inputs of shape (examples, steps, ...); got shape {value.shape}")
        n, steps = value.shape[:2]
        # Steps become examples, so that the layer is called once.
        y = native(self.layer(wrap(tc.reshape(value, (n * steps, *value.shape[2:])))))
        return wrap_tensor(tc.reshape(y, (n, steps, *y.shape[1:])))


def _as_list(value: PyTree) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


_MERGES: dict[str | None, Any] = {
    "concat": lambda y, z: wrap(tc.concat([native(y), native(z)], axis=-1)),
    "sum": lambda y, z: y + z,
    "mul": lambda y, z: y * z,
    "ave": lambda y, z: (y + z) / 2.0,
    None: lambda y, z: [y, z],
}
