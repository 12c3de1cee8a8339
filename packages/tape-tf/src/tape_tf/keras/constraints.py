"""`tf.keras.constraints`: projections of weights, applied after each update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tape_core as tc

from tape_tf.conversion import native
from tape_tf.keras.backend import epsilon
from tape_tf.keras.naming import by_name
from tape_tf.names import absent
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import TensorLike

__all__ = [
    "Constraint",
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "get",
    "max_norm",
    "min_max_norm",
    "non_neg",
    "unit_norm",
]

Projection: TypeAlias = Callable[[Any], Any]


class Constraint:
    """Base class of constraints: `__call__(w)` returns the projected weight."""

    def __call__(self, w: TensorLike) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, w)")


class NonNeg(Constraint):
    """Set negative elements to 0.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.Dense(1, kernel_constraint="non_neg", kernel_initializer="ones")
    >>> layer.build((None, 1))
    >>> tf.keras.optimizers.SGD(2.0).apply_gradients([(tf.ones((1, 1)), layer.kernel)]).numpy()
    np.int64(1)
    >>> layer.kernel.numpy()
    array([[0.]], dtype=float32)
    """

    def __call__(self, w: TensorLike) -> Tensor:
        return wrap_tensor(tc.relu(native(w)))


class MinMaxNorm(Constraint):
    """Bring the norm along `axis` into a range, or `rate` of the way there.

    Args:
        min_value, max_value: the range.
        rate: 1 projects onto the range at once; smaller values move the norm towards it at each update.
        axis: the axis or axes over which the norm is taken; 0, the inputs of a Dense kernel, by default.
    """

    def __init__(
        self, min_value: float = 0.0, max_value: float = 1.0, rate: float = 1.0, axis: int | tuple[int, ...] = 0
    ) -> None:
        self.min_value, self.max_value, self.rate, self.axis = min_value, max_value, rate, axis

    def __call__(self, w: TensorLike) -> Tensor:
        value = native(w)
        norm = tc.sqrt(tc.sum(value * value, axis=self.axis, keepdims=True))
        # A step of `rate` from the norm to the nearest norm in the range; epsilon protects the norm 0.
        wanted = self.rate * tc.clip(norm, self.min_value, self.max_value) + (1.0 - self.rate) * norm
        return wrap_tensor(value * (wanted / (norm + epsilon())))


class MaxNorm(MinMaxNorm):
    """Scale weights down where the norm along `axis` exceeds `max_value`."""

    def __init__(self, max_value: float = 2.0, axis: int | tuple[int, ...] = 0) -> None:
        super().__init__(0.0, max_value, 1.0, axis)


class UnitNorm(MinMaxNorm):
    """Scale weights to norm 1 along `axis`."""

    def __init__(self, axis: int | tuple[int, ...] = 0) -> None:
        super().__init__(1.0, 1.0, 1.0, axis)


max_norm, min_max_norm, non_neg, unit_norm = MaxNorm, MinMaxNorm, NonNeg, UnitNorm

_BY_NAME = {
    name: kind
    for kind, short in (
        (MaxNorm, "max_norm"),
        (MinMaxNorm, "min_max_norm"),
        (NonNeg, "non_neg"),
        (UnitNorm, "unit_norm"),
    )
    for name in (kind.__name__, short)
}


def get(identifier: Projection | str | None) -> Projection | None:
    """Return the constraint of a name; a callable and None are returned unchanged.

    Raises:
        ValueError: no constraint has this name.
    """
    if identifier is None or callable(identifier):
        return identifier
    made: Projection = by_name("constraint", identifier, _BY_NAME)()
    return made


__getattr__ = absent("keras.constraints")
