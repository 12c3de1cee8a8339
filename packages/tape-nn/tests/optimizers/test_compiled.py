"""Optimizers in compiled functions: their updates are part of the code, with the bits of eager ones."""

from __future__ import annotations

import copy
import gc
import pickle
import runpy
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.staging import TracingError, host_callback

OPTIMIZERS: dict[str, Callable[..., nn.Optimizer]] = {
    "SGD": nn.SGD,
    "momentum": lambda rate, **options: nn.SGD(rate, momentum=0.9, **options),
    "nesterov": lambda rate, **options: nn.SGD(rate, momentum=0.9, nesterov=True, **options),
    "Adam": nn.Adam,
    "amsgrad": lambda rate, **options: nn.Adam(rate, amsgrad=True, **options),
    "AdamW": nn.AdamW,
    "Adamax": nn.Adamax,
    "Nadam": nn.Nadam,
    "RMSprop": nn.RMSprop,
    "centered": lambda rate, **options: nn.RMSprop(rate, momentum=0.5, centered=True, **options),
    "Adagrad": nn.Adagrad,
    "Adadelta": nn.Adadelta,
    "Ftrl": lambda rate, **options: nn.Ftrl(rate, l1_regularization_strength=0.01, beta=0.1, **options),
    "Lion": nn.Lion,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipnorm": {"clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.1},
    "global_clipnorm": {"global_clipnorm": 0.5},
    "decay": {"weight_decay": 0.1},
    "schedule": {"learning_rate": nn.schedules.CosineDecay(0.1, 4, warmup_target=0.2, warmup_steps=2)},
}


def a_model() -> Any:
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(70, activation="tanh"), nn.Dense(3)])
    model(tc.zeros((1, 64)))
    return model


def a_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(x), y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step


def data() -> tuple[Any, Any]:
    return tc.default_rng(1).normal((8, 64)), tc.default_rng(2).integers(0, 3, (8,))


def outcome(model: Any, optimizer: Any) -> list[bytes]:
    """All bits of the Variables, and of what the optimizer remembers."""
    state = {**model.state_dict(), **optimizer.state_dict(model)}
    return [state[name].numpy().tobytes() for name in sorted(state)]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_have_the_bits_of_eager_ones(name: str, option: str) -> None:
    options = dict(OPTIONS[option])
    rate = options.pop("learning_rate", 0.05)

    def train(*, compiled: bool) -> tuple[list[bytes], Any]:
        model, optimizer = a_model(), OPTIMIZERS[name](rate, **options)
        step = a_step(model, optimizer)
        run: Any = tc.function(step) if compiled else step
        losses = [run(*data()).numpy().tobytes() for _ in range(5)]
        assert optimizer.iterations == 5
        return [*losses, *outcome(model, optimizer)], run

    found, run = train(compiled=True)
    expected, _ = train(compiled=False)
    assert found == expected
    assert run.traces == 1
    # Ftrl decides by its learning rate whether to do anything.
    assert ("apply_gradients" in [i.name for i in instructions(run)]) == (name == "Ftrl")


def instructions(run: Any) -> list[Any]:
    """Return the instructions of the newest trace."""
    (compiled,) = next(iter(run._compiled.values()))
    found: list[Any] = compiled.program.instructions
    return found


def test_what_is_set_between_calls_counts() -> None:
    def train(compiled: bool) -> list[bytes]:
        model, optimizer = a_model(), nn.Adam(0.05)
        step = a_step(model, optimizer)
        run: Any = tc.function(retrace="allow")(step) if compiled else step
        run(*data())
        optimizer.learning_rate = 0.01
        run(*data())
        optimizer.learning_rate = nn.schedules.ExponentialDecay(0.1, 2, 0.5)
        run(*data())
        optimizer.iterations = 7
        run(*data())
        optimizer.beta_1 = 0.5
        run(*data())
        optimizer.weight_decay = 0.1
        run(*data())
        optimizer.exclude_from_weight_decay(model.trainable_variables[:1])
        run(*data())
        return outcome(model, optimizer)

    assert train(True) == train(False)


def test_a_state_that_is_loaded_between_calls_counts() -> None:
    def train(compiled: bool, *, resumed: bool) -> list[bytes]:
        model, optimizer = a_model(), nn.Adam(0.05)
        step = a_step(model, optimizer)
        run: Any = tc.function(step) if compiled else step
        for _ in range(2):
            run(*data())
        weights, state = model.state_dict(), optimizer.state_dict(model)
        if resumed:
            for _ in range(2):
                run(*data())
            model.load_state_dict(weights)
            optimizer.load_state_dict(state, model)
        for _ in range(2):
            run(*data())
        if compiled:
            assert run.traces == 1  # the slots are the ones that it knows
        return outcome(model, optimizer)

    expected = train(False, resumed=False)
    assert train(True, resumed=True) == expected
    assert train(True, resumed=False) == expected


