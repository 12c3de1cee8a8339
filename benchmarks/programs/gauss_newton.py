"""Products of a network's Gauss-Newton matrix and of its Hessian with a direction, for a squared loss. Float64."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap, layers

TOLERANCE = 1e-9


def data(rng: np.random.Generator, small: bool) -> Data:
    batch, n, hidden, out = (5, 4, 6, 3) if small else (256, 64, 128, 10)
    return {
        "sizes": (n, hidden, out),
        "weights": layers(rng, n, hidden, out, dtype=np.float64),
        "direction": layers(rng, n, hidden, out, dtype=np.float64),
        "x": rng.standard_normal((batch, n)),
        "y": rng.standard_normal((batch, out)),
    }


def network(data: Data):
    import tape_nn as nn

    n, hidden, out = data["sizes"]
    model = nn.Sequential([nn.Dense(hidden, activation="tanh"), nn.Dense(out)])
    model.build((None, n), dtype="float64")
    model.load_state_dict(dict(zip(model.state_dict(), data["weights"], strict=True)))
    return model


def gauss_newton(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    model = network(data)
    _, structure = tc.tree_flatten(model)
    direction = tc.tree_unflatten(structure, [tc.asarray(d) for d in data["direction"]])

    def product(model, x, direction):
        def f(model):
            return model(x)

        found, along = tc.jvp(f, (model,), (direction,))
        _, pull = tc.vjp(f, model)
        return tc.tree_leaves(pull(2 / found.size * along)[0])

    compiled = wrap(lambda x, direction: product(model, x, direction))
    x = tc.asarray(data["x"])
    return lambda: list(compiled(x, direction))


def hessian(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    model = network(data)
    _, structure = tc.tree_flatten(model)
    direction = tc.tree_unflatten(structure, [tc.asarray(d) for d in data["direction"]])

    def product(x, y, direction):
        def loss(model):
            return tc.mean((model(x) - y) ** 2)

        return tc.tree_leaves(tc.hvp(loss, (model,), (direction,))[0])

    compiled = wrap(product)
    x, y = tc.asarray(data["x"]), tc.asarray(data["y"])
    return lambda: list(compiled(x, y, direction))


STYLES = {"Gauss-Newton": gauss_newton, "Hessian": hessian}


def with_torch(data: Data, of_hessian: bool = False) -> Step:
    import torch
    from torch.func import grad, jvp, vjp

    w = tuple(torch.tensor(a) for a in data["weights"])
    v = tuple(torch.tensor(a) for a in data["direction"])
    x, y = torch.tensor(data["x"]), torch.tensor(data["y"])

    def f(w):
        return torch.tanh(x @ w[0] + w[1]) @ w[2] + w[3]

    def step():
        if of_hessian:
            return list(jvp(grad(lambda w: ((f(w) - y) ** 2).mean()), (w,), (v,))[1])
        found, along = jvp(f, (w,), (v,))
        return list(vjp(f, w)[1](2 / found.numel() * along)[0])

    return step


def with_jax(data: Data, jit: Wrap, of_hessian: bool = False) -> Step:
    import jax
    import jax.numpy as jnp

    w, v = ([jnp.asarray(a) for a in data[name]] for name in ("weights", "direction"))
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])

    @jit
    def product(w, v, x, y):
        def f(w):
            return jnp.tanh(x @ w[0] + w[1]) @ w[2] + w[3]

        if of_hessian:
            return jax.jvp(jax.grad(lambda w: jnp.mean((f(w) - y) ** 2)), (w,), (v,))[1]
        found, along = jax.jvp(f, (w,), (v,))
        return jax.vjp(f, w)[1](2 / found.size * along)[0]

    return lambda: list(jax.block_until_ready(product(w, v, x, y)))


TORCH_OF_STYLE = {"Hessian": lambda data: with_torch(data, True)}
JAX_OF_STYLE = {"Hessian": lambda data, jit: with_jax(data, jit, True)}
