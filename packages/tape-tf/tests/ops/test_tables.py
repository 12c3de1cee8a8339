"""tf.lookup's table of a vocabulary, with buckets for other words."""

from __future__ import annotations

from typing import Any

import pytest
import tape_tf as tf


def content(keys: Any, dtype: Any = tf.int64) -> Any:
    return tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(keys), dtype=dtype))


def test_unknown_words_go_into_the_buckets_of_tensorflow() -> None:
    table = tf.lookup.StaticVocabularyTable(content(["a", "b"]), 3)
    assert table.lookup(tf.constant([["a", "b", "x"], ["y", "zz", "a"]])).numpy().tolist() == [[0, 1, 4], [4, 3, 0]]
    assert int(table.size()) == 5
    assert table[tf.ragged.constant([["a"], ["b", "x"]])].to_list() == [[0], [1, 4]]
    assert table.lookup(tf.constant("x")).numpy() == 4


def test_mistakes_in_a_vocabulary_table() -> None:
    with pytest.raises(ValueError, match=r"oov_buckets must be > 0, got 0; StaticHashTable has none"):
        tf.lookup.StaticVocabularyTable(content(["a"]), 0)
    with pytest.raises(TypeError, match=r"expected <dtype: 'int64'> but got <dtype: 'int32'>"):
        tf.lookup.StaticVocabularyTable(content(["a"], tf.int32), 1)
