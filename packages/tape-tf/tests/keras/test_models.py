"""Models: how they are made, what they hold, and what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_tf as tf

layers = tf.keras.layers


@pytest.fixture(autouse=True)
def _fresh_names() -> None:
    tf.keras.backend.clear_session()
    tf.random.set_seed(1)


class Twice(tf.keras.Model):
    """Two layers, one of them in a list, a variable, and something only training does."""

    def __init__(self, units: int = 3) -> None:
        super().__init__()
        self.hidden = layers.Dense(units, activation="tanh")
        self.rest = [layers.Dropout(0.5), layers.Dense(1)]
        self.scale = tf.Variable(2.0, name="scale")

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.hidden(x)
        for layer in self.rest:
            x = layer(x)
        return x * self.scale


def test_names_are_keras_names() -> None:
    first, second = layers.Dense(1), layers.Dense(1)
    assert (first.name, second.name) == ("dense", "dense_1")
    assert [layers.BatchNormalization().name, layers.LSTM(1).name] == ["batch_normalization", "lstm"]
    assert tf.keras.Sequential().name == "sequential"
    assert Twice().name == "twice"
    second.build((None, 2))
    assert [v.name for v in second.variables] == ["dense_1/kernel:0", "dense_1/bias:0"]
    model = tf.keras.Sequential([layers.Dense(1, name="out")], name="net")
    model(tf.ones((1, 2)))
    assert [v.name for v in model.variables] == ["net/out/kernel:0", "net/out/bias:0"]
    assert repr(second) == "<Dense name=dense_1, built=True>"


def test_weights_are_found_wherever_they_are_held() -> None:
    model = Twice()
    assert [v.name for v in model.trainable_variables] == ["scale:0"]
    model(tf.ones((2, 4)))
    assert [v.shape for v in model.weights] == [(), (4, 3), (3,), (3, 1), (1,)]
    assert [layer.name for layer in model.layers] == ["dense", "dropout", "dense_1"]
    assert model.count_params() == 1 + 12 + 3 + 3 + 1
    module = tf.Module()
    module.model = model
    assert len(module.trainable_variables) == 5


def test_variables_are_the_same_objects_as_tape_nn_has() -> None:
    layer = layers.Dense(2)
    layer.build((None, 3))
    assert layer.kernel is layer.variables[0]
    assert layer.kernel.native is layer.native.kernel
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(layer(tf.ones((1, 3))))
    assert tape.watched_variables() == (layer.kernel, layer.bias) or len(tape.watched_variables()) == 2
    np.testing.assert_array_equal(tape.gradient(y, layer.kernel), np.ones((3, 2)))


def test_training_is_handed_down() -> None:
    model = Twice()
    x = tf.ones((64, 4))
    model(x)
    quiet = model(x).numpy()
    assert len(np.unique(quiet)) == 1
    assert len(np.unique(model(x, training=True).numpy())) > 1
    np.testing.assert_array_equal(model(x, training=False), quiet)
    np.testing.assert_array_equal(model.predict(x, verbose=0), quiet)


def test_a_call_that_must_be_told_of_training_is_told() -> None:
    seen: list[Any] = []

    class Needs(layers.Layer):
        def call(self, inputs: Any, training: Any) -> Any:
            seen.append(training)
            return inputs

    class Leaves(layers.Layer):
        def call(self, inputs: Any, training: Any = None) -> Any:
            seen.append(training)
            return inputs

    x = tf.ones((1, 2))
    for layer in (Needs(), Leaves()):
        layer(x)
        layer(x, training=True)
        tf.keras.Sequential([layer])(x, training=True)
    assert seen == [False, True, True, None, True, True]


def test_freezing() -> None:
    model = Twice()
    x = tf.ones((2, 4))
    model(x)
    model.hidden.trainable = False
    assert [v.shape for v in model.trainable_variables] == [(), (3, 1), (1,)]
    assert [v.shape for v in model.non_trainable_variables] == [(4, 3), (3,)]
    assert len(model.weights) == 5
    with tf.GradientTape() as tape:
        y = model(x)
    assert tape.gradient(y, model.hidden.kernel) is None
    model.trainable = False
    assert model.trainable_variables == []
    model.trainable = True
    assert len(model.trainable_variables) == 5
    before = layers.Dense(2, trainable=False)
    before(x)
    assert before.trainable_variables == []
    before.trainable = True
    assert len(before.trainable_variables) == 2


def test_frozen_batch_normalization_uses_its_moving_statistics() -> None:
    layer = layers.BatchNormalization()
    x = tf.constant([[1.0], [5.0]])
    layer.build((None, 1))
    layer.trainable = False
    np.testing.assert_allclose(layer(x, training=True), x.numpy() / np.sqrt(1.001), rtol=1e-6)
    np.testing.assert_array_equal(layer.moving_mean, [0.0])


def test_sequential_knows_its_shapes_from_the_input() -> None:
    model = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(3), layers.Dense(1)])
    assert model.built
    assert (model.input_shape, model.output_shape) == ((None, 4), (None, 1))
    assert [layer.name for layer in model.layers] == ["dense", "dense_1"]
    model.pop()
    assert model.output_shape == (None, 3)
    old = tf.keras.Sequential([layers.Dense(3, input_shape=(4,)), layers.Dense(1)])
    assert len(old.weights) == 4
    assert len(tf.keras.Sequential([old, layers.Dense(1)]).weights) == 6
    later = tf.keras.Sequential()
    later.add(layers.Dense(2))
    assert not later.weights
    later.build((None, 5))
    assert later.layers[0].kernel.shape == (5, 2)


def test_build_of_a_subclass_calls_it() -> None:
    model = Twice()
    model.build((None, 4))
    assert len(model.weights) == 5


def test_functional_models() -> None:
    inputs = tf.keras.Input(shape=(4,), name="in")
    hidden = layers.Dense(3, activation="relu")(inputs)
    model = tf.keras.Model(inputs=inputs, outputs={"out": layers.Dense(2)(hidden) + 1.0, "hidden": hidden})
    assert hidden.shape == (None, 3)
    found = model(tf.ones((5, 4)))
    assert {key: value.shape for key, value in found.items()} == {"out": (5, 2), "hidden": (5, 3)}
    assert [layer.name for layer in model.layers] == ["in", "dense", "dense_1"]
    assert model.name == "functional"
    inner = tf.keras.Model(model.input, model.get_layer("dense").output)
    np.testing.assert_array_equal(inner(tf.ones((5, 4))), found["hidden"])
    shared = layers.Dense(1)
    a, b = tf.keras.Input((2,)), tf.keras.Input((2,))
    both = tf.keras.Model([a, b], layers.Subtract()([shared(a), shared(b)]))
    assert len(both.weights) == 2
    np.testing.assert_array_equal(both([tf.ones((3, 2)), tf.ones((3, 2))]), np.zeros((3, 1)))


def test_a_length_that_depends_on_one_not_known_is_not_known() -> None:
    x = tf.keras.Input((None, 3))
    assert layers.Conv1D(2, 3)(x).shape == (None, None, 2)
    assert layers.LSTM(2)(x).shape == (None, 2)
    assert layers.GlobalAveragePooling1D()(x).shape == (None, 3)
    assert (2.0 * x[:, 0]).shape == (None, 3)
    assert tf.keras.Input(batch_shape=(8, 3)).shape == (8, 3)
    assert layers.Dense(1)(tf.keras.Input(batch_shape=(8, 3))).shape == (8, 1)


def test_layers_derive_and_have_a_configuration() -> None:
    class Scale(layers.Layer):
        def __init__(self, factor: float, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.factor = factor

        def build(self, input_shape: Any) -> None:
            self.w = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="w", regularizer="l2")
            self.fixed = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs: Any) -> Any:
            return inputs * self.w * self.factor

    layer = Scale(3.0, name="mine")
    np.testing.assert_array_equal(layer(np.ones((1, 2))), [[3.0, 3.0]])
    assert layer.dtype == "float32"
    assert [v.name for v in layer.trainable_weights] == ["mine/w:0"]
    assert [v.shape for v in layer.non_trainable_weights] == [()]
    assert [round(float(loss), 4) for loss in layer.losses] == [0.02]
    again = Scale.from_config(layer.get_config())
    assert (again.factor, again.name) == (3.0, "mine")
    assert layers.Dense.from_config(layers.Dense(4, "relu").get_config()).units == 4


def test_what_a_layer_computes_in() -> None:
    x = np.ones((2, 3))
    assert layers.Dense(1)(x).dtype == tf.float32
    assert layers.Dense(1, dtype="float64")(x).dtype == tf.float64
    assert layers.Dense(1)(tf.ones((2, 3), tf.int32)).dtype == tf.float32
    assert layers.Dense(1)([[1.0, 2.0]]).shape == (1, 1)
    assert layers.Flatten()(tf.ones((2, 3), tf.int32)).dtype == tf.int32
    tf.keras.backend.set_floatx("float64")
    try:
        assert layers.Dense(1)(x).dtype == tf.float64
    finally:
        tf.keras.backend.set_floatx("float32")


def test_losses_are_those_of_the_last_call() -> None:
    class Noisy(layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(tf.reduce_sum(inputs))
            return inputs

    model = tf.keras.Sequential([Noisy(), layers.Dense(1, kernel_regularizer="l1")])
    for _ in range(3):
        model(tf.ones((2, 2)))
    assert len(model.losses) == 2
    assert float(model.losses[0]) == 4.0


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    model = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(8), layers.Dropout(0.5), layers.Dense(1)])
    model.summary(line_length=76)
    assert (
        capsys.readouterr().out
        == """\
Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ dense (Dense)                   │ (None, 8)              │            40 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dropout (Dropout)               │ (None, 8)              │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 1)              │             9 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 49 (196.00 B)
 Trainable params: 49 (196.00 B)
 Non-trainable params: 0 (0.00 B)
