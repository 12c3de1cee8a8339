"""Optimizers write new values into the memory of former ones in eager steps, and never into what anybody may see."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch
from live_memory import Live, assert_same
from tape_core.support import COUNTS_REFERENCES, release_spares, undone_on_error

counted = pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
SHAPE = (48, 32)


@pytest.fixture(autouse=True)
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tape_torch.backend.BLOCK_ELEMENTS_PER_THREAD", 64)
    with tc.use_backend("torch:cpu"):
        yield


OVERWRITING = ("Adam", "AdamW", "plain SGD", "momentum")  # those that write over old values that nobody else has
OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "SGD": lambda: nn.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: nn.Adam(0.1),
    "AdamW": lambda: nn.AdamW(0.1, clipvalue=0.5),
    "momentum": lambda: nn.SGD(0.1, momentum=0.9),
    "plain SGD": lambda: nn.SGD(0.1, clipnorm=2.0),
    "AMSGrad": lambda: nn.Adam(0.1, amsgrad=True),
    "Nadam": lambda: nn.Nadam(0.1),
    "RMSprop": lambda: nn.RMSprop(0.1, momentum=0.5),
    "Adagrad": lambda: nn.Adagrad(0.1),
    "Adadelta": lambda: nn.Adadelta(0.1),
    "Lion": lambda: nn.Lion(0.1),
}


class Training:
    def __init__(self, kind: str = "Adam") -> None:
        self.w = tc.Variable(tc.asarray(torch.linspace(-1.0, 1.0, SHAPE[0] * SHAPE[1]).reshape(SHAPE)))
        self.optimizer = OPTIMIZERS[kind]()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.apply_gradients([(self.w * 0.5 + 0.25, self.w)])

    @property
    def state(self) -> list[Any]:
        slots = [slot for state in self.optimizer._states.values() for slot in state.slots.values()]
        return [v.array for v in (self.w, *slots)]

    def places(self) -> list[int]:
        return [array.data_ptr() for array in self.state]


@counted
@pytest.mark.parametrize("kind", [kind for kind in OPTIMIZERS if kind not in OVERWRITING])
def test_new_values_take_turns_in_the_memory_of_former_ones(kind: str) -> None:
    training = Training(kind)
    training.run(4)
    first = training.places()
    training.run(1)
    second = training.places()
    assert not {*first} & {*second}
    training.run(1)
    assert training.places() == first
    training.run(1)
    assert training.places() == second


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_results_have_the_bits_that_they_have_in_new_memory(kind: str) -> None:
    training, without = Training(kind), Training(kind)
    for _ in range(6):
        training.run(1)
        release_spares()
        without.run(1)
        release_spares()
        training.run(1)
        release_spares()
        without.run(1)
        assert_same(training.state, without.state)
    training.run(5)
    for _ in range(5):
        release_spares()
        without.run(1)
    assert_same(training.state, without.state)


@counted
def test_a_step_allocates_no_more_once_there_are_two_states() -> None:
    training = Training("AMSGrad")
    gradient = tc.asarray(torch.ones(SHAPE))
    steps = lambda: training.optimizer.apply_gradients([(gradient, training.w)])  # noqa: E731
    for _ in range(4):
        steps()
    live = Live()
    with live:
        steps()
        steps()
        live.most = 0
        steps()
    one = 4 * SHAPE[0] * SHAPE[1]
    assert live.most < 9.5 * one  # two states, the gradient, and temporaries of blocks


KEPT: dict[str, Callable[[Any], Any]] = {
    "the array": lambda array: array,
    "a view": lambda array: array[1:, ::2],
    "an array of NumPy": lambda array: array.numpy(),
    "a capsule of DLPack": lambda array: torch.from_dlpack(array),
    "the storage": lambda array: array.untyped_storage(),
    "a Tensor": lambda array: tc.asarray(array),
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_somebody_keeps_stays_as_it_is(kind: str) -> None:
    training, twin = Training(), Training()
    training.run(5)
    twin.run(5)
    kept = [KEPT[kind](array) for array in training.state]
    copies = [array.clone() for array in training.state]
    expected = [KEPT[kind](array) for array in copies]
    training.run(4)
    for one, other in zip(kept, expected, strict=True):
        if kind == "the storage":
            assert bytes(one) == bytes(other)
        else:
            assert np.array_equal(getattr(one, "array", one), getattr(other, "array", other))
    del kept
    twin.run(4)
    assert_same(training.state, twin.state)


def test_what_a_tape_recorded_keeps_its_value() -> None:
    training = Training()
    training.run(5)
    with tc.GradientTape() as tape:
        y = tc.sum(training.w * training.w)
    expected = 2 * training.w.array.clone()
    training.run(3)
    assert torch.equal(tape.gradient(y, training.w).array, expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_step_that_fails_leaves_the_old_values(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    training, twin = Training(), Training()
    training.run(5)
    twin.run(5)
    given, count = nn.Adam._step, 0

    def fails(self: Any, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count == 7:
            raise error("in the middle")
        return given(self, *args)

    expected = [array.clone() for array in training.state]
    with monkeypatch.context() as patch:
        patch.setattr(nn.Adam, "_step", fails)
        with pytest.raises(error):
            training.run(1)
    assert_same(training.state, expected)
    training.run(3)
    twin.run(3)
    assert_same(training.state, twin.state)


def test_values_that_are_put_back_are_not_written_into() -> None:
    training = Training()
    training.run(5)
    expected = [array.clone() for array in training.state]
    for steps in (1, 2, 3):
        with pytest.raises(ZeroDivisionError), undone_on_error():
            training.run(steps)
            raise ZeroDivisionError
        assert_same(training.state, expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_has_memory_of_its_own(copied: Callable[[Any], Any]) -> None:
    training, twin = Training(), Training()
    training.run(5)
    twin.run(5)
    other = Training()
    other.w, other.optimizer = copied((training.w, training.optimizer))
    expected = [array.clone() for array in training.state]
    other.run(3)
    assert_same(training.state, expected)
    twin.run(3)
    assert_same(other.state, twin.state)
    training.run(3)
    assert_same(training.state, twin.state)


@counted
def test_eager_and_compiled_steps_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    step = tc.function(lambda: training.run(1))
    for _ in range(4):
        training.run(1)
        step()
    expected = Training()
    expected.run(8)
    for one, other in zip(training.state, expected.state, strict=True):
        torch.testing.assert_close(one, other)


def test_memory_goes_with_its_optimizer() -> None:
    from weakref import ref

    training = Training()
    training.run(5)
    former = [ref(spare) for state in training.optimizer._states.values() for spare, _ in state.spares or ()]
    assert former
    del training
    assert not [spare for spare in former if spare() is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_an_optimizer_begins_with_is_zeros(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    # From 1 MB on they take no memory until they are written to; the ends of the array lie in pages of others.
    monkeypatch.setattr("tape_torch.references.ZEROS_GIVEN_BACK_MIN_BYTES", 1)
    variables = [tc.Variable(tc.asarray(torch.ones(n, dtype=dtype))) for n in (1, 1000, 5000, 300_001)]
    beside = [torch.ones(n, dtype=dtype) for n in (1, 1000, 5000, 300_001)]
    optimizer = nn.Adam(0.1)
    optimizer.build(variables)
    for state in optimizer._states.values():
        for slot in state.slots.values():
            assert not slot.array.any()
            slot.assign(slot + 1.0)
            assert bool((slot.array == 1).all())
    assert all([bool((x == 1).all()) for x in (*beside, *[v.array for v in variables])])
