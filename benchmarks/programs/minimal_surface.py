"""The sparse Hessian of the area of a surface over a grid, by colouring: no peer has it. Float64."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 1e-9


def data(rng: np.random.Generator, small: bool) -> Data:
    side = 5 if small else 60
    return {"side": side, "heights": rng.standard_normal(side * side) * 0.1}


def area(z, side, xp):
    """The area over a grid of squares with sides of 1, for any library."""
    z = z.reshape((side, side))
    a, b = z[1:, 1:] - z[:-1, :-1], z[1:, :-1] - z[:-1, 1:]
    return xp.sum(xp.sqrt(1 + (a**2 + b**2) / 2))


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    f = wrap(lambda z: area(z, data["side"], tc))
    start = tc.asarray(data["heights"])
    pattern = tc.hessian_sparsity(f, start)
    return lambda: [tc.sparse_hessian(f, start, pattern).toarray()]


STYLES = {"sparse_hessian": with_tape}


def with_torch(data: Data) -> Step:
    import torch

    z = torch.tensor(data["heights"])
    return lambda: [torch.func.hessian(lambda z: area(z, data["side"], torch))(z)]


def with_jax(data: Data, jit: Wrap) -> Step:
    import jax
    import jax.numpy as jnp

    found = jit(jax.hessian(lambda z: area(z, data["side"], jnp)))
    z = jnp.asarray(data["heights"])
    return lambda: [jax.block_until_ready(found(z))]
