"""Arrays in HDF5 files, as Keras keeps them: groups named `vars`, whose datasets are numbered.

A file may come from anywhere. It is read through a walk that follows no links, meets each object once, and checks how
much memory the arrays would take before it takes any; nothing in an HDF5 file is code.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""The first bytes of every HDF5 file."""

VARIABLES = "vars"
"""The name of the groups in which Keras keeps the arrays of one object."""

_CHECKSUM = "tape_crc32"  # an attribute of the file: Keras ignores it
_MAX_OBJECTS = 1 << 20
_MAX_DEPTH = 64
_BYTES_PER_BYTE = 1000  # a compressed array takes at most this many bytes of memory for a byte of the file
_FREE_BYTES = 1 << 26  # what may be taken in any case: small files can have chunks larger than themselves


@dataclass
class Entry:
    """What one object keeps in a file: its arrays by number, and the name that it had."""

    name: str | None = None
    arrays: list[np.ndarray[Any, Any]] = field(default_factory=list)


class Budget:
    """The memory that the arrays of a file may still take."""

    def __init__(self, size: int) -> None:
        self.left = _FREE_BYTES + _BYTES_PER_BYTE * size

    def take(self, what: str, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError(f"{what!r} would take {size} bytes of memory, far more than the file has")


def require_h5py(what: str) -> Any:
    """Import h5py, which is an optional dependency.

    Raises:
        ModuleNotFoundError: it is not installed; the message says for what it is needed.
    """
    try:
        return import_module("h5py")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{what}: files of Keras hold their weights in the HDF5 format, which takes the package h5py: "
            "pip install 'tape-tf[keras-files]'",
            name="h5py",
        ) from error


def write_entries(target: Any, entries: Mapping[str, Entry]) -> None:
    """Write the arrays of objects, by path, into a new HDF5 file; the path of the whole is empty.

    Args:
        target: a path, or a binary stream that can be read, too.
    """
    h5py = require_h5py("save")
    with h5py.File(target, "w") as file:
        for path, entry in entries.items():
            group = file.create_group(f"{path}/{VARIABLES}" if path else VARIABLES)
            if entry.name is not None:
                group.attrs["name"] = entry.name
            for number, array in enumerate(entry.arrays):
                group.create_dataset(str(number), data=array)
        file.attrs[_CHECKSUM] = checksum(entries)


def read_entries(stream: BinaryIO) -> dict[str, Entry]:
    """Read the arrays of all objects in an HDF5 file, by path.

    Raises:
        ValueError: a part is none that Keras writes, such as a link, or the arrays take far more memory than the file.
        Exception: whatever h5py raises for a damaged file.
    """
    with open_file(stream) as file:
        size = stream.seek(0, 2)
        found: dict[str, Entry] = {}
        budget = Budget(size)
        for path, group in _groups(file):
            parent, _, last = path.rpartition("/")
            if last == VARIABLES:
                found[parent] = Entry(_name(group), _numbered(path, group, budget))
        expected = file.attrs.get(_CHECKSUM)
        # Keras writes none; a file that was written here has one, since HDF5 itself would not notice a changed bit.
        if expected is not None and int(expected) != checksum(found):
            raise ValueError("its arrays are not those that were written: the checksum differs")
        return found


def open_file(stream: BinaryIO) -> Any:
    """Open a stream for reading."""
    return require_h5py("load").File(stream, "r")


def check_groups(file: Any) -> None:
    """Raise a ValueError if a file has links, by which a path would lead elsewhere, or more groups than any model."""
    for _ in _groups(file):
        pass


def read_array(dataset: Any, what: str, budget: Budget) -> np.ndarray[Any, Any]:
    """Return the numbers of a dataset, or raise a ValueError if it is no array of numbers, or too large a one."""
    h5py = require_h5py("load")
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(f"{what!r} is a group, where numbers are expected")
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{what!r} refers to another file; numbers are read from this one alone")
    if dataset.dtype.kind not in "fiub":
        raise ValueError(f"{what!r} holds no numbers, but {dataset.dtype}")
    budget.take(what, math.prod(dataset.shape or ()) * dataset.dtype.itemsize)
    return np.asarray(dataset[()])


def _groups(file: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the groups of a file with their paths, each once, without following links to elsewhere."""
    h5py = require_h5py("load")
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", file)]
    number = 0
    while waiting:
        path, group = waiting.pop()
        # A group may contain itself under another name: HDF5 calls that a hard link.
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            raise ValueError(f"the group {path!r} occurs twice")
        seen.add(address)
        yield path, group
        for name in group:
            number += 1
            if number > _MAX_OBJECTS or path.count("/") > _MAX_DEPTH:
                raise ValueError("it has more groups than any model")
            place = f"{path}/{name}" if path else name
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{place!r} is a link to elsewhere, which Keras does not write")
            if issubclass(group.get(name, getclass=True), h5py.Group):
                waiting.append((place, group[name]))


def _name(group: Any) -> str | None:
    name = group.attrs.get("name")
    return name if isinstance(name, str) else None


def _numbered(path: str, group: Any, budget: Budget) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a group, whose names must be 0, 1, 2 and so on."""
    names = list(group)
    if sorted(names) != sorted(map(str, range(len(names)))):
        raise ValueError(f"the arrays in {path!r} are not numbered: {', '.join(names[:5])}")
    return [read_array(group[str(number)], f"{path}/{number}", budget) for number in range(len(names))]


def checksum(entries: Mapping[str, Entry]) -> int:
    """Return a checksum of arrays and of where they are."""
    found = 0
    for path in sorted(entries):
        for array in entries[path].arrays:
            found = zlib.crc32(f"{path} {array.dtype.str} {array.shape}".encode(), found)
            found = zlib.crc32(np.ascontiguousarray(array).tobytes(), found)
    return found
