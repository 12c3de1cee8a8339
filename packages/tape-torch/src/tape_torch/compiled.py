"""What PyTorch makes of a compiled function: `torch.compile`, and CUDA graphs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import torch

Run = Callable[[list[Any]], tuple[Any, ...]]


def accelerated(run: Run, how: str, examples: list[Any]) -> Run:
    """The function, which takes a list of tensors like the examples and empties it, made faster.

    Raises:
        ValueError: there is no such way.
        RuntimeError: what it needs is not there: a C++ compiler on the CPU, or a CUDA device.
    """
    if how == "torch":
        return _by_inductor(run, examples)
    if how == "cudagraph":
        return _by_cuda_graph(run, examples)
    raise ValueError(f"function: compile must be None, 'torch' or 'cudagraph' on PyTorch, got {how!r}")


def _by_inductor(run: Run, examples: list[Any]) -> Run:
    from torch.fx.experimental.proxy_tensor import make_fx

    if all([example.device.type == "cpu" for example in examples]) and not _has_compiler():
        raise RuntimeError(
            "function: compile='torch' needs a C++ compiler for tensors on the CPU, and there is none: install g++ or "
            "clang++, or set CXX to the one to use. Without compile='torch' compiled functions need none"
        )
    graph = make_fx(lambda *arrays: run(list(arrays)))(*examples)
    compiled = torch.compile(graph, dynamic=False)
    return _emptying(compiled)


def _has_compiler() -> bool:
    given = os.environ.get("CXX")
    names = [given] if given else ["g++", "clang++", "c++", "cl"]
    return any([shutil.which(name) for name in names])


def _emptying(function: Callable[..., Any]) -> Run:
    def call(arrays: list[Any]) -> tuple[Any, ...]:
        given = tuple(arrays)
        arrays.clear()
        return tuple(function(*given))

    return call


def _by_cuda_graph(run: Run, examples: list[Any]) -> Run:
    if not torch.cuda.is_available() or not all([example.device.type == "cuda" for example in examples]):
        raise RuntimeError(
            "function: compile='cudagraph' records what runs on a CUDA device, and the arrays are on "
            f"{', '.join(sorted({str(example.device) for example in examples})) or 'none'}"
        )
    inputs = [example.clone() for example in examples]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # as PyTorch asks for, so that libraries have what they allocate at first
        for _ in range(3):
            run(list(inputs))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run(list(inputs))

    def call(*arrays: Any) -> tuple[Any, ...]:
        for held, array in zip(inputs, arrays, strict=True):
            held.copy_(array)
        graph.replay()
        return tuple([output.clone() for output in outputs])  # the next call writes to the same memory

    return _emptying(call)
