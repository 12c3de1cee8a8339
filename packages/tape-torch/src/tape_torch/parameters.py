"""Parameters of PyTorch as tape Variables of the same memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import torch
from tape_core import Tensor, Variable
from tape_core.backends.discovery import backend_of_type
from tape_core.base.ambient import ACTIVE
from tape_core.engine.recording import check_assignable, met, report_assigned
from tape_core.engine.variable import _serial
from tape_core.typing import ArrayLike

from tape_torch.inside import SIDE, refuse_inside

_known: WeakValueDictionary[int, ParameterVariable] = WeakValueDictionary()


class ParameterVariable(Variable):
    """A Variable whose value is that of a parameter of PyTorch, whichever of the two it is given through.

    An assignment gives the parameter new memory, so that what was recorded keeps the old value. What PyTorch does to
    the parameter, in place or by `module.to(...)`, is seen when the Variable is next read.
    """

    __slots__ = ("_held", "_version", "parameter")

    def __init__(self, parameter: torch.Tensor, name: str | None = None) -> None:
        backend = backend_of_type(torch.Tensor)
        assert backend is not None  # this package provides it
        self.parameter = parameter
        self.backend = backend
        self.name = name
        self.trainable = parameter.requires_grad
        self._inexact = True
        self._met = met(backend, backend.dtype(parameter.dtype))
        self._serial = next(_serial)
        self._follow()

    def _follow(self) -> None:
        self._held = self.parameter.detach()
        self._version = self.parameter._version
        self._slots = {}

    _held_as = "data"

    @property
    def _holder(self) -> Any:
        """The parameter: what it is given is seen when the Variable is next read."""
        return self.parameter

    @property  # type: ignore[misc]  # what is assigned goes to the parameter
    def _array(self) -> torch.Tensor:
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

    def _read(self) -> Tensor:
        if SIDE.get() == "as_torch" and self.parameter.requires_grad:
            refuse_inside(f"{self!r} is read")
        self.trainable = self.parameter.requires_grad
        _ = self._array  # what PyTorch made of it is a new leaf
        return super()._read()

    def assign(self, value: ArrayLike) -> Variable:
        """Replace the value, and the parameter's. Shape and dtype must be the variable's."""
        self._replace(self._assignable(value), "assign", value)
        return self

    def _assignable(self, value: ArrayLike) -> Any:
        check_assignable(self)
        # PyTorch may write to its parameters: the memory must be nobody else's.
        return self._operand(value, "assign").to(self._held.device, copy=True)

    def _replace(self, array: torch.Tensor, method: str = "assign", given: object = None) -> None:
        if ACTIVE.get():
            report_assigned(self, array, method, given)
        self.parameter.data = array
        self._follow()


def variable_of(parameter: torch.Tensor, name: str | None = None) -> ParameterVariable:
    """The Variable of a parameter: the same one as long as anybody holds it."""
    variable = _known.get(id(parameter))
    if variable is None:
        variable = _known[id(parameter)] = ParameterVariable(parameter, name)
    elif variable.name is None:
        variable.name = name
    return variable


def variables(source: torch.nn.Module | torch.Tensor | Iterable[Any], /) -> tuple[Variable, ...]:
    """The trainable parameters of a module as tape Variables, which share the parameters' memory.

    Tapes watch them where :func:`tape_torch.call` runs the module. An assignment to one of them, such as an optimizer
    of tape_nn makes, changes the module. For the same parameter it is the same Variable, as long as one holds it.

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
        source: a module, a parameter, or several of them, as `module.parameters()` gives.

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
