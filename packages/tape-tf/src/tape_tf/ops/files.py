"""tf.io for local files: reading and writing, `tf.io.gfile`, raw bytes, CSV lines, serialized tensors."""

from __future__ import annotations

import base64
import csv
import glob as globbing
import gzip
import math
import os
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal

import numpy as np

from tape_tf import dtypes, wire
from tape_tf.conversion import convert_to_tensor
from tape_tf.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from tape_tf.names import exported
from tape_tf.ops.text import Text, decoded, map_strings
from tape_tf.string_tensor import StringTensor, strings_of, wrap_strings
from tape_tf.typing import DTypeLike, TensorLike

PathLike = Any
"""A path: str, bytes, a path object, or a tensor of one string."""


def local_path(path: PathLike) -> str:
    """Return a path as text.

    Raises:
        UnimplementedError: it is on another machine, such as `gs://...`.
    """
    if isinstance(path, StringTensor | np.ndarray | np.generic):
        path = decoded(strings_of(path).item())
    text = os.fsdecode(path)
    scheme, mark, rest = text.partition("://")
    if not mark or scheme == "file":
        return rest if mark else text
    raise UnimplementedError(
        None,
        None,
        f"File system scheme '{scheme}' not implemented (file: '{text}'): files are local; copy it here before, or "
        "use tf.keras.utils.get_file for http",
    )


# -- whole files


@exported("io.read_file")
def read_file(filename: PathLike, name: str | None = None) -> StringTensor:
    """Return the content of a local file, a string.

    Raises:
        tf.errors.NotFoundError: there is no such file.
    """
    path = local_path(filename)
    try:
        with open(path, "rb") as file:
            return wrap_strings(file.read())
    except FileNotFoundError:
        raise NotFoundError(None, None, f"{path}; No such file or directory") from None


@exported("io.write_file")
def write_file(filename: PathLike, contents: Text, name: str | None = None) -> None:
    """Write a string to a local file; folders that are missing are made."""
    path = local_path(filename)
    if folder := os.path.dirname(path):
        os.makedirs(folder, exist_ok=True)
    with open(path, "wb") as file:
        file.write(strings_of(contents).item())


@exported("io.matching_files")
def matching_files(pattern: Text, name: str | None = None) -> StringTensor:
    """Return the paths of files that match a pattern such as `"images/*.png"`, or one of several, sorted."""
    found = {path for one in strings_of(pattern).ravel() for path in glob(one)}
    return wrap_strings(np.array([os.fsencode(path) for path in sorted(found)] or np.empty(0), object))


# -- tf.io.gfile


@exported("io.gfile.glob")
def glob(pattern: PathLike | Sequence[PathLike]) -> list[str]:
    """Return the paths that match a pattern, sorted."""
    patterns = pattern if isinstance(pattern, list | tuple) else [pattern]
    return sorted({path for one in patterns for path in globbing.glob(local_path(one))})


@exported("io.gfile.exists")
def exists(path: PathLike) -> bool:
    """Return whether there is a file or folder."""
    return os.path.exists(local_path(path))


@exported("io.gfile.isdir")
def isdir(path: PathLike) -> bool:
    """Return whether a path is a folder."""
    return os.path.isdir(local_path(path))


@exported("io.gfile.listdir")
def listdir(path: PathLike) -> list[str]:
    """Return the names in a folder."""
    return os.listdir(local_path(path))


@exported("io.gfile.makedirs")
def makedirs(path: PathLike) -> None:
    """Make a folder and those above it; one that exists stays."""
    os.makedirs(local_path(path), exist_ok=True)


@exported("io.gfile.mkdir")
def mkdir(path: PathLike) -> None:
    """Make a folder."""
    os.mkdir(local_path(path))


@exported("io.gfile.remove")
def remove(path: PathLike) -> None:
    """Delete a file."""
    os.remove(local_path(path))


@exported("io.gfile.rmtree")
def rmtree(path: PathLike) -> None:
    """Delete a folder and all that is in it."""
    shutil.rmtree(local_path(path))


@exported("io.gfile.rename")
def rename(src: PathLike, dst: PathLike, overwrite: bool = False) -> None:
    """Move a file; one that exists is kept unless `overwrite` is set."""
    _check_free(dst, overwrite)
    os.replace(local_path(src), local_path(dst))


@exported("io.gfile.copy")
def copy(src: PathLike, dst: PathLike, overwrite: bool = False) -> None:
    """Copy a file; one that exists is kept unless `overwrite` is set."""
    _check_free(dst, overwrite)
    shutil.copyfile(local_path(src), local_path(dst))


def _check_free(path: PathLike, overwrite: bool) -> None:
    if os.path.exists(local_path(path)) and not overwrite:
        raise FileExistsError(f"there is {local_path(path)!r} already: set overwrite=True to replace it")


