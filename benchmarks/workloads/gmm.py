"""ADBench's Gaussian mixture: the log-likelihood of n points with a Wishart prior, by weights, means and covariances.

A component has the logarithm of its weight, a mean, and a lower triangular factor Q of its inverse covariance, as the
logarithms of the diagonal and then the columns below it. Float64.
"""

from __future__ import annotations

from math import lgamma, log, pi

import numpy as np

from workloads import Data, Step

TOLERANCE = 1e-10
DIMENSION, COMPONENTS = 10, 25
GAMMA, DEGREES = 1.0, 0  # of the Wishart prior


def make_data(rng: np.random.Generator, points: int) -> Data:
    d, k = DIMENSION, COMPONENTS
    columns, rows = np.triu_indices(d, 1)  # below the diagonal, column by column
    places = np.full((d, d), d * (d + 1) // 2)  # in a component's numbers with a zero behind them
    places[range(d), range(d)] = range(d)
    places[rows, columns] = range(d, d * (d + 1) // 2)
    return {
        "alphas": rng.standard_normal(k),
        "means": rng.random((k, d)),
        "factors": rng.standard_normal((k, d * (d + 1) // 2)),
        "x": rng.standard_normal((points, d)),
        "places": places.reshape(-1),
        "zero": np.zeros((k, 1)),
    }


def data(rng: np.random.Generator) -> Data:
    return make_data(rng, points=1_000)


def constant(points: int) -> float:
    """What does not depend on the parameters."""
    d, freedom = DIMENSION, DIMENSION + DEGREES + 1
    log_gamma = d * (d - 1) / 4 * log(pi) + sum(lgamma((freedom - j) / 2) for j in range(d))
    prior = freedom * d * (log(GAMMA) - 0.5 * log(2)) - log_gamma
    return -points * d * 0.5 * log(2 * pi) - COMPONENTS * prior


def with_numpy(data: Data) -> Step:
    alphas, means, factors, x = (data[name] for name in ("alphas", "means", "factors", "x"))
    (n, d), k = x.shape, len(alphas)
    diagonal = np.arange(d)
    columns, rows = np.triu_indices(d, 1)
    fixed = constant(n)

    def step():
        logs, below = factors[:, :d], factors[:, d:]
        scales, sums = np.exp(logs), logs.sum(1)
        q = np.zeros((k, d, d))
        q[:, diagonal, diagonal] = scales
        q[:, rows, columns] = below
        qt = q.swapaxes(1, 2)

        y = x @ qt
        y -= means[:, None] @ qt
        terms = (alphas + sums)[:, None] - 0.5 * np.einsum("knd,knd->kn", y, y)
        largest = terms.max(0)
        terms -= largest
        shares = np.exp(terms, out=terms)
        total = shares.sum(0)
        likelihood = np.log(total).sum() + largest.sum()
        shares /= total

        weights = np.exp(alphas - alphas.max())
        weight = weights.sum()
        squares = np.sum(scales * scales) + np.sum(below * below)
        value = fixed + likelihood - n * (np.log(weight) + alphas.max())
        value += 0.5 * GAMMA**2 * squares - DEGREES * sums.sum()

        counts = shares.sum(1)
        y *= shares[..., None]
        yk = y.sum(1)
        dq = yk[:, :, None] * means[:, None] - y.swapaxes(1, 2) @ x
        dmeans = (yk[:, None] @ q)[:, 0]
        dfactors = np.empty_like(factors)
        dfactors[:, :d] = dq[:, diagonal, diagonal] * scales + counts[:, None] + GAMMA**2 * scales * scales - DEGREES
        dfactors[:, d:] = dq[:, rows, columns] + GAMMA**2 * below
        return value, [counts - n * weights / weight, dmeans, dfactors]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np
    from autograd.scipy.special import logsumexp

    x, places, zero = (data[name] for name in ("x", "places", "zero"))
    (n, d), k, fixed = x.shape, len(zero), constant(len(x))

    def loss(parameters):
        alphas, means, factors = parameters
        logs, below = factors[:, :d], factors[:, d:]
        scales, sums = np.exp(logs), np.sum(logs, axis=1)
        q = np.concatenate([scales, below, zero], axis=1)[:, places].reshape(k, d, d)
        qt = np.swapaxes(q, 1, 2)
        y = x @ qt - means[:, None] @ qt
        terms = (alphas + sums)[:, None] - 0.5 * np.sum(y * y, axis=-1)
        likelihood = np.sum(logsumexp(terms, axis=0)) - n * logsumexp(alphas)
        squares = np.sum(scales**2) + np.sum(below**2)
        return fixed + likelihood + 0.5 * GAMMA**2 * squares - DEGREES * np.sum(sums)

    value_and_grad = autograd.value_and_grad(loss)
    parameters = [data["alphas"], data["means"], data["factors"]]
    return lambda: value_and_grad(parameters)


def torch_loss(data: Data):
    import torch

    x, places, zero = (torch.tensor(data[name]) for name in ("x", "places", "zero"))
    (n, d), k, fixed = x.shape, len(zero), constant(len(x))

    def loss(alphas, means, factors):
        logs, below = factors[:, :d], factors[:, d:]
        scales, sums = torch.exp(logs), logs.sum(1)
        q = torch.cat([scales, below, zero], dim=1)[:, places].reshape(k, d, d)
        y = x @ q.mT - means[:, None] @ q.mT
        terms = (alphas + sums)[:, None] - 0.5 * (y * y).sum(-1)
        likelihood = torch.logsumexp(terms, 0).sum() - n * torch.logsumexp(alphas, 0)
        squares = (scales**2).sum() + (below**2).sum()
        return fixed + likelihood + 0.5 * GAMMA**2 * squares - DEGREES * sums.sum()

    return loss, [torch.tensor(data[name]) for name in ("alphas", "means", "factors")]


def jax_loss(data: Data):
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    (n, d), k, fixed = data["x"].shape, COMPONENTS, constant(len(data["x"]))

    def loss(parameters, x, places, zero):
        alphas, means, factors = parameters
        logs, below = factors[:, :d], factors[:, d:]
        scales, sums = jnp.exp(logs), logs.sum(1)
        q = jnp.concatenate([scales, below, zero], axis=1)[:, places].reshape(k, d, d)
        qt = q.swapaxes(1, 2)
        y = x @ qt - means[:, None] @ qt
        terms = (alphas + sums)[:, None] - 0.5 * (y * y).sum(-1)
        likelihood = logsumexp(terms, axis=0).sum() - n * logsumexp(alphas)
        squares = (scales**2).sum() + (below**2).sum()
        return fixed + likelihood + 0.5 * GAMMA**2 * squares - DEGREES * sums.sum()

    parameters = [jnp.asarray(data[name]) for name in ("alphas", "means", "factors")]
    return loss, parameters, [jnp.asarray(data[name]) for name in ("x", "places", "zero")]


def tensorflow_loss(data: Data):
    import tensorflow as tf

    x, places, zero = (tf.constant(data[name]) for name in ("x", "places", "zero"))
    alphas, means, factors = variables = [tf.Variable(data[name]) for name in ("alphas", "means", "factors")]
    (n, d), k, fixed = x.shape, len(zero), constant(len(x))

    def loss():
        logs, below = factors[:, :d], factors[:, d:]
        scales, sums = tf.exp(logs), tf.reduce_sum(logs, axis=1)
        q = tf.reshape(tf.gather(tf.concat([scales, below, zero], axis=1), places, axis=1), (k, d, d))
        y = tf.matmul(x[None], q, transpose_b=True) - tf.matmul(means[:, None], q, transpose_b=True)
        terms = (alphas + sums)[:, None] - 0.5 * tf.reduce_sum(y * y, axis=-1)
        likelihood = tf.reduce_sum(tf.reduce_logsumexp(terms, axis=0)) - n * tf.reduce_logsumexp(alphas)
        squares = tf.reduce_sum(scales**2) + tf.reduce_sum(below**2)
        return fixed + likelihood + 0.5 * GAMMA**2 * squares - DEGREES * tf.reduce_sum(sums)

    return loss, variables


def with_tape(data: Data) -> Step:
    import tape_core as tc

    x, places, zero = (tc.asarray(data[name]) for name in ("x", "places", "zero"))
    alphas, means, factors = (tc.Variable(data[name]) for name in ("alphas", "means", "factors"))
    (n, d), k, fixed = x.shape, len(zero), constant(len(x))

    def step():
        with tc.GradientTape() as tape:
            logs, below = factors[:, :d], factors[:, d:]
            scales, sums = tc.exp(logs), tc.sum(logs, axis=1)
            q = tc.reshape(tc.take(tc.concat([scales, below, zero], axis=1), places, axis=1), (k, d, d))
            qt = tc.matrix_transpose(q)
            y = x @ qt - means[:, None, :] @ qt
            terms = (alphas + sums)[:, None] - 0.5 * tc.sum(y * y, axis=-1)
            likelihood = tc.sum(tc.logsumexp(terms, axis=0)) - n * tc.logsumexp(alphas)
            squares = tc.sum(scales**2) + tc.sum(below**2)
            value = fixed + likelihood + 0.5 * GAMMA**2 * squares - DEGREES * tc.sum(sums)
        return value, tape.gradient(value, [alphas, means, factors])

    return step
