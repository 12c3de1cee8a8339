"""The JAX backend of Tape. This module is light: it does not import JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tape_core.backends import CONTRACT_VERSION, BackendInfo, hookimpl, require_core

if TYPE_CHECKING:
    from tape_core.backends import Backend

    from tape_jax.distribution import distribute as distribute
    from tape_jax.exported import load_exported as load_exported
    from tape_jax.functional import call as call
    from tape_jax.optimizers import optimizer as optimizer
    from tape_jax.parameters import variables as variables
    from tape_jax.parameters import with_arrays as with_arrays
    from tape_jax.parameters import with_variables as with_variables

require_core("tape-jax", "tape-core>=0.1,<0.2")


__all__ = ["call", "distribute", "load_exported", "optimizer", "variables", "with_arrays", "with_variables"]

_MODULES = {
    "call": "functional",
    "distribute": "distribution",
    "load_exported": "exported",
    "optimizer": "optimizers",
    "variables": "parameters",
    "with_arrays": "parameters",
    "with_variables": "parameters",
}

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
    check_version()
    from tape_jax import trees
    from tape_jax.backend import JaxBackend

    backend = JaxBackend()
    trees.register(backend)
    return backend


def check_version() -> None:
    """Refuse a JAX that is too old, before anything is imported from it.

    Raises:
        ImportError: with what to install.
    """
    from importlib.metadata import version

    found = version("jax")
    if tuple(map(int, found.split(".")[:2])) < MINIMUM:
        least = ".".join(map(str, MINIMUM))
        raise ImportError(f"it needs JAX {least} or later, and JAX {found} is installed: pip install 'jax>={least}'")


def __getattr__(name: str) -> Any:
    """Import the functions that need JAX at first use."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'tape_jax' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"tape_jax.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
