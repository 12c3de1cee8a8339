"""Layers: Modules that map one tensor to another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, overload

import tape_core as tc
from tape_core.random import global_rng

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.module import Module

Layer: TypeAlias = Callable[[Any], tc.Tensor]

ACTIVATIONS: Final = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "softplus", "softmax", "log_softmax"
)  # fmt: skip
"""The functions of `tape_core` that layers take by name; "linear" is none at all."""


class Dense(Module):
    """A fully connected layer: `activation(x @ kernel + bias)`.

    The Variables are made at the first call, from what it is called with: `kernel` has shape
    `(x.shape[-1], units)`, and both have the backend, the device and the dtype of `x`, or the
    default dtype if `x` holds integers.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.Dense(3, activation="relu")
    >>> layer.variables
    ()
    >>> layer(tc.ones((5, 2))).shape
    (5, 3)
    >>> [(name, v.shape) for name, v in layer.named_variables()]
    [('kernel', (2, 3)), ('bias', (3,))]

    Args:
        units: how many numbers come out.
        activation: a callable, the name of one in tape_core ("relu", "tanh", ...), or None.
        use_bias: whether to add a bias.
        kernel_initializer, bias_initializer: see :mod:`tape_nn.initializers`.
        rng: draws the kernel's first values; by default the generator that `tape_core.set_seed`
            seeds.
    """

    def __init__(
        self,
        units: int,
        activation: Layer | str | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer | str = "glorot_uniform",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
    ) -> None:
        self.units = operator.index(units)
        if self.units < 1:
            raise ValueError(f"Dense: units must be at least 1; got {units}")
        self.activation = _activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.rng = rng
        self.kernel: tc.Variable | None = None
        self.bias: tc.Variable | None = None

    def __call__(self, x: Any) -> tc.Tensor:
        if not isinstance(x, tc.Tensor):
            x = tc.asarray(x)
        kernel = self.kernel
        if kernel is None:
            kernel = self._build(x)
        elif x.shape[-1:] != kernel.shape[:1]:
            raise ValueError(
                f"Dense was built for inputs with {kernel.shape[0]} numbers on the last axis; got shape {x.shape}"
            )
        if not x.dtype.inexact:
            x = tc.astype(x, kernel.dtype)
        y = tc.matmul(x, kernel)
        if self.bias is not None:
            y = y + self.bias
        return y if self.activation is None else self.activation(y)

    def _build(self, x: tc.Tensor) -> tc.Variable:
        if x.ndim == 0:
            raise ValueError("Dense needs inputs of at least one dimension; got shape ()")
        rng = global_rng() if self.rng is None else self.rng
        dtype = x.dtype if x.dtype.inexact else tc.get_default_dtype()
        where: dict[str, Any] = {"dtype": dtype, "backend": x.backend, "device": x.device}
        shape = (x.shape[-1], self.units)
        kernel = tc.Variable(self.kernel_initializer(shape, rng=rng, **where), name="kernel", **where)
        if self.use_bias:
            bias = self.bias_initializer((self.units,), rng=rng, **where)
            self.bias = tc.Variable(bias, name="bias", **where)
        self.kernel = kernel
        return kernel


class Sequential(Module):
    """Layers called one after the other: each a Module or any callable of one tensor.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model = nn.Sequential([nn.Dense(8), tc.relu, nn.Dense(2)])
    >>> model(tc.ones((4, 3))).shape
    (4, 2)
    >>> model
    <Sequential: 4 variables, 50 parameters>
    >>> len(model), model[0].units
    (3, 8)
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = list(layers)
        for index, layer in enumerate(self.layers):
            if not callable(layer):
                raise TypeError(f"Sequential: layer {index} of type {type(layer).__name__!r} is not callable")

    def __call__(self, x: Any) -> tc.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Layer | Sequential:
        """One layer, or for a slice a Sequential that shares the layers."""
        if isinstance(index, slice):
            return Sequential(self.layers[index])
        return self.layers[index]


def _activation(activation: Layer | str | None) -> Layer | None:
    if activation is None or activation == "linear":
        return None
    if callable(activation):
        return activation
    if activation in ACTIVATIONS:
        function: Layer = getattr(tc, activation)
        return function
    raise ValueError(f"unknown activation {activation!r}; pass a callable, None or one of " + ", ".join(ACTIVATIONS))
