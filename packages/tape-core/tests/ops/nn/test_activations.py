"""Activations at kinks and far out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tape_core as tc
from support import numpy_gradient


@pytest.mark.parametrize(
    ("name", "at", "value", "slope"),
    [
        ("elu", -math.inf, -1.0, 0.0),
        ("elu", 1000.0, 1000.0, 1.0),
        ("selu", 0.0, 0.0, 1.6732632423543772 * 1.0507009873554805),
        ("leaky_relu", 0.0, 0.0, 0.01),
        ("relu6", 6.0, 6.0, 0.0),
        ("hard_sigmoid", -3.0, 0.0, 0.0),
        ("hard_silu", -math.inf, 0.0, 0.0),
        ("hard_silu", 3.0, 3.0, 1.0),
        ("log_sigmoid", -1000.0, -1000.0, 1.0),
        ("log_sigmoid", 1000.0, 0.0, 0.0),
        ("mish", 1000.0, 1000.0, 1.0),
    ],
)
def test_activations_at_kinks_and_far_out(name: str, at: float, value: float, slope: float) -> None:
    f = getattr(tc, name)
    with np.errstate(all="ignore"):
        assert f(tc.asarray(at, dtype="float64")).item() == pytest.approx(value)
        assert numpy_gradient(f, at) == pytest.approx(slope)
        assert math.isnan(f(tc.asarray(math.nan)).item())