def test_a_new_optimizer_goes_on_from_a_compiled_ones_state() -> None:
    model, optimizer = a_model(), nn.Adam(0.05)
    run = tc.function(a_step(model, optimizer))
    for _ in range(3):
        run(*data())
    weights, state = model.state_dict(), optimizer.state_dict(model)
    run(*data())
    other, its = a_model(), nn.Adam(0.3)
    other.load_state_dict(weights)
    its.load_state_dict(state, other)
    tc.function(a_step(other, its))(*data())
    assert outcome(other, its) == outcome(model, optimizer)


def test_a_variable_that_appears_late_starts_fresh() -> None:
    def train(compiled: bool) -> list[bytes]:
        model, optimizer = a_model(), nn.Adam(0.05)
        frozen = model.variables[0]
        frozen.trainable = False
        step = a_step(model, optimizer)
        run: Any = tc.function(step) if compiled else step
        for _ in range(2):
            run(*data())
        frozen.trainable = True
        for _ in range(2):
            run(*data())
        started = [int(v) for name, v in optimizer.state_dict(model).items() if name.endswith("/started")]
        assert sorted(started) == [0, 0, 0, 2]
        return outcome(model, optimizer)

    assert train(True) == train(False)


def test_two_updates_in_one_call_and_one_in_a_loop() -> None:
    def train(compiled: bool) -> list[bytes]:
        w = tc.Variable(tc.linspace(0, 1, 5), name="w")
        optimizer = nn.Adam(nn.schedules.ExponentialDecay(0.1, 2, 0.5), weight_decay=0.01)

        def update(x: Any) -> Any:
            with tc.GradientTape() as tape:
                loss = tc.sum((w * x - 1) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])
            return loss

        def step(xs: Any) -> Any:
            update(xs[0])
            update(xs[1])
            _, losses = tc.scan(lambda carry, x: (carry, update(x)), tc.asarray(0.0), xs)
            tc.cond(losses[0] > losses[1], lambda: update(xs[0]), lambda: tc.asarray(0.0))
            return losses

        run: Any = tc.function(step) if compiled else step
        losses = [run(tc.reshape(tc.linspace(0, 2, 15), (3, 5))).numpy().tobytes() for _ in range(3)]
        return [*losses, w.numpy().tobytes(), bytes([optimizer.iterations])]

    assert train(True) == train(False)


class Signs(nn.Optimizer):
    """An optimizer as a user writes one."""

    def _slots(self) -> dict[str, float]:
        return {"mean": 0.0}

    def _step(self, xp: Any, w: Any, g: Any, slots: dict[str, Any], rate: float, t: int) -> Any:
        slots["mean"] += g / t
        w -= rate * xp.sign(slots["mean"])
        return w


class Halting(Signs):
    """One that decides by the number of the update, and counts in Python."""

    steps = 0

    def _step(self, xp: Any, w: Any, g: Any, slots: dict[str, Any], rate: float, t: int) -> Any:
        if t > 3:
            return w
        return super()._step(xp, w, g, slots, rate, t)


@pytest.mark.parametrize("kind", [Signs, Halting])
def test_an_optimizer_of_ones_own(kind: type[nn.Optimizer]) -> None:
    def train(compiled: bool) -> tuple[list[bytes], Any]:
        model, optimizer = a_model(), kind(0.01)
        step = a_step(model, optimizer)
        run: Any = tc.function(step) if compiled else step
        for _ in range(5):
            run(*data())
        return outcome(model, optimizer), run

    found, run = train(True)
    assert found == train(False)[0]
    assert ("apply_gradients" in [i.name for i in instructions(run)]) == (kind is Halting)


def test_the_rate_and_the_count_are_those_of_the_call() -> None:
    w = tc.Variable(1.0)
    optimizer = nn.SGD(0.5)

    @tc.function
    def step(g: Any) -> Any:
        optimizer.apply_gradients([(g, w)])
        return g * optimizer.learning_rate, tc.asarray(optimizer.iterations, dtype=tc.int64)

    for k in range(3):
        optimizer.learning_rate = 0.5 * k
        rate, count = step(tc.asarray(2.0))
        assert (rate.item(), count.item()) == (k, k + 1)
    assert step.traces == 1
    with pytest.raises(TracingError, match="needs the value of a traced number here"):
        tc.function(lambda g: g if optimizer.learning_rate > 0.1 else -g)(tc.asarray(2.0))


