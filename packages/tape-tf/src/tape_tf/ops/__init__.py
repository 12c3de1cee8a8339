"""The functions of TensorFlow, by chapter. Importing this publishes them."""

from tape_tf.ops import creation, elementwise, indexing, matrices, operators, reductions, shaping

__all__ = ["creation", "elementwise", "indexing", "matrices", "operators", "reductions", "shaping"]
