"""Losses and metrics, against the numbers of Keras and scikit-learn, and against their formulas."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.testing import check_grads
from tape_nn import losses, metrics

DATA = json.loads((Path(__file__).parent / "expected" / "losses.json").read_text())


def arguments(case: dict[str, Any]) -> tuple[Any, Any]:
    sparse = case["loss"].startswith("Sparse")
    return tc.asarray(case["y_true"], dtype=tc.int64 if sparse else tc.float64), tc.asarray(
        case["y_pred"], dtype=tc.float64
    )


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda c: "-".join([c["loss"], *map(str, c["options"])]))
def test_losses_of_keras(case: dict[str, Any]) -> None:
    y_true, y_pred = arguments(case)
    for reduction in ("none", "sum", "sum_over_batch_size", "mean_with_sample_weight"):
        loss = getattr(losses, case["loss"])(**case["options"], reduction=reduction)
        found = loss(y_true, y_pred, sample_weight=DATA["sample_weight"]).numpy()
        np.testing.assert_allclose(found, case[reduction], rtol=1e-6)


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda c: "-".join([c["loss"], *map(str, c["options"])]))
def test_derivatives(case: dict[str, Any]) -> None:
    y_true, y_pred = arguments(case)
    if "Huber" in case["loss"] or "Absolute" in case["loss"]:
        check_grads(lambda p: getattr(losses, case["loss"])(**case["options"])(y_true, p), (y_pred,), order=1)
    else:
        check_grads(lambda p: getattr(losses, case["loss"])(**case["options"])(y_true, p), (y_pred,), order=2)


def test_logits_far_out_and_at_zero() -> None:
    x = tc.asarray([[1000.0, -1000.0, 20.0, 0.0]])
    found = tc.asarray(losses.Loss(losses.binary_crossentropy, "none", from_logits=True)([[1, 0, 1, 1]], x))
    assert found.item() == pytest.approx((math.log1p(math.exp(-20)) + math.log(2)) / 4, rel=1e-6)
    second = tc.grad(tc.grad(lambda x: losses.binary_crossentropy([1.0], x[None], from_logits=True)))(tc.asarray(0.0))
    assert second.item() == pytest.approx(0.25)
    assert losses.sparse_categorical_crossentropy([0], [[1000.0, 0.0]], from_logits=True).item() == 0.0
    assert losses.binary_crossentropy([[1.0]], [[0.0]]).item() == pytest.approx(-math.log(1e-7), rel=1e-6)


def test_means_leave_out_what_is_ignored() -> None:
    logits = tc.asarray([[0.0, 0.0], [9.0, 0.0], [0.0, 0.0], [0.0, 9.0]])
    weights = [1.0, 2.0, 3.0, 4.0]
    for reduction, expected, weighted in [
        ("sum_over_batch_size", 1.0, 2.0),
        ("mean_with_sample_weight", 1.0, 1.0),
        ("sum", 2.0, 4.0),
    ]:
        loss = losses.SparseCategoricalCrossentropy(True, ignore_class=-1, reduction=reduction)  # type: ignore[arg-type]
        assert loss([0, -1, 1, -1], logits).item() == pytest.approx(expected * math.log(2), rel=1e-6)
        assert loss([0, -1, 1, -1], logits, weights).item() == pytest.approx(weighted * math.log(2), rel=1e-6)
        assert loss([-1, -1, -1, -1], logits, weights).item() == 0.0


def test_losses_of_half_precision_are_computed_in_single() -> None:
    far = tc.asarray([[300.0]], dtype=tc.float16)
    assert losses.MeanSquaredError()([[0.0]], far).item() == 90000.0
    gradient = tc.grad(lambda p: losses.MeanSquaredError()([[0.0]], p))(far)
    assert (gradient.dtype, gradient.item()) == (tc.float16, 600.0)


def test_integer_labels_are_smoothed_as_one_hot_ones() -> None:
    logits = tc.asarray([[1.0, 2.0, -1.0], [0.0, 0.5, 3.0]])
    for from_logits, p in ((True, logits), (False, tc.softmax(logits))):
        sparse = losses.sparse_categorical_crossentropy([2, 0], p, from_logits=from_logits, label_smoothing=0.3)
        dense = losses.categorical_crossentropy([[0, 0, 1], [1, 0, 0]], p, from_logits=from_logits, label_smoothing=0.3)
        np.testing.assert_allclose(sparse.numpy(), dense.numpy(), rtol=1e-6)


def test_losses_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"of shape \(3,\) and y_pred of \(3, 1\) differ; use y_true\[..., None\]"):
        losses.mean_squared_error(tc.ones(3), tc.ones((3, 1)))
    with pytest.raises(ValueError, match=r"y_true has class 3; there are 3 classes, from 0 to 2"):
        losses.sparse_categorical_crossentropy([0, 3], tc.ones((2, 3)))
    with pytest.raises(TypeError, match="must be class numbers, integers; got dtype float32"):
        losses.sparse_categorical_crossentropy([0.0, 1.0], tc.ones((2, 3)))
    with pytest.raises(ValueError, match=r"without its classes, \(2,\)"):
        losses.sparse_categorical_crossentropy([[0], [1]], tc.ones((2, 3)))
    with pytest.raises(ValueError, match=r"unknown names: 'mean'.*'sum_over_batch_size'"):
        losses.MeanSquaredError("mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label_smoothing must be between 0 and 1; got 2"):
        losses.binary_crossentropy([1.0], [0.5], label_smoothing=2)
    with pytest.raises(ValueError, match=r"sample_weight of shape \(3,\)"):
        losses.MeanSquaredError()(tc.ones((2, 2)), tc.ones((2, 2)), tc.ones(3))
    with pytest.raises(TypeError, match="y_pred must be real numbers; got dtype int64"):
        losses.huber([1], [1])
    with pytest.raises(ValueError, match="delta must be above 0"):
        losses.Huber(0.0)


@pytest.mark.parametrize("batch", [60, 7])
def test_auc(batch: int) -> None:
    auc, weighted = metrics.AUC(), metrics.AUC()
    data = DATA["auc"]
    for start in range(0, 60, batch):
        part = slice(start, start + batch)
        auc.update(data["positive"][part], data["scores"][part])
        weighted.update(data["positive"][part], data["scores"][part], data["weights"][part])
    assert auc.result() == pytest.approx(data["auc"], rel=1e-6)
    assert weighted.result() == pytest.approx(data["weighted"], rel=1e-6)
    other = metrics.AUC()
    other.load_state_dict(json.loads(json.dumps(auc.state_dict())))
    assert other.result() == auc.result()
    auc.reset()
    assert math.isnan(auc.result())
    auc.update([1, 1], [0.1, 0.2])
    assert math.isnan(auc.result())


# Keras' metric, with 20001 thresholds, gives these for the same data.
@pytest.mark.parametrize(
    ("curve", "summation", "expected"),
    [
        ("PR", "interpolation", 0.6335122),
        ("PR", "minoring", 0.4285714),
        ("PR", "majoring", 0.7012987),
        ("ROC", "interpolation", 0.4857143),
        ("ROC", "minoring", 0.4),
        ("ROC", "majoring", 0.5714286),
    ],
)
def test_auc_of_curves_and_sums(curve: str, summation: str, expected: float) -> None:
    auc = metrics.AUC(curve, summation)
    auc.update([0, 0, 1, 1, 0, 1, 1, 0], [0.1, 0.4, 0.35, 0.8, 0.4, 0.4, 0.9, 0.85], [1, 2, 3, 1, 1, 2, 1, 1])
    assert auc.result() == pytest.approx(expected, abs=2e-6)


def test_precision_over_recall_of_one_class() -> None:
    auc = metrics.AUC("PR")
    auc.update([1, 1], [0.1, 0.2])
    assert auc.result() == pytest.approx(1.0)
    auc.reset()
    auc.update([0, 0], [0.1, 0.2])
    assert math.isnan(auc.result())
    with pytest.raises(ValueError, match="curve must be 'ROC' or 'PR'; got 'pr'"):
        metrics.AUC("pr")
    with pytest.raises(ValueError, match="summation must be 'interpolation'"):
        metrics.AUC("PR", "mean")


def test_the_best_k() -> None:
    scores = tc.asarray([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0], [2.0, 1.0, 0.0]])
    top = metrics.SparseTopKCategoricalAccuracy(2)
    assert top.values(tc.asarray([0, 1, 2, 2]), scores).tolist() == [False, True, True, False]
    assert top.values(tc.asarray([3, -1, 0, 0]), scores).tolist() == [False, False, True, True]
    hot = metrics.TopKCategoricalAccuracy(2)
    hot.update([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], scores)
    assert hot.result() == 0.5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_that_diverged_has_nothing_among_the_best(value: float) -> None:
    top = metrics.SparseTopKCategoricalAccuracy(3)
    top.update([0, 0], [[value, 0.0, 1.0], [0.0, value, 1.0]])
    assert top.result() == 0.0


def test_accuracies_are_weighted_and_reset() -> None:
    accuracy = metrics.BinaryAccuracy(threshold=0.0)
    accuracy.update([1, 0], tc.asarray([2.0, 1.0]), sample_weight=[3.0, 1.0])
    assert accuracy.result() == 0.75
    state = json.loads(json.dumps(accuracy.state_dict()))
    accuracy.reset()
    assert math.isnan(accuracy.result())
    accuracy.load_state_dict(state)
    accuracy.update([1], tc.asarray([1.0]), sample_weight=[4.0])
    assert accuracy.result() == 7 / 8
    assert metrics.Accuracy("mine").name == "mine"


def test_metrics_are_not_recorded() -> None:
    mean, x = metrics.Mean(), tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = x * x
        mean.update(y)
    assert mean.result() == 2.5
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]


def test_metrics_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"accuracy: y_true of shape \(2,\) and y_pred of \(2, 1\) differ"):
        metrics.Accuracy().update([1, 2], [[1], [2]])
    with pytest.raises(ValueError, match=r"without its classes, \(2,\)"):
        nn.metrics.SparseCategoricalAccuracy().update([[1], [2]], tc.ones((2, 3)))
    with pytest.raises(ValueError, match=r"sample_weight of shape \(3,\)"):
        metrics.Mean().update([1.0, 2.0], [1.0, 1.0, 1.0])


def test_class_numbers_are_checked_for_each_example_and_in_compiled_functions() -> None:
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    scores = tc.asarray([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])

    def each(scores: Any, labels: Any) -> Any:
        return tc.vmap(lambda row, label: loss(label[None], row[None]))(scores, labels)

    good, bad = tc.asarray([2, 0]), tc.asarray([2, 3])
    wanted = [loss(good[k : k + 1], scores[k : k + 1]).item() for k in range(2)]
    compiled = tc.function(each)
    for f in (each, compiled, compiled):
        assert f(scores, good).tolist() == pytest.approx(wanted)
        with pytest.raises(ValueError, match=r"y_true has class 3; there are 3 classes, from 0 to 2"):
            f(scores, bad)


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
