"""Optimizers turn gradients into new values of Variables. The formulas and the arguments' names are those of Keras."""

from typing import TYPE_CHECKING

from tape_nn.hints import missing
from tape_nn.optimizers.accumulation import GradientAccumulation
from tape_nn.optimizers.adam import Adam, Adamax, AdamW, Nadam
from tape_nn.optimizers.adaptive import Adadelta, Adagrad, Ftrl, RMSprop
from tape_nn.optimizers.base import Optimizer
from tape_nn.optimizers.gradient_descent import SGD, Lion
from tape_nn.optimizers.groups import ParameterGroup
from tape_nn.optimizers.lbfgs import LBFGS
from tape_nn.optimizers.loss_scaler import LossScaler
from tape_nn.optimizers.transformed import TransformOptimizer

__all__ = [
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "GradientAccumulation",
    "Lion",
    "LossScaler",
    "Nadam",
    "Optimizer",
    "ParameterGroup",
    "RMSprop",
    "TransformOptimizer",
]


if not TYPE_CHECKING:
    __getattr__ = missing(__name__, lambda: __all__)
