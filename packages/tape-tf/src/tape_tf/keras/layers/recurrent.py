"""Recurrent layers, and wrappers that apply a layer along an axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import tape_core as tc
import tape_nn as nn
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.cells import (
    RecurrentOptions,
    StackedRNNCells,
    build_cell,
    call_cell,
    check_cell,
    initial_state_of,
    one_sequence,
)
from tape_tf.keras.layers.signature import signature_of
from tape_tf.keras.masks import as_mask, expand_mask
from tape_tf.keras.structures import leaves, map_structure
from tape_tf.keras.symbolic import is_probing
from tape_tf.tensor import Tensor
from tape_tf.typing import ActivationLike, InitializerLike, PyTree, TensorLike
from tape_tf.variable import Variable


class SequenceLayer(Layer):
    """Base class of layers that read a sequence step by step: RNN, LSTM, GRU and SimpleRNN."""

    supports_masking = True

    return_sequences: bool
    return_state: bool
    go_backwards = False
    stateful = False
    zero_output_for_mask = False
    _state_variables: list[Variable] | None = None

    def _run(
        self, value: tc.Tensor, state: PyTree, mask: tc.Tensor | None, training: bool
    ) -> tuple[tc.Tensor, list[Any]]:
        """Return the output of the last step or of all, and the state after the last step.

        Args:
            state: the state before the first step, in the structure of `state_size`; None for the cell's own.
            mask: of shape (examples, steps); None if all steps count.
        """
        raise NotImplementedError

    def call(
        self, sequences: TensorLike, initial_state: PyTree = None, mask: PyTree = None, training: bool = False
    ) -> Any:
        """Return the output of the last step, or of all; with `return_state` the state after the last step, too.

        Args:
            mask: of shape (examples, steps): steps where it is False leave the state as it is.
        """
        value = native(sequences)
        counts = self._steps_that_count(mask, value)
        if self.go_backwards:
            # The outputs stay in the order in which they were computed, from the last step to the first, as in Keras.
            value = tc.flip(value, axis=1)
            counts = None if counts is None else tc.flip(counts, axis=1)
        state = None if initial_state is None else map_structure(native, _as_list(initial_state))
        if state is None and self.stateful:
            state = self._stored_state(value.shape[0])
        with one_sequence():
            y, after = self._run(value, state, counts, bool(training))
        if self.zero_output_for_mask and counts is not None:
            shown = counts if self.return_sequences else counts[:, -1]
            y = tc.where(expand_mask(shown, y.ndim), y, 0)
        if self.stateful and not is_probing():
            assert self._state_variables is not None
            for variable, part in zip(self._state_variables, leaves(after), strict=True):
                variable.native.assign(tc.stop_gradient(part))
        return [wrap(y), *map_structure(wrap, after)] if self.return_state else wrap(y)

    def _steps_that_count(self, mask: PyTree, value: tc.Tensor) -> tc.Tensor | None:
        """Return a mask of shape (examples, steps).

        Raises:
            ValueError: the mask has another shape.
        """
        found = next(leaves(mask), None)
        if found is None:
            return None
        counts = as_mask(found)
        if counts.ndim == 3 and counts.shape[-1] == 1:
            counts = tc.squeeze(counts, axis=-1)
        if counts.shape != value.shape[:2]:
            raise ValueError(
                f"{self.name}: a mask must have the shape (examples, steps), {value.shape[:2]} here; got {counts.shape}"
            )
        return counts

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the mask of the input if all outputs are returned, else None."""
        return next(leaves(mask), None) if self.return_sequences else None

    # -- the state that a stateful layer keeps

    @property
    def states(self) -> list[Variable] | None:
        """The state that a stateful layer begins its next sequence with; None before the first."""
        return self._state_variables

    def reset_state(self) -> None:
        """Set the state of a stateful layer to zeros.

        Raises:
            AttributeError: the layer is not stateful.
        """
        if not self.stateful:
            raise AttributeError(f"Layer {self.name!r} keeps no state: make it with stateful=True")
        for variable in self._state_variables or []:
            variable.native.assign(tc.zeros_like(variable.native))

    reset_states = reset_state

    def _start_state(self, batch_size: int | None) -> list[Any]:
        """Return the state before the first step, as façade tensors."""
        raise NotImplementedError

    def _make_state(self, batch_size: int | None) -> None:
        """Make the Variables of a stateful layer."""
        if batch_size is None:
            raise ValueError(
                f"{self.name}: a stateful layer needs the number of examples in a batch: give Input a batch_size, or "
                "call the layer once"
            )
        start = self._start_state(batch_size)
        self._state_variables = [Variable(part, trainable=False, name="state") for part in leaves(start)]

    def _stored_state(self, batch_size: int) -> Any:
        """Return the state that the sequence before left, in the structure of `state_size`."""
        assert self._state_variables is not None
        if any([part.shape[0] != batch_size for part in self._state_variables]):
            raise ValueError(
                f"{self.name} is stateful, and was built for batches of {self._state_variables[0].shape[0]} examples; "
                f"got {batch_size}. All batches must have the same number: give it as batch_size of the Input"
            )
        stored = iter([native(part) for part in self._state_variables])
        return map_structure(lambda _: next(stored), self._start_state(batch_size))


