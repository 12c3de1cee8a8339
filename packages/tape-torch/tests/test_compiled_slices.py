"""Slices in compiled functions on PyTorch: their gradients are the sums of eager code, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import tape_core as tc
import torch
from support import same

SPECIAL = [-0.0, 0.0, float("inf"), -float("inf"), 1e-310, 710.0, -745.0, 1.0, -1.0, 0.5, 3.0, -0.0]


def slope(x: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(x)
        a, b, c, d = tc.split(x, 4)
        a, b, c = (tc.sigmoid(part) for part in (a, b, c))
        y = tc.sum(a * b * c - tc.tanh(d) * -0.0)
    return tape.gradient(y, x)


def rows(x: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.exp(x[0]) * x[1]) + tc.sum(tc.sin(x[-1]) * x[0])
        for k in range(3):
            y = y - tc.sum(x[1] ** (k + 2) * 0.5) + tc.sum(tc.tanh(x[0] * (k + 1.0)))
    return tape.gradient(y, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 3, 5, 14, 16, 37, 100])
def test_the_bits_are_those_of_eager_calls(n: int, dtype: torch.dtype) -> None:
    flat = torch.randn(4 * n, dtype=dtype, generator=torch.Generator().manual_seed(n))
    flat[: min(4 * n, 12)] = torch.tensor(SPECIAL[: 4 * n], dtype=dtype)
    for f, x, name in ((slope, tc.asarray(flat), "joined("), (rows, tc.asarray(flat.reshape(4, n)), "placed(")):
        compiled = tc.function(f)
        for given in (x, x * 0.7, x):
            assert same(compiled(given), f(given), any_nan=True)
        assert name in compiled.text()
    code = [line for line in compiled.text().splitlines() if "#" not in line]
    assert not any("scatter(" in line for line in code)
