"""Updates write over old values that nobody else has: all of them or none, and never what anybody may see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch
from live_memory import assert_same
from support import ignore_threads
from tape_compile import thresholds
from tape_core.engine import layouts
from tape_core.engine.overwriting import Overwriting
from tape_core.support import COUNTS_REFERENCES, release_spares, undone_on_error

pytestmark = pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
SHAPE = (48, 32)


SETTINGS = {"compiled": False}
"""Whether steps are compiled."""


@pytest.fixture(autouse=True, params=["eager", "compiled"])
def in_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tape_torch.backend.BLOCK_ELEMENTS_PER_THREAD", 100)  # the last block is shorter
    monkeypatch.setattr("tape_torch.blocks.BLOCK_ELEMENTS_PER_THREAD", 100)
    for name in ("SPARE_MIN_ELEMENTS", "FUSE_MIN_ELEMENTS", "FUSE_MIN_WORK"):
        monkeypatch.setattr(thresholds, name, 2)  # more than the numbers among the arrays have
    monkeypatch.setitem(SETTINGS, "compiled", request.param == "compiled")
    ignore_threads(monkeypatch)
    with tc.use_backend("torch:cpu"):
        yield


OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "Adam": lambda: nn.Adam(0.1),
    "clipped": lambda: nn.Adam(0.1, global_clipnorm=0.5),
    "AdamW": lambda: nn.AdamW(0.1, clipvalue=0.5),
    "SGD": lambda: nn.SGD(0.1, weight_decay=0.01),
    "momentum": lambda: nn.SGD(0.1, momentum=0.9),
    "LossScaler": lambda: nn.LossScaler(nn.Adam(0.1)),
    "GradientAccumulation": lambda: nn.GradientAccumulation(nn.Adam(0.1), 2),
}


class Training:
    def __init__(self, kind: str = "Adam") -> None:
        numbers = torch.linspace(-1.0, 1.0, SHAPE[0] * SHAPE[1])
        self.variables = [tc.Variable(tc.asarray(numbers.reshape(SHAPE) * k)) for k in (1, 2)]
        self.matrix = tc.asarray(torch.eye(SHAPE[1]) * 0.5 + 0.25)
        self.outer = OPTIMIZERS[kind]()
        self.optimizer = getattr(self.outer, "optimizer", self.outer)
        self.step = tc.function(self.update) if SETTINGS["compiled"] else self.update

    def update(self) -> None:
        self.outer.apply_gradients([(v @ self.matrix, v) for v in self.variables])

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    @property
    def holders(self) -> list[Any]:
        return [*self.variables, *[s for state in self.optimizer._states.values() for s in state.slots.values()]]

    @property
    def state(self) -> list[Any]:
        return [v.array for v in self.holders]

    def copied(self) -> list[Any]:
        return [array.clone() for array in self.state]

    def places(self) -> list[int]:
        return [array.data_ptr() for array in self.state]


def in_new_memory(training: Training, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tape_nn.optimizers.updates.may_overwrite", lambda: False)
        patch.setattr("tape_compile.codegen.overwriting.may_overwrite", lambda: False)
        for _ in range(steps):
            release_spares()
            training.run(1)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_bits_are_those_of_new_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    training, without = Training(kind), Training(kind)
    training.run(2)
    places = training.places()
    training.run(6)
    is_branch = SETTINGS["compiled"] and kind in ("LossScaler", "GradientAccumulation")  # of which values come out
    assert is_branch or training.places() == places
    in_new_memory(without, 8, monkeypatch)
    assert_same(training.state, without.state)


def test_who_knows_an_array_by_its_identity_finds_another() -> None:
    training = Training()
    training.run(3)
    former = [id(array) for array in training.state]
    training.run(1)
    assert not {*former} & {id(array) for array in training.state}


KEPT: dict[str, Callable[[Any], Any]] = {
    "the array": lambda v: v.array,
    "a view": lambda v: v.array[1:, ::2],
    "an array of NumPy": lambda v: v.array.numpy(),
    "a capsule of DLPack": lambda v: torch.from_dlpack(v.array),
    "a detached array": lambda v: v.array.detach(),
    "a Tensor": tc.asarray,
    "a view of a Tensor": lambda v: tc.asarray(v)[1:],
    "a copy on write": lambda v: torch._lazy_clone(v.array),
}


@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("which", [0, 3])
def test_what_somebody_has_keeps_its_value(
    kind: str, which: int, meanwhile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also what a signal handler, say, takes after the calls have been planned, and right before they are made.
    training, twin = Training(), Training()
    training.run(4)
    kept, given = [], Overwriting.make

    def make(self: Overwriting, *args: Any) -> bool:
        kept.append(KEPT[kind](training.holders[which]))
        return given(self, *args)

    expected = KEPT[kind](tc.asarray(training.holders[which], copy=True)) if kind != "a Tensor" else None
    before = training.copied()[which]
    if meanwhile:
        with monkeypatch.context() as patch:
            patch.setattr(Overwriting, "make", make)
            training.run(1)
    else:
        kept.append(KEPT[kind](training.holders[which]))
        training.run(1)
    found = getattr(kept[0], "array", kept[0])
    expected = before if expected is None else expected
    assert np.array_equal(found, getattr(expected, "array", expected))
    training.run(2)
    assert np.array_equal(found, getattr(expected, "array", expected))
    in_new_memory(twin, 7, monkeypatch)
    assert_same(training.state, twin.state)
    del found
    kept.clear()
    training.run(3)
    places = training.places()
    training.run(1)
    assert training.places() == places


def test_what_tapes_and_gradients_have_keeps_its_value() -> None:
    training = Training()
    training.run(4)
    (w, _), before = training.variables, training.copied()[0]
    with tc.GradientTape(persistent=True) as tape:
        y = tc.sum(w * w * w)
    training.run(2)
    torch.testing.assert_close(tape.gradient(y, w).array, 3 * before * before)
    kept, before = tc.asarray(w), training.copied()[0]
    training.outer.apply_gradients([(kept, w)])  # the gradient is the value
    assert torch.equal(kept.array, before)
    kept = training.copied()[0]
    with tc.GradientTape() as tape:
        y = tc.sum(w * w)
        training.run(1)
    torch.testing.assert_close(tape.gradient(y, w).array, 2 * kept)


def test_variables_that_share_an_array_keep_theirs() -> None:
    training = Training()
    training.run(4)
    other = tc.Variable(training.variables[0])
    other._raw = training.variables[0]._raw
    before = training.copied()[0]
    training.run(2)
    assert torch.equal(other.array, before)


def test_nothing_is_overwritten_while_another_thread_could_look() -> None:
    training, ends = Training(), threading.Event()
    training.run(4)
    places = training.places()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    try:
        training.run(1)
        assert not {*training.places()} & {*places}
    finally:
        ends.set()
        thread.join()


class Failing:
    """A call that fails some times before it does anything."""

    def __init__(self, times: int, error: type[BaseException]) -> None:
        self.times = times
        self.error = error

    def __call__(self) -> None:
        if self.times:
            self.times -= 1
            raise self.error("in the middle")


def failing(patch: pytest.MonkeyPatch, at: int, times: int, error: type[BaseException]) -> None:
    given = Overwriting.make

    def make(self: Overwriting, *args: Any) -> bool:
        self._calls.insert(at, partial(Failing(times, error)))
        return given(self, *args)

    patch.setattr(Overwriting, "make", make)


@pytest.mark.parametrize("at", [0, 1, 50])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_has_begun_is_brought_to_its_end(
    error: type[BaseException], at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, twin = Training(), Training()
    training.run(4)
    with monkeypatch.context() as patch:
        failing(patch, at, 1, error)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                training.run(1)
        else:
            training.run(1)
    assert training.optimizer.iterations == 5
    in_new_memory(twin, 5, monkeypatch)
    assert_same(training.state, twin.state)
    training.run(2)
    twin.run(2)
    assert_same(training.state, twin.state)


def test_a_call_that_fails_twice_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    training.run(4)
    before = training.copied()
    with monkeypatch.context() as patch:
        failing(patch, 0, 2, MemoryError)
        with pytest.raises(MemoryError):
            training.run(1)
    assert_same(training.state, before)
    assert training.optimizer.iterations == 4
    with monkeypatch.context() as patch:
        failing(patch, 1, 2, MemoryError)
        with pytest.raises(RuntimeError, match=r"half written when MemoryError came.*from a checkpoint"):
            training.run(1)


def test_values_that_may_be_put_back_are_not_overwritten() -> None:
    training = Training()
    training.run(4)
    before = training.copied()
    with pytest.raises(ZeroDivisionError), undone_on_error():
        training.run(2)
        raise ZeroDivisionError
    assert_same(training.state, before)


def test_steps_of_a_class_of_the_users_are_not_deferred() -> None:
    class Halved(nn.Adam):
        def _step(self, xp: Any, w: Any, g: Any, slots: Any, rate: float, t: int) -> Any:
            self._update_moments(g, slots)
            return w - slots["momentum"] * rate  # read at once

    w = tc.Variable(tc.asarray(torch.ones(SHAPE)))
    optimizer = Halved(0.5)
    for _ in range(4):
        optimizer.apply_gradients([(tc.ones(SHAPE), w)])
    momentum, expected = 0.0, 1.0
    for _ in range(4):
        momentum += (1 - momentum) * 0.1
        expected -= 0.5 * momentum
    torch.testing.assert_close(w.array, torch.full(SHAPE, expected))


def test_an_update_that_fails_at_its_end_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes compare how many updates each has made: one that ran out of memory has made none."""
    if not SETTINGS["compiled"]:
        pytest.skip("eager updates are computed before they are committed")
    training = Training()
    training.run(3)
    counted: list[int] = []
    monkeypatch.setattr(layouts, "are_compared", True)
    monkeypatch.setattr(layouts, "_counts", [lambda variables, *_: counted.append(len(variables))])

    def out_of_memory(*_: Any) -> None:
        raise MemoryError

    before = training.copied()
    with monkeypatch.context() as patch:
        patch.setattr("tape_compile.codegen.overwriting.settle", out_of_memory)
        with pytest.raises(MemoryError):
            training.run(1)
    assert_same(training.state, before)
    assert counted == []
    training.run(1)
    assert len(counted) == 1
