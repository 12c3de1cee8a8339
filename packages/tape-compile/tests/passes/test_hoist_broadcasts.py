"""What compiled functions broadcast to one shape again and again, they lay out in it once."""

from __future__ import annotations

from functools import partial

import tape_core as tc
from support import same, values

draw = partial(values, dtype="float32", backend="numpy")


def recurrent(h: tc.Tensor, u: tc.Tensor, b: tc.Tensor, rounds: int) -> list[tc.Tensor]:
    with tc.GradientTape() as tape:
        tape.watch([h, u, b])
        state = h
        for _ in range(rounds):
            state = tc.tanh(state @ u + b)
        loss = tc.sum(state * state)
    return [loss, *tape.gradient(loss, [h, u, b])]


def test_a_bias_in_a_loop_is_laid_out_once() -> None:
    compiled = tc.function(recurrent)
    for seed in range(3):
        h, u, b = draw(5, 7, seed=seed), draw(7, 7, seed=seed + 3), draw(7, seed=seed + 6)
        assert same(compiled(h, u, b, 6), recurrent(h, u, b, 6))
    assert compiled.text().count("broadcast_to(") == 1
    as_it_was = tc.function(passes={"hoist_broadcasts": False})(recurrent)
    assert same(as_it_was(h, u, b, 6), recurrent(h, u, b, 6))
    assert "broadcast_to(" not in as_it_was.text()


def test_not_where_it_would_not_pay() -> None:
    compiled = tc.function(recurrent)
    compiled(draw(5, 7), draw(7, 7), draw(7), 2)  # a few times
    compiled(draw(90, 70), draw(70, 70), draw(70), 6)  # long rows
    assert "broadcast_to(" not in compiled.text()


def test_an_array_that_lies_column_by_column_stays_so() -> None:
    def f(x: tc.Tensor, b: tc.Tensor) -> list[tc.Tensor]:
        y = tc.matrix_transpose(x)
        for _ in range(6):
            y = y * 1.5 + b
        return [tc.sum(y), y]

    compiled = tc.function(f)
    x, b = draw(64, 50), draw(64)
    compiled(x, b)
    assert same(compiled(x, b), f(x, b))
    assert compiled(x, b)[1].numpy().strides == f(x, b)[1].numpy().strides
