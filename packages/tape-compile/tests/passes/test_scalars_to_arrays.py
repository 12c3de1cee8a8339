"""Numbers beside arrays in compiled functions: arrays of shape (), or of the result's, with the bits of eager calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn


def assert_same(compiled: Callable[..., Any], python: Callable[..., Any], *args: Any) -> None:
    for _ in range(2):
        for found, expected in zip(compiled(*args), python(*args), strict=True):
            assert found.dtype is expected.dtype
            assert found.numpy().strides == expected.numpy().strides
            assert found.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (40, 33)])
def test_numbers_beside_arrays(dtype: Any, shape: tuple[int, ...]) -> None:
    def f(x: Any) -> Any:
        y = 0.1 * (x * 3 - 1) / 7.5 + 2.0**-60
        return y, 1 / (y + 1e-7), 1.0 - y, y > 0, y <= 0.1, y * -0.0, y * math.inf, 2 - x, x < 3

    x = np.random.default_rng(0).normal(size=shape) * 9
    assert_same(tc.function(f), f, tc.asarray(np.asarray(x, dtype), backend="numpy"))


def test_literals_are_constants() -> None:
    def f(x: tc.Tensor) -> Any:
        return x * 0.1 + 0.1, x - 0.1

    x = tc.asarray(np.ones(5, np.float32), backend="numpy")
    compiled, left_out = tc.function(f), tc.function(passes={"scalars_to_arrays": False})(f)
    assert_same(compiled, f, x)
    assert_same(left_out, f, x)
    shown, as_it_was = (
        [line for line in text.splitlines() if "return x" not in line] for text in (compiled.text(), left_out.text())
    )
    assert [line.split(" = ")[1] for line in shown if "0.1" in line] == ["0.1"]  # in a comment, once for all three
    assert "".join(as_it_was).count("0.1") == 3


def test_a_number_that_changes_is_made_an_array_once_a_call() -> None:
    def make() -> tuple[Any, Any, Any]:
        variables = [tc.Variable(np.linspace(-1, 1, n, dtype=np.float32), backend="numpy") for n in (3, 5, 8)]
        optimizer = nn.Adam(0.05)

        def step(scale: Any) -> Any:
            optimizer.apply_gradients([(v * scale, v) for v in variables])
            return [v.value for v in variables]

        return optimizer, step, variables

    (optimizer, python, _), (other, compiled, _) = make(), make()
    compiled = tc.function(compiled)
    scale = tc.asarray(0.7, backend="numpy")
    for rate in (0.05, 0.01, 1e-9, 3):
        optimizer.learning_rate = other.learning_rate = rate
        for found, expected in zip(compiled(scale), python(scale), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()
    assert compiled.text().count("asarray(") == 1


SPECIAL = [-0.0, 0.0, math.nan, -math.nan, 1.0, -1.0, math.inf, -math.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 3), (9, 8), (3, 23), (64, 128), (150, 150)])
def test_relu_of_a_layer(dtype: Any, shape: tuple[int, int]) -> None:
    def layer(x: Any, w: Any) -> Any:
        y = tc.relu(x @ w)
        return (
            y,
            tc.relu(tc.matrix_transpose(x @ w)),
            tc.sum(y, axis=0),
            tc.minimum(x @ w, tc.asarray(0.5, dtype=x.dtype)),
        )

    x = np.resize(np.array(SPECIAL, dtype), (shape[0], 1))
    w = np.random.default_rng(0).normal(size=(1, shape[1])).astype(dtype)
    compiled = tc.function(layer)
    assert_same(compiled, layer, tc.asarray(x, backend="numpy"), tc.asarray(w, backend="numpy"))


def test_relu_compares_with_an_array_where_its_operand_lies_row_by_row() -> None:
    def layer(x: tc.Tensor, w: tc.Tensor) -> list[tc.Tensor]:
        return [tc.relu(x @ w)]

    compiled = tc.function(layer)
    x, w = (
        tc.asarray(np.random.default_rng(k).normal(size=(6, 6)).astype(np.float32), backend="numpy") for k in (0, 1)
    )
    assert_same(compiled, layer, x, w)
    assert {c.shape for c in _constants(compiled)} == {(6, 6)}
    turned = tc.function(lambda x: [tc.relu(tc.matrix_transpose(x))])
    assert_same(turned, turned.python, x)
    assert {c.shape for c in _constants(turned)} == {()}


def _constants(compiled: Any) -> list[Any]:
    """The constants that are used."""
    ((found,),) = compiled._compiled.values()
    program = found.program
    return [
        program.constants[k]
        for instruction in program.instructions
        for k in instruction.inputs
        if k in program.constants
    ]
