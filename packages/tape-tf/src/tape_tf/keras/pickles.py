"""A reader of pickles that hold data: dicts, lists, numbers, text and NumPy arrays. It imports and calls nothing.

Some old datasets, such as CIFAR-10 and IMDB, come in no other form. `pickle` runs what a file names; here the few names
that arrays need stand for the classes below, and any other one is an error.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy

from tape_tf.typing import NumPyArray, PathLike

_NUMBERS = frozenset("?bhilqefd") | {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "b1", "O8", "O"}


class _DType:
    """A dtype of numbers, or of objects, while it is read."""

    def __init__(self, name: Any, *ignored: Any) -> None:
        text = name.decode("ascii") if isinstance(name, bytes) else str(name)
        if text.lstrip("<>=|") not in _NUMBERS:
            raise pickle.UnpicklingError(f"an array of the dtype {text!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if len(state) > 1 and state[1] in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """An array while it is read."""

    array: NumPyArray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        if isinstance(data, str):
            data = data.encode("latin-1")
        order: Literal["F", "C"] = "F" if is_fortran else "C"
        if dtype.dtype == object:
            flat = np.empty(len(data), object)
            flat[:] = [_finished(part) for part in data]
            self.array = flat.reshape(shape, order=order)
        else:
            self.array = np.frombuffer(data, dtype.dtype).reshape(shape, order=order)


def _new_array(*ignored: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin-1" if encoding == "latin1" else "ascii")


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name in a pickle."""
        found = {
            ("numpy.core.multiarray", "_reconstruct"): _new_array,
            ("numpy._core.multiarray", "_reconstruct"): _new_array,
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _DType,
            ("_codecs", "encode"): _encode,
        }.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is neither a number, text nor an array")
        return found

    def persistent_load(self, pid: Any) -> Any:
        """Refuse references to what is outside of the file."""
        raise pickle.UnpicklingError("it refers to what is outside of it")


def _finished(value: Any) -> Any:
    """Replace the arrays that were read in nested lists and dicts."""
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, list) and any(isinstance(part, _Array | list | dict) for part in value):
        return [_finished(part) for part in value]
    if isinstance(value, dict):
        return {key: _finished(part) for key, part in value.items()}
    return value


def read_pickle(data: bytes, what: PathLike) -> Any:
    """Return the dicts, lists, numbers, text and arrays that a pickle holds; text of Python 2 becomes bytes.

    Raises:
        ValueError: it is damaged, or holds anything else.
    """
    try:
        return _finished(_Reader(io.BytesIO(data), encoding="bytes").load())
    except Exception as error:
        raise ValueError(f"{what} is not read: {error}; only numbers, text and arrays are") from error


def read_npz(path: PathLike) -> dict[str, Any]:
    """Return the arrays of an `.npz` file by name, also arrays of lists of numbers.

    Raises:
        ValueError: the file is damaged, or holds anything else.
    """
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                data = archive.read(name)
                stream = io.BytesIO(data)
                version = npy.read_magic(stream)
                read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                _, _, dtype = read_header(stream)
                if dtype.hasobject:
                    values = read_pickle(data[stream.tell() :], path)
                else:
                    values = np.load(io.BytesIO(data), allow_pickle=False)
                found[name.removesuffix(".npy")] = values
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise ValueError(f"{path} is no .npz file that can be read: {error}") from error
    return found
