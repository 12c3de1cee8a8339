"""A long chain of scalar operations: what recording costs when the arithmetic costs nothing."""

from __future__ import annotations

import numpy as np

from workloads import Data, Step

ROUNDS = 250  # of four operations


def data(rng: np.random.Generator, operations: int = 4 * ROUNDS) -> Data:
    return {"x": np.asarray(rng.uniform(0.6, 0.9), np.float32), "rounds": operations // 4}


def with_numpy(data: Data) -> Step:
    x = data["x"]

    def step():
        y, saved = x, []
        for _ in range(data["rounds"]):
            y_in = y
            y = y * x
            y = y + x
            angle = y
            y = np.sin(y)
            y = np.tanh(y)
            saved.append((y_in, angle, y))
        dy, dx = np.float32(1), np.float32(0)
        for y_in, angle, out in reversed(saved):
            dy = dy * (1 - out * out)
            dy = dy * np.cos(angle)
            dx = dx + dy + dy * y_in
            dy = dy * x
        return y, [dx + dy]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    def chain(x):
        y = x
        for _ in range(data["rounds"]):
            y = y * x
            y = y + x
            y = np.sin(y)
            y = np.tanh(y)
        return y

    x, value_and_grad = data["x"], autograd.value_and_grad(chain)

    def step():
        value, gradient = value_and_grad(x)
        return value, [gradient]

    return step


def with_mygrad(data: Data) -> Step:
    import mygrad as mg

    x = mg.tensor(data["x"])

    def step():
        y = x
        for _ in range(data["rounds"]):
            y = y * x
            y = y + x
            y = mg.sin(y)
            y = mg.tanh(y)
        y.backward()
        return y, [x.grad]

    return step


def torch_loss(data: Data):
    import torch

    def chain(x):
        y = x
        for _ in range(data["rounds"]):
            y = y * x
            y = y + x
            y = torch.sin(y)
            y = torch.tanh(y)
        return y

    return chain, [torch.tensor(data["x"])]


def jax_loss(data: Data):
    import jax.numpy as jnp

    def chain(parameters):
        (x,) = parameters
        y = x
        for _ in range(data["rounds"]):
            y = y * x
            y = y + x
            y = jnp.sin(y)
            y = jnp.tanh(y)
        return y

    return chain, [jnp.asarray(data["x"])], []


def tensorflow_loss(data: Data):
    import tensorflow as tf

    x = tf.Variable(data["x"])

    def chain():
        y = x
        for _ in range(data["rounds"]):
            y = y * x
            y = y + x
            y = tf.sin(y)
            y = tf.tanh(y)
        return y

    return chain, [x]


def with_tape(data: Data) -> Step:
    import tape_core as tc

    x = tc.Variable(data["x"])

    def step():
        with tc.GradientTape() as tape:
            y = x
            for _ in range(data["rounds"]):
                y = y * x
                y = y + x
                y = tc.sin(y)
                y = tc.tanh(y)
        return y, tape.gradient(y, [x])

    return step
