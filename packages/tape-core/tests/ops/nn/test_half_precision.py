"""Normalisation in float16, whose squares overflow from 256 on: values and gradients are those of float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

pytestmark = pytest.mark.each_backend

NORMS: dict[str, Callable[..., Any]] = {
    "layer_norm": lambda x, scale: tc.layer_norm(x, scale, scale),
    "layer_norm of several axes": lambda x, _: tc.layer_norm(x, axis=(0, 1)),
    "instance_norm": lambda x, _: tc.instance_norm(x[None]),
    "rms_norm": tc.rms_norm,
    "rms_norm of columns": lambda x, _: tc.rms_norm(x, axis=0),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("size", [1.0, 300.0, 1e4])
def test_large_numbers_are_normalised(name: str, size: float) -> None:
    """They became 0: what was divided by was infinite."""
    norm = NORMS[name]
    draws = np.random.default_rng(0)
    x, scale = (size * draws.standard_normal((3, 8))).astype("float16"), np.linspace(0.5, 2, 8).astype("float16")
    weights = draws.standard_normal((3, 8))

    def derived(x: Any, scale: Any) -> list[Any]:
        weighted = tc.astype(tc.asarray(weights), x.dtype)
        with tc.GradientTape() as tape:
            tape.watch([x, scale])
            out = norm(x, scale)
            loss = tc.sum(tc.reshape(out, (3, 8)) * weighted)
        return [out, *tape.gradient(loss, [x, scale], unconnected_gradients="zero")]

    half = [tc.asarray(x), tc.asarray(scale)]
    expected = [np.asarray(v.numpy()) for v in derived(*[tc.astype(v, "float64") for v in half])]
    for found in (derived(*half), tc.function(derived)(*half)):
        for one, other in zip(found, expected, strict=True):
            assert one.dtype is tc.float16
            tolerance = 4e-3 * np.max(np.abs(other), initial=1e-6)
            np.testing.assert_allclose(one.numpy().astype("float64"), other, rtol=0, atol=tolerance)
