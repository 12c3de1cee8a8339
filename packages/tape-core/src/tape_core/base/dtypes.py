"""Data types that mean the same on every backend.

A :class:`DType` is a name with a kind; a backend translates it to its library's own object. `t.dtype`
gives a `DType`, and every `dtype=` argument takes one, its name, the library's own object or a Python type.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__all__ = ["DType", "as_dtype", "get_default_dtype", "set_default_dtype"]


class DType:
    """One data type of the Array API standard (plus `float16` and `bfloat16`).

    >>> import tape_core as tc
    >>> tc.float32.name, tc.float32.kind, tc.float32.itemsize
    ('float32', 'real floating', 4)
    """

    __slots__ = ("inexact", "itemsize", "kind", "name", "special")

    def __init__(self, name: str, kind: str, itemsize: int) -> None:
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.inexact = kind.endswith("floating")
        self.special = kind == "complex floating" or name == "bfloat16"  # tapes look closer, see `recording.met`

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            hint = ""
            if name in ("char", "num", "type", "str", "byteorder", "fields"):
                hint = (
                    "; this is no dtype of NumPy, which the code asks for: give it t.numpy() where no gradient is "
                    "needed; a product with a sparse matrix of SciPy is declared by custom_gradient"
                )
                # Not imported: exported files have this class, and nothing of what it would import.
                lookup = sys.modules.get(type(self).__module__.replace("dtypes", "lookup"))
                instead_of_scipy = getattr(lookup, "instead_of_scipy", None)
                instead = "" if instead_of_scipy is None else instead_of_scipy(sys._getframe(1))
                hint = f"; {instead}{hint}" if instead else hint
            raise AttributeError(f"'DType' object has no attribute {name!r}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same dtype; NumPy's and PyTorch's own count, and names: `x.dtype == np.float32`."""
        if self is other or isinstance(other, DType):
            return self is other
        if isinstance(other, str):
            return self.name == other
        # By name, since neither library may be imported here: np.float32, np.dtype("float32") and torch.float32.
        library = (other.__module__ if isinstance(other, type) else type(other).__module__).partition(".")[0]
        if library not in ("numpy", "torch", "ml_dtypes"):
            return NotImplemented
        name = other.__name__ if isinstance(other, type) else getattr(other, "name", str(other))
        return self.name == str(name).rpartition(".")[2].removesuffix("_")

    __hash__ = object.__hash__

    @property
    def type(self) -> Any:
        """NumPy's class of scalars of this dtype, as `numpy.dtype.type` is."""
        return self.__numpy_dtype__.type

    @property
    def __numpy_dtype__(self) -> Any:
        """The dtype for NumPy, which asks for it from 2.4 on: `np.zeros(3, dtype=t.dtype)`; bfloat16 is ml_dtypes'."""
        import numpy as np

        return np.dtype(import_module("ml_dtypes").bfloat16 if self.name == "bfloat16" else self.name)

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name


bool_: Final = DType("bool", "bool", 1)
int8: Final = DType("int8", "signed integer", 1)
int16: Final = DType("int16", "signed integer", 2)
int32: Final = DType("int32", "signed integer", 4)
int64: Final = DType("int64", "signed integer", 8)
uint8: Final = DType("uint8", "unsigned integer", 1)
uint16: Final = DType("uint16", "unsigned integer", 2)
uint32: Final = DType("uint32", "unsigned integer", 4)
uint64: Final = DType("uint64", "unsigned integer", 8)
float16: Final = DType("float16", "real floating", 2)
bfloat16: Final = DType("bfloat16", "real floating", 2)
float32: Final = DType("float32", "real floating", 4)
float64: Final = DType("float64", "real floating", 8)
complex64: Final = DType("complex64", "complex floating", 8)
complex128: Final = DType("complex128", "complex floating", 16)

DTYPES: Final = {
    d.name: d
    for d in (
        bool_,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
        float16,
        bfloat16,
        float32,
        float64,
        complex64,
        complex128,
    )
}

RANKS: Final = {"bool": 0, "unsigned integer": 1, "signed integer": 1, "real floating": 2, "complex floating": 3}
"""Kinds in the order in which one can hold the values of another."""

_FLOATS: Final = {  # bits of the significand, the leading one included; the largest exponent
    float16: (11, 15),
    bfloat16: (8, 127),
    float32: (24, 127),
    float64: (53, 1023),
}


class finfo:
    """Limits of a floating dtype; of a complex one those of its parts."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "smallest_normal")

    def __init__(self, dtype: DType) -> None:
        part = precision(dtype)
        if part not in _FLOATS:
            raise TypeError(f"finfo: {dtype} is not a floating dtype; use iinfo")
        digits, exponent = _FLOATS[part]
        self.dtype = part
        self.bits = 8 * part.itemsize
        self.eps = 2.0 ** (1 - digits)
        self.max = (2.0 - 2.0 ** (1 - digits)) * 2.0**exponent
        self.min = -self.max
        self.smallest_normal = 2.0 ** (1 - exponent)

    def __repr__(self) -> str:
        return f"finfo({self.dtype}: eps={self.eps}, max={self.max}, smallest_normal={self.smallest_normal})"


class iinfo:
    """Limits of an integer dtype.

    >>> import tape_core as tc
    >>> tc.iinfo(tc.int8).min, tc.iinfo(tc.uint8).max
    (-128, 255)
    """

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, dtype: DType) -> None:
        if not dtype.kind.endswith("integer"):
            raise TypeError(f"iinfo: {dtype} is not an integer dtype; use finfo")
        self.dtype = dtype
        self.bits = 8 * dtype.itemsize
        signed = dtype.kind == "signed integer"
        self.min = -(2 ** (self.bits - 1)) if signed else 0
        self.max = 2 ** (self.bits - signed) - 1

    def __repr__(self) -> str:
        return f"iinfo({self.dtype}: min={self.min}, max={self.max})"


def integer_limits(dtype: DType) -> tuple[float, float]:
    """Return the least and the greatest integer of Python's that a dtype has; those of floats and bools have all."""
    if not dtype.kind.endswith("integer"):
        return -math.inf, math.inf
    limits = iinfo(dtype)
    return limits.min, limits.max


