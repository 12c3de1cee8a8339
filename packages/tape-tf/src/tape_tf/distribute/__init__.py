"""`tf.distribute` for one device: strategies of one replica, as on a machine where TensorFlow finds one device.

A program that is written for several devices runs, with `num_replicas_in_sync` 1. What asks for more than one device or
process is refused.
"""

from tape_tf.distribute import clusters, communication, inputs, strategies
from tape_tf.names import absent

# These modules export their names, which `tape_tf.names.publish` sets as attributes here.
__all__ = ["clusters", "communication", "inputs", "strategies"]

__getattr__ = absent("distribute")
