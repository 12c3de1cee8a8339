"""Dtype policies and scaled losses of tf.keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

keras, layers = tf.keras, tf.keras.layers
mixed_precision = keras.mixed_precision

pytestmark = pytest.mark.each_backend

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = (X.sum(1) > 0).astype("int64")


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16"])
def policy(request: Any) -> Iterator[Any]:
    mixed_precision.set_global_policy(request.param)
    yield mixed_precision.global_policy()
    mixed_precision.set_global_policy(None)


def made() -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(8, activation="relu"),
            layers.Dense(2),
            layers.Activation("softmax", dtype="float32"),
        ]
    )


LAYERS: dict[str, Any] = {
    "dense": (lambda: layers.Dense(3), (2, 4)),
    "convolution": (lambda: layers.Conv2D(2, 3), (1, 5, 5, 2)),
    "normalization": (layers.LayerNormalization, (2, 4)),
    "lstm": (lambda: layers.LSTM(3), (2, 4, 3)),
    "a cell": (lambda: layers.RNN(layers.GRUCell(2)), (2, 4, 3)),
    "pooling": (layers.GlobalAveragePooling1D, (2, 4, 3)),
    "rescaling": (lambda: layers.Rescaling(2.0), (2, 4)),
    "slopes": (layers.PReLU, (2, 4)),
    "images": (layers.RandomFlip, (2, 4, 4, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_in_half_precision_with_weights_in_float32(name: str, policy: Any) -> None:
    make, shape = LAYERS[name]
    layer = make()
    assert layer(tf.ones(shape)).dtype.name == policy.compute_dtype
    assert {weight.dtype.name for weight in layer.weights} <= {"float32"}
    assert (layer.dtype, layer.compute_dtype, layer.dtype_policy) == ("float32", policy.compute_dtype, policy)


def test_a_layer_of_ones_own_reads_its_weights_in_half_precision(policy: Any) -> None:
    class Scale(layers.Layer):
        def build(self, shape: Any) -> None:
            self.w = self.add_weight(shape=(shape[-1],), initializer="ones", name="w")
            self.exact = self.add_weight(shape=(), initializer="ones", autocast=False, name="exact")

        def call(self, x: Any) -> Any:
            self.seen = (self.w + x).dtype.name, tf.convert_to_tensor(self.exact).dtype.name
            return x * self.w

    scale = Scale()
    x = tf.Variable([[2.0, 3.0]])
    with tf.GradientTape() as tape:
        y = scale(x)
    assert scale.seen == (policy.compute_dtype, "float32")
    assert y.dtype.name == policy.compute_dtype
    gradient = tape.gradient(y, scale.w)
    assert gradient.dtype.name == "float32"
    np.testing.assert_array_equal(gradient, [2.0, 3.0])
    assert tf.convert_to_tensor(scale.w).dtype.name == "float32"  # outside of the call


def test_a_layer_in_float32_inside_of_one_in_half_precision(policy: Any) -> None:
    class Outer(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layers.PReLU(dtype="float32")

        def call(self, x: Any) -> Any:
            self.seen = self.inner(x).dtype.name
            return x

    outer = Outer()
    outer(tf.ones((1, 2)))
    assert outer.seen == "float32"


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_a_model_learns(policy: Any, eager: bool) -> None:
    model = made()
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", run_eagerly=eager)
    assert isinstance(model.optimizer, mixed_precision.LossScaleOptimizer) == (policy.name == "mixed_float16")
    history = model.fit(X, Y, epochs=6, batch_size=16, verbose=0).history
    assert history["loss"][-1] < 0.6 * history["loss"][0]
    assert model.predict(X, verbose=0).dtype == np.float32
    assert {weight.dtype.name for weight in model.weights} == {"float32"}


def test_policies_are_saved(policy: Any, tmp_path: Any) -> None:
    model = made()
    model.save(tmp_path / "model.keras")
    mixed_precision.set_global_policy("float32")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [layer.dtype_policy for layer in loaded.layers] == [policy, policy, keras.DTypePolicy("float32")]
    np.testing.assert_array_equal(loaded(X), model(X))


def test_layers_may_have_a_policy_of_their_own() -> None:
    layer = layers.Dense(2, dtype=mixed_precision.Policy("mixed_bfloat16"))
    assert layer(tf.ones((1, 3))).dtype == tf.bfloat16
    assert layers.Dense(2).compute_dtype == "float32"
    assert repr(keras.DTypePolicy("float64")) == '<DTypePolicy "float64">'
    with pytest.raises(ValueError, match="'mixed_float16' or 'mixed_bfloat16'; got 'mixed_int8'"):
        layers.Dense(2, dtype="mixed_int8")


@pytest.mark.parametrize("names", ["Keras 2", "Keras 3"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_of_ones_own(names: str, compiled: bool) -> None:
    w = tf.Variable([1.0, 2.0])
    optimizer = mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=1024.0)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * w)
            scaled = optimizer.get_scaled_loss(loss) if names == "Keras 2" else optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, [w])
        if names == "Keras 2":
            gradients = optimizer.get_unscaled_gradients(gradients)
            optimizer.apply_gradients(zip(gradients, [w], strict=True))
        else:
            optimizer.apply(gradients, [w])

    run = tf.function(step) if compiled else step
    for _ in range(3):
        run()
    np.testing.assert_array_equal(w, [0.125, 0.25])
    assert int(optimizer.iterations) == 3


def test_gradients_that_are_not_finite_are_skipped_and_the_scale_is_halved() -> None:
    w = tf.Variable([1.0])
    optimizer = mixed_precision.LossScaleOptimizer("sgd", initial_scale=8.0, dynamic_growth_steps=2)
    optimizer.apply_gradients([(tf.constant([np.inf], dtype="float32"), w)])
    np.testing.assert_array_equal(w, [1.0])
    assert (float(optimizer.dynamic_scale), int(optimizer.iterations)) == (4.0, 0)
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([4.0]), w)])
    np.testing.assert_allclose(w, [1.0 - 2 * 0.01], rtol=1e-6)
    assert float(optimizer.dynamic_scale) == 8.0
    optimizer.learning_rate = 0.5
    assert float(optimizer.inner_optimizer.learning_rate) == 0.5


def test_the_optimizer_is_described() -> None:
    optimizer = mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(0.5), dynamic_growth_steps=7)
    config = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.deserialize(config)
    assert type(again.inner_optimizer) is keras.optimizers.Adam
    assert (float(again.learning_rate), again.dynamic_growth_steps) == (0.5, 7)
