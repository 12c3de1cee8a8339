"""Schedules of learning rates, against Keras' numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_nn as nn


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (nn.schedules.InverseTimeDecay(0.1, 10, 0.5, staircase=True), [0.1, 0.1, 0.0666667, 0.025, 0.0117647]),
        (nn.schedules.PolynomialDecay(0.1, 30, 0.01, power=2.0), [0.1, 0.0725, 0.0461, 0.01, 0.01]),
        (nn.schedules.PolynomialDecay(0.1, 10, power=0.5, cycle=True), [0.1, 0.07074, 0.067115, 0.0120403, 0.0237934]),
        (nn.schedules.CosineDecayRestarts(0.1, 10, m_mul=0.5, alpha=0.1), [0.1, 0.055, 0.054723, 0.0100347, 0.0156245]),
        (nn.schedules.CosineDecayRestarts(0.1, 10, t_mul=1.0), [0.1, 0.05, 0.0975528, 0.0024472, 0.0975528]),
        (nn.schedules.CosineDecayRestarts(0.1, 10, t_mul=1.5), [0.1, 0.05, 0.0989074, 0.0291331, 0.085149]),
    ],
    ids=["inverse", "polynomial", "polynomial-cycle", "restarts", "restarts-alike", "restarts-longer"],
)
def test_schedules_of_keras(schedule: Any, values: list[float]) -> None:
    np.testing.assert_allclose([schedule(step) for step in (0, 5, 11, 69, 151)], values, rtol=2e-4)


def test_schedules_out_of_range() -> None:
    with pytest.raises(ValueError, match="t_mul must be at least 1"):
        nn.schedules.CosineDecayRestarts(0.1, 10, t_mul=0.5)
    with pytest.raises(ValueError, match="decay_steps must be above 0"):
        nn.schedules.PolynomialDecay(0.1, 0)
