"""Whole programs, each written as its users would write it for Tape, PyTorch and JAX, from the same NumPy data.

A program is a module with

- `data(rng, small)`: its input, a dict of NumPy arrays; `small` is for tests;
- `STYLES`: the ways to write it with Tape by name, each a function of the data and of `wrap` that returns a step.
  `wrap` is `tape_core.function`, or gives back what it gets. Nothing names a backend: the selected one computes. What
  all steps share is in the library's arrays before the first one, as in the peers' programs;
- `with_torch(data)` and `with_jax(data, jit)`: the peers' steps, where there is a peer; `jit` is `jax.jit`, or gives
  back what it gets. `TORCH_OF_STYLE` and `JAX_OF_STYLE` have the way of a style for which that peer has one of its own;
- `with_differences(data)`, where there is no peer: a step with derivatives by differences;
- `TOLERANCE`: how far steps may differ, relative to the largest element of each result.

A step returns a list of arrays, its value first. One that trains goes on from where the last one ended, so peers agree
step by step.
`tests/test_programs.py` compares them all; `benchmarks/programs.py` times them in turns.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

NAMES = (
    "transformer", "neural_ode", "pinn", "maml", "bilevel", "vae", "gaussian_process", "kalman", "nbody", "swing_up",
    "private_gradients", "gauss_newton", "minimal_surface", "embeddings", "small_mlp",
)  # fmt: skip

Data = dict[str, Any]
Step = Callable[[], list[Any]]
Wrap = Callable[..., Any]

SEED = 20261


def program(name: str) -> ModuleType:
    """Return the module of a program."""
    return importlib.import_module(f"programs.{name}")


def program_data(name: str, small: bool) -> Data:
    """Return the input of a program: the same in every process."""
    data: Data = program(name).data(np.random.default_rng(SEED), small)
    return data


def layers(rng: np.random.Generator, *sizes: int, dtype: type = np.float32) -> list[np.ndarray]:
    """Return kernels and biases of dense layers, in turn."""
    made = []
    for n, m in pairwise(sizes):
        made += [(rng.standard_normal((n, m)) / n**0.5).astype(dtype), (0.1 * rng.standard_normal(m)).astype(dtype)]
    return made
