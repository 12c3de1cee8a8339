"""`tf.keras`."""

from tape_tf.keras import layers, losses, metrics, optimizers, initializers
