"""CSE: a call that is the same as an earlier one gives the earlier one's results."""

from __future__ import annotations

import tape_core as tc
from support import names, traced
from tape_compile.passes import PASSES


def test_the_same_call_is_made_once() -> None:
    x = tc.ones(3, backend="numpy")
    program = traced(lambda x: tc.sin(x) * tc.sin(x) + tc.sum(x, axis=0) - tc.sum(x, axis=0), x)
    assert names(program).count("sin") == 2
    assert sorted(names(PASSES["cse"].transform(program))) == ["add", "multiply", "sin", "subtract", "sum"]


def test_calls_with_other_parameters_or_effects_stay() -> None:
    generator = tc.default_rng(0)

    def f(x: tc.Tensor) -> object:
        draws = [generator.uniform((2,), backend="numpy") for _ in range(2)]
        return tc.sum(x, axis=0), tc.sum(x, axis=1), draws

    reduced = PASSES["cse"].transform(traced(f, tc.ones((2, 2), backend="numpy")))
    assert names(reduced).count("sum") == 2
    assert names(reduced).count("random_bits") == 2
