"""bfloat16 of the package ml_dtypes: stored in 16 bits, computed in float32, each result rounded once.

NumPy alone sums values of this dtype in this dtype, so that 1,000 ones are 256, and promotes products with Python
numbers to float32. A Tensor therefore holds a `BFloat16Array`, to which NumPy hands each ufunc and function
(`__array_ufunc__`, `__array_function__`); these are computed in float32 and rounded. Kernels that consist of several
calls would round in between: they are wrapped (`guard`), so that they get float32 for their arguments.

This module is imported when bfloat16 is first asked for; until then no kernel is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from tape_core import bfloat16
from tape_core.backends import get_default_dtype
from tape_core.support import finfo
from tape_core.typing import IndexKey, Kernel, Raw, RawDType

DTYPE: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
_SINGLE = np.dtype(np.float32)
_OPERAND_TYPES = (np.ndarray, np.generic, bool, int, float, complex, list, tuple)

# Functions that move elements without computing, or write into their first argument: they work on bfloat16 as it is.
_MOVING = frozenset(
    {
        np.array2string, np.array_repr, np.array_split, np.array_str, np.broadcast_arrays, np.broadcast_to, np.copyto,
        np.diagonal, np.expand_dims, np.fill_diagonal, np.flip, np.linalg.diagonal, np.linalg.matrix_transpose,
        np.matrix_transpose, np.may_share_memory, np.moveaxis, np.ndim, np.place, np.put, np.put_along_axis, np.putmask,
        np.ravel, np.reshape, np.roll, np.shape, np.shares_memory, np.size, np.split, np.squeeze, np.swapaxes,
        np.transpose, np.unstack,
    }
)  # fmt: skip
# Kernels that return a changed copy of their first argument: the result has its dtype, whatever the others have.
_UPDATING = frozenset({"add_rows", "scatter_add", "scatter_max", "scatter_min", "scatter_multiply", "setitem"})
# Kernels that return the default dtype for arguments that are no floats.
_DEFAULTING = frozenset({"logcumsumexp", "one_hot"})
_DEPEND_ON_SPACING = frozenset({np.nextafter, np.spacing})  # the next bfloat16 is not the next float32
_TAKE_INTEGERS = frozenset({np.ldexp})  # exponents, which are no operands of a common dtype


class BFloat16Array(np.ndarray[Any, Any]):
    """An array of bfloat16 that computes in float32; also of shape (), where NumPy has scalars.

    With float16 and float32 the result is float32, with wider dtypes it is theirs; with integers it is bfloat16, as in
    PyTorch. Python's numbers are weak.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # For a Tensor, say, NumPy then asks the other operand, which has an `__array_ufunc__` of its own.
        if not all([isinstance(x, _OPERAND_TYPES) for x in inputs]):
            return NotImplemented
        # `ufunc.at` writes into its first argument: a float32 copy is updated, and its values written back.
        if method == "at":
            target = inputs[0]
            call = _Widening()
            array = call.widen(target)
            ufunc.at(array, *[call.widen(x) for x in inputs[1:]])
            if array is not target:
                target[...] = array
            return None
        call = _Widening()
        given = [call.widen(x) for x in inputs]
        if call.rounds and ufunc not in _TAKE_INTEGERS:
            given = [_round_integers(x) for x in given]
        if call.rounds and ufunc in _DEPEND_ON_SPACING:
            given = [np.asarray(x).astype(DTYPE) for x in given]
        outs = kwargs.pop("out", None)
        kwargs = {name: call.widen(value) for name, value in kwargs.items()}
        if outs is None:
            return narrow(getattr(ufunc, method)(*given, **kwargs), call.rounds)
        targets = [None if out is None else _widen(out) for out in outs]
        found = getattr(ufunc, method)(*given, out=tuple(targets) if len(targets) > 1 else targets[0], **kwargs)
        results = found if type(found) is tuple else (found,)
        results = tuple([_copy_to_out(out, result, call.rounds) for out, result in zip(outs, results, strict=True)])
        return results if type(found) is tuple else results[0]

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if not all([issubclass(kind, np.ndarray) for kind in types]):
            return NotImplemented
        args = tuple(args)
        if func in _MOVING:
            return narrow(super().__array_function__(func, types, args, kwargs), False)
        if func is np.astype:
            return self.astype(*args[1:], **{name: value for name, value in kwargs.items() if name != "device"})
        return call_in_float32(func, args, kwargs)

    def __getitem__(self, key: IndexKey) -> Any:
        found = super().__getitem__(key)
        return found if type(found) is BFloat16Array else narrow(found, False)

    # ndarray's own gives scalars of ml_dtypes, of which NumPy makes float32 beside a Python number.
    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def astype(self, dtype: RawDType, *args: Any, copy: Any = True, **kwargs: Any) -> Any:
        """Convert as `numpy.ndarray.astype` does; any other dtype than bfloat16 gives an ordinary array."""
        if np.dtype(dtype) == DTYPE:
            return self.copy() if copy else self
        return _plain(self).astype(dtype, *args, copy=copy, **kwargs)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """View as `numpy.ndarray.view` does; any other dtype than bfloat16 gives an ordinary array."""
        return narrow(_plain(self).view(*args, **kwargs), False)

    def __dlpack__(self, **options: Any) -> Any:
        """Raise a BufferError: NumPy does not export this dtype by DLPack."""
        raise BufferError("NumPy has no bfloat16 in DLPack; convert with tape_core.astype(x, 'float32') before")

    def take(self, *args: Any, **kwargs: Any) -> Any:
        """Take elements as `numpy.ndarray.take` does."""
        return narrow(super().take(*args, **kwargs), False)


