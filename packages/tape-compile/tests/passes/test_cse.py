"""CSE: a call that is the same as an earlier one gives the earlier one's results."""

from __future__ import annotations

import pytest
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


def test_a_check_of_the_same_values_is_made_once() -> None:
    def f(x: tc.Tensor, ids: tc.Tensor) -> object:
        return (
            tc.segment_sum(x, ids, 3),
            tc.segment_max(x, ids, 3),
            tc.segment_sum(x, ids, 3),
            tc.segment_sum(x, ids, 4),
        )

    x, ids = tc.ones(3, backend="numpy"), tc.asarray([0, 2, 1], backend="numpy")
    program = traced(f, x, ids)
    assert names(program).count("_check_ids") == 4
    # The op's name and the number of segments are in the message.
    assert names(PASSES["cse"].transform(program)).count("_check_ids") == 3
    compiled = tc.function(f)
    compiled(x, ids)
    with pytest.raises(ValueError, match=r"segment_sum: segment_ids must be in \[0, 3\), got 1 to 3"):
        compiled(x, ids + 1)


def test_checks_of_other_values_stay() -> None:
    def f(x: tc.Tensor, ids: tc.Tensor) -> object:
        return tc.segment_sum(x, ids, 3) + tc.segment_sum(x, 2 - ids, 3)

    program = traced(f, tc.ones(3, backend="numpy"), tc.asarray([0, 2, 1], backend="numpy"))
    assert names(PASSES["cse"].transform(program)).count("_check_ids") == 2
