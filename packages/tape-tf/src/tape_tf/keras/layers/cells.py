"""Cells: one step of a recurrent layer, and the loop over the steps for cells of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import tape_core as tc
import tape_nn as nn
from tape_core.support import contextmanager, setting
from tape_core.typing import Shape

from tape_tf.conversion import native
from tape_tf.keras import activations, initializers
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.native import NativeLayer, refuse_options
from tape_tf.keras.layers.signature import signature_of
from tape_tf.keras.structures import leaves, map_structure
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import ActivationLike, ConstraintLike, InitializerLike, PartialShape, PyTree, RegularizerLike

# The dropout masks of a run over a sequence, by the layer and what they drop: each step drops the same elements.
_DROPOUT_MASKS: ContextVar[dict[tuple[int, str], tc.Tensor] | None] = ContextVar("dropout masks", default=None)

_LAYER_OPTIONS = ("name", "trainable", "dtype", "autocast", "input_shape", "input_dim")
"""Options of every layer."""

_IGNORED = ("unroll", "use_cudnn", "time_major", "implementation")
"""Options that are accepted and ignored: they choose an implementation."""


@contextmanager
def one_sequence() -> Iterator[None]:
    """A context for the steps of one sequence: they share their dropout masks."""
    with setting(_DROPOUT_MASKS, {}):
        yield


class RecurrentOptions(NativeLayer):
    """Base class of recurrent layers of tape_nn and of their cells; see :class:`tf.keras.layers.LSTM`."""

    _native_class: Any
    _gates: int
    dropout: float
    recurrent_dropout: float

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
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        # Sort the other keyword arguments: those of every layer, those of one kind, those without effect.
        own = {name: kwargs.pop(name) for name in _LAYER_OPTIONS if name in kwargs}
        gates: dict[str, Any] = {}
        if self._native_class is nn.LSTM:
            gates["unit_forget_bias"] = kwargs.pop("unit_forget_bias", True)
        if self._native_class is nn.GRU:
            gates["reset_after"] = bool(kwargs.pop("reset_after", True))
        if self._native_class is not nn.SimpleRNN:
            gates["recurrent_activation"] = activations.for_tape_nn(recurrent_activation)
            self.recurrent_activation = activations.get(recurrent_activation)
        for name in _IGNORED:
            kwargs.pop(name, None)
        sequences = {name: kwargs.pop(name) for name in ("return_sequences", "return_state") if name in kwargs}
        refuse_options(type(self).__name__, kwargs)
        for name, rate in (("dropout", dropout), ("recurrent_dropout", recurrent_dropout)):
            if not 0 <= rate <= 1:
                raise ValueError(f"{type(self).__name__}: {name} must be from 0 to 1; got {rate!r}")
        self.dropout, self.recurrent_dropout = float(dropout), float(recurrent_dropout)
        self._rng = None if seed is None else tc.default_rng(seed)
        self.activation = activations.get(activation)
        native_layer = self._native_class(
            units,
            activations.for_tape_nn(activation),
            use_bias=use_bias,
            kernel_initializer=initializers.for_tape_nn(kernel_initializer),
            recurrent_initializer=initializers.for_tape_nn(recurrent_initializer),
            bias_initializer=initializers.for_tape_nn(bias_initializer),
            **gates,
            **sequences,
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

    @property
    def state_size(self) -> Any:
        """The length of the state, or the lengths of its parts."""
        units = self.native.units
        return [units, units] if self._native_class is nn.LSTM else units

    @property
    def output_size(self) -> int:
        """The length of the output of a step."""
        return int(self.native.units)

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return zeros for each part of the state, of shape (examples, units)."""
        return [_zeros(batch_size, length, self.compute_dtype) for length in _as_list(self.state_size)]

    def _drop(self, what: str, value: tc.Tensor, rate: float, training: bool) -> tc.Tensor:
        """Return a value of one step with elements dropped, the same in each step of a sequence."""
        if not training or not rate:
            return value
        masks = _DROPOUT_MASKS.get()
        key = (id(self), what)
        mask = None if masks is None else masks.get(key)
        if mask is None:
            mask = tc.dropout(tc.ones_like(tc.stop_gradient(value)), rate, rng=self._rng)
            if masks is not None:
                masks[key] = mask
        return value * mask

    def take_step(self, x: tc.Tensor, state: Sequence[tc.Tensor], training: bool) -> tuple[tc.Tensor, ...]:
        """Return the state after one step, with dropout in training; its first part is the output."""
        x = self._drop("inputs", x, self.dropout, training)
        first = self._drop("state", state[0], self.recurrent_dropout, training)
        found: tuple[tc.Tensor, ...] = self.native.step(x, [first, *state[1:]])
        return found


