"""Keras scripts as users write them: eager and compiled agree to the bit, on NumPy and PyTorch within rounding."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_tf as tf
from tape_tf import keras
from tape_tf.keras import layers


def sequences(eager: bool) -> Any:
    rng = np.random.default_rng(0)
    x = rng.integers(1, 30, (64, 12))
    x[:, 8:] = 0
    y = (x[:, 0] > 15).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((12,)),
            layers.Embedding(30, 8, mask_zero=True),
            layers.Bidirectional(layers.LSTM(6)),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"], run_eagerly=eager)
    history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0, validation_split=0.25).history
    return [*history["loss"], *history["val_loss"], *model.evaluate(x, y, verbose=0), *model.predict(x[:3], verbose=0)]


def pictures(eager: bool) -> Any:
    rng = np.random.default_rng(0)
    x, y = rng.random((72, 10, 10, 1)).astype("float32"), rng.integers(0, 4, 72)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(72, seed=3).batch(24)
    data = data.map(lambda a, b: (a * 2 - 1, b)).prefetch(tf.data.AUTOTUNE)
    given = keras.Input((10, 10, 1))
    h = layers.Conv2D(8, 3, padding="same", use_bias=False)(given)
    h = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(h)))
    h = layers.Add()([layers.Conv2D(8, 3, padding="same", activation="relu")(h), layers.Conv2D(8, 1)(h)])
    model = keras.Model(given, layers.Dense(4)(layers.Dropout(0.3)(layers.GlobalAveragePooling2D()(h))))
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, 20)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        run_eagerly=eager,
    )
    losses: list[float] = []
    told = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: losses.append(logs["loss"]))
    history = model.fit(data, epochs=2, verbose=0, callbacks=[told]).history
    assert losses == history["loss"]
    return [*losses, *model.evaluate(x, y, verbose=0), *model.predict(x[:3], verbose=0)]


class Custom(keras.Model):
    """A model with a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.drop, self.out = layers.Dense(8, activation="relu"), layers.Dropout(0.2), layers.Dense(1)
        self.mean = keras.metrics.Mean(name="loss")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.out(self.drop(self.hidden(x), training=training))

    @property
    def metrics(self) -> Any:
        return [self.mean]

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True)[:, 0] - tf.cast(y, tf.float32)))
            loss += 1e-3 * sum(tf.reduce_sum(w**2) for w in self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 1.0)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.mean.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


def own_step(eager: bool) -> Any:
    x = np.random.default_rng(0).normal(size=(60, 5))
    model = Custom()
    model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), run_eagerly=eager)
    history = model.fit(x, x @ [1.0, 2.0, 3.0, -1.0, 0.5], epochs=3, batch_size=20, verbose=0, shuffle=False).history
    return [*history["loss"], *model.predict(x[:3], verbose=0)]


@pytest.mark.each_backend
@pytest.mark.parametrize("program", [sequences, pictures, own_step])
def test_a_script_gives_the_same_numbers_however_it_is_run(program: Callable[[bool], Any]) -> None:
    found = {}
    for backend in ("numpy", "torch:cpu") if find_spec("torch") else ("numpy",):
        for eager in (True, False):
            with tc.use_backend(backend):
                keras.utils.set_random_seed(0)
                found[backend, eager] = np.concatenate([np.ravel(part) for part in program(eager)])
        np.testing.assert_array_equal(found[backend, False], found[backend, True])
    for one in found.values():
        np.testing.assert_allclose(one, found["numpy", True], rtol=1e-3, atol=1e-5)
