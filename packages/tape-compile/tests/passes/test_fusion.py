"""Fusion: elementwise calls on large arrays become one call on blocks, with the same bits."""

from __future__ import annotations

import numpy as np
import tape_core as tc
from support import names, traced
from tape_compile.passes import PASSES

LARGE = 1 << 19  # elements: smaller arrays stay in the cache by themselves


def test_a_run_of_elementwise_calls_is_one_call_with_the_same_bits() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        return ((x * 0.5 + 1.0) * x - x) / 3.0

    x = tc.asarray(np.linspace(0, 1, LARGE), backend="numpy")
    compiled = tc.function(f)
    for _ in range(2):
        assert compiled(x).numpy().tobytes() == f(x).numpy().tobytes()
    assert "fused" in compiled.text()
    assert compiled.stats()[0]["fusion"] == 1


def test_small_arrays_are_left_alone() -> None:
    program = traced(lambda x: (x * 0.5 + 1.0) * x, tc.ones(8, backend="numpy"))
    assert names(PASSES["fusion"].transform(program)) == names(program)
