"""Batches of elements of different lengths."""

from __future__ import annotations

import numpy as np
import pytest
import tape_tf as tf

Dataset = tf.data.Dataset


def lists(*lengths: int) -> tf.data.Dataset:
    return Dataset.from_tensor_slices(list(lengths)).map(lambda n: (tf.fill([int(n)], n), n))


def test_a_ragged_batch_joins_rows_of_different_lengths_and_stacks_scalars() -> None:
    batches = lists(1, 2, 0).ragged_batch(2)
    assert len(batches) == 2
    found = [(rows.to_list(), counts.numpy().tolist()) for rows, counts in batches]
    assert found == [([[1], [2, 2]], [1, 2]), ([[]], [0])]
    assert batches.element_spec == (tf.RaggedTensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32))
    assert [(row.tolist(), int(n)) for row, n in batches.unbatch().as_numpy_iterator()] == [
        ([1], 1),
        ([2, 2], 2),
        ([], 0),
    ]
    assert len(list(lists(1, 2, 0).ragged_batch(2, drop_remainder=True))) == 1


def test_what_has_one_shape_stays_a_tensor_in_a_ragged_batch() -> None:
    known = Dataset.from_tensor_slices(np.ones((4, 3))).shuffle(4).ragged_batch(2)
    assert [type(batch) for batch in known] == [tf.Tensor, tf.Tensor]
    signature = tf.TensorSpec([None, 3], tf.float32)
    images = Dataset.from_generator(lambda: iter([np.ones((2, 3)), np.ones((1, 3))]), output_signature=signature)
    (batch,) = images.ragged_batch(2)
    assert (batch.shape.as_list(), batch.ragged_rank) == ([2, None, 3], 1)


def test_images_of_different_sizes_are_ragged_in_both_dimensions() -> None:
    sizes = Dataset.from_tensor_slices([[2, 1], [1, 3]]).map(lambda size: tf.ones([int(size[0]), int(size[1]), 3]))
    (batch,) = sizes.ragged_batch(2)
    assert batch.shape.as_list() == [2, None, None, 3]
    assert [image.row_lengths().numpy().tolist() for image in batch] == [[1, 1], [3]]


def test_ragged_batches_can_be_batched_mapped_and_flattened() -> None:
    words = Dataset.from_tensor_slices(["a b", "c"]).map(tf.strings.split).ragged_batch(2)
    (flat,) = words.map(lambda rows: tf.reshape(rows, [-1]))
    assert flat.numpy().tolist() == [b"a", b"b", b"c"]
    (twice,) = words.batch(1)
    assert twice.to_list() == [[[b"a", b"b"], [b"c"]]]
    assert words.batch(1).element_spec == tf.RaggedTensorSpec([None, None, None], tf.string)


def test_elements_of_different_ranks_are_an_error() -> None:
    mixed = Dataset.from_generator(lambda: iter([np.ones(2), np.ones((2, 2))]), tf.float32, tf.TensorShape(None))
    with pytest.raises(tf.errors.InvalidArgumentError, match="of one rank are needed, got ranks 1, 2"):
        list(mixed.ragged_batch(2))


def test_a_ragged_tensor_is_reshaped_to_its_values_only() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"to \[-1\] only, got \(3, 1\): to_tensor"):
        tf.reshape(tf.ragged.constant([[1, 2], [3]]), [3, 1])
    with pytest.raises(TypeError, match="no ragged tensors: use to_tensor"):
        tf.reduce_sum(tf.ragged.constant([[1, 2], [3]]))
