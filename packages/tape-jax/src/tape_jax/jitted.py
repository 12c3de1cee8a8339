"""Kernels of several calls as one: each default kernel of core under `jax.jit`.

Outside of `jax.jit` JAX compiles and starts each function of an array by itself, at 5 to 100 µs a call and some 20 ms
for each new shape. A kernel of ten calls is ten times that; under `jax.jit` it is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tape_jax.thresholds import JITTED_MAX_VARIANTS

_ARRAY = object()
"""Stands for an array in the key of a call."""
NUMBERS = frozenset({bool, int, float, complex})
_READS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerIntegerConversionError,
)


class _NotHashableError(Exception):
    """A call has an argument by which it cannot be told from others."""


class Jitted:
    """A kernel under `jax.jit`, compiled for each set of its other arguments than arrays.

    Integers of NumPy's int64 count as arrays: another one needs no compiling. Where a kernel reads values, and where
    there are too many such sets, it is called as it is.
    """

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel = kernel
        self.__doc__ = kernel.__doc__
        self._variants: dict[Any, Callable[..., Any] | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays: list[Any] = []
        try:
            key: Any = tuple([_key(value, arrays) for value in args])
            if kwargs:
                key = (key, tuple([(name, _key(value, arrays)) for name, value in kwargs.items()]))
            variant = self._variants[key]
        except _NotHashableError:
            return self.kernel(*args, **kwargs)
        except KeyError:
            variant = self._variant(key, args, kwargs)
        if variant is None:
            return self.kernel(*args, **kwargs)
        try:
            return variant(*arrays)
        except _READS_VALUES:
            if any(isinstance(array, jax.core.Tracer) for array in arrays):
                raise  # it is the caller's `jax.jit` that has no values
            self._variants[key] = None
            return self.kernel(*args, **kwargs)

    def _variant(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
        if len(self._variants) >= JITTED_MAX_VARIANTS:
            return None
        # The arguments without arrays: a variant must not keep the arrays of its first call alive.
        empty = [_without_arrays(value) for value in args]
        empty_kwargs = {name: _without_arrays(value) for name, value in kwargs.items()}
        kernel = self.kernel

        def run(*arrays: Any) -> Any:
            left = iter(arrays)
            filled = [_with_arrays(value, left) for value in empty]
            return kernel(*filled, **{name: _with_arrays(value, left) for name, value in empty_kwargs.items()})

        found = self._variants[key] = jax.jit(run)
        return found


def number_key(value: Any) -> tuple[type, Any]:
    """Return what tells a Python number from others: 1, 1.0 and True are equal, as are 0.0 and -0.0; NaN is NaN."""
    kind = type(value)
    exact = kind is int or kind is bool or (kind is float and value != 0.0 and value == value)
    return kind, value if exact else repr(value)


def _key(value: Any, arrays: list[Any]) -> Any:
    """Return what tells one argument from another, except for the values of arrays, which are appended to a list."""
    kind = type(value)
    if value is None or kind is str:
        return value
    if kind in NUMBERS:
        return number_key(value)
    if kind is np.int64 or isinstance(value, jax.Array):
        arrays.append(value)
        return _ARRAY
    if kind is tuple or kind is list:
        return (kind, *[_key(part, arrays) for part in value])
    if kind is slice:
        return kind, _key(value.start, arrays), _key(value.stop, arrays), _key(value.step, arrays)
    try:
        hash(value)
    except TypeError:
        raise _NotHashableError from None
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # a number of NumPy
        raise _NotHashableError
    return value


def _without_arrays(value: Any) -> Any:
    kind = type(value)
    if kind is np.int64 or isinstance(value, jax.Array):
        return _ARRAY
    if kind is tuple or kind is list:
        return kind([_without_arrays(part) for part in value])
    if kind is slice:
        return slice(*[_without_arrays(part) for part in (value.start, value.stop, value.step)])
    return value


def _with_arrays(value: Any, left: Any) -> Any:
    """Return an argument of `_without_arrays` with the next arrays in it, in the order of `_key`."""
    if value is _ARRAY:
        return next(left)
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_with_arrays(part, left) for part in value])
    if kind is slice:
        return slice(*[_with_arrays(part, left) for part in (value.start, value.stop, value.step)])
    return value
