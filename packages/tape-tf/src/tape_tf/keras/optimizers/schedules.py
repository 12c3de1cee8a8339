"""`tf.keras.optimizers.schedules`: learning rates that depend on the number of updates."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tape_nn as nn

from tape_tf.conversion import convert_to_tensor
from tape_tf.keras.backend import floatx
from tape_tf.names import absent
from tape_tf.typing import IntLike, TensorLike

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
]


class LearningRateSchedule:
    """Base class of schedules: `__call__(step)` returns the learning rate.

    >>> import tape_tf as tf
    >>> class Halves(tf.keras.optimizers.schedules.LearningRateSchedule):
    ...     def __call__(self, step):
    ...         return 0.5 ** int(step)
    >>> float(tf.keras.optimizers.SGD(Halves()).learning_rate)
    1.0
    """

    def __call__(self, step: IntLike) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, step)")


class _Native(LearningRateSchedule):
    """A schedule that delegates to one of tape_nn, `native`, with the same arguments.

    Of an array of steps it gives the array of their rates, as for a plot.
    """

    _native_class: ClassVar[Any]

    def __init__(self, *args: Any, name: str | None = None, **arguments: Any) -> None:
        self.native = self._native_class(*args, **arguments)
        self.name = name or type(self).__name__

    def __getattr__(self, name: str) -> Any:
        if name == "native":  # asked for while an instance is copied, before it is set
            raise AttributeError(name)
        return getattr(self.native, name)

    def __call__(self, step: IntLike | TensorLike) -> Any:
        if getattr(step, "shape", ()) or isinstance(step, list | tuple):
            steps = np.asarray(step)
            rates = [float(self.native(number)) for number in steps.ravel().tolist()]
            return convert_to_tensor(np.reshape(rates, steps.shape), dtype=floatx())
        return convert_to_tensor(self.native(int(step)), dtype=floatx())  # type: ignore[arg-type]


class ExponentialDecay(_Native):
    """`initial_learning_rate * decay_rate ** (step / decay_steps)`: see :class:`tape_nn.schedules.ExponentialDecay`."""

    _native_class = nn.schedules.ExponentialDecay


class CosineDecay(_Native):
    """Half a period of a cosine, optionally after a warmup: see :class:`tape_nn.schedules.CosineDecay`."""

    _native_class = nn.schedules.CosineDecay


class CosineDecayRestarts(_Native):
    """Cosine decay with warm restarts: see :class:`tape_nn.schedules.CosineDecayRestarts`."""

    _native_class = nn.schedules.CosineDecayRestarts


class InverseTimeDecay(_Native):
    """`initial_learning_rate / (1 + decay_rate * step / decay_steps)`.

    See :class:`tape_nn.schedules.InverseTimeDecay`.
    """

    _native_class = nn.schedules.InverseTimeDecay


class PiecewiseConstantDecay(_Native):
    """A constant value up to each boundary: see :class:`tape_nn.schedules.PiecewiseConstantDecay`."""

    _native_class = nn.schedules.PiecewiseConstantDecay


class PolynomialDecay(_Native):
    """A polynomial from one value to another: see :class:`tape_nn.schedules.PolynomialDecay`."""

    _native_class = nn.schedules.PolynomialDecay


__getattr__ = absent("keras.optimizers.schedules")
