"""Checkpoints of several processes: each writes its parts, and any number of processes reads them, laid out anew."""

from __future__ import annotations

import os
import sys
import warnings
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeAlias

import tape_core as tc
import torch
import torch.distributed as dist
from tape_core.support import integer
from tape_core.typing import ArrayLike
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_loader import load as load_parts
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as save_parts
from torch.distributed.tensor import DTensor, Partial, Replicate

from tape_torch.conversion import bytes_of
from tape_torch.distributed import storage
from tape_torch.distributed.agreement import agree_on, check_met, has_processes, of_process, on_all, on_first
from tape_torch.distributed.failures import time_limit, waits_of
from tape_torch.divided import part_of
from tape_torch.peers import naming_peers

Path: TypeAlias = str | os.PathLike[str]
Like: TypeAlias = Mapping[str, tc.Tensor] | Callable[[str, tuple[int, ...]], tc.Tensor | None]


class Loaded(NamedTuple):
    """The result of :func:`load`: the step number, the Tensors and the metadata that were saved."""

    step: int
    tensors: dict[str, tc.Tensor]
    metadata: dict[str, str]


class Saving:
    """A checkpoint that is being written, by :func:`save` with `asynchronous=True`, or has been.

    Attributes:
        path: of the checkpoint, once it is complete.
    """

    def __init__(self, path: str, future: Future[Any] | None = None) -> None:
        self.path = path
        self._future = future

    @property
    def done(self) -> bool:
        """Whether nothing is being written any more."""
        return self._future is None or self._future.done()

    def finish(self) -> None:
        """Wait until nothing is being written any more; whether that is since all is written, `wait` says."""
        if self._future is not None:
            wait([self._future])

    def wait(self) -> str:
        """Wait until the checkpoint is complete, and return its path.

        Raises:
            OSError: a process could not write; the message has its number.
            RuntimeError: a process has died meanwhile. The checkpoint before this one is as it was.
        """
        future, self._future = self._future, None
        try:
            if future is not None:
                future.result()
        except CheckpointException as error:
            raise _plain("save", error) from error
        return self.path


_running: dict[str, Saving] = {}  # by folder: what is being written in the background
_groups: list[tuple[Any, Any]] = []  # the default group, and the group of checkpoints for it


