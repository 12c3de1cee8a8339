"""`tf.keras.regularizers`: penalties on weights and outputs, which models add to their loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tape_core as tc

from tape_tf.conversion import native
from tape_tf.keras.backend import SQUARED_NORM_FLOOR
from tape_tf.keras.naming import by_name
from tape_tf.names import absent
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import TensorLike

__all__ = [
    "L1",
    "L1L2",
    "L2",
    "OrthogonalRegularizer",
    "Regularizer",
    "get",
    "l1",
    "l1_l2",
    "l2",
    "orthogonal_regularizer",
]

Penalty: TypeAlias = Callable[[Any], Any]


class Regularizer:
    """Base class of regularizers: `__call__(x)` returns the penalty of a tensor."""

    def __call__(self, x: TensorLike) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, x)")


class L1L2(Regularizer):
    """`l1 * sum(abs(x)) + l2 * sum(x**2)`.

    >>> import tape_tf as tf
    >>> tf.keras.regularizers.L1L2(l1=0.5, l2=1.0)(tf.constant([1.0, -2.0])).numpy()
    np.float32(6.5)

    Raises:
        ValueError: a factor is negative or not finite.
    """

    def __init__(self, l1: float | None = 0.0, l2: float | None = 0.0) -> None:
        self.l1, self.l2 = _factor("l1", 0.0 if l1 is None else l1), _factor("l2", 0.0 if l2 is None else l2)

    def __call__(self, x: TensorLike) -> Tensor:
        value = native(x)
        # Without factors the penalty is still a tensor that depends on x, so that its gradient is 0 and not None.
        penalty: Any = 0.0 * tc.sum(value) if not (self.l1 or self.l2) else 0.0
        if self.l1:
            penalty = penalty + self.l1 * tc.sum(tc.abs(value))
        if self.l2:
            penalty = penalty + self.l2 * tc.sum(tc.square(value))
        return wrap_tensor(penalty)


class L1(L1L2):
    """`l1 * sum(abs(x))`."""

    def __init__(self, l1: float = 0.01) -> None:
        super().__init__(l1=l1)


class L2(L1L2):
    """`l2 * sum(x**2)`.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.Dense(1, kernel_regularizer=tf.keras.regularizers.L2(0.5))
    >>> layer.build((None, 2)); layer.set_weights([[[1.0], [2.0]], [0.0]])
    >>> [float(penalty) for penalty in layer.losses]
    [2.5]
    """

    def __init__(self, l2: float = 0.01) -> None:
        super().__init__(l2=l2)


class OrthogonalRegularizer(Regularizer):
    """`factor` times the mean absolute cosine between different rows (or columns) of a matrix.

    Raises:
        ValueError: when called with anything but a matrix.
    """

    def __init__(self, factor: float = 0.01, mode: str = "rows") -> None:
        if mode not in ("rows", "columns"):
            raise ValueError(f"mode must be 'rows' or 'columns'; got {mode!r}")
        self.factor, self.mode = _factor("factor", factor), mode

    def __call__(self, x: TensorLike) -> Tensor:
        value = native(x)
        if value.ndim != 2:
            raise ValueError(f"OrthogonalRegularizer takes matrices; got shape {value.shape}")
        rows = value if self.mode == "rows" else value.T
        size = rows.shape[0]
        # A single row has no pair. The 0 depends on it all the same, for a gradient of 0 and not None.
        if size < 2:
            return wrap_tensor(0.0 * tc.sum(rows))
        # The floor is below the root: at a row of zeros the derivative of sqrt itself would be infinite.
        unit = rows / tc.sqrt(tc.maximum(tc.sum(rows * rows, axis=1, keepdims=True), SQUARED_NORM_FLOOR))
        cosines = tc.abs(tc.matmul(unit, unit.T)) * (
            1.0 - tc.eye(size, dtype=value.dtype, backend=value.backend.root, device=value.device)
        )
        # Each pair occurs twice in the symmetric matrix, and there are size * (size - 1) / 2 pairs.
        return wrap_tensor(self.factor * 0.5 * tc.sum(cosines) / (size * (size - 1) / 2))


def _factor(name: str, value: float) -> float:
    """Return a factor as a float; raise a ValueError unless it is finite and at least 0."""
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{name} must be a finite number of at least 0; got {value}")
    return number


l1, l2, l1_l2, orthogonal_regularizer = L1, L2, L1L2, OrthogonalRegularizer

_BY_NAME = {
    "l1": L1, "L1": L1, "l2": L2, "L2": L2, "l1_l2": L1L2, "L1L2": lambda: L1L2(0.01, 0.01),
    "orthogonal_regularizer": OrthogonalRegularizer, "OrthogonalRegularizer": OrthogonalRegularizer,
}  # fmt: skip


def get(identifier: Penalty | str | None) -> Penalty | None:
    """Return the regularizer of a name; a callable and None are returned unchanged.

    Raises:
        ValueError: no regularizer has this name.
    """
    if identifier is None or callable(identifier):
        return identifier
    made: Penalty = by_name("regularizer", identifier, _BY_NAME)()
    return made


__getattr__ = absent("keras.regularizers")
