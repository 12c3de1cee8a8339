"""A user's program in TensorFlow's names: mypy --strict and pyright find nothing in it, and it runs."""

from __future__ import annotations

from typing import assert_type

import tape_tf as tf
from tape_tf import keras


class Linear(tf.Module):
    """A layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.w = tf.Variable(tf.random.normal([inputs, outputs]), name="w")
        self.b = tf.Variable(tf.zeros([outputs]), name="b")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        product: tf.Tensor = tf.matmul(x, self.w)
        return product + self.b


@tf.function
def loss_of(layer: Linear, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error."""
    loss: tf.Tensor = tf.reduce_mean(tf.square(layer(x) - y))
    return loss


class Scaler:
    """An object with a compiled method."""

    @tf.function(reduce_retracing=True)
    def scale(self, x: tf.Tensor, by: float) -> tf.Tensor:
        """Return a multiple."""
        return x * by


def by_hand(x: tf.Tensor, y: tf.Tensor) -> float:
    """Train with a tape; return the loss."""
    layer = Linear(3, 1)
    optimizer = keras.optimizers.Adam(0.05)
    loss = tf.constant(0.0)
    for _ in range(60):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(layer(x) - y))
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply_gradients(zip(gradients, layer.trainable_variables, strict=True))
    return float(loss)


def with_keras(x: tf.Tensor, y: tf.Tensor) -> list[float]:
    """Train with `fit`; return the losses."""
    model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    history = model.fit(x, y, epochs=3, verbose=0)
    losses: list[float] = history.history["loss"]
    predicted = model.predict(x, verbose=0)
    assert predicted.shape == (32, 1)
    return losses


def tensors() -> None:
    """Compute with tensors and Variables."""
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    assert_type(x, tf.Tensor)
    assert_type(x @ x + 1.0, tf.Tensor)
    joined: tf.Tensor = tf.concat([tf.nn.softmax(x, axis=-1), tf.cast(x, tf.float32)], axis=0)
    assert joined.shape == [4, 2]
    assert_type(Scaler().scale(x, 2.0), tf.Tensor)
    assert_type(loss_of(Linear(2, 2), x, y=x), tf.Tensor)
    assert_type(tf.reduce_sum(x, axis=[0, 1], keepdims=True), tf.Tensor)
    assert_type(tf.reduce_mean(x, 0), tf.Tensor)
    assert_type(tf.math.reduce_std(x), tf.Tensor)
    assert_type(tf.matmul(x, x, transpose_b=True), tf.Tensor)
    assert_type(tf.transpose(x, perm=[1, 0]), tf.Tensor)
    assert_type(tf.reshape(x, [-1, 1]), tf.Tensor)
    assert_type(tf.reshape(x, tf.shape(x)), tf.Tensor)
    assert_type(tf.stack([x, 2.0 * x], axis=0), tf.Tensor)
    assert_type(tf.where(x > 2.0, x, 0.0), tf.Tensor)
    assert_type(tf.one_hot([0, 1], depth=3, dtype=tf.float64), tf.Tensor)
    assert_type(tf.cast(x, tf.int32), tf.Tensor)
    assert_type(tf.cast(x, "int32"), tf.Tensor)
    assert_type(tf.split(x, 2, axis=1), list[tf.Tensor])
    assert_type(tf.argmax(x, axis=-1), tf.Tensor)
    assert_type(tf.gather(x, [0]), tf.Tensor)
    assert_type(tf.squeeze(tf.expand_dims(x, 0)), tf.Tensor)
    assert_type(tf.exp(tf.Variable(1.0)), tf.Tensor)
    assert_type(tf.maximum(x, 0.0), tf.Tensor)
    assert_type(tf.clip_by_value(x, 0.0, 1.0), tf.Tensor)
    assert_type(tf.linspace(0.0, 1.0, 5), tf.Tensor)
    assert_type(tf.range(3, dtype=tf.float32), tf.Tensor)
    assert_type(tf.eye(2), tf.Tensor)
    assert_type(tf.zeros_like(x), tf.Tensor)
    assert_type(tf.math.log(x), tf.Tensor)
    assert_type(tf.linalg.det(x), tf.Tensor)
    assert_type(tf.nn.relu(x), tf.Tensor)
    assert_type(tf.nn.moments(x, axes=[0]), tuple[tf.Tensor, tf.Tensor])
    assert_type(tf.nn.softmax_cross_entropy_with_logits(labels=x, logits=x), tf.Tensor)
    assert_type(tf.random.uniform((2, 3), maxval=2.0, seed=1), tf.Tensor)
    assert_type(tf.cond(tf.reduce_sum(x) > 0.0, lambda: x, lambda: -x), tf.Tensor)
    v = tf.Variable(1.0)
    v.assign_add(2.0)
    assert_type(v * 2.0, tf.Tensor)
    dataset = tf.data.Dataset.from_tensor_slices(x).batch(1)
    assert len(list(dataset)) == 2


def main() -> None:
    """Run everything."""
    tf.random.set_seed(0)
    x = tf.random.normal([32, 3])
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    assert by_hand(x, y) < 1.0
    losses = with_keras(x, y)
    assert losses[-1] < losses[0]
    assert float(loss_of(Linear(3, 1), x, y)) > 0.0
    tensors()


if __name__ == "__main__":
    main()
