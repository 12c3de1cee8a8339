"""`tf.experimental`: NumPy's functions for tensors."""

from tape_tf.experimental import numpy
from tape_tf.names import absent

__all__ = ["numpy"]

__getattr__ = absent("experimental")
