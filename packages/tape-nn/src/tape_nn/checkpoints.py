"""Files of named tensors in the safetensors format, which holds no code and is the same for every backend.

A file begins with the length of its header, as 8 bytes, and the header, JSON that gives the dtype, the shape and the
place of each tensor; then come the values. See https://github.com/huggingface/safetensors.

A file that is written here has a checksum among its metadata, `"tape.checksum"`: the SHA-256 of all its bytes, with
zeros in place of the checksum. A file without one, from another program, is read unchecked.
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
from tape_core.support import contextmanager, is_draft_of, layouts, write_whole
from tape_core.typing import ArrayLike, Raw

from tape_nn.thresholds import DRAFT_ABANDONED_AFTER
from tape_nn.types import BackendLike

if TYPE_CHECKING:
    from tape_core.backends import Backend

Path: TypeAlias = str | os.PathLike[str]

# The dtypes of the format, by its codes. It has no complex128.
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
_BLANK_CHECKSUM: Final = "sha256:" + "0" * 64

HEADER_LENGTH_BYTES: Final = 8  # at the beginning of a file: the length of the header, little-endian


def save_tensors(path: Path, tensors: Mapping[str, ArrayLike], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors to a file.

    The write is atomic: a draft is written beside `path`, and then renamed to it. A crash leaves either the old file
    or the new one.

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
    # Callers without a type checker may pass anything: the checks below are for them.
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
        # The format keeps metadata in the header beside the tensors, under this name.
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"save_tensors: {name!r} cannot be the name of a tensor")
        arrays[name] = _to_bytes(name, value)
    # The widest dtype first: so each array begins at a multiple of its itemsize, as other readers of the format want.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1][1].itemsize, item[0]))
    header = _header(ordered, metadata or {})
    # Not joined to one string of bytes, which would double the memory that a checkpoint takes.
    pieces: list[bytes | memoryview] = [header]
    # Flat, since an array of shape () cannot be viewed with another itemsize.
    pieces += [memoryview(array.reshape(-1).view("uint8")) for _, (_, array) in ordered]
    checksum = hashlib.sha256()
    for piece in pieces:
        checksum.update(piece)
    # The checksum was computed with a blank one of the same length, so that nothing moves.
    pieces[0] = header.replace(_checksum_entry(_BLANK_CHECKSUM), _checksum_entry(f"sha256:{checksum.hexdigest()}"), 1)
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save_tensors: there is no folder {folder!r}")
    # Shared: many may write into one folder. It only keeps `remove_drafts` from taking this draft for an abandoned one.
    with _locked(folder, exclusive=False):
        write_whole("save_tensors", [(target, pieces)])


def load_tensors(
    path: Path,
    *,
    like: Mapping[str, tc.Tensor] | None = None,
    backend: str | Backend | None = None,
    device: str | None = None,
) -> tuple[dict[str, tc.Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file that :func:`save_tensors` or any other program wrote.

    bfloat16 is read as float32, which holds its values exactly, in two cases: where the Tensor of that name in `like`
    is float32, and where the backend has no bfloat16 (NumPy has it with the package ml_dtypes).

    Args:
        path: of the file.
        like: a tensor whose name is here is put on the backend and the device of this Tensor.
        backend, device: where all other tensors are put, as in :func:`tape_core.asarray`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged or in another format.
        TypeError: it has a dtype that Tensors do not have.
    """
    path = os.fspath(path)  # refuses an integer, which `open` would take for a file descriptor
    with open(path, "rb") as stream:
        # As a whole, not mapped into memory: the checksum needs all bytes anyway.
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
    """Return the tensors and the metadata in the content of a file; see :func:`load_tensors`.

    Args:
        content: the whole file.
        what: the beginning of error messages, which names the file.
    """
    try:
        entries = deserialize(content)  # type: ignore[no-untyped-call]
        # `deserialize` has checked the header, and returns all of it but the metadata.
        end = HEADER_LENGTH_BYTES + int.from_bytes(content[:HEADER_LENGTH_BYTES], "little")
        metadata = json.loads(content[HEADER_LENGTH_BYTES:end]).get("__metadata__") or {}
    # ValueError: no JSON, or no UTF-8; RecursionError: JSON nested thousands of levels deep.
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} is damaged or not in safetensors format: {error}") from error
    if _CHECKSUM in metadata or _WRITER in metadata:
        _verify(content, end, metadata.pop(_CHECKSUM, ""), metadata.pop(_WRITER, ""), what)
    if unknown := [f"{name!r} ({entry['dtype']})" for name, entry in entries if entry["dtype"] not in _DTYPES]:
        raise TypeError(f"{what} has dtypes that Tensors do not have: {', '.join(unknown)}")
    # The backend that is selected, once for all: otherwise each NumPy array would choose that of its own library.
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
        to_bfloat16 = entry["dtype"] == "BF16" and (place is None or place.dtype is not tc.float32)
        tensors[name] = _to_tensor(array, to_bfloat16, *where)
    return tensors, metadata


