"""Data types that mean the same on every backend.

A :class:`DType` is a name with a kind; a backend translates it to its library's own object. `t.dtype`
gives a `DType`, and every `dtype=` argument takes one, its name, the library's own object or a Python type.
"""

from __future__ import annotations

import os
from typing import Any, Final

__all__ = ["DType", "as_dtype", "get_default_dtype", "set_default_dtype"]


class DType:
    """One data type of the Array API standard (plus `float16` and `bfloat16`).

    >>> import tape_core as tc
    >>> tc.float32.name, tc.float32.kind, tc.float32.itemsize
    ('float32', 'real floating', 4)
    """

    __slots__ = ("inexact", "itemsize", "kind", "name")

    def __init__(self, name: str, kind: str, itemsize: int) -> None:
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.inexact = kind.endswith("floating")

    def __repr__(self) -> str:
        return self.name

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


def get_default_dtype() -> DType:
    """The dtype that Python floats become."""
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
    """The dtype of Python scalars of this type."""
    if kind is bool:
        return bool_
    if kind is int:
        return int64
    if kind is complex:
        return complex128 if get_default_dtype() is float64 else complex64
    return get_default_dtype()


def as_dtype(dtype: Any) -> DType | None:
    """The DType that a `dtype=` argument names without a backend's help; None where it takes one."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        if dtype in DTYPES:
            return DTYPES[dtype]
        raise TypeError(f"unknown dtype {dtype!r}; the names are {', '.join(DTYPES)}")
    if isinstance(dtype, type) and dtype in (bool, int, float, complex):
        return default_for(dtype)
    return None
