"""Compiled steps write new values over old ones, or into the memory of former ones: never what anybody may see."""

from __future__ import annotations

import copy
import gc
import io
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch
from live_memory import assert_same, at_most
from support import ignore_threads
from tape_compile import thresholds
from tape_core.support import COUNTS_REFERENCES, release_spares

counted = pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
in_turns = pytest.mark.parametrize("on_the_cpu", ["in turns"], indirect=True)
WIDTH = 128


@pytest.fixture(autouse=True, params=["over", "in turns"])
def on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "over":
        ignore_threads(monkeypatch)
    else:  # as where another thread could look
        monkeypatch.setattr("tape_compile.codegen.overwriting.may_overwrite", lambda: False)
    monkeypatch.setattr(thresholds, "SPARE_MIN_ELEMENTS", 1)
    monkeypatch.setattr(thresholds, "SPARE_MAX_GROWTH", 100.0)
    monkeypatch.setattr(thresholds, "FUSE_MIN_ELEMENTS", 1)
    monkeypatch.setattr(thresholds, "FUSE_MIN_WORK", 1)
    with tc.use_backend("torch:cpu"):
        yield


class Training:
    """Steps of Adam for a small network."""

    def __init__(self, **options: Any) -> None:
        tc.set_seed(0)
        self.model = nn.Sequential([nn.Dense(WIDTH, activation="tanh") for _ in range(2)])
        self.model.build((None, WIDTH))
        self.optimizer = nn.Adam(1e-2)
        self.variables = self.model.trainable_variables
        self.x = tc.asarray(torch.linspace(-1.0, 1.0, 16 * WIDTH).reshape(16, WIDTH))
        self.step = tc.function(self.update, **options)

    def update(self, x: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean((self.model(x) - x) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.variables), self.variables, strict=True))
        return loss

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self.x)

    @property
    def state(self) -> list[Any]:
        slots = [slot for state in self.optimizer._states.values() for slot in state.slots.values()]
        return [v.array for v in (*self.variables, *slots) if v.ndim == 2]

    def places(self) -> set[int]:
        return {array.data_ptr() for array in self.state}


def values(training: Training) -> list[Any]:
    return [array.clone() for array in training.state]


@counted
@in_turns
def test_new_values_take_turns_in_the_memory_of_former_ones() -> None:
    training = Training()
    training.run(4)
    first = training.places()
    training.run(1)
    second = training.places()
    assert not first & second
    training.run(1)
    assert training.places() == first
    training.run(1)
    assert training.places() == second


def test_results_have_the_bits_that_they_have_without() -> None:
    with_spares, without = Training(), Training(passes={"in_place": False})
    eager = Training()
    for _ in range(7):
        with_spares.run(1)
        without.run(1)
        eager.update(eager.x)
        assert_same(with_spares.state, without.state)
    for one, other in zip(with_spares.state, eager.state, strict=True):
        torch.testing.assert_close(one, other)