"""
    )
    lines: list[str] = []
    tf.keras.Sequential([layers.Dense(1)]).summary(print_fn=lines.append)
    assert "0 (unbuilt)" in lines[0]


def test_weights_in_a_file(tmp_path: Path) -> None:
    x = tf.ones((2, 4))
    first, second = Twice(), Twice()
    first(x)
    second(x)
    path = tmp_path / "model.weights.safetensors"
    first.save_weights(path)
    second.load_weights(path)
    np.testing.assert_array_equal(first(x), second(x))
    state, _ = tc_names(path)
    assert state == ["hidden.bias", "hidden.kernel", "rest.1.bias", "rest.1.kernel", "scale"]
    other = Twice(units=5)
    other(x)
    with pytest.raises(ValueError, match=r"'hidden.kernel' has shape \(4, 3\); the variable has \(4, 5\)"):
        other.load_weights(path)
    with pytest.raises(ValueError, match=r"'hidden' \(Dense\).* no Variables yet"):
        Twice().load_weights(path)
    with pytest.raises(FileExistsError, match="already"):
        first.save_weights(path, overwrite=False)


def tc_names(path: Path) -> tuple[list[str], Any]:
    import tape_nn as nn

    state, metadata = nn.load_tensors(path)
    return sorted(state), metadata


def test_get_and_set_weights() -> None:
    layer = layers.Dense(2)
    layer.build((None, 1))
    layer.set_weights([[[1.0, 2.0]], [3.0, 4.0]])
    np.testing.assert_array_equal(layer([[1.0]]), [[4.0, 6.0]])
    assert [w.tolist() for w in layer.get_weights()] == [[[1.0, 2.0]], [3.0, 4.0]]
    with pytest.raises(ValueError, match=r"weight shape \(1, 2\) is not compatible with provided .* \(2, 2\)"):
        layer.set_weights([np.ones((2, 2)), np.ones(2)])
    with pytest.raises(ValueError, match="was expecting 2 weights"):
        layer.set_weights([np.ones((1, 2))])


def test_initializers_with_a_seed_repeat_themselves() -> None:
    initializer = tf.keras.initializers.HeNormal(seed=3)
    np.testing.assert_array_equal(initializer((3, 2)), initializer((3, 2)))
    free = tf.keras.initializers.HeNormal()
    assert not np.array_equal(free((3, 2)), free((3, 2)))
    np.testing.assert_array_equal(tf.keras.initializers.Identity(2.0)((2, 2)), 2 * np.eye(2))
    np.testing.assert_array_equal(tf.keras.initializers.get("ones")((2,)), [1.0, 1.0])
    tf.keras.utils.set_random_seed(5)
    first = layers.Dense(2)(tf.ones((1, 3))).numpy()
    tf.keras.utils.set_random_seed(5)
    np.testing.assert_array_equal(layers.Dense(2)(tf.ones((1, 3))), first)


def test_an_embedding_has_a_sparse_gradient() -> None:
    layer = layers.Embedding(10, 2)
    with tf.GradientTape() as tape:
        y = layer(tf.constant([[1, 1, 3]]))
    gradient = tape.gradient(y, layer.embeddings)
    assert isinstance(gradient, tf.IndexedSlices)
    assert isinstance(gradient.native, tc.IndexedSlices)
    tf.keras.optimizers.SGD(1.0).apply_gradients([(gradient, layer.embeddings)])


def test_normalization_adapts_to_data() -> None:
    layer = layers.Normalization()
    data = np.random.default_rng(0).normal(3.0, 2.0, (50, 4)).astype("float32")
    layer.adapt(tf.data.Dataset.from_tensor_slices(data).batch(16))
    found = layer(data).numpy()
    np.testing.assert_allclose(found.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(found.std(0), 1.0, atol=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        "Conv2D(4, 3, groups=2, padding='same')",
        "DepthwiseConv2D(3, depth_multiplier=2)",
        "SeparableConv2D(4, 3)",
        "MaxPooling2D()",
        "AveragePooling2D(3, 1, 'same')",
        "GlobalAveragePooling2D()",
        "ZeroPadding2D(1)",
        "Cropping2D(1)",
        "UpSampling2D()",
    ],
)
def test_channels_first_is_channels_last_with_the_axes_moved(call: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 4)).astype("float32")
    made = [eval(f"layers.{call[:-1]}, data_format={form!r})".replace("(, ", "("), {"layers": layers})
            for form in ("channels_last", "channels_first")]  # fmt: skip
    last, first = made
    y = last(x).numpy()
    moved = np.moveaxis(x, -1, 1)
    first(moved)
    for weight, value in zip(first.weights, last.get_weights(), strict=True):
        weight.assign(np.transpose(value, (3, 2, 0, 1)) if weight.shape != value.shape else value)
    expected = np.moveaxis(y, -1, 1) if y.ndim == 4 else y
    np.testing.assert_allclose(first(moved), expected, rtol=1e-4, atol=1e-5)


def test_spatial_dropout_drops_whole_channels() -> None:
    layer = layers.SpatialDropout2D(0.5, seed=1)
    found = layer(tf.ones((8, 3, 3, 16)), training=True).numpy()
    assert set(np.unique(found)) == {0.0, 2.0}
    assert (found == found[:, :1, :1]).all()
    np.testing.assert_array_equal(layer(tf.ones((1, 2, 2, 1))), np.ones((1, 2, 2, 1)))


def test_vectors_for_inputs_of_one_number() -> None:
    scale = layers.Normalization(input_shape=(1,), axis=None)
    x = np.arange(8.0)
    scale.adapt(x)
    model = tf.keras.Sequential([scale, layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    column = model(x[:, None])
    np.testing.assert_array_equal(model(x), column)
    np.testing.assert_array_equal(model(tf.constant(x)), column)
    np.testing.assert_array_equal(model.predict(x, verbose=0), column)
    assert model.evaluate(x, 2 * x, verbose=0) == pytest.approx(np.mean((column.numpy()[:, 0] - 2 * x) ** 2), rel=1e-5)
    assert model.train_on_batch(x, 2 * x) > model.fit(x, 2 * x, epochs=3, verbose=0).history["loss"][-1]

    inputs = tf.keras.Input((1,))
    functional = tf.keras.Model(inputs, layers.Dense(2)(inputs))
    assert functional(x).shape == (8, 2)
    assert functional.predict(x, batch_size=3, verbose=0).shape == (8, 2)
    with pytest.raises(ValueError, match="expected shape"):
        functional(x[:, None, None, None])


def test_a_last_axis_of_one_is_removed_for_inputs_of_numbers() -> None:
    number: Any = tf.keras.Input(())
    assert tf.keras.Model(number, number * 2.0)(np.ones((3, 1))).shape == (3,)


@pytest.mark.parametrize("data", [np.array([1, 2]), np.array([1.0, 2.0]), tf.constant([1, 2], tf.int64), [1, 2]])
def test_inputs_take_their_dtype(data: Any) -> None:
    number: Any = tf.keras.Input((), dtype="float32")
    model = tf.keras.Model(number, 2 * number + 1)
    found = model(np.array(data) if isinstance(data, list) else data)
    assert found.dtype == tf.float32
    assert found.numpy().tolist() == [3.0, 5.0]
    assert tf.function(model)(tf.constant([1, 2])).numpy().tolist() == [3.0, 5.0]


def test_truth_values_and_dicts_for_inputs_of_floats() -> None:
    flag: Any
    count: Any
    flag, count = tf.keras.Input((1,), name="flag"), tf.keras.Input((1,), name="count", dtype="int64")
    model = tf.keras.Model({"flag": flag, "count": count}, {"flag": flag * 0.5, "count": count + 1})
    found = model({"flag": np.array([True, False]), "count": np.array([1.0, 2.0])})
    assert found["flag"].numpy().tolist() == [[0.5], [0.0]]
    assert found["count"].dtype == tf.int64
    assert found["count"].numpy().tolist() == [[2], [3]]


def test_statistics_of_a_normalization_are_tensors() -> None:
    assert layers.Normalization().mean is None
    scale = layers.Normalization()
    scale.adapt([[0.0, 10.0], [2.0, 30.0]])
    # With an axis for the examples, as in Keras.
    np.testing.assert_array_equal(scale.mean.numpy(), [[1.0, 20.0]])
    np.testing.assert_array_equal(scale.variance.numpy(), [[1.0, 100.0]])
    assert scale.mean.dtype == tf.float32
    again = layers.Normalization.from_config(scale.get_config())
    np.testing.assert_array_equal(again([[2.0, 30.0]]), [[1.0, 1.0]])


def test_texts_of_a_vector_for_inputs_of_one_text() -> None:
    word, age = tf.keras.Input((1,), name="word", dtype="string"), tf.keras.Input((1,), name="age")
    hot = layers.StringLookup(vocabulary=["blue", "red"], output_mode="one_hot")(word)
    model = tf.keras.Model({"word": word, "age": age}, layers.Concatenate()([age, hot]))
    found = model({"word": np.array(["red", "green"]), "age": np.array([3, 4])})
    assert found.numpy().tolist() == [[3, 0, 0, 1], [4, 1, 0, 0]]
    # On such a model another one is trained, as if it were a layer.
    trained = tf.keras.Model({"word": word, "age": age}, layers.Dense(1)(model({"word": word, "age": age})))
    trained.compile(loss="mse")
    data = {"word": np.array(["red", "blue"] * 4), "age": np.arange(8)}
    assert np.isfinite(trained.fit(data, np.arange(8), verbose=0).history["loss"][0])
    assert trained.predict(data, verbose=0).shape == (8, 1)


def test_no_initializer_of_the_bias_is_the_one_of_the_kernel() -> None:
    layer = layers.Dense(64, bias_initializer=None)
    layer.build((None, 3))
    bias = layer.bias.numpy()
    assert 0 < np.abs(bias).max() < np.sqrt(6 / 64)
    assert layer.get_config()["bias_initializer"] is None
