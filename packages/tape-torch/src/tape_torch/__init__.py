"""The PyTorch backend of Tape. This module is light: it does not import PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tape_core.backends import CONTRACT_VERSION, BackendInfo, hookimpl, require_core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tape_core.backends import Backend

    from tape_torch import optim as optim
    from tape_torch.autograd import as_torch as as_torch
    from tape_torch.functional import call as call
    from tape_torch.parameters import variables as variables

require_core("tape-torch", "tape-core>=0.1,<0.2")


__all__ = ["as_torch", "call", "optim", "variables"]

_MODULES = {"as_torch": "autograd", "call": "functional", "variables": "parameters"}


@hookimpl
def tape_backend_info() -> BackendInfo:
    """Describe the backend to discovery, without importing PyTorch."""
    return BackendInfo(
        name="torch",
        contract=CONTRACT_VERSION,
        array_types=("torch:Tensor",),
        capabilities=("cpu", "cuda", "complex"),
        install="pip install tape-torch",
    )


@hookimpl
def tape_load_backend() -> Backend:
    """Import PyTorch and make the backend."""
    from tape_core import Tensor

    from tape_torch.backend import TorchBackend

    # The first call of a PyTorch function on a Tensor imports the protocol, which replaces this method by its own.
    Tensor.__torch_function__ = classmethod(_torch_function)  # type: ignore[attr-defined]
    return TorchBackend()


def _torch_function(
    cls: type,
    func: Callable[..., Any],
    types: Iterable[type],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    from tape_core import Tensor

    from tape_torch.protocol import torch_function

    Tensor.__torch_function__ = classmethod(torch_function)  # type: ignore[attr-defined]
    return torch_function(cls, func, types, args, kwargs)


def __getattr__(name: str) -> Any:
    """Import the functions that need PyTorch at first use."""
    from importlib import import_module

    # A module in place of a function: importing it makes it an attribute of the package, so that this is asked once.
    if name == "optim":
        return import_module("tape_torch.optim")
    if name not in _MODULES:
        raise AttributeError(f"module 'tape_torch' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"tape_torch.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