def save(
    folder: Path,
    tensors: Mapping[str, ArrayLike],
    metadata: Mapping[str, str] | None = None,
    *,
    step: int = 0,
    keep: int = 1,
    asynchronous: bool = False,
) -> Saving:
    """Write named tensors to a checkpoint, from all processes of a run: each writes the parts that it has.

    All processes call it, with the same names. A tensor that every process has as a whole is written once. The
    checkpoint is complete or not there: whichever process is killed, and whenever, the one before it remains.

    >>> import os, tempfile
    >>> import tape_core as tc
    >>> from tape_torch import distributed
    >>> folder = os.path.join(tempfile.mkdtemp(), "run")
    >>> saving = distributed.save(folder, {"w": tc.asarray([1.0, 2.0], backend="torch")}, step=7)
    >>> os.path.basename(saving.path)
    '000001-step-7'
    >>> step, tensors, metadata = distributed.load(folder)
    >>> step, tensors["w"].tolist()
    (7, [1.0, 2.0])

    Args:
        folder: of the run, which is made where it is missing. All processes must see it. Each checkpoint is a folder
            within it.
        tensors: Tensors, Variables or arrays, whole or distributed, by name.
        metadata: text, by name; the same on every process.
        step: a number that `load` returns.
        keep: how many checkpoints to keep; older ones are removed once the new one is complete.
        asynchronous: return once the values are copied, and write them in the background. The next call waits for it.

    Raises:
        ValueError: the processes give different folders, names, shapes, dtypes, metadata or steps, or different values
            where each should have the same; or the folder is itself a checkpoint.
        TypeError: a name is no string, or the format lacks a dtype (complex128).
        OSError: a process cannot write.
        RuntimeError: another program is saving into this folder, or a process has died; or it is called in one of
            several processes before there is a mesh.
    """
    where = os.path.realpath(folder)
    check_met("save")
    _wait_for_others()
    group = _group()
    arrays: dict[str, torch.Tensor] = {}
    text: dict[str, str] = {}

    def check() -> None:
        nonlocal step, keep
        if (before := _running.pop(where, None)) is not None:
            _raise_of_the_one_before(before)
        step, keep = integer("save", "step", step, 0), integer("save", "keep", keep, 1)
        arrays.update({name: _array(name, tensors[name]) for name in sorted(tensors, key=str)})
        text.update(_text(metadata))

    on_all("save", group, check)
    told = {"folder": where, "step": str(step), **{f"metadata {key}": text[key] for key in sorted(text)}}
    cure = "Random generators go on alike after strategy.prepare(model), or tape_core.set_seed(number), in each process"
    agree_on("save", group, "folder, step and metadata", told, cure=cure)
    told = {name: f"{_name(value.dtype)} {tuple(value.shape)}" for name, value in arrays.items()}
    agree_on("save", group, "tensors", told)
    arrays = {name: _added_up(array).detach() for name, array in arrays.items()}
    _agree_on_copies(group, arrays)
    lock, draft, target = _begin(group, where, step)
    writer = storage.Writer(draft, target, {"step": step, "metadata": text, "processes": _size(group)}, keep)
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    if not asynchronous:
        try:
            _quietly(save_parts, arrays, storage_writer=writer, planner=planner, process_group=group)
        except CheckpointException as error:
            raise _plain("save", error) from error
        finally:
            _unlock(lock)
        return Saving(target)
    future: Future[Any]
    try:
        if group is None:
            staged = {name: value.detach().to("cpu", copy=True) for name, value in arrays.items()}
            executor = ThreadPoolExecutor(1)
            future = executor.submit(_quietly, save_parts, staged, storage_writer=writer, planner=planner)
            executor.shutdown(wait=False)
        else:
            begun = async_save(arrays, storage_writer=writer, planner=planner, process_group=group)
            future = begun if isinstance(begun, Future) else begun.upload_completion
    except BaseException:
        _unlock(lock)
        raise
    _running[where] = saving = Saving(target, _after(future, lambda: _unlock(lock)))
    return saving


def load(folder: Path, like: Like | None = None) -> Loaded:
    """Read the newest checkpoint in a folder, on all processes of a run, however many wrote it.

    Nothing in a checkpoint is run as code, and every file has a checksum.

    Args:
        folder: that :func:`save` wrote to, or one checkpoint in it.
        like: Tensors or Variables by name, or a function of a name and a shape that returns one or None: a tensor that
            has the shape of this one is laid out as it is, on its device. All others are read as a whole by every
            process.

    Raises:
        FileNotFoundError: there is no checkpoint, or a part of it is missing.
        NotADirectoryError: the folder is a file.
        ValueError: a file is damaged, or of a later version, or the processes give different folders.
        RuntimeError: a process has died.
    """
    _wait_for_others()
    group = _group()
    where = os.path.realpath(folder)
    agree_on("load", group, "folder", {"folder": where})
    path, manifest = on_first(group, lambda: _opened(where))
    rank, size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    on_all("load", group, lambda: storage.check_files(path, manifest, rank, size))
    found: dict[str, torch.Tensor] = {}
    for name, entry in manifest["tensors"].items():
        shape = tuple(entry["shape"])
        place = like(name, shape) if callable(like) else (like or {}).get(name)
        found[name] = _empty(shape, storage.dtype_named(entry["dtype"]), place)
    try:
        _quietly(
            load_parts,
            found,
            storage_reader=storage.Reader(path, manifest),
            planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
            process_group=group,
        )
    except CheckpointException as error:
        raise _plain("load", error) from error
    tensors = {name: tc.asarray(value) for name, value in found.items()}
    return Loaded(manifest["step"], tensors, manifest["metadata"])


