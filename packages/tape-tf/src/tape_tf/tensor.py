"""Tensor: a tape_core Tensor under TensorFlow's rules, and IndexedSlices likewise.

The façade's objects hold the core's, in `native`. Tapes, rules and identity are the core's, of the core's objects;
dtype rules and printing are TensorFlow's, and are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tape_core as tc
from tape_core.engine import cuts

from tape_tf import dtypes
from tape_tf.shapes import TensorShape
from tape_tf.tracing import symbol


class Value:
    """What a Tensor and a Variable have in common."""

    __slots__ = ("__weakref__", "native")

    native: tc.Tensor

    def _now(self) -> tc.Tensor:
        """The value as a plain Tensor of tape_core; of a Variable it is an access."""
        return self.native

    __array_priority__ = (
        100  # an ndarray on the left of an operator leaves the operation to us, and so the path is kept
    )

    def __tape_tensor__(self) -> tc.Tensor:
        """What functions of tape_core take this for."""
        return self._now()

    def __hash__(self) -> int:
        what = "Variable" if isinstance(self.native, tc.Variable) else "Tensor"
        raise TypeError(f"{what} is unhashable. Instead, use {what.lower()}.ref() as the key.")

    @property
    def shape(self) -> TensorShape:
        """The lengths of the dimensions."""
        return TensorShape(self.native.shape)

    def get_shape(self) -> TensorShape:
        """`shape`."""
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
        """The device in TensorFlow's terms."""
        kind, _, number = self.native.device.partition(":")
        kind = {"cpu": "CPU", "cuda": "GPU"}.get(kind, kind)
        return f"/job:localhost/replica:0/task:0/device:{kind}:{number or 0}"

    def ref(self) -> Reference:
        """Something hashable that stands for this object."""
        return Reference(self)

    def numpy(self) -> Any:
        """The values: a copy, as a NumPy array, or as a NumPy scalar where there are no dimensions. Cuts the path."""
        native = self._now()
        if native._slots:
            cuts.left(native, "numpy()")
        return native.numpy()[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        native = self._now()
        if native._slots:
            cuts.left(native, "__array__")
        return native.__array__(dtype, copy)

    def __bool__(self) -> bool:
        if self.native.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all() "
                "(tf.reduce_any or tf.reduce_all)"
            )
        return bool(self._now())

    def __int__(self) -> int:
        native = self._only()
        if native._slots:
            cuts.left(native, "int()")
        return int(native)

    def __float__(self) -> float:
        native = self._only()
        if native._slots:
            cuts.left(native, "float()")
        return float(native)

    def __complex__(self) -> complex:
        native = self._only()
        if native._slots:
            cuts.left(native, "complex()")
        return complex(native)

    def _only(self) -> tc.Tensor:
        """The value, of one element."""
        if self.native.size != 1:
            raise TypeError(f"only a tensor of one element is a Python number; this one has the shape {self.shape}")
        return self._now()

    def __index__(self) -> int:
        return self._now().__index__()

    def __iter__(self) -> Iterator[Any]:
        if not self.native.ndim:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[k] for k in range(self.native.shape[0]))

    def _values(self) -> Any:
        """The values, for printing."""
        native = self._now()
        return native.backend.numpy(native.backend.public(native._array))

    def __format__(self, spec: str) -> str:
        if symbol(self.native) is not None and not spec:
            return str(self)
        return format(self._values(), spec)

    # The operators are attached by `tape_tf.ops.operators`, where the functions are.
    if TYPE_CHECKING:

        def __getitem__(self, key: Any) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __eq__(self, other: object) -> Any: ...
        def __ne__(self, other: object) -> Any: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...


