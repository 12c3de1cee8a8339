"""Parameters of PyTorch modules as Variables that share their memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import torch
from tape_core import Tensor, Variable
from tape_core.backends import backend_of_type
from tape_core.support import check_assignable, new_serial, special_dtype
from tape_core.typing import ArrayLike

from tape_torch.inside import SIDE, refuse_inside

# By the id of the parameter, which its Variable keeps alive.
_variables: WeakValueDictionary[int, ParameterVariable] = WeakValueDictionary()


class ParameterVariable(Variable):
    """A Variable whose value is that of a PyTorch parameter: assigning to one changes the other.

    Assigning to the Variable gives the parameter new memory, so that tapes keep the old value. Changes that PyTorch
    makes to the parameter, in place or by `module.to(...)`, are seen when the Variable is next read.
    """

    __slots__ = ("_held", "_version", "parameter")

    def __init__(self, parameter: torch.Tensor, name: str | None = None) -> None:
        # Without Variable.__init__, which would copy the value: this one has the parameter's.
        backend = backend_of_type(torch.Tensor)
        assert backend is not None  # this package provides it
        self.parameter = parameter
        self.backend = backend
        self.name = name
        self.trainable = parameter.requires_grad
        self._inexact = parameter.dtype.is_floating_point or parameter.dtype.is_complex
        self._special = special_dtype(backend, backend.dtype(parameter.dtype))
        self._serial = new_serial()
        self._followers = None
        self._follow()

    def _follow(self) -> None:
        self._held = self.parameter.detach()
        self._version = self.parameter._version
        self._slots = {}

    _held_as = "data"

    def _refuse_move(self, what: str) -> None:
        raise TypeError(
            f"{what}: {self!r} has the value of a parameter of PyTorch; move it by the `to` of its PyTorch module"
        )

    @property
    def _holder(self) -> Any:
        """The object whose attribute `data` a commit sets: the parameter."""
        return self.parameter

    # The place of the real value, which Variable has in a slot; a running trace has its own, see Variable._array.
    @property
    def _raw(self) -> torch.Tensor:
        # PyTorch counts writes in `_version`, but does not count `parameter.data = ...`, hence the other comparisons.
        parameter, held = self.parameter, self._held
        if (
            parameter._version != self._version
            or parameter.data_ptr() != held.data_ptr()
            or parameter.dtype is not held.dtype
            or parameter.shape != held.shape
            or parameter.device != held.device
        ):
            self._follow()
        return self._held

    @_raw.setter
    def _raw(self, array: torch.Tensor) -> None:
        self.parameter.data = array
        self._follow()

    def _read(self) -> Tensor:
        if SIDE.get() == "as_torch" and self.parameter.requires_grad:
            refuse_inside(f"{self!r} is read")
        self.trainable = self.parameter.requires_grad
        _ = self._raw  # a value that PyTorch has changed gets new slots
        return super()._read()

    def _assignable(self, value: ArrayLike) -> Any:
        check_assignable(self)
        operand = self._operand(value, "assign")
        if self._bound() is not None:
            return operand
        # Copied, since PyTorch's optimizers write to parameters in place, and others may hold the array.
        return operand.to(self._held.device, copy=True)


def variable_of(parameter: torch.Tensor, name: str | None = None) -> ParameterVariable:
    """Return the Variable of a parameter: the same one for as long as it is referenced."""
    variable = _variables.get(id(parameter))
    if variable is None:
        variable = _variables[id(parameter)] = ParameterVariable(parameter, name)
    elif variable.name is None:
        variable.name = name
    return variable


def known_variable(parameter: torch.Tensor) -> ParameterVariable | None:
    """Return the Variable of a parameter if there is one."""
    return _variables.get(id(parameter))


def variables(source: torch.nn.Module | torch.Tensor | Iterable[Any], /) -> tuple[Variable, ...]:
    """Return the trainable parameters of a module as Variables, which share the parameters' memory.

    Tapes watch them when :func:`tape_torch.call` runs the module. Assigning to them, as tape_nn's optimizers do,
    changes the module. A parameter always has the same Variable, for as long as that is referenced.

    >>> import torch
    >>> import tape_core as tc, tape_torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> weight, bias = tape_torch.variables(layer)
    >>> weight.shape, bias.name
    ((1, 2), 'bias')
    >>> with tc.GradientTape() as tape:
    ...     y = tape_torch.call(layer, torch.ones(3, 2))
    >>> tape.gradient(y, bias).tolist()
    [3.0]

    Args:
        source: a module, a parameter, or several of them, such as `module.parameters()`.

    Raises:
        TypeError: for anything else.
    """
    return tuple([variable_of(p, name) for name, p in _trainable(source)])


def _trainable(source: object) -> Iterator[tuple[str | None, torch.Tensor]]:
    seen: set[int] = set()
    several = [source] if isinstance(source, torch.nn.Module | torch.Tensor) else source
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise TypeError(f"variables: takes a torch.nn.Module or parameters of one; got {type(source).__name__!r}")
    for part in several:
        named: Iterable[tuple[str | None, torch.Tensor]]
        if isinstance(part, torch.nn.Module):
            named = part.named_parameters()
        elif isinstance(part, torch.Tensor) and part.is_leaf:
            named = [(None, part)]
        else:
            what = "a tensor that is computed" if isinstance(part, torch.Tensor) else f"{type(part).__name__!r}"
            raise TypeError(f"variables: takes a torch.nn.Module or parameters of one; got {what}")
        for name, parameter in named:
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter
