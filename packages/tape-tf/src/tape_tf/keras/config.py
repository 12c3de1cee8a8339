"""`tf.keras.config`: the settings of `tf.keras.backend`."""

from tape_tf.keras.backend import epsilon, floatx, image_data_format, set_epsilon, set_floatx, set_image_data_format
from tape_tf.names import absent

__all__ = ["epsilon", "floatx", "image_data_format", "set_epsilon", "set_floatx", "set_image_data_format"]

__getattr__ = absent("keras.config")
