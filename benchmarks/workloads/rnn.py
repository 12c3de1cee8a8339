"""A recurrent network over 100 steps: many small matrix products, and gradients that accumulate."""

from __future__ import annotations

import numpy as np

from workloads import Data, Step

STEPS, BATCH, INPUT, HIDDEN = 100, 16, 32, 64


def data(rng: np.random.Generator) -> Data:
    def normal(*shape: int, scale: float) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) * np.float32(scale)

    return {
        "xs": list(normal(STEPS, BATCH, INPUT, scale=1)),
        "w": normal(INPUT, HIDDEN, scale=0.2),
        "u": normal(HIDDEN, HIDDEN, scale=1 / HIDDEN**0.5),
        "b": normal(HIDDEN, scale=0.1),
    }


def with_numpy(data: Data) -> Step:
    xs, w, u, b = (data[name] for name in ("xs", "w", "u", "b"))

    def step():
        hs = [np.zeros((BATCH, HIDDEN), np.float32)]
        for x in xs:
            hs.append(np.tanh(x @ w + hs[-1] @ u + b))
        loss = np.sum(hs[-1] ** 2)

        dw, du, db = np.zeros_like(w), np.zeros_like(u), np.zeros_like(b)
        dh = 2 * hs[-1]
        for t in reversed(range(STEPS)):
            dz = dh * (1 - hs[t + 1] ** 2)
            dw += xs[t].T @ dz
            du += hs[t].T @ dz
            db += dz.sum(0)
            dh = dz @ u.T
        return loss, [dw, du, db]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    xs = data["xs"]

    def loss(parameters):
        w, u, b = parameters
        h = np.zeros((BATCH, HIDDEN), np.float32)
        for x in xs:
            h = np.tanh(x @ w + h @ u + b)
        return np.sum(h**2)

    value_and_grad = autograd.value_and_grad(loss)
    parameters = [data["w"], data["u"], data["b"]]
    return lambda: value_and_grad(parameters)


def with_mygrad(data: Data) -> Step:
    import mygrad as mg

    xs = data["xs"]
    w, u, b = (mg.tensor(data[name]) for name in ("w", "u", "b"))

    def step():
        h = np.zeros((BATCH, HIDDEN), np.float32)
        for x in xs:
            h = mg.tanh(x @ w + h @ u + b)
        loss = mg.sum(h**2)
        loss.backward()
        return loss, [w.grad, u.grad, b.grad]

    return step


def torch_loss(data: Data):
    import torch

    xs = [torch.tensor(x) for x in data["xs"]]

    def loss(w, u, b):
        h = torch.zeros(BATCH, HIDDEN)
        for x in xs:
            h = torch.tanh(x @ w + h @ u + b)
        return torch.sum(h**2)

    return loss, [torch.tensor(data[name]) for name in ("w", "u", "b")]


def jax_loss(data: Data):
    import jax.numpy as jnp

    def loss(parameters, xs):
        w, u, b = parameters
        h = jnp.zeros((BATCH, HIDDEN), jnp.float32)
        for x in xs:
            h = jnp.tanh(x @ w + h @ u + b)
        return jnp.sum(h**2)

    return loss, [jnp.asarray(data[name]) for name in ("w", "u", "b")], [[jnp.asarray(x) for x in data["xs"]]]


def tensorflow_loss(data: Data):
    import tensorflow as tf

    xs = [tf.constant(x) for x in data["xs"]]
    w, u, b = variables = [tf.Variable(data[name]) for name in ("w", "u", "b")]

    def loss():
        h = tf.zeros((BATCH, HIDDEN))
        for x in xs:
            h = tf.tanh(x @ w + h @ u + b)
        return tf.reduce_sum(h**2)

    return loss, variables


def with_tape(data: Data) -> Step:
    import tape_core as tc

    xs = [tc.asarray(x) for x in data["xs"]]
    w, u, b = (tc.Variable(data[name]) for name in ("w", "u", "b"))

    def step():
        with tc.GradientTape() as tape:
            h = tc.zeros((BATCH, HIDDEN))
            for x in xs:
                h = tc.tanh(x @ w + h @ u + b)
            loss = tc.sum(h**2)
        return loss, tape.gradient(loss, [w, u, b])

    return step
