"""Steps of Adam for a small perceptron: what a call costs beside the arithmetic. The model is an argument, or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from programs import Data, Step, Wrap, layers

TOLERANCE = 1e-3  # float32, after several steps
RATE, EPSILON = 1e-3, 1e-8


def data(rng: np.random.Generator, small: bool) -> Data:
    batch, width, classes = (5, 8, 3) if small else (64, 64, 10)
    return {
        "width": width,
        "classes": classes,
        "weights": layers(rng, width, width, width, classes),
        "x": rng.standard_normal((batch, width)).astype(np.float32),
        "labels": np.eye(classes, dtype=np.float32)[rng.integers(0, classes, batch)],
    }


def _parts(data: Data) -> tuple[Any, Callable[..., Any], Any, Any]:
    """Return the model, the function of a step, and the batch."""
    import tape_core as tc
    import tape_nn as nn

    width, classes = data["width"], data["classes"]
    dense = [nn.Dense(width, activation="relu"), nn.Dense(width, activation="relu"), nn.Dense(classes)]
    model = nn.Sequential(dense)
    model.build((None, width))
    model.load_state_dict(dict(zip(model.state_dict(), data["weights"], strict=True)))
    optimizer = nn.Adam(RATE, epsilon=EPSILON)

    def train(model, x, labels):
        with tc.GradientTape() as tape:
            loss = -tc.mean(tc.sum(labels * tc.log_softmax(model(x), axis=1), axis=1))
        optimizer.apply_gradients(tape.gradient(loss, model), model)
        return loss

    return model, train, tc.asarray(data["x"]), tc.asarray(data["labels"])


def as_argument(data: Data, wrap: Wrap) -> Step:
    model, train, x, labels = _parts(data)
    step = wrap(train)
    return lambda: [step(model, x, labels)]


def closed_over(data: Data, wrap: Wrap) -> Step:
    model, train, x, labels = _parts(data)
    step = wrap(lambda x, labels: train(model, x, labels))
    return lambda: [step(x, labels)]


STYLES = {"model is an argument": as_argument, "model is closed over": closed_over}


def with_torch(data: Data) -> Step:
    import torch
    from torch.nn import functional as F

    w = [torch.tensor(a, requires_grad=True) for a in data["weights"]]
    x, labels = torch.tensor(data["x"]), torch.tensor(data["labels"])
    optimizer = torch.optim.Adam(w, lr=RATE, eps=EPSILON)

    def step():
        optimizer.zero_grad()
        y = x
        for at in (0, 2):
            y = torch.relu(y @ w[at] + w[at + 1])
        loss = F.cross_entropy(y @ w[4] + w[5], labels)
        loss.backward()
        optimizer.step()
        return [loss.detach()]

    return step


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    def loss_of(w, x, labels):
        y = x
        for at in (0, 2):
            y = jax.nn.relu(y @ w[at] + w[at + 1])
        return -(labels * jax.nn.log_softmax(y @ w[4] + w[5])).sum(1).mean()

    def update(w, m, v, count, x, labels):
        loss, g = jax.value_and_grad(loss_of)(w, x, labels)
        count = count + 1
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g, strict=True)]
        t = count.astype(jnp.float32)
        first, second = 1 - 0.9**t, 1 - 0.999**t
        w = [a - RATE * (b / first) / (jnp.sqrt(c / second) + EPSILON) for a, b, c in zip(w, m, v, strict=True)]
        return loss, w, m, v, count

    # The values before a step are not needed after it, so XLA may have their memory, as users of JAX tell it.
    update = jax.jit(update, donate_argnums=(0, 1, 2, 3)) if jit is jax.jit else update
    w = [jnp.array(a) for a in data["weights"]]
    state = [w, [jnp.zeros_like(a) for a in w], [jnp.zeros_like(a) for a in w], jnp.asarray(0, jnp.int32)]
    x, labels = jnp.asarray(data["x"]), jnp.asarray(data["labels"])

    def step():
        loss, *state[:] = update(*state, x, labels)
        return [jax.block_until_ready(loss)]

    return step
