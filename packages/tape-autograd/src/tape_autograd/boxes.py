"""Boxes: the values that a function computes with while it is differentiated; each holds a Tensor of tape_core."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import tape_core as tc
from tape_core.support import BatchedArray, dense, is_watched
from tape_core.typing import ArrayLike, Axis, DTypeLike, IndexKey, PyTree, ShapeLike

Function = Callable[..., Any]

_DOUBLE = frozenset({tc.float64, tc.complex128})
_HOST = (np.ndarray, np.generic)
_ARRAYS = frozenset({np.ndarray, *np.sctypeDict.values()})


class Box:
    """A value on its way from an argument of a differentiated function: it behaves as a NumPy array does.

    Functions of `tape_autograd.numpy`, NumPy's own, and operators take it. What does not depend on the argument, or has
    no derivative by its nature, as comparisons, is a plain array again.

    >>> import tape_autograd.numpy as np
    >>> from tape_autograd import grad
    >>> def f(x):
    ...     print(x)
    ...     return np.sum(x[x > 1.0] ** 2)
    >>> grad(f)(np.array([1.0, 2.0]))
    Box with value [1. 2.]
    array([0., 4.])
    """

    __slots__ = ("__weakref__", "_tensor")
    _tensor: tc.Tensor

    # An ndarray on the left of an operator leaves the operation to the box.
    __array_priority__ = 100.0

    def __init__(self, tensor: tc.Tensor) -> None:
        self._tensor = tensor

    def __tape_tensor__(self) -> tc.Tensor:
        """Return the Tensor that functions of tape_core compute with when they are given this object."""
        return self._tensor

    @property
    def _value(self) -> Any:
        """The value as a plain array, or a NumPy scalar if it has no dimensions; no derivative comes back from it."""
        return values_of(self._tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        return self._tensor.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._tensor.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._tensor.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type, NumPy's."""
        return np.dtype(self._tensor.dtype.name)

    @property
    def T(self) -> Any:
        """The array with its axes reversed."""
        return boxed(tc.permute_dims(self._tensor, tuple(reversed(range(self.ndim)))))

    @property
    def real(self) -> Any:
        """The real part."""
        return boxed(tc.real(self._tensor))

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return _call("imag", self)

    def __len__(self) -> int:
        if not self._tensor.ndim:
            raise TypeError("len() of unsized object")
        return self._tensor.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._tensor.ndim:
            raise TypeError("iteration over a 0-d array")
        return (boxed(row) for row in self._tensor)

    def __getitem__(self, key: IndexKey) -> Any:
        return boxed(self._tensor[getval(key)])

    def __setitem__(self, key: IndexKey, value: ArrayLike) -> NoReturn:
        raise TypeError(
            "an array that is being differentiated cannot be assigned to; build the array from its parts with "
            "np.concatenate, np.stack or np.where"
        )

    def __bool__(self) -> bool:
        return bool(self._value)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"Box with value {self._tensor.backend.format(self._tensor._array)}"

    def __format__(self, spec: str) -> str:
        return format(self._value, spec) if spec else str(self)

    def __float__(self) -> NoReturn:
        raise TypeError(
            "a value that is being differentiated cannot become a plain number, as for a function of math or an "
            "element of a plain array: its derivative would be lost. Use functions of tape_autograd.numpy, and "
            "np.array, np.stack or np.concatenate in place of assignments, or take the plain value by "
            "tape_autograd.tracer.getval"
        )

    __complex__ = __float__

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> Any:
        # A conversion to integers has no derivative anyway.
        if dtype is not None and np.dtype(dtype).kind in "biu":
            return np.asarray(self._value).astype(dtype)
        raise TypeError(
            "a value that is being differentiated cannot become a plain NumPy array: its derivative would be lost. Use "
            "tape_autograd.numpy (np.array for lists of values), write a function of another library as a primitive, "
            "or take the plain value by tape_autograd.tracer.getval"
        )

    # -- NumPy's own functions

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        if any([_is_foreign(type(x)) for x in inputs]):
            return NotImplemented
        if kwargs.get("out") is not None:
            raise TypeError(
                f"numpy.{ufunc.__name__}: out=, and so `array += value`, would write a value that is being "
                f"differentiated into a plain array; write `array = array + value`"
            )
        return applied(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs, arithmetic=True)

    def __array_function__(self, func: Function, types: Iterable[type], args: Any, kwargs: Any) -> Any:
        if any([_is_foreign(t) for t in types]):
            return NotImplemented
        return _call(func, *args, **kwargs)

    # -- methods, in the words of NumPy

    def reshape(self, *shape: ShapeLike, order: str = "C") -> Any:
        """Return the elements in another shape."""
        return _call("reshape", self, shape[0] if len(shape) == 1 else shape, order=order)

    def transpose(self, *axes: Any) -> Any:
        """Return the array with its axes permuted."""
        return _call("transpose", self, (axes[0] if len(axes) == 1 else axes) or None)

    def astype(self, dtype: DTypeLike, *_: Any, **__: Any) -> Any:
        """Return the array in another data type; in an integer one it is a plain array."""
        kind = np.dtype(dtype)
        return self._value.astype(kind) if kind.kind in "biu" else boxed(tc.astype(self._tensor, kind.name))

    def flatten(self, order: str = "C") -> Any:
        """Return the elements in one dimension."""
        return _call("ravel", self, order)

    def round(self, decimals: int = 0) -> Any:
        """Return the rounded values, which have no derivative."""
        return self._value.round(decimals)

    def copy(self) -> Box:
        """Return the array itself: it cannot be written to."""
        return self

    def __getattr__(self, name: str) -> Any:
        # Only for what is not there otherwise.
        raise AttributeError(
            f"a value that is being differentiated has no attribute {name!r}; use a function of tape_autograd.numpy, "
            f"or tape_autograd.tracer.getval(value) for the plain value, through which no derivative flows"
        )

    if TYPE_CHECKING:  # attached below

        def __neg__(self) -> Any: ...
        def __pos__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __add__(self, other: ArrayLike) -> Any: ...
        def __radd__(self, other: ArrayLike) -> Any: ...
        def __sub__(self, other: ArrayLike) -> Any: ...
        def __rsub__(self, other: ArrayLike) -> Any: ...
        def __mul__(self, other: ArrayLike) -> Any: ...
        def __rmul__(self, other: ArrayLike) -> Any: ...
        def __truediv__(self, other: ArrayLike) -> Any: ...
        def __rtruediv__(self, other: ArrayLike) -> Any: ...
        def __pow__(self, other: ArrayLike) -> Any: ...
        def __rpow__(self, other: ArrayLike) -> Any: ...
        def __matmul__(self, other: ArrayLike) -> Any: ...
        def __rmatmul__(self, other: ArrayLike) -> Any: ...


