"""A network like LeNet on images of 28 x 28: convolutions, pooling and dense layers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from workloads import Data, Step

BATCH, SIZE, CHANNELS, KERNEL, DENSE = 64, 28, (1, 6, 16), 5, (400, 120, 84, 10)


def data(rng: np.random.Generator) -> Data:
    def normal(*shape: int, fan_in: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) * np.float32((2 / fan_in) ** 0.5)

    parameters = []
    for inside, outside in pairwise(CHANNELS):
        parameters.append(normal(outside, inside, KERNEL, KERNEL, fan_in=inside * KERNEL**2))
        parameters.append(normal(outside, fan_in=200))
    for inside, outside in pairwise(DENSE):
        parameters += [normal(inside, outside, fan_in=inside), normal(outside, fan_in=200)]
    images = rng.standard_normal((BATCH, 1, SIZE, SIZE), np.float32)
    return {"x": images, "labels": rng.integers(0, DENSE[-1], BATCH), "parameters": parameters}


def with_numpy(data: Data) -> Step:
    x, labels = data["x"], data["labels"]
    k1, a1, k2, a2, w1, b1, w2, b2, w3, b3 = data["parameters"]
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    rows = np.arange(len(x))

    def conv(x, k):
        """The convolution, and the windows as rows of a matrix."""
        windows = sliding_window_view(x, k.shape[2:], axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
        n, height, width = windows.shape[:3]
        windows = windows.reshape(n * height * width, -1)
        out = windows @ k.reshape(len(k), -1).T
        return out.reshape(n, height, width, -1).transpose(0, 3, 1, 2), windows

    def conv_weight_gradient(d, windows, k):
        return (d.transpose(1, 0, 2, 3).reshape(len(k), -1) @ windows).reshape(k.shape)

    def conv_input_gradient(d, k):
        edge = (KERNEL - 1, KERNEL - 1)
        return conv(np.pad(d, ((0, 0), (0, 0), edge, edge)), k[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))[0]

    def pool(x):
        n, channels, height, width = x.shape
        fields = x.reshape(n, channels, height // 2, 2, width // 2, 2)
        return fields.max(axis=(3, 5)), fields

    def pool_gradient(d, out, fields):
        # Equal ones are zeros, which relu lets nothing through to.
        found = (fields == out[:, :, :, None, :, None]) * d[:, :, :, None, :, None]
        n, channels, height, _, width, _ = fields.shape
        return found.reshape(n, channels, 2 * height, 2 * width)

    def step():
        z1, windows1 = conv(padded, k1)
        c1 = np.maximum(z1 + a1[:, None, None], 0)
        p1, fields1 = pool(c1)
        z2, windows2 = conv(p1, k2)
        c2 = np.maximum(z2 + a2[:, None, None], 0)
        p2, fields2 = pool(c2)
        h0 = p2.reshape(len(x), -1)
        h1 = np.maximum(h0 @ w1 + b1, 0)
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
        e2 = pool_gradient((d1 @ w1.T).reshape(p2.shape), p2, fields2) * (c2 > 0)
        e1 = pool_gradient(conv_input_gradient(e2, k2), p1, fields1) * (c1 > 0)
        gradients = [conv_weight_gradient(e1, windows1, k1), e1.sum((0, 2, 3))]
        gradients += [conv_weight_gradient(e2, windows2, k2), e2.sum((0, 2, 3))]
        gradients += [h0.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0)]
        return loss, gradients

    return step


def torch_loss(data: Data):
    import torch
    from torch.nn.functional import conv2d, cross_entropy, max_pool2d

    x, labels = torch.tensor(data["x"]), torch.tensor(data["labels"])

    def loss(k1, a1, k2, a2, w1, b1, w2, b2, w3, b3):
        p1 = max_pool2d(torch.relu(conv2d(x, k1, a1, padding=2)), 2)
        p2 = max_pool2d(torch.relu(conv2d(p1, k2, a2)), 2)
        h1 = torch.relu(torch.addmm(b1, p2.flatten(1), w1))
        h2 = torch.relu(torch.addmm(b2, h1, w2))
        return cross_entropy(torch.addmm(b3, h2, w3), labels)

    return loss, [torch.tensor(p) for p in data["parameters"]]


def jax_loss(data: Data):
    import jax
    import jax.numpy as jnp

    def conv(x, k, a, padding):
        pads = [(padding, padding)] * 2
        return jax.lax.conv_general_dilated(x, k, (1, 1), pads) + a[:, None, None]

    def pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def loss(parameters, x, labels):
        k1, a1, k2, a2, w1, b1, w2, b2, w3, b3 = parameters
        p1 = pool(jax.nn.relu(conv(x, k1, a1, 2)))
        p2 = pool(jax.nn.relu(conv(p1, k2, a2, 0)))
        h1 = jax.nn.relu(p2.reshape(BATCH, -1) @ w1 + b1)
        h2 = jax.nn.relu(h1 @ w2 + b2)
        logs = jax.nn.log_softmax(h2 @ w3 + b3)
        return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))

    return loss, [jnp.asarray(p) for p in data["parameters"]], [jnp.asarray(data["x"]), jnp.asarray(data["labels"])]


def tensorflow_loss(data: Data):
    """With channels last, as TensorFlow's convolutions on the CPU want them."""
    import tensorflow as tf

    x, labels = tf.constant(data["x"].transpose(0, 2, 3, 1)), tf.constant(data["labels"])
    k1, a1, k2, a2, w1, b1, w2, b2, w3, b3 = variables = [tf.Variable(p) for p in data["parameters"]]

    def conv(x, k, a, padding):
        return tf.nn.conv2d(x, tf.transpose(k, (2, 3, 1, 0)), 1, padding) + a

    def loss():
        p1 = tf.nn.max_pool2d(tf.nn.relu(conv(x, k1, a1, "SAME")), 2, 2, "VALID")
        p2 = tf.nn.max_pool2d(tf.nn.relu(conv(p1, k2, a2, "VALID")), 2, 2, "VALID")
        h0 = tf.reshape(tf.transpose(p2, (0, 3, 1, 2)), (BATCH, -1))
        h1 = tf.nn.relu(h0 @ w1 + b1)
        h2 = tf.nn.relu(h1 @ w2 + b2)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, h2 @ w3 + b3))

    return loss, variables


def with_tape(data: Data) -> Step:
    import tape_core as tc

    x, labels = tc.asarray(data["x"]), tc.asarray(data["labels"])
    parameters = [tc.Variable(p) for p in data["parameters"]]
    k1, a1, k2, a2, w1, b1, w2, b2, w3, b3 = parameters

    def conv(x, k, a, padding):
        return tc.conv(x, k, padding=padding, layout="channels_first") + tc.reshape(a, (-1, 1, 1))

    def pool(x):
        return tc.max_pool(x, 2, layout="channels_first")

    def loss():
        p1 = pool(tc.relu(conv(x, k1, a1, 2)))
        p2 = pool(tc.relu(conv(p1, k2, a2, 0)))
        h1 = tc.relu(tc.reshape(p2, (BATCH, -1)) @ w1 + b1)
        h2 = tc.relu(h1 @ w2 + b2)
        return tc.mean(tc.cross_entropy(h2 @ w3 + b3, labels))

    def step():
        with tc.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, parameters)

    return step
