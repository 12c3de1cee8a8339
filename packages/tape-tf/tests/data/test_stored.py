"""Elements of datasets in files: what comes back, when it is computed, and files that are damaged."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

Dataset = tf.data.Dataset


def counted(calls: list[int], length: int = 3) -> tf.data.Dataset:
    def note(x: Any) -> Any:
        calls.append(int(x))
        return x * x

    return Dataset.range(length).map(note)


def integers(dataset: Any) -> list[int]:
    return [int(x) for x in dataset]


@pytest.mark.parametrize("compression", ["AUTO", "SNAPPY", "GZIP", None])
def test_a_snapshot_is_computed_once_also_across_datasets(tmp_path: Path, compression: str | None) -> None:
    calls: list[int] = []
    found = counted(calls).snapshot(str(tmp_path / "new" / "folder"), compression)
    assert integers(found) == integers(found) == [0, 1, 4]
    again = counted(calls).snapshot(tmp_path / "new" / "folder", compression)
    assert integers(again) == [0, 1, 4]
    assert len(again) == 3
    assert calls == [0, 1, 2]
    assert again.element_spec == tf.TensorSpec([], tf.int64)


def test_an_iteration_that_is_cut_short_writes_nothing(tmp_path: Path) -> None:
    calls: list[int] = []
    found = counted(calls).snapshot(tmp_path / "s")
    assert integers(found.take(2)) == [0, 1]
    iterator = iter(found)
    next(iterator)
    del iterator
    assert list((tmp_path / "s").iterdir()) == []
    assert integers(found) == [0, 1, 4]
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["elements.tfrecord"]


def test_a_cache_in_a_file(tmp_path: Path) -> None:
    calls: list[int] = []
    assert integers(counted(calls).cache(str(tmp_path / "kept")).repeat(2)) == [0, 1, 4, 0, 1, 4]
    assert integers(counted(calls).cache(tf.constant(str(tmp_path / "kept")))) == [0, 1, 4]
    assert calls == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["kept.tfrecord"]


def test_a_reader_makes_a_dataset_of_what_was_written(tmp_path: Path) -> None:
    def twice(datasets: Any) -> Any:
        return datasets.interleave(lambda x: x.repeat(2))

    found = Dataset.range(2).snapshot(tmp_path, reader_func=twice)
    assert [integers(found) for _ in range(2)] == [[0, 1], [0, 1, 0, 1]]
    Dataset.range(2).save(tmp_path / "saved")
    assert integers(Dataset.load(tmp_path / "saved", reader_func=twice)) == [0, 1, 0, 1]


def structured() -> tf.data.Dataset:
    parts = {
        "text": tf.constant(["one", ""]),
        "half": np.ones((2, 2), "float16"),
        "brain": tf.cast([1.0, 2.0], tf.bfloat16),
        "flag": np.array([True, False]),
        "wave": np.array([1j, 2.0]),
    }
    rows = Dataset.from_tensor_slices(["a b", "c"]).map(tf.strings.split).ragged_batch(2).repeat()
    return Dataset.zip((Dataset.from_tensor_slices(parts), (Dataset.range(2), rows)))


def described(element: Any) -> Any:
    features, (number, rows) = element
    return {name: (part.dtype, str(part.numpy())) for name, part in features.items()}, int(number), rows.to_list()


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_save_and_load_give_the_same_elements_and_spec(tmp_path: Path, compression: str | None) -> None:
    structured().save(tmp_path, compression)
    again = Dataset.load(tmp_path)
    assert again.element_spec == structured().element_spec
    assert list(map(described, again)) == list(map(described, structured()))
    batched = Dataset.range(3).batch(2)
    batched.save(tmp_path, "GZIP" if compression is None else None)  # in place of the other
    assert Dataset.load(tmp_path).element_spec == tf.TensorSpec([None], tf.int64)
    assert [batch.numpy().tolist() for batch in Dataset.load(tmp_path)] == [[0, 1], [2]]


def test_an_empty_dataset_is_stored_as_such(tmp_path: Path) -> None:
    assert integers(Dataset.range(0).snapshot(tmp_path)) == []
    assert integers(Dataset.range(3).snapshot(tmp_path)) == []
    Dataset.range(0).save(tmp_path / "saved")
    assert integers(Dataset.load(tmp_path / "saved")) == []


def test_elements_that_no_file_can_hold(tmp_path: Path) -> None:
    windows = Dataset.range(4).window(2)
    with pytest.raises(TypeError, match="snapshot: elements in files hold arrays and ragged tensors; got a Dataset"):
        list(windows.snapshot(tmp_path))
    with pytest.raises(TypeError, match="save: elements in files hold arrays"):
        windows.save(tmp_path)
    numbered = Dataset.range(2).map(lambda x: {int(x): x})
    with pytest.raises(TypeError, match="dicts with str keys"):
        list(numbered.cache(str(tmp_path / "c")))
    assert list(tmp_path.iterdir()) == []


# -- files that are damaged, or that somebody made to do harm


def records_of(head: Any, *records: bytes) -> Iterator[bytes]:
    yield json.dumps(head).encode()
    yield from records


def element(description: Any, data: bytes = b"") -> bytes:
    text = json.dumps(description).encode()
    return b"E" + struct.pack("<I", len(text)) + text + data


HEAD = {"format": "tape-tf dataset 1", "structure": None, "spec": None}
NUMBER = {"splits": [], "dtype": "int64", "shape": [], "bytes": 8}
END = b"N" + struct.pack("<Q", 1)

HOSTILE = {
    "no description": ([b"{"], "is no whole file"),
    "another format": (records_of({"format": "x"}), "not in the format"),
    "a structure of something else": (records_of(HEAD | {"structure": "os.system"}), "in a structure"),
    "a spec of something else": (records_of(HEAD | {"spec": ["eval", "1"]}), "is no spec"),
    "no end": (records_of(HEAD, element(NUMBER, bytes(8))), "it ends after 1 elements"),
    "an element was taken out": (records_of(HEAD, END), "does not have the 0 elements"),
    "records after the end": (records_of(HEAD, element(NUMBER, bytes(8)), END, END), "does not have"),
    "an unknown record": (records_of(HEAD, b"X", END), "a record that is none of an element"),
    "too many arrays": (records_of(HEAD, element(NUMBER, bytes(8)) * 2, END), "is no whole file"),
    "no array": (records_of(HEAD, b"E", END), "an element has 0 arrays, not 1"),
    "an unknown dtype": (records_of(HEAD, element(NUMBER | {"dtype": "object"}, bytes(8)), END), "is no whole file"),
    "an array too long": (records_of(HEAD, element(NUMBER | {"bytes": 99}, bytes(8)), END), "longer than its record"),
    "a huge shape": (records_of(HEAD, element(NUMBER | {"shape": [2**40, 2**40]}, bytes(8)), END), "8 bytes of"),
    "a negative shape": (records_of(HEAD, element(NUMBER | {"shape": [-1]}, bytes(8)), END), "is no length"),
    "strings too long": (
        records_of(HEAD, element(NUMBER | {"dtype": "string"}, struct.pack("<q", 1 << 40)), END),
        "is no whole file",
    ),
    "rows that go back": (
        records_of(
            HEAD, element(NUMBER | {"splits": [3], "shape": [1], "bytes": 32}, struct.pack("<4q", 0, 2, 1, 7)), END
        ),
        "row_splits must",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_none_of_ours_is_an_error_of_data_loss(tmp_path: Path, name: str) -> None:
    records, message = HOSTILE[name]
    path = str(tmp_path / "elements.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    with pytest.raises(tf.errors.DataLossError, match=message):
        list(Dataset.load(tmp_path))
    with pytest.raises(tf.errors.DataLossError, match=message):
        list(Dataset.range(1).snapshot(tmp_path))


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_each_cut_and_each_changed_byte_is_found(tmp_path: Path, compression: str | None) -> None:
    structured().save(tmp_path, compression)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place])
        with pytest.raises(tf.errors.DataLossError):
            list(Dataset.load(tmp_path))
        if compression is None:  # the head of a gzip file has a date
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(tf.errors.DataLossError):
                list(Dataset.load(tmp_path))
