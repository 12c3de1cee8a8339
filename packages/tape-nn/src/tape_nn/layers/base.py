"""The base class of layers, which make their Variables from the first input, and activations by name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import tape_core as tc
from tape_core.random import global_rng
from tape_core.support import Lock, asarray_beside, integer, real
from tape_core.typing import ArrayLike, DTypeLike

from tape_nn.initializers import Initializer
from tape_nn.module import Module
from tape_nn.types import BackendLike

Function: TypeAlias = Callable[[Any], tc.Tensor]
"""A function of one tensor: an activation, or a layer in a :class:`Sequential`."""

Shape: TypeAlias = Sequence[int | None]
"""The shape of an input, with None for a length that may vary."""

AddVariable: TypeAlias = Callable[..., None]
"""`add(name, shape, initializer, trainable=True)`: makes a Variable while a layer is built."""

ACTIVATIONS: Final = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "softplus", "softmax", "log_softmax", "elu", "selu", "leaky_relu",
    "relu6", "hard_sigmoid", "hard_silu", "log_sigmoid", "mish",
)  # fmt: skip
"""The functions of `tape_core` that layers take by name; "linear" stands for no activation."""


BUILDING: Final = Lock()
"""The lock held by a thread that makes the Variables of a layer: all threads of a first call get the same ones."""


class Layer(Module):
    """A Module that makes its Variables at the first call, or in :meth:`build`.

    The Variables have the backend and the device of the first input, and its dtype, or the default dtype if it holds
    integers.
    """

    rng: tc.Generator | None = None
    draws_from_rng = False
    """True for layers whose calls draw from `rng`, as those of dropout do: then its state is part of the Module's."""
    compute_dtype: tc.DType | None = None
    """The dtype that input and Variables are cast to, see :func:`tape_nn.mixed_precision`; None for no cast."""
    _input_form = "(..., features)"  # for error messages
    _input_ndim: int | None = None
    _sized_axes: tuple[int, ...] = (-1,)  # the axes of the input whose lengths the shapes of Variables depend on
    _built_lengths: dict[int, int] | None = None  # their lengths; None before the layer is built
    _dtype: tc.DType  # of the Variables

    @property
    def built(self) -> bool:
        """True if the Variables have been made."""
        return self._built_lengths is not None

    def build(
        self, input_shape: Shape, *, dtype: DTypeLike = None, backend: BackendLike = None, device: str | None = None
    ) -> None:
        """Make the Variables for inputs of this shape, without calling the layer.

        Args:
            input_shape: the shape of an input. A length that the Variables do not depend on, such as the number of
                examples, may be None.
            dtype, backend, device: of the Variables, as for :func:`tape_core.zeros`.

        Raises:
            ValueError: the layer takes no inputs of this shape, or was built for another one.
        """
        shape = tuple([n if n is None else operator.index(n) for n in input_shape])
        with BUILDING.held():
            if self._built_lengths is None:
                self._make_variables(shape, dtype, backend, device)
            else:  # perhaps by another thread, while this one waited for the lock
                self._check_shape(shape)

    def _make_variables(
        self, shape: tuple[int | None, ...], dtype: DTypeLike, backend: BackendLike, device: str | None
    ) -> None:
        lengths = self._sized_lengths(shape)
        found: dict[str, tc.Variable] = {}
        # All Variables of a layer draw from one generator, in the order in which they are created.
        rng = global_rng() if self.rng is None else self.rng
        where: dict[str, Any] = {
            "dtype": tc.get_default_dtype() if dtype is None else dtype,
            "backend": backend,
            "device": device,
        }

        def add(name: str, shape: tuple[int, ...], initializer: Initializer, trainable: bool = True) -> None:
            value = initializer(shape, rng=rng, **where)
            if tuple(value.shape) != shape:
                raise ValueError(
                    f"{type(self).__name__}: the initializer of {name} made shape {value.shape}, not {shape}"
                )
            found[name] = tc.Variable(value, name=name, trainable=trainable, **where)

        self._create_variables(add, shape)
        # Only when all are made: where an initializer fails, the layer is not half built.
        for name, variable in found.items():
            setattr(self, name, variable)
            self._dtype = variable.dtype
        self._built_lengths = lengths

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        """Call `add(name, shape, initializer, trainable=True)` for each Variable. Subclasses define it.

        Args:
            shape: the shape of an input. Its lengths along `_sized_axes` are known; others may be None.
        """
        raise NotImplementedError

    def _cast_input(self, x: ArrayLike) -> tc.Tensor:
        """Build the layer if need be, and return `x` as a Tensor in the dtype that the layer computes in."""
        return self._cast(self._built_input(x))

    def _full_precision_input(self, x: ArrayLike) -> tc.Tensor:
        """Return `x` in the Variables' dtype, though `compute_dtype` be narrower; `_cast` the output afterwards.

        Normalisation uses it: means and variances lose too much in half precision.
        """
        x = self._built_input(x)
        return x if x.dtype.inexact and self.compute_dtype is None else tc.astype(x, self._dtype)

    def _cast(self, x: tc.Tensor) -> tc.Tensor:
        """Return `x` in the dtype that the layer computes in."""
        if x.dtype.inexact and self.compute_dtype is None:
            return x
        dtype = self.compute_dtype or self._dtype
        return x if x.dtype is dtype else tc.astype(x, dtype)

    def _cast_variable(self, variable: tc.Variable | None) -> Any:
        """Return a Variable, or its value in the dtype that the layer computes in; None stays None."""
        # The Variable itself where nothing is cast: an op that reads it asks the tapes whether they watch it.
        return variable if variable is None or self.compute_dtype is None else self._cast(variable)

    def _built_input(self, x: ArrayLike) -> tc.Tensor:
        """Return `x` as a Tensor. The first call builds the layer; later ones check the shape."""
        tensor = self._as_tensor(x)
        if self._built_lengths is None:
            self._build_like(tensor, tensor.shape)
        else:
            self._check_shape(tensor.shape)
        return tensor

    def _as_tensor(self, x: ArrayLike) -> tc.Tensor:
        """Return `x` as a Tensor; lists and NumPy's arrays go to where the layer's Variables are, if it has any."""
        return x if isinstance(x, tc.Tensor) else asarray_beside(x, next(iter(self.variables), None))

    def _build_like(self, x: tc.Tensor, *shapes: Shape) -> None:
        """Build the layer for inputs of these shapes, with the backend, the device and the dtype of `x`."""
        if x.backend.level:  # Variables made here would have vmap's hidden axis, and outlive it
            raise ValueError(f"{type(self).__name__} cannot be built inside vmap: call build(input_shape) before")
        # In mixed precision the first input may be in half precision already: the Variables have the default dtype
        # then.
        dtype = x.dtype if x.dtype.inexact and self.compute_dtype is None else None
        self.build(*shapes, dtype=dtype, backend=x.backend, device=x.device)

    def _sized_lengths(self, shape: tuple[int | None, ...]) -> dict[int, int]:
        """Return the lengths that the shapes of Variables depend on, by axis.

        Raises:
            ValueError: the shape has not the right number of axes, or one of these lengths is None.
        """
        n = len(shape)
        if (self._input_ndim is not None and n != self._input_ndim) or any([not -n <= a < n for a in self._sized_axes]):
            raise ValueError(f"{type(self).__name__} takes inputs of shape {self._input_form}; got shape {shape}")
        lengths = {}
        for a in self._sized_axes:
            length = shape[a]
            if length is None:
                raise ValueError(f"{type(self).__name__}: the length of {_axis(a)} must be known; got shape {shape}")
            lengths[a] = length
        return lengths

    def _check_shape(self, shape: tuple[int | None, ...]) -> None:
        """Raise a ValueError if the layer was built for inputs of another shape."""
        # Only the lengths that the Variables depend on: the number of examples or steps may differ from call to call.
        found = self._sized_lengths(shape)
        if found != self._built_lengths:
            assert self._built_lengths is not None
            expected = ", ".join([f"{n} numbers on {_axis(a)}" for a, n in self._built_lengths.items()])
            raise ValueError(f"{type(self).__name__} was built for inputs with {expected}; got shape {shape}")


