"""Gradients at corners that a comparison with another library has found wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc


def gradients(f: Any, *values: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(values)
        y = f(*values)
    return [g.numpy() for g in tape.gradient(y, values)]


@pytest.mark.parametrize("function", [tc.var, tc.std])
def test_the_spread_of_complex_numbers_grows_away_from_their_mean(function: Any) -> None:
    z = tc.asarray([1 + 1j, 3 - 1j, 2 + 6j, 2j], dtype="complex128", backend="numpy")
    (g,) = gradients(function, z)
    step = 1e-6
    for k in range(4):
        for direction in (1, 1j):
            moved = np.zeros(4, complex)
            moved[k] = step * direction
            slope = (function(z + moved) - function(z - moved)).item() / (2 * step)
            assert slope == pytest.approx((np.conj(g[k]) * direction).real, abs=1e-8)


def test_clip_with_bounds_that_cross_is_the_upper_bound_and_so_is_its_gradient() -> None:
    x = tc.asarray([0.0, 2.0, 5.0], backend="numpy")
    low, high = tc.asarray([3.0, 3.0, 3.0], backend="numpy"), tc.asarray([1.0, 1.0, 1.0], backend="numpy")
    assert tc.clip(x, low, high).tolist() == [1.0, 1.0, 1.0]
    of_x, of_low, of_high = gradients(tc.clip, x, low, high)
    assert of_x.tolist() == [0, 0, 0]
    assert of_low.tolist() == [0, 0, 0]
    assert of_high.tolist() == [1, 1, 1]
    assert gradients(lambda low: tc.clip(x, low, 1.0), low)[0].tolist() == [0, 0, 0]
    assert gradients(lambda high: tc.clip(x, 3.0, high), high)[0].tolist() == [1, 1, 1]


def test_take_along_axis_of_an_array_that_broadcasts_adds_up_in_it() -> None:
    x = tc.asarray([[1.0, 2.0, 3.0]], backend="numpy")
    indices = tc.asarray([[0, 2], [0, 1]], backend="numpy")
    assert tc.take_along_axis(x, indices, axis=1).tolist() == [[1.0, 3.0], [1.0, 2.0]]
    assert gradients(lambda x: tc.take_along_axis(x, indices, axis=1), x)[0].tolist() == [[2.0, 1.0, 1.0]]
