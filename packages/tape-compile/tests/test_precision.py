"""Where float64 begins in a compiled function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc


def _lines(origins: Any) -> list[tuple[str, int]]:
    return [(origin.op, origin.place.line - f_line()) for origin in origins]


def f_line() -> int:
    return _step.__code__.co_firstlineno


WEIGHTS = np.asarray([0.5, 1.5])


def _step(x: tc.Tensor) -> Any:
    tc.sum(x * WEIGHTS)  # dead
    y = tc.exp(x) * WEIGHTS
    z = tc.vmap(lambda a: a + 1.0)(y) * x
    return tc.grad(lambda v: tc.sum(tc.sin(v)))(x), tc.sum(z)


@pytest.mark.each_backend
def test_the_trace_tells_the_line_and_leaves_out_what_is_dead_or_downstream() -> None:
    f = tc.function(_step)
    assert _lines(f.float64_origins(tc.ones(2))) == [("multiply", 2)]
    assert f.traces == 1
    assert "y = tc.exp(x) * WEIGHTS" in repr(f.float64_origins(tc.ones(2)))
    assert f.float64_origins(tc.ones(2, dtype=tc.float64)) == ()


@pytest.mark.each_backend
def test_branches_and_loops_tell_of_their_lines() -> None:
    wide = tc.asarray(WEIGHTS)

    @tc.function
    def f(x: tc.Tensor, n: tc.Tensor) -> Any:
        y = tc.cond(tc.sum(x) > 0, lambda: x * wide, lambda: wide)
        _, z = tc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (tc.asarray(0), y))
        return z + x

    origins = f.float64_origins(tc.ones(2), tc.asarray(3))
    assert [(origin.op, origin.operands) for origin in origins] == [("multiply", ("float32", "float64"))]


def test_a_function_that_is_not_compiled_says_so() -> None:
    f = tc.function(lambda x: x * float(tc.sum(x)), fallback="silent")
    with pytest.raises(ValueError, match=r"float64_origins: .* runs as plain Python"):
        f.float64_origins(tc.ones(2))
