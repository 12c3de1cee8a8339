"""A training step of mnist_mlp: the gradients, and with them an update of stochastic gradient descent in place."""

from __future__ import annotations

import numpy as np

from workloads import Data, Step, mlp, mnist_mlp

__all__ = ["data", "with_numpy", "with_tape"]

RATE = 1e-6  # the weights hardly move: every step has the same work to do, and nearly the same loss


def data(rng: np.random.Generator) -> Data:
    return mnist_mlp.data(rng)


def with_numpy(data: Data) -> Step:
    parameters = [p.copy() for p in data["parameters"]]
    gradients_of = mlp.with_numpy({**data, "parameters": parameters})

    def step():
        loss, gradients = gradients_of()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            gradient *= RATE
            parameter -= gradient
        return loss, []

    return step


def with_tape(data: Data) -> Step:
    import tape_core as tc
    import tape_nn as nn

    x, labels = tc.asarray(data["x"]), tc.asarray(data["labels"])
    parameters = [tc.Variable(p) for p in data["parameters"]]
    w1, b1, w2, b2, w3, b3 = parameters
    optimizer = nn.SGD(RATE)

    def step():
        with tc.GradientTape() as tape:
            h1 = tc.relu(x @ w1 + b1)
            h2 = tc.relu(h1 @ w2 + b2)
            loss = tc.mean(tc.cross_entropy(h2 @ w3 + b3, labels))
        optimizer.apply_gradients(zip(tape.gradient(loss, parameters), parameters, strict=True))
        return loss, []

    return step