def latest(folder: Path) -> str | None:
    """Return the path of the newest complete checkpoint in a folder, or None if there is none.

    >>> from tape_torch import distributed
    >>> distributed.latest("no such folder") is None
    True
    """
    names = storage.checkpoints_in(os.fspath(folder))
    return os.path.join(folder, names[-1]) if names else None


def _wait_for_others() -> None:
    """Wait until nothing is being written: what that sends, and what this call is to send, may not be mixed.

    An error of what was written is raised by its own :meth:`Saving.wait`, or the next save into its folder.
    """
    for saving in _running.values():
        saving.finish()


def _raise_of_the_one_before(saving: Saving) -> None:
    """Raise the error of a checkpoint that was written in the background, if nobody has been told."""
    try:
        saving.wait()
    except (OSError, RuntimeError, ValueError) as error:
        raise type(error)(
            f"{error}. This is the error of the save before, to {saving.path!r}, which was in the background; this one "
            f"has saved nothing"
        ) from error


def _opened(folder: str) -> tuple[str, dict[str, Any]]:
    path = folder if storage.is_checkpoint(folder) else latest(folder)
    if path is not None:
        return path, storage.read_manifest(path)
    if not os.path.exists(folder):
        raise FileNotFoundError(f"load: there is no folder {folder!r}")
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"load: {folder!r} is a file; checkpoints of several processes are in a folder")
    raise FileNotFoundError(f"load: there is no checkpoint in {folder!r}")


def _array(name: object, value: ArrayLike) -> torch.Tensor:
    """Return a value as a tensor that can be written."""
    if not isinstance(name, str):
        raise TypeError(f"save: the name of a tensor must be a string; got {name!r}")
    is_ours = isinstance(value, tc.Tensor) and value.backend.name == "torch"
    found: torch.Tensor = (value if is_ours else tc.asarray(value, backend="torch")).array
    if not storage.storable(found.dtype):
        raise TypeError(f"save: {name!r} has dtype {_name(found.dtype)}, which the safetensors format lacks")
    return found


def _added_up(array: torch.Tensor) -> torch.Tensor:
    """Return a tensor without summands, which are no parts of it: torch would write those of one process."""
    if isinstance(array, DTensor) and any(isinstance(place, Partial) for place in array.placements):
        return array.redistribute(placements=_without_sums(array))
    return array


def _empty(shape: tuple[int, ...], dtype: torch.dtype, like: tc.Tensor | None) -> torch.Tensor:
    """Return the tensor to read into: in the layout of another one, if that has this shape."""
    array = like.array if like is not None and like.backend.name == "torch" and like.shape == shape else None
    if isinstance(array, DTensor):
        return torch.empty_like(array.redistribute(placements=_without_sums(array)), dtype=dtype)
    if isinstance(array, torch.Tensor):
        return torch.empty(shape, dtype=dtype, device=array.device)
    return torch.empty(shape, dtype=dtype)


def _without_sums(array: DTensor) -> list[Any]:
    return [Replicate() if isinstance(place, Partial) else place for place in array.placements]


def _text(metadata: Mapping[str, str] | None) -> dict[str, str]:
    found: dict[Any, Any] = dict(metadata or {})  # callers without a type checker may pass anything
    for key, value in found.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"save: metadata are strings by name; got {key!r}: {value!r}")
    return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- what the processes do together


def _group() -> Any:
    """Return a group of all processes for checkpoints, or None if there is one process.

    It is a group of its own, since a checkpoint that is written in the background talks while the training does, and
    on gloo, since what is exchanged is in the memory of the host.
    """
    if not has_processes():
        return None
    world: Any = dist.group.WORLD
    if not _groups or _groups[0][0] is not world:
        with naming_peers("save or load, for which all processes meet once,"):
            _groups[:] = [(world, dist.new_group(backend="gloo", timeout=time_limit() or waits_of(world)))]
    return _groups[0][1]


def _size(group: Any) -> int:
    return 1 if group is None else dist.get_world_size(group)


