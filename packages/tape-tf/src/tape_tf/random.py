"""tf.random: random numbers, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("random")