class RNN(SequenceLayer):
    """A loop over the steps of a sequence, each of which a cell computes.

    >>> import tape_tf as tf
    >>> class Sum(tf.keras.layers.Layer):
    ...     state_size = 2
    ...     def call(self, inputs, states):
    ...         total = states[0] + inputs
    ...         return total, [total]
    >>> tf.keras.layers.RNN(Sum())(tf.ones((1, 3, 2))).numpy()
    array([[3., 3.]], dtype=float32)

    Args:
        cell: an object with `state_size` that is called with the input of a step and a list of states, and returns the
            output and a list of new states; or a list of such, see :class:`StackedRNNCells`.
        return_sequences: return the outputs of all steps, and not that of the last.
        return_state: return the state after the last step, too.
        go_backwards: read the steps from the last to the first.
        stateful: begin each sequence with the state that the one before left, until `reset_state`.
        unroll: no effect.
        zero_output_for_mask: steps that a mask hides have zeros as output, instead of the output before.
    """

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(cell, list | tuple):
            cell = StackedRNNCells(cell)
        check_cell(cell)
        self.cell = cell
        self.return_sequences, self.return_state = return_sequences, return_state
        self.go_backwards, self.stateful = go_backwards, stateful
        self.zero_output_for_mask = zero_output_for_mask

    @property
    def state_size(self) -> Any:
        """The length of the cell's state, or the lengths of its parts."""
        return self.cell.state_size

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """Return the state before the first step."""
        return initial_state_of(self.cell, batch_size, self.compute_dtype)

    _start_state = get_initial_state  # type: ignore[assignment]

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        """Make the weights of the cell, for inputs of shape (examples, steps, features)."""
        build_cell(self.cell, (sequences_shape[0], *sequences_shape[2:]))
        if self.stateful:
            self._make_state(sequences_shape[0])
        self.built = True

    def _run(
        self, value: tc.Tensor, state: PyTree, mask: tc.Tensor | None, training: bool
    ) -> tuple[tc.Tensor, list[Any]]:
        states = self.get_initial_state(value.shape[0]) if state is None else map_structure(wrap, state)

        def step(x: tc.Tensor, before: PyTree) -> tuple[tc.Tensor, Any]:
            output, after = call_cell(self.cell, wrap(x), map_structure(wrap, before), training)
            return native(output), map_structure(native, after)

        return _loop(step, value, map_structure(native, states), mask, self.return_sequences)


