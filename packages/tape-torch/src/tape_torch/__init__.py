"""The PyTorch backend of Tape. This module is light: it does not import PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.backends import CONTRACT_VERSION, BackendInfo, hookimpl

if TYPE_CHECKING:
    from tape_core.backends import Backend


@hookimpl
def tape_backend_info() -> BackendInfo:
    """What discovery needs to know without importing PyTorch."""
    return BackendInfo(
        name="torch",
        contract=CONTRACT_VERSION,
        array_types=("torch:Tensor",),
        capabilities=("cpu", "cuda", "complex"),
        install="pip install tape-torch",
    )


@hookimpl
def tape_load_backend() -> Backend:
    """The backend; imports PyTorch."""
    from tape_torch.backend import TorchBackend

    return TorchBackend()
