"""Make trajectories.json: what optimizers must do, computed without Tape.

    python make_trajectories.py    # needs torch

One small regression, `mean((tanh(x @ w + b) - y)**2)`, trained from the same start for 50 steps in
float64. SGD and Adam come from PyTorch; Adam with an epsilon that shows, where Keras and PyTorch
differ, is a transcription of Keras' formula.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

KEPT = (1, 2, 5, 10, 20, 50)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(6, 3)), rng.uniform(-1, 1, size=(6, 2))
w0, b0 = rng.normal(size=(3, 2)), np.zeros(2)


def with_torch(name: str, **options: Any) -> list[Any]:
    import torch  # only here: pytest imports this file to look for doctests

    w, b = variables = [torch.tensor(a, requires_grad=True) for a in (w0, b0)]
    optimizer = getattr(torch.optim, name)(variables, **options)
    rows = []
    for step in range(1, KEPT[-1] + 1):
        optimizer.zero_grad()
        torch.mean((torch.tanh(torch.tensor(x) @ w + b) - torch.tensor(y)) ** 2).backward()
        optimizer.step()
        if step in KEPT:
            rows.append([variable.tolist() for variable in variables])
    return rows


def keras_adam(learning_rate: float, beta_1: float, beta_2: float, epsilon: float) -> list[Any]:
    variables = [w0.copy(), b0.copy()]
    m = [np.zeros_like(variable) for variable in variables]
    v = [np.zeros_like(variable) for variable in variables]
    rows = []
    for step in range(1, KEPT[-1] + 1):
        out = np.tanh(x @ variables[0] + variables[1])
        back = 2 * (out - y) / out.size * (1 - out**2)
        alpha = learning_rate * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
        for i, g in enumerate([x.T @ back, back.sum(axis=0)]):
            m[i] = m[i] + (g - m[i]) * (1 - beta_1)
            v[i] = v[i] + (g**2 - v[i]) * (1 - beta_2)
            variables[i] = variables[i] - m[i] * alpha / (np.sqrt(v[i]) + epsilon)
        if step in KEPT:
            rows.append([variable.tolist() for variable in variables])
    return rows


def main() -> None:
    momentum = {"momentum": 0.9}
    nesterov = {"momentum": 0.9, "nesterov": True}
    betas = {"beta_1": 0.8, "beta_2": 0.99}
    tiny = 1e-30  # Keras and PyTorch agree where epsilon does not show
    cases = [
        ("SGD", 0.3, {}, with_torch("SGD", lr=0.3)),
        ("SGD", 0.1, momentum, with_torch("SGD", lr=0.1, **momentum)),
        ("SGD", 0.1, nesterov, with_torch("SGD", lr=0.1, **nesterov)),
        ("Adam", 0.001, {"epsilon": tiny}, with_torch("Adam", lr=0.001, eps=tiny)),
        ("Adam", 0.05, betas | {"epsilon": tiny},
         with_torch("Adam", lr=0.05, betas=(0.8, 0.99), eps=tiny)),
        ("Adam", 0.001, {}, keras_adam(0.001, 0.9, 0.999, 1e-7)),
        ("Adam", 0.05, betas | {"epsilon": 0.1}, keras_adam(0.05, **betas, epsilon=0.1)),
    ]  # fmt: skip
    data = {
        "problem": {name: a.tolist() for name, a in (("x", x), ("y", y), ("w", w0), ("b", b0))},
        "steps": KEPT,
        "cases": [
            {"optimizer": name, "options": {"learning_rate": rate} | options, "w, b": rows}
            for name, rate, options, rows in cases
        ],
    }
    Path(__file__).with_name("trajectories.json").write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main()
