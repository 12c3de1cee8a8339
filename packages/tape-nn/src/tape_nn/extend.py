"""The parts of tape-nn that facades over it, such as tape-tf, are made of."""

from tape_nn.checkpoints import read_tensors
from tape_nn.fitting.callbacks import Mode
from tape_nn.fitting.data import Arrays, with_class_weights
from tape_nn.fitting.run import Run
from tape_nn.layers.base import BUILDING
from tape_nn.types import Gradient

__all__ = [
    "BUILDING",
    "Arrays",
    "Gradient",
    "Mode",
    "Run",
    "read_tensors",
    "with_class_weights",
]
