"""DCE: calls whose results nothing needs are dropped, unless they are effects."""

from __future__ import annotations

import tape_core as tc
from support import names, traced
from tape_compile.passes import PASSES


def test_a_call_that_nothing_needs_is_dropped_with_what_it_alone_needs() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        tc.exp(tc.sin(x))
        return tc.cos(x)

    program = traced(f, tc.ones(2, backend="numpy"))
    assert names(program) == ["sin", "exp", "cos"]
    assert names(PASSES["dce"].transform(program)) == ["cos"]


def test_an_effect_stays() -> None:
    seen: list[float] = []
    note = tc.staging.host_callback(lambda x: seen.append(x.item()))

    def f(x: tc.Tensor) -> tc.Tensor:
        note(tc.sum(x))
        return tc.cos(x)

    kept = PASSES["dce"].transform(traced(f, tc.ones(2, backend="numpy")))
    assert names(kept)[0] == "sum"
    assert [i.effect for i in kept.instructions].count(True) == 1
