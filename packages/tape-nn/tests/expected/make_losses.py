"""Make losses.json: values of losses and metrics, computed without Tape.

python make_losses.py    # needs keras 3, torch and scikit-learn
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

rng = np.random.default_rng(1)
real = rng.normal(size=(5, 4))
truth = rng.normal(size=(5, 4))
binary = rng.integers(0, 2, size=(5, 4)).astype(float)
labels = rng.integers(0, 4, size=5)
hot = np.eye(4)[labels]
chances = np.exp(real) / np.exp(real).sum(axis=1, keepdims=True)
weights = rng.uniform(size=5)

CASES = [
    ("MeanSquaredError", {}, truth, real),
    ("MeanAbsoluteError", {}, truth, real),
    ("Huber", {"delta": 0.7}, truth, real),
    ("BinaryCrossentropy", {}, binary, chances),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, binary, 30 * real),
    ("CategoricalCrossentropy", {"label_smoothing": 0.2}, hot, chances),
    ("CategoricalCrossentropy", {"from_logits": True}, hot, 30 * real),
    ("SparseCategoricalCrossentropy", {}, labels, chances),
    ("SparseCategoricalCrossentropy", {"from_logits": True, "ignore_class": int(labels[0])}, labels, real),
]


def main() -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import torch
    from sklearn.metrics import roc_auc_score

    keras.config.set_floatx("float64")
    torch.set_default_dtype(torch.float64)
    cases: list[dict[str, Any]] = []
    for name, options, y_true, y_pred in CASES:
        case = {"loss": name, "options": options, "y_true": y_true.tolist(), "y_pred": y_pred.tolist()}
        for reduction in ("none", "sum", "sum_over_batch_size", "mean_with_sample_weight"):
            loss = getattr(keras.losses, name)(**options, reduction=reduction, dtype="float64")
            case[reduction] = keras.ops.convert_to_numpy(loss(y_true, y_pred, sample_weight=weights)).tolist()
        cases.append(case)
    scores = np.round(rng.normal(size=60), 1)  # with ties
    positive = rng.uniform(size=60) < 0.4
    weighted = rng.uniform(size=60)
    auc = {
        "scores": scores.tolist(),
        "positive": positive.tolist(),
        "weights": weighted.tolist(),
        "auc": float(roc_auc_score(positive, scores)),
        "weighted": float(roc_auc_score(positive, scores, sample_weight=weighted)),
    }
    data = {"sample_weight": weights.tolist(), "cases": cases, "auc": auc}
    Path(__file__).with_name("losses.json").write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main()