# -- in and out


def isbox(value: object) -> bool:
    """Return whether a value is being differentiated."""
    return type(value) is Box


def getval(value: PyTree) -> Any:
    """Return a value without its derivative; lists, tuples and slices are looked into."""
    kind = type(value)
    if kind is Box:
        return value._value
    if kind is tuple or kind is list:
        return kind([getval(v) for v in value])
    return value


def values_of(tensor: tc.Tensor) -> Any:
    """Return the values of a Tensor as a NumPy array, or scalar, that may share its memory."""
    return tensor.backend.numpy(tensor._array)[()]


def is_plain(tensor: tc.Tensor) -> bool:
    """Return whether a Tensor holds an array of NumPy: not that of another library, of a trace, or of a vmap."""
    return type(tensor._array) in _ARRAYS


def boxed(found: PyTree) -> Any:
    """Return what an op of tape_core gives as boxes, and as plain values what nobody differentiates."""
    if isinstance(found, tc.Tensor):
        # Of another backend than NumPy, in a vectorised Jacobian, a vmap or a trace, it stays a Tensor in any case.
        plain = is_plain(found)
        if is_watched((found,)) and (found.dtype.inexact or not plain):
            return Box(found)
        return values_of(found) if plain else Box(found) if type(found._array) is BatchedArray else found
    if isinstance(found, tuple):
        parts = [boxed(part) for part in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    if isinstance(found, list):
        return [boxed(part) for part in found]
    return boxed(dense(found)) if isinstance(found, tc.IndexedSlices) else found


def holds_box(value: PyTree) -> bool:
    """Return whether a value is a box, or a list, tuple or dict that has one inside."""
    kind = type(value)
    if kind is Box:
        return True
    if kind is tuple or kind is list:
        return any(map(holds_box, value))
    return kind is dict and any(map(holds_box, value.values()))


def unboxed(value: PyTree) -> Any:
    """Return a value with Tensors in place of boxes, also inside of lists, tuples and dicts."""
    kind = type(value)
    if kind is Box:
        return value._tensor
    if kind is tuple or kind is list:
        return kind([unboxed(v) for v in value])
    return {k: unboxed(v) for k, v in value.items()} if kind is dict else value


def applied(function: Function, args: Iterable[Any], kwargs: dict[str, Any], *, arithmetic: bool = False) -> Any:
    """Call a function of NumPy or tape_core on Tensors in place of boxes.

    Args:
        arithmetic: NumPy would compute in the dtype that all arrays have in common; see :func:`_widened`.
    """
    inputs = [unboxed(x) for x in args]
    if arithmetic:
        inputs = _widened(inputs)
    return boxed(function(*inputs, **{k: unboxed(v) for k, v in kwargs.items()}))


def _widened(inputs: list[Any]) -> list[Any]:
    """Return operands of which plain arrays have the dtype that NumPy would compute in.

    Beside a float32 Tensor Tape takes int64 arrays as float32, NumPy computes both in float64.
    """
    narrow = [x for x in inputs if isinstance(x, tc.Tensor) and x.dtype not in _DOUBLE]
    if not narrow or not any([isinstance(x, _HOST) for x in inputs]):
        return inputs
    own = np.result_type(*[np.dtype(t.dtype.name) for t in narrow])
    return [
        x if not isinstance(x, _HOST) or x.dtype.kind == "b" else np.asarray(x).astype(np.result_type(own, x.dtype))
        for x in inputs
    ]


def _is_foreign(kind: type) -> bool:
    """Return whether a type has ufuncs of its own, as a DataArray of xarray: it is asked first."""
    return getattr(kind, "__array_ufunc__", None) is not None and not issubclass(
        kind, Box | np.ndarray | np.generic | tc.Tensor
    )


# -- operators


def _operand(value: ArrayLike, beside: tc.Tensor) -> Any:
    kind = type(value)
    if kind is Box:
        return value._tensor
    if kind is list or kind is tuple:
        value = _call("array", value)
        return value._tensor if type(value) is Box else value
    if isinstance(value, _HOST) and beside.dtype not in _DOUBLE:
        return _widened([beside, value])[1]
    return value


def _attach(name: str, function: Function) -> None:
    def forwards(self: Box, other: ArrayLike) -> Any:
        if _is_foreign(type(other)):
            return NotImplemented
        tensor = self._tensor
        return boxed(function(tensor, _operand(other, tensor)))

    def backwards(self: Box, other: ArrayLike) -> Any:
        if _is_foreign(type(other)):
            return NotImplemented
        tensor = self._tensor
        return boxed(function(_operand(other, tensor), tensor))

    setattr(Box, f"__{name}__", forwards)
    setattr(Box, f"__r{name}__", backwards)


def _attach_comparison(name: str, function: Function) -> None:
    def compare(self: Box, other: ArrayLike) -> Any:
        if _is_foreign(type(other)):
            return NotImplemented
        # In a vectorised Jacobian, a vmap or a trace the values are not known: the comparison is one of Tensors.
        if not is_plain(self._tensor) or (type(other) is Box and not is_plain(other._tensor)):
            return boxed(function(self._tensor, _operand(other, self._tensor)))
        return function(self._value, getval(other))

    setattr(Box, f"__{name}__", compare)


def _attach_unary(name: str, function: Function) -> None:
    setattr(Box, f"__{name}__", lambda self: boxed(function(self._tensor)))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"):
    _attach(_name, divmod if _name == "divmod" else getattr(operator, _name))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _attach_comparison(_name, getattr(operator, _name))
for _name in ("neg", "pos", "abs"):
    _attach_unary(_name, getattr(operator, _name))

_calls: list[Function] = []


def answer_by(function: Function) -> None:
    """Set the function that calls NumPy's functions for boxes, given by name or themselves."""
    _calls[:] = [function]


def _call(name: str | Function, *args: Any, **kwargs: Any) -> Any:
    return _calls[0](name, *args, **kwargs)


def _attach_method(name: str) -> None:
    def method(self: Box, *args: Any, **kwargs: Any) -> Any:
        return _call(name, self, *args, **kwargs)

    method.__name__ = name
    setattr(Box, name, method)


_METHODS = (
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "nonzero", "searchsorted", "clip", "compress"),
    *("conj", "conjugate", "cumprod", "cumsum", "diagonal", "dot", "max", "mean", "min", "prod", "ptp", "ravel"),
    *("repeat", "squeeze", "std", "sum", "swapaxes", "take", "trace", "var"),
)
"""Methods of arrays that are NumPy's function of the same name."""

for _name in _METHODS:
    _attach_method(_name)


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return axes as a tuple of numbers that are not negative."""
    if axis is None:
        return tuple(range(ndim))
    return tuple([k % ndim for k in (axis if isinstance(axis, tuple | list) else (axis,))])
