"""tf.train: checkpoints of the Variables of modules, models and optimizers.

A checkpoint is one file in the safetensors format; each Variable is named by the attributes that lead to it, as
`model/dense_1/w`. A Variable that is made after `restore` gets its value when it is made (:class:`Restoration`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tape_core as tc
import tape_nn as nn

from tape_tf.conversion import unwrap, wrap
from tape_tf.data.dataset import DataIterator
from tape_tf.dtypes import as_dtype
from tape_tf.module import Module
from tape_tf.names import absent, exported
from tape_tf.typing import IntLike, PathLike
from tape_tf.variable import Variable

SUFFIX = ".safetensors"
_SECONDS_PER_HOUR = 3600
_POLL_SECONDS = 1.0  # from one look for a new checkpoint to the next
_ACCEPTED = (
    "a tf.Module, a layer, a model, an optimizer, a Variable, the iterator of a dataset, another Checkpoint, or lists "
    "and dictionaries of them"
)
_POSITION = "position"  # what a file has of an iterator: the number of elements that it has given
_TF_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"  # the end of names in TensorFlow's own checkpoints


def _walk(name: str, held: object, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the Variables, modules and optimizers in an object with their paths, each once, depth first."""
    # The façade of a core Variable may have been dropped and made anew: the core's object is the one that lasts.
    key = id(held.native) if isinstance(held, Variable) else id(held)
    if key in seen:
        return
    seen.add(key)
    if isinstance(held, Variable | tc.Variable):
        yield name, wrap(held)
        return
    parts: Any = ()
    if _is_optimizer(held) or isinstance(held, DataIterator):
        yield name, held
    elif isinstance(held, Checkpoint):
        parts = [*held._objects.items(), ("save_counter", held.save_counter)]
    elif isinstance(held, Module | nn.Module):
        yield name, held
        # Public attributes come first, so that a layer that is also in a private list gets its public name.
        parts = sorted(vars(held).items(), key=lambda item: (item[0].startswith("_"), item[0]))
        parts = [(attribute.lstrip("_"), part) for attribute, part in parts if attribute != "_deferred"]
    elif isinstance(held, dict):
        parts = held.items()
    elif isinstance(held, list | tuple):
        parts = enumerate(held)
    for attribute, part in parts:
        # The root of a checkpoint has no name of its own.
        yield from _walk("/".join([place for place in (name, str(attribute)) if place]), part, seen)


def _is_optimizer(held: object) -> bool:
    return isinstance(getattr(held, "native", held), nn.Optimizer)


@exported("train.Checkpoint", differs="one file in the safetensors format; of an iterator its position")
class Checkpoint:
    """Saves and restores the Variables of objects, given by name.

    >>> import os, tempfile
    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.Dense(2)
    >>> first = layer(tf.ones((1, 3)))
    >>> path = tf.train.Checkpoint(layer=layer).write(os.path.join(tempfile.mkdtemp(), "checkpoint"))
    >>> tf.train.list_variables(path)
    [('layer/bias', [2]), ('layer/kernel', [3, 2])]
    >>> other = tf.keras.layers.Dense(2)
    >>> status = tf.train.Checkpoint(layer=other).restore(path)
    >>> bool(tf.reduce_all(other(tf.ones((1, 3))) == first))
    True

    Args:
        root: an object whose attributes are saved under their own names.
        **kwargs: modules, layers, models, optimizers, Variables, iterators of `tf.data`, other Checkpoints, or lists
            and dictionaries of them, by name. Of an iterator its position is saved: a restored one skips the elements
            given before. After `shuffle` they are the same ones if its `seed`, or `tf.random.set_seed`, is.

    Raises:
        TypeError: an object cannot be saved.
    """

    def __init__(self, root: object = None, **kwargs: Any) -> None:
        self._objects: dict[str, Any] = dict(kwargs)
        if root is not None:
            self._objects[""] = root  # its attributes get no prefix
        for name, held in self._objects.items():
            known = isinstance(
                held, Module | nn.Module | Variable | tc.Variable | list | tuple | dict | DataIterator | Checkpoint
            )
            if not known and not _is_optimizer(held):
                raise TypeError(f"Checkpoint: {name or 'root'}={held!r} cannot be saved; it takes {_ACCEPTED}")
            if name:
                setattr(self, name, held)
        self.save_counter = Variable(0, trainable=False, name="save_counter", dtype="int64")

    def _named_objects(self) -> list[tuple[str, Any]]:
        seen: set[int] = set()
        return [pair for name, held in self._objects.items() for pair in _walk(name, held, seen)]

    def _state(self) -> dict[str, Any]:
        found = self._named_objects()
        variables = {name: held.native for name, held in found if isinstance(held, Variable)}
        state: dict[str, Any] = dict(variables)
        for name, held in found:
            if _is_optimizer(held):
                own = getattr(held, "native", held).state_dict(variables)
                state |= {f"{name}/{key}": value for key, value in own.items()}
            elif isinstance(held, DataIterator):
                state[f"{name}/{_POSITION}"] = tc.asarray(held.position, dtype=tc.int64)
        return state

    def write(self, file_prefix: PathLike, options: object = None) -> str:
        """Write a file, and return the name for :meth:`restore`, which is the given one, without a suffix.

        Raises:
            OSError: the file cannot be written.
        """
        nn.save_tensors(_file(file_prefix), self._state() | {"save_counter": self.save_counter.native})
        return str(os.fspath(file_prefix))

    def save(self, file_prefix: PathLike, options: object = None) -> str:
        """Like :meth:`write`, with a running number after the name: `ckpt-1`. Folders are made if needed."""
        self.save_counter.assign_add(1)
        Path(file_prefix).parent.mkdir(parents=True, exist_ok=True)
        return self.write(f"{os.fspath(file_prefix)}-{int(self.save_counter)}")

    def restore(self, save_path: PathLike | None, options: object = None) -> Status:
        """Set the Variables to the values in a file; Variables made later get their values when they are made.

        Args:
            save_path: the name that `write` or `save` returned. None, which `latest_checkpoint` returns for a folder
                without checkpoints, changes nothing.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a Variable has another shape than in the file; then no Variable is changed.
        """
        if save_path is None:
            return Status(Restoration(self, {}))
        tensors, _ = nn.load_tensors(_file(save_path))
        restoration = Restoration(self, tensors)
        restoration.on_new_objects()
        return Status(restoration)

    read = restore


