"""Ops and public functions by name, for the floors below those that declare them.

A Tensor's methods, batch rules and the sweep of a recorded gradient call ops, which are declared above them. They look
them up here by name, `ops.reshape(x, shape)`, in place of importing what imports them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from tape_core.base.mistakes import meant

if TYPE_CHECKING:
    from tape_core.engine.tensor import Tensor

OPS: dict[str, Any] = {}
"""Every op by its name: an `Op`. `tape_core.engine.op.registry` is the way to add one."""

registry: Any = None
"""The `Registry` that keeps `OPS`, which plugins are given to declare ops; `tape_core.engine.op` sets it."""

_public: Mapping[str, Any] = {}


def publish(namespace: Mapping[str, Any]) -> None:
    """Let names that are no op's be looked up in the namespace of `tape_core`, which calls this."""
    global _public
    _public = namespace


TOOLS: dict[str, str] = {}
"""Functions of higher floors that methods of a tape call: `"module:attribute"` by name, imported at first use."""


def tool(name: str) -> Callable[..., Any]:
    """Return a function of a higher floor that `tape_core` has entered in `TOOLS`."""
    from importlib import import_module

    module, _, attribute = TOOLS[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def instead_of_scipy(frame: FrameType | None) -> str:
    """Return what to write in place of the function of SciPy's that a frame is in; nothing outside of SciPy."""
    if "scipy" not in sys.modules:
        return ""
    found: str = tool("instead_of_scipy")(frame)
    return found


class Ops:
    """A namespace of all ops, as functions of Tensors, and of the other functions of `tape_core`.

    It is the `xp` that a derivative rule receives when another tape records the sweep. Each name is looked up once.

    >>> import tape_core as tc
    >>> ops.sin is tc.sin, ops.asarray is tc.asarray
    (True, True)
    """

    @staticmethod
    def put(array: Tensor, key: Any, values: Any) -> Tensor:
        """Return `array` with the elements at a key replaced: `Backend.put`, which default kernels call, of Tensors."""
        replaced: Tensor = OPS["setitem"].function(array, values, key)
        return replaced

    @staticmethod
    def is_known(array: Tensor) -> bool:
        """Return whether the values of a Tensor can be read; see `Backend.is_known`."""
        known: bool = array.backend.is_known(array._array)
        return known

    @staticmethod
    def halves(array: Tensor) -> bool:
        """Return whether rules divide large matrices in halves; see `Backend.halves`."""
        halves: bool = array.backend.halves(array._array)
        return halves

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if name in OPS:
            found: Callable[..., Any] = OPS[name].function
        elif name in _public:
            found = _public[name]
        else:
            raise AttributeError(f"there is no op or function named {name!r}{meant(name, OPS)}")
        setattr(self, name, found)  # from now on an ordinary attribute, which Python finds without this method
        return found


ops = Ops()