class Tensor(Value):
    """A value: one array of a backend, with TensorFlow's dtype rules.

    Made by `tf.constant`, `tf.convert_to_tensor` and every operation; not by calling the class.

    >>> import tape_tf as tf
    >>> tf.constant([1.0, 2.0]) * 3
    <tf.Tensor: shape=(2,), dtype=float32, numpy=array([3., 6.], dtype=float32)>
    >>> print(tf.constant(6.0))
    tf.Tensor(6.0, shape=(), dtype=float32)

    Attributes:
        native: the tape_core Tensor.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("a tf.Tensor is not made by calling it; use tf.constant or tf.convert_to_tensor")

    def __len__(self) -> int:
        if not self.native.ndim:
            raise TypeError("Scalar tensor has no `len()`")
        return self.native.shape[0]

    def set_shape(self, shape: Any) -> None:
        """Check that the shape is this one: there is nothing to find out about it.

        Raises:
            ValueError: it is another.
        """
        if not self.shape.is_compatible_with(shape):
            raise ValueError(f"Tensor's shape {self.shape} is not compatible with supplied shape {shape}.")

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self

    def __reduce__(self) -> Any:
        return wrap_tensor, (self.native,)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "'tf.Tensor' object does not support item assignment; make a new one with tf.tensor_scatter_nd_update or "
            "tf.where, or use a tf.Variable: v[0].assign(x)"
        )

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


_AS_FUNCTION = {
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
    """What to say of an attribute that a tensor lacks."""
    hint = f"; use {_AS_FUNCTION[name]}" if name in _AS_FUNCTION else ""
    return f"'tf.Tensor' object has no attribute {name!r}{hint}"


def numpy_repr(values: Any) -> str:
    """How TensorFlow shows values inside `<...>`."""
    if not values.ndim:
        return repr(values.item())
    text = repr(values)
    return f"\n{text}" if "\n" in text else text


class Reference:
    """Something hashable that stands for a Tensor or Variable: what `ref()` makes and `deref()` gives back."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def deref(self) -> Any:
        """The object itself."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._value.native is other._value.native

    def __hash__(self) -> int:
        return id(self._value.native)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._value!r}>"


_new = object.__new__


def wrap_tensor(native: tc.Tensor) -> Tensor:
    """A Tensor of one of tape_core."""
    tensor: Tensor = _new(Tensor)
    tensor.native = native
    return tensor


class IndexedSlices:
    """Rows of a tensor that is zero elsewhere: the gradient of `tf.gather`. Duplicates are not merged.

    Attributes:
        native: the tape_core IndexedSlices.
    """

    __slots__ = ("native",)

    native: tc.IndexedSlices

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        from tape_tf.conversion import native, static

        rows, places = native(values), native(indices)
        # Without a shape it stands for no tensor, as in TensorFlow; then the shape of the rows is all that is known.
        shape = None if dense_shape is None else static(dense_shape)
        self.native = tc.IndexedSlices(rows, places, () if shape is None else shape)

    @classmethod
    def of(cls, native: tc.IndexedSlices) -> IndexedSlices:
        """Those of tape_core."""
        self: IndexedSlices = _new(cls)
        self.native = native
        return self

    @property
    def values(self) -> Tensor:
        """The rows, shape (n, ...)."""
        return wrap_tensor(self.native.values)

    @property
    def indices(self) -> Tensor:
        """The rows' places, shape (n,)."""
        return wrap_tensor(self.native.indices)

    @property
    def dense_shape(self) -> Tensor | None:
        """The shape of the tensor they stand for, an int32 tensor; None where it was not given."""
        if not self.native.dense_shape:
            return None
        from tape_tf.conversion import constant

        return constant(self.native.dense_shape, dtype=dtypes.int32)

    @property
    def shape(self) -> TensorShape:
        """The shape of the tensor they stand for."""
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
        """The whole array, duplicates added up.

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.densify().numpy(), dtype=dtype)

    def __neg__(self) -> IndexedSlices:
        found = self.native
        return IndexedSlices.of(tc.IndexedSlices(-found.values, found.indices, found.dense_shape))

    def __repr__(self) -> str:
        return f"IndexedSlices(indices={self.indices}, values={self.values}, dense_shape={self.dense_shape})"
