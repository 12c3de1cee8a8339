"""A network of the size that MNIST is usually shown with: nearly all time is in matrix products."""

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
    return make_data(rng, batch=128, sizes=(784, 512, 512, 10))
