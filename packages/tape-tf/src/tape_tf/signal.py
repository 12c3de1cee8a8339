"""tf.signal: Fourier transforms and windows, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("signal")
