"""Model-agnostic meta-learning of sine waves: three differentiated steps of gradient descent, 16 tasks at once."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap, layers

TOLERANCE = 5e-4  # float32
INNER_RATE, INNER_STEPS = 0.05, 3


def data(rng: np.random.Generator, small: bool) -> Data:
    tasks, points, width = (3, 5, 8) if small else (16, 10, 40)
    amplitude, phase = rng.uniform(0.1, 5, (tasks, 1, 1)), rng.uniform(0, np.pi, (tasks, 1, 1))
    x = rng.uniform(-5, 5, (2, tasks, points, 1))
    x, y = (a.astype(np.float32) for a in (x, amplitude * np.sin(x + phase)))
    return {"width": width, "weights": layers(rng, 1, width, width, 1), "x": x, "y": y}


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc
    import tape_nn as nn

    width = data["width"]
    model = nn.Sequential([nn.Dense(width, activation="tanh"), nn.Dense(width, activation="tanh"), nn.Dense(1)])
    model.build((None, 1))
    model.load_state_dict(dict(zip(model.state_dict(), data["weights"], strict=True)))

    def loss(model, x, y):
        return tc.mean((model(x) - y) ** 2)

    def adapted(model, x, y):
        for _ in range(INNER_STEPS):
            model = tc.tree_map(lambda w, g: w - INNER_RATE * g, model, tc.grad(loss)(model, x, y))
        return model

    def outer(model, x, y):
        return tc.mean(tc.vmap(lambda x, y: loss(adapted(model, x[0], y[0]), x[1], y[1]), in_axes=1)(x, y))

    both = wrap(lambda x, y: tc.value_and_grad(outer)(model, x, y))
    x, y = tc.asarray(data["x"]), tc.asarray(data["y"])  # in the library's hands, as the peers' data are

    def step():
        value, gradient = both(x, y)
        return [value, *tc.tree_leaves(gradient)]

    return step


def with_dicts(data: Data, wrap: Wrap) -> Step:
    """The same by `functional_call`, for values by name."""
    import tape_core as tc
    import tape_nn as nn

    width = data["width"]
    model = nn.Sequential([nn.Dense(width, activation="tanh"), nn.Dense(width, activation="tanh"), nn.Dense(1)])
    model.build((None, 1))
    start = dict(zip(model.state_dict(), map(tc.asarray, data["weights"]), strict=True))
    x, y = tc.asarray(data["x"]), tc.asarray(data["y"])

    def loss(params, x, y):
        return tc.mean((nn.functional_call(model, params, x) - y) ** 2)

    def of_task(params, x, y):
        for _ in range(INNER_STEPS):
            gradients = tc.grad(loss)(params, x[0], y[0])
            params = {name: value - INNER_RATE * gradients[name] for name, value in params.items()}
        return loss(params, x[1], y[1])

    def outer(params, x, y):
        return tc.mean(tc.vmap(of_task, in_axes=(None, 1, 1))(params, x, y))

    both = wrap(tc.value_and_grad(outer))

    def step():
        value, gradients = both(start, x, y)
        return [value, *gradients.values()]

    return step


STYLES = {"modules": with_tape, "functional_call": with_dicts}


def with_torch(data: Data) -> Step:
    import torch
    from torch.func import grad, grad_and_value, vmap

    def model(w, h):
        h = torch.tanh(h @ w[0] + w[1])
        return torch.tanh(h @ w[2] + w[3]) @ w[4] + w[5]

    def loss(w, x, y):
        return ((model(w, x) - y) ** 2).mean()

    def of_task(w, x, y):
        for _ in range(INNER_STEPS):
            w = [a - INNER_RATE * g for a, g in zip(w, grad(loss)(w, x[0], y[0]), strict=True)]
        return loss(w, x[1], y[1])

    both = grad_and_value(lambda w, x, y: vmap(lambda x, y: of_task(w, x, y), in_dims=1)(x, y).mean())
    weights = [torch.tensor(w) for w in data["weights"]]
    x, y = torch.tensor(data["x"]), torch.tensor(data["y"])

    def step():
        gradients, value = both(weights, x, y)
        return [value, *gradients]

    return step


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    def model(w, h):
        h = jnp.tanh(h @ w[0] + w[1])
        return jnp.tanh(h @ w[2] + w[3]) @ w[4] + w[5]

    def loss(w, x, y):
        return ((model(w, x) - y) ** 2).mean()

    def of_task(w, x, y):
        for _ in range(INNER_STEPS):
            w = jax.tree.map(lambda a, g: a - INNER_RATE * g, w, jax.grad(loss)(w, x[0], y[0]))
        return loss(w, x[1], y[1])

    both = jit(jax.value_and_grad(lambda w, x, y: jax.vmap(lambda x, y: of_task(w, x, y), in_axes=1)(x, y).mean()))
    weights = [jnp.asarray(w) for w in data["weights"]]
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])

    def step():
        value, gradients = jax.block_until_ready(both(weights, x, y))
        return [value, *gradients]

    return step
