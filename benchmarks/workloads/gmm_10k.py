"""The Gaussian mixture of ADBench with 10,000 points."""

from __future__ import annotations

import numpy as np

from workloads import Data
from workloads.gmm import (
    TOLERANCE,
    jax_loss,
    make_data,
    tensorflow_loss,
    torch_loss,
    with_autograd,
    with_numpy,
    with_tape,
)

__all__ = [
    "TOLERANCE",
    "data",
    "jax_loss",
    "tensorflow_loss",
    "torch_loss",
    "with_autograd",
    "with_numpy",
    "with_tape",
]


def data(rng: np.random.Generator) -> Data:
    return make_data(rng, points=10_000)