class Restoration:
    """The values of a checkpoint that wait for their Variables.

    A Module with a restoration in `_deferred` calls :meth:`on_new_objects` when it is given an attribute.

    Attributes:
        waiting: values that have not been assigned yet, by name.
        names: the names of all values in the file.
    """

    def __init__(self, checkpoint: Checkpoint, tensors: dict[str, tc.Tensor]) -> None:
        self.checkpoint, self.waiting = checkpoint, tensors
        self.names = frozenset(tensors) - {"save_counter"}
        if (counter := tensors.pop("save_counter", None)) is not None:
            checkpoint.save_counter.assign(wrap(counter))

    def on_new_objects(self) -> None:
        """Assign the waiting values to the Variables and optimizers that exist by now."""
        if not self.waiting:
            return
        found = self.checkpoint._named_objects()
        variables = {name: held for name, held in found if isinstance(held, Variable)}
        ready = {name: self.waiting[name] for name in variables if name in self.waiting}
        for name, value in ready.items():  # all are checked before the first is assigned
            if value.shape != variables[name].native.shape:
                raise ValueError(
                    f"restore: {name!r} has shape {value.shape} in the file; the Variable has {variables[name].shape}"
                )
        # Before the Variables: a dataset may turn out to be too short.
        for name, held in found:
            if isinstance(held, DataIterator) and (number := self.waiting.pop(f"{name}/{_POSITION}", None)) is not None:
                held.move_to(int(number))
        for name, value in ready.items():
            # Cast to the dtype of the Variable: a checkpoint of float32 fits a model of float16.
            variables[name].native.assign(tc.asarray(value, dtype=variables[name].native.dtype))
            del self.waiting[name]
        for name, held in found:
            if _is_optimizer(held):
                self._restore_optimizer(name, held, {key: unwrap(variable) for key, variable in variables.items()})
        for _, held in found:
            if isinstance(held, Module):
                # Past `Module.__setattr__`, which would ask the restoration again.
                object.__setattr__(held, "_deferred", self if self.waiting else None)

    def _restore_optimizer(self, name: str, optimizer: Any, variables: dict[str, Any]) -> None:
        """Load an optimizer's state, once all the Variables that it trains exist: its slots are named by theirs."""
        own = {key[len(name) + 1 :]: value for key, value in self.waiting.items() if key.startswith(f"{name}/")}
        # Keys are "variable/slot"; those without a slash, such as "iterations", belong to the optimizer itself.
        trained = {key.rpartition("/")[0] for key in own} - {""}
        if not own or not trained <= variables.keys():
            return
        # A tf.keras optimizer wraps one of tape_nn, which has the state.
        native = getattr(optimizer, "native", optimizer)
        native.load_state_dict(own, variables)
        if native is not optimizer and "learning_rate" in own:
            optimizer.learning_rate = native.learning_rate
        for key in own:
            del self.waiting[f"{name}/{key}"]


