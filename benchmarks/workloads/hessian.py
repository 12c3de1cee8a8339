"""The Hessian of the chained Rosenbrock function of 50 variables, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads import Data, Step

TOLERANCE = 1e-10
SIZE = 50


def data(rng: np.random.Generator) -> Data:
    return {"x": rng.standard_normal(SIZE)}


def rosenbrock(x: Any, total: Any = np.sum) -> Any:
    return total(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def with_numpy(data: Data) -> Step:
    x, rows = data["x"], np.arange(SIZE - 1)

    def step():
        head = x[:-1]
        hessian = np.zeros((SIZE, SIZE))
        hessian[rows, rows] = 1200.0 * head**2 - 400.0 * x[1:] + 2.0
        hessian[rows + 1, rows + 1] += 200.0
        hessian[rows, rows + 1] = hessian[rows + 1, rows] = -400.0 * head
        return rosenbrock(x), [hessian]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    x = data["x"]
    hessian = autograd.hessian(lambda x: rosenbrock(x, np.sum))
    return lambda: (rosenbrock(x), [hessian(x)])


def torch_function(data: Data):
    import torch

    hessian = torch.func.hessian(lambda x: rosenbrock(x, torch.sum))
    return lambda x: (rosenbrock(x, torch.sum), [hessian(x)]), [torch.tensor(data["x"])]


def jax_function(data: Data):
    import jax
    import jax.numpy as jnp

    hessian = jax.hessian(lambda x: rosenbrock(x, jnp.sum))
    return lambda x: (rosenbrock(x, jnp.sum), [hessian(x)]), [jnp.asarray(data["x"])]


def tensorflow_step(data: Data) -> Step:
    import tensorflow as tf

    x = tf.Variable(data["x"])

    def step():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                value = rosenbrock(x, tf.reduce_sum)
            gradient = inner.gradient(value, x)
        return value, [outer.jacobian(gradient, x)]

    return step


def with_tape(data: Data) -> Step:
    import tape_core as tc

    x = tc.Variable(data["x"])
    hessian = tc.hessian(lambda x: rosenbrock(x, tc.sum))
    return lambda: (rosenbrock(x, tc.sum), [hessian(x)])
