"""The calls of NumPy that instructions of compiled functions are: with `out=`, for memory that is there."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from tape_compile.extend import Ref, Spec

from tape_numpy.compiler.lowering import DOT
from tape_numpy.kernels import FLOATS, KERNELS, diagonal_matmul, extrema_are_alike

_UFUNCS: dict[Any, Any] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.divide,
    operator.neg: np.negative, operator.abs: np.abs, operator.lt: np.less, operator.le: np.less_equal,
    operator.gt: np.greater, operator.ge: np.greater_equal, operator.eq: np.equal, operator.ne: np.not_equal,
    operator.and_: np.bitwise_and, operator.or_: np.bitwise_or, operator.xor: np.bitwise_xor,
    operator.invert: np.invert,
}  # fmt: skip
_WITH_NUMBERS = frozenset(
    {operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.le, operator.gt, operator.ge}
)
_RELU, _ASTYPE, _SUM = (KERNELS[name] for name in ("relu", "astype", "sum"))
_OTHERS = frozenset({np.where, _ASTYPE, _RELU, operator.pow})
_CONTAINERS = (tuple, list, slice)


def gives_new(instruction: Any, specs: Any) -> bool:
    """Whether the result is an array with memory of its own, and none of the arguments is kept."""
    if type(instruction.out) is not int or specs[instruction.out].kind is not np.ndarray or instruction.effect:
        return False
    if instruction.fn in (operator.matmul, diagonal_matmul, _SUM, DOT):
        return True
    step = step_of(instruction)
    return step is not None and step[0] == "ufunc"


def axes_in_rows(fn: Any) -> int | None:
    """Results of matrix products lie row by row, however the arguments do; a stack of stacks of matrices need not."""
    return 3 if fn is operator.matmul or fn is diagonal_matmul else None


def into(instruction: Any) -> tuple[Any, list[Any]] | None:
    """A function that takes `out=`, and its arguments, to do what an elementwise instruction does."""
    step = step_of(instruction)
    return None if step is None or step[0] != "ufunc" else (step[1], step[2])


def full(instruction: Any) -> Any:
    """Zeros for relu, say: NumPy compares two arrays with vector instructions, but not one with a number."""
    step = step_of(instruction)
    return np.full if step is not None and step[1] in (np.maximum, np.minimum) and extrema_are_alike() else None


def scalar(instruction: Any, specs: Any) -> tuple[Any, Spec] | None:
    """An array of shape () is what NumPy makes of a number first, for an operator with an array."""
    try:
        if instruction.fn not in _WITH_NUMBERS or instruction.kwargs or len(instruction.args) != 2:
            return None
    except TypeError:
        return None
    for array, number in (instruction.args, instruction.args[::-1]):
        if type(array) is Ref and specs[array.id].kind is np.ndarray and specs[array.id].dtype in FLOATS:
            kind = specs[number.id].kind if type(number) is Ref else type(number)
            return (np.asarray, Spec(np.ndarray, (), specs[array.id].dtype)) if kind in (float, int) else None
    return None


def step_of(instruction: Any) -> tuple[str, Any, list[Any]] | None:
    """The call of NumPy that does what an instruction does, into an array it is given; None where none does."""
    try:
        fn = _UFUNCS.get(instruction.fn, instruction.fn)
        if not isinstance(fn, np.ufunc) and fn not in _OTHERS:
            return None
    except TypeError:
        return None
    args = list(instruction.args)
    for arg in args:
        if type(arg) in _CONTAINERS:
            return None
    if fn is np.where:
        return ("where", fn, args) if len(args) == 3 and not instruction.kwargs else None
    if fn is _ASTYPE:
        return ("copy", None, args[:1]) if len(args) == 2 and _only_copies(instruction.kwargs) else None
    if instruction.kwargs:
        return None
    if fn is _RELU:
        return "ufunc", np.maximum, [args[0], 0]
    if fn is operator.pow and type(args[1]) in (int, float) and args[1] == 2:
        return "ufunc", np.square, args[:1]  # as arrays do
    if isinstance(fn, np.ufunc) and fn.nout == 1 and fn.nin == len(args) and fn.signature is None:
        return "ufunc", fn, args
    return None


def _only_copies(kwargs: Any) -> bool:
    return not kwargs or set(kwargs) == {"copy"}
