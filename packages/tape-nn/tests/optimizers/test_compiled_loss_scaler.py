"""LossScaler in compiled functions: the branch by the gradients' values is part of the code."""

from __future__ import annotations

import inspect
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

SCALES = [1.0, 2.0, 3.0, math.inf, 1.0, 2.0, math.nan, 3.0, 1.0]


def a_step(optimizer: Any, w: Any, table: Any) -> Callable[..., Any]:
    def step(x: Any) -> Any:
        with tc.GradientTape() as tape:
            rows = tc.gather(table, tc.asarray([2, 0]))
            loss = optimizer.scale_loss(tc.sum(tc.sin(w) * w) * x + tc.sum(rows * rows) * x)
        optimizer.apply_gradients(zip(tape.gradient(loss, [w, table]), [w, table], strict=True))
        return loss

    return step


def outcome(optimizer: Any, variables: list[Any]) -> list[Any]:
    state = optimizer.state_dict({f"v{k}": v for k, v in enumerate(variables)})
    return [v.numpy().tobytes() for v in variables] + [(name, state[name].numpy().tobytes()) for name in sorted(state)]


def a_scaler(inner: Any, **options: Any) -> tuple[Any, list[Any]]:
    variables = [tc.Variable(np.linspace(0.1, 1, 600)), tc.Variable(np.ones((3, 2)))]
    return nn.LossScaler(inner(), **{"initial_scale": 1024.0, "growth_interval": 2, **options}), variables


INNER: dict[str, Callable[[], Any]] = {
    "SGD": lambda: nn.SGD(0.1),
    "Adam": lambda: nn.Adam(0.01, clipnorm=0.5),
    "schedule": lambda: nn.AdamW(nn.schedules.ExponentialDecay(0.1, 2, 0.5), weight_decay=0.1),
    "Ftrl": lambda: nn.Ftrl(0.1),  # is opaque by itself
    "accumulation": lambda: nn.GradientAccumulation(nn.Adam(0.01), 2),
}


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("inner", INNER)
def test_steps_have_the_bits_of_eager_ones(inner: str, outer: bool) -> None:
    def train(compiled: bool) -> list[Any]:
        scaler, variables = a_scaler(INNER[inner])
        optimizer = nn.GradientAccumulation(scaler, 2) if outer else scaler
        step = a_step(optimizer, *variables)
        run: Any = tc.function(step) if compiled else step
        found: list[Any] = [run(tc.asarray(x, dtype=tc.float64)).numpy().tobytes() for x in SCALES]
        return [*found, scaler.scale, scaler.skipped, scaler.iterations, *outcome(optimizer, variables)]

    assert train(True) == train(False)


@pytest.mark.parametrize("inner", ["Adam", "accumulation"])
def test_no_part_of_a_step_is_opaque(inner: str) -> None:
    scaler, variables = a_scaler(INNER[inner])
    w = variables[0]

    def step(x: Any) -> None:
        with tc.GradientTape() as tape:
            loss = scaler.scale_loss(tc.sum(w * w) * x)
        scaler.apply_gradients([(tape.gradient(loss, w), w)])

    run: Any = tc.function(step)
    run(tc.asarray(1.0, dtype=tc.float64))
    ((compiled,),) = run._compiled.values()
    names = [instruction.name for instruction in compiled.program.instructions]
    assert "cond" in names
    assert "apply_gradients" not in names


@pytest.mark.each_backend
@pytest.mark.parametrize("outer", [False, True])
def test_an_exported_step_has_scale_and_counts_as_numbers(outer: bool, tmp_path: Path) -> None:
    w = tc.Variable([1.0, 2.0], name="w")
    scaler = nn.LossScaler(nn.SGD(0.25), initial_scale=8.0, growth_interval=2)
    optimizer: Any = nn.GradientAccumulation(scaler, 2) if outer else scaler

    @tc.function(compile="python")
    def step(x: Any) -> None:
        with tc.GradientTape() as tape:
            loss = optimizer.scale_loss(tc.sum(w * w) * x)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    step(tc.asarray(1.0))
    step(tc.asarray(1.0))  # with `outer` that is the update
    step.export(tmp_path / "step.py")
    text = (tmp_path / "step.py").read_text(encoding="utf-8")
    assert "tape_" not in text.replace("Written by tape_core", "").partition("def step(")[0].replace("tape_core.Gr", "")
    assert "array_api_compat" not in text
    run = runpy.run_path(str(tmp_path / "step.py"))["step"]
    names = [name for name in inspect.signature(run).parameters if name not in ("argument0", "w")]
    assert {"scale", "in_a_row", "skipped", "iterations", "rate"} <= set(names)
    for x in (1.0, math.inf) if not outer else ():
        given = {"scale": scaler.scale, "in_a_row": scaler._in_a_row, "skipped": scaler.skipped}
        numbers = {**given, "iterations": scaler.iterations, "rate": 0.25}
        found = run(tc.asarray(x).array, w.array, *[numbers[name] for name in names])
        step(tc.asarray(x))
        results = [np.asarray(value).tolist() for value in found]
        assert w.tolist() in results
        assert scaler.scale in results
        assert scaler.skipped in results


def test_updates_in_branches_and_loops() -> None:
    def train(compiled: bool) -> list[Any]:
        scaler, (w, _) = a_scaler(lambda: nn.Adam(0.01))

        def update(x: Any) -> Any:
            with tc.GradientTape() as tape:
                loss = scaler.scale_loss(tc.sum(w * w) * x)
            scaler.apply_gradients([(tape.gradient(loss, w), w)])
            return loss

        def step(xs: Any) -> Any:
            update(xs[0])
            _, losses = tc.scan(lambda carry, x: (carry, update(x)), tc.asarray(0.0), xs)
            tc.cond(losses[0] > losses[1], lambda: update(xs[0]), lambda: losses[1])
            return losses

        run: Any = tc.function(step) if compiled else step
        losses = [run(tc.asarray(SCALES[k : k + 3], dtype=tc.float64)).numpy().tobytes() for k in range(6)]
        return [*losses, *outcome(scaler, [w])]

    assert train(True) == train(False)


def test_what_is_set_between_calls_counts() -> None:
    def train(compiled: bool) -> list[Any]:
        scaler, variables = a_scaler(lambda: nn.Adam(0.01))
        step = a_step(scaler, *variables)
        run: Any = tc.function(step) if compiled else step
        for k, x in enumerate(SCALES):
            if k == 3:
                scaler.growth_factor, scaler.backoff_factor, scaler.learning_rate = 4.0, 0.25, 0.02
            run(tc.asarray(x, dtype=tc.float64))
        return outcome(scaler, variables)

    assert train(True) == train(False)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loss_that_is_not_finite_itself_changes_nothing(compiled: bool) -> None:
    scaler, variables = a_scaler(lambda: nn.SGD(0.1), initial_scale=2.0**-13)
    step = a_step(scaler, *variables)
    run: Any = tc.function(step) if compiled else step
    run(tc.asarray(1.0, dtype=tc.float64))
    run(tc.asarray(math.nan, dtype=tc.float64))
    before = outcome(scaler, variables)
    with pytest.raises(FloatingPointError, match="it is not their size"):
        for _ in range(20):
            before = outcome(scaler, variables)
            run(tc.asarray(math.nan, dtype=tc.float64))
    assert outcome(scaler, variables) == before
    run(tc.asarray(1.0, dtype=tc.float64))
    assert outcome(scaler, variables) != before
