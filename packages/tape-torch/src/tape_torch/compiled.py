"""PyTorch's compilers for compiled functions: Inductor, that of `torch.compile`, and CUDA graphs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
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
        from torch._inductor.exc import InductorError
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

        graph = trace_graph(self._run, tensors)
        try:
            made: Callable[..., Any] = compiled_by_inductor(graph, list(tensors))
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            # A constant mask can be traced, but Inductor knows no values, not even of constants.
            raise _refusal(error) from error
        except InductorError as error:
            raise RuntimeError(
                "function: compile='torch' failed inside PyTorch's compiler, which raised "
                f"{str(error).partition(chr(10))[0]}. Leave out compile for this function"
            ) from error
        return made

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        # A run empties the list of its arguments, so that the caller does not keep them alive.
        given = tuple(arrays)
        arrays.clear()
        return tuple(self._compiled_for(given)(*given))


def trace_graph(run: Run, examples: Sequence[Any]) -> torch.fx.GraphModule:
    """Return the graph that PyTorch's own tracer makes of a run on tensors like `examples`; it takes them one by one.

    Raises:
        ValueError: a kernel asks for a value, or leaves PyTorch.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    # The tracer's tensors hold no values. With real ones a kernel that computes outside of PyTorch, in a NumPy array
    # of the same memory, would enter the graph as the constant that it returned for the examples.
    tracer = make_fx(lambda *arrays: run(list(arrays)), tracing_mode="fake", _allow_non_fake_inputs=True)
    try:
        with torch.no_grad(), without_memory():
            return tracer(*examples)
    except RuntimeError as error:
        raise _refusal(error) from error


def without_memory() -> AbstractContextManager[Any]:
    """Return a context for making PyTorch's tensors without values: who asks for their memory gets an error.

    Otherwise DLPack hands out memory with no meaning, of which NumPy would compute a constant.
    """
    import torch._functorch.config as config

    return config.patch(fake_tensor_allow_unsafe_data_ptr_access=False)  # type: ignore[no-any-return]


def _refusal(error: BaseException) -> ValueError:
    """Return the error of a function that PyTorch cannot trace, whose tracer raised `error`."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DynamicOutputShapeException | DataDependentOutputException):
        cause = cause.__cause__
    if cause is None:
        # The first sentence; those that follow are for the authors of kernels.
        said = re.split(r"\. | \(e\.g\. ", str(error))[0]
        why = f"run in the same way for all values; PyTorch's tracer stops at one: {said}"
    else:
        why = f"have results of the same shape for all values; {cause.func} has not, as with a boolean mask as index"
    return ValueError(f"function: compile='torch' is for kernels that {why}. Leave out compile for this function")


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