@exported("io.gfile.join")
def join(path: PathLike, *paths: PathLike) -> str:
    """Join the parts of a path."""
    return os.path.join(local_path(path), *map(local_path, paths))


@exported("io.gfile.stat")
def stat(path: PathLike) -> os.stat_result:
    """Return what the system knows of a file."""
    return os.stat(local_path(path))


@exported("io.gfile.walk")
def walk(top: PathLike, topdown: bool = True, onerror: Any = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder below a path, with the names of its folders and its files."""
    return os.walk(local_path(top), topdown, onerror)


@exported("io.gfile.GFile")
def GFile(name: PathLike, mode: str = "r") -> IO[Any]:
    """Open a local file, as Python's `open` does."""
    return open(local_path(name), mode, encoding=None if "b" in mode else "utf-8")


# -- bytes and text


@exported("io.decode_raw")
def decode_raw(
    input_bytes: Text, out_type: DTypeLike, little_endian: bool = True, fixed_length: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Return the numbers that strings hold as bytes, along a new last dimension.

    >>> import tape_tf as tf
    >>> tf.io.decode_raw(tf.constant(b"\\x01\\x02"), tf.uint8).numpy()
    array([1, 2], dtype=uint8)

    Raises:
        InvalidArgumentError: the strings differ in length, or end within a number.
    """
    kind = np.dtype(dtypes.as_dtype(out_type).as_numpy_dtype)
    given = strings_of(input_bytes)
    parts = [part if fixed_length is None else part[:fixed_length].ljust(fixed_length, b"\0") for part in given.flat]
    sizes = {len(part) for part in parts}
    if len(sizes) > 1 or any(size % kind.itemsize for size in sizes):
        raise InvalidArgumentError(
            None,
            None,
            f"decode_raw: strings of {', '.join(map(str, sorted(sizes)))} bytes are not rows of one length of "
            f"{kind.itemsize} bytes each",
        )
    order = kind.newbyteorder("<" if little_endian else ">")
    rows = np.frombuffer(b"".join(parts), order).astype(kind)
    return convert_to_tensor(rows.reshape((*given.shape, max(sizes, default=0) // kind.itemsize)))


@exported("io.decode_base64")
def decode_base64(input: Text, name: str | None = None) -> Any:
    """Decode web-safe base64, with or without padding."""
    return map_strings(lambda part: base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)), input)


@exported("io.encode_base64")
def encode_base64(input: Text, pad: bool = False, name: str | None = None) -> Any:
    """Encode as web-safe base64."""
    return map_strings(lambda part: base64.urlsafe_b64encode(part).rstrip(b"" if pad else b"="), input)


@exported("io.decode_compressed")
def decode_compressed(bytes: Text, compression_type: str = "", name: str | None = None) -> Any:
    """Decompress strings: `"GZIP"`, `"ZLIB"` or `""`."""
    functions = {"": lambda part: part, "GZIP": gzip.decompress, "ZLIB": zlib.decompress}
    if compression_type not in functions:
        raise InvalidArgumentError(None, None, f"compression_type must be one of {list(functions)}")
    return map_strings(functions[compression_type], bytes)


def default_of(value: Any) -> tuple[dtypes.DType, Any]:
    """Return the dtype of a column and its default, None if the column is required, as TensorFlow describes it."""
    if isinstance(value, dtypes.DType | type):
        return dtypes.as_dtype(value), None
    found = convert_to_tensor(value)
    if found.dtype is dtypes.string:
        first: Any = strings_of(found).ravel()
    else:
        first = np.ravel(found.numpy())
    return found.dtype, first[0] if len(first) else None


def parse_field(text: str, dtype: dtypes.DType, default: Any, place: str, na_value: str = "") -> Any:
    """Return a field of a CSV file as a value of a dtype.

    Raises:
        InvalidArgumentError: it is empty and required, or no number of the dtype.
    """
    if text == na_value and default is not None:
        return default
    if text == "" and dtype is not dtypes.string:
        raise InvalidArgumentError(None, None, f"{place} is required but missing")
    if dtype is dtypes.string:
        return text.encode()
    try:
        return dtype.as_numpy_dtype(int(text) if dtype.is_integer else float(text))
    except (ValueError, OverflowError):
        raise InvalidArgumentError(None, None, f"{place} is not a valid {dtype.name}: {text}") from None


@exported("io.decode_csv")
def decode_csv(
    records: Text, record_defaults: Sequence[Any], field_delim: str = ",", use_quote_delim: bool = True,
    na_value: str = "", select_cols: Sequence[int] | None = None, name: str | None = None,
) -> list[Any]:  # fmt: skip
    """Split lines of CSV into columns, a tensor each.

    Args:
        record_defaults: for each column its default, such as `[0.0]`; `[]` or a dtype for one that is required.
        select_cols: the numbers of the columns that are wanted.
    """
    lines = strings_of(records)
    columns = [default_of(value) for value in record_defaults]
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    rows = list(csv.reader([decoded(line) for line in lines.ravel()], delimiter=field_delim, quoting=quoting))
    wanted = range(len(columns)) if select_cols is None else select_cols
    found = []
    for (dtype, default), column in zip(columns, wanted, strict=True):
        out = np.empty(len(rows), dtype.as_numpy_dtype)
        for k, row in enumerate(rows):
            if (select_cols is None and len(row) != len(columns)) or column >= len(row):
                raise InvalidArgumentError(
                    None, None, f"Expect {len(columns)} fields but have {len(row)} in record {k}"
                )
            out[k] = parse_field(row[column], dtype, default, f"Field {column} in record {k}", na_value)
        found.append(wrap_strings(out.reshape(lines.shape)) if dtype is dtypes.string else out.reshape(lines.shape))
    return [convert_to_tensor(part) for part in found]


# -- serialized tensors: TensorFlow's message TensorProto

_DTYPE_NUMBERS = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7, "complex64": 8, "int64": 9,
    "bool": 10, "bfloat16": 14, "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
_BY_NUMBER = {number: name for name, number in _DTYPE_NUMBERS.items()}
# Fields of TensorProto, by their numbers.
_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_VALUES = {5: "<f4", 6: "<f8", 7: "varint", 10: "varint", 11: "varint", 16: "varint", 17: "varint"}


@exported("io.serialize_tensor")
def serialize_tensor(tensor: TensorLike, name: str | None = None) -> StringTensor:
    """Return a string that holds a tensor, for :func:`parse_tensor` and for TensorFlow's own."""
    found = convert_to_tensor(tensor)
    message = wire.varint_field(_DTYPE, _DTYPE_NUMBERS[found.dtype.name])
    lengths = b"".join(wire.bytes_field(2, wire.varint_field(1, length, keep_zero=True)) for length in found.shape)
    message += wire.bytes_field(_SHAPE, lengths)
    if isinstance(found, StringTensor):
        message += b"".join(wire.bytes_field(_STRINGS, part) for part in strings_of(found).flat)
    else:
        values = np.ascontiguousarray(found.numpy())
        if sys.byteorder == "big":
            values = values.byteswap()
        message += wire.bytes_field(_CONTENT, values.tobytes())
    return wrap_strings(message)


@exported("io.parse_tensor")
def parse_tensor(serialized: Text, out_type: DTypeLike, name: str | None = None) -> Any:
    """Return the tensor that a string holds: the inverse of :func:`serialize_tensor`.

    Raises:
        InvalidArgumentError: it holds none, or one of another dtype.
    """
    wanted = dtypes.as_dtype(out_type)
    fields = wire.fields(strings_of(serialized).item(), "parse_tensor")
    number = next((value for key, value in fields if key == _DTYPE), 0)
    if _BY_NUMBER.get(number) != wanted.name:
        raise InvalidArgumentError(
            None,
            None,
            f"Type mismatch between parsed tensor ({_BY_NUMBER.get(number, number)}) and dtype ({wanted.name})",
        )
    sizes = [
        wire.signed(next((size for at, size in wire.fields(part, "parse_tensor") if at == 1), 0))
        for key, shape in fields
        if key == _SHAPE
        for where, part in wire.fields(shape, "parse_tensor")
        if where == 2
    ]
    count = math.prod(sizes)
    if wanted is dtypes.string:
        parts = [value for key, value in fields if key == _STRINGS]
        out = np.empty(len(parts), object)
        out[:] = parts
        return wrap_strings(_filled(out, count).reshape(sizes))
    kind = np.dtype(wanted.as_numpy_dtype)
    content = b"".join(value for key, value in fields if key == _CONTENT)
    if content:
        if len(content) != count * kind.itemsize:
            raise InvalidArgumentError(None, None, f"parse_tensor: {len(content)} bytes for the shape {sizes}")
        return convert_to_tensor(np.frombuffer(content, kind.newbyteorder("<")).astype(kind).reshape(sizes))
    values: list[Any] = []
    for key, value in fields:
        if key in _VALUES:
            packed = value if isinstance(value, bytes) else None
            if _VALUES[key] != "varint":
                values += np.frombuffer(packed or b"", _VALUES[key]).tolist()
            else:
                values += [wire.signed(n) for n in (wire.varints(packed) if packed is not None else [value])]
    return convert_to_tensor(_filled(np.array(values).astype(kind), count).reshape(sizes))


def _filled(values: Any, count: int) -> Any:
    """Return the values, the last of which stands for all further ones: TensorProto leaves out repetitions."""
    if len(values) > count or (count and not len(values)):
        raise InvalidArgumentError(None, None, f"parse_tensor: {len(values)} values for a shape of {count} elements")
    return np.concatenate([values, np.repeat(values[-1:], count - len(values))])
