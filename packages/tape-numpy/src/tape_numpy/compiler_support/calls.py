"""Instructions of compiled functions as calls of NumPy that can write into memory that is there."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from tape_compile.extend import Argument, Instruction, Raw, Ref, Spec, Specs

from tape_numpy.compiler_support.lowering import DOT
from tape_numpy.kernels import FLOATS, KERNELS, diagonal_matmul, extrema_take_numbers

# Traces hold operators, since kernels and rules are written with them. These take no `out=`; the ufuncs that they call
# do.
_UFUNCS: dict[Any, Any] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.divide,
    operator.neg: np.negative, operator.abs: np.abs, operator.lt: np.less, operator.le: np.less_equal,
    operator.gt: np.greater, operator.ge: np.greater_equal, operator.eq: np.equal, operator.ne: np.not_equal,
    operator.and_: np.bitwise_and, operator.or_: np.bitwise_or, operator.xor: np.bitwise_xor,
    operator.invert: np.invert,
}  # fmt: skip
_TAKE_NUMBERS = frozenset(
    {operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.le, operator.gt, operator.ge}
)
_RELU, _ASTYPE, _SUM = (KERNELS[name] for name in ("relu", "astype", "sum"))
_OTHER_ELEMENTWISE = frozenset({np.where, _ASTYPE, _RELU, operator.pow})
_CONTAINERS = (tuple, list, slice)


def gives_new(instruction: Instruction, specs: Specs) -> bool:
    """Return whether the result is an array with memory of its own, and none of the arguments is kept."""
    if type(instruction.out) is not int or specs[instruction.out].kind is not np.ndarray or instruction.effect:
        return False
    if instruction.fn in (operator.matmul, diagonal_matmul, _SUM, DOT):
        return True
    step = step_of(instruction)
    return step is not None and step.kind == "ufunc"


def axes_in_rows(fn: object) -> int | None:
    """Return the number of axes up to which a function's results lie row by row, however its arguments do."""
    # Matrix products do, but for stacks of stacks of matrices, which NumPy may order otherwise.
    return 3 if fn is operator.matmul or fn is diagonal_matmul else None


def into(instruction: Instruction) -> tuple[Callable[..., Raw], list[Argument]] | None:
    """A function that takes `out=`, and its arguments, to do what an elementwise instruction does."""
    step = step_of(instruction)
    return None if step is None or step.kind != "ufunc" else (step.function, step.args)


def full(instruction: Instruction) -> Callable[[tuple[int, ...], Raw], Raw] | None:
    """A function that fills an array with a number, for extrema; None for other calls."""
    # Zeros for relu, say: NumPy compares two arrays with vector instructions, but not an array with a number.
    step = step_of(instruction)
    return (
        np.full if step is not None and step.function in (np.maximum, np.minimum) and extrema_take_numbers() else None
    )


def scalar(instruction: Instruction, specs: Specs) -> tuple[Callable[..., Raw], Spec] | None:
    """A function that makes an array of shape () of a number, which NumPy does first for an operator with an array.

    With it comes the spec of the array; None for other calls.
    """
    try:
        if instruction.fn not in _TAKE_NUMBERS or instruction.kwargs or len(instruction.args) != 2:
            return None
    except TypeError:
        return None
    for array, number in (instruction.args, instruction.args[::-1]):
        if type(array) is Ref and specs[array.id].kind is np.ndarray and specs[array.id].dtype in FLOATS:
            kind = specs[number.id].kind if type(number) is Ref else type(number)
            return (np.asarray, Spec(np.ndarray, (), specs[array.id].dtype)) if kind in (float, int) else None
    return None


class Step(NamedTuple):
    """A call of NumPy that writes into an array that it is given.

    Attributes:
        kind: `ufunc` for `function(*args, out=...)`; `copy` for a copy with a cast; `where` for two masked copies.
        function: what is called; None for a copy.
        args: its arguments.
    """

    kind: Literal["ufunc", "copy", "where"]
    function: Any
    args: list[Any]


def step_of(instruction: Instruction) -> Step | None:
    """The call that does what an instruction does, into an array that is there; None where none does."""
    try:
        fn = _UFUNCS.get(instruction.fn, instruction.fn)
        if not isinstance(fn, np.ufunc) and fn not in _OTHER_ELEMENTWISE:
            return None
    except TypeError:  # a function without a hash
        return None
    args = list(instruction.args)
    # Values inside of a sequence or a slice would not be found: who writes a Step looks at its arguments one by one.
    for arg in args:
        if type(arg) in _CONTAINERS:
            return None
    if fn is np.where:
        return Step("where", fn, args) if len(args) == 3 and not instruction.kwargs else None
    if fn is _ASTYPE:
        return Step("copy", None, args[:1]) if len(args) == 2 and _only_copies(instruction.kwargs) else None
    if instruction.kwargs:
        return None
    if fn is _RELU:
        return Step("ufunc", np.maximum, [args[0], 0])
    if fn is operator.pow and type(args[1]) in (int, float) and args[1] == 2:
        return Step("ufunc", np.square, args[:1])  # as the operator of arrays does
    # A signature is that of a generalised ufunc, such as np.vecdot, which is not elementwise.
    if isinstance(fn, np.ufunc) and fn.nout == 1 and fn.nin == len(args) and fn.signature is None:
        return Step("ufunc", fn, args)
    return None


def _only_copies(kwargs: Mapping[str, object]) -> bool:
    return not kwargs or set(kwargs) == {"copy"}
