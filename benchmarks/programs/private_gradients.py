"""Differentially private training: each picture's gradient of a convolutional network, clipped to 1; their mean."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 5e-4  # float32


def data(rng: np.random.Generator, small: bool) -> Data:
    batch, side, filters = (3, 12, 4) if small else (64, 28, 16)
    rest = ((side - 2) // 2 - 2) // 2  # after two convolutions and poolings
    shapes = [(3, 3, 1, filters), (filters,), (3, 3, filters, filters), (filters,), (rest * rest * filters, 10), (10,)]
    return {
        "filters": filters,
        "weights": [(rng.standard_normal(s) / np.sqrt(np.prod(s[:-1]) or 1)).astype(np.float32) for s in shapes],
        "pictures": rng.uniform(size=(batch, side, side, 1)).astype(np.float32),
        "labels": rng.integers(0, 10, batch),
    }


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc
    import tape_nn as nn

    n = data["filters"]
    model = nn.Sequential(
        [
            nn.Conv2D(n, 3, activation="tanh"),
            nn.AvgPool2D(2),
            nn.Conv2D(n, 3, activation="tanh"),
            nn.AvgPool2D(2),
            nn.Flatten(),
            nn.Dense(10),
        ]
    )
    model.build((None, *data["pictures"].shape[1:]))
    model.load_state_dict(dict(zip(model.state_dict(), data["weights"], strict=True)))

    def loss(model, x, y):
        return tc.cross_entropy(model(x[None]), y[None])[0]

    def clipped(model, x, y):
        value, gradient = tc.value_and_grad(loss)(model, x, y)
        norm = tc.sqrt(sum(tc.sum(g**2) for g in tc.tree_leaves(gradient)))
        return value, tc.tree_map(lambda g: g / tc.maximum(norm, 1.0), gradient)

    @wrap
    def private(x, y):
        values, gradients = tc.vmap(clipped, in_axes=(None, 0, 0))(model, x, y)
        return tc.mean(values), tc.tree_map(lambda g: tc.mean(g, axis=0), gradients)

    x, y = tc.asarray(data["pictures"]), tc.asarray(data["labels"])

    def step():
        value, gradient = private(x, y)
        return [value, *tc.tree_leaves(gradient)]

    return step


STYLES = {"vmap(grad)": with_tape}


def with_torch(data: Data) -> Step:
    import torch
    from torch.func import grad_and_value, vmap
    from torch.nn import functional as F

    def to_torch(w):  # channels first
        return torch.tensor(w.transpose(3, 2, 0, 1) if w.ndim == 4 else w)

    weights = [to_torch(w) for w in data["weights"]]
    x, y = torch.tensor(data["pictures"].transpose(0, 3, 1, 2)), torch.tensor(data["labels"])

    def loss(w, x, y):
        h = F.avg_pool2d(torch.tanh(F.conv2d(x[None], w[0], w[1])), 2)
        h = F.avg_pool2d(torch.tanh(F.conv2d(h, w[2], w[3])), 2)
        return F.cross_entropy(h.permute(0, 2, 3, 1).flatten(1) @ w[4] + w[5], y[None])

    def clipped(w, x, y):
        g, value = grad_and_value(loss)(w, x, y)
        norm = torch.sqrt(sum((a**2).sum() for a in g))
        return value, [a / torch.clamp(norm, min=1.0) for a in g]

    def step():
        values, g = vmap(clipped, in_dims=(None, 0, 0))(weights, x, y)
        return [values.mean(), *(a.permute(2, 3, 1, 0) if a.ndim == 4 else a for a in (b.mean(0) for b in g))]

    return step


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    def convolved(x, w, b):
        return jnp.tanh(
            jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b
        )

    def pooled(x):
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4

    def loss(w, x, y):
        h = pooled(convolved(pooled(convolved(x[None], w[0], w[1])), w[2], w[3]))
        return -jax.nn.log_softmax(h.reshape(1, -1) @ w[4] + w[5])[0, y]

    def clipped(w, x, y):
        value, g = jax.value_and_grad(loss)(w, x, y)
        norm = jnp.sqrt(sum((a**2).sum() for a in g))
        return value, [a / jnp.maximum(norm, 1.0) for a in g]

    @jit
    def private(w, x, y):
        values, g = jax.vmap(clipped, in_axes=(None, 0, 0))(w, x, y)
        return values.mean(), [a.mean(0) for a in g]

    weights = [jnp.asarray(w) for w in data["weights"]]
    x, y = jnp.asarray(data["pictures"]), jnp.asarray(data["labels"])

    def step():
        value, g = jax.block_until_ready(private(weights, x, y))
        return [value, *g]

    return step