def _agree_on_copies(group: Any, arrays: Mapping[str, torch.Tensor]) -> None:
    """Check that processes that have the same part of a tensor have the same values in it.

    Raises:
        ValueError: they do not: replicas have drifted apart, and only one would be saved.
    """
    if group is None or dist.get_world_size(group) == 1:
        return
    # A place in a list for each part of which there are copies: each process fills those that it has.
    names: list[str] = []
    own: dict[int, int] = {}
    for name, array in arrays.items():
        index, parts, copies = 0, 1, dist.get_world_size(group)
        if isinstance(array, DTensor):
            mesh: Any = array.device_mesh
            for size, place, coordinate in zip(mesh.shape, array.placements, mesh.get_coordinate(), strict=True):
                if not isinstance(place, Replicate):
                    index, parts, copies = index * size + coordinate, parts * size, copies // size
        if copies > 1:
            own[len(names) + index] = _fingerprint(array)
            names += [name] * parts
    if not names:
        return
    low = torch.tensor([own.get(k, 1 << 32) for k in range(len(names))])
    high = torch.tensor([own.get(k, -1) for k in range(len(names))])
    with naming_peers("save, which compares copies,"):
        dist.all_reduce(low, dist.ReduceOp.MIN, group=group)
        dist.all_reduce(high, dist.ReduceOp.MAX, group=group)
    if differ := list(dict.fromkeys(names[k] for k in torch.nonzero(low != high).flatten().tolist())):
        raise ValueError(
            f"save: {', '.join(map(repr, differ[:8]))} should be the same on all processes that have a copy, and "
            "differs; only one of the values would be saved. Broadcast one, or keep them the same by the same seed and "
            "averaged gradients"
        )


def _fingerprint(array: torch.Tensor) -> int:
    return zlib.crc32(bytes_of(part_of(array) if isinstance(array, DTensor) else array))


def _begin(group: Any, folder: str, step: int) -> tuple[int | None, str, str]:
    """Make the draft of a checkpoint; return a lock on the folder (on process 0), the draft, and its final path."""
    lock: int | None = None

    def begin() -> tuple[str, str]:
        nonlocal lock
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise NotADirectoryError(
                f"save: {folder!r} is a file; checkpoints of several processes are in a folder: name another path"
            )
        if storage.is_checkpoint(folder):
            raise ValueError(
                f"save: {folder!r} is itself a checkpoint, and new ones are put beside it: name the folder of the run, "
                f"{os.path.dirname(folder)!r}"
            )
        os.makedirs(folder, exist_ok=True)
        lock = _locked(folder)
        try:
            storage.remove_drafts(folder)
            name = storage.next_name(folder, step)
            draft = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
            os.mkdir(draft)
        except BaseException:
            _unlock(lock)
            raise
        return draft, os.path.join(folder, name)

    draft, target = on_first(group, begin)
    return lock, draft, target


def _locked(folder: str) -> int | None:
    """Lock a folder, so that no other program takes a draft for an abandoned one; None where folders have no locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RuntimeError(f"save: another program is saving into {folder!r}; give each run a folder") from None
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _after(future: Future[Any], act: Callable[[], None]) -> Future[Any]:
    """Return a future that has the result of another one once a function was called.

    Who waits for a future goes on before, or while, the callbacks of that one are called.
    """
    found: Future[Any] = Future()

    def end(done: Future[Any]) -> None:
        act()
        try:
            found.set_result(done.result())
        except BaseException as error:  # noqa: BLE001 - as PyTorch's is, for all who wait
            found.set_exception(error)

    future.add_done_callback(end)
    return found


def _quietly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        # Said of a single process, which is no mistake.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        return function(*args, **kwargs)


def _plain(what: str, error: CheckpointException) -> BaseException:
    """Return torch's error, which derives from BaseException, as one of the kind that the first process raised.

    What has ended this process, such as an interrupt by its user, stays what it is.
    """
    own, _ = error.failures.get(dist.get_rank() if has_processes() else 0, (None, None))
    if own is not None and not isinstance(own, Exception):
        return own
    rank, (cause, _) = min(error.failures.items())
    return of_process(what, rank, type(cause), str(cause))