def remove_drafts(path: Path) -> None:
    """Remove the drafts of a program that was killed within :func:`save_tensors`.

    Nothing is removed while another program writes into the folder, since a draft may be that program's.
    """
    folder, file = os.path.split(os.path.realpath(path))
    found = [name for name in (os.listdir(folder) if os.path.isdir(folder) else ()) if is_draft_of(file, name)]
    if not found:
        return
    with _locked(folder, exclusive=True) as alone:
        for name in found:
            place = os.path.join(folder, name)
            with suppress(FileNotFoundError):  # it was finished, or another program has removed it
                if alone or (alone is None and time.time() - os.stat(place).st_mtime > DRAFT_ABANDONED_AFTER):
                    os.remove(place)


@contextmanager
def _locked(folder: str, exclusive: bool) -> Iterator[bool | None]:
    """Hold a lock on a folder: shared by many that write, exclusive for one that removes drafts.

    The operating system releases it when a program is killed. An exclusive lock is not waited for: the context gives
    True if it is held, False if another program writes, None where folders cannot be locked.
    """
    if sys.platform == "win32":
        yield None
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # A lock on the folder itself, and not on a lock file, which would have to be removed by somebody.
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


def _header(ordered: list[tuple[str, tuple[str, Raw]]], metadata: Mapping[str, str]) -> bytes:
    """Return the beginning of a file: the length of the header, and the header, padded to a multiple of 8 bytes."""
    table: dict[str, Any] = {"__metadata__": {_CHECKSUM: _BLANK_CHECKSUM, _WRITER: "tape-nn", **metadata}}
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
    # Spaces are what the format pads with: to a JSON parser they are nothing.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(HEADER_LENGTH_BYTES, "little") + text


def _checksum_entry(checksum: str) -> bytes:
    """Return the header's entry with the checksum.

    It can be found by its bytes: no name and no text in the header holds them, since their quotes are escaped.
    """
    return f'"{_CHECKSUM}":"{checksum}"'.encode()


def _verify(content: bytes, end: int, checksum: str, writer: str, what: str) -> None:
    """Raise a ValueError if the content of a file does not have its checksum."""
    header = content[:end].replace(_checksum_entry(checksum), _checksum_entry(_BLANK_CHECKSUM), 1)
    found = hashlib.sha256(header)
    found.update(memoryview(content)[end:])
    if writer != "tape-nn" or checksum != f"sha256:{found.hexdigest()}":
        raise ValueError(
            f"{what} is damaged: it does not have the checksum that was written with it. (Where another program has "
            f"changed the file on purpose, it should leave {_CHECKSUM!r} and {_WRITER!r} out of the metadata.)"
        )


def _to_bytes(name: str, value: ArrayLike) -> tuple[str, Raw]:
    """Return the name of the dtype, and a NumPy array as the format stores it: little-endian, in C order."""
    import numpy as np

    tensor = value if isinstance(value, tc.Tensor) else tc.asarray(value)
    dtype = tensor.dtype.name
    if dtype not in _DTYPES.values():
        raise TypeError(f"save_tensors: {name!r} has dtype {dtype}, which the safetensors format lacks")
    try:
        array = tensor.backend.numpy(tensor.array)
    except ValueError as error:
        if layouts.in_use and layouts.is_divided(tensor):
            error.add_note(
                f"This is {name!r} of what is to be written: strategy.save_weights(model, path) writes whole weights, "
                f"and save_run(..., parallel=strategy) a loop"
            )
        raise
    if dtype == "bfloat16":  # NumPy has none: store the upper half of the float32, which is the same number
        array = (np.asarray(array, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return dtype, np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _from_bytes(entry: Mapping[str, Any]) -> Raw:
    """Return an entry of a file as a NumPy array; bfloat16 as float32."""
    import numpy as np

    dtype = _DTYPES[entry["dtype"]]
    stored = np.dtype({"bfloat16": "uint16", "bool": "uint8"}.get(dtype, dtype))
    shape = tuple(entry["shape"])
    # A shape that does not fit the bytes would read beyond them, or leave some out.
    if len(entry["data"]) != math.prod(shape) * stored.itemsize:
        raise ValueError(f"{len(entry['data'])} bytes for shape {shape}")
    array = np.frombuffer(entry["data"], dtype=stored.newbyteorder("<")).astype(stored, copy=False).reshape(shape)
    if dtype == "bool":
        # NumPy takes any byte for a bool, and computes nonsense with those other than 0 and 1.
        if array.size and array.max() > 1:
            raise ValueError("a truth value is neither 0 nor 1")
        return array.view(np.bool_)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def _to_tensor(array: Raw, to_bfloat16: bool, backend: BackendLike, device: str | None) -> tc.Tensor:
    """Copy a NumPy array to a backend, with `to_bfloat16` in that dtype if the backend has it."""
    # A copy: an array of `np.frombuffer` shares its memory with the bytes, and is read-only where these are.
    tensor = tc.asarray(array, backend=backend, device=device, copy=True)
    if not to_bfloat16:
        return tensor
    try:
        return tc.astype(tensor, tc.bfloat16)
    except TypeError:  # the backend has none
        return tensor
