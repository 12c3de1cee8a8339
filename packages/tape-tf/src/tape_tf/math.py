"""tf.math: mathematical functions and reductions, from `tape_tf.ops`."""

from typing import TYPE_CHECKING

from tape_tf.names import absent

if TYPE_CHECKING:
    from tape_tf.signatures.math import *  # noqa: F403 - what `publish` sets

# The functions are exported by the chapters in `tape_tf.ops` (`elementwise`, `reductions`, `special`, ...), and set as
# attributes here by `tape_tf.names.publish`. This answers for every other name.
__getattr__ = absent("math")
