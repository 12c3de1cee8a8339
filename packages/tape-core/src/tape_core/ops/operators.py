"""Python's operators on Tensors: each calls the op of the same meaning.

Like `ops.methods`, this module sets them on the class `Tensor` when it is imported.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from tape_core.base.lookup import instead_of_scipy
from tape_core.base.references import COUNTS_REFERENCES
from tape_core.engine.call_paths import accepts, binary_call
from tape_core.engine.changes import on_change
from tape_core.engine.tensor import Tensor
from tape_core.ops import elementwise as ew
from tape_core.ops import logic, searching
from tape_core.ops.index.indexing import getitem_with_key, setitem_with_key
from tape_core.ops.linalg.products import matmul, matrix_transpose
from tape_core.ops.view_writes import check_write
from tape_core.typing import ArrayLike, IndexKey


def _reflected(function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    """The method for `other + self`; it declines operands that no op takes, so that Python asks their class."""

    def operator(self: Tensor, other: object) -> Any:
        return function(other, self) if accepts(other) else NotImplemented

    return operator


def _attach(name: str, function: Callable[..., Any]) -> None:
    function.__name__ = function.__qualname__ = name
    setattr(Tensor, name, function)


# -- assignment to elements

# `x[i][j] = value` would change the Tensor `x[i]`, which is thrown away: nothing happens, in silence. `x[i]` is a view
# in NumPy, so users write this. It is told apart from `y = x[i]; y[j] = value` by the number of references to the
# container, and where that is not enough by the bytecode of the caller.


class _Probe:
    """An object that counts the references to itself while an element of it is assigned."""

    references = 0

    def __setitem__(self, key: IndexKey, value: object) -> None:
        _Probe.references = getattr(sys, "getrefcount", lambda _: -1)(self)


_Probe()[0] = None
_TEMPORARY_REFCOUNT = _Probe.references
"""References that `__setitem__` counts on an object that only the assignment holds; -1 where Python counts none."""

# Then a variable's value has the count of a temporary.
_COUNTS_MISS_LOCALS = not COUNTS_REFERENCES


def _setitem(self: Tensor, key: IndexKey, value: ArrayLike) -> None:
    references = getattr(sys, "getrefcount", lambda _: 0)(self)
    # The cheap test first: the bytecode is read only where the count allows a temporary.
    if references <= _TEMPORARY_REFCOUNT and _assigns_to_temporary(sys._getframe(1)):
        instead = instead_of_scipy(sys._getframe(1))
        raise TypeError(
            f"{instead}{'; ' if instead else ''}x[i][j] = value changes nothing: x[i] is a value of its own, not a "
            f"view of x. Write x[i, j] = value, or x = tape_core.at(x)[...].set(value)"
        )
    check_write(sys._getframe(1))
    _rebind(self, setitem_with_key(self, value, key))


def _assigns_to_temporary(frame: FrameType) -> bool:
    """Return True if the frame's current instruction assigns to an element of an intermediate result, which is lost."""
    opcode = _opcode_of_container(frame.f_code, frame.f_lasti)
    if opcode is None:  # an explicit call of `__setitem__`
        return False
    return not opcode.startswith("LOAD_FAST") and (opcode != "" or not _COUNTS_MISS_LOCALS)


@lru_cache(maxsize=256)
def _opcode_of_container(code: CodeType, at: int) -> str | None:
    """The name of the bytecode instruction that pushed `x` in the assignment `x[key] = ...` at an offset.

    It is "" where that cannot be told, and None where there is no such assignment at the offset.

    Instructions carry the source positions of the expression that they belong to. All that begin where the target
    begins belong to it; of those the one that reaches furthest, but ends before the target does, is the last of `x`.
    """
    instructions = list(dis.get_instructions(code))
    store = next((one for one in instructions if one.offset == at), None)
    if store is None or store.opname not in ("STORE_SUBSCR", "STORE_SLICE"):
        return None
    target = store.positions
    if target is None or target.lineno is None or target.end_lineno is None:
        return ""
    start, end = (target.lineno, target.col_offset), (target.end_lineno, target.end_col_offset)
    found, furthest = "", (0, 0)
    for one in instructions:
        place = one.positions
        if place is None or (place.lineno, place.col_offset) != start:
            continue
        until = (place.end_lineno or 0, place.end_col_offset or 0)
        if furthest < until < end:
            found, furthest = one.opname, until
    return found


def _in_place(symbol: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    """The method for `x += y`; as in NumPy, it refuses a result of another shape or dtype than that of `x`."""

    def operator(self: Tensor, other: object) -> Any:
        if not accepts(other):
            return NotImplemented
        check_write(sys._getframe(1))
        result = function(self, other)
        # The Tensor would change under the hands of whoever else has it; NumPy raises here too.
        for what, old, new in (("shape", self.shape, result.shape), ("dtype", self.dtype, result.dtype)):
            if old != new:
                raise (ValueError if what == "shape" else TypeError)(
                    f"x {symbol} y would change the {what} of x from {old} to {new}; write x = x {symbol[:-1]} y for a "
                    f"new Tensor"
                )
        return _rebind(self, result)

    return operator


def _rebind(tensor: Tensor, result: Tensor) -> Tensor:
    """Give a Tensor the array and the slots of a result: what `x += y` and `x[key] = y` do, since arrays are shared."""
    on_change(tensor)
    return tensor._rebind(result)


def _round(self: Tensor, digits: int | None = None) -> Tensor:
    """Implement `round(x, digits)` as NumPy does: without digits, too, floats stay floats."""
    return ew.round_to(self, digits or 0)


def _contains(self: Tensor, value: object) -> Tensor:
    """Implement `value in x` as NumPy does: whether any element is equal to it.

    Python asks for the truth of what it returns at the line that says `in`, which the error of a trace then names.
    """
    return searching.any(logic.equal(self, value))


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
_attach("__divmod__", lambda self, other: (self // other, self % other))
_attach("__rdivmod__", lambda self, other: (other // self, other % self))
_attach("__contains__", _contains)
_attach("__round__", _round)
_attach("__trunc__", lambda self: int(self))
_attach("__getitem__", lambda self, key: getitem_with_key(self, key))
_attach("__setitem__", _setitem)


def _matrix_T(self: Tensor) -> Tensor:
    """The transpose of a matrix."""
    if self.ndim != 2:
        raise ValueError(f".T is for 2-d tensors; this one has shape {self.shape}; use .mT or permute_dims")
    return matrix_transpose(self)


Tensor.T = property(_matrix_T)  # type: ignore[assignment, method-assign]
Tensor.mT = property(lambda self: matrix_transpose(self), doc="Each matrix transposed.")  # type: ignore[assignment, method-assign]
