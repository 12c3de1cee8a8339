"""Elements of datasets in files: `cache` with a name, `snapshot`, `save` and `load`.

A file of elements is a TFRecord file, so that each record has a checksum: first a description of their structure, then
a record for each element, and at the end their number, without which a file that was cut would seem whole. All is data:
a record has the dtypes and shapes of its arrays as JSON, and their bytes.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tape_tf import dtypes
from tape_tf.data.elements import DatasetSpec, is_dataset, leaves, map_structure, strings_or_numbers
from tape_tf.data.source import Source
from tape_tf.drafts import replacing
from tape_tf.errors import DataLossError, InvalidArgumentError, NotFoundError
from tape_tf.ops.files import local_path
from tape_tf.ops.ragged import RaggedTensor, RaggedTensorSpec
from tape_tf.ops.records import TFRecordWriter, read_records
from tape_tf.shapes import TensorSpec
from tape_tf.string_tensor import wrap_strings
from tape_tf.typing import Element, Json, NumPyArray, PathLike

if TYPE_CHECKING:
    from tape_tf.data import Dataset

_FORMAT = "tape-tf dataset 1"
_ELEMENTS = "elements.tfrecord"
_DEEPEST = 64  # of structures: a description that is deeper is no structure that a program would have
_MOST_AXES = 64  # NumPy's limit

_COMPRESSIONS = {"": "", None: "", "NONE": "", "AUTO": "", "SNAPPY": "", "GZIP": "GZIP"}


def compression_named(name: Any, where: str) -> str:
    """Return the compression of files, `""` or `"GZIP"`.

    Raises:
        InvalidArgumentError: it is none of TensorFlow's names for them.
    """
    if name not in _COMPRESSIONS:
        known = ", ".join(repr(one) for one in _COMPRESSIONS if one)
        raise InvalidArgumentError(None, None, f"{where}: compression must be None or one of {known}; got {name!r}")
    return _COMPRESSIONS[name]


class Stored(Source):
    """Methods of a dataset that keep its elements in memory or in files."""

    def cache(self, filename: Any = "", name: str | None = None) -> Dataset:
        """Keep the elements, once they have all been read, in memory or in a file.

        Args:
            filename: the file is `filename` with `.tfrecord` at its end. It is written by the first iteration that
                reads all elements, and read by those that follow, also of later runs of the program: delete it where
                the dataset has changed. By default, elements are in memory.

        Raises:
            TypeError: while the file is written, elements hold datasets, or something else that is no array.
            tf.errors.DataLossError: while iterating, the file is damaged.
        """
        path = local_path(filename)
        if path:
            return self._with_same_spec(lambda: _kept("cache", self._make, f"{path}.tfrecord", ""))
        kept: list[list[Any]] = []  # empty, or one list of all elements: an iteration that is cut short caches nothing

        def make() -> Iterator[Any]:
            if not kept:
                found = []
                for element in self._make():
                    found.append(element)
                    yield element
                kept.append(found)
            else:
                yield from kept[0]

        return self._with_same_spec(make)

    def snapshot(
        self,
        path: PathLike,
        compression: str | None = "AUTO",
        reader_func: Callable[[Any], Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Keep the elements in a folder, so that what comes before is computed once.

        The first iteration that reads all elements writes them, and those that follow read them, also in later runs of
        the program: delete the folder where the dataset has changed. TensorFlow notices some of these changes itself.

        >>> import tempfile
        >>> import tape_tf as tf
        >>> squares = tf.data.Dataset.range(3).map(lambda x: x * x).snapshot(tempfile.mkdtemp())
        >>> [int(x) for x in squares], [int(x) for x in squares]
        ([0, 1, 4], [0, 1, 4])

        Args:
            compression: None or "GZIP"; "AUTO" and "SNAPPY" are as None.
            reader_func: what is made of a dataset with one element, the dataset of what was written, when it is read:
                `lambda datasets: datasets.flat_map(lambda d: d.shuffle(1000))`.
            shard_func: no effect: there is one file.

        Raises:
            TypeError: while the files are written, elements hold datasets, or something else that is no array.
            tf.errors.DataLossError: while iterating, the file is damaged.
        """
        packed = compression_named(compression, "snapshot")
        folder = local_path(path)
        target = os.path.join(folder, _file_name(packed))

        def make() -> Iterator[Any]:
            if reader_func is None or not os.path.exists(target):
                os.makedirs(folder, exist_ok=True)
                yield from _kept("snapshot", self._make, target, packed)
            else:
                yield from _as_read(self, lambda: read_elements(target, packed), reader_func)._make()

        return self._with_same_spec(make)

    def save(
        self,
        path: PathLike,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: None = None,
    ) -> None:
        """Write all elements into a folder, from which :meth:`load` makes a dataset.

        >>> import tempfile
        >>> import tape_tf as tf
        >>> folder = tempfile.mkdtemp()
        >>> tf.data.Dataset.range(3).save(folder)
        >>> [int(x) for x in tf.data.Dataset.load(folder)]
        [0, 1, 2]

        Args:
            compression: None or "GZIP".
            shard_func: no effect: there is one file.
            checkpoint_args: must be None.

        Raises:
            TypeError: elements hold datasets, or something else that is no array.
        """
        if checkpoint_args is not None:
            raise ValueError("save: checkpoint_args is not taken; the elements are written in one go")
        packed = compression_named(compression, "save")
        folder = local_path(path)
        os.makedirs(folder, exist_ok=True)
        for other in {_file_name(""), _file_name("GZIP")} - {_file_name(packed)}:
            Path(folder, other).unlink(missing_ok=True)  # of an earlier dataset there
        spec = encode_spec(self.element_spec) if self._cardinality else None
        for _ in write_elements("save", self._make(), os.path.join(folder, _file_name(packed)), packed, spec):
            pass


