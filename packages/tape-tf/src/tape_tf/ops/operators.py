"""The operators of tensors and Variables, attached to the class Value here: they are the functions of the chapters.

The classes cannot import the chapters, which import the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_tf.conversion import constant, convert_to_tensor
from tape_tf.ops.elementwise import FUNCTIONS, truediv
from tape_tf.ops.indexing import getitem
from tape_tf.ops.matrices import matmul
from tape_tf.tensor import IndexedSlices, Tensor, Value
from tape_tf.typing import TensorLike


def _logical_or_bitwise(name: str, bits: str) -> Callable[[Any, Any], Any]:
    """Return the function of `&` or the like: logical for bools, bit by bit for integers."""

    def function(x: Any, y: Any) -> Any:  # one of them is a Value: these are methods of it
        tensor = x if isinstance(x, Value) else y
        return FUNCTIONS[name if tensor.dtype.is_bool else bits](x, y)

    return function


def _equality(name: str) -> Callable[[Any, Any], Any]:
    def function(x: Value, y: TensorLike | None) -> Any:
        if y is None:
            return name != "equal"
        # NumPy and TensorFlow: x == None, and values whose shapes do not broadcast, are not equal; that is no error.
        if isinstance(y, list | tuple | Value) and not _can_broadcast(x, y):
            return constant(name != "equal")
        return FUNCTIONS[name](x, y)

    return function


def _can_broadcast(x: Value, y: TensorLike) -> bool:
    """Return whether the shapes of two values broadcast."""
    one, other = tuple(x.shape), tuple(convert_to_tensor(y).shape)
    return all(a in (1, b) or b == 1 for a, b in zip(reversed(one), reversed(other), strict=False))


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": FUNCTIONS["add"],
    "sub": FUNCTIONS["subtract"],
    "mul": FUNCTIONS["multiply"],
    "truediv": truediv,
    "floordiv": FUNCTIONS["floordiv"],
    "mod": FUNCTIONS["floormod"],
    "pow": FUNCTIONS["pow"],
    "matmul": matmul,
    "and": _logical_or_bitwise("logical_and", "bitwise_and"),
    "or": _logical_or_bitwise("logical_or", "bitwise_or"),
    "xor": _logical_or_bitwise("logical_xor", "bitwise_xor"),
}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def _attach(name: str, function: Callable[..., Any]) -> None:
    def operator(self: Value, other: TensorLike) -> Any:
        return function(self, other)

    def reflected(self: Value, other: TensorLike) -> Any:
        return function(other, self)

    setattr(Value, f"__{name}__", operator)
    setattr(Value, f"__r{name}__", reflected)


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: function(self)


for _name, _function in _BINARY.items():
    _attach(_name, _function)
for _name, _long in _COMPARISONS.items():
    setattr(Value, f"__{_name}__", FUNCTIONS[_long])
for _name, _long in {"eq": "equal", "ne": "not_equal"}.items():
    setattr(Value, f"__{_name}__", _equality(_long))
for _name, _function in {"neg": FUNCTIONS["negative"], "abs": FUNCTIONS["abs"], "pos": lambda x: x}.items():
    setattr(Value, f"__{_name}__", _unary(_function))


def _invert(self: Value) -> Any:
    return FUNCTIONS["logical_not" if self.dtype.is_bool else "invert"](self)


setattr(Value, "__invert__", _invert)  # noqa: B010 - for type checkers it has none
setattr(Tensor, "__getitem__", getitem)  # noqa: B010


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Value, other: TensorLike) -> Any:
        return function(self, other)

    return operator


for _name in ("add", "sub", "mul", "truediv"):
    # TensorFlow has no arithmetic of IndexedSlices with numbers; here they are converted to dense tensors.
    setattr(IndexedSlices, f"__{_name}__", _method(_BINARY[_name]))
    setattr(IndexedSlices, f"__r{_name}__", _method(lambda self, other, f=_BINARY[_name]: f(other, self)))
