"""tf.autodiff: forward and reverse mode, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("autodiff")
