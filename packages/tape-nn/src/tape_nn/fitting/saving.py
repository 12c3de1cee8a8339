"""save_run and load_run: everything that a training loop of one's own needs to go on exactly where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import tape_core as tc
from tape_core.support import integer

from tape_nn.checkpoints import Path
from tape_nn.fitting.resuming import pack, unpack
from tape_nn.fitting.storing import Saving, is_written, keeper_of, read_state, write_state
from tape_nn.generators import random_states, set_random_states
from tape_nn.module import Module
from tape_nn.types import OptimizerLike

_METADATA_KEY: Final = "tape_nn.run"
FORMAT_VERSION: Final = 1

Optimizers = OptimizerLike | Mapping[str, OptimizerLike] | None
Generators = tc.Generator | Mapping[str, tc.Generator] | None


class LoadedRun(NamedTuple):
    """The result of :func:`load_run`: the number `step` that was saved, and the further state, `extra`."""

    step: int
    extra: Any


def save_run(
    path: Path,
    model: Module,
    optimizer: Optimizers = None,
    *,
    step: int = 0,
    rng: Generators = None,
    extra: object = None,
    parallel: object = None,
    keep: int = 1,
    asynchronous: bool = False,
) -> Saving | None:
    """Write the state of a training loop to a file: the model, optimizers, random generators and a step number.

    Saved are the Variables, what the optimizer keeps for each of them, and the states of the generator that
    `tape_core.set_seed` seeds, of those in the model, and of `rng`. The file replaces one of that name as a whole, so a
    program that is killed leaves the one or the other.

    >>> import os, tempfile
    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model, optimizer = nn.Sequential([nn.Dense(3), nn.Dropout(0.5)]), nn.Adam()
    >>> model.build((None, 2))
    >>> path = os.path.join(tempfile.mkdtemp(), "run.safetensors")
    >>> nn.save_run(path, model, optimizer, step=7, extra={"best": 0.25})
    >>> nn.load_run(path, model, optimizer)
    LoadedRun(step=7, extra={'best': 0.25})

    Args:
        optimizer: an optimizer of tape_nn, or several by name.
        rng: a generator of the loop's own, or several by name.
        extra: further state: numbers, text, None, Tensors, and lists and dictionaries of them, such as the
            `state_dict()` of a metric.
        parallel: the strategy or the mesh of a run in several processes, or `tape_torch.distributed`. All processes
            call this, each writes the parts that it has, and `path` is a folder: see `tape_torch.distributed.save`,
            also for `keep` and `asynchronous`, which are for such runs alone. With a mesh of JAX the arrays are brought
            together, and `path` is a file, as of a run on one device: each can be read in the place of the other.

    Returns:
        With `parallel`, in several processes, the checkpoint: `wait()` waits until it is complete.

    Raises:
        ValueError: a layer has not made its Variables yet, or processes have different states.
        TypeError: `extra` holds something else.
    """
    step = integer("save_run", "step", step)
    keeper = keeper_of("save_run", parallel)
    if keeper is None and (keep != 1 or asynchronous):
        raise ValueError(
            "save_run: keep and asynchronous are for runs in several processes of PyTorch: pass parallel=..., a "
            "strategy or mesh of theirs"
        )
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizers": {name: each.state_dict(model) for name, each in _by_name(optimizer).items()},
        "random": random_states(model),
        "rng": {name: list(each.get_state()) for name, each in _by_name(rng).items()},
        "extra": extra,
    }
    tensors: dict[str, tc.Tensor] = {}
    classes = {name: _class_of(each) for name, each in _by_name(optimizer).items()}
    text = json.dumps({"version": FORMAT_VERSION, "state": pack(state, "", tensors), "optimizer_classes": classes})
    return write_state(path, tensors, {_METADATA_KEY: text}, keeper, step, keep, asynchronous)


def load_run(
    path: Path,
    model: Module,
    optimizer: Optimizers = None,
    *,
    rng: Generators = None,
    parallel: object = None,
    other_optimizer: bool = False,
) -> LoadedRun:
    """Bring a training loop to the state in a file that :func:`save_run` wrote; return its step number and `extra`.

    Args:
        model, optimizer, rng: of the same structure, and with the same names, as when the file was written.
        parallel: as for `save_run`. The number of processes and the layout may be others than when it was written.
        other_optimizer: whether an optimizer may go on from the state of one of another class, that of an Adam from an
            AdamW's say. Its own settings count, and the state must have what it keeps.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, was not written by `save_run`, or is of another model, optimizer or generators.
            Nothing is changed.
    """
    name = os.fspath(path)
    keeper = keeper_of("load_run", parallel)
    is_written(path, keeper)  # raises if it is of the other kind
    tensors, metadata = read_state(path, model, keeper)
    if _METADATA_KEY not in metadata:
        raise ValueError(f"load_run: {name!r} was not written by save_run")
    try:
        found = json.loads(metadata[_METADATA_KEY])
        version, state = found["version"], unpack(found["state"], tensors)
        classes = dict(found.get("optimizer_classes", {}))  # files of earlier versions have none
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"load_run: {name!r} is damaged: {type(error).__name__}: {error}") from error
    if version != FORMAT_VERSION:
        raise ValueError(f"load_run: {name!r} has version {version} of the format; this tape-nn reads {FORMAT_VERSION}")
    optimizers, generators = _by_name(optimizer), _by_name(rng)
    for what, saved, given in (
        ("optimizers", state["optimizers"], optimizers),
        ("generators in rng", state["rng"], generators),
        ("generators of the model", state["random"], random_states(model)),
    ):
        if saved.keys() != given.keys():
            raise ValueError(
                f"load_run: {name!r} has {what} named {sorted(saved)}, this program those named {sorted(given)}; the "
                "empty name is that of a single one, or of the global generator"
            )
    for key, each in optimizers.items():
        if not other_optimizer and classes.get(key, _class_of(each)) != _class_of(each):
            which = f"optimizer {key!r}" if key else "the optimizer"
            raise ValueError(
                f"load_run: {name!r} does not fit: {which} is of {classes[key]}, and this program has "
                f"{_class_of(each)}. To go on with that all the same, pass other_optimizer=True"
            )
    before = (
        model.state_dict(),
        {key: each.state_dict(model) for key, each in optimizers.items()},
        random_states(model),
        {key: each.get_state() for key, each in generators.items()},
    )
    try:
        _restore(model, optimizers, generators, state["model"], state["optimizers"], state["random"], state["rng"])
    except Exception as error:
        _restore(model, optimizers, generators, *before)
        raise ValueError(f"load_run: {name!r} does not fit: {error}") from error
    return LoadedRun(state["step"], state["extra"])


def _restore(
    model: Module,
    optimizers: Mapping[str, Any],
    generators: Mapping[str, tc.Generator],
    variables: Mapping[str, tc.Tensor],
    slots: Mapping[str, Any],
    random: Mapping[str, Any],
    own: Mapping[str, Any],
) -> None:
    model.load_state_dict(variables)
    for name, optimizer in optimizers.items():
        optimizer.load_state_dict(slots[name], model)
    set_random_states(model, random)
    for name, generator in generators.items():
        generator.set_state(own[name])


def _class_of(optimizer: Any) -> str:
    """Return the class of an optimizer: of one in a LossScaler or the like, which keeps a state of its own."""
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return type(optimizer).__name__


def _by_name(thing: Any) -> dict[str, Any]:
    """Return one thing as a dictionary with the empty name, several as they are."""
    if thing is None:
        return {}
    return dict(thing) if isinstance(thing, Mapping) else {"": thing}
