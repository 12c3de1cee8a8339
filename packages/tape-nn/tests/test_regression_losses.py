"""The losses that are one formula each, against the formula; and schedules against Keras' numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

RNG = np.random.RandomState(0)
TRUTH = RNG.uniform(0.1, 2.0, (4, 3)).astype("float32")
PREDICTED = RNG.uniform(0.1, 2.0, (4, 3)).astype("float32")

FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "mean_absolute_percentage_error": lambda t, p: 100 * np.mean(np.abs((t - p) / t), -1),
    "mean_squared_logarithmic_error": lambda t, p: np.mean((np.log(1 + t) - np.log(1 + p)) ** 2, -1),
    "log_cosh": lambda t, p: np.mean(np.log(np.cosh(p - t)), -1),
    "cosine_similarity": lambda t, p: -np.sum(t * p, -1) / np.linalg.norm(t, axis=-1) / np.linalg.norm(p, axis=-1),
    "hinge": lambda t, p: np.mean(np.maximum(1 - t * p, 0), -1),
    "squared_hinge": lambda t, p: np.mean(np.maximum(1 - t * p, 0) ** 2, -1),
    "categorical_hinge": lambda t, p: np.maximum(np.max((1 - t) * p, -1) - np.sum(t * p, -1) + 1, 0),
    "kl_divergence": lambda t, p: np.sum(np.minimum(t, 1) * np.log(np.minimum(t, 1) / np.minimum(p, 1)), -1),
    "poisson": lambda t, p: np.mean(p - t * np.log(p), -1),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_it_is_its_formula(name: str) -> None:
    loss = getattr(nn.losses, name)
    expected = FORMULAS[name](TRUTH.astype("float64"), PREDICTED.astype("float64"))
    np.testing.assert_allclose(loss(TRUTH, PREDICTED).numpy(), expected, rtol=1e-5)
    whole = nn.losses.Loss(loss)(TRUTH, PREDICTED)
    np.testing.assert_allclose(whole.item(), expected.mean(), rtol=1e-5)
    with tc.GradientTape() as tape:
        p = tc.asarray(PREDICTED)
        tape.watch(p)
        y = tc.sum(loss(TRUTH, p))
    step = 1e-3
    direction = np.asarray(RNG.normal(size=PREDICTED.shape), "float32")
    ahead, behind = (np.sum(FORMULAS[name](TRUTH, PREDICTED + s * direction)) for s in (step, -step))
    slope = float(np.sum(tape.gradient(y, p).numpy() * direction))
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=2e-2, abs=2e-2)


def test_hinge_takes_0_and_1_for_truth() -> None:
    signs, numbers = [[-1.0, 1.0]], [[0, 1]]
    for loss in (nn.losses.hinge, nn.losses.squared_hinge):
        assert loss(numbers, [[0.3, 0.4]]).tolist() == loss(signs, [[0.3, 0.4]]).tolist()


def test_log_cosh_far_out() -> None:
    np.testing.assert_allclose(nn.losses.log_cosh([[0.0]], [[1e4]]).tolist(), [1e4 - np.log(2)], rtol=1e-6)


def test_shapes_must_be_the_same() -> None:
    with pytest.raises(ValueError, match=r"kl_divergence: y_true of shape \(2,\) and y_pred of \(2, 1\) differ"):
        nn.losses.kl_divergence([1.0, 0.0], [[0.5], [0.5]])


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


def test_an_optimizer_can_be_told_its_variables_before() -> None:
    v, optimizer = tc.Variable([1.0]), nn.Adam(0.1)
    optimizer.build([v])
    assert sorted(optimizer.state_dict({"v": v})) == [
        "iterations", "learning_rate", "v/momentum", "v/started", "v/velocity"
    ]  # fmt: skip
    with pytest.raises(TypeError, match="build takes Variables; got 'float'"):
        optimizer.build([1.0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="only floating-point variables"):
        optimizer.build([tc.Variable([1])])
