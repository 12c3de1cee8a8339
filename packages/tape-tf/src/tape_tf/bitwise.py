"""tf.bitwise: integers bit by bit, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("bitwise")