def test_nothing_that_somebody_holds_is_changed() -> None:
    w = tc.Variable(tc.ones((80, 80)))
    optimizer = nn.SGD(0.5, momentum=0.9)

    @tc.function
    def step(g: Any) -> None:
        optimizer.apply_gradients([(g, w)])

    g = tc.ones((80, 80))
    for _ in range(3):
        step(g)
    value, raw, state = w.value, w.array, optimizer.state_dict({"w": w})
    with tc.GradientTape() as tape:
        y = tc.sum(w * w)
    view = w.array[0]
    was = [value.numpy().copy(), tc.asarray(raw).numpy(), state["w/momentum"].numpy(), tc.asarray(view).numpy()]
    expected = 2 * value.numpy()
    for _ in range(2):
        step(g)
    for now, before in zip((value, raw, state["w/momentum"], view), was, strict=True):
        assert np.array_equal(tc.asarray(now).numpy(), before)
    assert np.array_equal(tape.gradient(y, w).numpy(), expected)
    assert np.array_equal(g.numpy(), np.ones((80, 80)))


def test_metrics_and_averages_are_part_of_the_code() -> None:
    def train(compiled: bool) -> tuple[list[Any], Any]:
        model, optimizer = a_model(), nn.SGD(0.05)
        mean, accuracy = nn.metrics.Mean(), nn.metrics.SparseCategoricalAccuracy()
        average = nn.ExponentialMovingAverage(model, decay=0.5)
        one = a_step(model, optimizer)

        def step(x: Any, y: Any) -> None:
            mean.update(one(x, y))
            accuracy.update(y, model(x), tc.linspace(0, 1, 8))
            average.update()

        run: Any = tc.function(step) if compiled else step
        found: list[Any] = []
        for k in range(6):
            if k == 3:
                mean.reset()
                average.load_state_dict(average.state_dict())
            run(*data())
            found += [mean.result(), accuracy.result()]
        return [*found, *[v.numpy().tobytes() for v in average.state_dict().values()]], run

    found, run = train(True)
    assert found == train(False)[0]
    names = [instruction.name for instruction in next(iter(run._compiled.values()))[0].program.instructions]
    assert not {"update", "_take_in"} & set(names)


def test_the_first_update_of_an_average_changes_no_gradient() -> None:
    def train(compiled: bool) -> list[bytes]:
        rng = np.random.default_rng(0)
        v, w = [tc.Variable(rng.normal(size=200)) for _ in range(2)]
        average = nn.ExponentialMovingAverage({"v": v, "w": w}, decay=0.5)

        def gradients(x: Any) -> Any:
            with tc.GradientTape() as tape:
                early = tc.sin(v * x) + w, v * x * 0.3 - tc.tanh(v)
                average.update()
                late = v * 0.5 + v * v, tc.cos(v) * w  # the Variables are the same as before, and so are their slots
                loss = sum(tc.sum(tc.sin(part)) for part in (*early, *late))
            return tape.gradient(loss, [v, w])

        run: Any = tc.function(gradients) if compiled else gradients
        found = [gradient for _ in range(3) for gradient in run(tc.asarray(rng.normal(size=200)))]
        return [x.numpy().tobytes() for x in (*found, *average.state_dict().values())]

    assert train(True) == train(False)


@pytest.mark.parametrize("name", ["SGD", "nesterov", "Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Lion"])
def test_a_training_step_is_exported_with_its_optimizer(name: str, tmp_path: Path) -> None:
    if tc.get_backend().name != "numpy":
        pytest.skip("read with NumPy")
    model, optimizer = a_model(), OPTIMIZERS[name](0.05, global_clipnorm=0.5)
    step = tc.function(a_step(model, optimizer))
    step(*data())
    step.export(tmp_path / "step.py")
    alone = runpy.run_path(str(tmp_path / "step.py"))["step"]
    assert "import tape" not in (tmp_path / "step.py").read_text()
    x, y = data()
    compiled = next(iter(step._compiled.values()))[0]
    given = [x.numpy(), y.numpy(), *[np.array(v._array) if v.backend else v._array for v in compiled.variables]]
    loss, *new = alone(*given)
    assert loss == step(x, y).numpy()
    for variable, value in zip(compiled.assigned, new, strict=True):
        assert np.array_equal(value, variable._array)
    assert [value for value in new if type(value) is int] == [2]  # the number of updates


def test_a_schedule_is_not_exported() -> None:
    model, optimizer = a_model(), nn.SGD(nn.schedules.CosineDecay(0.1, 10))
    step = tc.function(a_step(model, optimizer))
    step(*data())
    with pytest.raises(ValueError, match=r"CosineDecay.* has no source that stands alone"):
        step.export("nowhere.py")


