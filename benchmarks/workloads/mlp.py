"""Three dense layers with relu and the mean cross-entropy; two workloads give it sizes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from workloads import Data, Step


def make_data(rng: np.random.Generator, batch: int, sizes: tuple[int, ...]) -> Data:
    x = rng.standard_normal((batch, sizes[0]), np.float32)
    parameters = []
    for fan_in, fan_out in pairwise(sizes):
        scale = np.float32((2 / fan_in) ** 0.5)
        parameters.append(rng.standard_normal((fan_in, fan_out), np.float32) * scale)
        parameters.append(rng.standard_normal(fan_out, np.float32) * np.float32(0.1))
    return {"x": x, "labels": rng.integers(0, sizes[-1], batch), "parameters": parameters}


def with_numpy(data: Data) -> Step:
    x, labels = data["x"], data["labels"]
    w1, b1, w2, b2, w3, b3 = data["parameters"]
    rows = np.arange(len(x))

    def step():
        h1 = np.maximum(x @ w1 + b1, 0)
        h2 = np.maximum(h1 @ w2 + b2, 0)
        logits = h2 @ w3 + b3
        logits -= logits.max(axis=1, keepdims=True)
        exp = np.exp(logits)
        total = exp.sum(axis=1, keepdims=True)
        loss = np.mean(np.log(total[:, 0]) - logits[rows, labels])

        d3 = exp / total
        d3[rows, labels] -= 1
        d3 /= len(x)
        d2 = (d3 @ w3.T) * (h2 > 0)
        d1 = (d2 @ w2.T) * (h1 > 0)
        gradients = [x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0)]
        return loss, gradients

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np
    from autograd.tracer import getval

    x, labels = data["x"], data["labels"]
    rows = np.arange(len(x))

    def loss(parameters):
        w1, b1, w2, b2, w3, b3 = parameters
        h1 = np.maximum(x @ w1 + b1, 0)
        h2 = np.maximum(h1 @ w2 + b2, 0)
        logits = h2 @ w3 + b3
        # The shift needs no gradient: this is faster than autograd.scipy.special.logsumexp.
        logits = logits - getval(logits).max(axis=1, keepdims=True)
        return np.mean(np.log(np.sum(np.exp(logits), axis=1)) - logits[rows, labels])

    value_and_grad = autograd.value_and_grad(loss)
    return lambda: value_and_grad(data["parameters"])


def with_mygrad(data: Data) -> Step:
    import mygrad as mg
    from mygrad.nnet.activations import relu
    from mygrad.nnet.losses import softmax_crossentropy

    x, labels = data["x"], data["labels"]
    parameters = [mg.tensor(p) for p in data["parameters"]]
    w1, b1, w2, b2, w3, b3 = parameters

    def step():
        h1 = relu(x @ w1 + b1)
        h2 = relu(h1 @ w2 + b2)
        loss = softmax_crossentropy(h2 @ w3 + b3, labels)
        loss.backward()
        return loss, [p.grad for p in parameters]

    return step


def torch_loss(data: Data):
    import torch
    from torch.nn.functional import cross_entropy

    x, labels = torch.tensor(data["x"]), torch.tensor(data["labels"])

    def loss(w1, b1, w2, b2, w3, b3):
        h1 = torch.relu(torch.addmm(b1, x, w1))  # one fused kernel, as in torch.nn.Linear
        h2 = torch.relu(torch.addmm(b2, h1, w2))
        return cross_entropy(torch.addmm(b3, h2, w3), labels)

    return loss, [torch.tensor(p) for p in data["parameters"]]


def jax_loss(data: Data):
    import jax
    import jax.numpy as jnp

    def loss(parameters, x, labels):
        w1, b1, w2, b2, w3, b3 = parameters
        h1 = jax.nn.relu(x @ w1 + b1)
        h2 = jax.nn.relu(h1 @ w2 + b2)
        logs = jax.nn.log_softmax(h2 @ w3 + b3)
        return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))

    return loss, [jnp.asarray(p) for p in data["parameters"]], [jnp.asarray(data["x"]), jnp.asarray(data["labels"])]


def tensorflow_loss(data: Data):
    import tensorflow as tf

    x, labels = tf.constant(data["x"]), tf.constant(data["labels"])
    w1, b1, w2, b2, w3, b3 = variables = [tf.Variable(p) for p in data["parameters"]]

    def loss():
        h1 = tf.nn.relu(x @ w1 + b1)
        h2 = tf.nn.relu(h1 @ w2 + b2)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, h2 @ w3 + b3))

    return loss, variables


def with_tape(data: Data) -> Step:
    import tape_core as tc

    x, labels = tc.asarray(data["x"]), tc.asarray(data["labels"])
    parameters = [tc.Variable(p) for p in data["parameters"]]
    w1, b1, w2, b2, w3, b3 = parameters

    def loss():
        h1 = tc.relu(x @ w1 + b1)
        h2 = tc.relu(h1 @ w2 + b2)
        return tc.mean(tc.cross_entropy(h2 @ w3 + b3, labels))

    def step():
        with tc.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, parameters)

    return step