class _Recurrent(SequenceLayer, RecurrentOptions):
    """Base class of LSTM, GRU and SimpleRNN; see :class:`LSTM` for the arguments."""

    def __init__(
        self,
        units: int,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ) -> None:
        self.return_sequences, self.return_state = return_sequences, return_state
        self.go_backwards, self.stateful = go_backwards, stateful
        self.zero_output_for_mask = zero_output_for_mask
        super().__init__(
            units,
            activation,
            recurrent_activation,
            use_bias,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            return_sequences=return_sequences,
            return_state=True,
            **kwargs,
        )

    def _start_state(self, batch_size: int | None) -> list[Any]:
        return self.get_initial_state(batch_size)

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        """Make the weights, for inputs of shape (examples, steps, features)."""
        if self.stateful and self._state_variables is None:
            self._make_state(sequences_shape[0])
        super().build(sequences_shape)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shape[:-1], self._gates, self.native.units) for shape in shapes]

    def _run(
        self, value: tc.Tensor, state: PyTree, mask: tc.Tensor | None, training: bool
    ) -> tuple[tc.Tensor, list[Any]]:
        if training and self.recurrent_dropout:
            start = self.get_initial_state(value.shape[0]) if state is None else state

            def step(x: tc.Tensor, before: Sequence[tc.Tensor]) -> tuple[tc.Tensor, Any]:
                after = list(self.take_step(x, before, training))
                return after[0], after

            return _loop(step, value, [native(part) for part in start], mask, self.return_sequences)
        if training and self.dropout:
            # The same features are dropped in all steps.
            shape = (value.shape[0], 1, *value.shape[2:])
            value = tc.dropout(value, self.dropout, rng=self._rng, noise_shape=shape)
        y, *after = self.native(value, state, mask)
        return y, after


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997): see :class:`tape_nn.LSTM`.

    >>> import tape_tf as tf
    >>> tf.keras.layers.LSTM(4, return_sequences=True)(tf.ones((2, 5, 3))).shape
    TensorShape([2, 5, 4])

    Args:
        units: the number of outputs for each step.
        activation, recurrent_activation, use_bias: as for :class:`tape_nn.LSTM`.
        return_sequences, return_state, go_backwards, stateful, zero_output_for_mask: as for :class:`RNN`.
        dropout: the probability that a feature of the inputs is dropped in training, in all steps.
        recurrent_dropout: the same for the state.
        seed: the seed of the dropout.
        kernel_initializer and the others: as for :class:`Dense`.
        kwargs: `unit_forget_bias`, and the arguments of :class:`Layer`.
    """

    __tf_differs__ = "a mask counts with initial_state, too; of recurrent dropout there is one mask for all gates"

    _native_class, _gates = nn.LSTM, 4


class GRU(_Recurrent):
    """A gated recurrent unit (Cho et al., 2014): see :class:`tape_nn.GRU`, and :class:`LSTM` for the arguments.

    `reset_after=False` applies the reset gate before the product with the recurrent kernel, as older models do.
    """

    __tf_differs__ = LSTM.__tf_differs__

    _native_class, _gates = nn.GRU, 3


class SimpleRNN(_Recurrent):
    """A recurrent layer without gates: see :class:`tape_nn.SimpleRNN`, and :class:`LSTM` for the arguments.

    >>> import tape_tf as tf
    >>> tf.keras.layers.SimpleRNN(4)(tf.ones((2, 5, 3))).shape
    TensorShape([2, 4])
    """

    __tf_differs__ = "a mask counts with initial_state, too"

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


def _loop(
    step: Any, value: tc.Tensor, state: Any, mask: tc.Tensor | None, return_sequences: bool
) -> tuple[tc.Tensor, list[Any]]:
    """Call `step(x, state)`, which returns the output and the new state, for each step of a sequence."""
    outputs: list[tc.Tensor] = []
    output = None
    for k, x in enumerate(tc.unstack(value, axis=1)):
        new, after = step(x, state)
        if mask is not None:
            counts = mask[:, k]
            # A hidden step repeats the output before it, and leaves the state as it is.
            new = tc.where(expand_mask(counts, new.ndim), new, tc.zeros_like(new) if output is None else output)
            kept = leaves(state)
            after = map_structure(partial(_where_counted, counts, kept), after)
        state, output = after, new
        if return_sequences:
            outputs.append(new)
    if output is None:
        raise ValueError(f"a recurrent layer takes inputs of a step or more; got shape {value.shape}")
    return (tc.stack(outputs, axis=1) if return_sequences else output), list(state)


def _where_counted(counts: tc.Tensor, before: Iterator[tc.Tensor], part: tc.Tensor) -> tc.Tensor:
    """Return a part of the new state where the step counts, else the next one of the state before."""
    return tc.where(expand_mask(counts, part.ndim), part, next(before))


class Bidirectional(Layer):
    """A recurrent layer that reads the steps in order, and another that reads them from the last to the first.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(4))(tf.ones((2, 5, 3))).shape
    TensorShape([2, 8])

    Args:
        layer: an LSTM, GRU, SimpleRNN or RNN.
        merge_mode: how the two outputs are merged: "concat", "sum", "mul", "ave", or None for a list.
        backward_layer: the layer that reads backwards; by default a copy of `layer`, with weights of its own.
    """

    __tf_differs__ = "of recurrent layers; the forward layer is the given one, not a copy"

    supports_masking = True

    def __init__(
        self, layer: Layer, merge_mode: str | None = "concat", backward_layer: Layer | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        for given in (layer, backward_layer):
            if given is not None and not isinstance(given, SequenceLayer):
                raise ValueError(f"Bidirectional takes an LSTM, GRU, SimpleRNN or RNN; got {type(given).__name__!r}")
        if merge_mode not in _MERGES:
            raise ValueError(f"merge_mode must be one of {', '.join(map(repr, _MERGES))}; got {merge_mode!r}")
        assert isinstance(layer, SequenceLayer)
        self.forward_layer = layer
        # The copy reads backwards, and its sequence of outputs is flipped back in `call`.
        self.backward_layer: Any = _reversed_copy(layer) if backward_layer is None else backward_layer
        if layer.return_sequences:
            # The outputs of the two at a hidden step would come from different steps.
            layer.zero_output_for_mask = self.backward_layer.zero_output_for_mask = True
        self.merge_mode = merge_mode

    def call(
        self, sequences: TensorLike, initial_state: PyTree = None, mask: PyTree = None, training: bool = False
    ) -> Any:
        """Return both outputs, merged; with `return_state` the states, too."""
        states: list[Any] = [None, None]
        if initial_state is not None:
            given = _as_list(initial_state)
            # One list for both directions, the forward one's first: Keras' order.
            states = [given[: len(given) // 2], given[len(given) // 2 :]]
        forward = _as_list(self.forward_layer(sequences, initial_state=states[0], mask=mask))
        backward = _as_list(self.backward_layer(sequences, initial_state=states[1], mask=mask))
        y, z = forward[0], backward[0]
        if self.backward_layer.return_sequences:
            z = wrap(tc.flip(native(z), axis=1))  # into the order of the steps
        merged = _MERGES[self.merge_mode](y, z)
        if not self.forward_layer.return_state:
            return merged
        return [*_as_list(merged), *forward[1:], *backward[1:]]

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the mask of the input for each sequence of outputs; None if only the last is returned."""
        own = self.forward_layer.compute_mask(inputs, mask)
        return [own, own] if self.merge_mode is None else own

    def reset_state(self) -> None:
        """Set the states of stateful layers to zeros."""
        self.forward_layer.reset_state()
        self.backward_layer.reset_state()

    reset_states = reset_state


