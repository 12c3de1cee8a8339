"""What a fresh install must be able to do. Run by `nox -s wheels` on the built wheels."""

import tape_autograd
import tape_autograd.numpy as np
import tape_core as tc
import tape_nn as nn
import tape_tf as tf
from tape_conformance.new import project

x = tc.Variable(3.0)
with tc.GradientTape() as tape:
    y = x * x
assert tape.gradient(y, x).item() == 6.0

layer = nn.Dense(2)
with tc.GradientTape() as tape:
    loss = tc.sum(layer(tc.ones((3, 4))) ** 2)
gradients = tape.gradient(loss, layer.trainable_variables)
nn.Adam().apply_gradients(zip(gradients, layer.trainable_variables, strict=True))

v = tf.Variable(3.0)
with tf.GradientTape() as recorded:
    z = v**2
assert str(recorded.gradient(z, v)) == "tf.Tensor(6.0, shape=(), dtype=float32)"

# The templates are data of the wheel.
assert "src/tape_swirl/py.typed" in project("op", "swirl")

assert tape_autograd.grad(lambda x: np.sin(x) ** 2)(0.0) == 0.0

print(f"tape_core {tc.__version__} on {tc.get_backend().name}: ok")
