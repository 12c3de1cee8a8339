"""Make trajectories.json: what optimizers and schedules must do, computed without Tape.

    python make_trajectories.py    # needs keras 3 and torch; Keras computes on torch

One small regression, `mean((tanh(x @ w + b) - y)**2)`, trained from the same start for 50 steps in
float64, by the optimizers of Keras and of PyTorch themselves. PyTorch adds its epsilon elsewhere, so its
cases have one that does not show.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

KEPT = (1, 2, 5, 10, 20, 50)
SCHEDULE_STEPS = (0, 1, 7, 10, 11, 20, 35, 60, 61, 200)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(6, 3)), rng.uniform(-1, 1, size=(6, 2))
w0, b0 = rng.normal(size=(3, 2)), np.zeros(2)

TINY = 1e-30  # an epsilon that does not show

# Name, options, and with which optimizer and options PyTorch does the same.
TORCH = [
    ("SGD", {"learning_rate": 0.3}, "SGD", {"lr": 0.3}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9}, "SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
     "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"learning_rate": 0.001, "epsilon": TINY}, "Adam", {"lr": 0.001, "eps": TINY}),
    ("Adam", {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.99, "epsilon": TINY},
     "Adam", {"lr": 0.05, "betas": (0.8, 0.99), "eps": TINY}),
    ("Adam", {"learning_rate": 0.05, "amsgrad": True, "epsilon": TINY},
     "Adam", {"lr": 0.05, "amsgrad": True, "eps": TINY}),
    ("AdamW", {"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": TINY},
     "AdamW", {"lr": 0.05, "weight_decay": 0.1, "eps": TINY}),
    ("RMSprop", {"learning_rate": 0.01, "rho": 0.9, "momentum": 0.5, "epsilon": TINY},
     "RMSprop", {"lr": 0.01, "alpha": 0.9, "momentum": 0.5, "eps": TINY}),
    ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.2, "epsilon": 0.0},
     "Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.2, "eps": 0.0}),
    ("Adadelta", {"learning_rate": 1.0, "rho": 0.9, "epsilon": 1e-6}, "Adadelta", {"lr": 1.0, "rho": 0.9, "eps": 1e-6}),
    ("Adamax", {"learning_rate": 0.05, "epsilon": TINY}, "Adamax", {"lr": 0.05, "eps": TINY}),
    ("Nadam", {"learning_rate": 0.05}, "NAdam", {"lr": 0.05, "momentum_decay": 1.0, "eps": 1e-7}),
]  # fmt: skip

KERAS = [
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    ("SGD", {"learning_rate": 0.5, "clipnorm": 0.3}),
    ("SGD", {"learning_rate": 0.5, "global_clipnorm": 0.3}),
    ("Adam", {}),
    ("Adam", {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 0.1}),
    ("Adam", {"learning_rate": 0.05, "amsgrad": True}),
    ("Adam", {"learning_rate": 0.05, "clipvalue": 0.05}),
    ("AdamW", {"learning_rate": 0.05, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("RMSprop", {"learning_rate": 0.01}),
    ("RMSprop", {"learning_rate": 0.01, "rho": 0.8, "momentum": 0.5, "centered": True, "epsilon": 1e-3}),
    ("Adagrad", {"learning_rate": 0.1}),
    ("Adadelta", {"learning_rate": 1.0}),
    ("Adamax", {"learning_rate": 0.05}),
    ("Nadam", {"learning_rate": 0.05}),
    ("Ftrl", {"learning_rate": 0.1}),
    ("Ftrl", {"learning_rate": 0.2, "l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1,
              "l2_shrinkage_regularization_strength": 0.01, "beta": 0.3, "learning_rate_power": -0.7}),
    ("Lion", {"learning_rate": 0.01}),
    ("Lion", {"learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.95, "weight_decay": 0.1}),
]  # fmt: skip

SCHEDULES = [
    ("ExponentialDecay", {"initial_learning_rate": 0.1, "decay_steps": 20, "decay_rate": 0.9}),
    ("ExponentialDecay", {"initial_learning_rate": 0.1, "decay_steps": 20, "decay_rate": 0.9, "staircase": True}),
    ("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 60, "alpha": 0.1}),
    ("CosineDecay", {"initial_learning_rate": 0.01, "decay_steps": 50, "warmup_target": 0.2, "warmup_steps": 10}),
    ("PiecewiseConstantDecay", {"boundaries": [10, 60], "values": [1.0, 0.5, 0.1]}),
]


def gradients(w: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    out = np.tanh(x @ w + b)
    back = 2 * (out - y) / out.size * (1 - out**2)
    return [x.T @ back, back.sum(axis=0)]


def trained(step: Callable[[list[np.ndarray]], list[np.ndarray]]) -> list[Any]:
    """`step` takes gradients and gives the new w and b."""
    values, rows = [w0, b0], []
    for number in range(1, KEPT[-1] + 1):
        values = step(gradients(*values))
        if number in KEPT:
            rows.append([value.tolist() for value in values])
    return rows


def with_torch(name: str, options: dict[str, Any]) -> list[Any]:
    import torch  # only here: pytest imports this file to look for doctests

    variables = [torch.tensor(a, requires_grad=True) for a in (w0, b0)]
    optimizer = getattr(torch.optim, name)(variables, **options)

    def step(found: list[np.ndarray]) -> list[np.ndarray]:
        for variable, g in zip(variables, found, strict=True):
            variable.grad = torch.tensor(g)
        optimizer.step()
        return [variable.detach().numpy().copy() for variable in variables]

    return trained(step)


def with_keras(name: str, options: dict[str, Any]) -> list[Any]:
    import keras

    variables = [keras.Variable(a, dtype="float64") for a in (w0, b0)]
    optimizer = getattr(keras.optimizers, name)(**options)

    def step(found: list[np.ndarray]) -> list[np.ndarray]:
        given = [keras.ops.convert_to_tensor(g, dtype="float64") for g in found]
        optimizer.apply(given, variables)
        return [keras.ops.convert_to_numpy(variable).copy() for variable in variables]

    return trained(step)


def schedule(name: str, options: dict[str, Any]) -> dict[str, Any]:
    import keras

    made = getattr(keras.optimizers.schedules, name)(**options)
    values = [float(keras.ops.convert_to_numpy(made(step))) for step in SCHEDULE_STEPS]
    return {"schedule": name, "options": options, "values": values}


def main() -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import torch

    keras.config.set_floatx("float64")
    torch.set_default_dtype(torch.float64)  # of the scalars in between
    cases = [(name, options, "torch", with_torch(theirs, what)) for name, options, theirs, what in TORCH]
    cases += [(name, options, "keras", with_keras(name, options)) for name, options in KERAS]
    data = {
        "problem": {name: a.tolist() for name, a in (("x", x), ("y", y), ("w", w0), ("b", b0))},
        "steps": KEPT,
        "cases": [{"optimizer": n, "options": o, "from": f, "w, b": rows} for n, o, f, rows in cases],
        "schedule steps": SCHEDULE_STEPS,
        "schedules": [schedule(name, options) for name, options in SCHEDULES],
    }
    Path(__file__).with_name("trajectories.json").write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main()
