"""An array library whose arrays cannot be written to, as JAX's cannot: NumPy's functions on a class of its own."""

from __future__ import annotations

from functools import wraps
from types import ModuleType

import numpy as np


class Array(np.ndarray):
    """An array that no operation changes: `a[0] = 1` raises a TypeError, `a += 1` makes a new array."""

    def __getitem__(self, key):
        return immutable(super().__getitem__(key))  # an element, too, of which NumPy would make a scalar

    def __setitem__(self, key, value):
        raise TypeError("arrays of this library are immutable: a[key] = value is a.replaced(key, value)")

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array.view(Array)  # of shape (), too: NumPy would make a scalar

    def replaced(self, key, value):
        """Return a copy with other elements at a key."""
        copy = np.array(self)
        copy[key] = value
        return copy.view(Array)

    def __iadd__(self, other):
        return self + other

    def __isub__(self, other):
        return self - other

    def __imul__(self, other):
        return self * other

    def __itruediv__(self, other):
        return self / other


def mutable(value):
    """Return an argument for NumPy, whose functions write into arrays that they made like it."""
    if isinstance(value, Array):
        return value.view(np.ndarray)
    return type(value)([mutable(part) for part in value]) if type(value) in (tuple, list) else value


def immutable(value):
    """Return a result of NumPy with arrays of the class; those of shape (), too, which NumPy makes scalars."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(Array)
    if isinstance(value, tuple):
        parts = [immutable(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [immutable(part) for part in value] if type(value) is list else value


class Namespace:
    """NumPy's functions by name, with results that are immutable."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return Namespace(found)
        if isinstance(found, type) or not callable(found) or name in ("finfo", "iinfo", "__array_namespace_info__"):
            return found

        @wraps(found)
        def function(*args, **kwargs):
            options = {key: mutable(value) for key, value in kwargs.items()}
            with np.errstate(all="ignore"):
                return immutable(found(*map(mutable, args), **options))

        return function
