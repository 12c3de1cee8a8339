"""The files of a checkpoint of several processes: what torch.distributed.checkpoint asks of a storage.

A checkpoint is a folder. Each process writes its parts of the tensors to one safetensors file, and process 0 the
manifest, JSON that says where each part of each tensor is and what the checksums of the files are. Nothing in them is
code: torch's own storage keeps its index as a pickle, and reading one runs whatever is in it.

The folder is a draft until everything is on the disk; then process 0 gives it its name, which no process can interrupt.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from tape_core.support import sync, write_whole
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

MANIFEST: Final = "tape.json"
FORMAT_VERSION: Final = 1
CHUNK_BYTES: Final = 1 << 24  # read at once for a checksum

_CHECKPOINT: Final = re.compile(r"(\d{6,})-step-(\d+)")
_DRAFT: Final = re.compile(r"\.\d{6,}-step-\d+\.[0-9a-f]{16}")
_FILE: Final = re.compile(r"process-\d{5}\.safetensors")  # no path leads out of the folder
_DTYPES: Final = {
    name: getattr(torch, name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64"),
    )
}


@dataclass(frozen=True)
class Written:
    """Where one part of a tensor was written, and the checksum of the file: what a process tells process 0."""

    file: str
    sha256: str
    size: int
    shape: tuple[int, ...]


class Writer(StorageWriter):  # type: ignore[misc, unused-ignore]
    """The parts of one process, in one safetensors file; on process 0 also the manifest and the folder's name."""

    def __init__(self, draft: str, target: str, facts: Mapping[str, Any], keep: int) -> None:
        self.draft = draft
        self.target = target
        self.facts = facts
        self.keep = keep
        self.rank = 0

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a writer writes one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Remember the number of this process."""
        self.rank = kwargs.get("rank", 0)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return the plans as they are."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the file of this process, to the disk."""
        from safetensors.torch import save_file

        if not os.path.isdir(self.draft):
            raise FileNotFoundError(_not_shared(f"process 0 has made {self.draft!r}, and this process does not see it"))
        done: Future[list[WriteResult]] = Future()
        tensors: dict[str, torch.Tensor] = {}
        places: dict[str, dict[str, list[int]]] = {}
        memory: set[int] = set()
        for item in plan.items:
            assert item.tensor_data is not None  # `checkpoints.save` gives tensors only
            value = planner.resolve_data(item)
            assert isinstance(value, torch.Tensor)
            offsets = tuple(item.tensor_data.chunk.offsets)
            key = _key(item.index.fqn, offsets if item.index.fqn in tensors else None)
            # `contiguous` first: a transposed or sliced tensor has gaps. A clone where two names have one memory.
            tensor = value.detach().cpu().contiguous()
            whole = tensor.untyped_storage()
            if whole.data_ptr() in memory or whole.size() != tensor.nbytes:
                tensor = tensor.clone()
            memory.add(tensor.untyped_storage().data_ptr())
            tensors[key] = tensor
            places[key] = {"saved_offsets": list(offsets)}
        if not tensors:
            done.set_result([])
            return done
        file = f"process-{self.rank:05d}.safetensors"
        path = os.path.join(self.draft, file)
        # The names that torch's HuggingFaceStorageReader looks for, so that it can read the files, too.
        note = {"DCP_SHARDING_INFO": json.dumps(places), "DCP_VERSION": "1.0", "format": "pt"}
        save_file(tensors, path, metadata=note)
        os.chmod(path, os.stat(self.draft).st_mode & 0o666)  # it is made for its owner alone, unlike the folder
        sync(path)
        size, digest = checksum(path)
        done.set_result(
            [
                WriteResult(item.index, 0, Written(file, digest, size, tuple(item.tensor_data.chunk.sizes)))
                for item in plan.items
                if item.tensor_data is not None
            ]
        )
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the manifest, name the folder, and remove older checkpoints: on process 0, when all have written."""
        files: dict[str, dict[str, Any]] = {}
        tensors: dict[str, dict[str, Any]] = {
            name: {
                "dtype": str(entry.properties.dtype).removeprefix("torch."),
                "shape": list(entry.size),
                "parts": [],
            }
            for name, entry in metadata.state_dict_metadata.items()
            if isinstance(entry, TensorStorageMetadata)
        }
        for rank, result in enumerate(results):
            for one in result:
                told: Written = one.storage_data
                path = os.path.join(self.draft, told.file)
                if told.file not in files and (not os.path.exists(path) or os.path.getsize(path) != told.size):
                    raise FileNotFoundError(
                        _not_shared(f"process {rank} has written {path!r}, and process 0 does not see it")
                    )
                files[told.file] = {"size": told.size, "sha256": told.sha256}
                offsets = list(one.index.offset or ())
                tensors[one.index.fqn]["parts"].append([told.file, offsets, list(told.shape)])
        facts = {"version": FORMAT_VERSION, **self.facts, "files": files, "tensors": tensors}
        write_whole("save", [(os.path.join(self.draft, MANIFEST), [_sealed(facts)])])
        sync_folder(self.draft)
        os.rename(self.draft, self.target)
        sync_folder(os.path.dirname(self.target))
        remove_older(os.path.dirname(self.target), self.keep)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return True: any folder will do."""
        return True

    def storage_meta(self) -> StorageMeta | None:
        """Return None: the manifest says everything."""
        return None


