"""A network so small that the arithmetic and the bookkeeping cost about the same."""

from __future__ import annotations

import numpy as np

from workloads import Data
from workloads.mlp import make_data, with_autograd, with_mygrad, with_numpy, with_tape, with_torch

__all__ = ["data", "with_autograd", "with_mygrad", "with_numpy", "with_tape", "with_torch"]


def data(rng: np.random.Generator) -> Data:
    return make_data(rng, batch=32, sizes=(64, 64, 64, 10))
