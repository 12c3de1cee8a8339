"""`tf.keras`: layers, models and training, as Keras 3 has them, on tape_nn."""

from tape_tf.keras import (
    absences,  # noqa: F401 - imported for its effect: it adds hints for absent names to tape_tf.absences
    activations,
    applications,
    backend,
    backend_functions,  # noqa: F401 - imported for its effect: it publishes functions, as do the modules marked below
    callbacks,
    config,
    constraints,
    datasets,
    directories,  # noqa: F401
    downloads,  # noqa: F401
    drawing,  # noqa: F401
    images,  # noqa: F401
    initializers,
    layers,
    losses,
    metrics,
    model_files,  # noqa: F401
    models,
    operations,  # noqa: F401
    optimizers,
    plotting,  # noqa: F401
    policies,  # noqa: F401
    regularizers,
    restoring,  # noqa: F401
    saving,
    sequences,  # noqa: F401
    serialization,  # noqa: F401
    tensorboard,  # noqa: F401
    utils,
    weight_files,  # noqa: F401
)
from tape_tf.keras.initializers import Initializer
from tape_tf.keras.layers import Layer
from tape_tf.keras.losses import Loss
from tape_tf.keras.metrics import Metric
from tape_tf.keras.models import Model, Sequential
from tape_tf.keras.optimizers import Optimizer
from tape_tf.keras.regularizers import Regularizer
from tape_tf.keras.symbolic import Input, KerasTensor
from tape_tf.names import absent

__all__ = [
    "Initializer",
    "Input",
    "KerasTensor",
    "Layer",
    "Loss",
    "Metric",
    "Model",
    "Optimizer",
    "Regularizer",
    "Sequential",
    "activations",
    "applications",
    "backend",
    "callbacks",
    "config",
    "constraints",
    "datasets",
    "initializers",
    "layers",
    "losses",
    "metrics",
    "models",
    "optimizers",
    "regularizers",
    "saving",
    "utils",
]

__getattr__ = absent("keras")