class Status:
    """The result of `restore`: checks of how checkpoint and objects match."""

    def __init__(self, restoration: Restoration) -> None:
        self._restoration = restoration

    def assert_consumed(self) -> Status:
        """Check that every value of the file has been assigned, and that every Variable got one.

        Raises:
            AssertionError: some were not; it names them.
        """
        if self._restoration.waiting:
            raise AssertionError(f"Unresolved values in the checkpoint: {', '.join(sorted(self._restoration.waiting))}")
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> Status:
        """Check that the file had values for all Variables that exist by now.

        Raises:
            AssertionError: some had none; it names them.
        """
        restoration = self._restoration
        found = [name for name, held in restoration.checkpoint._named_objects() if isinstance(held, Variable)]
        if missing := [name for name in found if name not in restoration.names]:
            raise AssertionError(f"No values in the checkpoint for: {', '.join(missing)}")
        return self

    def assert_nontrivial_match(self) -> Status:
        """Check that at least one value of the file has been assigned.

        Raises:
            AssertionError: none was.
        """
        if len(self._restoration.waiting) == len(self._restoration.names):
            raise AssertionError("Nothing in the checkpoint belongs to the objects to restore")
        return self

    def initialize_or_restore(self, session: None = None) -> None:
        """Do nothing: what exists has its values by now."""

    run_restore_ops = initialize_or_restore

    def expect_partial(self) -> Status:
        """Do nothing: in TensorFlow, it silences warnings about values that are not used."""
        return self


def _file(path: PathLike) -> str:
    name = os.fspath(path)
    return name if name.endswith(SUFFIX) else f"{name}{SUFFIX}"


