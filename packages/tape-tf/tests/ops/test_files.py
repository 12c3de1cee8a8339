"""tf.io for local files: whole files, gfile, raw bytes, CSV, serialized tensors, examples."""

from __future__ import annotations

import numpy as np
import pytest
import tape_tf as tf


def test_files_are_written_and_read(tmp_path):
    path = tmp_path / "new" / "a.bin"
    tf.io.write_file(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert tf.io.read_file(tf.constant(str(path))).numpy() == b"\x00\xff"
    assert tf.io.read_file(path.as_uri()).numpy() == b"\x00\xff"
    with pytest.raises(tf.errors.NotFoundError, match="No such file"):
        tf.io.read_file("missing.bin")
    with pytest.raises(tf.errors.UnimplementedError, match="get_file"):
        tf.io.read_file("gs://bucket/a")


def test_gfile(tmp_path):
    folder = tf.io.gfile.join(str(tmp_path), "a", "b")
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(tf.io.gfile.join(folder, "x.txt"), "w") as file:
        file.write("ü")
    assert tf.io.gfile.listdir(folder) == ["x.txt"]
    assert tf.io.gfile.glob(folder + "/*.txt") == [folder + "/x.txt"]
    assert tf.io.matching_files(folder + "/*").numpy().tolist() == [(folder + "/x.txt").encode()]
    tf.io.gfile.copy(folder + "/x.txt", folder + "/y.txt")
    with pytest.raises(FileExistsError, match="overwrite"):
        tf.io.gfile.copy(folder + "/x.txt", folder + "/y.txt")
    tf.io.gfile.rename(folder + "/y.txt", folder + "/z.txt")
    tf.io.gfile.remove(folder + "/x.txt")
    assert sorted(tf.io.gfile.listdir(folder)) == ["z.txt"]
    tf.io.gfile.rmtree(folder)
    assert not tf.io.gfile.exists(folder)
    assert tf.io.gfile.isdir(str(tmp_path))


def test_raw_bytes():
    data = tf.constant([b"\x01\x00\x02\x00", b"\x03\x00\x04\x00"])
    assert tf.io.decode_raw(data, tf.int16).numpy().tolist() == [[1, 2], [3, 4]]
    assert tf.io.decode_raw(data, tf.int16, little_endian=False).numpy().tolist() == [[256, 512], [768, 1024]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows of one length"):
        tf.io.decode_raw(["ab", "c"], tf.uint8)
    assert tf.io.decode_base64(tf.io.encode_base64("a?b>")).numpy() == b"a?b>"


def test_csv_lines():
    numbers, texts = tf.io.decode_csv(["1,x", ",y"], record_defaults=[[7], [""]])
    assert numbers.numpy().tolist() == [1, 7]
    assert texts.numpy().tolist() == [b"x", b"y"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="required but missing"):
        tf.io.decode_csv([",x"], record_defaults=[tf.int32, tf.string])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a valid float32: z"):
        tf.io.decode_csv(["z"], record_defaults=[[0.0]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool", "complex64", "float16"])
def test_tensors_in_strings(dtype):
    x = tf.constant(np.array([[1, 0, 3], [4, 5, 6]]).astype(dtype))
    again = tf.io.parse_tensor(tf.io.serialize_tensor(x), dtype)
    assert again.dtype == dtype
    np.testing.assert_array_equal(again.numpy(), x.numpy())
    words = tf.io.parse_tensor(tf.io.serialize_tensor([["a", "b"]]), tf.string)
    assert words.numpy().tolist() == [[b"a", b"b"]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Type mismatch"):
        tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.string)


def test_what_tensorflow_serializes_is_read():
    # tf.io.serialize_tensor(tf.constant([[1.5, 2.0]])) and the short form of tf.make_tensor_proto([5, 5, 5]).
    data = bytes.fromhex("08011208120208011202080222080000c03f00000040")
    assert tf.io.parse_tensor(data, tf.float32).numpy().tolist() == [[1.5, 2.0]]
    assert tf.io.parse_tensor(bytes.fromhex("0803120412020803") + b"\x3a\x01\x05", tf.int32).numpy().tolist() == [5] * 3


@pytest.mark.parametrize("cut", [1, 5, 12, 17])
def test_damaged_strings_are_errors(cut):
    data = tf.io.serialize_tensor(tf.constant([1.0, 2.0])).numpy()
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_tensor(data[:cut], tf.float32)


# -- examples


def example():
    feature = tf.train.Feature
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "x": feature(float_list=tf.train.FloatList(value=[1.0, 2.5])),
                "n": feature(int64_list=tf.train.Int64List(value=[-3, 7, 2**40])),
                "s": feature(bytes_list=tf.train.BytesList(value=[b"hi", "ü"])),
            }
        )
    )


def test_an_example_is_the_bytes_of_a_protocol_buffer():
    data = example().SerializeToString()
    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
    # As TensorFlow writes it.
    assert tf.train.Example(features=tf.train.Features(feature={"label": label})).SerializeToString() == bytes.fromhex(
        "0a100a0e0a056c6162656c12051a030a0103"
    )
    again = tf.train.Example.FromString(data)
    assert again == example()
    assert again.features.feature["n"].int64_list.value == [-3, 7, 2**40]
    assert again.features.feature["s"].WhichOneof("kind") == "bytes_list"
    assert 'value: "hi"' in str(again)
    assert again.ParseFromString(data) == len(data)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse"):
        tf.train.Example.FromString(data[:-1])


def test_features_check_what_they_are_given():
    with pytest.raises(TypeError, match="takes bytes"):
        tf.train.BytesList(value=[1])
    with pytest.raises(TypeError, match="takes integers"):
        tf.train.Int64List(value=[1.5])
    with pytest.raises(TypeError, match=r"must be a tf\.train\.Int64List"):
        tf.train.Feature(int64_list=[1])


def test_examples_become_tensors():
    data = example().SerializeToString()
    spec = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "n": tf.io.RaggedFeature(tf.int64),
        "s": tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True),
        "none": tf.io.FixedLenFeature([], tf.int64, default_value=4),
    }
    found = tf.io.parse_single_example(data, spec)
    assert found["x"].numpy().tolist() == [1.0, 2.5]
    assert found["n"].numpy().tolist() == [-3, 7, 2**40]
    assert found["s"].numpy().tolist() == [b"hi", "ü".encode()]
    assert found["none"].numpy() == 4
    batch = tf.io.parse_example([data, tf.train.Example().SerializeToString()], {"n": spec["n"], "s": spec["s"]})
    assert batch["n"].to_list() == [[-3, 7, 2**40], []]
    assert batch["s"].numpy().tolist() == [[b"hi", "ü".encode()], [b"", b""]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (tf.io.FixedLenFeature([3], tf.float32), "2 values"),
        (tf.io.FixedLenFeature([2], tf.int64), "Data types don't match"),
        (tf.io.FixedLenFeature([2], tf.int32), "must be tf.string, tf.float32 or tf.int64"),
        ([2], "FixedLenFeature"),
    ],
    ids=["length", "kind", "dtype", "no spec"],
)
def test_examples_that_do_not_fit_are_errors(spec, message):
    with pytest.raises(ValueError, match=message):
        tf.io.parse_single_example(example().SerializeToString(), {"x": spec})
    with pytest.raises(tf.errors.InvalidArgumentError, match="required but could not be found"):
        tf.io.parse_single_example(example().SerializeToString(), {"y": tf.io.FixedLenFeature([], tf.int64)})
