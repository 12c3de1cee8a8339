"""Compiled functions that become CUDA graphs: when they do, and that they compute the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import torch
from tape_torch import graphs

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def chain(x: Any, n: int = 40) -> Any:
    for _ in range(n):
        x = tc.tanh(x) * 0.5 + x
    return x


def program_of(function: Callable[..., Any], *shape: int) -> Any:
    f = tc.function(function)
    f(tc.zeros(shape, backend="torch", device="cpu"))
    return next(iter(f._compiled.values()))[0].program


def arrays_on(*devices: str) -> list[Any]:
    return [SimpleNamespace(device=torch.device(device)) for device in devices]


# -- the choice


def test_many_small_kernels_on_one_device_are_a_graph() -> None:
    program = program_of(chain, 8, 8)
    assert graphs.pays(program, arrays_on("cuda:0"))
    assert not graphs.pays(program, arrays_on("cpu"))
    assert not graphs.pays(program, arrays_on("cuda:0", "cuda:1"))
    assert not graphs.pays(program, [*arrays_on("cuda:0"), 0.5])
    assert not graphs.pays(program, [])


def test_few_or_large_kernels_are_no_graph() -> None:
    device = arrays_on("cuda:0")
    assert not graphs.pays(program_of(lambda x: chain(x, 2), 8, 8), device)
    assert not graphs.pays(program_of(chain, 1000, 1000), device)
    copied = program_of(lambda x: [tc.tanh(x + k) for k in range(30)], 8)
    assert not graphs.pays(copied, device)  # it copies as much as it computes


def test_on_the_cpu_and_on_request_the_code_runs_as_it_is() -> None:
    x = tc.zeros((8, 8), backend="torch", device="cpu")
    for compile in (None, "none", False):
        f = tc.function(compile=compile)(chain)
        f(x)
        compiled = next(iter(f._compiled.values()))[0]
        assert compiled.run is compiled.source.run


def test_effects_and_decisions_are_never_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "pays", lambda program, examples: True)
    x = tc.ones((8, 8), backend="torch", device="cpu")
    monkeypatch.setattr(x.backend, "compilers", ("cudagraph",))  # as where there is a CUDA device
    for function, later in (
        (chain, True),
        (lambda x: tc.dropout(chain(x), 0.5), False),
        (lambda x: tc.cond(tc.sum(x) > 0, tc.sin, tc.cos, x), False),
    ):
        f = tc.function(function)
        f(x)
        code = inspect.unwrap(next(iter(f._compiled.values()))[0].run)  # the first run checks what the code returns
        assert isinstance(code, graphs.Later) is later


# -- without a device, on the CPU in its place


class _Recorded:
    """A stand-in for a CUDA graph: it computes again, in the same memory."""

    def __init__(self, run: Any, inputs: list[Any]) -> None:
        self.run, self.inputs = run, inputs
        self.outputs = run(list(inputs))

    def replay(self) -> None:
        for to, of in zip(self.outputs, self.run(list(self.inputs)), strict=True):
            to.copy_(of)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    stream = SimpleNamespace(wait_event=lambda event: log.append("wait"))
    cuda = SimpleNamespace(
        device=lambda device: nullcontext(),
        Event=lambda: SimpleNamespace(record=lambda: log.append("done")),
        current_stream=lambda: stream,
        is_current_stream_capturing=lambda: False,
    )

    def record_graph(run: Any, inputs: list[Any]) -> tuple[Any, Any]:
        graph = _Recorded(run, inputs)
        return graph, graph.outputs

    monkeypatch.setattr(graphs, "cuda", cuda)
    monkeypatch.setattr(graphs, "_record_graph", record_graph)
    return log


# -- after some calls


def test_a_graph_is_recorded_at_the_third_run_and_once(stand_in: list[str]) -> None:
    log: list[str] = []

    def run(arrays: list[Any]) -> tuple[Any, ...]:
        log.append("run")
        return tuple(arrays)

    def record(function: Any, examples: list[Any]) -> Any:
        assert function is run
        assert examples == [1, 2]
        log.append("record")
        return lambda arrays: (log.append("graph"), *arrays)[1:]

    later = graphs.Later(run, record)
    for _ in range(5):
        assert later([1, 2]) == (1, 2)
    assert log == ["run", "run", "record", "graph", "graph", "graph"]


def test_what_cannot_be_recorded_stays_as_it_is(stand_in: list[str]) -> None:
    tries = []

    def record(function: Any, examples: list[Any]) -> Any:
        tries.append(1)
        raise RuntimeError("operation not permitted when stream is capturing")

    later = graphs.Later(lambda arrays: tuple(arrays), record)
    assert [later([k]) for k in range(6)] == [(k,) for k in range(6)]
    assert len(tries) == 1


# -- what a graph computes


def test_results_are_the_callers_and_arguments_are_left_alone(stand_in: list[str]) -> None:
    def run(arrays: list[Any]) -> tuple[Any, ...]:
        a, b = arrays
        arrays.clear()
        return a * b, a, b.T

    a, b = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).T
    graph = graphs.Graph(run, [a, b])
    first = graph([a, b])
    given = [a + 1, b]
    second = graph(given)
    assert given == []
    for (product, same, turned), x in ((first, a), (second, a + 1)):
        assert torch.equal(product, x * b)
        assert torch.equal(same, x)
        assert torch.equal(turned, b.T)
    first[1].zero_()
    assert torch.equal(a, torch.arange(6.0).reshape(2, 3))
    assert stand_in == ["done", "wait", "done", "wait", "done"]


def test_what_is_laid_out_otherwise_runs_as_it_is(stand_in: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def run(arrays: list[Any]) -> tuple[Any, ...]:
        runs.append(1)
        return (arrays[0] + 1,)

    x = torch.arange(64.0).reshape(8, 8)
    graph = graphs.Graph(run, [x])
    monkeypatch.setattr(_Recorded, "replay", lambda self: pytest.fail("replayed"))
    for given in (x.T, torch.arange(65.0)[1:].reshape(8, 8)):
        assert torch.equal(graph([given])[0], given + 1)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(graph([x])[0], x + 1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(runs) == 4
    with pytest.raises(RuntimeError, match="laid out in order"):
        graphs.Graph(run, [x[:, ::2]])


# -- on a device


@on_a_gpu
def test_a_training_step_on_a_device_becomes_a_graph_with_the_same_results() -> None:
    def trained(compile: Any) -> tuple[list[Any], Any]:
        w = tc.Variable(tc.asarray(np.eye(16, dtype="float32"), backend="torch", device="cuda:0"))

        @tc.function(compile=compile)
        def step(x: Any) -> Any:
            with tc.GradientTape() as tape:
                h = x
                for _ in range(8):
                    h = tc.tanh(h @ w)
                loss = tc.mean(h * h)
            w.assign_sub(0.1 * tape.gradient(loss, w))
            return loss

        xs = np.random.default_rng(0).normal(size=(6, 4, 16)).astype("float32")
        losses = [step(tc.asarray(x, backend="torch", device="cuda:0")) for x in xs]
        return [loss.item() for loss in losses] + w.tolist(), next(iter(step._compiled.values()))[0].run

    expected, _ = trained("none")
    found, run = trained(None)
    assert found == expected
    assert isinstance(run, graphs.Later)
    assert isinstance(run.now, graphs.Graph)
    assert trained("cudagraph")[0] == expected


@on_a_gpu
def test_calls_on_several_streams_do_not_mix() -> None:
    f = tc.function(compile="cudagraph")(chain)
    xs = [tc.full((64, 64), 0.1 * k, backend="torch", device="cuda:0") for k in range(8)]
    f(xs[0])
    torch.cuda.synchronize()
    found = []
    for k, x in enumerate(xs * 4):
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            found.append((k % 8, f(x)))
    torch.cuda.synchronize()
    for k, y in found:
        assert np.array_equal(y.numpy(), chain(xs[k]).numpy())
