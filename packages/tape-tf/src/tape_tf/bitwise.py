"""tf.bitwise: integers bit by bit, from `tape_tf.ops`."""

from tape_tf.names import absent

# The functions are exported by the chapters in `tape_tf.ops` and set as attributes here by `tape_tf.names.publish`.
# This answers for every other name.
__getattr__ = absent("bitwise")
