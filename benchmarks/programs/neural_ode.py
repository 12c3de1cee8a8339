"""A neural ordinary differential equation: y' = W2 tanh(W1 y³ + b1) + b2: its gradient in the weights. Float64.

Runge and Kutta's fourth order in a Python loop and in a scan; Dormand and Prince's fifth with steps of its own length,
whose number depends on the values: a `while_loop` in Tape, a Python loop in PyTorch. JAX has no reverse mode for it.
"""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap, layers

TOLERANCE = 1e-9
END = 2.0
RTOL, ATOL = 1e-6, 1e-8

# E. Hairer, S. P. Nørsett, G. Wanner: Solving Ordinary Differential Equations I, table II.5.2.
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
)
FIFTH = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def data(rng: np.random.Generator, small: bool) -> Data:
    points = 4 if small else 16
    return {
        "weights": layers(rng, 2, 50, 2, dtype=np.float64),
        "start": rng.standard_normal((points, 2)) * 0.8,
        "target": rng.standard_normal((points, 2)),
        "steps": 15 if small else 400,
    }


def slope_of(xp):
    """The right side, for any library."""

    def slope(weights, y):
        w1, b1, w2, b2 = weights
        return xp.tanh(y**3 @ w1 + b1) @ w2 + b2

    return slope


def rk4(slope, weights, y, h):
    """One step of the classical method."""
    k1 = slope(weights, y)
    k2 = slope(weights, y + h / 2 * k1)
    k3 = slope(weights, y + h / 2 * k2)
    k4 = slope(weights, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def dopri5(slope, weights, y, h, xp):
    """One step of Dormand and Prince's: where it ends, and its error in units of the tolerance."""
    ks = [slope(weights, y)]
    for row in STAGES:
        ks.append(slope(weights, y + h * sum(a * k for a, k in zip(row, ks, strict=True))))
    end = y + h * sum(a * k for a, k in zip(FIFTH, ks, strict=True) if a)
    ks.append(slope(weights, end))
    error = h * sum(a * k for a, k in zip(ERROR, ks, strict=True) if a)
    scale = ATOL + RTOL * xp.maximum(xp.abs(y), xp.abs(end))
    return end, xp.sqrt(xp.mean((error / scale) ** 2))


def looped(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    slope, h = slope_of(tc), END / data["steps"]

    def loss(weights):
        y = tc.asarray(data["start"])
        for _ in range(data["steps"]):
            y = rk4(slope, weights, y, h)
        return tc.sum((y - data["target"]) ** 2)

    return gradients(loss, data, wrap)


def scanned(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    slope, h = slope_of(tc), END / data["steps"]

    def loss(weights):
        start = tc.asarray(data["start"])
        end, _ = tc.scan(lambda y, _: (rk4(slope, weights, y, h), None), start, length=data["steps"])
        return tc.sum((end - data["target"]) ** 2)

    return gradients(loss, data, wrap)


def adaptive(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    slope = slope_of(tc)

    def loss(weights):
        def step(state):
            t, y, h = state
            h = tc.minimum(h, END - t)
            end, error = dopri5(slope, weights, y, h, tc)
            accepted = error <= 1.0
            factor = tc.clip(0.9 * (error + 1e-10) ** -0.2, 0.2, 5.0)
            return tc.where(accepted, t + h, t), tc.where(accepted, end, y), h * factor

        start = (tc.asarray(0.0, dtype="float64"), tc.asarray(data["start"]), tc.asarray(0.05, dtype="float64"))
        _, y, _ = tc.while_loop(lambda state: state[0] < END - 1e-12, step, start)
        return tc.sum((y - data["target"]) ** 2)

    return gradients(loss, data, wrap)


def gradients(loss, data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    both = wrap(tc.value_and_grad(loss))
    weights = [tc.asarray(w) for w in data["weights"]]

    def step():
        value, found = both(weights)
        return [value, *found]

    return step


STYLES = {"loop": looped, "scan": scanned, "adaptive": adaptive}


def with_torch(data: Data) -> Step:
    return torch_step(data, False)


def torch_step(data: Data, adaptive: bool) -> Step:
    import torch

    slope, h0 = slope_of(torch), END / data["steps"]
    weights = [torch.tensor(w, requires_grad=True) for w in data["weights"]]
    start, target = torch.tensor(data["start"]), torch.tensor(data["target"])

    def step():
        y = start
        if adaptive:
            t, h = torch.zeros((), dtype=torch.float64), torch.tensor(0.05, dtype=torch.float64)
            while t < END - 1e-12:
                h = torch.minimum(h, END - t)
                end, error = dopri5(slope, weights, y, h, torch)
                if error <= 1:
                    t, y = t + h, end
                h = h * torch.clip(0.9 * (error + 1e-10) ** -0.2, 0.2, 5.0)
        else:
            for _ in range(data["steps"]):
                y = rk4(slope, weights, y, h0)
        value = torch.sum((y - target) ** 2)
        return [value.detach(), *torch.autograd.grad(value, weights)]

    return step


# The peers of a style, where they differ from those of the program.
TORCH_OF_STYLE = {"adaptive": lambda data: torch_step(data, True)}
# Of the Python loop, unrolled to 1,600 layers, jax.jit had made no code after half an hour (Tape: 2 s in
# Python, 2 minutes with XLA); and a scan is another program.
JAX_OF_STYLE = {"adaptive": None, "loop": None}


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    slope, h = slope_of(jnp), END / data["steps"]
    weights = [jnp.asarray(w) for w in data["weights"]]

    def loss(weights):
        end, _ = jax.lax.scan(
            lambda y, _: (rk4(slope, weights, y, h), None), jnp.asarray(data["start"]), None, data["steps"]
        )
        return jnp.sum((end - data["target"]) ** 2)

    both = jit(jax.value_and_grad(loss))

    def step():
        value, found = jax.block_until_ready(both(weights))
        return [value, *found]

    return step
