"""Tensor and IndexedSlices: tape_core's, under TensorFlow's rules.

The façade's objects hold the core's, in `native`, and nothing else. Tapes, derivative rules and identity are the
core's; TensorFlow's dtype rules and its printing are here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tape_core as tc
from tape_core.support import report_leave

from tape_tf import dtypes
from tape_tf.function_lookup import provided
from tape_tf.shapes import TensorShape
from tape_tf.tracing import symbol
from tape_tf.typing import IndexLike, NumPyArray, ShapeLike, TensorLike


class Value:
    """Base class of Tensor and Variable."""

    __slots__ = ("__weakref__", "native")

    native: tc.Tensor

    def _read_native(self) -> tc.Tensor:
        """Return the value as a plain tape_core Tensor; reading a Variable lets tapes watch it."""
        return self.native

    # An ndarray on the left of an operator leaves the operation to us, so that the result stays connected to the tape.
    __array_priority__ = 100

    def __tape_tensor__(self) -> tc.Tensor:
        """Return the Tensor that functions of tape_core compute with when they are given this object."""
        return self._read_native()

    def __hash__(self) -> int:
        what = "Variable" if isinstance(self.native, tc.Variable) else "Tensor"
        # As in TensorFlow 2: `==` is elementwise, so that an equal hash could not mean equality.
        raise TypeError(f"{what} is unhashable. Instead, use {what.lower()}.ref() as the key.")

    @property
    def shape(self) -> TensorShape:
        """The lengths of the dimensions."""
        return TensorShape(self.native.shape)

    def get_shape(self) -> TensorShape:
        """Return :attr:`shape`."""
        return self.shape

    @property
    def dtype(self) -> dtypes.DType:
        """The data type."""
        return dtypes.of(self.native.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.native.ndim

    @property
    def device(self) -> str:
        """The device, spelled as TensorFlow does."""
        # TensorFlow's name of a device in the only process of a cluster: programs compare and print it.
        return f"/job:localhost/replica:0/task:0/device:{spelled_device(self.native.device)}"

    def ref(self) -> Reference:
        """Return a hashable reference to this object, for sets and keys of dicts."""
        return Reference(self)

    def numpy(self) -> Any:
        """Return a copy as a NumPy array, or as a NumPy scalar if there are no dimensions. No gradient flows back."""
        native = self._read_native()
        report_leave(native, "numpy()", sys._getframe(1))  # tape.native.explain says that the path ends here
        # `[()]` makes a NumPy scalar of an array without dimensions, as TensorFlow's numpy() returns.
        return native.numpy()[()]

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> Any:
        native = self._read_native()
        report_leave(native, "__array__", sys._getframe(1))
        return native.__array__(dtype, copy)

    def __bool__(self) -> bool:
        # Checked before the read, so that an error makes no tape watch a Variable.
        if self.native.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all() "
                "(tf.reduce_any or tf.reduce_all)"
            )
        return bool(self._read_native())

    def __int__(self) -> int:
        native = self._read_single()
        report_leave(native, "int()", sys._getframe(1))
        return int(native)

    def __float__(self) -> float:
        native = self._read_single()
        report_leave(native, "float()", sys._getframe(1))
        return float(native)

    def __complex__(self) -> complex:
        native = self._read_single()
        report_leave(native, "complex()", sys._getframe(1))
        return complex(native)

    def _read_single(self) -> tc.Tensor:
        """Return the value, which must have one element, as a tape_core Tensor."""
        if self.native.size != 1:
            raise TypeError(f"only a tensor of one element is a Python number; this one has the shape {self.shape}")
        return self._read_native()

    def __index__(self) -> int:
        return self._read_native().__index__()

    # Written out, since Python would otherwise iterate by indices until an IndexError, and not end for a 0-d tensor.
    def __iter__(self) -> Iterator[Any]:
        if not self.native.ndim:
            raise TypeError("Cannot iterate over a scalar tensor.")
        # By `self[k]`, an op for each row, so that gradients flow back.
        return (self[k] for k in range(self.native.shape[0]))

    def _values(self) -> Any:
        """Return the values as an array for printing: no tape is told that they left."""
        native = self._read_native()
        return native.backend.numpy(native.backend.public(native._array))

    def __format__(self, spec: str) -> str:
        # In a trace there is no value that an f-string could show, as in a TensorFlow graph.
        if symbol(self.native) is not None and not spec:
            return str(self)
        return format(self._values(), spec)

    # The operators are attached by `tape_tf.ops.operators`, where the functions are.
    if TYPE_CHECKING:

        def __getitem__(self, key: IndexLike) -> Tensor: ...
        def __add__(self, other: TensorLike) -> Tensor: ...
        def __radd__(self, other: TensorLike) -> Tensor: ...
        def __sub__(self, other: TensorLike) -> Tensor: ...
        def __rsub__(self, other: TensorLike) -> Tensor: ...
        def __mul__(self, other: TensorLike) -> Tensor: ...
        def __rmul__(self, other: TensorLike) -> Tensor: ...
        def __truediv__(self, other: TensorLike) -> Tensor: ...
        def __rtruediv__(self, other: TensorLike) -> Tensor: ...
        def __floordiv__(self, other: TensorLike) -> Tensor: ...
        def __rfloordiv__(self, other: TensorLike) -> Tensor: ...
        def __mod__(self, other: TensorLike) -> Tensor: ...
        def __rmod__(self, other: TensorLike) -> Tensor: ...
        def __pow__(self, other: TensorLike) -> Tensor: ...
        def __rpow__(self, other: TensorLike) -> Tensor: ...
        def __matmul__(self, other: TensorLike) -> Tensor: ...
        def __rmatmul__(self, other: TensorLike) -> Tensor: ...
        def __and__(self, other: TensorLike) -> Tensor: ...
        def __rand__(self, other: TensorLike) -> Tensor: ...
        def __or__(self, other: TensorLike) -> Tensor: ...
        def __ror__(self, other: TensorLike) -> Tensor: ...
        def __xor__(self, other: TensorLike) -> Tensor: ...
        def __rxor__(self, other: TensorLike) -> Tensor: ...
        def __lt__(self, other: TensorLike) -> Tensor: ...
        def __le__(self, other: TensorLike) -> Tensor: ...
        def __gt__(self, other: TensorLike) -> Tensor: ...
        def __ge__(self, other: TensorLike) -> Tensor: ...
        def __eq__(self, other: object) -> Any: ...
        def __ne__(self, other: object) -> Any: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...


def spelled_device(name: str) -> str:
    """Return "GPU:0" for a backend's "cuda:0", and "CPU:0" for "cpu"."""
    kind, _, number = name.partition(":")
    return f"{ {'cuda': 'GPU'}.get(kind, kind.upper()) }:{number or 0}"


