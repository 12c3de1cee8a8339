"""Files of named tensors, in the safetensors format: no code in them, and the same for every backend."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import tape_core as tc
from safetensors import SafetensorError, TensorSpec, deserialize, serialize_file

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
    for key, text in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"save_tensors: metadata are strings by name; got {key!r}: {text!r}")
    arrays, specs = [], {}
    for name, value in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"save_tensors: {name!r} cannot be the name of a tensor")
        dtype, array = _to_bytes(name, value)
        arrays.append(array)  # a spec holds an address only
        specs[name] = TensorSpec(
            dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data if array.size else 0, data_len=array.nbytes
        )
    target = os.path.realpath(path)
    folder, file = os.path.split(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save_tensors: there is no folder {folder!r}")
    draft = os.path.join(folder, f".{file}.{secrets.token_hex(8)}")
    try:
        with open(draft, "xb") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        serialize_file(specs, draft, metadata=dict(metadata) if metadata else None)
        os.chmod(draft, mode)  # serialize_file makes a file that only its owner may read
        _sync(draft, os.O_RDWR)
        os.replace(draft, target)
    except SafetensorError as error:
        raise OSError(f"save_tensors: {target!r} cannot be written: {error}") from error
    finally:
        if os.path.exists(draft):
            os.remove(draft)
    if os.name == "posix":  # the new name, too; elsewhere folders cannot be opened
        _sync(folder, os.O_RDONLY)


def load_tensors(
    path: Path,
    *,
    like: Mapping[str, tc.Tensor] | None = None,
    backend: str | Backend | None = None,
    device: str | None = None,
) -> tuple[dict[str, tc.Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that :func:`save_tensors` or any other program wrote.

    On a backend without bfloat16 such values come as float32, which holds all of them exactly.

    Args:
        path: of the file.
        like: what is named here comes on the backend and the device of the Tensor of that name.
        backend, device: where the others come, as in :func:`tape_core.asarray`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged or in another format.
        TypeError: it has a dtype that Tensors do not have.
    """
    with open(path, "rb") as stream:
        content = stream.read()
    file = os.fspath(path)
    try:
        entries = deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(f"load_tensors: {file!r} is damaged or not in safetensors format: {error}") from error
    # deserialize has checked the header, and gives all of it but the metadata.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    if unknown := [f"{name!r} ({entry['dtype']})" for name, entry in entries if entry["dtype"] not in _DTYPES]:
        raise TypeError(f"load_tensors: {file!r} has dtypes that Tensors do not have: {', '.join(unknown)}")
    if backend is None and device is None:
        backend = tc.get_backend()
    like = like or {}
    tensors = {}
    for name, entry in entries:
        place = like.get(name)
        where = (backend, device) if place is None else (place.backend, place.device)
        tensors[name] = _from_bytes(entry, *where)
    return tensors, header.get("__metadata__", {})


def remove_drafts(path: Path) -> None:
    """Remove what a program left that was killed within :func:`save_tensors`. No other may be writing to `path`."""
    folder, file = os.path.split(os.path.realpath(path))
    draft = re.compile(rf"\.{re.escape(file)}\.[0-9a-f]{{16}}")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if draft.fullmatch(name):
            os.remove(os.path.join(folder, name))


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


def _from_bytes(entry: Mapping[str, Any], backend: Any, device: str | None) -> tc.Tensor:
    import numpy as np

    dtype = _DTYPES[entry["dtype"]]
    stored = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    array = np.frombuffer(entry["data"], dtype=stored.newbyteorder("<")).astype(stored, copy=False)
    array = array.reshape(entry["shape"])
    if dtype != "bfloat16":
        return tc.asarray(array, backend=backend, device=device, copy=True)
    tensor = tc.asarray((array.astype(np.uint32) << 16).view(np.float32), backend=backend, device=device)
    try:
        return tc.astype(tensor, tc.bfloat16)
    except TypeError:  # the backend has none
        return tensor


def _sync(path: str, flags: int) -> None:
    """Have the system write out what it holds of a file or a folder."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
