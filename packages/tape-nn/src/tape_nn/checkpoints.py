"""Files of named tensors, in the safetensors format: no code in them, and the same for every backend.

A file that is written here has a checksum among its metadata, `"tape.checksum"`: the SHA-256 of all its bytes, with
zeros in place of the checksum. A file without one, from another program, is read as it is.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import tape_core as tc
from safetensors import SafetensorError, deserialize
from tape_core.base.contexts import contextmanager
from tape_core.base.files import is_draft_of, write_whole

if TYPE_CHECKING:
    from tape_core.backends import Backend

Path: TypeAlias = str | os.PathLike[str]

# What the format has, by its codes.
_DTYPES: Final = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_CODES: Final = {dtype: code for code, dtype in _DTYPES.items()}

# Two entries, so that no single damaged bit makes the file look like one that has no checksum.
_CHECKSUM: Final = "tape.checksum"
_WRITER: Final = "tape.writer"
_BLANK: Final = "sha256:" + "0" * 64
_STALE: Final = 3600  # seconds after which a draft is nobody's, where folders cannot be locked


def save_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors to a file.

    The file is there whole or not at all: it is written beside `path` and then takes its place. What it held before is
    kept until then, so a crash leaves the one or the other.

    >>> import tempfile, os
    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> nn.save_tensors(path, {"w": tc.asarray([1.0, 2.0])}, {"step": "7"})
    >>> nn.load_tensors(path)
    ({'w': Tensor([1. 2.], shape=(2,), dtype=float32, backend=numpy)}, {'step': '7'})

    Args:
        path: of the file. Its folder must exist.
        tensors: Tensors, Variables or arrays of any installed backend, by name.
        metadata: text, by name.

    Raises:
        TypeError: a name or a piece of metadata is not a string, a value is no array, or has a dtype that the format
            lacks (complex128). Nothing is written.
        OSError: the file cannot be written.
    """
    key: Any
    text: Any
    name: Any
    for given, value, kind in (("tensors", tensors, "Tensors"), ("metadata", metadata or {}, "strings")):
        if not isinstance(value, Mapping):
            raise TypeError(f"save_tensors: {given} must be a mapping of {kind} by name, got {type(value).__name__}")
    for key, text in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"save_tensors: metadata are strings by name; got {key!r}: {text!r}")
        if key in (_CHECKSUM, _WRITER):
            raise TypeError(f"save_tensors: the metadata {key!r} is written by save_tensors itself")
    arrays = {}
    for name, value in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"save_tensors: {name!r} cannot be the name of a tensor")
        arrays[name] = _to_bytes(name, value)
    # The widest first: each begins at a multiple of its width, as other readers of the format want it.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1][1].itemsize, item[0]))
    header = _header(ordered, metadata or {})
    pieces: list[Any] = [header, *(memoryview(array.reshape(-1).view("uint8")) for _, (_, array) in ordered)]
    checksum = hashlib.sha256()
    for piece in pieces:
        checksum.update(piece)
    pieces[0] = header.replace(_entry(_BLANK), _entry(f"sha256:{checksum.hexdigest()}"), 1)
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save_tensors: there is no folder {folder!r}")
    with _locked(folder, exclusive=False):
        write_whole("save_tensors", [(target, pieces)])


