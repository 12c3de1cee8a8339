"""TensorFlow's data types, which wrap those of tape_core."""

from __future__ import annotations

from typing import Any

import numpy as np
import tape_core as tc
from tape_core.support import DTYPES

from tape_tf.errors import StringsGivenError
from tape_tf.names import absent
from tape_tf.typing import DTypeLike


class DType:
    """A data type. It equals its name and NumPy's type: `tf.float32 == "float32" == np.float32`.

    >>> import tape_tf as tf
    >>> tf.float32, str(tf.float32), tf.as_dtype("int64").is_integer
    (tf.float32, "<dtype: 'float32'>", True)

    Attributes:
        native: the tape_core DType.
    """

    __slots__ = ("native",)

    def __init__(self, native: tc.DType) -> None:
        self.native = native

    @property
    def name(self) -> str:
        """The name, such as `"float32"`."""
        return self.native.name

    @property
    def as_numpy_dtype(self) -> Any:
        """NumPy's type.

        Raises:
            ImportError: NumPy has none for bfloat16 without the package ml_dtypes.
        """
        return self.native.type

    @property
    def __numpy_dtype__(self) -> Any:
        return self.native.__numpy_dtype__

    @property
    def is_floating(self) -> bool:
        """True for real floating types."""
        return self.native.kind == "real floating"

    @property
    def is_complex(self) -> bool:
        """True for complex types."""
        return self.native.kind == "complex floating"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integer types; False for bool."""
        return self.native.kind.endswith("integer")

    @property
    def is_unsigned(self) -> bool:
        """True for unsigned integer types."""
        return self.native.kind == "unsigned integer"

    @property
    def is_bool(self) -> bool:
        """True for bool."""
        return self.native.kind == "bool"

    @property
    def is_numeric(self) -> bool:
        """True for every type but bool."""
        return not self.is_bool

    @property
    def size(self) -> int:
        """The size of an element in bytes."""
        return self.native.itemsize

    @property
    def base_dtype(self) -> DType:
        """The type itself: there are no reference types, as TensorFlow 1 had."""
        return self

    @property
    def real_dtype(self) -> DType:
        """The type of the real part: float32 for complex64."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def min(self) -> Any:
        """The smallest finite number of this type."""
        return self._limit("min")

    @property
    def max(self) -> Any:
        """The largest finite number of this type."""
        return self._limit("max")

    @property
    def limits(self) -> tuple[Any, Any]:
        """The intensities of an image of this type: (0, 1) for floating types, else (0, max)."""
        return 0, 1 if self.is_floating or self.is_bool else self.max

    def _limit(self, which: str) -> Any:
        if self.is_bool:
            return which == "max"
        info = (tc.iinfo if self.is_integer else tc.finfo)(self.native)
        # As NumPy's type, where there is one: tf.int8.max is np.int8(127).
        value = getattr(info, which)
        return value if self.name == "bfloat16" or self.is_complex else self.as_numpy_dtype(value)

    def is_compatible_with(self, other: DTypeLike) -> bool:
        """Return whether `other` is this type; there is no promotion."""
        return as_dtype(other) is self

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        # There is one DType object for each type, so that another one is another type. None is not converted: as an
        # argument it stands for the default dtype.
        if other is None or isinstance(other, DType):
            return False
        try:
            return as_dtype(other) is self  # type: ignore[arg-type] # which raises a TypeError for anything else
        except TypeError:
            return False

    # Equal to its name, and so with the hash of its name: dicts may be asked for either.
    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> Any:
        # A copy or an unpickled DType is the one object of its type again.
        return as_dtype, (self.name,)

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"


class _StringDType(DType):
    """The type of strings, which tape_core does not have."""

    __slots__ = ()

    def __init__(self) -> None:
        pass  # there is no native dtype

    @property
    def native(self) -> Any:  # type: ignore[override]
        """There is none.

        Raises:
            StringsGivenError: always.
        """
        raise StringsGivenError("this operation")

    @property
    def name(self) -> str:
        """The name, "string"."""
        return "string"

    @property
    def as_numpy_dtype(self) -> Any:
        """NumPy's type: arrays of bytes objects."""
        return np.object_

    __numpy_dtype__ = property(lambda self: np.dtype(object))
    is_floating = is_complex = is_integer = is_unsigned = is_bool = property(lambda self: False)
    is_numeric = property(lambda self: False)

    @property
    def size(self) -> int:
        """The size of an element in bytes, 1 as in TensorFlow: it is not known."""
        return 1

    def _limit(self, which: str) -> Any:
        raise TypeError(f"Cannot find {which}imum value of {self}.")


_BY_NAME = {name: DType(native) for name, native in DTYPES.items()} | {"string": _StringDType()}
_ALIASES = {"half": "float16", "float": "float32", "double": "float64"}
# int is missing on purpose, as in TensorFlow: it may be int32 or int64.
_PYTHON_TYPES: dict[type, str] = {float: "float32", bool: "bool", complex: "complex128", str: "string", bytes: "string"}


def of(native: tc.DType) -> DType:
    """Return the façade's DType for one of tape_core."""
    return _BY_NAME[native.name]


def as_dtype(type_value: DTypeLike) -> DType:
    """Return the DType of a name, a NumPy type, a Python type (float, bool) or a DType.

    Raises:
        TypeError: there is no such type.
    """
    if isinstance(type_value, DType):
        return type_value
    found: DType | None = None
    if isinstance(type_value, tc.DType):
        found = of(type_value)
    elif isinstance(type_value, str):
        found = _BY_NAME.get(_ALIASES.get(type_value, type_value))
    elif isinstance(type_value, type) and type_value in _PYTHON_TYPES:
        found = _BY_NAME[_PYTHON_TYPES[type_value]]
    elif type_value is not None and type_value is not int:
        try:
            described = np.dtype(type_value)
            found = _BY_NAME.get("string" if described.kind in "OSUT" else described.name)
        except TypeError:
            found = None
    if found is None:
        hint = "; use tf.int32 or tf.int64" if type_value is int else f"; there are {', '.join(_BY_NAME)}"
        raise TypeError(f"Cannot convert the argument `type_value`: {type_value!r} to a TensorFlow DType.{hint}")
    return found


def native_dtype(dtype: DTypeLike) -> tc.DType | None:
    """Convert a dtype argument to tape_core's DType; None stays None."""
    return None if dtype is None else as_dtype(dtype).native


bool_ = _BY_NAME["bool"]
int8, int16, int32, int64 = (_BY_NAME[f"int{n}"] for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_BY_NAME[f"uint{n}"] for n in (8, 16, 32, 64))
bfloat16 = _BY_NAME["bfloat16"]
float16, float32, float64 = (_BY_NAME[f"float{n}"] for n in (16, 32, 64))
string = _BY_NAME["string"]
complex64, complex128 = _BY_NAME["complex64"], _BY_NAME["complex128"]

EXPORTS = {**_BY_NAME, "half": float16, "double": float64}
"""The names that this module publishes in `tf` and `tf.dtypes`."""

_KERNEL_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


def kernel_name(native: tc.DType) -> str:
    """Return the name that the messages of TensorFlow's kernels have for a dtype, such as `"double"`."""
    return _KERNEL_NAMES.get(native.name, native.name)


__getattr__ = absent("dtypes")
