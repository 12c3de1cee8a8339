"""`tf.keras.activations`: activation functions, which layers accept by name.

>>> import tape_tf as tf
>>> tf.keras.activations.relu(tf.constant([-1.0, 2.0])).numpy()
array([0., 2.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tape_core as tc

from tape_tf.conversion import native, wrap
from tape_tf.keras.naming import by_name
from tape_tf.names import absent
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import TensorLike

ActivationFunction = Callable[[Any], Any]


def linear(x: TensorLike) -> Any:
    """`x` itself."""
    return x


def relu(x: TensorLike, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Tensor:
    """`x` between `threshold` and `max_value`; below the threshold `negative_slope * (x - threshold)`.

    >>> import tape_tf as tf
    >>> tf.keras.activations.relu(tf.constant([-2.0, 0.5, 9.0]), negative_slope=0.5, max_value=6.0).numpy()
    array([-1. ,  0.5,  6. ], dtype=float32)
    """
    value = native(x)
    if threshold:
        # Below the threshold 0 and not the threshold: Keras' relu jumps there.
        above = tc.where(value > threshold, value, 0.0)
        y = above - negative_slope * tc.relu(threshold - value) if negative_slope else above
    else:
        y = tc.leaky_relu(value, negative_slope) if negative_slope else tc.relu(value)
    return wrap_tensor(y if max_value is None else tc.minimum(y, max_value))


def leaky_relu(x: TensorLike, negative_slope: float = 0.2) -> Tensor:
    """`x`, or `negative_slope * x` where `x` is negative."""
    return wrap_tensor(tc.leaky_relu(native(x), negative_slope))


def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """`x`, or `alpha * (exp(x) - 1)` where `x` is negative."""
    return wrap_tensor(tc.elu(native(x), alpha))


def gelu(x: TensorLike, approximate: bool = False) -> Tensor:
    """`x * P(X <= x)` for a standard normal X; `approximate=True` uses tanh instead of the error function."""
    return wrap_tensor(tc.gelu(native(x), approximate=approximate))


def softmax(x: TensorLike, axis: int = -1) -> Tensor:
    """`exp(x)` normalized to the sum 1 along `axis`.

    Raises:
        ValueError: `x` is a scalar.
    """
    value = native(x)
    if value.ndim == 0:
        raise ValueError("softmax takes tensors with an axis or more; got shape ()")
    return wrap_tensor(tc.softmax(value, axis=axis))


def log_softmax(x: TensorLike, axis: int = -1) -> Tensor:
    """The logarithm of :func:`softmax`, accurate also where the softmax underflows to 0."""
    return wrap_tensor(tc.log_softmax(native(x), axis=axis))


def _activation(name: str, function: Callable[..., Any], text: str) -> ActivationFunction:
    """Make an activation out of a function of tape_core Tensors."""

    def activation(x: TensorLike) -> Tensor:
        return wrap_tensor(function(native(x)))

    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = text
    return activation


sigmoid = _activation("sigmoid", tc.sigmoid, "`1 / (1 + exp(-x))`.")
tanh = _activation("tanh", tc.tanh, "The hyperbolic tangent.")
exponential = _activation("exponential", tc.exp, "`exp(x)`.")
softplus = _activation("softplus", tc.softplus, "`log(1 + exp(x))`.")
softsign = _activation("softsign", lambda x: x / (1.0 + tc.abs(x)), "`x / (1 + abs(x))`.")
selu = _activation("selu", tc.selu, "A scaled :func:`elu`: normalized inputs keep mean 0 and variance 1.")
silu = _activation("silu", tc.silu, "`x * sigmoid(x)`.")
mish = _activation("mish", tc.mish, "`x * tanh(softplus(x))`.")
relu6 = _activation("relu6", tc.relu6, "`x` between 0 and 6.")
hard_sigmoid = _activation("hard_sigmoid", tc.hard_sigmoid, "`relu6(x + 3) / 6`.")
hard_silu = _activation("hard_silu", tc.hard_silu, "`x * hard_sigmoid(x)`.")
log_sigmoid = _activation("log_sigmoid", tc.log_sigmoid, "`log(sigmoid(x))`.")
hard_tanh = _activation("hard_tanh", lambda x: tc.clip(x, -1.0, 1.0), "`x` between -1 and 1.")
tanh_shrink = _activation("tanh_shrink", lambda x: x - tc.tanh(x), "`x - tanh(x)`.")
swish, hard_swish = silu, hard_silu

# Functions that were imported have another `__module__`, and are no activations.
_BY_NAME: dict[str, ActivationFunction] = {
    name: value for name, value in list(globals().items()) if callable(value) and not name.startswith("_")
    and getattr(value, "__module__", None) == __name__
}  # fmt: skip

__all__ = [
    "elu",
    "exponential",
    "gelu",
    "get",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "tanh",
    "tanh_shrink",
]


def get(identifier: ActivationFunction | str | None) -> ActivationFunction:
    """Return the activation of a name; a callable is returned unchanged, and None gives :func:`linear`.

    Raises:
        ValueError: no activation has this name.
    """
    if identifier is None:
        return linear
    if callable(identifier):
        return identifier
    found: ActivationFunction = by_name("activation function", identifier, _BY_NAME)
    return found


def for_tape_nn(activation: ActivationFunction | str | None) -> ActivationFunction | None:
    """Return the activation as a function of tape_core Tensors, for tape_nn's layers; None for :func:`linear`."""
    found = get(activation)
    if found is linear:
        return None
    return lambda x: native(found(wrap(x)))


__getattr__ = absent("keras.activations")
