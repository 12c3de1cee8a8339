"""Initializers: the statistics they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_nn import initializers

N, M = 300, 200


def drawn(initializer: Any, shape: tuple[int, ...] = (N, M), **where: Any) -> Any:
    return initializers.get(initializer)(shape, rng=tc.default_rng(0), **where).numpy()


@pytest.mark.parametrize(
    ("name", "variance"),
    [("glorot", 2 / (N + M)), ("he", 2 / N), ("lecun", 1 / N)],
    ids=["glorot", "he", "lecun"],
)
def test_variances(name: str, variance: float) -> None:
    stddev = math.sqrt(variance)
    for kind, furthest in (("uniform", math.sqrt(3)), ("normal", 2 / 0.87962566)):
        values = drawn(f"{name}_{kind}")
        assert values.dtype == np.float32
        assert values.std() == pytest.approx(stddev, rel=0.01)
        assert abs(values.mean()) < stddev / 50
        assert stddev * furthest * 0.99 < np.abs(values).max() <= stddev * furthest * 1.000001


def test_kernels_of_convolutions() -> None:
    # 3 * 3 places of 20 inputs and 40 outputs.
    assert drawn("he_normal", (3, 3, 20, 40)).std() == pytest.approx(math.sqrt(2 / 180), rel=0.03)
    values = drawn(initializers.variance_scaling(3.0, "fan_out", "uniform"), (3, 3, 20, 40))
    assert np.abs(values).max() == pytest.approx(math.sqrt(9 / 360), rel=0.01)


def test_plain_distributions() -> None:
    values = drawn(initializers.uniform(-1.0, 3.0))
    assert (values.min(), values.max()) == (pytest.approx(-1, abs=0.01), pytest.approx(3, abs=0.01))
    values = drawn(initializers.normal(2.0, 0.5))
    assert (values.mean(), values.std()) == (pytest.approx(2, abs=0.01), pytest.approx(0.5, rel=0.01))
    assert np.abs(values - 2).max() > 1.5  # not truncated
    values = drawn(initializers.truncated_normal(2.0, 0.5))
    assert values.std() == pytest.approx(0.5 * 0.87962566, rel=0.01)
    assert 0.99 < np.abs(values - 2).max() <= 1
    assert np.abs(drawn("uniform")).max() == pytest.approx(0.05, rel=0.01)
    assert drawn(initializers.constant(2.5), (2,)).tolist() == [2.5, 2.5]


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5), (2, 3, 4), (1, 1)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    w = drawn(initializers.orthogonal(2.0), shape, dtype=tc.float64).reshape(-1, shape[-1])
    product = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_orthogonal_is_uniform() -> None:
    # Without the signs of r set right, the first column would always have one sign at the top.
    rng = tc.default_rng(0)
    tops = [float(initializers.orthogonal()((2, 2), rng=rng)[0, 0]) for _ in range(100)]
    assert 20 < sum(top > 0 for top in tops) < 80


def test_same_numbers_on_every_backend() -> None:
    pytest.importorskip("torch")
    for name in ("glorot_uniform", "he_normal", "orthogonal", "truncated_normal", "normal"):
        ours, theirs = (drawn(name, (4, 3), backend=b, dtype=tc.float64) for b in ("numpy", "torch"))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_messages() -> None:
    with pytest.raises(ValueError, match="uniform makes an initializer: pass uniform"):
        initializers.get(initializers.uniform)
    with pytest.raises(ValueError, match="orthogonal: the shape must have two dimensions or more; got"):
        drawn("orthogonal", (3,))
    with pytest.raises(ValueError, match="mode must be"):
        initializers.variance_scaling(1.0, "fan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scale must be positive; got 0"):
        initializers.variance_scaling(0)
    with pytest.raises(ValueError, match="stddev must not be negative; got -1"):
        initializers.normal(0.0, -1.0)
    with pytest.raises(ValueError, match="low must not be above high; got 1 and 0"):
        initializers.uniform(1, 0)