class _Cell(RecurrentOptions):
    """Base class of LSTMCell, GRUCell and SimpleRNNCell."""

    def build(self, *shapes: Any) -> None:
        """Make the weights, for inputs of shape (examples, features)."""
        super().build((shapes[0][0], None, shapes[0][-1]))

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shapes[0][:-1], self._gates, self.native.units)]

    def call(self, inputs: Any, states: PyTree, training: bool = False) -> Any:  # type: ignore[override]
        """Return the output of a step, and the state after it in the form of `states`."""
        given = _as_list(states)
        found = self.take_step(native(inputs), [native(part) for part in given], bool(training))
        after = [wrap_tensor(part) for part in found]
        return after[0], (after if isinstance(states, list | tuple) else after[0])


class LSTMCell(_Cell):
    """One step of an LSTM; the arguments are those of :class:`LSTM`.

    >>> import tape_tf as tf
    >>> cell = tf.keras.layers.LSTMCell(4)
    >>> output, state = cell(tf.ones((2, 3)), cell.get_initial_state(batch_size=2))
    >>> output.shape, len(state)
    (TensorShape([2, 4]), 2)
    """

    _native_class, _gates = nn.LSTM, 4


class GRUCell(_Cell):
    """One step of a GRU; the arguments are those of :class:`GRU`."""

    _native_class, _gates = nn.GRU, 3


class SimpleRNNCell(_Cell):
    """One step of a recurrent layer without gates; the arguments are those of :class:`SimpleRNN`."""

    _native_class, _gates = nn.SimpleRNN, 1

    def __init__(
        self,
        units: int,
        activation: ActivationLike = "tanh",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units, activation, None, use_bias, kernel_initializer, recurrent_initializer, bias_initializer, **kwargs
        )


class StackedRNNCells(Layer):
    """Cells, one on top of the other, as one cell: the output of each is the input of the next.

    >>> import tape_tf as tf
    >>> cells = tf.keras.layers.StackedRNNCells([tf.keras.layers.GRUCell(4), tf.keras.layers.LSTMCell(3)])
    >>> tf.keras.layers.RNN(cells)(tf.ones((2, 5, 3))).shape
    TensorShape([2, 3])
    """

    def __init__(self, cells: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for cell in cells:
            check_cell(cell)
        self.cells = list(cells)

    @property
    def state_size(self) -> list[Any]:
        """The `state_size` of each cell."""
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> Any:
        """The length of the output of the last cell."""
        return output_size_of(self.cells[-1])

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return the state of each cell before the first step."""
        return [initial_state_of(cell, batch_size, self.compute_dtype) for cell in self.cells]

    def build(self, input_shape: PartialShape) -> None:
        """Make the weights of the cells, for inputs of shape (examples, features)."""
        shape = tuple(input_shape)
        for cell in self.cells:
            build_cell(cell, shape)
            shape = (shape[0], output_size_of(cell))
        self.built = True

    def call(self, inputs: Any, states: Sequence[PyTree], training: bool = False) -> Any:
        """Return the output of the last cell, and the states of all cells after the step."""
        after = []
        for cell, state in zip(self.cells, states, strict=True):
            inputs, new = call_cell(cell, inputs, state, bool(training))
            after.append(new)
        return inputs, after


# -- cells of any kind: objects with `state_size` that are called with inputs and states


def check_cell(cell: Any) -> None:
    """Raise a ValueError for an object that is no cell."""
    if not callable(cell) or not hasattr(cell, "state_size"):
        raise ValueError(
            f"a cell is called with inputs and states, and has state_size, the lengths of its states; got {cell!r}"
        )


def output_size_of(cell: Any) -> Any:
    """Return the length of a cell's output: by default that of the first part of its state."""
    found = getattr(cell, "output_size", None)
    return next(leaves(cell.state_size)) if found is None else found


def build_cell(cell: Any, shape: tuple[int | None, ...]) -> None:
    """Make the weights of a cell that is a layer, for inputs of shape (examples, features)."""
    if isinstance(cell, Layer) and not cell.built:
        cell.build(shape)
        cell.built = True


def initial_state_of(cell: Any, batch_size: int | None, dtype: str) -> list[Any]:
    """Return the state of a cell before the first step: what its `get_initial_state` says, or zeros."""
    own = getattr(cell, "get_initial_state", None)
    if own is not None:
        return _as_list(own(batch_size=batch_size))
    return list(map_structure(lambda n: _zeros(batch_size, n, dtype), _as_list(cell.state_size)))


def _zeros(batch_size: int | None, length: int, dtype: str) -> Tensor:
    """Return a part of a state before the first step."""
    if batch_size is None:
        raise ValueError("get_initial_state needs batch_size, the number of examples")
    return wrap_tensor(tc.zeros((batch_size, int(length)), dtype=getattr(tc, dtype)))


def call_cell(cell: Any, inputs: Any, states: PyTree, training: bool) -> tuple[Any, Any]:
    """Call a cell with one step; returns the output and a list of states."""
    options: dict[str, Any] = {}
    kind: Any = type(cell)
    if isinstance(cell, Layer) and signature_of(kind).training_position is not None:
        options["training"] = training
    output, after = cell(inputs, states, **options)
    return output, _as_list(after)


def _as_list(value: PyTree) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
