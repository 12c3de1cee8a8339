"""Training steps of a variational autoencoder with Adam. The noise is given, so that peers agree."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap, layers

TOLERANCE = 1e-3  # float32, after several steps
RATE, EPSILON = 1e-3, 1e-10


def data(rng: np.random.Generator, small: bool) -> Data:
    batch, pixels, hidden, codes = (5, 30, 12, 3) if small else (128, 784, 256, 16)
    return {
        "sizes": (pixels, hidden, codes),
        "encoder": layers(rng, pixels, hidden, 2 * codes),
        "decoder": layers(rng, codes, hidden, pixels),
        "pictures": (rng.uniform(size=(batch, pixels)) < 0.3).astype(np.float32),
        "noise": rng.standard_normal((batch, codes)).astype(np.float32),
    }


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc
    import tape_nn as nn

    pixels, hidden, codes = data["sizes"]

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            self.encoder = nn.Sequential([nn.Dense(hidden, activation="relu"), nn.Dense(2 * codes)])
            self.decoder = nn.Sequential([nn.Dense(hidden, activation="relu"), nn.Dense(pixels)])
            self.encoder.build((None, pixels))
            self.decoder.build((None, codes))

        def __call__(self, x, noise):
            found = self.encoder(x)
            mean, log_variance = found[:, :codes], found[:, codes:]
            logits = self.decoder(mean + tc.exp(log_variance / 2) * noise)
            wrong = tc.sum(tc.softplus(logits) - x * logits, axis=1)
            divergence = 0.5 * tc.sum(mean**2 + tc.exp(log_variance) - 1 - log_variance, axis=1)
            return tc.mean(wrong + divergence)

    model = Autoencoder()
    model.load_state_dict(dict(zip(model.state_dict(), data["encoder"] + data["decoder"], strict=True)))
    optimizer = nn.Adam(RATE, epsilon=EPSILON)

    @wrap
    def train(x, noise):
        with tc.GradientTape() as tape:
            loss = model(x, noise)
        optimizer.apply_gradients(tape.gradient(loss, model), model)
        return loss

    pictures, noise = tc.asarray(data["pictures"]), tc.asarray(data["noise"])
    return lambda: [train(pictures, noise)]


STYLES = {"training step": with_tape}


def with_torch(data: Data) -> Step:
    import torch
    from torch.nn import functional as F

    codes = data["sizes"][2]
    w = [torch.tensor(a, requires_grad=True) for a in data["encoder"] + data["decoder"]]
    x, noise = torch.tensor(data["pictures"]), torch.tensor(data["noise"])
    optimizer = torch.optim.Adam(w, lr=RATE, eps=EPSILON)

    def step():
        optimizer.zero_grad()
        found = torch.relu(x @ w[0] + w[1]) @ w[2] + w[3]
        mean, log_variance = found[:, :codes], found[:, codes:]
        z = mean + torch.exp(log_variance / 2) * noise
        logits = torch.relu(z @ w[4] + w[5]) @ w[6] + w[7]
        wrong = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        loss = (wrong + 0.5 * (mean**2 + torch.exp(log_variance) - 1 - log_variance).sum(1)).mean()
        loss.backward()
        optimizer.step()
        return [loss.detach()]

    return step


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    codes = data["sizes"][2]

    def loss_of(w, x, noise):
        found = jax.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]
        mean, log_variance = found[:, :codes], found[:, codes:]
        z = mean + jnp.exp(log_variance / 2) * noise
        logits = jax.nn.relu(z @ w[4] + w[5]) @ w[6] + w[7]
        wrong = (jax.nn.softplus(logits) - x * logits).sum(1)
        return (wrong + 0.5 * (mean**2 + jnp.exp(log_variance) - 1 - log_variance).sum(1)).mean()

    @jit
    def update(w, m, v, count, x, noise):
        loss, g = jax.value_and_grad(loss_of)(w, x, noise)
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g, strict=True)]
        scale = RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        w = [a - scale * b / (jnp.sqrt(c) + EPSILON) for a, b, c in zip(w, m, v, strict=True)]
        return loss, w, m, v

    w = [jnp.asarray(a) for a in data["encoder"] + data["decoder"]]
    zeros = [jnp.zeros_like(a) for a in w]
    state = [w, zeros, zeros]
    x, noise = jnp.asarray(data["pictures"]), jnp.asarray(data["noise"])
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        loss, *state[:] = update(*state, jnp.float32(steps), x, noise)
        return [jax.block_until_ready(loss)]

    return step