@pytest.mark.skipif(tc.get_backend().name != "numpy", reason="NumPy's memory is counted")
def test_a_step_lets_go_of_gradients_and_updates_in_place() -> None:
    def peak(*, compiled: bool) -> int:
        tc.set_seed(0)
        model = nn.Sequential([nn.Dense(512, "relu"), nn.Dense(512, "relu"), nn.Dense(10)])
        x, y = tc.default_rng(1).normal((128, 784)), tc.default_rng(2).integers(0, 10, (128,))
        model(x)
        step = a_step(model, nn.SGD(0.01))
        run: Any = tc.function(step) if compiled else step
        for _ in range(3):
            run(x, y)
        tracemalloc.start()
        try:
            run(x, y)
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            run(x, y)
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()

    assert peak(compiled=True) < 0.65 * peak(compiled=False)


def test_a_compiled_function_with_a_metric_inside_a_tape() -> None:
    def train(compiled: bool) -> list[Any]:
        w, mean = tc.Variable([1.0, 2.0]), nn.metrics.Mean()

        def loss(x: Any) -> Any:
            value = tc.sum((w * x) ** 2)
            mean.update(value)
            return value

        run: Any = tc.function(loss) if compiled else loss
        found: list[Any] = []
        for k in range(3):
            with tc.GradientTape() as tape:
                value = run(tc.asarray([k, 1.0]))
            found += [tape.gradient(value, w).tolist(), mean.result()]
        return found

    assert train(True) == train(False)


def test_rows_of_a_large_table_are_updated_in_two_memories_by_turns() -> None:
    def train(compiled: bool) -> tuple[bytes, list[int]]:
        table = tc.Variable(tc.reshape(tc.linspace(0, 1, 20_000), (1000, 20)))
        optimizer = nn.SGD(0.5)

        def step(k: Any) -> None:
            with tc.GradientTape() as tape:
                loss = tc.sum(tc.gather(table, k) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        run = tc.function(step) if compiled else step
        places = []
        for k in range(5):
            run(tc.asarray([k, 7, k]))
            places.append(id(table._array))
        kept = table.value
        before = kept[9, 0].item()
        run(tc.asarray([9]))
        assert kept[9, 0].item() == before != table[9, 0].item()
        return table.numpy().tobytes(), places

    found, places = train(True)
    assert found == train(False)[0]
    if tc.get_backend().array_class is not None:
        assert len(set(places[1:])) == 2


@host_callback
def refuse_large(value: Any) -> None:
    if value.item() > 1e6:
        raise FloatingPointError("a loss is large")


def test_a_check_that_fails_leaves_everything_as_it_was() -> None:
    model, optimizer = a_model(), nn.Adam(0.05)

    @tc.function
    def step(x: Any, y: Any) -> None:
        with tc.GradientTape() as tape:
            loss = tc.sum((model(x) - y) ** 2)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        refuse_large(loss)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    x = data()[0]
    for _ in range(3):
        step(x, tc.ones((8, 3)))
    before = outcome(model, optimizer)
    with pytest.raises(FloatingPointError):
        step(x, tc.full((8, 3), 1e6))
    assert outcome(model, optimizer) == before
    step(x, tc.ones((8, 3)))
    assert optimizer.iterations == 4


def test_a_trainer_and_its_optimizer_go_without_the_garbage_collector() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Sequential([nn.Dense(3), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(1)])
            self.optimizer = nn.Adam(0.1)

        @tc.function
        def step(self, x: Any) -> Any:
            with tc.GradientTape() as tape:
                loss = tc.mean(self.model(x) ** 2)
            variables = self.model.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

    class Net(nn.Module):
        def __init__(self) -> None:
            self.dense = nn.Dense(2)

        @tc.function
        def __call__(self, x: Any) -> Any:
            return self.dense(x) * (2.0 if self.training else 1.0)

    gc.collect()
    gc.disable()
    try:
        trainer, net = Trainer(), Net()
        for _ in range(3):
            trainer.step(tc.ones((4, 3)))
            net(tc.ones((4, 3)))
        net.eval()
        parts: list[Any] = [trainer, trainer.optimizer, trainer.model.trainable_variables[0], net, net.dense.kernel]
        alive = [weakref.ref(part) for part in parts]
        del trainer, net, parts
        assert [part() for part in alive] == [None] * 5
    finally:
        gc.enable()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_an_optimizer_has_settings_of_its_own(copied: Any) -> None:
    first = nn.SGD(0.5, weight_decay=0.0)
    first.learning_rate = first.learning_rate  # which looks at the settings
    another, w = copied(first), tc.Variable([1.0])

    @tc.function
    def step() -> None:
        another.apply_gradients([(tc.ones(1), w)])

    step()
    another.weight_decay = 1.0
    step()
    assert w.tolist() == [(1.0 - 0.5) * 0.5 - 0.5]
