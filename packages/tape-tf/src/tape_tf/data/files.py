"""Datasets of the contents of local files: lines, records, rows of CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from tape_tf import dtypes
from tape_tf.data.dataset import Dataset
from tape_tf.data.elements import leaves
from tape_tf.data.source import UNKNOWN_CARDINALITY, SpecSource
from tape_tf.errors import InvalidArgumentError
from tape_tf.names import export
from tape_tf.ops.files import default_of, local_path, parse_field
from tape_tf.ops.records import compression_of, open_for_reading, read_records
from tape_tf.shapes import TensorSpec
from tape_tf.string_tensor import strings_of
from tape_tf.typing import DTypeLike, IntLike

Files = Any
"""Paths of files: one or several, str or strings of a tensor, or a dataset of such."""


def _paths(files: Files) -> Iterator[str]:
    if isinstance(files, Dataset):
        for element in files._make():
            for leaf in leaves(element):
                yield from _paths(leaf)
    elif isinstance(files, list | tuple):
        for one in files:
            yield from _paths(one)
    elif hasattr(files, "__fspath__"):
        yield local_path(files)
    else:
        yield from (local_path(one) for one in strings_of(files).ravel())


def _scalar(value: bytes) -> Any:
    out = np.empty((), object)
    out[()] = value
    return out


class _FileDataset(Dataset):
    """A dataset that is read from files, each time from the start."""

    def __init__(self, files: Files, read: Callable[[str], Iterator[Any]], spec: SpecSource) -> None:
        if not isinstance(files, Dataset):
            files = list(_paths(files))
        super().__init__(
            lambda: (element for path in _paths(files) for element in read(path)), UNKNOWN_CARDINALITY, spec
        )

    # What is derived from it is a plain dataset: a file is read by this one.
    def _new(self, make: Any, cardinality: int, spec: SpecSource = None) -> Dataset:
        return Dataset(make, cardinality, spec)


class TFRecordDataset(_FileDataset):
    """The records of TFRecord files, strings, one file after the other.

    Args:
        filenames: paths, or a dataset of paths.
        compression_type: `""`, `"GZIP"` or `"ZLIB"`.
        buffer_size, num_parallel_reads: no effect.

    Raises:
        tf.errors.DataLossError: while it is read, a file is damaged.
        tf.errors.NotFoundError: while it is read, there is no such file.
    """

    def __init__(
        self, filenames: Files, compression_type: str | None = None, buffer_size: IntLike | None = None,
        num_parallel_reads: IntLike | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        compression = compression_of(compression_type)
        spec = TensorSpec((), dtypes.string)
        super().__init__(filenames, lambda path: map(_scalar, read_records(path, compression)), spec)


class TextLineDataset(_FileDataset):
    """The lines of text files, without their ends.

    >>> import tape_tf as tf, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "poem.txt")
    >>> tf.io.write_file(path, "first\\nsecond\\n")
    >>> [line.numpy() for line in tf.data.TextLineDataset(path)]
    [b'first', b'second']
    """

    def __init__(
        self, filenames: Files, compression_type: str | None = None, buffer_size: IntLike | None = None,
        num_parallel_reads: IntLike | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        compression = compression_of(compression_type)

        def read(path: str) -> Iterator[Any]:
            with open_for_reading(path, compression) as file:
                for line in file if compression != "ZLIB" else io.BytesIO(file.read()):
                    yield _scalar(line.removesuffix(b"\n").removesuffix(b"\r"))

        super().__init__(filenames, read, TensorSpec((), dtypes.string))


class FixedLengthRecordDataset(_FileDataset):
    """The parts of `record_bytes` bytes of binary files, strings.

    Args:
        header_bytes, footer_bytes: the bytes that are left out at the beginning and the end of each file.
    """

    def __init__(
        self, filenames: Files, record_bytes: IntLike, header_bytes: IntLike | None = None,
        footer_bytes: IntLike | None = None, buffer_size: IntLike | None = None, compression_type: str | None = None,
        num_parallel_reads: IntLike | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        compression, size = compression_of(compression_type), int(record_bytes)
        head, foot = int(header_bytes or 0), int(footer_bytes or 0)

        def read(path: str) -> Iterator[Any]:
            with open_for_reading(path, compression) as file:
                data = file.read()
            body = data[head : len(data) - foot]
            if len(body) % size:
                raise InvalidArgumentError(
                    None, None, f"{path} has {len(body)} bytes between header and footer, no multiple of {size}"
                )
            return (_scalar(body[k : k + size]) for k in range(0, len(body), size))

        super().__init__(filenames, read, TensorSpec((), dtypes.string))


class CsvDataset(_FileDataset):
    """The rows of CSV files: tuples of a scalar for each column.

    Args:
        record_defaults: for each column that is read its default, or a dtype if it is required.
        header: skip the first line.
        field_delim, use_quote_delim: what is between fields, and whether they may be in double quotes.
        na_value: text that stands for a missing value.
        select_cols: the numbers of the columns that are read.
    """

    def __init__(
        self, filenames: Files, record_defaults: Sequence[Any], compression_type: str | None = None,
        buffer_size: IntLike | None = None, header: bool = False, field_delim: str = ",", use_quote_delim: bool = True,
        na_value: str = "", select_cols: Sequence[int] | None = None, exclude_cols: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        compression = compression_of(compression_type)
        columns = [default_of(value) for value in record_defaults]
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE

        def read(path: str) -> Iterator[Any]:
            with open_for_reading(path, compression) as file:
                text = io.StringIO(file.read().decode("utf-8", "surrogateescape"), newline="")
            for number, row in enumerate(csv.reader(text, delimiter=field_delim, quoting=quoting)):
                if (header and number == 0) or not row:
                    continue
                wanted = [k for k in (select_cols or range(len(row))) if k not in (exclude_cols or ())]
                if len(wanted) != len(columns) or (wanted and max(wanted) >= len(row)):
                    raise InvalidArgumentError(
                        None, None, f"{path}: Expect {len(columns)} fields but have {len(wanted)} in record {number}"
                    )
                yield tuple(
                    np.asarray(
                        parse_field(row[k], dtype, default, f"{path}: field {k} in record {number}", na_value),
                        dtype.as_numpy_dtype,
                    )
                    for k, (dtype, default) in zip(wanted, columns, strict=True)
                )

        super().__init__(filenames, read, tuple(TensorSpec((), dtype) for dtype, _ in columns))


def make_csv_dataset(
    file_pattern: Files,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[str] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    num_rows_for_inference: int | None = 100,
    ignore_errors: bool = False,
    compression_type: str | None = None,
    **ignored: Any,
) -> Dataset:
    """Return batches of the rows of CSV files: dicts by the names of columns, and the labels if `label_name` is given.

    The columns' dtypes are told from the first rows: int32, int64, float32, else strings.

    Args:
        column_names: by default those in the first line.
        column_defaults: for the columns that are read, a default or a dtype.
        num_epochs: how often the rows are repeated; without end by default.
        compression_type: `""`, `"GZIP"` or `"ZLIB"`, of all files.
    """
    from tape_tf.ops.files import glob

    patterns = [file_pattern] if isinstance(file_pattern, str | bytes) else list(file_pattern)
    paths = sorted({path for one in patterns for path in (glob(one) or [local_path(one)])})
    with open_for_reading(paths[0], compression_of(compression_type)) as file:
        text = io.StringIO(file.read().decode("utf-8", "surrogateescape"), newline="")
    rows = csv.reader(text, delimiter=field_delim)
    first = next(rows)
    names = list(column_names or first)
    chosen = list(select_columns or names)
    if missing := [name for name in [*chosen, *([label_name] if label_name else [])] if name not in names]:
        raise ValueError(f"make_csv_dataset: there is no column {missing[0]!r}; the columns are {names}")
    places = sorted(names.index(name) for name in chosen)
    chosen = [names[k] for k in places]
    if column_defaults is None:
        sample = [row for _, row in zip(range(num_rows_for_inference or 2**62), rows, strict=False)]
        if not header:
            sample.insert(0, first)
        column_defaults = [_inferred([row[k] for row in sample], na_value) for k in places]
    data: Dataset = CsvDataset(
        paths, column_defaults, header=header, field_delim=field_delim, use_quote_delim=use_quote_delim,
        na_value=na_value, select_cols=places, compression_type=compression_type,
    )  # fmt: skip
    if shuffle:
        data = data.shuffle(shuffle_buffer_size, shuffle_seed)
    data = data.repeat(num_epochs)

    def named(*columns: Any) -> Any:
        row = dict(zip(chosen, columns, strict=True))
        return row if label_name is None else (row, row.pop(label_name))

    return data.map(named).batch(batch_size)


def _inferred(texts: list[str], na_value: str) -> Any:
    """Return a default for a column of these fields, of the first dtype that they all have."""
    present = [text for text in texts if text not in ("", na_value)]
    kinds: list[tuple[DTypeLike, Callable[[str], Any]]] = [
        ("int32", lambda text: np.int32(int(text))),
        ("int64", lambda text: np.int64(int(text))),
        ("float32", float),
    ]
    for dtype, read in kinds:
        try:
            for text in present:
                read(text)
        except (ValueError, OverflowError):
            continue
        return np.zeros(1, dtypes.as_dtype(dtype).as_numpy_dtype)
    return [b""]


export("data.experimental.make_csv_dataset", make_csv_dataset)
for _class in (CsvDataset, TFRecordDataset):
    export(f"data.experimental.{_class.__name__}", _class)
