"""Simplification: algebra that is exact, also for infinities, NaN and -0."""

from __future__ import annotations

import pytest
import tape_core as tc
from support import names, traced
from tape_compile.passes import PASSES
from tape_core.ops.data_types import laid_out_like as laid_out


def test_what_changes_nothing_goes() -> None:
    x = tc.ones((2, 3), backend="numpy")
    program = traced(lambda x: tc.exp(tc.reshape(tc.negative(-(x * 1.0)) / 1.0 - 0.0, (2, 3)) ** 1), x)
    assert names(PASSES["dce"].transform(PASSES["simplify"].transform(program))) == ["exp"]


def test_what_is_returned_has_memory_of_its_own() -> None:
    x = tc.ones((2, 3), backend="numpy")
    program = traced(lambda x: (tc.matrix_transpose(tc.negative(-(x * 1.0))), tc.reshape(x, (2, 3))), x)
    simplified = PASSES["dce"].transform(PASSES["simplify"].transform(program))
    assert names(simplified) == ["negative", "negative", "matrix_transpose"]
    assert simplified.outputs[1] == simplified.inputs[0]  # as in eager code


def test_an_array_is_laid_out_once_as_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, z = (tc.ones((2, 3), backend="numpy") for _ in range(3))
    program = traced(lambda x, y, z: laid_out(laid_out(laid_out(x, y), y), z), x, y, z)
    assert names(PASSES["dce"].transform(PASSES["simplify"].transform(program))) == []  # NumPy divides none
    monkeypatch.setattr(type(x.backend.compiler_support), "can_be_divided", lambda self, spec: True)
    assert names(PASSES["dce"].transform(PASSES["simplify"].transform(program))) == ["laid_out_like"] * 2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of infinities
def test_what_changes_a_zero_or_an_infinity_stays() -> None:
    def f(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
        return x + 0.0, x * 0.0, x - x

    x = tc.asarray([-0.0, float("inf")], backend="numpy")
    simplified = PASSES["dce"].transform(PASSES["simplify"].transform(traced(f, x)))
    assert names(simplified) == ["add", "multiply", "subtract"]
    found = [str(value.tolist()) for value in tc.function(f)(x)]
    assert found == ["[0.0, inf]", "[-0.0, nan]", "[0.0, nan]"]
