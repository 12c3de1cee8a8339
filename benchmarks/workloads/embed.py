"""A few rows of a large table: a dense gradient would cost more than everything else."""

from __future__ import annotations

import numpy as np

from workloads import Data, Rows, Step

TABLE, ROWS = (100_000, 64), 256


def data(rng: np.random.Generator) -> Data:
    return {"table": rng.standard_normal(TABLE, np.float32), "ids": rng.integers(0, TABLE[0], ROWS)}


def with_numpy(data: Data) -> Step:
    table, ids = data["table"], data["ids"]

    def step():
        rows = table[ids]
        return np.sum(rows * rows), [Rows(2 * rows, ids, table.shape)]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    table, ids = data["table"], data["ids"]

    def loss(table):
        rows = table[ids]
        return np.sum(rows * rows)

    value_and_grad = autograd.value_and_grad(loss)

    def step():
        value, gradient = value_and_grad(table)
        return value, [gradient]

    return step


def with_mygrad(data: Data) -> Step:
    import mygrad as mg

    table, ids = mg.tensor(data["table"]), data["ids"]

    def step():
        rows = table[ids]
        loss = mg.sum(rows * rows)
        loss.backward()
        return loss, [table.grad]

    return step


def with_torch(data: Data) -> Step:
    import torch
    from torch.nn.functional import embedding

    table, ids = torch.tensor(data["table"], requires_grad=True), torch.tensor(data["ids"])

    def step():
        rows = embedding(ids, table, sparse=True)
        loss = torch.sum(rows * rows)
        return loss, list(torch.autograd.grad(loss, [table]))

    return step


def torch_loss(data: Data):
    """With a dense gradient, which alone torch.func and torch.compile know."""
    import torch
    from torch.nn.functional import embedding

    ids = torch.tensor(data["ids"])

    def loss(table):
        rows = embedding(ids, table)
        return torch.sum(rows * rows)

    return loss, [torch.tensor(data["table"])]


def jax_loss(data: Data):
    import jax.numpy as jnp

    def loss(parameters, ids):
        rows = parameters[0][ids]
        return jnp.sum(rows * rows)

    return loss, [jnp.asarray(data["table"])], [jnp.asarray(data["ids"])]


def tensorflow_loss(data: Data):
    import tensorflow as tf

    table, ids = tf.Variable(data["table"]), tf.constant(data["ids"])

    def loss():
        rows = tf.gather(table, ids)
        return tf.reduce_sum(rows * rows)

    return loss, [table]


def with_tape(data: Data) -> Step:
    import tape_core as tc

    table, ids = tc.Variable(data["table"]), tc.asarray(data["ids"])

    def step():
        with tc.GradientTape() as tape:
            rows = tc.gather(table, ids)
            loss = tc.sum(rows * rows)
        return loss, tape.gradient(loss, [table])

    return step
