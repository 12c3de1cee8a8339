"""PyTorch's compilers for compiled functions: Inductor, that of `torch.compile`, and CUDA graphs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tape_compile.extend import Compiler, Run
from tape_core.support import Lock

if TYPE_CHECKING:
    from tape_compile.extend import Program


class Inductor(Compiler):
    """The compiler `torch`: PyTorch's Inductor, which fuses kernels and rounds in its own ways."""

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        """Trace the code with PyTorch's own tracer, and compile the graph.

        Raises:
            RuntimeError: there is no C++ compiler, for tensors on the CPU.
        """
        return _ByInductor(run, list(examples))


class CUDAGraph(Compiler):
    """The compiler `cudagraph`: one launch for all kernels, with the bits of the Python code."""

    exact = True

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        """Record the kernels as a CUDA graph.

        Raises:
            RuntimeError: the tensors are not on one CUDA device.
        """
        return _by_cuda_graph(run, list(examples))

    def offer(self, program: Program, run: Run, examples: Sequence[Any]) -> Run | None:
        """Offer a graph, recorded after some runs, for many kernels of small arrays."""
        from tape_torch import graphs

        return graphs.Later(run, graphs.Graph) if graphs.pays(program, list(examples)) else None


class _ByInductor:
    """A function compiled by Inductor, the compiler of `torch.compile`, once for each layout of its arguments.

    `torch.compile` itself checks guards in each call. Tape's trace has its own guards, so those would be paid twice.
    """

    def __init__(self, run: Run, examples: list[Any]) -> None:
        if all([example.device.type == "cpu" for example in examples]) and not _has_compiler():
            raise RuntimeError(
                "function: compile='torch' needs a C++ compiler for tensors on the CPU, and there is none: install g++ "
                "or clang++, or set CXX to the one to use. Without compile='torch' compiled functions need none"
            )
        self._run = run
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._lock = Lock()
        self._compiled_for(examples)

    def _compiled_for(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        key = tuple([tensor.stride() for tensor in tensors])  # shapes and dtypes are those of the trace
        found = self._compiled.get(key)
        if found is None:
            # Another thread may have compiled it while this one waited.
            with self._lock.now:
                found = self._compiled[key] = self._compiled.get(key) or self._compile(tensors)
        return found

    def _compile(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        from torch._inductor import compile as compiled_by_inductor
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
        from torch.fx.experimental.proxy_tensor import make_fx

        try:
            with torch.no_grad():
                graph = make_fx(lambda *arrays: self._run(list(arrays)))(*tensors)
        except RuntimeError as error:  # a kernel asks for a value
            raise ValueError(
                "function: compile='torch' is for kernels that run in the same way for all values; PyTorch's tracer "
                f"stops at one: {str(error).partition('. ')[0]}. Leave out compile for this function"
            ) from error
        try:
            made: Callable[..., Any] = compiled_by_inductor(graph, list(tensors))
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            # A constant mask can be traced, but Inductor knows no values, not even of constants.
            raise ValueError(
                "function: compile='torch' is for kernels whose results have the same shapes for all values; the shape "
                f"of a result of {error.func} depends on values, as with a boolean mask as index. Leave out compile "
                "for this function"
            ) from error
        return made

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        # A run empties the list of its arguments, so that the caller does not keep them alive.
        given = tuple(arrays)
        arrays.clear()
        return tuple(self._compiled_for(given)(*given))


def _has_compiler() -> bool:
    given = os.environ.get("CXX")
    names = [given] if given else ["g++", "clang++", "c++", "cl"]
    return any([shutil.which(name) for name in names])


def _by_cuda_graph(run: Run, examples: list[Any]) -> Run:
    from tape_torch.graphs import Graph, on_one_device

    if not torch.cuda.is_available() or not on_one_device(examples):
        raise RuntimeError(
            "function: compile='cudagraph' records what runs on a CUDA device, and the arrays are on "
            f"{', '.join(sorted({str(example.device) for example in examples})) or 'none'}"
        )
    return Graph(run, examples)
