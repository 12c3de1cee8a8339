"""`tf.keras.applications`: the networks for images that Keras has weights for, with its names of layers.

Weights come from a file: one that is named, or for `weights="imagenet"` the one that Keras publishes.
"""

from tape_tf.keras.applications import (
    dense_networks,
    efficient_networks,
    imagenet,
    inception_networks,
    mobile_networks,
    residual_networks,
    vgg_networks,
)
from tape_tf.names import absent

# These modules export their names, which `tape_tf.names.publish` sets as attributes here.
__all__ = [
    "dense_networks",
    "efficient_networks",
    "imagenet",
    "inception_networks",
    "mobile_networks",
    "residual_networks",
    "vgg_networks",
]

__getattr__ = absent("keras.applications")
