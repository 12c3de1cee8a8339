"""The functions of TensorFlow, by chapter. Importing this publishes them."""

from tape_tf.ops import (
    checks,
    control,
    creation,
    elementwise,
    indexing,
    matrices,
    neural,
    operators,
    pictures,
    reductions,
    sampling,
    scattering,
    segments,
    shaping,
    special,
    spectral,
)

__all__ = [
    "checks",
    "control",
    "creation",
    "elementwise",
    "indexing",
    "matrices",
    "neural",
    "operators",
    "pictures",
    "reductions",
    "sampling",
    "scattering",
    "segments",
    "shaping",
    "special",
    "spectral",
]
