"""Common subexpressions: what was computed is not computed again."""

from __future__ import annotations

from typing import Any

from tape_compile.program import Instruction, Program, literal, renewed


def same_calls(program: Program) -> Program:
    """The program in which a call that is the same as an earlier one gives the earlier one's results."""
    replaced: dict[int, int] = {}
    # The first call of each function of each values, which is nearly always the only one; None where there are several.
    alone: dict[Any, Instruction | None] = {}
    first: dict[Any, Instruction] = {}  # of those the first of each that is the same in all
    kept = []
    for instruction in renewed(program.instructions, replaced):
        if not instruction.effect:
            try:
                alike = instruction.fn, *instruction.inputs
                other = alone.setdefault(alike, instruction)
            except TypeError:  # it cannot be told what is the same
                other = instruction
            if other is not instruction:
                if other is not None:
                    _first(other, alike, first)
                    alone[alike] = None
                known = _first(instruction, alike, first)
                if known is not instruction:
                    replaced.update(zip(instruction.outputs, known.outputs, strict=True))
                    continue
        kept.append(instruction)
    return program.replaced(kept, [replaced.get(k, k) for k in program.outputs])


def _first(instruction: Instruction, alike: Any, first: dict[Any, Instruction]) -> Instruction:
    """The first call that gives the same as one does, which may be this one."""
    args, kwargs = tuple([literal(arg) for arg in instruction.args]), instruction.kwargs
    key = (alike, args, tuple([(name, literal(value)) for name, value in kwargs.items()])) if kwargs else (alike, args)
    try:
        return first.setdefault(key, instruction)
    except TypeError:  # it cannot be told what is the same
        return instruction