def stored_in(path: PathLike, compression: str | None) -> tuple[Callable[[], Iterator[Any]], Any]:
    """Return what reads the elements that `save` has written, and their spec.

    Raises:
        NotFoundError: there are none.
        DataLossError: the file is damaged.
    """
    folder = local_path(path)
    packings = ["", "GZIP"] if compression is None else [compression_named(compression, "load")]
    for packed in packings:
        target = os.path.join(folder, _file_name(packed))
        if os.path.exists(target):
            spec = _described(target, next(iter(read_records(target, packed)), b""))[1]
            return partial(read_elements, target, packed), spec
    raise NotFoundError(None, None, f"{folder}: there is no dataset here that Dataset.save wrote")


def _file_name(packed: str) -> str:
    return f"{_ELEMENTS}.gz" if packed else _ELEMENTS


def _as_read(dataset: Source, make: Callable[[], Iterator[Any]], reader_func: Callable[[Any], Any]) -> Any:
    inner = dataset._new(make, dataset._cardinality, lambda: dataset.element_spec)
    return reader_func(dataset._new(lambda: iter([inner]), 1, lambda: DatasetSpec(dataset.element_spec)))


def _kept(what: str, make: Callable[[], Iterator[Any]], path: str, packed: str) -> Iterator[Any]:
    """Yield the elements of a file; where there is none, those of `make`, of which one is written."""
    return read_elements(path, packed) if os.path.exists(path) else write_elements(what, make(), path, packed)


# -- writing


def write_elements(what: str, elements: Iterator[Any], path: str, packed: str = "", spec: Json = None) -> Iterator[Any]:
    """Yield elements, and write them to a file, which is there when all have been read.

    Raises:
        TypeError: one holds something that no file can have.
    """
    with replacing(what, path) as draft:
        with TFRecordWriter(draft, packed) as writer:
            structure: Json = None
            count = 0
            for element in elements:
                here = _structure(element, what)
                if not count:
                    structure = here
                    writer.write(json.dumps({"format": _FORMAT, "structure": structure, "spec": spec}))
                elif here != structure:
                    raise TypeError(f"{what}: elements of different structures: {structure} and {here}")
                writer.write(b"E" + b"".join(_encoded(leaf, what) for leaf in leaves(element)))
                count += 1
                yield element
            if not count:
                writer.write(json.dumps({"format": _FORMAT, "structure": None, "spec": spec}))
            writer.write(b"N" + struct.pack("<Q", count))


def _structure(element: Element, what: str) -> Json:
    if type(element) is tuple:
        return [_structure(part, what) for part in element]
    if type(element) is dict and all(type(key) is str for key in element):
        return {key: _structure(part, what) for key, part in element.items()}
    if isinstance(element, tuple | dict):
        raise TypeError(f"{what}: elements in files are tuples and dicts with str keys, of arrays; got {element!r}")
    return None


def _encoded(leaf: Any, what: str) -> bytes:
    """Return a leaf as bytes: the length of its description, that, and the data."""
    if is_dataset(leaf) or not (leaf is None or isinstance(leaf, np.ndarray | np.generic | RaggedTensor)):
        raise TypeError(f"{what}: elements in files hold arrays and ragged tensors; got a {type(leaf).__name__}")
    splits: list[NumPyArray] = []
    while isinstance(leaf, RaggedTensor):
        splits.append(np.asarray(leaf.row_splits.numpy(), np.int64))
        leaf = leaf.values
        leaf = leaf if isinstance(leaf, RaggedTensor) else strings_or_numbers(leaf)
    description: dict[str, Json] = {"splits": [len(part) for part in splits]}
    data = [part.tobytes() for part in splits]
    if leaf is not None:
        array = np.asarray(leaf)
        description |= {"dtype": dtypes.as_dtype(array.dtype).name, "shape": list(array.shape)}
        if array.dtype == object:
            texts = array.ravel().tolist()
            data += [np.array([len(text) for text in texts], np.int64).tobytes(), *texts]
        else:
            data.append(array.tobytes())
    description["bytes"] = sum(map(len, data))
    text = json.dumps(description).encode()
    return struct.pack("<I", len(text)) + text + b"".join(data)


