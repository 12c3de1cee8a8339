"""A Gaussian process: the negative log likelihood, its gradient and its Hessian in three parameters. Float64."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 1e-7  # the kernel's matrix is badly conditioned


def data(rng: np.random.Generator, small: bool) -> Data:
    n = 20 if small else 200
    x = np.sort(rng.uniform(-3, 3, n))
    return {
        "squares": (x[:, None] - x) ** 2,
        "y": np.sin(2 * x) + 0.2 * rng.standard_normal(n),
        "start": np.array([0.1, -0.3, -2.0]),
    }


def loss_of(data: Data):
    import tape_core as tc

    squares, y = data["squares"], data["y"]

    def loss(p):
        amplitude, length, noise = (tc.exp(p[name]) for name in ("amplitude", "length", "noise"))
        factor = tc.linalg.cholesky(amplitude * tc.exp(-0.5 * squares / length) + noise * np.eye(len(y)))
        z = tc.linalg.solve_triangular(factor, y[:, None], lower=True)
        return 0.5 * tc.sum(z**2) + tc.sum(tc.log(tc.linalg.diagonal(factor)))

    return loss


def named(vector) -> dict:
    return dict(zip(("amplitude", "length", "noise"), vector, strict=True))


def gradient(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    loss = loss_of(data)

    def value_and_vector(p):
        value, found = tc.value_and_grad(loss)(p)
        return value, tc.stack([found[name] for name in p])

    both = wrap(value_and_vector)
    # Tensors, as the peers have theirs: NumPy's scalars would be constants of the trace, and the whole program folded.
    start = named(tc.asarray(np.asarray(number)) for number in data["start"])
    return lambda: list(both(start))


def hessian(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    loss = loss_of(data)
    found = wrap(tc.hessian(lambda v: loss(named(tc.unstack(v)))))
    start = tc.asarray(data["start"])
    return lambda: [found(start)]


STYLES = {"gradient": gradient, "hessian": hessian}


def with_torch(data: Data) -> Step:
    loss, start = torch_loss(data)

    def step():
        import torch

        p = start.clone().requires_grad_()
        value = loss(p)
        return [value.detach(), *torch.autograd.grad(value, [p])]

    return step


def torch_loss(data: Data):
    import torch

    squares, y, eye = (
        torch.tensor(data["squares"]),
        torch.tensor(data["y"]),
        torch.eye(len(data["y"]), dtype=torch.float64),
    )

    def loss(p):
        amplitude, length, noise = torch.exp(p)
        factor = torch.linalg.cholesky(amplitude * torch.exp(-0.5 * squares / length) + noise * eye)
        z = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
        return 0.5 * (z**2).sum() + torch.log(torch.diagonal(factor)).sum()

    return loss, torch.tensor(data["start"])


def torch_hessian(data: Data) -> Step:
    import torch

    loss, start = torch_loss(data)
    return lambda: [torch.func.hessian(loss)(start)]


def jax_loss(data: Data):
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    squares, y = jnp.asarray(data["squares"]), jnp.asarray(data["y"])

    def loss(p):
        amplitude, length, noise = jnp.exp(p)
        factor = jnp.linalg.cholesky(amplitude * jnp.exp(-0.5 * squares / length) + noise * jnp.eye(len(y)))
        z = solve_triangular(factor, y[:, None], lower=True)
        return 0.5 * (z**2).sum() + jnp.log(jnp.diagonal(factor)).sum()

    return loss, jnp.asarray(data["start"])


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax

    loss, start = jax_loss(data)
    both = jit(jax.value_and_grad(loss))
    return lambda: list(jax.block_until_ready(both(start)))


def jax_hessian(data: Data, jit: Wrap) -> Step:
    import jax

    loss, start = jax_loss(data)
    found = jit(jax.hessian(loss))
    return lambda: [jax.block_until_ready(found(start))]


TORCH_OF_STYLE = {"hessian": torch_hessian}
JAX_OF_STYLE = {"hessian": jax_hessian}
