"""Tensors of strings: NumPy arrays of bytes on the host, with the parts of a tensor's interface that make sense."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf import dtypes
from tape_tf.errors import StringsGivenError
from tape_tf.shapes import TensorShape
from tape_tf.tensor import Tensor, Value, numpy_repr
from tape_tf.typing import IndexLike, NumPyArray


class StringTensor(Tensor):
    """A tensor of strings, as `tf.constant(["a", "b"])` makes it. Its elements are bytes, text is encoded as UTF-8.

    >>> import tape_tf as tf
    >>> words = tf.constant([["good", "bad"], ["day", "night"]])
    >>> words[1]
    <tf.Tensor: shape=(2,), dtype=string, numpy=array([b'day', b'night'], dtype=object)>
    >>> words == "bad"
    <tf.Tensor: shape=(2, 2), dtype=bool, numpy=
    array([[False,  True],
           [False, False]])>

    It stays on the host, whatever backend is selected, and no derivative flows through it. Functions that move
    elements, such as `tf.gather` and `tf.concat`, take it; `tf.strings` has functions of its own.
    """

    __slots__ = ("_strings",)

    _strings: NumPyArray

    @property
    def native(self) -> Any:  # type: ignore[override]
        """There is none: tape_core has tensors of numbers only.

        Raises:
            StringsGivenError: always.
        """
        raise StringsGivenError("this operation")

    def _read_native(self) -> Any:
        return self.native

    __tape_tensor__ = _read_native

    @property
    def shape(self) -> TensorShape:
        """The lengths of the dimensions."""
        return TensorShape(self._strings.shape)

    @property
    def dtype(self) -> dtypes.DType:
        """The data type, `tf.string`."""
        return dtypes.string

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._strings.ndim

    @property
    def device(self) -> str:
        """The device: strings are on the CPU."""
        return "/job:localhost/replica:0/task:0/device:CPU:0"

    def numpy(self) -> Any:
        """Return a copy as a NumPy array of bytes objects, or as bytes if there are no dimensions."""
        return self._strings.copy()[()]

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> Any:
        return np.array(self._strings, dtype=dtype)

    def _values(self) -> Any:
        return self._strings

    def __bool__(self) -> bool:
        if self._strings.size != 1:
            raise ValueError("The truth value of a tensor of several strings is ambiguous; use tf.reduce_any(x == y)")
        return bool(self._strings.item())

    def __int__(self) -> int:
        raise TypeError("a tensor of strings is no number; use tf.strings.to_number")

    __float__ = __complex__ = __index__ = __int__

    def __len__(self) -> int:
        if not self._strings.ndim:
            raise TypeError("Scalar tensor has no `len()`")
        return len(self._strings)

    def __iter__(self) -> Iterator[Any]:
        if not self._strings.ndim:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[k] for k in range(len(self._strings)))

    def __getitem__(self, key: IndexLike) -> Tensor:
        parts = tuple(_host_key(part) for part in (key if isinstance(key, tuple) else (key,)))
        return wrap_strings(self._strings[parts])

    def __hash__(self) -> int:
        raise TypeError("Tensor is unhashable. Instead, use tensor.ref() as the key.")

    def __format__(self, spec: str) -> str:
        return format(str(self._strings[()]), spec)

    def __reduce__(self) -> Any:
        return wrap_strings, (self._strings,)

    def __str__(self) -> str:
        text = str(self._strings[()])
        return f"tf.Tensor({chr(10) if chr(10) in text else ''}{text}, shape={self.shape}, dtype=string)"

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={self.shape}, dtype=string, numpy={numpy_repr(self._strings)}>"


def _host_key(part: Any) -> Any:
    """Return a part of a key for NumPy: tensors of integers and truth values become arrays."""
    if isinstance(part, slice):
        return slice(*[_host_key(end) for end in (part.start, part.stop, part.step)])
    return part.numpy() if isinstance(part, Value) else part


def wrap_strings(strings: Any) -> StringTensor:
    """Wrap bytes, or a NumPy array of bytes objects, which is not copied."""
    tensor: StringTensor = object.__new__(StringTensor)
    array = strings
    if not isinstance(array, np.ndarray):
        array = np.empty((), object)
        array[()] = strings
    tensor._strings = array
    return tensor


_NUMBERS = frozenset({int, float, bool, complex, Tensor})


def is_column(value: Any) -> bool:
    """Return whether a value is a column of a table, such as a pandas Series."""
    return hasattr(value, "to_numpy") and getattr(value, "ndim", 1) == 1 and not isinstance(value, Tensor | tc.Tensor)


def is_text(value: Any) -> bool:
    """Return whether a value is text: str, bytes, tensors, arrays or columns of such, or nested lists of such."""
    kind = type(value)
    while (kind is list or kind is tuple) and value:
        value = value[0]
        kind = type(value)
    if kind in _NUMBERS:  # the common case, in each call of tf.constant
        return False
    if is_column(value):
        value = value.to_numpy()
    if isinstance(value, np.ndarray | np.generic):
        first = value.ravel()[0] if value.dtype == object and value.size else None
        return value.dtype.kind in "UST" or isinstance(first, str | bytes)
    return isinstance(value, str | bytes | StringTensor)


def as_strings(value: Any) -> StringTensor:
    """Convert text to a tensor of strings: str, bytes, arrays and nested lists of them, and tensors of strings.

    Raises:
        ValueError: the lists are not rectangular.
        TypeError: an element is no text.
    """
    if isinstance(value, StringTensor):
        return value
    if is_column(value):
        value = value.to_numpy()
    shape: list[int] = []
    flat = [value]
    # One level at a time, since NumPy would make an array of fixed width of text, and cut off zero bytes at its ends.
    while flat and any(map(_has_rows, flat)):
        if alone := [part for part in flat if not _has_rows(part)]:
            raise ValueError(f"Can't convert non-rectangular Python sequence to Tensor: {alone[0]!r} beside a list")
        rows = [list(part._strings if isinstance(part, StringTensor) else part) for part in flat]
        lengths = {len(row) for row in rows}
        if len(lengths) > 1:
            raise ValueError(
                "Can't convert non-rectangular Python sequence to Tensor: rows of "
                f"{', '.join(map(str, sorted(lengths)))} strings; tf.ragged.constant takes rows of different lengths"
            )
        shape.append(lengths.pop())
        flat = [part for row in rows for part in row]
    array = np.empty(len(flat), object)
    array[:] = [_as_bytes(part) for part in flat]
    return wrap_strings(array.reshape(shape))


def _has_rows(part: Any) -> bool:
    return isinstance(part, list | tuple) or (isinstance(part, np.ndarray | StringTensor) and part.ndim > 0)


def _as_bytes(value: object) -> bytes:
    if isinstance(value, StringTensor | np.ndarray | np.generic):
        value = value.item() if not isinstance(value, StringTensor) else value._strings.item()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"Cannot convert {value!r} to a string of a tensor; use tf.strings.as_string for numbers")


def fill_or_reshape(strings: StringTensor, shape: tuple[int, ...]) -> StringTensor:
    """Return the strings in another shape; a single one fills it.

    Raises:
        TypeError: the shape has another number of elements.
    """
    found = strings._strings
    if found.size == math.prod(shape):
        return wrap_strings(found.reshape(shape))
    if found.size == 1:
        return wrap_strings(np.full(shape, found.item(), object))
    raise TypeError(f"a tensor of {found.size} strings has no shape {shape}")


def strings_of(value: Any) -> NumPyArray:
    """Return text of any form that :func:`as_strings` takes as a NumPy array of bytes, which must not be changed."""
    return as_strings(value)._strings
