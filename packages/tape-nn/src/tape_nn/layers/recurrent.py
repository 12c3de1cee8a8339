"""Recurrent layers: LSTM, GRU and SimpleRNN.

The loop over the steps is a Python loop. The product of the inputs with the kernel does not depend on the state, and
is computed before the loop, for all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import tape_core as tc
from tape_core.support import asarray_beside
from tape_core.typing import ArrayLike

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import AddVariable, Function, Layer, activation_of, check_positive_integer

State: TypeAlias = tuple[tc.Tensor, ...]
"""The state between two steps: `(h, c)` of an LSTM, `(h,)` of the others, each of shape `(examples, units)`."""


class _Recurrent(Layer):
    """Base class of LSTM, GRU and SimpleRNN."""

    _input_ndim = 3
    _input_form = "(examples, steps, features)"
    _gates: ClassVar[int]  # the number of parts that a product with a kernel has
    _states: ClassVar[int]  # the number of tensors in the state

    def __init__(
        self,
        units: int,
        activation: Function | str | None = "tanh",
        recurrent_activation: Function | str | None = "sigmoid",
        use_bias: bool = True,
        return_sequences: bool = False,
        return_state: bool = False,
        kernel_initializer: Initializer | str = "glorot_uniform",
        recurrent_initializer: Initializer | str = "orthogonal",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
    ) -> None:
        self.units = check_positive_integer(self, "units", units)
        self.activation = activation_of(activation)
        self.recurrent_activation = activation_of(recurrent_activation)
        self.use_bias = use_bias
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.rng = rng
        self.kernel: tc.Variable | None = None
        self.recurrent_kernel: tc.Variable | None = None
        self.bias: tc.Variable | None = None

    def __call__(
        self,
        x: ArrayLike,
        initial_state: ArrayLike | Sequence[ArrayLike] | None = None,
        mask: ArrayLike | None = None,
    ) -> Any:
        """Return the output as one tensor; with `return_state` a tuple of that and the state after the last step.

        Args:
            x: `(examples, steps, features)`, with a step or more.
            initial_state: the state before the first step, as the layer returns it; by default zeros.
            mask: booleans of shape `(examples, steps)`: a step where it is False, such as padding, leaves the state of
                its example as it was, and its output is that of the step before, zeros at the beginning.

        Raises:
            ValueError: a shape does not fit the layer, or the mask is not boolean.
        """
        x = self._cast_input(x)
        if x.shape[1] == 0:
            raise ValueError(f"{type(self).__name__} takes inputs of a step or more; got shape {x.shape}")
        state = self._initial_state(x, initial_state)
        outputs = []
        # A read of a Variable asks all open tapes whether they watch it: read it once, and not at each step.
        recurrent = tc.asarray(self._cast_variable(self.recurrent_kernel))
        bias_in, bias = self._biases()
        projected = tc.matmul(x, self._cast_variable(self.kernel))
        if bias_in is not None:
            projected = projected + bias_in
        # One op for all steps, whose VJP stacks the cotangents once. The VJP of `projected[:, k]` makes an array of
        # zeros of the size of `projected` in each step.
        counts = None if mask is None else _unstack_mask(type(self).__name__, mask, x)
        output = None
        for k, step in enumerate(tc.unstack(projected, axis=1)):
            new = self._step(step, state, recurrent, bias)
            if counts is None:
                state, output = new, new[0]
            else:
                output = tc.where(counts[k], new[0], tc.zeros_like(new[0]) if output is None else output)
                state = tuple([tc.where(counts[k], now, before) for now, before in zip(new, state, strict=True)])
            if self.return_sequences:
                outputs.append(output)
        y = tc.stack(outputs, axis=1) if self.return_sequences else output
        return (y, *state) if self.return_state else y

    def step(self, x: ArrayLike, state: ArrayLike | Sequence[ArrayLike] | None = None) -> State:
        """Return the state after one step, for a loop of one's own; its first part is the output.

        >>> import tape_core as tc
        >>> import tape_nn as nn
        >>> layer = nn.GRU(4)
        >>> state = layer.step(tc.ones((2, 3)))
        >>> layer.step(tc.ones((2, 3)), state)[0].shape
        (2, 4)

        Args:
            x: the input of the step, `(examples, features)`.
            state: the state before it; by default zeros.
        """
        x = self._as_tensor(x)
        if x.ndim != 2:
            raise ValueError(f"{type(self).__name__}.step takes inputs (examples, features); got shape {x.shape}")
        x = self._cast_input(tc.expand_dims(x, axis=1))
        before = self._initial_state(x, state)
        bias_in, bias = self._biases()
        projected = tc.matmul(x[:, 0], self._cast_variable(self.kernel))
        if bias_in is not None:
            projected = projected + bias_in
        return self._step(projected, before, tc.asarray(self._cast_variable(self.recurrent_kernel)), bias)

    def _initial_state(self, x: tc.Tensor, initial_state: ArrayLike | Sequence[ArrayLike] | None) -> State:
        """Return the state before the first step.

        Raises:
            ValueError: `initial_state` has not the right number of parts, or one has a wrong shape.
        """
        shape = (x.shape[0], self.units)
        if initial_state is None:
            # `root` is the backend without vmap's hidden axes: all examples share the zeros.
            zeros = tc.zeros(shape, dtype=x.dtype, backend=x.backend.root, device=x.device)
            return (zeros,) * self._states
        # A tensor could be iterated over, too: it is one state, not a sequence of them.
        given = (initial_state,) if hasattr(initial_state, "shape") else tuple(initial_state)
        names = ("h", "c")[: self._states]
        if len(given) != self._states or any([tuple(getattr(s, "shape", ())) != shape for s in given]):
            shapes = [tuple(getattr(s, "shape", ())) for s in given]
            raise ValueError(
                f"{type(self).__name__}: initial_state must be {' and '.join(names)} of shape {shape}; got {shapes}"
            )
        return tuple([self._cast(asarray_beside(s, x)) for s in given])

    def _split_gates(self, z: tc.Tensor) -> Sequence[tc.Tensor]:
        """Split a product with a kernel into one tensor for each gate."""
        return tc.unstack(tc.reshape(z, (z.shape[0], self._gates, self.units)), axis=1)

    def _activate(self, z: tc.Tensor) -> tc.Tensor:
        return z if self.activation is None else self.activation(z)

    def _activate_gate(self, z: tc.Tensor) -> tc.Tensor:
        return z if self.recurrent_activation is None else self.recurrent_activation(z)

    def _biases(self) -> tuple[tc.Tensor | None, tc.Tensor | None]:
        """Return the bias of the products with the inputs, and that of the products with the state."""
        raise NotImplementedError

    def _step(self, x: tc.Tensor, state: State, recurrent: tc.Tensor, bias: tc.Tensor | None) -> State:
        """Return the state after one step; its first part is the output.

        Args:
            x: the product of one step's input with the kernel, bias included.
            state: the state before.
            recurrent: the recurrent kernel.
            bias: the bias of the products with the state.
        """
        raise NotImplementedError


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with Keras' weights.

    With `i, f, g, o` the quarters of `x @ kernel + h @ recurrent_kernel + bias`, a step is

        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    The output is `h` after the last step, of shape `(examples, units)`, or with `return_sequences` after all steps,
    `(examples, steps, units)`. The state is `(h, c)`. `kernel` has shape `(features, 4 * units)`, `recurrent_kernel`
    `(units, 4 * units)`, `bias` `(4 * units,)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> x = tc.ones((2, 5, 3))
    >>> nn.LSTM(4)(x).shape, nn.LSTM(4, return_sequences=True)(x).shape
    ((2, 4), (2, 5, 4))
    >>> layer = nn.LSTM(4, return_state=True)
    >>> y, h, c = layer(x)
    >>> layer(x, initial_state=(h, c))[0].shape
    (2, 4)

    Args:
        units: the number of output features.
        activation, recurrent_activation: in place of `tanh` and `sigmoid` above, as for :class:`Dense`.
        use_bias: whether to add a bias.
        return_sequences: whether to return the outputs of all steps, and not that of the last.
        return_state: whether to return the state as well: `(y, h, c)`.
        unit_forget_bias: whether the bias of `f` starts at 1 (Jozefowicz and others, 2015).
        kernel_initializer, recurrent_initializer, bias_initializer, rng: as for :class:`Dense`.
    """

    _gates, _states = 4, 2

    def __init__(
        self,
        units: int,
        activation: Function | str | None = "tanh",
        recurrent_activation: Function | str | None = "sigmoid",
        use_bias: bool = True,
        return_sequences: bool = False,
        return_state: bool = False,
        unit_forget_bias: bool = True,
        kernel_initializer: Initializer | str = "glorot_uniform",
        recurrent_initializer: Initializer | str = "orthogonal",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
    ) -> None:
        super().__init__(
            units,
            activation,
            recurrent_activation,
            use_bias,
            return_sequences,
            return_state,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            rng,
        )
        self.unit_forget_bias = unit_forget_bias

    def _biases(self) -> tuple[tc.Tensor | None, tc.Tensor | None]:
        return self._cast_variable(self.bias), None

    def _step(self, x: tc.Tensor, state: State, recurrent: tc.Tensor, bias: tc.Tensor | None) -> State:
        h, c = state
        # The order of the gates in the kernels is Keras', and PyTorch's.
        i, f, g, o = self._split_gates(x + tc.matmul(h, recurrent))
        c = self._activate_gate(f) * c + self._activate_gate(i) * self._activate(g)
        return self._activate_gate(o) * self._activate(c), c

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        n = self.units
        add("kernel", (shape[-1], 4 * n), self.kernel_initializer)
        add("recurrent_kernel", (n, 4 * n), self.recurrent_initializer)
        if not self.use_bias:
            return

        # A forget gate that starts open, sigmoid(1) = 0.73, lets gradients through many steps from the beginning.
        def with_forget_bias(shape: tuple[int, ...], **keywords: Any) -> tc.Tensor:
            i = self.bias_initializer((n,), **keywords)
            f = initializers.ones((n,), **keywords)
            return tc.concat([i, f, self.bias_initializer((2 * n,), **keywords)])

        add("bias", (4 * n,), with_forget_bias if self.unit_forget_bias else self.bias_initializer)


