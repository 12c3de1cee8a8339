"""XLA as a compiler, as a plugin. This module is light: it does not import JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.backends import CONTRACT_VERSION, CompilerInfo, hookimpl

if TYPE_CHECKING:
    from tape_compile.extend import Compiler


@hookimpl
def tape_compiler_info() -> CompilerInfo:
    """Describe the compiler."""
    return CompilerInfo(
        name="xla",
        contract=CONTRACT_VERSION,
        install="pip install tape-jax",
        summary="JAX's compiler, for the arrays of all backends: fuses kernels, rounds in its own ways",
    )


@hookimpl
def tape_load_compiler() -> Compiler:
    """Return the compiler; imports JAX.

    Raises:
        ImportError: JAX is not installed, or too old.
    """
    from tape_jax import check_version

    check_version()
    from tape_jax.xla.compiler import XLA
    from tape_jax.xla.transfer import jax_backend

    jax_backend()  # switches JAX to 64 bits: a program that was traced before would be traced once more
    return XLA()
