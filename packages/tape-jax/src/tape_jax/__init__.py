"""The JAX backend of Tape. This module is light: it does not import JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.backends import CONTRACT_VERSION, BackendInfo, hookimpl

if TYPE_CHECKING:
    from tape_core.backends import Backend

__all__: list[str] = []

MINIMUM = (0, 8)
"""The oldest version of JAX with which the backend works."""


@hookimpl
def tape_backend_info() -> BackendInfo:
    """Describe the backend to discovery, without importing JAX."""
    return BackendInfo(
        name="jax",
        contract=CONTRACT_VERSION,
        array_types=("jax:Array", "jax.core:Tracer"),
        capabilities=("cpu", "cuda", "tpu", "float64", "complex"),
        install="pip install tape-jax",
    )


@hookimpl
def tape_load_backend() -> Backend:
    """Import JAX and make the backend.

    Raises:
        ImportError: JAX is not installed, or too old.
    """
    from importlib.metadata import version

    found = version("jax")
    if tuple(map(int, found.split(".")[:2])) < MINIMUM:
        least = ".".join(map(str, MINIMUM))
        raise ImportError(f"it needs JAX {least} or later, and JAX {found} is installed: pip install 'jax>={least}'")
    from tape_jax.backend import JaxBackend

    return JaxBackend()