def _reversed_copy(layer: SequenceLayer) -> Any:
    """Return a recurrent layer with weights of its own that reads in the other direction."""
    config = layer.get_config() | {"name": f"backward_{layer.name}", "go_backwards": not layer.go_backwards}
    if isinstance(layer, RNN):
        config["cell"] = _copied_cell(layer.cell)
    return type(layer).from_config(config)


def _copied_cell(cell: Any) -> Any:
    """Return a cell of the same settings, with weights of its own."""
    if isinstance(cell, StackedRNNCells):
        return StackedRNNCells([_copied_cell(part) for part in cell.cells])
    if not hasattr(cell, "get_config"):
        raise ValueError(f"Bidirectional: {cell!r} has no get_config() to copy it by; give a backward_layer")
    return type(cell).from_config(cell.get_config())


class TimeDistributed(Layer):
    """Apply a layer to each step of inputs of shape (examples, steps, ...)."""

    supports_masking = True

    def __init__(self, layer: Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer

    def call(self, inputs: TensorLike, training: bool | None = None, mask: TensorLike | None = None) -> Any:
        """Return shape (examples, steps, ...)."""
        value = native(inputs)
        if value.ndim < 3:
            raise ValueError(f"TimeDistributed takes inputs of shape (examples, steps, ...); got shape {value.shape}")
        options: dict[str, Any] = {}
        # A mask with more axes, such as one of words in sentences, has a part for each step.
        kind: Any = type(self.layer)
        if mask is not None and native(mask).ndim > 2 and "mask" in signature_of(kind).names:
            options["mask"] = wrap(_join_steps(as_mask(mask)))
        # Steps become examples, so that the layer is called once.
        y = self.layer(wrap(_join_steps(value)), **options)
        return map_structure(lambda part: _split_steps(part, value.shape[:2]), y)

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the mask of the steps."""
        if mask is None:
            return None
        counts = as_mask(mask)
        # A step counts if anything in it does.
        return mask if counts.ndim == 2 else wrap(tc.any(counts, axis=tuple(range(2, counts.ndim))))


def _join_steps(value: tc.Tensor) -> tc.Tensor:
    n, steps = value.shape[:2]
    return tc.reshape(value, (n * steps, *value.shape[2:]))


def _split_steps(part: TensorLike, shape: Shape) -> Tensor:
    found = native(part)
    return wrap(tc.reshape(found, (*shape, *found.shape[1:])))  # type: ignore[no-any-return]


def _as_list(value: PyTree) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


_MERGES: dict[str | None, Any] = {
    "concat": lambda y, z: wrap(tc.concat([native(y), native(z)], axis=-1)),
    "sum": lambda y, z: y + z,
    "mul": lambda y, z: y * z,
    "ave": lambda y, z: (y + z) / 2.0,
    None: lambda y, z: [y, z],
}
