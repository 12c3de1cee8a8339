"""The NumPy backend of Tape. Discovery imports this module, which therefore does not import NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.backends import CONTRACT_VERSION, BackendInfo, hookimpl, require_core

if TYPE_CHECKING:
    from tape_core.backends import Backend

require_core("tape-numpy", "tape-core>=0.1,<0.2")


@hookimpl
def tape_backend_info() -> BackendInfo:
    """Describe the backend, without importing NumPy."""
    return BackendInfo(
        name="numpy",
        contract=CONTRACT_VERSION,
        array_types=("numpy:ndarray", "numpy:generic"),
        capabilities=("cpu", "complex"),
        install="pip install tape-numpy",
        host_data=True,
    )


@hookimpl
def tape_load_backend() -> Backend:
    """Make the backend, and import NumPy."""
    from tape_numpy.backend import NumPyBackend

    return NumPyBackend()
