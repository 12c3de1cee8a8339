"""The layer Hashing: the bins that Keras 3.15 gives, its modes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

Hashing = tf.keras.layers.Hashing
WORDS = [["a", "b", ""], ["c", "dd", "a"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [[3, 2, 3], [0, 2, 3]], id="plain"),
        pytest.param({"salt": 5}, [[2, 2, 2], [1, 2, 2]], id="salt"),
        pytest.param({"salt": [3, 4]}, [[0, 2, 2], [2, 1, 0]], id="two salts"),
        pytest.param({"mask_value": ""}, [[1, 2, 0], [2, 2, 1]], id="mask"),
        pytest.param({"output_mode": "multi_hot"}, [[0, 0, 1, 1], [1, 0, 1, 1]], id="multi_hot"),
        pytest.param({"output_mode": "count"}, [[0, 0, 1, 2], [1, 0, 1, 1]], id="count"),
    ],
)
def test_bins_of_words_are_those_of_keras(options: dict[str, Any], expected: list[list[int]]) -> None:
    layer = Hashing(4, **options)
    found = layer(tf.constant(WORDS))
    assert found.numpy().tolist() == expected
    assert found.dtype == (tf.float32 if "output_mode" in options else tf.int64)
    again = Hashing.from_config(layer.get_config())
    assert again(WORDS).numpy().tolist() == expected


def test_bins_of_integers_are_those_of_keras() -> None:
    assert Hashing(4)([[1, 2, -3]]).numpy().tolist() == [[1, 3, 3]]
    assert Hashing(4, mask_value=2)([[1, 2, -3]]).numpy().tolist() == [[1, 0, 1]]
    assert Hashing(4)([2**40]).numpy().tolist() == [2]
    assert Hashing(1, mask_value="")(["", "a"]).numpy().tolist() == [0, 0]
    one_hot = Hashing(4, output_mode="one_hot")([["a"], ["b"]])
    assert one_hot.numpy().tolist() == [[0, 0, 0, 1], [0, 0, 1, 0]]


@pytest.mark.each_backend
def test_a_model_of_words_trains_and_comes_back_from_a_file(tmp_path: Path) -> None:
    words = tf.keras.Input((1,), dtype=tf.string)
    vectors = Hashing(8, salt=1, output_mode="one_hot")(words)
    model = tf.keras.Model(words, tf.keras.layers.Dense(1)(vectors))
    data, target = tf.constant([["a"], ["b"], ["c"]]), np.array([[0.0], [1.0], [2.0]])
    model.compile("adam", "mse")
    model.fit(data, target, verbose=0)
    for form in ("keras", "tape"):
        model.save(tmp_path / "m.keras", save_format=form)
        again = tf.keras.models.load_model(tmp_path / "m.keras")
        np.testing.assert_array_equal(again(data).numpy(), model(data).numpy())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        pytest.param(lambda: Hashing(0), ValueError, "cannot be `None` or non-positive values, got 0", id="no bins"),
        pytest.param(lambda: Hashing(4, salt=[1, 2, 3]), ValueError, "must be an integer or two", id="three salts"),
        pytest.param(lambda: Hashing(4, output_mode="tf_idf"), ValueError, "output_mode must be one of int", id="mode"),
        pytest.param(lambda: Hashing(4, dtype="float32"), ValueError, "int32 or int64, got float32", id="dtype"),
        pytest.param(lambda: Hashing(4, sparse=True), ValueError, "leave sparse out", id="sparse"),
        pytest.param(lambda: Hashing(4)([1.5]), TypeError, "takes strings or integers; got float32", id="floats"),
        pytest.param(lambda: tf.keras.layers.HashedCrossing, AttributeError, "join.*Hashing", id="crossing"),
    ],
)
def test_mistakes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
