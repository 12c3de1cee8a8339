"""64 dense layers with relu: what is kept is nearly all of the memory, and `checkpoint` keeps less."""

from __future__ import annotations

import numpy as np

from workloads import Data, Step

LAYERS, SEGMENTS = 64, 8


def data(rng: np.random.Generator, batch: int = 4096, width: int = 64) -> Data:
    x = rng.standard_normal((batch, width), np.float32)
    scale = np.float32((2 / width) ** 0.5)
    return {"x": x, "parameters": [rng.standard_normal((width, width), np.float32) * scale for _ in range(LAYERS)]}


def with_numpy(data: Data) -> Step:
    x, parameters = data["x"], data["parameters"]

    def step():
        kept = [x]
        for w in parameters:
            kept.append(np.maximum(kept[-1] @ w, 0))
        out = kept.pop()
        loss = np.mean(out * out)
        gradients, d = [], out * np.float32(2 / out.size)
        for w in reversed(parameters):
            d = d * (out > 0)
            out = kept.pop()
            gradients.append(out.T @ d)
            d = d @ w.T
        return loss, gradients[::-1]

    return step


def torch_loss(data: Data):
    import torch

    x = torch.tensor(data["x"])

    def loss(*parameters):
        h = x
        for w in parameters:
            h = torch.relu(h @ w)
        return torch.mean(h * h)

    return loss, [torch.tensor(p) for p in data["parameters"]]


def jax_loss(data: Data):
    import jax
    import jax.numpy as jnp

    def loss(parameters, h):
        for w in parameters:
            h = jax.nn.relu(h @ w)
        return jnp.mean(h * h)

    return loss, [jnp.asarray(p) for p in data["parameters"]], [jnp.asarray(data["x"])]


def tensorflow_loss(data: Data):
    import tensorflow as tf

    x, variables = tf.constant(data["x"]), [tf.Variable(p) for p in data["parameters"]]

    def loss():
        h = x
        for w in variables:
            h = tf.nn.relu(h @ w)
        return tf.reduce_mean(h * h)

    return loss, variables


def _with_tape(data: Data, checkpoint: bool) -> Step:
    import tape_core as tc

    x, parameters = tc.asarray(data["x"]), [tc.Variable(p) for p in data["parameters"]]

    def segment(h, ws):
        for w in ws:
            h = tc.relu(h @ w)
        return h

    run = tc.checkpoint(segment) if checkpoint else segment
    size = LAYERS // SEGMENTS

    def step():
        with tc.GradientTape() as tape:
            h = x
            for k in range(0, LAYERS, size):
                h = run(h, parameters[k : k + size])
            loss = tc.mean(h * h)
        return loss, tape.gradient(loss, parameters)

    return step


def with_tape(data: Data) -> Step:
    return _with_tape(data, checkpoint=False)


def with_tape_checkpoint(data: Data) -> Step:
    return _with_tape(data, checkpoint=True)
