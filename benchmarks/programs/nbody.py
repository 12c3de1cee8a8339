"""Bodies that attract each other, moved by the leapfrog: the gradient of their end in their start. Float64."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 1e-7
H, SOFTENING = 0.01, 0.05


def data(rng: np.random.Generator, small: bool) -> Data:
    bodies, steps = (4, 8) if small else (20, 300)
    return {
        "position": rng.standard_normal((bodies, 3)),
        "speed": 0.3 * rng.standard_normal((bodies, 3)),
        "mass": rng.uniform(0.5, 1.5, bodies) / bodies,
        "steps": steps,
    }


def pull(position, mass, xp):
    """The accelerations, for any library."""
    apart = position[None, :, :] - position[:, None, :]
    return xp.sum(mass[None, :, None] * apart * (xp.sum(apart**2, axis=-1) + SOFTENING)[:, :, None] ** -1.5, axis=1)


def leapfrog(position, speed, mass, xp):
    speed = speed + H / 2 * pull(position, mass, xp)
    position = position + H * speed
    return position, speed + H / 2 * pull(position, mass, xp)


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    def end(position, speed, mass):
        (position, _), _ = tc.scan(
            lambda state, _: (leapfrog(*state, mass, tc), None), (position, speed), length=data["steps"]
        )
        return tc.sum(position**2)

    both = wrap(tc.value_and_grad(end, (0, 1, 2)))
    start = [tc.asarray(data[name]) for name in ("position", "speed", "mass")]

    def step():
        value, found = both(*start)
        return [value, *found]

    return step


STYLES = {"scan": with_tape}


def with_torch(data: Data) -> Step:
    import torch

    start = [torch.tensor(data[name], requires_grad=True) for name in ("position", "speed", "mass")]

    def step():
        position, speed, mass = start
        for _ in range(data["steps"]):
            position, speed = leapfrog(position, speed, mass, torch)
        value = (position**2).sum()
        return [value.detach(), *torch.autograd.grad(value, start)]

    return step


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    def end(position, speed, mass):
        (position, _), _ = jax.lax.scan(
            lambda state, _: (leapfrog(*state, mass, jnp), None), (position, speed), None, data["steps"]
        )
        return jnp.sum(position**2)

    both = jit(jax.value_and_grad(end, (0, 1, 2)))
    start = [jnp.asarray(data[name]) for name in ("position", "speed", "mass")]

    def step():
        value, found = jax.block_until_ready(both(*start))
        return [value, *found]

    return step