class Reader(StorageReader):  # type: ignore[misc, unused-ignore]
    """The parts that a process needs, from whichever files they are in."""

    def __init__(self, path: str, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a reader reads one checkpoint."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the manifest in torch's terms."""
        found: dict[str, Any] = {}
        places: dict[MetadataIndex, tuple[str, str]] = {}
        for name, entry in self.manifest["tensors"].items():
            chunks = []
            keys: set[tuple[str, str]] = set()
            for file, offsets, shape in entry["parts"]:
                chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(shape)))
                key = _key(name, tuple(offsets) if (file, name) in keys else None)
                keys.add((file, key))
                places[MetadataIndex(name, offsets)] = file, key
            dtype = TensorProperties(dtype=_DTYPES[entry["dtype"]])
            found[name] = TensorStorageMetadata(dtype, torch.Size(entry["shape"]), chunks)
        return Metadata(found, storage_data=places, storage_meta=StorageMeta())

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Remember in which file each part is."""
        self.places: dict[MetadataIndex, tuple[str, str]] = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the parts that the plan names into its tensors; of each, only the elements that are needed are read."""
        from safetensors import safe_open

        by_file: dict[str, list[Any]] = {}
        for item in plan.items:
            by_file.setdefault(self.places[item.storage_index][0], []).append(item)
        for file, items in by_file.items():
            with safe_open(os.path.join(self.path, file), framework="pt") as stream:
                for item in items:
                    key = self.places[item.storage_index][1]
                    target = planner.resolve_tensor(item).detach()
                    if item.lengths:
                        ends = [start + n for start, n in zip(item.storage_offsets, item.lengths, strict=True)]
                        part = stream.get_slice(key)[tuple(map(slice, item.storage_offsets, ends))]
                    else:  # a number has nothing to slice
                        part = stream.get_tensor(key)
                    if part.shape != target.shape or part.dtype is not target.dtype:
                        raise ValueError(
                            f"{file} has {part.dtype} {tuple(part.shape)} of {item.storage_index.fqn!r} where "
                            f"{target.dtype} {tuple(target.shape)} is wanted"
                        )
                    target.copy_(part)
                    planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return True: any folder will do."""
        return True


def checkpoints_in(folder: str) -> list[str]:
    """Return the names of the complete checkpoints in a folder, in the order in which they were saved."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = [(int(match[1]), name) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    return [name for _, name in sorted(found)]


def is_checkpoint(path: str) -> bool:
    """Return whether a folder is one checkpoint, complete or damaged, and not that of a run."""
    named = _CHECKPOINT.fullmatch(os.path.basename(path)) and os.path.isdir(path) and not checkpoints_in(path)
    return bool(named) or os.path.exists(os.path.join(path, MANIFEST))


def next_name(folder: str, step: int) -> str:
    """Return the name of the next checkpoint: a number that counts on, since a step may be saved again."""
    last = checkpoints_in(folder)[-1:]
    number = int(last[0].partition("-")[0]) + 1 if last else 1
    return f"{number:06d}-step-{step}"


def remove_older(folder: str, keep: int) -> None:
    """Remove all but the newest checkpoints; each loses its name first, so that a half of one is never found."""
    for name in checkpoints_in(folder)[:-keep]:
        draft = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
        os.rename(os.path.join(folder, name), draft)
        shutil.rmtree(draft, ignore_errors=True)


