"""TFRecord files: writing and reading records, each with its checksum."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from tape_tf.checksum import masked_crc32c
from tape_tf.errors import DataLossError, InvalidArgumentError, NotFoundError
from tape_tf.names import exported
from tape_tf.ops.files import PathLike, local_path
from tape_tf.string_tensor import strings_of

_COMPRESSIONS = ("", "GZIP", "ZLIB")


def compression_of(options: Any) -> str:
    """Return the name of a compression, given as one or in TFRecordOptions."""
    found = getattr(options, "compression_type", options) or ""
    if found not in _COMPRESSIONS:
        raise InvalidArgumentError(None, None, f"compression_type must be one of {_COMPRESSIONS}, got {found!r}")
    return str(found)


class _ZlibReader:
    """A file that is decompressed while it is read."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed in __exit__
        self._zlib, self._waiting = zlib.decompressobj(), b""

    def read(self, size: int = -1) -> bytes:
        while (size < 0 or len(self._waiting) < size) and (block := self._file.read(1 << 16)):
            self._waiting += self._zlib.decompress(block)
        end = len(self._waiting) if size < 0 else size
        found, self._waiting = self._waiting[:end], self._waiting[end:]
        return found

    def __enter__(self) -> _ZlibReader:
        return self

    def __exit__(self, *args: object) -> None:
        self._file.close()


def open_for_reading(path: PathLike, compression: str) -> Any:
    """Open a local file, which may be compressed.

    Raises:
        NotFoundError: there is no such file.
    """
    name = local_path(path)
    try:
        if compression == "ZLIB":
            return _ZlibReader(name)
        return gzip.open(name) if compression == "GZIP" else open(name, "rb")
    except FileNotFoundError:
        raise NotFoundError(None, None, f"{name}; No such file or directory") from None


@exported("io.TFRecordOptions")
class TFRecordOptions:
    """The options of a TFRecordWriter: the compression, `""`, `"GZIP"` or `"ZLIB"`, and its level."""

    def __init__(self, compression_type: str | None = None, compression_level: int | None = None) -> None:
        self.compression_type = compression_of(compression_type)
        self.compression_level = 6 if compression_level is None else compression_level


@exported("io.TFRecordWriter")
class TFRecordWriter:
    """Writes records, strings of bytes, to a TFRecord file. Use it in a `with` statement, which closes it.

    >>> import tape_tf as tf, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "data.tfrecord")
    >>> with tf.io.TFRecordWriter(path) as writer:
    ...     writer.write(b"one")
    ...     writer.write("two")
    >>> [record.numpy() for record in tf.data.TFRecordDataset(path)]
    [b'one', b'two']
    """

    def __init__(self, path: PathLike, options: TFRecordOptions | str | None = None) -> None:
        name, compression = local_path(path), compression_of(options)
        level = getattr(options, "compression_level", 6)
        self._compress: Any = zlib.compressobj(level) if compression == "ZLIB" else None
        # Closed by `close`, which the `with` statement calls.
        self._file: Any = gzip.open(name, "wb", level) if compression == "GZIP" else open(name, "wb")  # noqa: SIM115

    def write(self, record: Any) -> None:
        """Write a record: bytes, str, or a tensor of one string."""
        data: bytes = strings_of(record).item()
        # The checksums of the length and of the data are apart, so that a damaged length is not trusted.
        length = struct.pack("<Q", len(data))
        self._put(length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data)))

    def _put(self, data: bytes) -> None:
        self._file.write(data if self._compress is None else self._compress.compress(data))

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if not self._file.closed:
            if self._compress is not None:
                self._file.write(self._compress.flush())
            self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def read_records(path: PathLike, compression: str = "") -> Iterator[bytes]:
    """Yield the records of a TFRecord file.

    Raises:
        DataLossError: the file is damaged, or is no TFRecord file.
        NotFoundError: there is no such file.
    """
    with open_for_reading(path, compression) as file:
        place = 0
        size = os.path.getsize(local_path(path))
        while head := _read(file, 12, path, place):
            if len(head) < 12 or struct.unpack("<I", head[8:])[0] != masked_crc32c(head[:8]):
                raise _damaged(path, place)
            (length,) = struct.unpack("<Q", head[:8])
            if not compression and length > size:  # the checksum was right, and yet: nothing is allocated for it
                raise _damaged(path, place)
            data = _read(file, length, path, place)
            tail = _read(file, 4, path, place)
            if len(data) < length or len(tail) < 4 or struct.unpack("<I", tail)[0] != masked_crc32c(data):
                raise _damaged(path, place)
            yield data
            place += length + 16


def _read(file: Any, size: int, path: PathLike, place: int) -> bytes:
    try:
        found: bytes = file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, place, f": {error}") from None
    return found


def _damaged(path: PathLike, place: int, why: str = "") -> DataLossError:
    return DataLossError(
        None,
        None,
        f"corrupted record at {place} in {local_path(path)!r}{why}; is it a TFRecord file, with this compression_type?",
    )
