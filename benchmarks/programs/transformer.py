"""Training steps of a small character transformer: causal attention, layer norms, Adam with warm-up and clipping."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 2e-3  # float32, after several steps
CHARACTERS, HEADS = 65, 4
RATE, WARM_UP, CLIP, EPSILON = 3e-3, 4, 1.0, 1e-10


def data(rng: np.random.Generator, small: bool) -> Data:
    blocks, width, context, batch = (2, 16, 12, 4) if small else (4, 128, 64, 16)
    head = width // HEADS

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    weights = {"what.embeddings": normal(CHARACTERS, width), "where.embeddings": normal(context, width)}
    for k in range(blocks):
        attention = f"blocks.{k}.attention."
        for name in ("query", "key", "value"):
            weights[f"{attention}{name}_kernel"] = normal(width, HEADS, head)
            weights[f"{attention}{name}_bias"] = np.zeros((HEADS, head), np.float32)
        weights[f"{attention}output_kernel"] = normal(HEADS, head, width) / HEADS
        weights[f"{attention}output_bias"] = np.zeros(width, np.float32)
        for n in range(2):
            weights[f"blocks.{k}.norms.{n}.gamma"] = np.ones(width, np.float32)
            weights[f"blocks.{k}.norms.{n}.beta"] = np.zeros(width, np.float32)
        for n, (rows, columns) in enumerate([(width, 4 * width), (4 * width, width)]):
            weights[f"blocks.{k}.thinking.layers.{n}.kernel"] = normal(rows, columns)
            weights[f"blocks.{k}.thinking.layers.{n}.bias"] = np.zeros(columns, np.float32)
    weights["norm.gamma"], weights["norm.beta"] = np.ones(width, np.float32), np.zeros(width, np.float32)
    weights["logits.kernel"], weights["logits.bias"] = normal(width, CHARACTERS), np.zeros(CHARACTERS, np.float32)
    text = (
        np.cumsum(rng.integers(0, 3, size=(batch, context + 1)), axis=1) % CHARACTERS
    )  # so there is something to learn
    return {"weights": weights, "text": text, "blocks": blocks, "width": width, "context": context}


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc
    import tape_nn as nn

    width, context = data["width"], data["context"]

    class Block(nn.Module):
        def __init__(self) -> None:
            self.norms = [nn.LayerNorm(), nn.LayerNorm()]
            self.attention = nn.MultiHeadAttention(HEADS, width // HEADS)
            self.thinking = nn.Sequential([nn.Dense(4 * width, activation="relu"), nn.Dense(width)])

        def __call__(self, x: tc.Tensor) -> tc.Tensor:
            seen = self.norms[0](x)
            x = x + self.attention(seen, seen, use_causal_mask=True)
            return x + self.thinking(self.norms[1](x))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            self.what, self.where = nn.Embedding(CHARACTERS, width), nn.Embedding(context, width)
            self.blocks = [Block() for _ in range(data["blocks"])]
            self.norm, self.logits = nn.LayerNorm(), nn.Dense(CHARACTERS)

        def __call__(self, x: tc.Tensor) -> tc.Tensor:
            x = self.what(x) + self.where(tc.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.logits(self.norm(x))

    model = Transformer()
    model(data["text"][:, :-1])
    model.load_state_dict(data["weights"])
    rate = nn.schedules.WarmUp(RATE, steps=WARM_UP)
    optimizer = nn.Adam(rate, epsilon=EPSILON, global_clipnorm=CLIP)

    @wrap
    def step(text):
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(text[:, :-1]), text[:, 1:]))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    text = tc.asarray(data["text"])
    return lambda: [step(text)]


STYLES = {"training step": with_tape}


def rate_of(step: int) -> float:
    """The schedule of the peers; steps are counted from 0."""
    return RATE * min(1.0, step / WARM_UP)


def with_torch(data: Data) -> Step:
    import torch
    from torch.nn import functional as F

    w = {name: torch.tensor(value, requires_grad=True) for name, value in data["weights"].items()}
    text = torch.tensor(data["text"])
    width = data["width"]
    optimizer = torch.optim.Adam(w.values(), eps=EPSILON)
    steps = 0

    def norm(x, name):
        return F.layer_norm(x, (width,), w[f"{name}.gamma"], w[f"{name}.beta"], eps=1e-3)

    def heads(x, name):
        return torch.einsum("btc,chd->bhtd", x, w[f"{name}_kernel"]) + w[f"{name}_bias"][:, None]

    def model(x):
        x = w["what.embeddings"][x] + w["where.embeddings"][torch.arange(x.shape[1])]
        for k in range(data["blocks"]):
            a = f"blocks.{k}.attention."
            seen = norm(x, f"blocks.{k}.norms.0")
            q, key, v = (heads(seen, a + name) for name in ("query", "key", "value"))
            found = F.scaled_dot_product_attention(q, key, v, is_causal=True)
            x = x + torch.einsum("bhtd,hdc->btc", found, w[a + "output_kernel"]) + w[a + "output_bias"]
            h = norm(x, f"blocks.{k}.norms.1")
            t = f"blocks.{k}.thinking.layers."
            h = torch.relu(h @ w[t + "0.kernel"] + w[t + "0.bias"])
            x = x + h @ w[t + "1.kernel"] + w[t + "1.bias"]
        return norm(x, "norm") @ w["logits.kernel"] + w["logits.bias"]

    def step():
        nonlocal steps
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), CLIP)
        optimizer.param_groups[0]["lr"] = rate_of(steps)
        optimizer.step()
        steps += 1
        return [loss.detach()]

    return step


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    width, blocks = data["width"], data["blocks"]

    def norm(w, x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * w[f"{name}.gamma"] + w[f"{name}.beta"]

    def model(w, x):
        n = x.shape[1]
        x = w["what.embeddings"][x] + w["where.embeddings"][jnp.arange(n)]
        mask = jnp.tril(jnp.ones((n, n), bool))
        for k in range(blocks):
            a = f"blocks.{k}.attention."
            seen = norm(w, x, f"blocks.{k}.norms.0")
            q, key, v = (
                jnp.einsum("btc,chd->bhtd", seen, w[f"{a}{m}_kernel"]) + w[f"{a}{m}_bias"][:, None]
                for m in ("query", "key", "value")
            )
            scores = jnp.where(mask, q @ key.swapaxes(-1, -2) / (width // HEADS) ** 0.5, -jnp.inf)
            found = jax.nn.softmax(scores) @ v
            x = x + jnp.einsum("bhtd,hdc->btc", found, w[a + "output_kernel"]) + w[a + "output_bias"]
            h = norm(w, x, f"blocks.{k}.norms.1")
            t = f"blocks.{k}.thinking.layers."
            h = jax.nn.relu(h @ w[t + "0.kernel"] + w[t + "0.bias"])
            x = x + h @ w[t + "1.kernel"] + w[t + "1.bias"]
        return norm(w, x, "norm") @ w["logits.kernel"] + w["logits.bias"]

    def loss_of(w, text):
        logits = jax.nn.log_softmax(model(w, text[:, :-1]))
        return -jnp.take_along_axis(logits, text[:, 1:, None], axis=-1).mean()

    @jit
    def update(w, m, v, count, rate, text):
        loss, g = jax.value_and_grad(loss_of)(w, text)
        total = jnp.sqrt(sum(jnp.sum(x * x) for x in g.values()))
        g = {name: x * jnp.minimum(1.0, CLIP / total) for name, x in g.items()}
        m = {name: 0.9 * m[name] + 0.1 * x for name, x in g.items()}
        v = {name: 0.999 * v[name] + 0.001 * x * x for name, x in g.items()}
        scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        w = {name: x - scale * m[name] / (jnp.sqrt(v[name]) + EPSILON) for name, x in w.items()}
        return loss, w, m, v

    w = {name: jnp.asarray(value) for name, value in data["weights"].items()}
    zeros = {name: jnp.zeros_like(value) for name, value in w.items()}
    state = [w, zeros, zeros]
    text = jnp.asarray(data["text"])
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        loss, *state[:] = update(*state, jnp.float32(steps), jnp.float32(rate_of(steps - 1)), text)
        return [jax.block_until_ready(loss)]

    return step
