"""An array library that does what the standard leaves open in another way than NumPy: NumPy's functions on a class.

Its arrays cannot be written to. Axes are counted from 0 only. An index or an axis that is not there is silently taken
for the last one. Shapes that do not go together are TypeErrors. JAX does each of these, or has done so.
"""

from __future__ import annotations

from functools import wraps
from types import ModuleType

import numpy as np


class Array(np.ndarray):
    """An array that no operation changes: `a[0] = 1` raises a TypeError, `a += 1` makes a new array."""

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        if all([isinstance(part, int) for part in parts]) and len(parts) <= self.ndim:
            key = tuple([min(part, n - 1) for part, n in zip(parts, self.shape, strict=False)])
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


TYPE_ERRORS = frozenset({"concat", "stack", "broadcast_to", "matmul", "reshape", "permute_dims", "add", "multiply"})
"""Functions that raise a TypeError for shapes."""

FROM_THE_END = frozenset({"vecdot", "cross", "moveaxis", "tensordot"})
"""Functions in which an axis counts in several arrays, or that are no ops of Tape."""


def last_for_beyond(name, args, kwargs):
    """Return arguments with the last axis, or element, for one that is not there; raise for negative axes."""
    if name in FROM_THE_END or not args:
        return args, kwargs
    if name == "permute_dims":
        axes = args[1] if args[1:] else kwargs["axes"]
        return (args[0], [existing(axis, args[0].ndim) for axis in axes]), {}
    first = args[0][0] if isinstance(args[0], tuple | list) and args[0] else args[0]
    ndim = getattr(first, "ndim", 0) + (name in ("stack", "expand_dims"))
    for key in ("axis", "axes"):
        if (value := kwargs.get(key)) is not None:
            several = isinstance(value, tuple | list)
            found = [existing(axis, ndim) for axis in (value if several else (value,))]
            kwargs[key] = tuple(found) if several else found[0]
    if name == "take":
        kwargs["mode"] = "clip"
    if name == "take_along_axis":
        n = first.shape[kwargs.get("axis", -1)]
        args = (first, np.clip(args[1], -n, n - 1))
    return args, kwargs


def existing(axis, ndim):
    """Return an axis, or the last one for one that is not there."""
    if axis < 0:
        raise NotImplementedError("this library counts axes from 0")
    return min(axis, max(ndim - 1, 0))


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
            given, options = last_for_beyond(name, tuple(map(mutable, args)), options)
            with np.errstate(all="ignore"):
                try:
                    return immutable(found(*given, **options))
                except ValueError as error:
                    if name in TYPE_ERRORS:
                        raise TypeError(f"incompatible shapes: {error}") from error
                    raise

        return function
