"""tf.config: which devices there are, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("config")