KEPT: dict[str, Callable[[Any], Any]] = {
    "the array": lambda array: array,
    "a view": lambda array: array[1:, ::2],
    "a transpose": lambda array: array.mT,
    "what detach gives": lambda array: array.detach(),
    "an array of NumPy": lambda array: array.numpy(),
    "an array by the buffer of NumPy": lambda array: np.asarray(array)[3],
    "a capsule of DLPack": lambda array: torch.from_dlpack(array),
    "a capsule of DLPack that NumPy has": lambda array: np.from_dlpack(array),
    "the storage": lambda array: array.untyped_storage(),
    "a tensor of the storage": lambda array: torch.empty(0).set_(array.untyped_storage()),
    "a Parameter": lambda array: torch.nn.Parameter(array),
    "a Tensor": lambda array: tc.asarray(array),
    "a memoryview": lambda array: memoryview(array.numpy()),
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_somebody_keeps_stays_as_it_is(kind: str) -> None:
    training, twin = Training(), Training()
    training.run(5)
    twin.run(5)
    kept = [KEPT[kind](array) for array in training.state]
    expected = [array.clone() for array in training.state]
    seen = [KEPT[kind](array) for array in expected]
    for _ in range(4):
        training.run(1)
        for one, other in zip(kept, seen, strict=True):
            if kind == "the storage":
                assert bytes(one) == bytes(other)
            else:
                one, other = (x.detach() if isinstance(x, torch.Tensor) else x for x in (one, other))
                assert np.array_equal(getattr(one, "array", one), getattr(other, "array", other))
    del kept
    twin.run(4)
    assert_same(training.state, twin.state)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_another_process_that_shares_the_memory_sees_no_later_values() -> None:
    training = Training()
    training.run(5)
    for array in training.state:
        array.share_memory_()
    ready, go = os.pipe()
    child = os.fork()
    if not child:
        try:
            state, expected = training.state, [array.clone().numpy().tobytes() for array in training.state]
            os.read(ready, 1)
            os._exit([array.numpy().tobytes() for array in state] != expected)
        finally:
            os._exit(2)
    training.run(4)
    os.write(go, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_memory_of_a_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_bytes(np.zeros(WIDTH * WIDTH, "float32").tobytes())
    training = Training()
    training.run(5)
    training.variables[0].assign(torch.from_file(str(file), shared=True, size=WIDTH * WIDTH).reshape(WIDTH, WIDTH))
    training.run(4)
    assert not np.frombuffer(file.read_bytes(), "float32").any()


@counted
def test_a_weak_reference_shows_no_later_values() -> None:
    training = Training()
    training.run(5)
    watched, expected = [weakref.ref(array) for array in training.state], values(training)
    for _ in range(3):
        training.run(1)
        for ref, value in zip(watched, expected, strict=True):
            array = ref()
            assert array is None or torch.equal(array, value)


def test_values_that_a_tape_has_recorded_stay_as_they_are() -> None:
    training = Training()
    training.run(5)
    w = training.variables[0]
    with tc.GradientTape() as tape:
        loss = tc.sum(w * w)
    expected = 2 * w.array.clone()
    training.run(4)
    assert torch.equal(tape.gradient(loss, w).array, expected)


def test_a_checkpoint_that_another_thread_writes_has_one_step() -> None:
    training = Training()
    training.run(5)
    expected, begun, go = values(training), threading.Event(), threading.Event()
    written = io.BytesIO()

    def write(arrays: list[Any]) -> None:
        begun.set()
        go.wait(60)
        torch.save(arrays, written)

    thread = threading.Thread(target=write, args=(training.state,))
    thread.start()
    begun.wait(60)
    training.run(4)
    go.set()
    thread.join(60)
    written.seek(0)
    assert_same(torch.load(written), expected)


def test_threads_that_read_see_whole_values() -> None:
    # Each element of a value is the number of the step.
    v = tc.Variable(tc.zeros((256, 256)))

    @tc.function
    def step() -> None:
        v.assign((v * 1.0 + 1.5) - 0.5)

    torn, stop = [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            array = v.array
            first = array.numpy().copy()
            second = array.numpy().copy()
            if first.min() != first.max() or not np.array_equal(first, second):
                torn.append(first)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        step()
    stop.set()
    for reader in readers:
        reader.join(60)
    assert not torn
    assert float(v[0, 0]) == 300.0


def test_a_function_that_threads_call_at_once_has_memory_for_each() -> None:
    training = Training()
    training.run(5)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            training.run(20)
        except BaseException as error:  # noqa: BLE001 - it is told below
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert len(training.places()) == len(training.state)
    assert all(torch.isfinite(array).all() for array in training.state)


@in_turns
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_step_that_fails_leaves_the_old_values(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    # At each of the calls that write into the memory in turn.
    from tape_torch import blocks

    training, twin = Training(), Training()
    training.run(5)
    twin.run(5)
    call, at = blocks._Blocks.__call__, 0
    failed = 0
    while True:
        at, count = at + 1, 0

        def fails(self: Any, *arrays: Any, out: Any = None, at: int = at) -> Any:
            nonlocal count
            count += 1
            found = call(self, *arrays, out=out)
            if count == at:
                raise error("in the middle")
            return found

        expected = values(training)
        monkeypatch.setattr(blocks._Blocks, "__call__", fails)
        try:
            training.run(1)
        except error:
            failed += 1
            assert_same(training.state, expected)
        else:
            break
        finally:
            monkeypatch.setattr(blocks._Blocks, "__call__", call)
        training.run(1)
        twin.run(1)
        assert_same(training.state, twin.state)
    assert failed >= 2


def test_a_copy_of_a_model_stays_as_it_is() -> None:
    training = Training()
    training.run(5)
    copied = copy.deepcopy(training.model)
    expected = [v.array.clone() for v in training.variables]
    training.run(1)
    other = copy.deepcopy(training.model)
    later = [v.array.clone() for v in training.variables]
    training.run(3)
    assert_same([v.array for v in copied.trainable_variables], expected)
    assert_same([v.array for v in other.trainable_variables], later)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_has_memory_of_its_own() -> None:
    training, twin = Training(), Training()
    training.run(5)
    twin.run(5)
    child = os.fork()
    if not child:
        try:
            training.run(3)
            expected = values(training)
            twin.run(3)
            assert_same(twin.state, expected)
            os._exit(0)
        finally:
            os._exit(1)
    training.run(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    twin.run(2)
    assert_same(training.state, twin.state)


def test_steps_within_and_without_inference_mode_take_turns() -> None:
    # PyTorch refuses to write into what was made in that mode elsewhere.
    training, twin = Training(), Training()
    for at in range(12):
        with torch.inference_mode(at % 4 > 1):
            training.run(1)
        twin.run(1)
    assert_same(training.state, twin.state)


def test_a_value_that_lies_otherwise_keeps_its_layout() -> None:
    def results(**options: Any) -> list[Any]:
        v = tc.Variable(tc.asarray(torch.arange(6.0 * WIDTH).reshape(6, WIDTH)))

        @tc.function(**options)
        def step() -> None:
            v.assign((v * 1.5 + 1.0) / 3.0)

        found = []
        for at in range(8):
            if at == 4:
                v.assign(torch.arange(6.0 * WIDTH).reshape(WIDTH, 6).mT)
            step()
            found.append((v.array.clone(), v.array.stride()))
        return found

    for (one, stride), (other, expected) in zip(results(), results(passes={"in_place": False}), strict=True):
        assert torch.equal(one, other)
        assert stride == expected


@counted
@in_turns
def test_memory_is_free_when_the_function_is_gone() -> None:
    training = Training()
    training.run(5)
    former = [weakref.ref(array) for array in training.state]
    training.run(1)
    assert all(ref() is not None for ref in former)
    training.step = None  # type: ignore[assignment]
    gc.collect()
    assert all(ref() is None for ref in former)


@counted
@in_turns
def test_a_trace_frees_the_memory_first() -> None:
    training = Training()
    training.run(5)
    former = [weakref.ref(array) for array in training.state]
    training.run(1)
    assert all(ref() is not None for ref in former)
    tc.function(lambda x: x + 1.0)(training.x)
    assert all(ref() is None for ref in former)
    training.run(3)  # and goes on


@counted
def test_functions_of_one_variable_share_its_memory() -> None:
    training = Training()
    other = tc.function(training.update)
    size = sum(4 * array.numel() for array in training.state)
    for _ in range(6):
        training.step(training.x)
        other(training.x)

    def both() -> None:
        training.step(training.x)
        other(training.x)

    assert at_most(both) < 7.2 * size  # of the parameters alone; nine with memory of their own
    release_spares()


@counted
def test_a_step_with_much_else_in_memory_keeps_less(monkeypatch: pytest.MonkeyPatch) -> None:
    # What it has in memory before its updates is more than two states: to keep one would come on top of that.
    def most(growth: float) -> int:
        monkeypatch.setattr(thresholds, "SPARE_MAX_GROWTH", growth)
        v = tc.Variable(tc.zeros((64, 64)))
        x = tc.asarray(torch.ones((4096, 64)))

        @tc.function
        def step() -> None:
            y = tc.sin(tc.exp(x @ v))
            v.assign((v * 0.5 + tc.matmul(tc.matrix_transpose(x), y)) * 0.25)

        return at_most(step)

    monkeypatch.setattr(thresholds, "SPARE_MIN_ELEMENTS", 1 << 60)
    without = most(1.0)
    monkeypatch.setattr(thresholds, "SPARE_MIN_ELEMENTS", 1)
    assert most(1.0) <= without
