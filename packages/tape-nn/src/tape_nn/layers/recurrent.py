"""Recurrent layers. The loop over the steps is Python's; the products with the inputs are made before it, in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tape_core as tc

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import Add, Function, Layer, activation_of, positive


class _Recurrent(Layer):
    """What LSTM and GRU share."""

    _ndim = 3
    _form = "(examples, steps, features)"
    _gates: ClassVar[int]
    _states: ClassVar[int]

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
        self.units = positive(self, "units", units)
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

    def __call__(self, x: Any, initial_state: Any = None) -> Any:
        """One tensor, or with `return_state` that and the state after the last step.

        Args:
            x: `(examples, steps, features)`, with a step or more.
            initial_state: as the layer returns it; by default zeros.
        """
        x = self._input(x)
        if x.shape[1] == 0:
            raise ValueError(f"{type(self).__name__} takes inputs of a step or more; got shape {x.shape}")
        state = self._first(x, initial_state)
        outputs = []
        recurrent = tc.asarray(self._value(self.recurrent_kernel))  # read once, not at each step
        bias_in, bias = self._biases()
        projected = tc.matmul(x, self._value(self.kernel))
        if bias_in is not None:
            projected = projected + bias_in
        for step in tc.unstack(projected, axis=1):
            state = self._step(step, state, recurrent, bias)
            if self.return_sequences:
                outputs.append(state[0])
        y = tc.stack(outputs, axis=1) if self.return_sequences else state[0]
        return (y, *state) if self.return_state else y

    def _first(self, x: tc.Tensor, initial_state: Any) -> tuple[tc.Tensor, ...]:
        shape = (x.shape[0], self.units)
        if initial_state is None:
            # Of x, so that they are where x is, inside vmap, too.
            zeros = tc.zeros(shape, dtype=x.dtype, backend=x.backend.root, device=x.device)
            return (zeros,) * self._states
        given = (initial_state,) if hasattr(initial_state, "shape") else tuple(initial_state)
        names = ("h", "c")[: self._states]
        if len(given) != self._states or any([tuple(getattr(s, "shape", ())) != shape for s in given]):
            shapes = [tuple(getattr(s, "shape", ())) for s in given]
            raise ValueError(
                f"{type(self).__name__}: initial_state must be {' and '.join(names)} of shape {shape}; got {shapes}"
            )
        return tuple([self._cast(tc.asarray(s)) for s in given])

    def _gated(self, z: tc.Tensor) -> Sequence[tc.Tensor]:
        """One tensor for each gate."""
        return tc.unstack(tc.reshape(z, (z.shape[0], self._gates, self.units)), axis=1)

    def _act(self, z: tc.Tensor) -> tc.Tensor:
        return z if self.activation is None else self.activation(z)

    def _gate(self, z: tc.Tensor) -> tc.Tensor:
        return z if self.recurrent_activation is None else self.recurrent_activation(z)

    def _biases(self) -> tuple[Any, Any]:
        """What is added to the products with the inputs, and to those with the state."""
        raise NotImplementedError

    def _step(self, x: tc.Tensor, state: Any, recurrent: tc.Tensor, bias: Any) -> tuple[tc.Tensor, ...]:
        """The state after one step; its first part is the output."""
        raise NotImplementedError


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with Keras' weights.

    With `i, f, g, o` the quarters of `x @ kernel + h @ recurrent_kernel + bias`, a step is

        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    and gives `h`: shape `(examples, units)` after the last step, or `(examples, steps, units)` with `return_sequences`.
    The state is `(h, c)`. `kernel` has shape `(features, 4 * units)`, `recurrent_kernel` `(units, 4 * units)`, `bias`
    `(4 * units,)`.

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
        units: how many numbers come out.
        activation, recurrent_activation: in place of `tanh` and `sigmoid` above, as for :class:`Dense`.
        use_bias: whether to add a bias.
        return_sequences: whether all outputs are returned, or the last.
        return_state: whether the state is returned, too: `(y, h, c)`.
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

    def _biases(self) -> tuple[Any, Any]:
        return self._value(self.bias), None

    def _step(self, x: tc.Tensor, state: Any, recurrent: tc.Tensor, bias: Any) -> tuple[tc.Tensor, ...]:
        h, c = state
        i, f, g, o = self._gated(x + tc.matmul(h, recurrent))
        c = self._gate(f) * c + self._gate(i) * self._act(g)
        return self._gate(o) * self._act(c), c

    def _create(self, add: Add, shape: Any) -> None:
        n = self.units
        add("kernel", (shape[-1], 4 * n), self.kernel_initializer)
        add("recurrent_kernel", (n, 4 * n), self.recurrent_initializer)
        if not self.use_bias:
            return

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

    and gives `h`: shape `(examples, units)` after the last step, or `(examples, steps, units)` with `return_sequences`.
    `kernel` has shape `(features, 3 * units)`, `recurrent_kernel` `(units, 3 * units)`, `bias` `(2, 3 * units)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> y, h = nn.GRU(4, return_sequences=True, return_state=True)(tc.ones((2, 5, 3)))
    >>> y.shape, h.shape
    ((2, 5, 4), (2, 4))

    Args: as for :class:`LSTM`, which alone has `unit_forget_bias`. The state is `h`.
    """

    _gates, _states = 3, 1

    def _biases(self) -> tuple[Any, Any]:
        bias = self._value(self.bias)
        return (None, None) if bias is None else (bias[0], bias[1])

    def _step(self, x: tc.Tensor, state: Any, recurrent: tc.Tensor, bias: Any) -> tuple[tc.Tensor, ...]:
        (h,) = state
        inner = tc.matmul(h, recurrent)
        if bias is not None:
            inner = inner + bias
        (z, r, g), (z_inner, r_inner, g_inner) = self._gated(x), self._gated(inner)
        z = self._gate(z + z_inner)
        new = self._act(g + self._gate(r + r_inner) * g_inner)
        return (new + z * (h - new),)

    def _create(self, add: Add, shape: Any) -> None:
        add("kernel", (shape[-1], 3 * self.units), self.kernel_initializer)
        add("recurrent_kernel", (self.units, 3 * self.units), self.recurrent_initializer)
        if self.use_bias:
            add("bias", (2, 3 * self.units), self.bias_initializer)
