"""tf.strings: the values are those that TensorFlow gives, written down."""

from __future__ import annotations

import numpy as np
import pytest
import tape_tf as tf


def words(tensor) -> list:
    return tensor.numpy().tolist()


def test_case_white_space_and_length():
    assert words(tf.strings.lower(["ABC", "Ä"])) == [b"abc", "Ä".encode()]
    assert words(tf.strings.lower(["Ä"], encoding="utf-8")) == ["ä".encode()]
    assert words(tf.strings.upper(["abc"])) == [b"ABC"]
    assert words(tf.strings.strip(["\n a b\t"])) == [b"a b"]
    assert tf.strings.length(["", "ab"]).numpy().tolist() == [0, 2]
    assert tf.strings.length("aé", unit="UTF8_CHAR").numpy() == 2
    with pytest.raises(ValueError, match="unit"):
        tf.strings.length("a", unit="WORDS")


def test_parts():
    assert words(tf.strings.substr(["hello", "world"], 1, 3)) == [b"ell", b"orl"]
    assert words(tf.strings.substr(["hello", "world"], [0, -2], [1, 2])) == [b"h", b"ld"]
    assert tf.strings.substr("aéb", 1, 1, unit="UTF8_CHAR").numpy() == "é".encode()
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
        tf.strings.substr("ab", 3, 1)


def test_regular_expressions():
    assert tf.strings.regex_replace("a1b22", "[0-9]+", "#").numpy() == b"a#b#"
    assert tf.strings.regex_replace("a1b22", "[0-9]+", "#", replace_global=False).numpy() == b"a#b22"
    assert tf.strings.regex_replace("key=value", r"(\w+)=(\w+)", r"\2:\1 (\0)").numpy() == b"value:key (key=value)"
    assert tf.strings.regex_replace("Hi, you!", "[[:punct:]]", "").numpy() == b"Hi you"
    assert words(tf.strings.regex_full_match(["abc", "abcd"], "a.c")) == [True, False]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid pattern"):
        tf.strings.regex_replace("a", "(", "")


def test_splitting_gives_ragged_tensors_and_vectors():
    assert words(tf.strings.split(" a  b ")) == [b"a", b"b"]
    assert tf.strings.split(["a b", ""]).to_list() == [[b"a", b"b"], []]
    assert words(tf.strings.split("a,,b", sep=",")) == [b"a", b"", b"b"]
    assert words(tf.strings.split("a b c", maxsplit=1)) == [b"a", b"b c"]
    assert tf.strings.split([["a b", "c"], ["d", "e f"]]).to_list() == [[[b"a", b"b"], [b"c"]], [[b"d"], [b"e", b"f"]]]
    assert words(tf.strings.bytes_split("ab")) == [b"a", b"b"]
    assert tf.strings.unicode_split(["hé", "a"], "UTF-8").to_list() == [[b"h", "é".encode()], [b"a"]]
    codes = tf.strings.unicode_decode(["hé", "a"], "UTF-8")
    assert codes.to_list() == [[104, 233], [97]]
    assert words(tf.strings.unicode_encode(codes, "UTF-8")) == ["hé".encode(), b"a"]
    assert tf.strings.unicode_transcode("é", "UTF-8", "UTF-16-BE").numpy() == b"\x00\xe9"


def test_functions_of_strings_take_ragged_tensors():
    ragged = tf.strings.split(["a b", "c"])
    assert tf.strings.upper(ragged).to_list() == [[b"A", b"B"], [b"C"]]
    assert words(tf.strings.reduce_join(ragged, axis=-1, separator="+")) == [b"a+b", b"c"]
    assert tf.strings.ngrams(tf.strings.split(["a b c", "d"]), 2).to_list() == [[b"a b", b"b c"], []]


def test_joining():
    assert words(tf.strings.join([["a", "b"], "-", ["c", "d"]])) == [b"a-c", b"b-d"]
    assert tf.strings.join(["a", "b"], separator="/").numpy() == b"a/b"
    assert tf.strings.reduce_join(["a", "b"]).numpy() == b"ab"
    assert words(tf.strings.reduce_join([["a", "b"], ["c", "d"]], axis=0)) == [b"ac", b"bd"]
    assert words(tf.strings.reduce_join([["a", "b"]], axis=1, keepdims=True, separator=" ")) == [[b"a b"]]
    assert tf.strings.format("x: {}, y: {}", (tf.constant([1, 2]), tf.constant("s"))).numpy() == b"x: [1 2], y: s"
    with pytest.raises(ValueError, match="placeholders"):
        tf.strings.format("{} {}", tf.constant(1))


def test_numbers():
    assert tf.strings.to_number(["1.5", "-2"]).numpy().tolist() == [1.5, -2.0]
    assert tf.strings.to_number("7", tf.int64).dtype == tf.int64
    with pytest.raises(tf.errors.InvalidArgumentError, match="could not correctly convert"):
        tf.strings.to_number("one")
    assert words(tf.strings.as_string([1, 20])) == [b"1", b"20"]
    assert tf.strings.as_string(3.14159, precision=2).numpy() == b"3.14"
    assert tf.as_string(1.5).numpy() == b"1.500000"
    assert tf.as_string(True).numpy() == b"true"
    assert tf.as_string(7, width=3, fill="0").numpy() == b"007"
    found = tf.strings.to_hash_bucket_fast(["a", "b", "a"], 1000).numpy()
    assert found[0] == found[2] != found[1]
    assert (found < 1000).all()


def test_a_ragged_tensor_is_its_rows():
    ragged = tf.ragged.constant([[1, 2, 3], [], [4]])
    assert ragged.shape.as_list() == [3, None]
    assert ragged.dtype == tf.int32
    assert len(ragged) == 3
    assert ragged.row_lengths().numpy().tolist() == [3, 0, 1]
    assert ragged.row_splits.numpy().tolist() == [0, 3, 3, 4]
    assert ragged[0].numpy().tolist() == [1, 2, 3]
    assert ragged[2, 0].numpy() == 4
    assert ragged[:, :1].to_list() == [
        [1],
        [],
        [4],
    ]
    assert ragged.to_tensor().numpy().tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert ragged.to_tensor(-1, shape=(None, 2)).numpy().tolist() == [[1, 2], [-1, -1], [4, -1]]
    assert tf.ragged.constant([[["a"], []], [["b", "c"]]]).to_tensor().numpy().tolist() == [
        [[b"a", b""], [b"", b""]],
        [[b"b", b"c"], [b"", b""]],
    ]
    assert tf.RaggedTensor.from_tensor([[1, 2, 0], [3, 0, 0]], padding=0).to_list() == [[1, 2], [3]]
    assert tf.ragged.stack([tf.constant([1]), tf.constant([2, 3])]).to_list() == [[1], [2, 3]]
    assert tf.ragged.map_flat_values(tf.square, ragged).to_list() == [[1, 4, 9], [], [16]]
    assert repr(ragged) == "<tf.RaggedTensor [[1, 2, 3], [], [4]]>"
    with pytest.raises(TypeError, match="to_tensor"):
        tf.reduce_sum(ragged)
    with pytest.raises(AttributeError, match="to_tensor"):
        ragged.consumers  # noqa: B018


@pytest.mark.each_backend
def test_derivatives_flow_through_padding():
    v = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        y = tf.RaggedTensor.from_row_lengths(v * 2, [2, 1]).to_tensor(9.0)
        z = tf.reduce_sum(y * y)
    np.testing.assert_allclose(tape.gradient(z, v).numpy(), [8.0, 16.0, 24.0])