@exported("train.latest_checkpoint")
def latest_checkpoint(checkpoint_dir: PathLike, latest_filename: str | None = None) -> str | None:
    """Return the name, for `restore`, of the newest checkpoint in a folder; None if there is none."""
    # By time, not by name: "ckpt-10" sorts before "ckpt-9".
    files = sorted(Path(checkpoint_dir).glob(f"*{SUFFIX}"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    return str(files[-1]).removesuffix(SUFFIX) if files else None


@exported("train.list_variables")
def list_variables(ckpt_dir_or_file: PathLike) -> list[tuple[str, list[int]]]:
    """Return the names and shapes of the values in a checkpoint, or in the newest of a folder.

    Raises:
        ValueError: the folder has none.
    """
    return [
        (name, list(value.shape)) for name, value in sorted(_read(ckpt_dir_or_file).items()) if name != "save_counter"
    ]


@exported("train.load_variable")
def load_variable(ckpt_dir_or_file: PathLike, name: str) -> Any:
    """Return a value of a checkpoint, or of the newest in a folder, as a NumPy array.

    Raises:
        ValueError: it has no such name, or the folder has no checkpoint.
    """
    found = _read(ckpt_dir_or_file)
    if name not in found:
        raise ValueError(f"load_variable: there is no {name!r} in the checkpoint; there are {', '.join(sorted(found))}")
    return found[name].numpy()


@exported("train.CheckpointReader")
class CheckpointReader:
    """The values of a checkpoint, by name; made by `tf.train.load_checkpoint`."""

    def __init__(self, tensors: dict[str, tc.Tensor]) -> None:
        self._tensors = tensors

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Return the shapes of all values."""
        return {name: list(value.shape) for name, value in self._tensors.items()}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """Return the dtypes of all values."""
        return {name: as_dtype(value.dtype.name) for name, value in self._tensors.items()}

    def has_tensor(self, name: str) -> bool:
        """Return whether the checkpoint has a value of this name."""
        return name.removesuffix(_TF_SUFFIX) in self._tensors

    def get_tensor(self, name: str) -> Any:
        """Return a value as a NumPy array; TensorFlow's suffix of names is accepted.

        Raises:
            ValueError: there is no value of this name.
        """
        if not self.has_tensor(name):
            raise ValueError(f"get_tensor: there is no {name!r} in the checkpoint; {_listed(self._tensors)}")
        return self._tensors[name.removesuffix(_TF_SUFFIX)].numpy()


def _listed(names: Iterable[str]) -> str:
    return f"there are {', '.join(sorted(names))}"


@exported("train.load_checkpoint")
def load_checkpoint(ckpt_dir_or_file: PathLike) -> CheckpointReader:
    """Read the values of a checkpoint, or of the newest in a folder.

    >>> import os, tempfile
    >>> import tape_tf as tf
    >>> path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(os.path.join(tempfile.mkdtemp(), "checkpoint"))
    >>> reader = tf.train.load_checkpoint(path)
    >>> reader.get_variable_to_shape_map(), reader.get_tensor("v")
    ({'save_counter': [], 'v': [2]}, array([1., 2.], dtype=float32))

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the folder has no checkpoint.
    """
    return CheckpointReader(dict(sorted(_read(ckpt_dir_or_file).items())))


@exported("train.checkpoints_iterator")
def checkpoints_iterator(
    checkpoint_dir: PathLike,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yield the names of new checkpoints in a folder as they appear, the newest one each time.

    Args:
        min_interval_secs: the least time from one to the next.
        timeout: how long to wait for a new one, in seconds; None for ever.
        timeout_fn: is called then; waiting goes on unless it returns True. Without one the iteration ends.
    """
    last: str | None = None
    while True:
        began = time.monotonic()
        while (found := _newest_of(checkpoint_dir)) in (None, last):
            if timeout is not None and time.monotonic() - began >= timeout:
                if timeout_fn is None or timeout_fn():
                    return
                began = time.monotonic()
            time.sleep(_POLL_SECONDS if timeout is None else min(_POLL_SECONDS, timeout))
        assert found is not None
        last, began = found, time.monotonic()
        yield found
        time.sleep(max(0.0, min_interval_secs - (time.monotonic() - began)))


def _newest_of(folder: PathLike) -> str | None:
    return latest_checkpoint(folder) if os.path.isdir(folder) else None


def _read(path: PathLike) -> dict[str, tc.Tensor]:
    if os.path.isdir(path):
        if (latest := latest_checkpoint(path)) is None:
            raise ValueError(f"Couldn't find checkpoints in the given directory {os.fspath(path)}")
        path = latest
    return nn.load_tensors(_file(path))[0]


@exported("train.CheckpointManager")
class CheckpointManager:
    """Writes numbered checkpoints into a folder and keeps the newest few.

    Args:
        checkpoint: the Checkpoint to save.
        directory: the folder; it is made if needed.
        max_to_keep: the number of checkpoints to keep; None for all.
        keep_checkpoint_every_n_hours: keep one beyond that number whenever so much time has passed since the last one
            that was kept so.
        checkpoint_name: the name of the files before their number.
        step_counter, checkpoint_interval: a Variable, and how far it must have gone since the last checkpoint; else
            `save` does nothing.
        init_fn: is called by `restore_or_initialize` if there is no checkpoint.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: PathLike,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Variable | None = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
    ) -> None:
        if max_to_keep is not None and max_to_keep < 1:
            raise ValueError(f"Expected a positive integer or `None` for `max_to_keep`, got {max_to_keep}.")
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("`step_counter` should be passed if `checkpoint_interval` is not None.")
        self.checkpoint, self.directory = checkpoint, os.fspath(directory)
        self.checkpoint_interval = checkpoint_interval
        self._keep, self._name, self._hours = max_to_keep, checkpoint_name, keep_checkpoint_every_n_hours
        self._counter, self._init = step_counter, init_fn
        self._last_step: int | None = None
        # The time since which a checkpoint may be kept for good, and those that are.
        self._since, self._preserved = time.time(), set[str]()

    @property
    def checkpoints(self) -> list[str]:
        """The names of the checkpoints that are kept, the oldest first."""
        # The folder itself is the record of what was saved: there is no index file that could contradict it.
        files = Path(self.directory).glob(f"{self._name}-*{SUFFIX}")
        numbered = [(file.stem.rpartition("-")[2], file) for file in files]
        kept = sorted((int(number), file) for number, file in numbered if number.isdigit())
        return [str(file).removesuffix(SUFFIX) for _, file in kept]

    @property
    def latest_checkpoint(self) -> str | None:
        """The name of the newest one; None if there is none."""
        return self.checkpoints[-1] if self.checkpoints else None

    def save(
        self, checkpoint_number: IntLike | None = None, check_interval: bool = True, options: object = None
    ) -> str | None:
        """Save, remove the oldest beyond `max_to_keep`, and return the name for `restore`.

        Args:
            check_interval: heed `checkpoint_interval`: if it has not passed, nothing is saved, and None returned.
        """
        if self._counter is not None:
            step = int(self._counter)
            due = self._last_step is None or step - self._last_step >= (self.checkpoint_interval or 0)
            if check_interval and not due:
                return None
            self._last_step = step
        prefix = os.path.join(self.directory, self._name)
        if checkpoint_number is None:
            path = self.checkpoint.save(prefix)
        else:
            os.makedirs(self.directory, exist_ok=True)
            path = self.checkpoint.write(f"{prefix}-{int(checkpoint_number)}")
        # After the write: a crash in between leaves one checkpoint too many, and never one too few.
        kept = [name for name in self.checkpoints if name not in self._preserved]
        for old in kept[: -self._keep] if self._keep else []:
            written = os.path.getmtime(_file(old))
            if self._hours is not None and written - self._since >= self._hours * _SECONDS_PER_HOUR:
                self._since = written
                self._preserved.add(old)
            else:
                os.remove(_file(old))
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore the newest one, and return its name; if there is none, call `init_fn`, and return None."""
        if (latest := self.latest_checkpoint) is not None:
            self.checkpoint.restore(latest)
            if self._counter is not None:
                self._last_step = int(self._counter)
        elif self._init is not None:
            self._init()
        return latest


__getattr__ = absent("train")