class Tensor(Value):
    """One array of a backend, with TensorFlow's dtype rules.

    Made by `tf.constant`, `tf.convert_to_tensor` and every operation; not by calling the class.

    >>> import tape_tf as tf
    >>> tf.constant([1.0, 2.0]) * 3
    <tf.Tensor: shape=(2,), dtype=float32, numpy=array([3., 6.], dtype=float32)>
    >>> print(tf.constant(6.0))
    tf.Tensor(6.0, shape=(), dtype=float32)

    Attributes:
        native: the tape_core Tensor.
    """

    # A layer of Keras leaves here which steps of its output count, for the layers and losses that get the tensor.
    __slots__ = ("_keras_mask",)

    _keras_mask: Tensor | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("a tf.Tensor is not made by calling it; use tf.constant or tf.convert_to_tensor")

    def __len__(self) -> int:
        if not self.native.ndim:
            raise TypeError("Scalar tensor has no `len()`")
        return self.native.shape[0]

    def set_shape(self, shape: ShapeLike) -> None:
        """Check that the shape is compatible: it is known already, there is nothing to set.

        Raises:
            ValueError: it is not.
        """
        if not self.shape.is_compatible_with(shape):
            raise ValueError(f"Tensor's shape {self.shape} is not compatible with supplied shape {shape}.")

    def __copy__(self) -> Tensor:
        return self

    # A tensor never changes: a copy would only lose its place on the tapes.
    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self

    def __reduce__(self) -> Any:
        return wrap_tensor, (self.native,)

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError(
            "'tf.Tensor' object does not support item assignment; make a new one with tf.tensor_scatter_nd_update or "
            "tf.where, or use a tf.Variable: v[0].assign(x)"
        )

    # Called only for attributes that do not exist.
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing_attribute(name))

    def __str__(self) -> str:
        if (name := symbol(self.native)) is not None:  # inside of a tf.function, as TensorFlow shows it
            return f'Tensor("{name}", shape={self.shape}, dtype={self.native.dtype})'
        values = self._values()
        text = str(values[()])
        if "\n" in text:
            text = f"\n{text}"
        return f"tf.Tensor({text}, shape={self.shape}, dtype={self.native.dtype})"

    def __repr__(self) -> str:
        if (name := symbol(self.native)) is not None:
            return f"<tf.Tensor {name!r} shape={self.shape} dtype={self.native.dtype}>"
        return f"<tf.Tensor: shape={self.shape}, dtype={self.native.dtype}, numpy={numpy_repr(self._values())}>"


