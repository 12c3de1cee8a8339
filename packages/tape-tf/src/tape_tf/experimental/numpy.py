"""`tf.experimental.numpy`: NumPy's functions, on tensors and with derivatives.

>>> import tape_tf as tf
>>> import tape_tf.experimental.numpy as tnp
>>> x = tf.Variable([1.0, 2.0])
>>> with tf.GradientTape() as tape:
...     y = tnp.sum(tnp.square(x) * tnp.arange(2, dtype=tnp.float32))
>>> tape.gradient(y, x).numpy()
array([0., 4.], dtype=float32)

A function is NumPy's own, which hands tensors to tape_core. So dtypes are promoted as NumPy does, and a function that
tape_core does not have says what to use. Operators of tensors keep TensorFlow's rules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor, wrap
from tape_tf.ops.elementwise import cast
from tape_tf.tensor import IndexedSlices, Tensor, Value
from tape_tf.typing import DTypeLike, PyTree, TensorLike

__all__ = ["array", "asarray", "experimental_enable_numpy_behavior", "ndarray", "newaxis", "random"]

newaxis = None
ndarray = Tensor


def _to_numpy(value: PyTree) -> Any:
    """Replace the façade's tensors and dtypes in arguments by what NumPy's functions take."""
    if isinstance(value, list | tuple):
        parts = [_to_numpy(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dtypes.DType):
        return value.as_numpy_dtype
    return value._read_native() if isinstance(value, Value) else value


def _to_tensors(value: PyTree) -> Any:
    """Replace the arrays in a result by tensors."""
    if isinstance(value, list | tuple):
        parts = [_to_tensors(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, np.ndarray | np.generic):
        return convert_to_tensor(value)
    return wrap(value) if isinstance(value, tc.Tensor) else value


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*_to_numpy(args), **{key: _to_numpy(value) for key, value in kwargs.items()})
        return _to_tensors(found)

    return call


def asarray(a: TensorLike, dtype: DTypeLike = None) -> Tensor:
    """Return a tensor; numbers and lists get NumPy's dtypes, a tensor keeps its derivative."""
    if isinstance(a, Value | IndexedSlices) or (isinstance(a, list | tuple) and any(isinstance(x, Value) for x in a)):
        found = convert_to_tensor(a)
    else:
        found = convert_to_tensor(np.asarray(a))
    return found if dtype is None else cast(found, dtype)


def array(val: TensorLike, dtype: DTypeLike = None, copy: bool = True, ndmin: int = 0) -> Tensor:
    """Return a tensor, as :func:`asarray` does, with at least `ndmin` dimensions."""
    found = asarray(val, dtype)
    for _ in range(ndmin - found.ndim):
        found = found[None]
    return found


def experimental_enable_numpy_behavior(prefer_float32: bool = False, dtype_conversion_mode: str = "legacy") -> None:
    """Do nothing: operators of tensors keep TensorFlow's rules, by which two dtypes in one operation are an error."""


class _Namespace:
    """A module of NumPy, such as `random` (which follows NumPy's seed) or `linalg`, for tensors."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return _converted(getattr(self._module, name))


random = _Namespace(np.random)


def _converted(found: Any) -> Any:
    """Return what NumPy has under a name, for tensors. Constants, and types such as float32, are its own."""
    if isinstance(found, ModuleType):
        return _Namespace(found)
    return _wrapped(found) if callable(found) and not isinstance(found, type) else found


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(np, name)
    except AttributeError:
        raise AttributeError(f"tape_tf has no tf.experimental.numpy.{name}, and NumPy has none either") from None
    return _converted(found)
