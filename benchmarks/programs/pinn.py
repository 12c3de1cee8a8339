"""A physics-informed network for Burgers' equation, u_t + u u_x = ν u_xx: the loss and its gradient in the weights.

Three ways to the derivatives of the network in its inputs: nested tapes, forward over forward, and `vmap` of gradients.
"""

from __future__ import annotations

import functools

import numpy as np

from programs import Data, Step, Wrap, layers

TOLERANCE = 5e-4  # float32, third derivatives
VISCOSITY = 0.01 / np.pi


def data(rng: np.random.Generator, small: bool) -> Data:
    points, width = (20, 8) if small else (1000, 32)
    inside = np.stack([rng.uniform(0, 1, points), rng.uniform(-1, 1, points)], axis=1).astype(np.float32)
    x = rng.uniform(-1, 1, (points // 5, 1)).astype(np.float32)
    return {
        "sizes": (width, width, width),
        "weights": layers(rng, 2, width, width, width, 1),
        "t": inside[:, :1],
        "x": inside[:, 1:],
        "initial": np.concatenate([np.zeros_like(x), x], axis=1),
        "initial_value": -np.sin(np.pi * x),
    }


def network(data: Data):
    import tape_nn as nn

    model = nn.Sequential([*(nn.Dense(n, activation="tanh") for n in data["sizes"]), nn.Dense(1)])
    model.build((None, 2))
    model.load_state_dict(dict(zip(model.state_dict(), data["weights"], strict=True)))
    return model


def training(data: Data, wrap: Wrap, residual) -> Step:
    """The loss of what `residual` computes, and its gradient in the weights."""
    import tape_core as tc

    model = network(data)

    @wrap
    def both(t, x, initial, value):
        with tc.GradientTape() as tape:
            wrong = tc.mean((model(initial) - value) ** 2)
            loss = tc.mean(residual(model, t, x) ** 2) + wrong
        return loss, tape.gradient(loss, model.trainable_variables)

    inputs = [tc.asarray(data[name]) for name in ("t", "x", "initial", "initial_value")]

    def step():
        loss, gradients = both(*inputs)
        return [loss, *gradients]

    return step


def nested_tapes(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    def residual(model, t, x):
        t, x = tc.asarray(t), tc.asarray(x)
        with tc.GradientTape() as second:
            second.watch(x)
            with tc.GradientTape() as first:
                first.watch([t, x])
                u = model(tc.concat([t, x], axis=1))
            u_t, u_x = first.gradient(u, [t, x])
        return u_t + u * u_x - VISCOSITY * second.gradient(u_x, x)

    return training(data, wrap, residual)


def forward(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    def residual(model, t, x):
        def u(t, x):
            return model(tc.concat([t, x], axis=1))

        one, zero = tc.ones_like(x), tc.zeros_like(x)
        value, u_t = tc.jvp(u, (t, x), (one, zero))
        u_x, u_xx = tc.jvp(lambda x: tc.jvp(u, (t, x), (zero, one))[1], (x,), (one,))
        return u_t + value * u_x - VISCOSITY * u_xx

    return training(data, wrap, residual)


def per_example(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    def residual(model, t, x):
        def u(t, x):
            return model(tc.stack([t, x])[None])[0, 0]

        def at(t, x):
            u_x, u_xx = tc.value_and_grad(tc.grad(u, 1), 1)(t, x)
            return tc.grad(u)(t, x) + u(t, x) * u_x - VISCOSITY * u_xx

        return tc.vmap(at)(t[:, 0], x[:, 0])

    return training(data, wrap, residual)


STYLES = {"nested tapes": nested_tapes, "jvp of jvp": forward, "vmap(grad(grad))": per_example}


def with_torch(data: Data) -> Step:
    import torch

    weights = [torch.tensor(w, requires_grad=True) for w in data["weights"]]
    t, x = (torch.tensor(data[name], requires_grad=True) for name in ("t", "x"))
    initial, initial_value = torch.tensor(data["initial"]), torch.tensor(data["initial_value"])

    def model(h):
        for w, b in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            h = torch.tanh(h @ w + b)
        return h @ weights[-2] + weights[-1]

    def step():
        u = model(torch.cat([t, x], 1))
        u_t, u_x = torch.autograd.grad(u.sum(), [t, x], create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), [x], create_graph=True)
        loss = ((u_t + u * u_x - VISCOSITY * u_xx) ** 2).mean() + ((model(initial) - initial_value) ** 2).mean()
        return [loss.detach(), *torch.autograd.grad(loss, weights)]

    return step


def with_jax(data: Data, jit: Wrap, style: str = "jvp of jvp") -> Step:
    import jax
    import jax.numpy as jnp

    weights = [jnp.asarray(w) for w in data["weights"]]

    def model(weights, h):
        for w, b in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            h = jnp.tanh(h @ w + b)
        return h @ weights[-2] + weights[-1]

    def nested_tapes(weights, t, x):
        def u(t, x):
            return model(weights, jnp.concatenate([t, x], 1))

        def first(x):
            value, pull = jax.vjp(u, t, x)
            u_t, u_x = pull(jnp.ones_like(value))
            return u_x, (value, u_t)

        u_x, pull, (value, u_t) = jax.vjp(first, x, has_aux=True)
        return u_t + value * u_x - VISCOSITY * pull(jnp.ones_like(u_x))[0]

    def jvp_of_jvp(weights, t, x):
        def u(t, x):
            return model(weights, jnp.concatenate([t, x], 1))

        one, zero = jnp.ones_like(x), jnp.zeros_like(x)
        value, u_t = jax.jvp(u, (t, x), (one, zero))
        u_x, u_xx = jax.jvp(lambda x: jax.jvp(u, (t, x), (zero, one))[1], (x,), (one,))
        return u_t + value * u_x - VISCOSITY * u_xx

    def per_example(weights, t, x):
        def u(t, x):
            return model(weights, jnp.stack([t, x])[None])[0, 0]

        def at(t, x):
            u_x, u_xx = jax.value_and_grad(jax.grad(u, 1), 1)(t, x)
            return jax.grad(u)(t, x) + u(t, x) * u_x - VISCOSITY * u_xx

        return jax.vmap(at)(t[:, 0], x[:, 0])

    residual = {"nested tapes": nested_tapes, "jvp of jvp": jvp_of_jvp, "vmap(grad(grad))": per_example}[style]

    def loss(weights, t, x, initial, initial_value):
        wrong = jnp.mean((model(weights, initial) - initial_value) ** 2)
        return jnp.mean(residual(weights, t, x) ** 2) + wrong

    both = jit(jax.value_and_grad(loss))
    others = [jnp.asarray(data[name]) for name in ("t", "x", "initial", "initial_value")]

    def step():
        value, found = jax.block_until_ready(both(weights, *others))
        return [value, *found]

    return step


JAX_OF_STYLE = {style: functools.partial(with_jax, style=style) for style in STYLES}
