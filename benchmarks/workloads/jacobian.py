"""The Jacobian of tanh(W2 tanh(W1 x)), 100 -> 100, in float64."""

from __future__ import annotations

import numpy as np

from workloads import Data, Step

TOLERANCE = 1e-10
SIZE = 100


def data(rng: np.random.Generator) -> Data:
    return {
        name: rng.standard_normal(shape) / 10 for name, shape in (("x", SIZE), ("w1", (SIZE,) * 2), ("w2", (SIZE,) * 2))
    }


def with_numpy(data: Data) -> Step:
    x, w1, w2 = (data[name] for name in ("x", "w1", "w2"))

    def step():
        h = np.tanh(w1 @ x)
        y = np.tanh(w2 @ h)
        return y, [((1 - y * y)[:, None] * w2 * (1 - h * h)) @ w1]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    x, w1, w2 = (data[name] for name in ("x", "w1", "w2"))

    def f(x):
        return np.tanh(w2 @ np.tanh(w1 @ x))

    jacobian = autograd.jacobian(f)
    return lambda: (f(x), [jacobian(x)])


def torch_function(data: Data):
    import torch

    def function(x, w1, w2):
        def f(x):
            y = torch.tanh(w2 @ torch.tanh(w1 @ x))
            return y, y

        jacobian, y = torch.func.jacrev(f, has_aux=True)(x)
        return y, [jacobian]

    return function, [torch.tensor(data[name]) for name in ("x", "w1", "w2")]


def jax_function(data: Data):
    import jax
    import jax.numpy as jnp

    def function(x, w1, w2):
        def f(x):
            y = jnp.tanh(w2 @ jnp.tanh(w1 @ x))
            return y, y

        jacobian, y = jax.jacrev(f, has_aux=True)(x)
        return y, [jacobian]

    return function, [jnp.asarray(data[name]) for name in ("x", "w1", "w2")]


def tensorflow_step(data: Data) -> Step:
    import tensorflow as tf

    x, w1, w2 = tf.Variable(data["x"]), tf.constant(data["w1"]), tf.constant(data["w2"])

    def step():
        with tf.GradientTape() as tape:
            y = tf.tanh(tf.linalg.matvec(w2, tf.tanh(tf.linalg.matvec(w1, x))))
        return y, [tape.jacobian(y, x)]

    return step


def with_tape(data: Data) -> Step:
    import tape_core as tc

    x, w1, w2 = tc.Variable(data["x"]), tc.asarray(data["w1"]), tc.asarray(data["w2"])

    def step():
        with tc.GradientTape() as tape:
            y = tc.tanh(w2 @ tc.tanh(w1 @ x))
        return y, [tape.jacobian(y, x)]

    return step
