"""Where the state of a run is kept: in one file, or, of a run in several processes, in a folder that they all write.

On JAX one process has all devices, and writes the whole arrays to one file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tape_core as tc
from tape_core import Tensor
from tape_core.typing import ArrayLike

from tape_nn.checkpoints import Path, load_tensors, save_tensors
from tape_nn.module import Module


class Saving(Protocol):
    """A checkpoint that is being written."""

    def wait(self) -> str:
        """Wait until it is complete, and return its path."""


class Keeper(Protocol):
    """What writes and reads the checkpoints of several processes, such as the module `tape_torch.distributed`."""

    @property
    def save(self) -> Callable[..., Saving]:
        """`save(folder, tensors, metadata, *, step, keep, asynchronous)`, as `tape_torch.distributed.save`."""

    @property
    def load(self) -> Callable[..., tuple[int, dict[str, Tensor], dict[str, str]]]:
        """`load(folder, like)`, as `tape_torch.distributed.load`."""

    @property
    def latest(self) -> Callable[[Path], str | None]:
        """`latest(folder)`, as `tape_torch.distributed.latest`."""


def keeper_of(what: str, parallel: Any) -> Keeper | None:
    """Return what keeps the checkpoints of a strategy, of a mesh, or of a module that has the functions itself.

    Returns:
        None if there is one process, which has all of each array: JAX's meshes keep no checkpoints of their own.

    Raises:
        TypeError: there is nothing of the kind.
        ValueError: several processes share the devices of a mesh that keeps no checkpoints.
    """
    if parallel is None:
        return None
    candidates: tuple[Any, ...] = (parallel, getattr(parallel, "engine", None))
    for one in candidates:
        if all(callable(getattr(one, name, None)) for name in ("save", "load", "latest")):
            found: Keeper = one
            return found
    if not any([callable(getattr(one, "distribute", None)) for one in candidates]):
        raise TypeError(
            f"{what}: parallel must be a strategy or a mesh of nn.parallel, or a module with meshes such as "
            f"tape_torch.distributed; got {parallel!r}"
        )
    for mesh in (parallel, getattr(parallel, "mesh", None)):
        if not getattr(mesh, "is_here", True):
            raise ValueError(
                f"{what}: on JAX a run in several processes is not saved by this; bring its arrays together by "
                f"tape_jax.distributed.full(model.state_dict()), which all processes call, and let the first one write "
                f"them by nn.save_tensors"
            )
    return None


def write_state(
    path: Path,
    tensors: Mapping[str, ArrayLike],
    metadata: Mapping[str, str],
    keeper: Keeper | None,
    step: int = 0,
    keep: int = 1,
    asynchronous: bool = False,
) -> Saving | None:
    """Write named tensors and text, to a file or, from several processes, to a folder.

    Returns:
        The checkpoint that is being written to a folder.
    """
    if keeper is not None:
        return keeper.save(path, tensors, metadata, step=step, keep=keep, asynchronous=asynchronous)
    save_tensors(path, tensors, metadata)
    return None


def read_state(path: Path, model: Module, keeper: Keeper | None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_state` wrote: each weight to where its Variable is, and what is kept for it as well."""
    variables = dict(model.named_variables())
    if keeper is None:
        like = {f"model/{name}": variable for name, variable in variables.items()}
        backend = next((variable.backend for variable in like.values()), None)
        return load_tensors(path, like=like, backend=backend)

    def laid_out_as(name: str, shape: tuple[int, ...]) -> tc.Tensor | None:
        # An optimizer's slots are under the name of their Variable: "optimizers//layers.0.kernel/m".
        found = (variables.get(part) for part in name.split("/"))
        return next((variable for variable in found if variable is not None and variable.shape == shape), None)

    _, tensors, metadata = keeper.load(path, laid_out_as)
    return tensors, metadata


def is_written(path: Path, keeper: Keeper | None) -> bool:
    """Return whether there is a state to read.

    Raises:
        IsADirectoryError, NotADirectoryError: it is that of another kind of run.
    """
    if keeper is None:
        if os.path.isdir(path):
            raise IsADirectoryError(
                f"{os.fspath(path)!r} is a folder, of a run in several processes of PyTorch; pass parallel=..., or "
                f"name another path"
            )
        return os.path.exists(path)
    if os.path.isfile(path):
        raise NotADirectoryError(f"{os.fspath(path)!r} is a file, of a run in one process; several write to a folder")
    return keeper.latest(path) is not None
