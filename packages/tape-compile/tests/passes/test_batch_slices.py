"""Elementwise calls on neighbouring slices in compiled functions: one call for all, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import code

SPECIAL = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-310, 710.0, -745.0, 1.0, -1.0, 0.5, 3.0])


def gates(x: Any) -> Any:
    """Slices of slices, with numbers, and calls of two of them."""
    a, b, c, d = tc.split(x, 4)
    a, b, c = (tc.sigmoid(part) for part in (a, b, c))
    return a * (1.0 - a) + b * (1.0 - b) * c * (1.0 - c) - tc.tanh(d)


def rows(x: Any) -> Any:
    x = tc.reshape(x, (4, 3))
    return tc.exp(x[:2]) * 2.0, tc.exp(x[2:4]) * -1.0, tc.sin(x[1:3]) / tc.sin(x[0:1])


def of_two(x: Any) -> Any:
    y = x + 1.0
    return tc.atan2(x[:6], y[:6]) * 2.0, tc.atan2(x[6:], y[6:]) * 3.0


def compiled_as(f: Callable[[Any], Any], **options: bool) -> Any:
    g = tc.function(passes=options)(f)
    for x in (tc.asarray(np.linspace(-3, 3, 12)), tc.asarray(SPECIAL)):
        for _ in range(2):
            with np.errstate(all="ignore"):
                found, expected = g(x), f(x)
            pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
            for a, b in pairs:
                assert a.numpy().tobytes() == b.numpy().tobytes()
    return g


@pytest.mark.parametrize(
    ("f", "name", "calls"), [(gates, "sigmoid(", (1, 3)), (rows, "exp(", (1, 2)), (of_two, "atan2(", (1, 2))]
)
def test_neighbours_are_one_call_with_the_same_bits(f: Callable[[Any], Any], name: str, calls: tuple[int, int]) -> None:
    assert tuple([code(compiled_as(f, batch_slices=batched)).count(name) for batched in (True, False)]) == calls


def test_calls_on_other_slices_stay() -> None:
    def gap(x: Any) -> Any:
        return tc.sin(x[:3]) * 2.0, tc.sin(x[5:9]) * 2.0

    def columns(x: Any) -> Any:
        x = tc.reshape(x, (4, 3))
        return tc.sin(x[:, :1]) * 2.0, tc.sin(x[:, 1:]) * 2.0

    def results(x: Any) -> Any:
        return tc.sin(x[:6]), tc.sin(x[6:])

    def others(x: Any) -> Any:
        return tc.sin(x[:6]) * 2.0, tc.cos(x[6:]) * 2.0, (x[:6] * 0.0) ** 2, (x[6:] * -0.0) ** 2

    for f in (gap, columns, results, others):
        assert code(compiled_as(f)).count("sin(") >= 2 - (f is others)
    assert code(compiled_as(others, scalars_to_arrays=False)).count("0.0") == 2


def test_gradients_and_large_arrays() -> None:
    def slope(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(gates(x))
        return tape.gradient(y, x)

    found = compiled_as(slope)
    assert code(found).count("sigmoid(") == 1
    large = tc.default_rng(0).normal((1 << 15,))
    for _ in range(2):
        assert found(large).numpy().tobytes() == slope(large).numpy().tobytes()
    assert code(found).count("sigmoid(") == 1 + 3
