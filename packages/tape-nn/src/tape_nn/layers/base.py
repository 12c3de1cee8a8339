"""What layers share: Variables that are made from the first input, and activations by name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import tape_core as tc
from tape_core.base.forking import Lock
from tape_core.base.mistakes import integer, real
from tape_core.random import global_rng

from tape_nn.initializers import Initializer
from tape_nn.module import Module

Function: TypeAlias = Callable[[Any], tc.Tensor]
Shape: TypeAlias = Sequence[int | None]
Add: TypeAlias = Callable[..., None]

ACTIVATIONS: Final = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "softplus", "softmax", "log_softmax", "elu", "selu", "leaky_relu",
    "relu6", "hard_sigmoid", "hard_silu", "log_sigmoid", "mish",
)  # fmt: skip
"""The functions of `tape_core` that layers take by name; "linear" is none at all."""


BUILDING: Final = Lock()
"""Held by the thread that makes the Variables of a layer, so that all threads of a first call get the same ones."""


class Layer(Module):
    """A Module that makes its Variables at the first call, or in :meth:`build`.

    They have the backend and the device of the first input, and its dtype, or the default dtype if it holds integers.
    """

    rng: tc.Generator | None = None
    compute_dtype: tc.DType | None = None
    """What input and Variables are cast to, see :func:`tape_nn.mixed_precision`; None for what they are."""
    _form = "(..., features)"
    _ndim: int | None = None
    _axes: tuple[int, ...] = (-1,)  # those whose lengths the Variables depend on
    _lengths: dict[int, int] | None = None
    _dtype: tc.DType

    @property
    def built(self) -> bool:
        """Whether the Variables have been made."""
        return self._lengths is not None

    def build(self, input_shape: Shape, *, dtype: Any = None, backend: Any = None, device: str | None = None) -> None:
        """Make the Variables for inputs of this shape, without calling the layer.

        Args:
            input_shape: what the Variables do not depend on, such as the number of examples, may be None.
            dtype, backend, device: of the Variables, as for :func:`tape_core.zeros`.

        Raises:
            ValueError: the shape is none that the layer takes, or not the one it was built for.
        """
        shape = tuple([n if n is None else operator.index(n) for n in input_shape])
        with BUILDING.held():
            if self._lengths is None:
                self._make(shape, dtype, backend, device)
            else:  # perhaps by another thread, meanwhile
                self._check(shape)

    def _make(self, shape: tuple[int | None, ...], dtype: Any, backend: Any, device: str | None) -> None:
        lengths = self._demand(shape)
        found: dict[str, tc.Variable] = {}
        rng = global_rng() if self.rng is None else self.rng
        where = {"dtype": tc.get_default_dtype() if dtype is None else dtype, "backend": backend, "device": device}

        def add(name: str, shape: tuple[int, ...], initializer: Initializer, trainable: bool = True) -> None:
            value = initializer(shape, rng=rng, **where)
            if tuple(value.shape) != shape:
                raise ValueError(
                    f"{type(self).__name__}: the initializer of {name} made shape {value.shape}, not {shape}"
                )
            found[name] = tc.Variable(value, name=name, trainable=trainable, **where)

        self._create(add, shape)
        # All at once: where an initializer fails, nothing is half built.
        for name, variable in found.items():
            setattr(self, name, variable)
            self._dtype = variable.dtype
        self._lengths = lengths

    def _create(self, add: Add, shape: Any) -> None:
        """Call `add(name, shape, initializer, trainable=True)` for each Variable."""
        raise NotImplementedError

    def _input(self, x: Any) -> tc.Tensor:
        """`x` as a Tensor of a floating dtype, with which the Variables now go together."""
        return self._cast(self._prepared(x))

    def _wide_input(self, x: Any) -> tc.Tensor:
        """The input of what must not be computed in less than the Variables' dtype; `_cast` is for the output."""
        x = self._prepared(x)
        return x if x.dtype.inexact and self.compute_dtype is None else tc.astype(x, self._dtype)

    def _cast(self, x: tc.Tensor) -> tc.Tensor:
        """`x` in the dtype that the layer computes in."""
        if x.dtype.inexact and self.compute_dtype is None:
            return x
        dtype = self.compute_dtype or self._dtype
        return x if x.dtype is dtype else tc.astype(x, dtype)

    def _value(self, variable: tc.Variable | None) -> Any:
        """A Variable, or its value in the dtype that the layer computes in; None stays None."""
        return variable if variable is None or self.compute_dtype is None else self._cast(variable)

    def _prepared(self, x: Any) -> tc.Tensor:
        tensor: tc.Tensor = x if isinstance(x, tc.Tensor) else tc.asarray(x)
        if self._lengths is None:
            self._build_beside(tensor, tensor.shape)
        else:
            self._check(tensor.shape)
        return tensor

    def _build_beside(self, x: tc.Tensor, *shapes: Shape) -> None:
        if x.backend.level:
            raise ValueError(f"{type(self).__name__} cannot be built inside vmap: call build(input_shape) before")
        dtype = x.dtype if x.dtype.inexact and self.compute_dtype is None else None
        self.build(*shapes, dtype=dtype, backend=x.backend, device=x.device)

    def _demand(self, shape: tuple[int | None, ...]) -> dict[int, int]:
        """The lengths that the Variables depend on."""
        n = len(shape)
        if (self._ndim is not None and n != self._ndim) or any([not -n <= a < n for a in self._axes]):
            raise ValueError(f"{type(self).__name__} takes inputs of shape {self._form}; got shape {shape}")
        lengths = {}
        for a in self._axes:
            length = shape[a]
            if length is None:
                raise ValueError(f"{type(self).__name__}: the length of {_axis(a)} must be known; got shape {shape}")
            lengths[a] = length
        return lengths

    def _check(self, shape: tuple[int | None, ...]) -> None:
        found = self._demand(shape)
        if found != self._lengths:
            assert self._lengths is not None
            expected = ", ".join([f"{n} numbers on {_axis(a)}" for a, n in self._lengths.items()])
            raise ValueError(f"{type(self).__name__} was built for inputs with {expected}; got shape {shape}")


def _axis(a: int) -> str:
    return "the last axis" if a == -1 else f"axis {a}"


def activation_of(activation: Function | str | None) -> Function | None:
    """The function of this name; None for none at all.

    Raises:
        ValueError: there is none of this name.
    """
    if activation is None or activation == "linear":
        return None
    if callable(activation):
        return activation
    if activation in ACTIVATIONS:
        function: Function = getattr(tc, activation)
        return function
    raise ValueError(f"unknown activation {activation!r}; pass a callable, None or one of " + ", ".join(ACTIVATIONS))


def positive(layer: object, name: str, value: Any) -> int:
    """An integer of at least 1."""
    return integer(type(layer).__name__, name, value, 1)


def fraction(layer: object, name: str, value: Any) -> float:
    """A number from 0 to 1."""
    found = real(type(layer).__name__, name, value)
    if not 0 <= found <= 1:
        raise ValueError(f"{type(layer).__name__}: {name} must be from 0 to 1; got {value}")
    return found