def _method_by_function(name: str) -> Callable[..., Any]:
    """Return a method that calls NumPy's function: methods of ndarray do not go through `__array_function__`."""
    function = getattr(np, name)

    def method(self: BFloat16Array, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"Call `numpy.{name}`."
    return method


for _name in (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "conj", "conjugate", "cumprod", "cumsum",
    "dot", "max", "mean", "min", "nonzero", "prod", "round", "searchsorted", "std", "sum", "trace", "var",
):  # fmt: skip
    setattr(BFloat16Array, _name, _method_by_function(_name))


def _plain(array: Raw) -> Raw:
    """Return a view as an ordinary array, which computes as NumPy does."""
    # Called on the base class: the method of BFloat16Array comes here itself.
    return np.ndarray.view(array, np.ndarray)


def _widen(array: Raw) -> Raw:
    """Convert bfloat16 to float32; return any other array as it is."""
    return _plain(array).astype(_SINGLE) if array.dtype is DTYPE else array


def _round_integers(value: Raw) -> Raw:
    """Round integers to bfloat16, in float32: an operand beside bfloat16 has that dtype."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iu":
        return np.asarray(value).astype(DTYPE).astype(_SINGLE)
    return value


def as_bfloat16(array: Raw) -> BFloat16Array:
    """Round an array of numbers to bfloat16."""
    found: BFloat16Array = np.ndarray.view(np.asarray(array, DTYPE), BFloat16Array)
    return found


class _Widening:
    """Converts the arguments of one call to float32, and finds out the dtype of its result.

    Attributes:
        requested: the dtype that an argument such as `dtype=` asks for, or None.
        has_bfloat16: whether an argument was bfloat16.
        has_other_float: whether an argument was an array of another floating dtype, which wins in promotion.
    """

    __slots__ = ("has_bfloat16", "has_other_float", "requested")

    def __init__(self) -> None:
        self.requested: np.dtype[Any] | None = None
        self.has_bfloat16 = self.has_other_float = False

    @property
    def rounds(self) -> bool:
        """True if a floating-point result is to be rounded to bfloat16."""
        if self.requested is not None:
            return self.requested == DTYPE
        return self.has_bfloat16 and not self.has_other_float

    def widen(self, value: object) -> Any:
        """Return an argument with float32 in place of bfloat16, also inside sequences."""
        if isinstance(value, np.ndarray):
            if value.dtype is DTYPE:
                self.has_bfloat16 = True
                return _widen(value)
            self.has_other_float = self.has_other_float or value.dtype.kind in "fc"
            return value
        kind: Any = type(value)
        if isinstance(value, tuple | list) and (kind is tuple or kind is list):
            return kind([self.widen(part) for part in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple, such as the results of np.linalg
            return kind(*[self.widen(part) for part in value])
        if isinstance(value, np.generic):
            if value.dtype is DTYPE:
                self.has_bfloat16 = True
                return np.float32(value)
            self.has_other_float = self.has_other_float or value.dtype.kind in "fc"
            return value
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            self.requested = np.dtype(value)
            return _SINGLE if self.requested == DTYPE else value
        return value


def narrow(result: Any, rounds: bool) -> Any:
    """Convert a result to what Tensors hold: bfloat16 as `BFloat16Array`, with `rounds` other floats rounded to it."""
    if isinstance(result, np.ndarray | np.generic):
        if result.dtype is DTYPE:
            return result if type(result) is BFloat16Array else as_bfloat16(result)
        return as_bfloat16(result) if rounds and result.dtype.kind == "f" else result
    if isinstance(result, tuple):
        parts = [narrow(part, rounds) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if type(result) is list:
        return [narrow(part, rounds) for part in result]
    if rounds and isinstance(result, np.dtype):
        return DTYPE if result.kind == "f" else result
    return result


def _copy_to_out(target: Raw | None, result: Raw, rounds: bool) -> Raw:
    """Copy a result to the array given as `out=`, and return that; without one narrow the result."""
    if target is None:
        return narrow(result, rounds)
    if target is not result:
        target[...] = result
    return target


def call_in_float32(function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function with float32 in place of bfloat16; round its result unless another dtype wins in promotion."""
    call = _Widening()
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    args = [call.widen(value) for value in args]
    kwargs = {name: call.widen(value) for name, value in kwargs.items()}
    if out is None:
        return narrow(function(*args, **kwargs), call.rounds)
    return _copy_to_out(out, function(*args, out=_widen(out), **kwargs), call.rounds)


# -- kernels

_DISPATCHED = type(np.sum)  # the type of NumPy's functions that call __array_function__
_CREATION = frozenset({"empty", "eye", "full", "linspace", "ones", "result_type", "zeros"})  # no array to dispatch on
# Kernels in Python that need no wrapper: they round once, since at most one of their calls of NumPy computes.
_NEED_NO_GUARD = frozenset(
    {
        "argsort", "gather", "getitem", "matrix_transpose", "max", "mean", "min", "permute_dims", "relu", "reshape",
        "sort", "sum",
    }
)  # fmt: skip


def guard(name: str, kernel: Any) -> Any:
    """Return a kernel that handles bfloat16: the kernel itself if `BFloat16Array` does, else a wrapper."""
    if name == "finfo":
        return _finfo
    if isinstance(kernel, np.ufunc | type) or not callable(kernel) or name in _NEED_NO_GUARD:
        return kernel
    if type(kernel) is _DISPATCHED and name not in _CREATION:
        return kernel
    if getattr(kernel, "__module__", "") == "_operator":  # operator.add and others, which call a ufunc
        return kernel
    return _guarded(name, kernel)


def _finfo(dtype: RawDType) -> Any:
    return finfo(bfloat16) if dtype == DTYPE else np.finfo(dtype)


_finfo.unguarded = np.finfo  # type: ignore[attr-defined]


def _guarded(name: str, kernel: Kernel) -> Kernel:
    """Return a wrapper that calls the kernel, or its version for bfloat16 if an argument is bfloat16.

    Its attribute `chosen` says which of the two a call would run: a trace notes that one. `unguarded` is the kernel.
    """
    in_float32 = InFloat32(name, kernel)
    defaults = name in _DEFAULTING

    def called(*args: Any, **kwargs: Any) -> Any:
        if any(map(_is_bfloat16, args)) or (kwargs and any(map(_is_bfloat16, kwargs.values()))):
            return in_float32(*args, **kwargs)
        if defaults and get_default_dtype() is bfloat16:
            return in_float32(*args, **kwargs)
        return kernel(*args, **kwargs)

    def chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kernel:
        if any(map(_is_bfloat16, [*args, *kwargs.values()])) or (defaults and get_default_dtype() is bfloat16):
            return in_float32
        return kernel

    called.__name__ = name
    called.chosen = chosen  # type: ignore[attr-defined]
    called.unguarded = kernel  # type: ignore[attr-defined]
    return called


def _is_bfloat16(value: object) -> bool:
    """Return whether an argument is a (traced) array of bfloat16, the dtype itself, or a sequence with one of these."""
    if getattr(value, "dtype", None) is DTYPE or value is DTYPE:
        return True
    return isinstance(value, tuple | list) and any(map(_is_bfloat16, value))


class InFloat32:
    """A kernel called with float32 in place of bfloat16; an instruction of compiled code that handles bfloat16."""

    def __init__(self, name: str, kernel: Callable[..., Any]) -> None:
        self.__name__ = name
        self.kernel = kernel

    def __repr__(self) -> str:
        return f"<{self.__name__} of bfloat16 in float32>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.__name__ == "astype":
            return _astype(*args, **kwargs)
        if self.__name__ in _UPDATING:
            return narrow(call_in_float32(self.kernel, args, kwargs), args[0].dtype is DTYPE)
        if not self.__name__.endswith("_with_residuals"):
            return call_in_float32(self.kernel, args, kwargs)
        call = _Widening()
        out, residuals = self.kernel(
            *[call.widen(x) for x in args], **{name: call.widen(value) for name, value in kwargs.items()}
        )
        return narrow(out, call.rounds), residuals  # the residuals stay in float32, in which rules compute


def _astype(x: Raw, dtype: RawDType, *, copy: bool = True) -> Raw:
    if isinstance(x, BFloat16Array):
        found = x.astype(dtype, copy=copy)
        return found if found.shape or type(found) is BFloat16Array else found[()]
    return as_bfloat16(x.astype(_SINGLE) if x.dtype.kind == "c" else x)  # ml_dtypes has no cast from complex