def out_of_bounds(number: object, dtype: DType) -> str | None:
    """Return what is wrong with an integer of Python's that an integer dtype does not have; None if nothing is.

    Libraries wrap such a number, or make a float of it.
    """
    if type(number) is int:
        least, greatest = integer_limits(dtype)
        if not least <= number <= greatest:
            return f"Python integer {number} out of bounds for {dtype}"
    return None


def promote(a: DType, b: DType) -> DType:
    """Return the dtype of an operation on arrays of two dtypes: the one rule that all ops follow.

    Of one kind it is the larger dtype, as in the standard. Between kinds, which the standard leaves open, the array of
    the higher kind decides alone: bool gives way to integers, and both to floats, so that int64 with float32 is
    float32. Where none of the integer dtypes holds both, uint64 with a signed one, it is the default dtype.
    """
    if a is b:
        return a
    low, high = (a, b) if RANKS[a.kind] <= RANKS[b.kind] else (b, a)
    if RANKS[low.kind] < RANKS[high.kind]:
        # By precision, not by size in bytes: float64 is no larger than complex64, but twice as precise.
        return complex128 if low is float64 and high is complex64 else high
    if low.kind == high.kind:
        return max(a, b, key=_itemsize) if a.itemsize != b.itemsize else float32  # float16 with bfloat16
    signed, unsigned = (a, b) if a.kind == "signed integer" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    # The next signed dtype holds all values of the unsigned one; for uint64 there is none.
    return DTYPES.get(f"int{16 * unsigned.itemsize}") or get_default_dtype()


def _itemsize(dtype: DType) -> int:
    return dtype.itemsize


def common_dtype(arrays: Iterable[DType], numbers: Iterable[type] = ()) -> DType:
    """Return the dtype of an operation on arrays of these dtypes and Python numbers of these types.

    Numbers are weak: one of the arrays' kind, or a lower one, takes their dtype. One of a higher kind, as 0.5 beside
    integers, has the default dtype of its kind; a complex one beside floats their precision.
    """
    found: DType | None = None
    for dtype in arrays:
        found = dtype if found is None else promote(found, dtype)
    for own in sorted([default_for(kind) for kind in numbers], key=lambda dtype: RANKS[dtype.kind]):
        if found is None or RANKS[own.kind] > RANKS[found.kind]:
            # A complex number beside floats gives the kind alone.
            found = own if found is None or not found.inexact else promote(found, complex64)
    if found is None:
        raise ValueError("common_dtype: neither an array nor a number")
    return found


_PARTS: Final = {complex64: float32, complex128: float64}


def precision(dtype: DType) -> DType:
    """Return the dtype of the real part of numbers of a dtype."""
    return _PARTS.get(dtype, dtype)


_default: DType | None = None


def set_default_dtype(dtype: DType | str | None) -> None:
    """Set the dtype that Python floats become: a real floating one, or `None` for the initial state.

    The initial state is `TAPE_DEFAULT_DTYPE` from the environment if set, else float32.

    >>> import tape_core as tc
    >>> tc.set_default_dtype(tc.float64)
    >>> tc.asarray(1.0).dtype, tc.asarray(1j).dtype
    (float64, complex128)
    >>> tc.set_default_dtype(None)
    """
    global _default
    _default = None if dtype is None else _floating(dtype, "set_default_dtype: dtype")
    for on_set in DEFAULT_IS_SET:
        on_set()


DEFAULT_IS_SET: Final[list[Callable[[], None]]] = []
"""Called when the default dtype was set, by backends that prepare for one."""


def get_default_dtype() -> DType:
    """Return the dtype that Python floats become."""
    global _default
    if _default is None:
        _default = _floating(os.environ.get("TAPE_DEFAULT_DTYPE") or "float32", "TAPE_DEFAULT_DTYPE")
    return _default


def _floating(dtype: DType | str, where: str) -> DType:
    found = DTYPES.get(dtype.name if isinstance(dtype, DType) else dtype)
    if found is None or found.kind != "real floating":
        names = ", ".join(d.name for d in DTYPES.values() if d.kind == "real floating")
        raise ValueError(f"{where} must be one of {names}; got {dtype!r}")
    return found


def default_for(kind: type) -> DType:
    """Return the dtype of Python scalars of this type."""
    if kind is bool:
        return bool_
    if kind is int:
        return int64
    if kind is complex:
        return complex128 if get_default_dtype() is float64 else complex64
    return get_default_dtype()


def of_numpy(dtype: Any) -> DType | None:
    """Return the DType of a dtype or a scalar type of NumPy's, which other libraries give to arrays of any kind."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(dtype, numpy.dtype) or (isinstance(dtype, type) and issubclass(dtype, numpy.generic)):
        return DTYPES.get(numpy.dtype(dtype).name)
    return None


def as_dtype(dtype: Any) -> DType | None:
    """Return the DType that a `dtype=` argument names; None if only a backend can tell, as for the library's own."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        if dtype in DTYPES:
            return DTYPES[dtype]
        raise TypeError(f"unknown dtype {dtype!r}; the names are {', '.join(DTYPES)}")
    if isinstance(dtype, type) and dtype in (bool, int, float, complex):
        return default_for(dtype)
    return None
