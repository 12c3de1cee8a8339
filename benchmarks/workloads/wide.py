"""A few elementwise operations on large arrays: memory traffic and the allocator decide."""

from __future__ import annotations

import numpy as np

from workloads import Data, Step

SIZE = 1_000_000


def data(rng: np.random.Generator, size: int = SIZE) -> Data:
    return {name: rng.standard_normal(size, np.float32) for name in ("x", "w", "b")}


def with_numpy(data: Data) -> Step:
    x, w, b = data["x"], data["w"], data["b"]

    def step():
        t = np.tanh(x * w + b)
        te = t * np.exp(-x * x)
        tte = t * te
        value = tte.sum()

        db = 2 * te * (1 - t * t)
        dw = db * x
        dx = db * w - 2 * x * tte
        return value, [dx, dw, db]

    return step


def with_numpy_out(data: Data) -> Step:
    """The same without a single allocation; the gradients are overwritten by the next step."""
    x, w, b = data["x"], data["w"], data["b"]
    t, te, tte, dx, dw, db = (np.empty_like(x) for _ in range(6))

    def step():
        np.multiply(x, w, out=t)
        np.add(t, b, out=t)
        np.tanh(t, out=t)
        np.multiply(x, x, out=te)
        np.negative(te, out=te)
        np.exp(te, out=te)
        np.multiply(te, t, out=te)
        np.multiply(te, t, out=tte)
        value = tte.sum()

        np.multiply(t, t, out=db)
        np.subtract(1, db, out=db)
        np.multiply(db, te, out=db)
        np.multiply(db, 2, out=db)
        np.multiply(db, x, out=dw)
        np.multiply(tte, x, out=tte)
        np.multiply(tte, 2, out=tte)
        np.multiply(db, w, out=dx)
        np.subtract(dx, tte, out=dx)
        return value, [dx, dw, db]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    def loss(arguments):
        x, w, b = arguments
        return np.sum(np.tanh(x * w + b) ** 2 * np.exp(-x * x))

    value_and_grad = autograd.value_and_grad(loss)
    arguments = [data["x"], data["w"], data["b"]]
    return lambda: value_and_grad(arguments)


def with_mygrad(data: Data) -> Step:
    import mygrad as mg

    x, w, b = (mg.tensor(data[name]) for name in ("x", "w", "b"))

    def step():
        loss = mg.sum(mg.tanh(x * w + b) ** 2 * mg.exp(-x * x))
        loss.backward()
        return loss, [x.grad, w.grad, b.grad]

    return step


def torch_loss(data: Data):
    import torch

    def loss(x, w, b):
        return torch.sum(torch.tanh(x * w + b) ** 2 * torch.exp(-x * x))

    return loss, [torch.tensor(data[name]) for name in ("x", "w", "b")]


def jax_loss(data: Data):
    import jax.numpy as jnp

    def loss(parameters):
        x, w, b = parameters
        return jnp.sum(jnp.tanh(x * w + b) ** 2 * jnp.exp(-x * x))

    return loss, [jnp.asarray(data[name]) for name in ("x", "w", "b")], []


def tensorflow_loss(data: Data):
    import tensorflow as tf

    x, w, b = variables = [tf.Variable(data[name]) for name in ("x", "w", "b")]
    return lambda: tf.reduce_sum(tf.tanh(x * w + b) ** 2 * tf.exp(-x * x)), variables


def with_tape(data: Data) -> Step:
    import tape_core as tc

    x, w, b = (tc.Variable(data[name]) for name in ("x", "w", "b"))

    def step():
        with tc.GradientTape() as tape:
            loss = tc.sum(tc.tanh(x * w + b) ** 2 * tc.exp(-x * x))
        return loss, tape.gradient(loss, [x, w, b])

    return step
