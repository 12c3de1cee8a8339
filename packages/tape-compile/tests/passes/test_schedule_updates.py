"""The schedule of updates: a Variable is updated as soon as its gradient is there."""

from __future__ import annotations

import tape_core as tc
from support import names, traced
from tape_compile.passes import PASSES


def test_updates_move_up_to_their_gradients_and_values_stay() -> None:
    ws = [tc.Variable([1.0, 2.0], backend="numpy") for _ in range(3)]

    def step(x: tc.Tensor) -> tc.Tensor:
        with tc.GradientTape() as tape:
            y = x
            for w in ws:
                y = tc.tanh(y * w)
            loss = tc.sum(y)
        for w, g in zip(ws, tape.gradient(loss, ws), strict=True):
            w.assign_sub(0.1 * g)
        return loss

    x = tc.asarray([0.5, -0.5], backend="numpy")
    program = traced(step, x)
    scheduled = PASSES["schedule_updates"].transform(program)
    assert sorted(names(scheduled)) == sorted(names(program))
    first = names(program).index("subtract")
    earlier = names(scheduled).index("subtract")
    assert earlier < first


def test_without_variables_nothing_moves() -> None:
    program = traced(lambda x: tc.sin(x) + 1.0, tc.ones(2, backend="numpy"))
    assert PASSES["schedule_updates"].transform(program) is program
