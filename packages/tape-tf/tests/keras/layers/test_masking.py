"""Masks and recurrent layers: what no comparison with Keras tells."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_tf as tf

layers = tf.keras.layers

pytestmark = pytest.mark.each_backend

IDS = np.array([[1, 2, 0, 0], [3, 4, 5, 6]])


def embedded(ids: Any = IDS) -> Any:
    tf.keras.utils.set_random_seed(0)
    return layers.Embedding(10, 4, mask_zero=True)(ids)


def test_a_layer_of_ones_own_gets_the_mask_and_passes_another_on() -> None:
    class Halve(layers.Layer):
        def call(self, x: Any, mask: Any = None) -> Any:
            self.seen = mask
            return x[:, ::2]

        def compute_mask(self, x: Any, mask: Any = None) -> Any:
            return mask[:, ::2]

    halve = Halve()
    y = halve(embedded())
    np.testing.assert_array_equal(halve.seen.numpy(), IDS != 0)
    np.testing.assert_array_equal(y._keras_mask.numpy(), IDS[:, ::2] != 0)


def test_supports_masking_passes_the_same_mask_on() -> None:
    class Twice(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.supports_masking = True

        def call(self, x: Any) -> Any:
            return 2 * x

    np.testing.assert_array_equal(Twice()(embedded())._keras_mask.numpy(), IDS != 0)


def test_a_mask_without_a_default_is_given_also_where_there_is_none() -> None:
    class Count(layers.Layer):
        def call(self, x: Any, mask: Any) -> Any:
            return tf.reduce_sum(x) if mask is None else tf.reduce_sum(tf.cast(mask, x.dtype))

    assert float(Count()(tf.ones((2, 3)))) == 6
    with pytest.warns(UserWarning, match="does not support masks"):
        assert float(Count()(embedded())) == 6 == (IDS != 0).sum()


def test_a_layer_that_loses_the_mask_warns() -> None:
    with pytest.warns(UserWarning, match="set its supports_masking to True"):
        y = layers.Flatten()(embedded())
    assert y._keras_mask is None


def test_a_mask_may_be_given_in_place_of_that_of_the_input() -> None:
    lstm = layers.LSTM(3)
    x, mask = embedded(), tf.constant([[True, False, True, True]] * 2)
    np.testing.assert_allclose(lstm(x, mask=mask), lstm(tf.gather(x, [0, 2, 3], axis=1)), rtol=1e-5, atol=1e-6)


def test_hidden_steps_change_nothing() -> None:
    """A sequence with padding anywhere ends in the state of the sequence without."""
    for kind in (layers.LSTM, layers.GRU, layers.SimpleRNN):
        layer = kind(3)
        x = embedded(np.array([[1, 0, 2, 0]]))
        short = embedded(np.array([[1, 2]]))
        np.testing.assert_allclose(layer(x), layer(short), rtol=1e-5, atol=1e-6)


def test_gradients_skip_hidden_steps() -> None:
    x = tf.Variable(tf.random.normal((1, 4, 3), seed=1))
    lstm, mask = layers.LSTM(2), tf.constant([[True, False, True, False]])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(lstm(x, mask=mask))
    gradient = tape.gradient(y, x).numpy()
    assert np.all(gradient[:, [1, 3]] == 0)
    assert np.all(gradient[:, [0, 2]] != 0)


def test_a_mask_counts_beside_an_initial_state() -> None:
    gru = layers.GRU(3)
    x = embedded()
    np.testing.assert_allclose(gru(x, initial_state=tf.zeros((2, 3))), gru(x), rtol=1e-5, atol=1e-6)


def test_functional_models_take_masks_of_their_inputs() -> None:
    inputs = tf.keras.Input((None, 4))
    model = tf.keras.Model(inputs, layers.LSTM(3)(inputs))
    x, mask = tf.random.normal((2, 5, 4), seed=0), tf.constant([[True] * 3 + [False] * 2] * 2)
    np.testing.assert_allclose(model(x, mask=mask), model(x[:, :3]), rtol=1e-5, atol=1e-6)
    stacked = tf.keras.Sequential([layers.Dense(3), layers.LSTM(2)])
    np.testing.assert_allclose(stacked(x, mask=mask), stacked(x[:, :3]), rtol=1e-5, atol=1e-6)


def test_symbolic_tensors_have_masks() -> None:
    inputs = tf.keras.Input((None,), dtype="int32")
    x = layers.Embedding(10, 4, mask_zero=True)(inputs)
    assert x._keras_mask.shape == (None, None)
    assert layers.LSTM(3)(x)._keras_mask is None
    assert layers.Dense(2)(layers.Dropout(0.1)(x))._keras_mask.shape == (None, None)
    model = tf.keras.Model(inputs, [layers.GRU(3)(x, mask=x._keras_mask), layers.GRU(3)(x), x._keras_mask, x * 2])
    *_, mask, doubled = model(IDS)
    np.testing.assert_array_equal(mask.numpy(), IDS != 0)
    assert doubled._keras_mask is None  # functions and operators lose masks


def test_compiled_calls_see_masks() -> None:
    model = tf.keras.Sequential([layers.Embedding(10, 4, mask_zero=True), layers.LSTM(3), layers.Dense(1)])
    eager = model(IDS)
    np.testing.assert_allclose(tf.function(model)(tf.constant(IDS)), eager, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tf.function(model)(tf.constant(IDS[:1, :2])), eager[:1], rtol=1e-5)


def test_all_steps_hidden_give_a_loss_of_zero_and_no_nan() -> None:
    x = embedded(np.zeros((2, 3), dtype=np.int64))
    assert float(tf.keras.losses.MeanSquaredError()(tf.ones((2, 3, 4)), x)) == 0
    assert np.all(np.isfinite(layers.GlobalAveragePooling1D()(x).numpy()))


def test_weights_of_examples_count_for_their_steps() -> None:
    y_pred = embedded()
    y_true = tf.zeros_like(y_pred)
    errors = np.mean(np.square(y_pred.numpy()), axis=-1) * (IDS != 0)
    found = tf.keras.losses.MeanSquaredError()(y_true, y_pred, sample_weight=[1.0, 3.0])
    np.testing.assert_allclose(found, (errors * [[1.0], [3.0]]).sum() / (IDS != 0).sum(), rtol=1e-5)
    metric = tf.keras.metrics.MeanSquaredError()
    metric.update_state(y_true, y_pred, sample_weight=[1.0, 3.0])
    weights = (IDS != 0) * [[1.0], [3.0]]
    np.testing.assert_allclose(metric.result(), (errors * weights).sum() / weights.sum(), rtol=1e-5)


def test_dropout_of_a_sequence_drops_the_same_features_in_each_step() -> None:
    cell = layers.LSTMCell(3, dropout=0.5, recurrent_dropout=0.5, seed=3)
    seen: list[Any] = []
    drop = type(cell)._drop
    layer = layers.RNN(cell, return_sequences=True)
    x = tf.ones((2, 4, 6))
    layer(x)
    with pytest.MonkeyPatch.context() as patch:

        def _drop(self: Any, what: str, value: Any, rate: float, training: bool) -> Any:
            found = drop(self, what, value, rate, training)
            if what == "inputs":
                seen.append(found.numpy())
            return found

        patch.setattr(type(cell), "_drop", _drop)
        layer(x, training=True)
    assert {0.0, 2.0} == set(np.unique(seen))
    assert all(np.array_equal(first, seen[0]) for first in seen)


@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_dropout_acts_in_training_only(kind: Any) -> None:
    x = tf.random.normal((4, 5, 6), seed=1)
    for options in ({"dropout": 0.5}, {"recurrent_dropout": 0.5}):
        layer = kind(8, seed=1, **options)
        np.testing.assert_array_equal(layer(x), layer(x))
        assert not np.allclose(layer(x, training=True), layer(x))


def test_a_stateful_layer_continues_where_it_ended() -> None:
    layer = layers.GRU(3, stateful=True, return_sequences=True)
    x = tf.random.normal((2, 6, 4), seed=1)
    parts = [layer(x[:, :3]), layer(x[:, 3:])]
    layer.reset_states()
    np.testing.assert_allclose(layer(x), tf.concat(parts, axis=1), rtol=1e-5, atol=1e-6)
    assert not layer.non_trainable_variables
    with pytest.raises(ValueError, match="batches of 2 examples; got 1"):
        layer(x[:1])
    with pytest.raises(AttributeError, match="keeps no state"):
        layers.GRU(3).reset_states()


def test_a_stateful_layer_in_a_compiled_function() -> None:
    layer = layers.LSTM(3, stateful=True)
    x = tf.random.normal((2, 3, 4), seed=1)
    eager = [layer(x), layer(x)]
    layer.reset_state()
    step = tf.function(layer)
    for expected in eager:
        np.testing.assert_allclose(step(x), expected, rtol=1e-5)


def test_both_ways_copies_a_cell_of_ones_own() -> None:
    layer = layers.Bidirectional(layers.RNN([layers.GRUCell(3), layers.LSTMCell(2)]))
    assert layer(embedded()).shape == (2, 4)
    assert len(layer.trainable_variables) == 12


def test_models_with_masks_are_saved_and_loaded(tmp_path: Any) -> None:
    inputs = tf.keras.Input((None,), dtype="int32")
    x = layers.Embedding(10, 4, mask_zero=True)(inputs)
    y = layers.RNN(layers.StackedRNNCells([layers.GRUCell(3), layers.LSTMCell(2)]))(x)
    model = tf.keras.Model(inputs, [layers.Attention()([x, x]), layers.SimpleRNN(2)(x), y])
    model.save(tmp_path / "model.keras")
    for found, expected in zip(tf.keras.models.load_model(tmp_path / "model.keras")(IDS), model(IDS), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_cell_in_a_loop_of_ones_own_is_the_layer() -> None:
    cell = layers.LSTMCell(3)
    x = tf.random.normal((2, 4, 5), seed=2)
    state = cell.get_initial_state(batch_size=2)
    for k in range(4):
        output, state = cell(x[:, k], states=state)
    layer = layers.LSTM(3)
    layer(x)
    layer.set_weights(cell.get_weights())
    np.testing.assert_allclose(layer(x), output, rtol=1e-5, atol=1e-6)


def test_a_native_layer_takes_masks_under_transformations() -> None:
    import tape_nn as nn

    layer = nn.GRU(3)
    x = tc.default_rng(1).normal((2, 4, 5))
    mask = tc.asarray([[True, True, False, False], [False, True, True, True]])
    expected = layer(x, mask=mask)
    np.testing.assert_allclose(layer(x[:1, :2])[0].numpy(), expected[0].numpy(), rtol=1e-5, atol=1e-6)
    found = tc.vmap(lambda a, m: layer(a[None], mask=m[None])[0])(x, mask)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="mask must be boolean, of shape"):
        layer(x, mask=tc.ones((2, 4)))


def test_no_warning_where_layers_pass_masks_on() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = tf.keras.Sequential(
            [
                layers.Embedding(10, 4, mask_zero=True),
                layers.Dropout(0.5),
                layers.LSTM(3, return_sequences=True),
                layers.LSTM(3),
                layers.Dense(1),
            ]
        )
        model(IDS)


@pytest.mark.each_backend
def test_a_gru_that_resets_before_the_product_is_that_of_keras(tmp_path):
    """The expected values are those of Keras 3.15."""
    layer = layers.GRU(2, reset_after=False, return_sequences=True)
    model = tf.keras.Sequential([layers.Input((3, 2)), layer])
    weights = [np.linspace(-1, 1, 12).reshape(2, 6), np.linspace(1, -0.5, 12).reshape(2, 6), np.linspace(-0.3, 0.3, 6)]
    layer.set_weights(weights)
    x = np.linspace(-1, 1, 12).reshape(2, 3, 2).astype("float32")
    expected = [
        [[-0.0743586, -0.1602904], [-0.0435208, -0.1174334], [0.0792103, 0.0697698]],
        [[0.2133379, 0.2785863], [0.3956981, 0.5033251], [0.5502438, 0.6750980]],
    ]
    np.testing.assert_allclose(layer(x), expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(tf.function(layer)(x), expected, rtol=2e-5, atol=1e-6)
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(x), expected, rtol=2e-5, atol=1e-6)
    cell = layers.GRUCell(2, reset_after=False)
    cell(x[:, 0], [np.ones((2, 2), "float32")])
    cell.set_weights(weights)
    output, _ = cell(x[:, 0], [np.ones((2, 2), "float32")])
    np.testing.assert_allclose(output, [[0.8431771, 0.6928955], [0.8214791, 0.8132834]], rtol=2e-5)
