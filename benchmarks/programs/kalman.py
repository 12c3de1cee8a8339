"""The likelihood of a Kalman filter with two hidden numbers over many steps of a scan, with its gradient. Float64."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 1e-9


def data(rng: np.random.Generator, small: bool) -> Data:
    steps = 8 if small else 300
    return {"y": np.cumsum(rng.standard_normal(steps)) * 0.3, "start": np.array([-1.0, -0.5])}


def likelihood(p, y, xp, scan):
    """The negative log likelihood, for any library: position and speed, of which the position is seen."""
    process, seen = xp.exp(p[0]), xp.exp(p[1])
    move = np.array([[1.0, 0.1], [0.0, 1.0]])

    def step(carry, y):
        mean, covariance = carry
        mean = move @ mean
        covariance = move @ covariance @ move.T + process * np.eye(2)
        variance = covariance[0, 0] + seen
        gain = covariance[:, 0] / variance
        wrong = y - mean[0]
        cost = 0.5 * (xp.log(variance) + wrong**2 / variance)
        return (mean + gain * wrong, covariance - gain[:, None] * covariance[0]), cost

    start = xp.asarray(np.zeros(2)), xp.asarray(np.eye(2))
    return xp.sum(scan(step, start, y)[1])


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    both = wrap(tc.value_and_grad(lambda p, y: likelihood(p, y, tc, tc.scan)))
    start, y = tc.asarray(data["start"]), tc.asarray(data["y"])
    return lambda: list(both(start, y))


def hessian(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    found = wrap(tc.hessian(lambda p, y: likelihood(p, y, tc, tc.scan)))
    start, y = tc.asarray(data["start"]), tc.asarray(data["y"])
    return lambda: [found(start, y)]


STYLES = {"gradient": with_tape, "hessian": hessian}


def torch_loss(data: Data):
    import torch

    ys = torch.tensor(data["y"])
    move, eye = torch.tensor([[1.0, 0.1], [0.0, 1.0]], dtype=torch.float64), torch.eye(2, dtype=torch.float64)

    def loss(p):
        process, seen = torch.exp(p)
        mean, covariance, total = torch.zeros(2, dtype=torch.float64), eye, 0.0
        for y in ys:
            mean, covariance = move @ mean, move @ covariance @ move.T + process * eye
            variance = covariance[0, 0] + seen
            gain, wrong = covariance[:, 0] / variance, y - mean[0]
            total = total + 0.5 * (torch.log(variance) + wrong**2 / variance)
            mean, covariance = mean + gain * wrong, covariance - gain[:, None] * covariance[0]
        return total

    return loss, torch.tensor(data["start"])


def with_torch(data: Data) -> Step:
    import torch

    loss, start = torch_loss(data)

    def step():
        p = start.clone().requires_grad_()
        value = loss(p)
        return [value.detach(), *torch.autograd.grad(value, [p])]

    return step


def torch_hessian(data: Data) -> Step:
    import torch

    loss, start = torch_loss(data)
    return lambda: [torch.autograd.functional.hessian(loss, start)]


def with_jax(data: Data, jit: Wrap, transform: str = "value_and_grad") -> Step:
    import jax
    import jax.numpy as jnp

    found = jit(getattr(jax, transform)(lambda p, y: likelihood(p, y, jnp, jax.lax.scan)))
    start, y = jnp.asarray(data["start"]), jnp.asarray(data["y"])

    def step():
        results = jax.block_until_ready(found(start, y))
        return list(results) if transform == "value_and_grad" else [results]

    return step


TORCH_OF_STYLE = {"hessian": torch_hessian}
JAX_OF_STYLE = {"hessian": lambda data, jit: with_jax(data, jit, "hessian")}
