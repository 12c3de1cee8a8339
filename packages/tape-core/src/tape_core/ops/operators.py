"""Python's operators on Tensors: each is the op of the same meaning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tape_core.backends.traced import TRACE, TracingError
from tape_core.hotpath import accepts, binary_call
from tape_core.ops import elementwise as ew
from tape_core.ops import logic
from tape_core.ops.indexing import getitem_with_key, setitem_with_key
from tape_core.ops.linalg import matmul, matrix_transpose
from tape_core.tensor import Tensor


def _reflected(function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self) if accepts(other) else NotImplemented

    return operator


def _attach(name: str, function: Any) -> None:
    function.__name__ = function.__qualname__ = name
    setattr(Tensor, name, function)


# How many references there are to a Tensor that only the assignment to it holds: the caller's stack, `self` below and
# getrefcount's own. From Python 3.14 on, and without the GIL, the count does not tell.
_TEMPORARY = (
    3
    if sys.implementation.name == "cpython"
    and sys.version_info < (3, 14)
    and getattr(sys, "_is_gil_enabled", lambda: True)()
    else 0
)


def _set(self: Tensor, key: Any, value: Any) -> None:
    if sys.getrefcount(self) <= _TEMPORARY:
        raise TypeError(
            "x[i][j] = value changes nothing: x[i] is a value of its own, not a view of x. Write x[i, j] = value, or "
            "x = tape_core.at(x)[...].set(value)"
        )
    _rebound(self, setitem_with_key(self, value, key), "x[key] = value")


def _in_place(symbol: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    def operator(self: Tensor, other: Any) -> Any:
        if not accepts(other):
            return NotImplemented
        result = function(self, other)
        for what, old, new in (("shape", self.shape, result.shape), ("dtype", self.dtype, result.dtype)):
            if old != new:
                raise (ValueError if what == "shape" else TypeError)(
                    f"x {symbol} y would change the {what} of x from {old} to {new}; write x = x {symbol[:-1]} y for a "
                    f"new Tensor"
                )
        return _rebound(self, result, f"x {symbol} y")

    return operator


def _rebound(tensor: Tensor, result: Tensor, what: str) -> Tensor:
    if TRACE.get() is not None and tensor.backend is tensor.backend.library:
        raise TracingError(
            f"{what} changes a Tensor from around a compiled function, where it is a constant. Make it a Variable and "
            f"assign it, give it as an argument, or write to a copy: x = x + 0"
        )
    return tensor._rebind(result)


_BINARY: dict[str, Callable[..., Any]] = {
    "add": ew.add,
    "sub": ew.subtract,
    "mul": ew.multiply,
    "matmul": matmul,
    "truediv": ew.divide,
    "floordiv": ew.floor_divide,
    "mod": ew.remainder,
    "pow": ew.pow,
    "and": logic.bitwise_and,
    "or": logic.bitwise_or,
    "xor": logic.bitwise_xor,
    "lshift": logic.bitwise_left_shift,
    "rshift": logic.bitwise_right_shift,
}
_SYMBOLS = dict(zip(_BINARY, ("+", "-", "*", "@", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"), strict=True))
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": logic.less,
    "le": logic.less_equal,
    "gt": logic.greater,
    "ge": logic.greater_equal,
    "eq": logic.equal,
    "ne": logic.not_equal,
}

for _name, _function in _BINARY.items():
    # The operator is a call path of its own: it declines operands it does not know, where the function raises.
    _attach(f"__{_name}__", binary_call(_function.op, operator=True))  # type: ignore[attr-defined]
    _attach(f"__r{_name}__", _reflected(_function))
    _attach(f"__i{_name}__", _in_place(f"{_SYMBOLS[_name]}=", _function))
for _name, _function in _COMPARISONS.items():
    _attach(f"__{_name}__", binary_call(_function.op, operator=True))  # type: ignore[attr-defined]
_attach("__neg__", lambda self: ew.negative(self))
_attach("__pos__", lambda self: ew.positive(self))
_attach("__abs__", lambda self: ew.abs(self))
_attach("__invert__", lambda self: logic.bitwise_invert(self))
_attach("__getitem__", lambda self, key: getitem_with_key(self, key))
_attach("__setitem__", _set)


def _transposed(self: Tensor) -> Tensor:
    """The transpose of a matrix."""
    if self.ndim != 2:
        raise ValueError(f".T is for 2-d tensors; this one has shape {self.shape}; use .mT or permute_dims")
    return matrix_transpose(self)


Tensor.T = property(_transposed)  # type: ignore[assignment]
Tensor.mT = property(lambda self: matrix_transpose(self), doc="Each matrix transposed.")  # type: ignore[assignment]