def load_tensors(
    path: Path,
    *,
    like: Mapping[str, tc.Tensor] | None = None,
    backend: str | Backend | None = None,
    device: str | None = None,
) -> tuple[dict[str, tc.Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that :func:`save_tensors` or any other program wrote.

    Values of bfloat16 come as float32, which holds all of them exactly, where what `like` names has that dtype, and
    on a backend without bfloat16: NumPy's has it with the package ml_dtypes.

    Args:
        path: of the file.
        like: what is named here comes on the backend and the device of the Tensor of that name.
        backend, device: where the others come, as in :func:`tape_core.asarray`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged or in another format.
        TypeError: it has a dtype that Tensors do not have.
    """
    path = os.fspath(path)  # a number would be the file that the program has open under it
    with open(path, "rb") as stream:
        content = stream.read()
    return read_tensors(content, f"load_tensors: {path!r}", like=like, backend=backend, device=device)


def read_tensors(
    content: bytes,
    what: str,
    *,
    like: Mapping[str, tc.Tensor] | None = None,
    backend: str | Backend | None = None,
    device: str | None = None,
) -> tuple[dict[str, tc.Tensor], dict[str, str]]:
    """The tensors and the metadata in the content of a file: see :func:`load_tensors`.

    Args:
        content: all of the file.
        what: what errors begin with; it names the file.
    """
    try:
        entries = deserialize(content)  # type: ignore[no-untyped-call]
        # deserialize has checked the header, and gives all of it but the metadata.
        end = 8 + int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8:end]).get("__metadata__") or {}
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} is damaged or not in safetensors format: {error}") from error
    if _CHECKSUM in metadata or _WRITER in metadata:
        _verify(content, end, metadata.pop(_CHECKSUM, ""), metadata.pop(_WRITER, ""), what)
    if unknown := [f"{name!r} ({entry['dtype']})" for name, entry in entries if entry["dtype"] not in _DTYPES]:
        raise TypeError(f"{what} has dtypes that Tensors do not have: {', '.join(unknown)}")
    if backend is None and device is None:
        backend = tc.get_backend()
    like = like or {}
    tensors = {}
    for name, entry in entries:
        place = like.get(name)
        where = (backend, device) if place is None else (place.backend, place.device)
        try:
            array = _from_bytes(entry)
        except ValueError as error:  # more dimensions than arrays have, truth values other than 0 and 1
            raise ValueError(f"{what} is damaged: {name!r}: {error}") from error
        is_low = entry["dtype"] == "BF16" and (place is None or place.dtype is not tc.float32)
        tensors[name] = _placed(array, is_low, *where)
    return tensors, metadata


def remove_drafts(path: Path) -> None:
    """Remove what a program left that was killed within :func:`save_tensors`.

    While another program writes into the folder nothing is removed: what looks like a draft may be its own.
    """
    folder, file = os.path.split(os.path.realpath(path))
    found = [name for name in (os.listdir(folder) if os.path.isdir(folder) else ()) if is_draft_of(file, name)]
    if not found:
        return
    with _locked(folder, exclusive=True) as alone:
        for name in found:
            place = os.path.join(folder, name)
            with suppress(FileNotFoundError):  # it was finished, or another program has removed it
                if alone or (alone is None and time.time() - os.stat(place).st_mtime > _STALE):
                    os.remove(place)


@contextmanager
def _locked(folder: str, exclusive: bool) -> Iterator[bool | None]:
    """Hold a lock on a folder: many that write, or one that cleans up. A program that is killed lets go of it.

    Gives whether the lock is held: an exclusive one is not waited for. None where folders cannot be locked.
    """
    if sys.platform == "win32":
        yield None
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        held: bool | None = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError:
            held = False
        except OSError:  # a file system without locks
            held = None
        yield held
    finally:
        os.close(descriptor)


def _header(ordered: list[tuple[str, tuple[str, Any]]], metadata: Mapping[str, str]) -> bytes:
    """What a file begins with: the length of the description, and the description, padded to a multiple of 8."""
    table: dict[str, Any] = {"__metadata__": {_CHECKSUM: _BLANK, _WRITER: "tape-nn", **metadata}}
    place = 0
    for name, (dtype, array) in ordered:
        table[name] = {
            "dtype": _CODES[dtype],
            "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    try:
        text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"save_tensors: a name or a piece of metadata is no text that UTF-8 has: {error}") from error
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _entry(checksum: str) -> bytes:
    """The checksum's entry in the description. No name and no text can hold these bytes: their quotes are escaped."""
    return f'"{_CHECKSUM}":"{checksum}"'.encode()


def _verify(content: bytes, end: int, checksum: str, writer: str, what: str) -> None:
    """Compare the content of a file with its checksum.

    Raises:
        ValueError: they differ.
    """
    header = content[:end].replace(_entry(checksum), _entry(_BLANK), 1)
    found = hashlib.sha256(header)
    found.update(memoryview(content)[end:])
    if writer != "tape-nn" or checksum != f"sha256:{found.hexdigest()}":
        raise ValueError(
            f"{what} is damaged: it does not have the checksum that was written with it. (Where another program has "
            f"changed the file on purpose, it should leave {_CHECKSUM!r} and {_WRITER!r} out of the metadata.)"
        )


def _to_bytes(name: str, value: Any) -> tuple[str, Any]:
    """The name of the dtype, and a NumPy array of the bytes as the format has them: little-endian, in C order."""
    import numpy as np

    tensor = value if isinstance(value, tc.Tensor) else tc.asarray(value)
    dtype = tensor.dtype.name
    if dtype not in _DTYPES.values():
        raise TypeError(f"save_tensors: {name!r} has dtype {dtype}, which the safetensors format lacks")
    array = tensor.backend.numpy(tensor.array)
    if dtype == "bfloat16":  # the upper half of a float32; NumPy has none
        array = (np.asarray(array, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return dtype, np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _from_bytes(entry: Mapping[str, Any]) -> Any:
    """A NumPy array of what is stored; bfloat16 as float32."""
    import numpy as np

    dtype = _DTYPES[entry["dtype"]]
    stored = np.dtype({"bfloat16": "uint16", "bool": "uint8"}.get(dtype, dtype))
    shape = tuple(entry["shape"])
    if len(entry["data"]) != math.prod(shape) * stored.itemsize:
        raise ValueError(f"{len(entry['data'])} bytes for shape {shape}")
    array = np.frombuffer(entry["data"], dtype=stored.newbyteorder("<")).astype(stored, copy=False).reshape(shape)
    if dtype == "bool":
        if array.size and array.max() > 1:
            raise ValueError("a truth value is neither 0 nor 1")
        return array.view(np.bool_)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def _placed(array: Any, is_low: bool, backend: Any, device: str | None) -> tc.Tensor:
    """A Tensor of what was stored; of bfloat16 where it is to be that, and the backend has it."""
    tensor = tc.asarray(array, backend=backend, device=device, copy=True)
    if not is_low:
        return tensor
    try:
        return tc.astype(tensor, tc.bfloat16)
    except TypeError:  # the backend has none
        return tensor
