"""tf.nn: what neural networks are made of, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("nn")