def encode_spec(spec: Any) -> Json:
    """Return the spec of elements as JSON; None where it has something else than tensors."""
    if type(spec) is tuple:
        return ["tuple", *map(encode_spec, spec)]
    if type(spec) is dict:
        return {key: encode_spec(part) for key, part in spec.items()}
    if isinstance(spec, TensorSpec | RaggedTensorSpec):
        shape = None if spec.shape.rank is None else list(spec.shape)
        rank = spec.ragged_rank if isinstance(spec, RaggedTensorSpec) else None
        return ["spec", shape, spec.dtype.name, rank]
    return None


# -- reading


def read_elements(path: str, packed: str = "") -> Iterator[Any]:
    """Yield the elements of a file.

    Raises:
        DataLossError: it is damaged, or of another format.
    """
    records = read_records(path, packed)
    structure, _ = _described(path, next(records, b""))
    # map_structure takes None for a leaf, as the description does.
    size, count = len(leaves(structure)), 0
    for record in records:
        if record[:1] == b"N":
            if len(record) != 9 or struct.unpack("<Q", record[1:])[0] != count or next(records, None) is not None:
                raise _damaged(path, f"it does not have the {count} elements that it says")
            return
        try:
            if record[:1] != b"E":
                raise ValueError("a record that is none of an element")
            found = list(_decoded(record))
            if len(found) != size:
                raise ValueError(f"an element has {len(found)} arrays, not {size}")
        except (ValueError, TypeError, KeyError, struct.error, OverflowError, RecursionError) as error:
            raise _damaged(path, str(error)) from None
        count += 1
        remaining = iter(found)
        yield map_structure(lambda _, remaining=remaining: next(remaining), structure)
    raise _damaged(path, f"it ends after {count} elements")


def _damaged(path: str, why: str) -> DataLossError:
    return DataLossError(None, None, f"{path!r} is no whole file of elements that tf.data wrote here: {why}")


def _described(path: str, record: bytes) -> tuple[Any, Any]:
    """Return the structure and the spec in the first record."""
    try:
        content = json.loads(record.decode())
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"it is not in the format {_FORMAT!r}")
        return _as_structure(content["structure"]), _decode_spec(content["spec"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path, str(error)) from None


def _as_structure(value: Json, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ValueError("a structure that is too deep")
    if isinstance(value, list):
        return tuple([_as_structure(part, depth + 1) for part in value])
    if isinstance(value, dict):
        return {key: _as_structure(part, depth + 1) for key, part in value.items()}
    if value is not None:
        raise ValueError(f"{value!r} in a structure")
    return None


def _decode_spec(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ValueError("a spec that is too deep")
    if isinstance(value, dict):
        return {key: _decode_spec(part, depth + 1) for key, part in value.items()}
    if value is None:
        return None
    tag, *parts = value
    if tag == "tuple":
        return tuple([_decode_spec(part, depth + 1) for part in parts])
    if tag != "spec" or len(parts) != 3:
        raise ValueError(f"{value!r} is no spec")
    shape, dtype, rank = parts
    lengths = None if shape is None else [None if n is None else _length(n) for n in shape]
    if rank is None:
        return TensorSpec(lengths, _dtype(dtype))
    return RaggedTensorSpec(lengths, _dtype(dtype), _length(rank))


def _length(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no length")
    return value


def _dtype(name: object) -> dtypes.DType:
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is no dtype")
    return dtypes.as_dtype(name)


def _decoded(record: bytes) -> Iterator[Any]:
    """Yield the leaves of an element."""
    place = 1
    while place < len(record):
        (length,) = struct.unpack_from("<I", record, place)
        place += 4
        description = json.loads(record[place : place + length].decode())
        place += length
        size = _length(description["bytes"])
        if place + size > len(record):
            raise ValueError("an array that is longer than its record")
        yield _decode_leaf(description, record[place : place + size])
        place += size


def _decode_leaf(description: dict[str, Any], data: bytes) -> Any:
    splits = []
    for length in description["splits"]:
        size = 8 * _length(length)
        splits.append(np.frombuffer(data[:size], np.int64, length))
        data = data[size:]
    if "dtype" not in description:
        if splits or data:
            raise ValueError("values without a dtype")
        return None
    dtype = _dtype(description["dtype"])
    shape = [_length(n) for n in description["shape"]]
    if len(shape) > _MOST_AXES:
        raise ValueError(f"{len(shape)} dimensions")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if dtype is dtypes.string:
        lengths = np.frombuffer(data[: 8 * count], np.int64, count).tolist()
        array = np.empty(count, object)
        place = 8 * count
        for k, size in enumerate(lengths):
            array[k] = data[place : place + _length(size)]
            place += size
        if place != len(data):
            raise ValueError("strings of other lengths than it says")
    else:
        kind = np.dtype(dtype.as_numpy_dtype)
        if len(data) != count * kind.itemsize:
            raise ValueError(f"{len(data)} bytes of {count} values of {dtype.name}")
        array = np.frombuffer(data, kind, count).copy()
    found: Any = array.reshape(shape)
    for part in reversed(splits):
        values = found if isinstance(found, RaggedTensor) else wrap_strings(found) if dtype is dtypes.string else found
        found = RaggedTensor.from_row_splits(values, part)
    return found
