"""The compilers of PyTorch, as plugins. This module is light: it does not import PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.backends import CONTRACT_VERSION, CompilerInfo, hookimpl

if TYPE_CHECKING:
    from tape_compile.extend import Compiler

_SUMMARIES = {
    "torch": "PyTorch's Inductor: fuses kernels, rounds in its own ways",
    "cudagraph": "one launch for all kernels on a CUDA device",
}


@hookimpl
def tape_compiler_info(name: str) -> CompilerInfo:
    """Describe one of the compilers."""
    return CompilerInfo(
        name=name,
        contract=CONTRACT_VERSION,
        backends=("torch",),
        install="pip install tape-torch",
        summary=_SUMMARIES[name],
    )


@hookimpl
def tape_load_compiler(name: str) -> Compiler:
    """Return one of the compilers; imports PyTorch."""
    from tape_torch.compiled import CUDAGraph, Inductor

    return Inductor() if name == "torch" else CUDAGraph()
