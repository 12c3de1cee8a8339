"""tf.math: mathematical functions and reductions, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("math")
