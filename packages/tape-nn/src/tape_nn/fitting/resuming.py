"""The checkpoint file that an interrupted run is resumed from.

It is a safetensors file: Tensors under their paths in the state, such as `model/layers.0.kernel`, and the rest of the
state as JSON in the metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from tape_core import Tensor
from tape_core.support import progress_of

from tape_nn.checkpoints import Path, remove_drafts
from tape_nn.fitting.run import Run
from tape_nn.fitting.storing import is_written, keeper_of, read_state, write_state
from tape_nn.generators import random_states, set_random_states
from tape_nn.metrics import Mean
from tape_nn.module import Module
from tape_nn.thresholds import COUNT_LIMIT
from tape_nn.types import StateDict

_METADATA_KEY: Final = "tape_nn.fit"
FORMAT_VERSION: Final = 2  # since 2, states of random generators are those of Philox


class RunFile:
    """The checkpoint file of a run; of a run in several processes, a folder."""

    def __init__(self, path: Path, model: Module, parallel: object = None) -> None:
        self.path = os.fspath(path)
        self.model = model
        self._keeper = keeper_of("checkpoint", parallel)
        self._agree: Callable[[int], int] | None = getattr(parallel, "agree", None)
        if self._keeper is None:
            remove_drafts(path)  # of a run that was killed while it wrote

    def write(self, run: Run) -> None:
        """Write the state of the run, atomically."""
        # In the middle of an epoch (run.batch > 0) its random state and the means so far are needed as well.
        state = {
            "version": FORMAT_VERSION,
            "arguments": run.arguments,
            "epoch": run.epoch,
            "batch": run.batch,
            "step": run.step,
            "stopped": run.stopped,
            "history": dict(run.history),
            "random": random_states(self.model),
            "epoch_random": run.epoch_random if run.batch else {},
            "means": {name: mean.state_dict() for name, mean in run.means.items()} if run.batch else {},
            "metrics": {name: metric.state_dict() for name, metric in run.metrics.items()} if run.batch else {},
            "callbacks": [callback.state_dict() for callback in run.stateful],
            "model": self.model.state_dict(),
            "optimizer": {name: optimizer.state_dict(self.model) for name, optimizer in run.optimizers.items()},
        }
        tensors: dict[str, Tensor] = {}
        # Python's json writes and reads NaN, of which a history may be full, and floats to the last bit.
        text = json.dumps(pack(state, "", tensors))
        # On disks in a network, and of large models, that takes a while.
        with progress_of(lambda: f"writing {self.path}", logger="tape_nn", ticking=True):
            write_state(self.path, tensors, {_METADATA_KEY: text}, self._keeper, run.step)

    def read(self) -> SavedRun | None:
        """Read the file; return None if there is none.

        Raises:
            ValueError: the file is damaged, or was not written by `fit`.
        """
        found = is_written(self.path, self._keeper)
        # As the first process sees it: one that is on another file system would else begin anew while others read.
        if self._agree is not None:
            found = bool(self._agree(int(found)))
        if not found:
            return None
        tensors, metadata = read_state(self.path, self.model, self._keeper)
        if _METADATA_KEY not in metadata:
            raise ValueError(f"checkpoint: {self.path!r} was not written by fit; name another file")
        try:
            state = unpack(json.loads(metadata[_METADATA_KEY]), tensors)
            version = state["version"]
            # Only then: a later version may have other parts, and "damaged" would be the wrong message.
            if version == FORMAT_VERSION:
                _check_state(state)
        except Exception as error:
            raise ValueError(_damage_message(self.path, error)) from error
        if version != FORMAT_VERSION:
            raise ValueError(
                f"checkpoint: {self.path!r} has version {version} of the format; this tape-nn reads {FORMAT_VERSION}"
            )
        return SavedRun(self.path, state)


class SavedRun:
    """The state of a run, read from its file."""

    def __init__(self, path: str, state: dict[str, Any]) -> None:
        self.path = path
        self.state = state
        self.seed: int = state["arguments"]["seed"]

    def resume(self, run: Run) -> None:
        """Bring a run that is about to begin to the state in the file.

        Raises:
            ValueError: the file is of another run, or damaged. Nothing is changed.
        """
        self._check(run)
        self._restore_or_roll_back(run)
        run.call("on_train_begin")
        if run.batch:
            run.call("on_epoch_begin")
        self._restore_or_roll_back(run)  # once more: these callbacks have reset their own state

    def _restore_or_roll_back(self, run: Run) -> None:
        """Restore the state; if it cannot be loaded, leave the run as it was and raise a ValueError."""
        # The callbacks are not rolled back: an error ends `fit`, which makes no use of them afterwards.
        model, random = run.model.state_dict(), random_states(run.model)
        optimizers = {name: optimizer.state_dict(run.model) for name, optimizer in run.optimizers.items()}
        try:
            self._restore(run)
        except Exception as error:
            run.model.load_state_dict(model)
            set_random_states(run.model, random)
            for name, optimizer in run.optimizers.items():
                optimizer.load_state_dict(optimizers[name], run.model)
            raise ValueError(_damage_message(self.path, error)) from error

    def _check(self, run: Run) -> None:
        """Compare the run with the file's.

        Raises:
            ValueError: they differ; the message lists all differences.
        """
        before = self.state["arguments"]
        now = json.loads(json.dumps(run.arguments))  # tuples become lists, as in the file
        differ = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        problems = [
            f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
            for name in differ
            # Where the class of an optimizer differs, its settings, such as "optimizer.beta_1", are not listed as well.
            if "." not in name or name.partition(".")[0] not in differ
        ]
        generators = set(random_states(run.model))
        if generators != set(self.state["random"]):
            problems.append(
                f"random generators were {sorted(self.state['random'])} and are {sorted(generators)}, by their places "
                "in the model"
            )
        if unknown := sorted(self.state["metrics"].keys() - run.metrics.keys()):
            problems.append(f"metrics {unknown} were added while it ran; give them to fit")
        if self.state["epoch"] > run.epochs:
            problems.append(f"{self.state['epoch']} epochs are done, and epochs is {run.epochs}")
        found = run.model.state_dict()
        saved = self.state["model"]
        for name in {**saved, **found}:
            was, is_ = ("not there" if name not in d else f"{d[name].dtype} {d[name].shape}" for d in (saved, found))
            if was != is_:
                problems.append(f"the variable {name!r} was {was} and is {is_}")
        if problems:
            raise ValueError(
                f"checkpoint: {self.path!r} is of another run than this:\n  "
                + "\n  ".join(problems)
                + "\nRemove it or pass resume=False to begin anew, or name another file."
            )

    def _restore(self, run: Run) -> None:
        """Set everything to the state when the file was written."""
        state = self.state
        run.model.load_state_dict(state["model"])
        for name, optimizer in run.optimizers.items():
            optimizer.load_state_dict(state["optimizer"][name], run.model)
        run.begin_epoch()
        run.epoch, run.batch, run.step = state["epoch"], state["batch"], state["step"]
        run.stopped = state["stopped"]
        run.epoch_random = state["epoch_random"]
        # In place, since the caller or a callback may hold the dictionary.
        run.history.clear()
        run.history.update({name: list(values) for name, values in state["history"].items()})
        run.history.epochs = run.epoch
        # The means are made by the first step of an epoch, which this run has not taken.
        for name, own in state["means"].items():
            run.means[name] = Mean(name)
            run.means[name].load_state_dict(own)
        for name, own in state["metrics"].items():
            run.metrics[name].load_state_dict(own)
        for callback, own in zip(run.stateful, state["callbacks"], strict=True):
            # By position: `_check` has compared the classes.
            callback.load_state_dict(own)
        set_random_states(run.model, state["random"])


def _damage_message(path: str, error: Exception) -> str:
    return f"checkpoint: {path!r} is damaged, or not of this program: {type(error).__name__}: {error}"


# The parts of a state, and their types.
_PARTS: Final[dict[str, type]] = {
    "arguments": dict,
    "epoch": int,
    "batch": int,
    "step": int,
    "stopped": bool,
    "history": dict,
    "random": dict,
    "epoch_random": dict,
    "means": dict,
    "metrics": dict,
    "callbacks": list,
    "model": dict,
    "optimizer": dict,
}


def _check_state(state: StateDict) -> None:
    """Check that a state from a file has all its parts.

    Raises:
        KeyError: one is missing.
        ValueError: one has a wrong type, or a number is out of range.
    """
    for name, kind in _PARTS.items():
        if not isinstance(state[name], kind):
            raise ValueError(f"{name!r} is {state[name]!r}")
    if not isinstance(state["arguments"]["seed"], int):
        raise ValueError(f"the seed is {state['arguments']['seed']!r}")
    for name in ("epoch", "batch", "step"):
        if not 0 <= state[name] < COUNT_LIMIT:
            raise ValueError(f"{name!r} is {state[name]!r}")
    for name, values in state["history"].items():
        if not isinstance(values, list):
            raise ValueError(f"the history of {name!r} is {values!r}")
    for name, tensor in state["model"].items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"the variable {name!r} is {tensor!r}")
    for part in ("random", "epoch_random"):
        for place, numbers in state[part].items():
            # A generator's state is words of 64 bits.
            if not isinstance(numbers, list) or not all(isinstance(n, int) and 0 <= n < 1 << 64 for n in numbers):
                raise ValueError(f"the state of the random generator {place!r} is {numbers!r}")


def pack(value: object, path: str, tensors: dict[str, Tensor]) -> object:
    """Convert a state to values that JSON has. Tensors are replaced by their paths, and put into `tensors`.

    Raises:
        TypeError: a value is none that a state may have.
    """
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"checkpoint: {path} has the key {key!r}; keys of a state must be strings")
        # Wrapped in "dict", so that {"tensor": path} cannot be confused with a dictionary of the user's.
        return {"dict": {key: pack(v, f"{path}/{key}" if path else key, tensors) for key, v in value.items()}}
    if isinstance(value, list | tuple):
        return [pack(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(
        f"checkpoint: {path} is of type {type(value).__name__!r}; a state is made of numbers, text, None, Tensors, "
        "lists and dictionaries"
    )


def unpack(value: object, tensors: Mapping[str, Tensor]) -> Any:
    """Invert :func:`pack`."""
    if isinstance(value, list):
        return [unpack(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    return {key: unpack(v, tensors) for key, v in value["dict"].items()}
