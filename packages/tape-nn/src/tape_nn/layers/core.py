"""Dense, Embedding and Dropout; Activation, Flatten and Sequential, which have no Variables of their own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, overload

import tape_core as tc
from tape_core.support import asarray_beside, lenient
from tape_core.typing import ArrayLike, DTypeLike

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import (
    AddVariable,
    Function,
    Layer,
    Shape,
    activation_of,
    check_fraction,
    check_positive_integer,
)
from tape_nn.module import Module
from tape_nn.types import BackendLike


class Dense(Layer):
    """A fully connected layer: `activation(x @ kernel + bias)`.

    The Variables are made at the first call: `kernel` has shape `(x.shape[-1], units)`, and both have
    the backend, the device and the dtype of `x`, or the default dtype if `x` holds integers.

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
        units: the number of output features.
        activation: a callable, the name of one in tape_core ("relu", "tanh", ...), or None.
        use_bias: whether to add a bias.
        kernel_initializer, bias_initializer: see :mod:`tape_nn.initializers`.
        rng: the generator for the kernel's first values; by default the one that `tape_core.set_seed` seeds.
    """

    def __init__(
        self,
        units: int,
        activation: Function | str | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer | str = "glorot_uniform",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
    ) -> None:
        self.units = check_positive_integer(self, "units", units)
        self.activation = activation_of(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.rng = rng
        self.kernel: tc.Variable | None = None
        self.bias: tc.Variable | None = None

    def __call__(self, x: ArrayLike) -> tc.Tensor:
        y = tc.matmul(self._cast_input(x), self._cast_variable(self.kernel))
        if self.bias is not None:
            y = y + self._cast_variable(self.bias)
        return y if self.activation is None else self.activation(y)

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        add("kernel", (shape[-1], self.units), self.kernel_initializer)
        if self.use_bias:
            add("bias", (self.units,), self.bias_initializer)


class Embedding(Layer):
    """A table of vectors, looked up by integer ids: the output has shape `ids.shape + (output_dim,)`.

    The gradient of the table is :class:`~tape_core.IndexedSlices`: only the rows that were looked up.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.Embedding(1000, 16)
    >>> layer(tc.asarray([[3, 7, 3]])).shape
    (1, 3, 16)
    >>> [(name, v.shape) for name, v in layer.named_variables()]
    [('embeddings', (1000, 16))]

    Args:
        input_dim: the number of rows. Ids are less than this; negative ones count from the end.
        output_dim: the length of a row.
        embeddings_initializer: see :mod:`tape_nn.initializers`.
        rng: the generator for the first values, as for :class:`Dense`.
    """

    # No axis of the ids: the table has the same shape for all inputs.
    _sized_axes = ()

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Initializer | str = "uniform",
        rng: tc.Generator | None = None,
    ) -> None:
        self.input_dim = check_positive_integer(self, "input_dim", input_dim)
        self.output_dim = check_positive_integer(self, "output_dim", output_dim)
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.rng = rng
        self.embeddings: tc.Variable | None = None

    def build(
        self,
        input_shape: Shape = (),
        *,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> None:
        """Make the table, which does not depend on the shape of inputs."""
        super().build(input_shape, dtype=dtype, backend=backend, device=device)

    def __call__(self, ids: ArrayLike) -> tc.Tensor:
        ids = self._as_tensor(ids)
        if not ids.dtype.kind.endswith("integer"):
            raise TypeError(f"Embedding takes integers; got dtype {ids.dtype}")
        ids = self._built_input(ids)
        try:
            rows = tc.gather(self.embeddings, ids)
        # The op's message names no layer, and a vocabulary that is too small is the usual cause.
        except IndexError as error:
            raise IndexError(f"Embedding: an id is out of bounds for {self.input_dim} rows: {error}") from error
        return self._cast(rows)  # not the table, whose gradient would become dense

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        add("embeddings", (self.input_dim, self.output_dim), self.embeddings_initializer)


class Activation(Module):
    """An activation as a layer of its own. :class:`Sequential` takes the function itself as well.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.Activation("relu")(tc.asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]

    Args:
        activation: as for :class:`Dense`.
    """

    def __init__(self, activation: Function | str | None) -> None:
        self.activation = activation_of(activation)

    def __call__(self, x: ArrayLike) -> tc.Tensor:
        if not isinstance(x, tc.Tensor):
            x = tc.asarray(x)
        return x if self.activation is None else self.activation(x)


class Dropout(Module):
    """Dropout: in training each element is set to 0 with probability `rate`, and divided by `1 - rate` otherwise.

    Outside of training the input is returned unchanged.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.Dropout(0.5, rng=tc.default_rng(1))
    >>> x = tc.ones((2, 3))
    >>> layer(x).tolist()
    [[2.0, 0.0, 2.0], [2.0, 0.0, 2.0]]
    >>> layer(x, training=False).tolist() == layer.eval()(x).tolist() == x.tolist()
    True

    Args:
        rate: from 0 to 1.
        noise_shape: as for :func:`tape_core.dropout`; None in place of a length stands for that of the input.
        rng: the generator of the random mask; by default the one that `tape_core.set_seed` seeds.
    """

    def __init__(
        self, rate: float, noise_shape: tuple[int | None, ...] | None = None, rng: tc.Generator | None = None
    ) -> None:
        self.rate = check_fraction(self, "rate", rate)
        self.noise_shape = noise_shape
        self.rng = rng

    def __call__(self, x: ArrayLike, training: bool | None = None) -> tc.Tensor:
        """Drop elements of `x` if `training` is True; by default the module's mode decides."""
        training = self.training if training is None else training
        if not isinstance(x, tc.Tensor):
            x = tc.asarray(x)
        return tc.dropout(x, self.rate, training=training, rng=self.rng, noise_shape=self._mask_shape(x.shape))

    def _mask_shape(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return `noise_shape` for an input of this shape: None becomes the length of the input."""
        given = self.noise_shape
        if given is None:
            return None
        lengths = ((1,) * len(given) + shape)[-len(given) :]  # a mask broadcasts from the last axis on
        return tuple([m if n is None else n for n, m in zip(given, lengths, strict=False)])


class Flatten(Module):
    """Reshape each example to one row: shape `(examples, ...)` becomes `(examples, features)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.Flatten()(tc.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __call__(self, x: ArrayLike) -> tc.Tensor:
        if not isinstance(x, tc.Tensor):
            x = tc.asarray(x)
        if x.ndim == 0:
            raise ValueError("Flatten takes inputs of shape (examples, ...); got shape ()")
        return tc.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


class Sequential(Module):
    """A chain of layers, each a Module or any callable of one tensor.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model = nn.Sequential([nn.Dense(8), tc.relu, nn.Dense(2)])
    >>> model(tc.ones((4, 3))).shape
    (4, 2)
    >>> model
    <Sequential: 4 variables, 50 parameters
      (0): <Dense: 2 variables, 32 parameters>
      (1): relu
      (2): <Dense: 2 variables, 18 parameters>
    >
    >>> len(model), model[0].units
    (3, 8)
    """

    def __init__(self, layers: Iterable[Function], *others: Function) -> None:
        # As PyTorch's takes them, each an argument of its own.
        if others or not isinstance(layers, Iterable):
            raise TypeError("Sequential takes its layers as one list: nn.Sequential([first, second, ...])")
        self.layers = list(layers)
        for index, layer in enumerate(self.layers):
            if not callable(layer):
                raise TypeError(f"Sequential: layer {index} of type {type(layer).__name__!r} is not callable")

    def __call__(self, x: ArrayLike, training: bool | None = None) -> tc.Tensor:
        """Call the layers in order. `training`, if it is not None, is passed to the Modules whose call takes it."""
        # The first layer may have no Variables to place an array by, as Flatten has none; those behind it do.
        if not isinstance(x, tc.Tensor) and hasattr(x, "dtype") and (own := self.variables):
            x = asarray_beside(x, own[0])
        for layer in self.layers:
            # Plain functions and Modules without a mode, such as Dense, take one argument.
            kind: Any = type(layer)
            if training is not None and issubclass(kind, Module) and _takes_training(kind):
                x = layer(x, training=training)  # type: ignore[call-arg]
            else:
                x = layer(x)
        return x  # type: ignore[no-any-return]

    def build(
        self, input_shape: Shape, *, dtype: DTypeLike = None, backend: BackendLike = None, device: str | None = None
    ) -> None:
        """Make the Variables of all layers, by a call with an array of zeros.

        Args:
            input_shape: the shape of the first layer's input; a length that is None is taken as 1.
            dtype, backend, device: of that input; the Variables are as after any first call.
        """
        # A length of 1 for what may vary: the cheapest call that every layer can make its Variables from.
        shape = tuple([1 if n is None else n for n in input_shape])
        # Not training: dropout would draw random numbers, and BatchNorm average zeros into its statistics.
        self(tc.zeros(shape, dtype=dtype, backend=backend, device=device), training=False)

    @lenient
    def __repr__(self) -> str:
        # As PyTorch writes it: a line for each layer, with its index.
        lines = [f"({index}): {_shown(layer)}".replace("\n", "\n  ") for index, layer in enumerate(self.layers)]
        return "\n  ".join([f"{super().__repr__()[:-1]}", *lines]) + ("\n>" if lines else ">")

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Function]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> Function: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Function | Sequential:
        """One layer, or for a slice a Sequential that shares the layers."""
        if isinstance(index, slice):
            return Sequential(self.layers[index])
        return self.layers[index]


def _shown(layer: Function) -> str:
    """Return the text of a layer: that of a Module, or the name of a function."""
    text: str = getattr(layer, "__name__", "")  # of a function; a Module has none
    return text or repr(layer)


# Cached by class: inspecting a signature takes as long as a small layer.
@cache
def _takes_training(kind: type) -> bool:
    return "training" in inspect.signature(kind.__call__).parameters
