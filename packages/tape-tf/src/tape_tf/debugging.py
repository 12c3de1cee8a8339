"""tf.debugging: checks of values. Its functions are in `tape_tf.ops` and are put here when `tape_tf` is imported."""

from tape_tf.names import absent

__getattr__ = absent("debugging")
