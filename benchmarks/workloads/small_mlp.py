"""A network so small that the arithmetic and the bookkeeping cost about the same."""

from __future__ import annotations

import numpy as np

from workloads import Data
from workloads.mlp import (
    jax_loss,
    make_data,
    tensorflow_loss,
    torch_loss,
    with_autograd,
    with_mygrad,
    with_numpy,
    with_tape,
)

__all__ = [
    "data",
    "jax_loss",
    "tensorflow_loss",
    "torch_loss",
    "with_autograd",
    "with_mygrad",
    "with_numpy",
    "with_tape",
]


def data(rng: np.random.Generator) -> Data:
    return make_data(rng, batch=32, sizes=(64, 64, 64, 10))
