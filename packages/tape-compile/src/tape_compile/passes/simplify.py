"""Algebra that is exact in floating-point arithmetic, also for infinities, NaN and -0."""

from __future__ import annotations

import operator
from typing import Any

from tape_compile.program import Instruction, Program, Ref, Spec, renewed

_FLOATS = ("float32", "float64")
_SAME_SHAPE = frozenset({"reshape", "broadcast_to"})
_NAMES = frozenset({"multiply", "divide", "pow", "subtract", "negative", "mT", *_SAME_SHAPE})


def algebra(program: Program) -> Program:
    """The program with `x` for `x * 1`, `x / 1`, `x - 0`, `x ** 1`, `-(-x)`, and with `x * x` for `x ** 2`.

    Not for `x + 0`, which is 0 where `x` is -0, nor for products and quotients of complex numbers.
    """
    replaced: dict[int, int] = {}
    made: dict[int, Instruction] = {}
    kept: list[Instruction] = []
    changes = program.constants.keys().isdisjoint
    for instruction in renewed(program.instructions, replaced):
        inputs = instruction.inputs
        if instruction.name not in _NAMES or (len(inputs) == 2 and changes(inputs)):  # nearly all
            kept.append(instruction)
            continue
        if not instruction.effect and type(instruction.out) is int:
            same = _same_as(instruction, program, made)
            if same is not None and program.specs[same] == program.specs[instruction.out]:
                replaced[instruction.out] = same
                continue
            instruction = _simpler(instruction, program)
            made[instruction.out] = instruction
        kept.append(instruction)
    return program.replaced(kept, [replaced.get(k, k) for k in program.outputs])


def _same_as(instruction: Instruction, program: Program, made: dict[int, Instruction]) -> int | None:
    """The value that an instruction gives again, if its shape and dtype are that one's."""
    fn, args, name = instruction.fn, instruction.args, instruction.name
    if not args or (type(args[0]) is not Ref and not (len(args) == 2 and type(args[1]) is Ref)):
        return None
    if len(args) == 2 and not instruction.kwargs:
        a, b = args
        if name == "multiply":
            if _is_number(b, 1, program) and type(a) is Ref:
                return None if _is_complex(a, program) else a.id
            if _is_number(a, 1, program) and type(b) is Ref:
                return None if _is_complex(b, program) else b.id
        exponent = {"divide": 1, "pow": 1, "subtract": 0}.get(name)
        if exponent is not None and type(a) is Ref and _is_number(b, exponent, program):
            return None if name != "subtract" and _is_complex(a, program) else a.id
        if name in _SAME_SHAPE and type(a) is Ref and program.specs[a.id].shape == b:
            return a.id
    if len(args) == 1 and type(args[0]) is Ref and name == "negative":
        inner = made.get(args[0].id)
        if inner is not None and inner.name == name and inner.fn == fn and type(inner.args[0]) is Ref:
            return inner.args[0].id
    return None


def _is_complex(ref: Ref, program: Program) -> bool:
    """Whether a product with 1 + 0j is another number: NaN where a part is infinite, 0 where one is -0."""
    return "complex" in str(program.specs[ref.id].dtype)


def _is_number(value: Any, number: int, program: Program) -> bool:
    """Whether an argument is a number, or a constant that is this number everywhere; a 0 must be positive."""
    if type(value) in (int, float):
        found = value
    elif type(value) is Ref and value.id in program.constants:
        found = _number(program.constants[value.id], program.specs[value.id])
    else:
        return False
    return found is not None and found == number and (number != 0 or str(found)[0] != "-")


def _number(constant: Any, spec: Spec) -> float | None:
    """The number that a constant is everywhere, where that is to be seen at once."""
    if not str(spec.dtype).rpartition(".")[2].startswith("float"):
        return None
    strides = getattr(constant, "strides", None)
    if strides is None and callable(getattr(constant, "stride", None)):
        strides = constant.stride()
    if spec.shape and (strides is None or any(strides) or spec.size == 0):
        return None
    return float(constant[(0,) * len(spec.shape)] if spec.shape else constant)


def _simpler(instruction: Instruction, program: Program) -> Instruction:
    """`x * x` for `x ** 2` of arrays, as their libraries compute it; so it may be the same as another product."""
    args = instruction.args
    if instruction.fn is operator.pow and len(args) == 2 and type(args[0]) is Ref and type(args[1]) in (int, float):
        spec = program.specs[instruction.out]
        plain = spec.shape and str(spec.dtype).rpartition(".")[2] in _FLOATS and program.specs[args[0].id] == spec
        if plain and args[1] == 2:
            twice = (args[0], args[0])
            return Instruction("multiply", operator.mul, twice, {}, instruction.out, instruction.place)
    return instruction