def remove_drafts(folder: str) -> None:
    """Remove what runs have left that were killed while they saved."""
    for name in os.listdir(folder):
        if _DRAFT.fullmatch(name):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def read_manifest(path: str) -> dict[str, Any]:
    """Return the manifest of a checkpoint.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or of another version.
    """
    file = os.path.join(path, MANIFEST)
    if not os.path.exists(file):
        raise FileNotFoundError(f"{file!r} is missing: {_cure(path)}")
    with open(file, "rb") as stream:
        content = stream.read()
    try:
        given = json.loads(content)
        facts: dict[str, Any] = given["checkpoint"]
        if given["sha256"] != _digest(facts):
            raise ValueError("it does not have the checksum that was written with it")
        version = facts["version"]
        if version == FORMAT_VERSION:
            _check(facts)
    # RecursionError: JSON nested thousands of levels deep.
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file!r} is damaged, or no manifest ({type(error).__name__}: {error}): {_cure(path)}"
        ) from error
    if version != FORMAT_VERSION:
        raise ValueError(f"{file!r} has version {version} of the format; this tape-torch reads {FORMAT_VERSION}")
    return facts


def check_files(path: str, manifest: Mapping[str, Any], part: int, parts: int) -> None:
    """Check that files are there as they were written: of `parts` processes, each looks at its share.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: one is damaged.
    """
    for k, (name, known) in enumerate(sorted(manifest["files"].items())):
        file = os.path.join(path, name)
        if not os.path.exists(file):
            raise FileNotFoundError(f"{file!r} is missing: {_cure(path)}")
        if k % parts == part and checksum(file) != (known["size"], known["sha256"]):
            raise ValueError(
                f"{file!r} is damaged, as it does not have the checksum that was written with it: {_cure(path)}"
            )


def _cure(path: str) -> str:
    """Return what to do about a checkpoint that cannot be read."""
    folder, name = os.path.split(path)
    older = [one for one in checkpoints_in(folder) if one != name]
    beside = f"; {older[-1]!r} is beside it, which is then the newest" if older else ""
    return f"the checkpoint cannot be read without it; restore the file, or remove the folder {path!r}{beside}"


def checksum(path: str) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file."""
    found, size = hashlib.sha256(), 0
    with open(path, "rb") as stream:
        while piece := stream.read(CHUNK_BYTES):
            found.update(piece)
            size += len(piece)
    return size, found.hexdigest()


def _not_shared(what: str) -> str:
    return f"{what}: all processes must write to one folder, on a file system that they share"


def storable(dtype: torch.dtype) -> bool:
    """Return whether the format has a dtype."""
    return dtype in _DTYPES.values()


def dtype_named(name: str) -> torch.dtype:
    """Return the dtype of a tensor in a manifest."""
    dtype: torch.dtype = _DTYPES[name]
    return dtype


def sync_folder(path: str) -> None:
    """Have the system write out which files a folder has, where it can."""
    if os.name == "posix":  # elsewhere folders cannot be opened
        sync(path)


def _key(name: str, offsets: tuple[int, ...] | None) -> str:
    """Return the name of a part in a file: the tensor's own, but of a second part there with its place."""
    return name if offsets is None else f"{name}@{','.join(map(str, offsets))}"


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _sealed(facts: Mapping[str, Any]) -> bytes:
    return json.dumps({"sha256": _digest(facts), "checkpoint": facts}, indent=1).encode()


def _check(facts: Mapping[str, Any]) -> None:
    """Check that a manifest has all its parts.

    Raises:
        KeyError, TypeError, ValueError: it has not.
    """
    if not isinstance(facts["step"], int) or not isinstance(facts["metadata"], dict):
        raise ValueError("the step or the metadata is missing")
    for name in facts["files"]:
        if not _FILE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a file of a checkpoint")
    for name, entry in facts["tensors"].items():
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{name!r} has dtype {entry['dtype']!r}")
        for file, offsets, shape in entry["parts"]:
            if file not in facts["files"] or not len(offsets) == len(shape) == len(entry["shape"]):
                raise ValueError(f"a part of {name!r} is {[file, offsets, shape]}")
