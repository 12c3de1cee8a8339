"""CUDA graphs: all kernels of a compiled function started at once, for what is small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from tape_compile.program import Program
from tape_core.base.forking import Lock
from torch import cuda

Run = Callable[[list[Any]], tuple[Any, ...]]

_FEW = 16  # kernels that a graph does not pay for: it copies what goes in, and what comes out
_SMALL = 1 << 16  # elements: on the mean of larger arrays a kernel takes longer than to be started
_MEMORY = 1 << 26  # elements in all: a graph keeps the memory of what it computes
_RUNS = 2  # before a graph is recorded: what is called once or twice needs none


def pays(program: Program, examples: list[Any]) -> bool:
    """Whether a program is to become a CUDA graph of itself.

    It is many kernels of small arrays, on one CUDA device.
    """
    if not on_one_device([*examples, *program.constants.values()]):
        return False
    sizes = [program.specs[k].size for instruction in program.instructions for k in instruction.outputs]
    copied = [program.specs[k].size for k in (*program.inputs, *program.outputs)]
    if len(sizes) < max(_FEW, 2 * len(copied)):
        return False
    total: int = sum(sizes) + sum(copied)
    return total <= _MEMORY and total <= _SMALL * (len(sizes) + len(copied))


class Later:
    """A function that is recorded as a graph after some runs; it stays what it is where that cannot be.

    Args:
        run: the function: of a list of tensors, which it empties.
        record: makes a graph of it, given tensors as it will get them.
    """

    def __init__(self, run: Run, record: Callable[[Run, list[Any]], Run]) -> None:
        self.now = run
        self._record = record
        self._runs = 0
        self._lock = Lock()

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        if self._runs <= _RUNS:
            with self._lock.now:
                self._runs += not _is_recording()
                if self._runs == _RUNS + 1:
                    with suppress(RuntimeError):  # something waits for the device, or there is no memory left
                        self.now = self._record(self.now, list(arrays))
        return self.now(arrays)


class Graph:
    """A function as a CUDA graph, with the results of the function.

    What a graph computes with has its place: arguments are copied there, and results are copied from there, since the
    next call writes to the same memory. A call whose tensors are laid out otherwise than those it was recorded with, or
    in which PyTorch is set otherwise, runs the function: kernels are chosen by both, and may round otherwise.

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
            self._graph, self._outputs = _recorded(run, self._inputs)
            self._done.record()

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        if _is_recording() or list(map(_layout, arrays)) != self._layouts or _settings() != self._settings:
            return self._run(arrays)
        with self._lock.now, cuda.device(self._device):
            # A call before, on another stream, may still compute in the same memory.
            cuda.current_stream().wait_event(self._done)
            _copy(self._inputs, arrays)
            arrays.clear()
            self._graph.replay()
            results = [torch.empty_like(output) for output in self._outputs]
            _copy(results, self._outputs)
            self._done.record()
        return tuple(results)


def _recorded(run: Run, inputs: list[Any]) -> tuple[Any, tuple[Any, ...]]:
    """A graph of a function of these tensors, and where it puts its results; nothing is computed yet."""
    stream = cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):  # as PyTorch asks for, so that libraries have what they allocate at first
        for _ in range(2):
            run(list(inputs))
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may go on meanwhile
        outputs = run(list(inputs))
    return graph, outputs


def _copy(to: list[Any], of: Sequence[torch.Tensor]) -> None:
    """Several tensors, by few kernels."""
    if to:
        torch._foreach_copy_(to, list(of))


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.stride(), tensor.data_ptr() % 16, tensor.is_conj(), tensor.is_neg()


def _settings() -> tuple[Any, ...]:
    """What kernels are chosen by, besides the tensors."""
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
    """Whether the user records a graph, of which this is a part."""
    return bool(cuda.is_current_stream_capturing())


def on_one_device(tensors: list[Any]) -> bool:
    """Whether there are tensors, and nothing else, and all are on one CUDA device."""
    devices = {str(getattr(tensor, "device", "none")) for tensor in tensors}
    return len(devices) == 1 and devices.pop().startswith("cuda")
