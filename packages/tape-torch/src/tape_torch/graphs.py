"""CUDA graphs: compiled functions of many small kernels, recorded once and launched at once.

Launching a kernel costs the CPU some microseconds, more than a kernel on a small array takes. A graph launches all of
them with one call, but needs copies of its arguments and results in memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from tape_compile.extend import Program
from tape_core.support import Lock
from torch import cuda

from tape_torch.thresholds import (
    GRAPH_MAX_ELEMENTS,
    GRAPH_MAX_MEAN_ELEMENTS,
    GRAPH_MIN_KERNELS,
    GRAPH_MIN_KERNELS_PER_COPY,
    GRAPH_WARMUP_RUNS,
    GRAPH_WORKSPACE_RUNS,
)

Run = Callable[[list[Any]], tuple[Any, ...]]


def pays(program: Program, examples: list[Any]) -> bool:
    """Return whether a CUDA graph of a program pays: it is many kernels on small arrays, on one CUDA device."""
    if not on_one_device([*examples, *program.constants.values()]):
        return False
    sizes = [program.specs[k].size for instruction in program.instructions for k in instruction.outputs]
    copied = [program.specs[k].size for k in (*program.inputs, *program.outputs)]
    if len(sizes) < max(GRAPH_MIN_KERNELS, GRAPH_MIN_KERNELS_PER_COPY * len(copied)):
        return False
    total: int = sum(sizes) + sum(copied)
    return total <= GRAPH_MAX_ELEMENTS and total <= GRAPH_MAX_MEAN_ELEMENTS * (len(sizes) + len(copied))


class Later:
    """A function that becomes a graph after `GRAPH_WARMUP_RUNS` runs, if it can be recorded; else it stays as it is.

    Args:
        run: the function; it takes a list of tensors, and empties it.
        record: makes a graph of it, given example tensors.
    """

    def __init__(self, run: Run, record: Callable[[Run, list[Any]], Run]) -> None:
        self.now = run
        self._record = record
        self._runs = 0
        self._lock = Lock()

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        # Without the lock first: once a graph is made, or has failed, no call waits for it.
        if self._runs <= GRAPH_WARMUP_RUNS:
            with self._lock.now:
                # A graph that the user records contains this run, and cannot contain the recording of another graph.
                self._runs += not _is_recording()
                if self._runs == GRAPH_WARMUP_RUNS + 1:
                    with suppress(RuntimeError):  # it synchronizes with the device, or memory has run out
                        self.now = self._record(self.now, list(arrays))
        return self.now(arrays)


class Graph:
    """A function as a CUDA graph; it gives the same results, to the bit.

    A graph reads and writes fixed addresses: arguments are copied in, and results are copied out, since the next call
    overwrites them. PyTorch chooses kernels by the tensors' layout and by global settings, and other kernels may round
    differently. So a call with another layout or other settings than those recorded runs the function instead.

    Raises:
        RuntimeError: the function cannot be recorded.
    """

    def __init__(self, run: Run, examples: list[Any]) -> None:
        self._run = run
        self._device = examples[0].device
        self._layouts = list(map(_layout, examples))
        self._settings = _settings()
        self._inputs = [example.clone() for example in examples]
        if list(map(_layout, self._inputs)) != self._layouts:
            raise RuntimeError("a CUDA graph is for tensors that are laid out in order")
        self._lock = Lock()
        with cuda.device(self._device):
            self._done = cuda.Event()  # type: ignore[no-untyped-call]
            self._graph, self._outputs = _record_graph(run, self._inputs)
            self._done.record()

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        if _is_recording() or list(map(_layout, arrays)) != self._layouts or _settings() != self._settings:
            return self._run(arrays)
        with self._lock.now, cuda.device(self._device):
            # An earlier call, on another stream, may still be computing in the same memory.
            cuda.current_stream().wait_event(self._done)
            _copy(self._inputs, arrays)
            arrays.clear()
            self._graph.replay()
            results = [torch.empty_like(output) for output in self._outputs]
            _copy(results, self._outputs)
            self._done.record()
        return tuple(results)


def _record_graph(run: Run, inputs: list[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Record a function of these tensors; return the graph and the tensors it will write. Nothing is computed yet."""
    stream = cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):  # warm up on a side stream, as PyTorch requires: libraries allocate workspace at first
        for _ in range(GRAPH_WORKSPACE_RUNS):
            run(list(inputs))
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the device meanwhile
        outputs = run(list(inputs))
    return graph, outputs


def _copy(to: list[Any], of: Sequence[torch.Tensor]) -> None:
    """Copy several tensors by few kernels."""
    if to:
        torch._foreach_copy_(to, list(of))


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    # Kernels that load 16 bytes at once need addresses that are multiples of 16; for others PyTorch takes other
    # kernels.
    return tensor.stride(), tensor.data_ptr() % 16, tensor.is_conj(), tensor.is_neg()


def _settings() -> tuple[Any, ...]:
    """Return the global settings by which PyTorch chooses kernels."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return (
        torch.backends.fp32_precision,  # type: ignore[attr-defined]
        matmul.fp32_precision,
        matmul.allow_fp16_reduced_precision_reduction,
        matmul.allow_bf16_reduced_precision_reduction,
        cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        cudnn.enabled,
        cudnn.benchmark,
        cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cuda"),
    )


def _is_recording() -> bool:
    """Return whether the user is recording a graph of their own, of which this call becomes a part."""
    return bool(cuda.is_current_stream_capturing())


def on_one_device(tensors: list[Any]) -> bool:
    """Return whether all are tensors on one CUDA device; False for an empty list."""
    devices = {str(getattr(tensor, "device", "none")) for tensor in tensors}
    return len(devices) == 1 and devices.pop().startswith("cuda")
