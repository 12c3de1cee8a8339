"""The workloads: one file each, the same computation written for every peer side by side.

A workload has `data(rng)`, the common input, and `TOLERANCE` where it is not of float32. A function `with_<peer>(data)`
prepares what a user would prepare once and returns `step`, which computes `(value, [gradients])`. `with_tape` serves
every backend of Tape: what it is given are arrays of the backend. What is compiled in several ways is written once:

- `torch_loss(data)`: a function of the parameters, and the parameters; or `torch_function(data)`: a function that
  computes `(value, [gradients])` itself, and its arguments;
- `jax_loss(data)`: a function of a list of parameters and of other arguments, then both; or `jax_function(data)`;
- `tensorflow_loss(data)`: a function without arguments, and the variables; or `tensorflow_step(data)`, a step.

peers.py makes steps of them. Here nothing is imported but NumPy: other libraries' environments have no Tape.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

WORKLOADS = (
    "scalar_chain", "small_mlp", "mnist_mlp", "mnist_step", "wide", "rnn", "embed", "convnet", "deep_mlp", "jacobian",
    "hessian", "gmm", "gmm_10k", "ba", "lstm",
)  # fmt: skip
THREADED = ("mnist_mlp", "wide", "gmm_10k", "ba")  # where a second thread may help

Data = dict[str, Any]
Step = Callable[[], tuple[Any, list[Any]]]

SEED = 20260


@dataclass
class Rows:
    """A gradient that is zero except in some rows, for the peers that have no type for it."""

    values: np.ndarray
    indices: np.ndarray
    shape: tuple[int, ...]


def workload(name: str) -> ModuleType:
    """The module of a workload; `name:size` is one of another size."""
    return importlib.import_module(f"workloads.{name.partition(':')[0]}")


def workload_data(name: str) -> Data:
    """The input of a workload, the same in every process."""
    size = name.partition(":")[2]
    data: Data = workload(name).data(np.random.default_rng(SEED), *([int(size)] if size else []))
    return data