def _axis(a: int) -> str:
    return "the last axis" if a == -1 else f"axis {a}"


def activation_of(activation: Function | str | None) -> Function | None:
    """Return the activation of this name, a callable as it is, and None for "linear" or None.

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
    given: object = activation  # whatever it is declared to be
    if isinstance(given, int):
        raise ValueError(
            f"the activation is {given}, a number: a layer takes how many outputs it has, as in "
            f"nn.Dense({given}), and finds out how many inputs there are in its first call"
        )
    raise ValueError(f"unknown activation {activation!r}; pass a callable, None or one of " + ", ".join(ACTIVATIONS))


def check_positive_integer(layer: object, name: str, value: object) -> int:
    """Return an argument of a layer that must be an integer of at least 1.

    Raises:
        TypeError: it is no integer.
        ValueError: it is less than 1.
    """
    return integer(type(layer).__name__, name, value, 1)


def check_fraction(layer: object, name: str, value: object) -> float:
    """Return an argument of a layer that must be a number from 0 to 1.

    Raises:
        TypeError: it is no real number.
        ValueError: it is out of range.
    """
    found = real(type(layer).__name__, name, value)
    if not 0 <= found <= 1:
        raise ValueError(f"{type(layer).__name__}: {name} must be from 0 to 1; got {value}")
    return found
