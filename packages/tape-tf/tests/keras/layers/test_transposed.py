"""tf.keras.layers.Conv1DTranspose to Conv3DTranspose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


layers = tf.keras.layers


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"strides": 2}, {"strides": 2, "padding": "same"}, {"dilation_rate": 2}], ids=str
)
def test_it_is_the_transpose_of_the_convolution(rank: int, options: Any) -> None:
    """What it makes of x has with any y the product that x has with the convolution of y."""
    tf.random.set_seed(rank)
    transposed = getattr(layers, f"Conv{rank}DTranspose")(3, 3, use_bias=False, **options)
    convolution = getattr(layers, f"Conv{rank}D")(2, 3, use_bias=False, **options)
    x = tf.random.normal((2, *[4] * rank, 2))
    y = tf.random.normal(transposed(x).shape)
    back = convolution(y)
    convolution.kernel.assign(transposed.kernel)
    back = convolution(y)
    assert back.shape == x.shape
    left, right = tf.reduce_sum(transposed(x) * y), tf.reduce_sum(x * back)
    assert float(left) == pytest.approx(float(right), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "length"),
    [
        pytest.param({"kernel_size": 3}, 7, id="valid"),
        pytest.param({"kernel_size": 2, "strides": 4}, 20, id="kernel smaller than stride"),
        pytest.param({"kernel_size": 5, "strides": 2, "padding": "same"}, 10, id="same"),
        pytest.param(
            {"kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 0}, 9, id="output_padding 0"
        ),
        pytest.param(
            {"kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 1}, 10, id="output_padding 1"
        ),
        pytest.param({"kernel_size": 3, "dilation_rate": 2}, 9, id="dilation"),
    ],
)
def test_lengths(options: Any, length: int) -> None:
    assert layers.Conv1DTranspose(4, **options)(tf.ones((2, 5, 3))).shape == (2, length, 4)


def test_bias_activation_and_channels_first() -> None:
    last = layers.Conv2DTranspose(2, 3, strides=2, padding="same", activation="relu", bias_initializer="ones")
    first = layers.Conv2DTranspose(2, 3, 2, "same", data_format="channels_first", activation="relu")
    x = tf.random.normal((2, 4, 5, 3))
    y = last(x)
    first.build((2, 3, 4, 5))
    first.set_weights(last.get_weights())
    z = first(tf.transpose(x, [0, 3, 1, 2]))
    assert tf.transpose(z, [0, 2, 3, 1]).numpy() == pytest.approx(y.numpy(), abs=1e-5)
    assert float(tf.reduce_min(y)) == 0.0
    assert last.kernel.shape == (3, 3, 2, 3)


def test_generator_of_images() -> None:
    """As in the tutorials: it enlarges noise, and learns."""
    tf.random.set_seed(1)
    generator = tf.keras.Sequential()
    generator.add(layers.Dense(2 * 2 * 8, use_bias=False, input_shape=(5,)))
    generator.add(layers.BatchNormalization())
    generator.add(layers.LeakyReLU())
    generator.add(layers.Reshape((2, 2, 8)))
    generator.add(layers.Conv2DTranspose(4, (5, 5), strides=(2, 2), padding="same", use_bias=False))
    assert generator.output_shape == (None, 4, 4, 4)
    generator.add(layers.Conv2DTranspose(1, (5, 5), strides=(2, 2), padding="same", activation="tanh"))
    assert generator.output_shape == (None, 8, 8, 1)
    optimizer = tf.keras.optimizers.Adam(0.02)
    noise = tf.random.normal((4, 5))
    losses = []
    for _ in range(15):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((generator(noise, training=True) - 0.5) ** 2)
        gradients = tape.gradient(loss, generator.trainable_variables)
        optimizer.apply_gradients(zip(gradients, generator.trainable_variables, strict=True))
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="filters must be a positive integer, got 0"):
        layers.Conv2DTranspose(0, 3)
    with pytest.raises(ValueError, match="padding must be"):
        layers.Conv2DTranspose(2, 3, padding="full")
    with pytest.raises(ValueError, match="expected 4 axes"):
        layers.Conv2DTranspose(2, 3)(tf.ones((2, 4, 3)))


def test_values() -> None:
    layer = layers.Conv1DTranspose(1, 2, strides=2, use_bias=False, kernel_initializer="ones")
    assert layer(tf.constant([[[1.0], [3.0]]])).numpy().ravel().tolist() == [1.0, 1.0, 3.0, 3.0]
    assert np.array_equal(layer.get_weights()[0], np.ones((2, 1, 1)))
