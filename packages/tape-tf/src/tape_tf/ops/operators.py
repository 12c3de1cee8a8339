"""The operators of tensors and Variables: the functions under other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_tf.conversion import constant, native
from tape_tf.ops.elementwise import FUNCTIONS, truediv
from tape_tf.ops.indexing import getitem
from tape_tf.ops.matrices import matmul
from tape_tf.tensor import IndexedSlices, Tensor, Value
from tape_tf.typing import TensorLike


def _logical(name: str, bits: str) -> Callable[[Any, Any], Any]:
    """`&` and the like: logical of truth values, of integers bit by bit."""

    def function(x: Any, y: Any) -> Any:  # one of them is a Value: these are methods of it
        tensor = x if isinstance(x, Value) else y
        return FUNCTIONS[name if tensor.dtype.is_bool else bits](x, y)

    return function


def _equal(name: str) -> Callable[[Any, Any], Any]:
    def function(x: Value, y: TensorLike | None) -> Any:
        if y is None:
            return name != "equal"
        if isinstance(y, list | tuple | Value) and not _broadcast(x, y):
            return constant(name != "equal")
        return FUNCTIONS[name](x, y)

    return function


def _broadcast(x: Value, y: TensorLike) -> bool:
    """Whether shapes broadcast: those that do not are not equal."""
    one, other = tuple(x.shape), tuple(native(y).shape)
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
    "and": _logical("logical_and", "bitwise_and"),
    "or": _logical("logical_or", "bitwise_or"),
    "xor": _logical("logical_xor", "bitwise_xor"),
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
    setattr(Value, f"__{_name}__", _equal(_long))
for _name, _function in {"neg": FUNCTIONS["negative"], "abs": FUNCTIONS["abs"], "pos": lambda x: x}.items():
    setattr(Value, f"__{_name}__", _unary(_function))


def _invert(self: Value) -> Any:
    return FUNCTIONS["logical_not" if self.dtype.is_bool else "invert"](self)


setattr(Value, "__invert__", _invert)  # noqa: B010 - for type checkers it has none
setattr(Tensor, "__getitem__", getitem)  # noqa: B010


def _slices_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Value, other: TensorLike) -> Any:
        return function(self, other)

    return operator


for _name in ("add", "sub", "mul", "truediv"):
    # TensorFlow has no arithmetic of IndexedSlices with numbers; here they are the tensor they stand for.
    setattr(IndexedSlices, f"__{_name}__", _slices_operator(_BINARY[_name]))
    setattr(IndexedSlices, f"__r{_name}__", _slices_operator(lambda self, other, f=_BINARY[_name]: f(other, self)))
