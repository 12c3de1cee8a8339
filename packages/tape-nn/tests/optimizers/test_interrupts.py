"""An update of an optimizer, a scaler, an average or a metric is done, or it is not, wherever it is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_fuzz.injection import Injection, interrupted_at

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: nn.SGD(0.1, momentum=0.9),
    "Adam": lambda: nn.Adam(0.1, amsgrad=True),
    "AdamW": nn.AdamW,
    "RMSprop": lambda: nn.RMSprop(0.1, momentum=0.5, centered=True),
    "Adagrad": nn.Adagrad,
    "Adadelta": nn.Adadelta,
    "Ftrl": nn.Ftrl,
    "Lion": nn.Lion,
    "Nadam": nn.Nadam,
    "Adamax": nn.Adamax,
    "own": lambda: Own(0.1),
    "scaled": lambda: nn.LossScaler(nn.Adam(0.1), growth_interval=2),
}


class Own(nn.Optimizer):
    """One that updates in place, as the documentation allows, and runs Python where an attribute is assigned to."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)

    def _slots(self) -> dict[str, float]:
        return {"momentum": 0.0}

    def _step(self, xp: Any, w: Any, g: Any, slots: dict[str, Any], rate: float, t: int) -> Any:
        slots["momentum"] *= 0.9
        slots["momentum"] += g
        w -= slots["momentum"] * rate
        return w


def parameters() -> dict[str, tc.Variable]:
    # The second is updated in blocks.
    shapes = {"a": (3,), "b": (150_000,), "c": ()}
    return {name: tc.Variable(np.full(shape, 0.5, np.float32), name=name) for name, shape in shapes.items()}


def state_of(optimizer: Any, variables: dict[str, tc.Variable]) -> dict[str, bytes]:
    state = {**variables, **optimizer.state_dict(variables)}
    return {name: np.asarray(value).tobytes() for name, value in state.items()}


# The first update makes the slots; the paths of later ones are those of a few optimizers.
@pytest.mark.parametrize(
    ("name", "before"), [*[(name, 0) for name in OPTIMIZERS], *[(name, 1) for name in ("SGD", "Adam", "own", "scaled")]]
)
def test_an_interrupted_update_is_done_or_not(name: str, before: int) -> None:
    def make() -> tuple[Any, dict[str, tc.Variable], Callable[[], None]]:
        optimizer, variables = OPTIMIZERS[name](), parameters()
        pairs = [(tc.full_like(v.value, 0.25), v) for v in variables.values()]
        for _ in range(before):
            optimizer.apply_gradients(pairs)
        return optimizer, variables, lambda: optimizer.apply_gradients(pairs)

    optimizer, variables, update = make()
    old = state_of(optimizer, variables)
    update()
    new = state_of(optimizer, variables)
    low, high, seen = 0, 1, set()
    while True:  # ever later, then as late as can be
        optimizer, variables, update = make()
        ended = interrupted_at(high, update)
        found = state_of(optimizer, variables)
        assert found in (old, new), high
        seen.add(found == new)
        if found == old:
            update()
            assert state_of(optimizer, variables) == new
        if ended:
            low, high = high, high + 1 + high // 2
        elif high - low <= 1:
            break
        else:
            high = (low + high) // 2
    assert seen == {True, False}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_error_for_the_third_variable_changes_nothing(name: str) -> None:
    optimizer, variables = OPTIMIZERS[name](), parameters()
    good = [(tc.full_like(v.value, 0.25), v) for v in variables.values()]
    optimizer.apply_gradients(good)
    before = state_of(optimizer, variables)
    with pytest.raises(ValueError, match="shape"):
        optimizer.apply_gradients([*good[:2], (tc.ones((2,)), variables["c"])])
    assert state_of(optimizer, variables) == before


def test_a_step_of_an_optimizer_of_ones_own_that_raises_for_the_last_variable_changes_nothing() -> None:
    class Picky(Own):
        def _step(self, xp: Any, w: Any, g: Any, slots: dict[str, Any], rate: float, t: int) -> Any:
            if w.shape == ():
                raise ValueError("no numbers")
            return super()._step(xp, w, g, slots, rate, t)

    optimizer, variables = Picky(0.1), parameters()
    kept = [v.value for v in variables.values()]
    before = [v.numpy().tobytes() for v in variables.values()]
    with pytest.raises(ValueError, match="no numbers"):
        optimizer.apply_gradients([(tc.full_like(v.value, 0.25), v) for v in variables.values()])
    assert [v.numpy().tobytes() for v in variables.values()] == before
    assert [v.numpy().tobytes() for v in kept] == before
    assert optimizer.iterations == 0


@pytest.mark.parametrize("compiled", [True, False])
def test_a_state_dict_taken_in_another_thread_has_whole_arrays(compiled: bool) -> None:
    w = tc.Variable(np.full(400_000, 1.0, np.float32))
    optimizer, gradient = nn.Adam(0.01), tc.full_like(w.value, 0.5)

    def step(g: Any) -> None:
        optimizer.apply_gradients([(g, w)])

    run = tc.function(step) if compiled else step
    run(gradient)
    stop, torn = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            for name, value in {"w": w.value, **optimizer.state_dict({"w": w})}.items():
                array = value.numpy()
                if array.ndim and not (array == array[0]).all():
                    torn.append(name)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(100):
            run(gradient)
    finally:
        stop.set()
        reader.join()
    assert not torn


def test_averages_and_metrics_take_a_batch_in_or_do_not() -> None:
    variables = {"a": tc.Variable([1.0, 2.0]), "b": tc.Variable(np.ones(300_000))}
    average, metric = nn.ExponentialMovingAverage(variables, decay=0.5), nn.metrics.Mean()

    def take_in() -> None:
        average.update()

    take_in()
    for v in variables.values():
        v.assign(v * 2)

    def now() -> list[bytes]:
        return [np.asarray(value).tobytes() for value in average.state_dict().values()]

    state, old = average.state_dict(), now()
    take_in()
    new, number, ended = now(), 0, True
    assert old != new
    while ended:
        number += 1 + number // 8
        average.load_state_dict(state)
        ended = interrupted_at(number, take_in)
        assert now() in (old, new), number
    number, ended = 0, True
    while ended:
        number += 5
        metric.reset()
        ended = interrupted_at(number, lambda: metric.update([1.0, 3.0]))
        assert metric.state_dict() in ({"total": 0.0, "count": 0.0}, {"total": 4.0, "count": 2})


@pytest.mark.parametrize("what", ["update", "layer", "compiled"])
def test_an_interrupted_first_call_holds_up_no_other_thread(what: str) -> None:
    gradient = tc.ones(3)

    def first() -> Callable[[], Any]:
        if what == "update":
            optimizer, variable = nn.Adam(0.1), tc.Variable(tc.ones(3))
            return lambda: optimizer.apply_gradients([(gradient, variable)])
        if what == "layer":
            layer = nn.Dense(2)
            return lambda: layer.build((None, 3))
        return lambda: tc.function(lambda x: x * 2.0)(gradient)

    first()()
    counted = Injection(0, None)
    counted.into(first())
    last = counted.seen
    for number in [*range(1, last, 1 + last // 50), *range(max(1, last - 60), last + 1)]:
        interrupted_at(number, first())
        thread = threading.Thread(target=first(), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), number