_FUNCTION_FOR_METHOD = {  # methods of NumPy and PyTorch that TensorFlow's tensors do not have
    "T": "tf.transpose(x)",
    "astype": "tf.cast(x, dtype)",
    "ravel": "tf.reshape(x, [-1])",
    "transpose": "tf.transpose(x)",
    "reshape": "tf.reshape(x, shape)",
    "clip": "tf.clip_by_value(x, low, high)",
    "size": "tf.size(x)",
    "tolist": "x.numpy().tolist()",
    "item": "x.numpy().item()",
    "data": "x.numpy()",
} | {name: f"tf.reduce_{name}(x)" for name in ("sum", "mean", "max", "min", "prod", "all", "any")}


def missing_attribute(name: str) -> str:
    """Return the error message for an attribute that a tensor lacks."""
    hint = f"; use {_FUNCTION_FOR_METHOD[name]}" if name in _FUNCTION_FOR_METHOD else ""
    return f"'tf.Tensor' object has no attribute {name!r}{hint}"


def numpy_repr(values: NumPyArray) -> str:
    """Return the text of values inside `<tf.Tensor ...>`, as TensorFlow prints them."""
    if not values.ndim:
        return repr(values.item())
    text = repr(values)
    return f"\n{text}" if "\n" in text else text


class Reference:
    """A hashable reference to a Tensor or Variable: made by `ref()`, resolved by `deref()`."""

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        self._value = value

    def deref(self) -> Any:
        """Return the Tensor or Variable."""
        return self._value

    def __eq__(self, other: object) -> bool:
        # The native objects, since two façade objects may wrap one core Tensor.
        return isinstance(other, Reference) and self._value.native is other._value.native

    def __hash__(self) -> int:
        return id(self._value.native)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._value!r}>"


_new = object.__new__  # Tensor.__init__ raises, so that nobody calls the class


def wrap_tensor(native: tc.Tensor) -> Tensor:
    """Wrap a tape_core Tensor."""
    tensor: Tensor = _new(Tensor)
    tensor.native = native
    tensor._keras_mask = None
    return tensor


class IndexedSlices:
    """Rows of a tensor that is zero elsewhere: the gradient of `tf.gather`. Duplicates are not merged.

    Attributes:
        native: the tape_core IndexedSlices.
    """

    __slots__ = ("native",)

    native: tc.IndexedSlices

    def __init__(self, values: TensorLike, indices: TensorLike, dense_shape: ShapeLike = None) -> None:
        rows, places = provided.native(values), provided.native(indices)
        # Without a shape there is no dense tensor, as in TensorFlow. The core needs one: () stands for "none given".
        shape = None if dense_shape is None else provided.static(dense_shape)
        self.native = tc.IndexedSlices(rows, places, () if shape is None else shape)

    @classmethod
    def of(cls, native: tc.IndexedSlices) -> IndexedSlices:
        """Wrap tape_core's IndexedSlices."""
        self: IndexedSlices = _new(cls)
        self.native = native
        return self

    @property
    def values(self) -> Tensor:
        """The rows, shape (n, ...)."""
        return wrap_tensor(self.native.values)

    @property
    def indices(self) -> Tensor:
        """The indices of the rows, shape (n,)."""
        return wrap_tensor(self.native.indices)

    @property
    def dense_shape(self) -> Tensor | None:
        """The shape of the dense tensor, an int32 tensor; None if it was not given."""
        if not self.native.dense_shape:
            return None
        made: Tensor = provided.constant(self.native.dense_shape, dtype=dtypes.int32)
        return made

    @property
    def shape(self) -> TensorShape:
        """The shape of the dense tensor; of unknown length in front if it was not given."""
        known = self.native.dense_shape
        return TensorShape(known or (None, *self.native.values.shape[1:]))

    @property
    def dtype(self) -> dtypes.DType:
        """The dtype of the values."""
        return dtypes.of(self.native.values.dtype)

    @property
    def device(self) -> str:
        """The device of the values."""
        return self.values.device

    def densify(self) -> tc.Tensor:
        """Return the dense tensor, a tape_core Tensor, with duplicates added up.

        Raises:
            ValueError: the shape was not given.
        """
        if not self.native.dense_shape:
            raise ValueError(
                f"Tensor conversion requested for IndexedSlices without dense_shape: {self}; give "
                "tf.IndexedSlices(values, indices, dense_shape)"
            )
        return self.native.densify()

    __tape_tensor__ = densify

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> Any:
        return np.asarray(self.densify().numpy(), dtype=dtype)

    def __neg__(self) -> IndexedSlices:
        found = self.native
        return IndexedSlices.of(tc.IndexedSlices(-found.values, found.indices, found.dense_shape))

    def __repr__(self) -> str:
        return f"IndexedSlices(indices={self.indices}, values={self.values}, dense_shape={self.dense_shape})"
