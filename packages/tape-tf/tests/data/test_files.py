"""Datasets of files: records, lines, rows, and the checksum of records."""

from __future__ import annotations

import gzip
import zlib

import pytest
import tape_tf as tf
from tape_tf.checksum import crc32c, masked_crc32c


def bitwise_crc32c(data: bytes) -> int:
    """The definition, one bit at a time."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 4096, 10007])
def test_the_checksum(size):
    data = bytes(k * k % 251 for k in range(size))
    assert crc32c(data) == bitwise_crc32c(data)


def test_the_checksum_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283
    assert masked_crc32c(b"") == 0xA282EAD8


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records_are_written_and_read(tmp_path, compression):
    path = str(tmp_path / "data.tfrecord")
    records = [b"", b"one", bytes(range(256)) * 20]
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression)) as writer:
        for record in records:
            writer.write(record)
    assert list(tf.data.TFRecordDataset([path, path], compression).as_numpy_iterator()) == records * 2
    assert tf.data.TFRecordDataset(path, compression).element_spec == tf.TensorSpec((), tf.string)


def test_a_record_file_is_what_tensorflow_writes(tmp_path):
    path = tmp_path / "data.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write("abc")
    assert path.read_bytes() == bytes.fromhex("0300000000000000") + masked_crc32c(b"\3" + b"\0" * 7).to_bytes(
        4, "little"
    ) + b"abc" + masked_crc32c(b"abc").to_bytes(4, "little")


def test_damage_is_found(tmp_path):
    path = tmp_path / "data.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"x" * 100)
    whole = path.read_bytes()
    for place in (3, 9, 50, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(tf.errors.DataLossError, match="corrupted record at 0"):
            list(tf.data.TFRecordDataset(str(path)))
    for size in (5, 14, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(tf.errors.DataLossError):
            list(tf.data.TFRecordDataset(str(path)))
    with pytest.raises(tf.errors.DataLossError, match="compression_type"):
        list(tf.data.TFRecordDataset(str(path), "GZIP"))
    with pytest.raises(tf.errors.NotFoundError):
        list(tf.data.TFRecordDataset("missing"))


def test_records_through_a_pipeline(tmp_path):
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for k in range(5):
            feature = {"k": tf.train.Feature(int64_list=tf.train.Int64List(value=[k]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    files = tf.data.Dataset.list_files(str(tmp_path / "*.tfrecord"))
    data = tf.data.TFRecordDataset(files).batch(2)
    data = data.map(lambda batch: tf.io.parse_example(batch, {"k": tf.io.FixedLenFeature([], tf.int64)})["k"])
    assert [x.numpy().tolist() for x in data] == [[0, 1], [2, 3], [4]]
    nested = files.interleave(tf.data.TFRecordDataset, cycle_length=1)
    assert len(list(nested)) == 5


def test_lines_and_parts_of_files(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("first\r\nzwei ü\n\nlast".encode())
    lines = tf.data.TextLineDataset(str(path))
    assert list(lines.as_numpy_iterator()) == [b"first", "zwei ü".encode(), b"", b"last"]
    assert list(lines.skip(1).filter(lambda line: tf.strings.length(line) > 0).as_numpy_iterator()) == [
        "zwei ü".encode(),
        b"last",
    ]
    packed = tmp_path / "b.zz"
    packed.write_bytes(zlib.compress(b"x\ny\n"))
    assert list(tf.data.TextLineDataset(str(packed), "ZLIB").as_numpy_iterator()) == [b"x", b"y"]
    binary = tmp_path / "c.bin"
    binary.write_bytes(b"HEADabcdefTAIL")
    parts = tf.data.FixedLengthRecordDataset(str(binary), 3, header_bytes=4, footer_bytes=4)
    assert list(parts.as_numpy_iterator()) == [b"abc", b"def"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="no multiple of 4"):
        list(tf.data.FixedLengthRecordDataset(str(binary), 4, header_bytes=4))


def test_list_files(tmp_path):
    for name in "bac":
        (tmp_path / name).write_text(name)
    found = tf.data.Dataset.list_files(str(tmp_path / "*"), shuffle=False)
    assert [tf.io.read_file(path).numpy() for path in found] == [b"a", b"b", b"c"]
    assert sorted(tf.data.Dataset.list_files(str(tmp_path / "*"), seed=1).as_numpy_iterator()) == sorted(
        found.as_numpy_iterator()
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="No files matched"):
        tf.data.Dataset.list_files(str(tmp_path / "*.png"))


def test_rows_of_csv_files(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('n,x,name\n1,2.5,"a, b"\n2,,c\n')
    rows = list(tf.data.experimental.CsvDataset(str(path), [tf.int32, [9.0], tf.string], header=True))
    assert [tuple(part.numpy() for part in row) for row in rows] == [(1, 2.5, b"a, b"), (2, 9.0, b"c")]
    chosen = tf.data.experimental.CsvDataset(str(path), [tf.string], header=True, select_cols=[2])
    assert [row[0].numpy() for row in chosen] == [b"a, b", b"c"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expect 2 fields"):
        list(tf.data.experimental.CsvDataset(str(path), [tf.int32, tf.string], header=True))
    batches = tf.data.experimental.make_csv_dataset(
        str(path), batch_size=2, label_name="n", num_epochs=1, shuffle=False
    )
    features, labels = next(iter(batches))
    assert labels.numpy().tolist() == [1, 2]
    assert features["x"].dtype == tf.float32
    assert features["name"].numpy().tolist() == [b"a, b", b"c"]
    with pytest.raises(ValueError, match="no column 'label'"):
        tf.data.experimental.make_csv_dataset(str(path), 2, label_name="label")
    packed = tmp_path / "rows.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    batches = tf.data.experimental.make_csv_dataset(
        str(packed), batch_size=2, label_name="n", num_epochs=1, shuffle=False, compression_type="GZIP"
    )
    assert next(iter(batches))[1].numpy().tolist() == [1, 2]


def test_lines_are_decoded_in_map(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("name,n,x\na,1,0.5\nb,2,1.5\n")
    lines = tf.data.TextLineDataset(str(path)).skip(1)
    rows = list(lines.map(lambda line: tf.io.decode_csv(line, ["", 0, 0.0])))
    assert [[part.numpy() for part in row] for row in rows] == [[b"a", 1, 0.5], [b"b", 2, 1.5]]
    batches = lines.batch(2).map(lambda text: tf.io.decode_csv(text, ["", 0, 0.0]))
    assert next(iter(batches))[2].numpy().tolist() == [0.5, 1.5]
