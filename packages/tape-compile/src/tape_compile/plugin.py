"""The plugin of tape-compile: the compiler named `python`. This module is light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.backends import CONTRACT_VERSION, CompilerInfo, hookimpl

if TYPE_CHECKING:
    from tape_compile.compilers import Compiler


@hookimpl
def tape_compiler_info() -> CompilerInfo:
    """Describe the compiler."""
    return CompilerInfo(
        name="python",
        contract=CONTRACT_VERSION,
        install="pip install tape-compile",
        summary="Python code that calls one kernel after the other",
    )


@hookimpl
def tape_load_compiler() -> Compiler:
    """Return the compiler."""
    from tape_compile.compilers import Python

    return Python()
