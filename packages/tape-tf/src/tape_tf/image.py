"""tf.image: a few functions of images, from `tape_tf.ops`."""

from tape_tf.names import absent

__getattr__ = absent("image")
