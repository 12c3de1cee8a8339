"""A network of the size that MNIST is usually shown with: nearly all time is in matrix products."""

from __future__ import annotations

import numpy as np

from workloads import Data
from workloads.mlp import make_data, with_autograd, with_mygrad, with_numpy, with_tape, with_torch

__all__ = ["data", "with_autograd", "with_mygrad", "with_numpy", "with_tape", "with_torch"]


def data(rng: np.random.Generator) -> Data:
    return make_data(rng, batch=128, sizes=(784, 512, 512, 10))
