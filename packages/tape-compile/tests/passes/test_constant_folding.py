"""Constant folding: what depends on constants alone is computed once, unless it is an effect."""

from __future__ import annotations

import tape_core as tc
from support import names, traced
from tape_compile.passes import PASSES


def test_what_constants_alone_decide_is_computed_once() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        table = tc.asarray([[2.0, 1.0], [1.0, 3.0]])
        return x * tc.exp(table + table)

    program = traced(f, tc.ones(2))
    assert names(program)[-3:] == ["add", "exp", "multiply"]
    folded = PASSES["constant_folding"].transform(program)
    assert names(folded) == ["multiply"]
    assert len(folded.constants) > len(program.constants)


def test_random_draws_are_no_constants() -> None:
    generator = tc.default_rng(0)
    program = traced(lambda x: x + generator.uniform((2,), backend="numpy"), tc.ones(2, backend="numpy"))
    folded = PASSES["constant_folding"].transform(program)
    assert [i.name for i in folded.instructions if i.effect] == ["random_bits"]
