"""Modules, layers, checkpoints, optimizers and a training loop for tape_core.

>>> import tape_core as tc
>>> import tape_nn as nn
>>> model = nn.Sequential([nn.Dense(16, activation="tanh"), nn.Dense(1)])
>>> optimizer = nn.Adam(learning_rate=0.01)
>>> x = tc.linspace(-1.0, 1.0, 64)[:, None]
>>> for step in range(300):
...     with tc.GradientTape() as tape:
...         loss = tc.mean((model(x) - x**2) ** 2)
...     gradients = tape.gradient(loss, model.trainable_variables)
...     optimizer.apply_gradients(zip(gradients, model.trainable_variables))
>>> float(loss) < 0.01
True
"""

from typing import TYPE_CHECKING

from tape_core.backends import require_core as _require_core

_require_core("tape-nn", "tape-core>=0.1,<0.2")

from tape_nn import fitting, initializers, losses, metrics, parallel, schedules, transforms
from tape_nn.averaging import ExponentialMovingAverage
from tape_nn.checkpoints import load_tensors, save_tensors
from tape_nn.clipping import clip_by_global_norm, clip_by_norm, clip_by_value, global_norm
from tape_nn.fitting import Callback, EarlyStopping, LearningRate, SaveBest, evaluate, fit, load_run, predict, save_run
from tape_nn.functional import functional_call
from tape_nn.hints import missing
from tape_nn.layers import (
    GRU,
    LSTM,
    Activation,
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    BatchNorm,
    Conv1D,
    Conv2D,
    Conv3D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    LayerNorm,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    MultiHeadAttention,
    RMSNorm,
    Sequential,
    SimpleRNN,
)
from tape_nn.mixed_precision import mixed_precision
from tape_nn.module import Module
from tape_nn.module_tree import stack_modules, unstack_modules
from tape_nn.optimizers import (
    LBFGS,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    GradientAccumulation,
    Lion,
    LossScaler,
    Nadam,
    Optimizer,
    ParameterGroup,
    RMSprop,
    TransformOptimizer,
)
from tape_nn.transforms import chain

__all__ = [
    "GRU",
    "LBFGS",
    "LSTM",
    "SGD",
    "Activation",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNorm",
    "Callback",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "Dense",
    "Dropout",
    "EarlyStopping",
    "Embedding",
    "ExponentialMovingAverage",
    "Flatten",
    "Ftrl",
    "GradientAccumulation",
    "Layer",
    "LayerNorm",
    "LearningRate",
    "Lion",
    "LossScaler",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "Module",
    "MultiHeadAttention",
    "Nadam",
    "Optimizer",
    "ParameterGroup",
    "RMSNorm",
    "RMSprop",
    "SaveBest",
    "Sequential",
    "SimpleRNN",
    "TransformOptimizer",
    "chain",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "evaluate",
    "fit",
    "fitting",
    "functional_call",
    "global_norm",
    "initializers",
    "load_run",
    "load_tensors",
    "losses",
    "metrics",
    "mixed_precision",
    "parallel",
    "predict",
    "save_run",
    "save_tensors",
    "schedules",
    "stack_modules",
    "transforms",
    "unstack_modules",
]


def __dir__() -> list[str]:
    """The public names; the modules of the package that are no part of its surface are left out."""
    return sorted([*__all__, "extend", "layers", "optimizers", *[name for name in globals() if name.startswith("__")]])


if not TYPE_CHECKING:
    __getattr__ = missing(__name__, lambda: __all__)
