"""Variable: a tape_core Variable under TensorFlow's rules."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

import tape_core as tc

from tape_tf.errors import InvalidArgumentError
from tape_tf.function_lookup import provided
from tape_tf.tensor import IndexedSlices, Tensor, Value, missing_attribute, numpy_repr, wrap_tensor
from tape_tf.tracing import symbol
from tape_tf.typing import DTypeLike, IndexLike, ShapeLike, TensorLike

if TYPE_CHECKING:
    from collections.abc import Callable

NAME_SCOPE: ContextVar[str] = ContextVar("tape_tf.name_scope", default="")
"""The prefix of the names of new Variables, see `tf.name_scope`."""

AUTOCAST: ContextVar[tc.DType | None] = ContextVar("tape_tf.autocast", default=None)
"""The dtype in which a layer of Keras that computes in half precision reads its weights."""

# By the id of the tape_core Variable, which its façade keeps alive: no id in here belongs to a dead one.
_facades: WeakValueDictionary[int, Variable] = WeakValueDictionary()


class Variable(Value):
    """A value that can be replaced: a parameter. Reading one while a tape records watches it.

    >>> import tape_tf as tf
    >>> v = tf.Variable(20.0)
    >>> v
    <tf.Variable 'Variable:0' shape=() dtype=float32, numpy=20.0>
    >>> v.assign_add(1.0).numpy()
    np.float32(21.0)

    Args:
        initial_value: a number, an array, a nested list, a tensor, or a function that makes one; copied.
        trainable: whether tapes watch it automatically.
        name: shown when it is printed.
        dtype: by default float32 for Python floats, int32 for ints, else the value's own.
        shape: the shape that the value must be compatible with; lengths may be None.

    Raises:
        ValueError: the value does not convert to a tensor, or is a tensor of another dtype or shape.
        TypeError: a number does not fit `dtype`.

    Attributes:
        native: the tape_core Variable.
    """

    __slots__ = ("autocast", "constraint")

    native: tc.Variable
    constraint: Callable[[Any], Any] | None
    autocast: bool  # True for weights of layers: see AUTOCAST

    def __init__(
        self,
        initial_value: TensorLike | Callable[[], TensorLike] | None = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: object = None,
        name: str | None = None,
        variable_def: object = None,
        dtype: DTypeLike = None,
        import_scope: object = None,
        constraint: Callable[[Any], Any] | None = None,
        synchronization: object = None,
        aggregation: object = None,
        shape: ShapeLike = None,
        experimental_enable_variable_lifting: bool = True,
    ) -> None:
        from tape_tf.shapes import TensorShape, as_shape

        if initial_value is None:
            raise ValueError("tf.Variable: initial_value is needed, a value or a function that makes one")
        # A function delays the making of the value; TensorFlow has it for Variables of a tf.function.
        if callable(initial_value) and not isinstance(initial_value, Value):
            initial_value = initial_value()
        value = provided.native(initial_value, dtype, "initial_value")
        if shape is not None and not as_shape(shape).is_compatible_with(TensorShape(value.shape)):
            raise ValueError(
                f"tf.Variable: the initial value's shape {value.shape} is not compatible with the explicitly supplied "
                f"`shape` argument ({as_shape(shape)})."
            )
        # The core appends no ":0"; the property `name` does, as TensorFlow prints it.
        label = NAME_SCOPE.get() + (name or "Variable") if name or NAME_SCOPE.get() else None
        self.native = tc.Variable(value, trainable=trainable is None or bool(trainable), name=label)
        self.constraint = constraint
        self.autocast = False
        _facades[id(self.native)] = self

    @classmethod
    def of(cls, native: tc.Variable) -> Variable:
        """Return the façade of a tape_core Variable, such as a layer of tape_nn makes: always the same object."""
        # The same object each time, so that `is`, sets of ids and `constraint` hold for a Variable that the core
        # returns.
        found = _facades.get(id(native))
        if found is None:
            found = object.__new__(cls)
            found.native = native
            found.constraint = None
            found.autocast = False
            _facades[id(native)] = found
        return found

    def _read_native(self) -> tc.Tensor:
        value = self.native._read()
        if self.autocast and (wanted := AUTOCAST.get()) is not None and value.dtype is not wanted:
            return tc.astype(value, wanted)
        return value

    # -- what it is

    @property
    def name(self) -> str:
        """The name; names are not unique."""
        return f"{self.native.name or 'Variable'}:0"

    @property
    def trainable(self) -> bool:
        """True if tapes watch it automatically when it is read."""
        return self.native.trainable

    def value(self) -> Tensor:
        """Return the value as a tensor, which later assignments do not change; tapes that record watch the Variable."""
        return wrap_tensor(self.native.value)

    def read_value(self) -> Tensor:
        """Return :meth:`value`."""
        return self.value()

    def is_initialized(self, name: str | None = None) -> bool:
        """Return True: a Variable has a value from the start."""
        return True

    def set_shape(self, shape: ShapeLike) -> None:
        """Check that the shape is compatible."""
        Tensor.set_shape(self, shape)  # type: ignore[arg-type]

    # -- assignment

    def assign(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Replace the value. No gradient flows through an assignment, and tapes keep the value that was read.

        Args:
            read_value: with False, the result is None instead of the Variable.

        Raises:
            ValueError: the value has another shape, or is a tensor of another dtype.
        """
        # Here, and not in the core, whose message has its own words for another shape.
        given = self._convert(value)
        if given.shape != self.native.shape:
            raise ValueError(
                f"Cannot assign value to variable ' {self.name}': Shape mismatch.The variable shape {self.shape}, and "
                f"the assigned value shape {given.shape} are incompatible."
            )
        self.native.assign(given)
        return self._result(read_value)

    def assign_add(
        self, delta: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to the value; :class:`IndexedSlices` add to their rows.

        Raises:
            InvalidArgumentError: the shape is another: there is no broadcasting.
            ValueError: it is a tensor of another dtype.
        """
        self.native.assign_add(self._delta(delta))
        return self._result(read_value)

    def assign_sub(
        self, delta: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract from the value; like :meth:`assign_add`."""
        self.native.assign_sub(self._delta(delta))
        return self._result(read_value)

    def _convert(self, value: TensorLike) -> tc.Tensor:
        found: tc.Tensor = provided.native(value, self.dtype, like=self.native)
        if found.backend is not self.native.backend or found.device != self.native.device:
            # The value is copied to this backend and device, as TensorFlow copies between devices.
            found = tc.asarray(found, backend=self.native.backend, device=self.native.device)
        return found

    def _delta(self, delta: TensorLike) -> Any:
        if isinstance(delta, IndexedSlices | tc.IndexedSlices):
            found = delta.native if isinstance(delta, IndexedSlices) else delta
            # With the Variable's own shape: TensorFlow's IndexedSlices for an assignment often have none.
            return tc.IndexedSlices(found.values, found.indices, self.native.shape)
        given = self._convert(delta)
        if given.shape != self.native.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"Cannot update variable with shape {self.shape.as_list()} using a Tensor with shape "
                f"{list(given.shape)}, shapes must be equal. [Op:AssignAddVariableOp] name: ",
            )
        return given

    def _result(self, read_value: bool) -> Variable | None:
        if not read_value:
            return None
        self.native._read()  # in TensorFlow the result is a reading of the Variable, so tapes watch it
        return self

    def scatter_add(
        self, sparse_delta: IndexedSlices | tc.IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Add rows: `tf.IndexedSlices(values, indices)`; rows named twice get both."""
        return self.assign_add(_slices(sparse_delta))

    def scatter_sub(
        self, sparse_delta: IndexedSlices | tc.IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Subtract rows; like :meth:`scatter_add`."""
        return self.assign_sub(_slices(sparse_delta))

    def scatter_update(
        self, sparse_delta: IndexedSlices | tc.IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows; where an index occurs twice, the last row stays."""
        return self._update_rows(sparse_delta, "set")

    def scatter_mul(
        self, sparse_delta: IndexedSlices | tc.IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Multiply rows element by element."""
        return self._update_rows(sparse_delta, "multiply")

    def scatter_max(
        self, sparse_delta: IndexedSlices | tc.IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows by the elementwise maximum of the old and the given ones."""
        return self._update_rows(sparse_delta, "max")

    def scatter_min(
        self, sparse_delta: IndexedSlices | tc.IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows by the elementwise minimum of the old and the given ones."""
        return self._update_rows(sparse_delta, "min")

    def _update_rows(self, sparse_delta: IndexedSlices | tc.IndexedSlices, method: str) -> Any:
        # Indices of rows are a key of their own; coordinates have to be split into one index tensor per dimension.
        slices = _slices(sparse_delta)
        return self._update_at(slices.indices, slices.values, method)

    def _update_nd(self, indices: TensorLike, updates: TensorLike, method: str) -> Any:
        return self._update_at(provided.nd_key(indices), updates, method)

    def _update_at(self, key: IndexLike, values: TensorLike, method: str) -> Any:
        """Assign the result of a `method` of `tape_core.at` on the value; tapes do not record it."""
        constant = tc.stop_gradient(self.native)
        given = tc.stop_gradient(self._convert(values))
        self.native.assign(getattr(tc.at(constant)[provided.unwrap(key)], method)(given))
        return self._result(True)

    def scatter_nd_add(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Any:
        """Add to the elements, or parts, whose coordinates are in the last axis of `indices`."""
        return self._update_nd(indices, updates, "add")

    def scatter_nd_sub(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Any:
        """Subtract from the elements, or parts, whose coordinates are in the last axis of `indices`."""
        # Negated after the conversion, since a list has no minus.
        return self._update_nd(indices, -self._convert(updates), "add")

    def scatter_nd_update(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Any:
        """Replace the elements, or parts, whose coordinates are in the last axis of `indices`."""
        return self._update_nd(indices, updates, "set")

    def sparse_read(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """Return the rows at `indices`; the gradient is IndexedSlices."""
        return wrap_tensor(tc.gather(self.native, provided.native(indices)))

    # -- as an operand

    def __getitem__(self, key: IndexLike) -> Tensor:
        # v[i].assign(x): the result remembers where it comes from.
        found: SlicedVariable = object.__new__(SlicedVariable)
        found.native = provided.getitem(self, key).native
        found._source = (self, key)
        return found

    # `v += 1` would rebind the name `v` to a tensor, and leave the Variable as it is.
    def __iadd__(self, other: object) -> NoReturn:
        raise RuntimeError(
            "Variable += value not supported. Use `variable.assign_add(value)` to modify the variable value and "
            "`variable = variable + value` to get a new Tensor object."
        )

    def __isub__(self, other: object) -> NoReturn:
        raise RuntimeError(
            "Variable -= value not supported. Use `variable.assign_sub(value)` to modify the variable value and "
            "`variable = variable - value` to get a new Tensor object."
        )

    def __imul__(self, other: object) -> NoReturn:
        raise RuntimeError(
            "Variable *= value not supported. Use `var.assign(var * value)` to modify the variable or `var = var * "
            "value` to get a new Tensor object."
        )

    def __itruediv__(self, other: object) -> NoReturn:
        raise RuntimeError(
            "Variable /= value not supported. Use `var.assign(var / value)` to modify the variable or `var = var / "
            "value` to get a new Tensor object."
        )

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError("'tf.Variable' object does not support item assignment; use v[key].assign(value)")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing_attribute(name).replace("tf.Tensor", "tf.Variable"))

    def __copy__(self) -> Variable:
        return Variable.of(self.native.__copy__())

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        memo[id(self)] = twin = self.__copy__()
        return twin

    def __reduce__(self) -> Any:
        return Variable.of, (self.native,)

    def __repr__(self) -> str:
        if symbol(self.native) is not None:  # inside of a tf.function
            return f"<tf.Variable {self.name!r} shape={self.shape} dtype={self.native.dtype}>"
        return (
            f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.native.dtype}, "
            f"numpy={numpy_repr(self._values())}>"
        )


class SlicedVariable(Tensor):
    """A part of a Variable: a tensor that can be assigned to, `v[0].assign(x)`."""

    __slots__ = ("_source",)

    _source: tuple[Variable, Any]  # the Variable and the key

    def assign(self, value: TensorLike, name: str | None = None) -> Variable:
        """Replace this part of the Variable, and return the Variable.

        Raises:
            ValueError: the value does not fit the part.
        """
        variable, key = self._source
        variable._update_at(key, value, "set")
        return variable


def _slices(sparse_delta: IndexedSlices | tc.IndexedSlices) -> tc.IndexedSlices:
    if isinstance(sparse_delta, IndexedSlices):
        return sparse_delta.native
    if isinstance(sparse_delta, tc.IndexedSlices):
        return sparse_delta
    raise TypeError(f"sparse_delta is not IndexedSlices: {sparse_delta!r}")