class GRU(_Recurrent):
    """A gated recurrent unit (Cho and others, 2014), with Keras' weights and its `reset_after=True`, as in PyTorch.

    With `z, r, g` the thirds of `x @ kernel + bias[0]` and `z', r', g'` those of `h @ recurrent_kernel + bias[1]`, a
    step is

        z = sigmoid(z + z')
        h = z * h + (1 - z) * tanh(g + sigmoid(r + r') * g')

    The output is `h` after the last step, of shape `(examples, units)`, or with `return_sequences` after all steps,
    `(examples, steps, units)`. `kernel` has shape `(features, 3 * units)`, `recurrent_kernel` `(units, 3 * units)`,
    `bias` `(2, 3 * units)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> y, h = nn.GRU(4, return_sequences=True, return_state=True)(tc.ones((2, 5, 3)))
    >>> y.shape, h.shape
    ((2, 5, 4), (2, 4))

    Args: as for :class:`LSTM`, which alone has `unit_forget_bias`. The state is `h`. `reset_after=False` is the cell of
        the paper: `g'` is the product with `sigmoid(r + r') * h`, and there is one bias, of shape `(3 * units,)`.
    """

    _gates, _states = 3, 1

    def __init__(
        self,
        units: int,
        activation: Function | str | None = "tanh",
        recurrent_activation: Function | str | None = "sigmoid",
        use_bias: bool = True,
        return_sequences: bool = False,
        return_state: bool = False,
        kernel_initializer: Initializer | str = "glorot_uniform",
        recurrent_initializer: Initializer | str = "orthogonal",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
        reset_after: bool = True,
    ) -> None:
        super().__init__(
            units,
            activation,
            recurrent_activation,
            use_bias,
            return_sequences,
            return_state,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            rng,
        )
        self.reset_after = reset_after

    def _biases(self) -> tuple[tc.Tensor | None, tc.Tensor | None]:
        bias = self._cast_variable(self.bias)
        if bias is None or not self.reset_after:
            return bias, None
        return bias[0], bias[1]

    def _step(self, x: tc.Tensor, state: State, recurrent: tc.Tensor, bias: tc.Tensor | None) -> State:
        (h,) = state
        if not self.reset_after:
            (z, r, g), last = self._split_gates(x), 2 * self.units
            z_inner, r_inner = tc.split(tc.matmul(h, recurrent[:, :last]), 2, axis=1)
            z = self._activate_gate(z + z_inner)
            new = self._activate(g + tc.matmul(self._activate_gate(r + r_inner) * h, recurrent[:, last:]))
            return (new + z * (h - new),)
        inner = tc.matmul(h, recurrent)
        if bias is not None:
            inner = inner + bias
        # The reset gate multiplies the product with the state and not the state (`reset_after`): so that product is one
        # for all three gates, and the weights are those of cuDNN. PyTorch's order of the gates is r, z, g.
        (z, r, g), (z_inner, r_inner, g_inner) = self._split_gates(x), self._split_gates(inner)
        z = self._activate_gate(z + z_inner)
        new = self._activate(g + self._activate_gate(r + r_inner) * g_inner)
        return (new + z * (h - new),)  # z * h + (1 - z) * new, with one product less

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        add("kernel", (shape[-1], 3 * self.units), self.kernel_initializer)
        add("recurrent_kernel", (self.units, 3 * self.units), self.recurrent_initializer)
        if self.use_bias:
            add("bias", (2, 3 * self.units) if self.reset_after else (3 * self.units,), self.bias_initializer)


