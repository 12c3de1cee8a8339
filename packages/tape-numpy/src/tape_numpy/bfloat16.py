"""bfloat16, of the package ml_dtypes: stored in 16 bits, computed with in float32, each result rounded.

Left to itself NumPy adds up values of this dtype in this dtype, 1,000 ones to 256, and promotes its products with
Python numbers to float32. So what a Tensor holds is a `BFloat16Array`: NumPy hands it what is to be computed with it,
ufuncs (operators among them) and functions, and the result is that of float32, rounded once. Kernels that consist of
several such calls are called with float32 as a whole (`guard`).

This module is imported when bfloat16 is first asked for; nothing of it stands in the way of other dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
from tape_core.base.dtypes import bfloat16, finfo, get_default_dtype

DTYPE: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
_SINGLE = np.dtype(np.float32)
_KNOWN = (np.ndarray, np.generic, bool, int, float, complex, list, tuple)

# What moves elements and computes nothing with them, and what writes into its first argument.
_MOVING = frozenset(
    {
        np.array2string, np.array_repr, np.array_split, np.array_str, np.broadcast_arrays, np.broadcast_to, np.copyto,
        np.diagonal, np.expand_dims, np.fill_diagonal, np.flip, np.linalg.diagonal, np.linalg.matrix_transpose,
        np.matrix_transpose, np.may_share_memory, np.moveaxis, np.ndim, np.place, np.put, np.put_along_axis, np.putmask,
        np.ravel, np.reshape, np.roll, np.shape, np.shares_memory, np.size, np.split, np.squeeze, np.swapaxes,
        np.transpose, np.unstack,
    }
)  # fmt: skip
# Kernels that write into a copy of their first argument: the result has its dtype.
_UPDATING = frozenset({"add_rows", "scatter_add", "scatter_max", "scatter_min", "scatter_multiply", "setitem"})
# Kernels that give the default dtype where their arguments have none in floating point.
_DEFAULTING = frozenset({"logcumsumexp", "one_hot"})
_OF_ITS_SPACING = frozenset({np.nextafter, np.spacing})  # which float32 does not have
_TAKE_INTEGERS = frozenset({np.ldexp})  # as they are: they are exponents, not operands of one dtype


class BFloat16Array(np.ndarray[Any, Any]):
    """An array of bfloat16 that computes in float32; of no dimension, too, where NumPy has scalars.

    With float16 and float32 the result is float32, with wider dtypes it is theirs; with integers it is bfloat16, as in
    PyTorch. Python's numbers are weak.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not all([isinstance(x, _KNOWN) for x in inputs]):
            return NotImplemented
        if method == "at":
            target = inputs[0]
            seen = _Seen()
            array = seen.wide(target)
            ufunc.at(array, *[seen.wide(x) for x in inputs[1:]])
            if array is not target:
                target[...] = array
            return None
        seen = _Seen()
        given = [seen.wide(x) for x in inputs]
        if seen.rounds and ufunc not in _TAKE_INTEGERS:
            given = [_as_operand(x) for x in given]
        if seen.rounds and ufunc in _OF_ITS_SPACING:
            given = [np.asarray(x).astype(DTYPE) for x in given]
        outs = kwargs.pop("out", None)
        kwargs = {name: seen.wide(value) for name, value in kwargs.items()}
        if outs is None:
            return narrowed(getattr(ufunc, method)(*given, **kwargs), seen.rounds)
        targets = [None if out is None else _wide(out) for out in outs]
        found = getattr(ufunc, method)(*given, out=tuple(targets) if len(targets) > 1 else targets[0], **kwargs)
        results = found if type(found) is tuple else (found,)
        results = tuple([_put(out, result, seen.rounds) for out, result in zip(outs, results, strict=True)])
        return results if type(found) is tuple else results[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all([issubclass(kind, np.ndarray) for kind in types]):
            return NotImplemented
        if func in _MOVING:
            return narrowed(super().__array_function__(func, types, args, kwargs), False)
        if func is np.astype:
            return self.astype(*args[1:], **{name: value for name, value in kwargs.items() if name != "device"})
        return in_single(func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return found if type(found) is BFloat16Array else narrowed(found, False)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def astype(self, dtype: Any, *args: Any, copy: Any = True, **kwargs: Any) -> Any:
        """As NumPy's; what is not bfloat16 is an ordinary array."""
        if np.dtype(dtype) == DTYPE:
            return self.copy() if copy else self
        return _plain(self).astype(dtype, *args, copy=copy, **kwargs)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """As NumPy's; what is not bfloat16 is an ordinary array."""
        return narrowed(_plain(self).view(*args, **kwargs), False)

    def __dlpack__(self, **options: Any) -> Any:
        """Refuse: NumPy does not give it away.

        Raises:
            BufferError: always.
        """
        raise BufferError("NumPy has no bfloat16 in DLPack; convert with tape_core.astype(x, 'float32') before")

    def take(self, *args: Any, **kwargs: Any) -> Any:
        """As NumPy's."""
        return narrowed(super().take(*args, **kwargs), False)


def _by_function(name: str) -> Any:
    function = getattr(np, name)

    def method(self: BFloat16Array, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As `numpy.{name}`."
    return method


for _name in (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "conj", "conjugate", "cumprod", "cumsum",
    "dot", "max", "mean", "min", "nonzero", "prod", "round", "searchsorted", "std", "sum", "trace", "var",
):  # fmt: skip
    setattr(BFloat16Array, _name, _by_function(_name))


def _plain(array: Any) -> Any:
    """The same memory as an ordinary array, which computes as NumPy does."""
    return np.ndarray.view(array, np.ndarray)


def _wide(array: Any) -> Any:
    """bfloat16 as float32; another array as it is."""
    return _plain(array).astype(_SINGLE) if array.dtype is DTYPE else array


def _as_operand(value: Any) -> Any:
    """Integers beside bfloat16 as what they are in it."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iu":
        return np.asarray(value).astype(DTYPE).astype(_SINGLE)
    return value


def as_bfloat16(array: Any) -> BFloat16Array:
    """An array of numbers, rounded."""
    found: BFloat16Array = np.ndarray.view(np.asarray(array, DTYPE), BFloat16Array)
    return found


class _Seen:
    """What arguments say of the dtype of a result."""

    __slots__ = ("asked", "narrow", "other")

    def __init__(self) -> None:
        self.asked: Any = None
        """A dtype that is given: the result's."""
        self.narrow = self.other = False

    @property
    def rounds(self) -> bool:
        """Whether a result in floating point is bfloat16."""
        return self.narrow and not self.other if self.asked is None else self.asked == DTYPE

    def wide(self, value: Any) -> Any:
        """An argument with float32 in place of bfloat16."""
        if isinstance(value, np.ndarray):
            kind = value.dtype.kind
            if value.dtype is DTYPE:
                self.narrow = True
                return _wide(value)
            self.other = self.other or kind in "fc"
            return value
        kind = type(value)
        if kind is tuple or kind is list:
            return kind([self.wide(part) for part in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*[self.wide(part) for part in value])
        if isinstance(value, np.generic):
            if value.dtype is DTYPE:
                self.narrow = True
                return np.float32(value)
            self.other = self.other or value.dtype.kind in "fc"
            return value
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            self.asked = np.dtype(value)
            return _SINGLE if self.asked == DTYPE else value
        return value


def narrowed(result: Any, rounds: bool) -> Any:
    """A result as what Tensors hold: bfloat16 as `BFloat16Array`; and with `rounds`, other floating dtypes rounded."""
    if isinstance(result, np.ndarray | np.generic):
        if result.dtype is DTYPE:
            return result if type(result) is BFloat16Array else as_bfloat16(result)
        return as_bfloat16(result) if rounds and result.dtype.kind == "f" else result
    if isinstance(result, tuple):
        parts = [narrowed(part, rounds) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if type(result) is list:
        return [narrowed(part, rounds) for part in result]
    if rounds and isinstance(result, np.dtype):
        return DTYPE if result.kind == "f" else result
    return result


def _put(target: Any, result: Any, rounds: bool) -> Any:
    """What was computed for `out=`, where it belongs."""
    if target is None:
        return narrowed(result, rounds)
    if target is not result:
        target[...] = result
    return target


def in_single(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """A call with float32 in place of bfloat16, and its result rounded if nothing else decides on the dtype."""
    seen = _Seen()
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    args = [seen.wide(value) for value in args]
    kwargs = {name: seen.wide(value) for name, value in kwargs.items()}
    if out is None:
        return narrowed(function(*args, **kwargs), seen.rounds)
    return _put(out, function(*args, out=_wide(out), **kwargs), seen.rounds)


# -- kernels

_DISPATCHED = type(np.sum)
_MAKING = frozenset({"empty", "eye", "full", "linspace", "ones", "result_type", "zeros"})
# Kernels in Python whose calls of NumPy, each by itself, give the right result.
_FITTING = frozenset(
    {
        "argsort", "gather", "getitem", "matrix_transpose", "max", "mean", "min", "permute_dims", "relu", "reshape",
        "sort", "sum",
    }
)  # fmt: skip


def guard(name: str, kernel: Any) -> Any:
    """What is called in place of a kernel: itself where NumPy hands its calls to `BFloat16Array`."""
    if name == "finfo":
        return _finfo
    if isinstance(kernel, np.ufunc | type) or not callable(kernel) or name in _FITTING:
        return kernel
    if type(kernel) is _DISPATCHED and name not in _MAKING:
        return kernel
    if getattr(kernel, "__module__", "") == "_operator":
        return kernel
    return _guarded(name, kernel)


def _finfo(dtype: Any) -> Any:
    return finfo(bfloat16) if dtype == DTYPE else np.finfo(dtype)


_finfo.unguarded = np.finfo  # type: ignore[attr-defined]


def _guarded(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    narrow = InSingle(name, kernel)
    defaults = name in _DEFAULTING

    def called(*args: Any, **kwargs: Any) -> Any:
        if any(map(_is_narrow, args)) or (kwargs and any(map(_is_narrow, kwargs.values()))):
            return narrow(*args, **kwargs)
        if defaults and get_default_dtype() is bfloat16:
            return narrow(*args, **kwargs)
        return kernel(*args, **kwargs)

    def chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        if any(map(_is_narrow, [*args, *kwargs.values()])) or (defaults and get_default_dtype() is bfloat16):
            return narrow
        return kernel

    called.__name__ = name
    called.chosen = chosen  # type: ignore[attr-defined]
    called.unguarded = kernel  # type: ignore[attr-defined]
    return called


def _is_narrow(value: Any) -> bool:
    """Whether an argument is an array of bfloat16, traced or not, this dtype, or a sequence with one of these."""
    if getattr(value, "dtype", None) is DTYPE or value is DTYPE:
        return True
    return isinstance(value, tuple | list) and any(map(_is_narrow, value))


class InSingle:
    """A kernel that is called with float32 in place of bfloat16."""

    def __init__(self, name: str, kernel: Callable[..., Any]) -> None:
        self.__name__ = name
        self.kernel = kernel

    def __repr__(self) -> str:
        return f"<{self.__name__} of bfloat16 in float32>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.__name__ == "astype":
            return _astype(*args, **kwargs)
        if self.__name__ in _UPDATING:
            return narrowed(in_single(self.kernel, args, kwargs), args[0].dtype is DTYPE)
        if not self.__name__.endswith("_keeping"):
            return in_single(self.kernel, args, kwargs)
        seen = _Seen()
        out, kept = self.kernel(
            *[seen.wide(x) for x in args], **{name: seen.wide(value) for name, value in kwargs.items()}
        )
        return narrowed(out, seen.rounds), kept  # in float32, in which rules compute


def _astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    if isinstance(x, BFloat16Array):
        found = x.astype(dtype, copy=copy)
        return found if found.shape or type(found) is BFloat16Array else found[()]
    return as_bfloat16(x.astype(_SINGLE) if x.dtype.kind == "c" else x)
