"""tf.linalg: linear algebra, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("linalg")
