"""The workloads: one file each, the same computation written for every peer side by side.

A workload has `data(rng)`, the common input, and a function `with_<peer>(data)` for every peer. It
prepares what a user would prepare once and returns `step`, which computes `(value, [gradients])`.
`with_tape` serves every backend of Tape: what it is given are arrays of the backend.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

WORKLOADS = (
    "scalar_chain", "small_mlp", "mnist_mlp", "wide", "rnn", "embed", "convnet", "deep_mlp", "gmm", "gmm_10k", "ba",
    "lstm",
)  # fmt: skip
PEERS = (
    "numpy", "numpy_out", "tape", "tape_compiled", "tape_checkpoint", "tape_torch", "tape_torch_compiled", "autograd",
    "mygrad", "torch",
)  # fmt: skip
BACKENDS = {  # of the peers that are Tape
    "tape": "numpy",
    "tape_compiled": "numpy",
    "tape_checkpoint": "numpy",
    "tape_torch": "torch:cpu",
    "tape_torch_compiled": "torch:cpu",
}
COMPILED = ("tape_compiled", "tape_torch_compiled")  # the step of `with_tape` in `tape_core.function`

Data = dict[str, Any]
Step = Callable[[], tuple[Any, list[Any]]]

SEED = 20260


@dataclass
class Rows:
    """A gradient that is zero except in some rows, for the peers that have no type for it."""

    values: np.ndarray
    indices: np.ndarray
    shape: tuple[int, ...]


def workload_data(workload: str) -> Data:
    """The input of a workload, the same in every process."""
    data: Data = importlib.import_module(f"workloads.{workload}").data(np.random.default_rng(SEED))
    return data


def setup(workload: str, peer: str, data: Data) -> Step | None:
    """The peer's step, or None where the workload has no column for this peer."""
    backend = BACKENDS.get(peer)
    name = "with_tape" if peer == "tape_torch" or peer in COMPILED else f"with_{peer}"
    make = getattr(importlib.import_module(f"workloads.{workload}"), name, None)
    if make is None:
        return None
    return on_backend(make, data, backend, compiled=peer in COMPILED) if backend else make(data)


def on_backend(make: Callable[[Data], Step], data: Data, backend: str, *, compiled: bool = False) -> Step:
    """Tape's step, which makes its arrays on a backend of its own: several backends take turns in one process."""
    import tape_core

    selected = tape_core.use_backend(backend)

    def converted(value: Any) -> Any:
        if isinstance(value, list):
            return [converted(item) for item in value]
        if isinstance(value, np.ndarray) and backend != "numpy":
            return tape_core.asarray(value, backend=backend, copy=True).array
        return value

    with selected:
        step = make({name: converted(value) for name, value in data.items()})
        if compiled:
            step = tape_core.function(step)
            step()  # it is traced

    def on_its_backend():
        with selected:
            return step()

    return on_its_backend


def start(peer: str) -> str:
    """Import a peer's library, put it on one thread and the CPU; return its version."""
    if peer in ("numpy", "numpy_out"):
        return np.__version__
    if peer == "torch":
        import torch

        torch.set_num_threads(1)
        return str(torch.__version__)
    if peer in ("tape", "tape_compiled", "tape_checkpoint"):
        import tape_core

        tape_core.set_backend("numpy")
        tape_core.get_backend()
        return str(tape_core.__version__)
    if peer in ("tape_torch", "tape_torch_compiled"):
        start("torch")
        importlib.import_module("tape_torch")
        return start("tape")
    if peer == "mygrad":
        import mygrad

        mygrad.turn_memory_guarding_off()  # what its documentation advises where speed matters
    importlib.import_module(peer)
    return importlib.metadata.version(peer)
