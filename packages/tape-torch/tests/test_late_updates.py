"""The first call of a compiled step makes updates when all else is done, over old values, and nobody sees that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn
import torch
from live_memory import assert_same
from support import ignore_threads
from tape_compile.tracer.late_updates import LateUpdate
from tape_core.engine.overwriting import Overwriting
from tape_core.support import COUNTS_REFERENCES

SHAPE = (48, 32)
OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "Adam": lambda: nn.Adam(0.1),
    "amsgrad": lambda: nn.Adam(0.1, amsgrad=True),
    "a schedule": lambda: nn.Adam(nn.schedules.ExponentialDecay(0.1, 1, 0.5)),
    "clipped": lambda: nn.Adam(0.1, global_clipnorm=0.5),
    "AdamW": lambda: nn.AdamW(0.1, clipvalue=0.5),
    "groups": lambda: nn.AdamW(0.1, groups=[nn.ParameterGroup(lambda v: v.name == "v0", learning_rate=0.2)]),
    "momentum": lambda: nn.SGD(0.1, momentum=0.9),
    "Nesterov": lambda: nn.SGD(0.1, momentum=0.9, nesterov=True),
    "LossScaler": lambda: nn.LossScaler(nn.Adam(0.1)),
    "GradientAccumulation": lambda: nn.GradientAccumulation(nn.Adam(0.1), 2),
}


@pytest.fixture(autouse=True)
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tape_torch.backend.BLOCK_ELEMENTS_PER_THREAD", 128)
    ignore_threads(monkeypatch)
    with tc.use_backend("torch:cpu"):
        yield


class Model:
    def __init__(self, kind: str = "Adam", dtype: Any = torch.float32) -> None:
        numbers = torch.linspace(-1.0, 1.0, SHAPE[0] * SHAPE[1]).reshape(SHAPE).to(dtype)
        self.variables = [tc.Variable(tc.asarray(numbers * (k + 1)), name=f"v{k}") for k in range(2)]
        self.mean = tc.Variable(tc.zeros(SHAPE), trainable=False)
        self.optimizer = OPTIMIZERS[kind]()
        self.matrix = tc.asarray((torch.eye(SHAPE[1]) * 0.5 + 0.25).to(dtype))

    def update(self) -> None:
        self.optimizer.apply_gradients([(v @ self.matrix, v) for v in self.variables])

    @property
    def state(self) -> list[Any]:
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        states = optimizer._states.values() if optimizer.iterations else ()  # a branch has slots from the beginning on
        return [v.array for v in (*self.variables, self.mean, *[s for one in states for s in one.slots.values()])]


def run_both(step: Callable[[Model], Any], kind: str = "Adam", calls: int = 3, dtype: Any = torch.float32) -> Model:
    """Compare the results and the state after each eager and compiled call; return the model of the compiled ones."""
    eager, model = Model(kind, dtype), Model(kind, dtype)
    compiled = tc.function(lambda: step(model))
    for _ in range(calls):
        found, expected = compiled(), step(eager)
        assert_same(model.state, eager.state)
        assert_same([x.array for x in found or ()], [x.array for x in expected or ()])
    return model


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[LateUpdate]:
    """The updates that are computed before the end, since somebody reads a value."""
    found, given = [], LateUpdate.settle

    def settle(self: LateUpdate) -> None:
        found.append(self)
        given(self)

    monkeypatch.setattr(LateUpdate, "settle", settle)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_first_calls_have_the_bits_of_eager_ones(kind: str, dtype: Any) -> None:
    run_both(Model.update, kind, dtype=dtype)


@pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
def test_slots_are_written_over_and_what_the_user_has_given_is_not() -> None:
    model = Model()
    given = [v.array for v in model.variables]
    before = [array.clone() for array in given]
    model.optimizer.build(model.variables)
    slots = [slot for state in model.optimizer._states.values() for slot in state.slots.values()]
    places = [slot.array.data_ptr() for slot in slots]
    tc.function(model.update)()
    assert [slot.array.data_ptr() for slot in slots] == places
    assert_same(given, before)
    assert not any(v.array is array for v, array in zip(model.variables, given, strict=True))
    tc.function(model.update, passes={"in_place": False})()
    assert not {slot.array.data_ptr() for slot in slots} & {*places}


def test_an_old_slot_that_somebody_has_keeps_its_value() -> None:
    model = Model()
    model.optimizer.build(model.variables)
    kept = next(iter(model.optimizer._states.values())).slots["momentum"].array
    tc.function(model.update)()
    assert not kept.any()


def test_new_values_are_there_for_who_reads_them(settled: list[LateUpdate]) -> None:
    def step(model: Model) -> Any:
        model.update()
        v, w = model.variables
        model.mean.assign(model.mean * 0.9 + v * 0.1)
        return tc.sum(v * v), w + 1.0

    run_both(step)
    assert len(settled) == 2


def test_one_that_is_read_leaves_the_others_late(settled: list[LateUpdate]) -> None:
    def step(model: Model) -> Any:
        model.update()
        return (model.variables[0] + 0.0,)

    run_both(step)
    assert len(settled) == 1


def test_what_nobody_reads_is_computed_once(settled: list[LateUpdate]) -> None:
    run_both(Model.update)
    assert not settled


def test_an_update_after_another_one_goes_on_from_that() -> None:
    def step(model: Model) -> None:
        model.update()
        model.update()

    run_both(step)


def test_an_assignment_after_an_update_is_what_remains() -> None:
    def step(model: Model) -> None:
        model.update()
        model.variables[0].assign(model.variables[0] * 0.5)
        model.variables[1].assign(model.matrix[:1] + tc.zeros(SHAPE))

    run_both(step)


def test_variables_that_swap_their_new_values() -> None:
    def step(model: Model) -> None:
        model.update()
        v, w = model.variables
        former = v + 0.0
        v.assign(w)
        w.assign(former)

    run_both(step)


@pytest.mark.parametrize("which", ["the value itself", "a view", "of the other one"])
def test_a_gradient_in_the_memory_of_an_old_value(which: str) -> None:
    def step(model: Model) -> None:
        v, w = model.variables
        gradients = {"the value itself": (v, w), "a view": (v.value[::-1], w), "of the other one": (w, v)}[which]
        model.optimizer.apply_gradients([(gradients[0], v), (gradients[1], w)])

    run_both(step)


def test_updates_in_the_block_of_a_tape_inside() -> None:
    def step(model: Model) -> Any:
        v, w = model.variables
        with tc.GradientTape() as tape:
            model.update()
            y = tc.sum(v * v * w)
        return tuple(tape.gradient(y, [v, w]))

    run_both(step)


def test_updates_in_branches_and_loops() -> None:
    def step(model: Model) -> Any:
        tc.cond(tc.sum(model.variables[0]) > -1e9, model.update, lambda: None)
        return (model.variables[0] + 0.0,)

    run_both(step)


def test_an_update_that_is_traced_in_vain_is_made_once() -> None:
    class Deciding(nn.Adam):
        def _compute_update(self, pairs: Any) -> Any:
            found = super()._compute_update(pairs)
            float(tc.sum(pairs[0][1]))  # a value, which a trace has not: the call becomes opaque
            return found

    def step(model: Model) -> None:
        if type(model.optimizer) is nn.Adam:
            model.optimizer = Deciding(0.1)
        model.update()

    run_both(step)


def test_a_function_that_goes_on_as_plain_python_has_the_values() -> None:
    model, eager = Model(), Model()

    def step(model: Model) -> float:
        model.update()
        return float(tc.sum(model.variables[0]))  # which falls back

    compiled = tc.function(lambda: step(model), fallback="silent")
    for _ in range(3):
        assert compiled() == step(eager)
        assert_same(model.state, eager.state)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_after_the_update_leaves_all_as_it_was(error: type[BaseException]) -> None:
    model = Model()
    model.optimizer.build(model.variables)
    before = [array.clone() for array in model.state]

    def step(fails: bool) -> None:
        model.update()
        if fails:
            raise error

    compiled = tc.function(step, static_argnames="fails")
    with pytest.raises(error):
        compiled(True)
    assert_same(model.state, before)
    assert model.optimizer.iterations == 0
    compiled(False)
    twin = Model()
    twin.update()
    assert_same(model.state, twin.state)


def test_an_error_while_it_is_computed_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    model.optimizer.build(model.variables)
    before = [array.clone() for array in model.state]

    def make(*_: Any) -> bool:
        raise MemoryError

    compiled = tc.function(model.update)
    with monkeypatch.context() as patch:
        patch.setattr(Overwriting, "make", make)
        with pytest.raises(MemoryError):
            compiled()
    assert_same(model.state, before)
    assert model.optimizer.iterations == 0
    compiled()
    twin = Model()
    twin.update()
    assert_same(model.state, twin.state)


def test_a_step_in_a_tapes_block_and_one_that_makes_its_variables() -> None:
    model, eager = Model(), Model()
    compiled = tc.function(lambda: model.update())
    with tc.GradientTape():
        compiled()
    eager.update()
    assert_same(model.state, eager.state)

    made: list[tc.Variable] = []
    optimizer = nn.Adam(0.1)

    @tc.function
    def first() -> None:
        if not made:
            made.append(tc.Variable(tc.ones(SHAPE)))
        optimizer.apply_gradients([(tc.ones(SHAPE), made[0])])

    for _ in range(3):
        first()
    w = tc.Variable(tc.ones(SHAPE))
    other = nn.Adam(0.1)
    for _ in range(3):
        other.apply_gradients([(tc.ones(SHAPE), w)])
    assert_same([made[0].array], [w.array])
