"""A program for TensorFlow with one import changed."""

import tape_tf as tf

x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    y = x**2
assert str(tape.gradient(y, x)) == "tf.Tensor(6.0, shape=(), dtype=float32)"

model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
assert model(tf.ones((3, 4))).shape == (3, 2)