class SimpleRNN(_Recurrent):
    """A recurrent layer without gates (Elman, 1990), with Keras' weights.

    A step is `h = tanh(x @ kernel + h @ recurrent_kernel + bias)`. The output is `h` after the last step, of shape
    `(examples, units)`, or with `return_sequences` after all steps, `(examples, steps, units)`. `kernel` has shape
    `(features, units)`, `recurrent_kernel` `(units, units)`, `bias` `(units,)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.SimpleRNN(4, return_sequences=True)(tc.ones((2, 5, 3))).shape
    (2, 5, 4)

    Args: as for :class:`LSTM`, without `recurrent_activation` and `unit_forget_bias`. The state is `h`.
    """

    _gates, _states = 1, 1

    def __init__(
        self,
        units: int,
        activation: Function | str | None = "tanh",
        use_bias: bool = True,
        return_sequences: bool = False,
        return_state: bool = False,
        kernel_initializer: Initializer | str = "glorot_uniform",
        recurrent_initializer: Initializer | str = "orthogonal",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
    ) -> None:
        super().__init__(
            units,
            activation,
            None,
            use_bias,
            return_sequences,
            return_state,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            rng,
        )

    def _biases(self) -> tuple[tc.Tensor | None, tc.Tensor | None]:
        return self._cast_variable(self.bias), None

    def _step(self, x: tc.Tensor, state: State, recurrent: tc.Tensor, bias: tc.Tensor | None) -> State:
        return (self._activate(x + tc.matmul(state[0], recurrent)),)

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        add("kernel", (shape[-1], self.units), self.kernel_initializer)
        add("recurrent_kernel", (self.units, self.units), self.recurrent_initializer)
        if self.use_bias:
            add("bias", (self.units,), self.bias_initializer)


def _unstack_mask(layer: str, mask: ArrayLike, x: tc.Tensor) -> Sequence[tc.Tensor]:
    """Return the mask of each step, of shape `(examples, 1)`.

    Raises:
        ValueError: the mask is not boolean, or has not the shape of examples and steps.
    """
    mask = mask if isinstance(mask, tc.Tensor) else asarray_beside(mask, x)
    if mask.dtype is not tc.bool or mask.shape != x.shape[:2]:
        raise ValueError(
            f"{layer}: mask must be boolean, of shape {x.shape[:2]}; got dtype {mask.dtype}, shape {mask.shape}"
        )
    return tc.unstack(tc.expand_dims(mask, axis=-1), axis=1)
