"""Common subexpressions: what was computed is not computed again."""

from __future__ import annotations

from typing import Any

from tape_core.compiled.program import Instruction, Program, Ref


def same_calls(program: Program) -> Program:
    """The program in which a call that is the same as an earlier one gives the earlier one's results."""
    replaced: dict[int, int] = {}
    first: dict[Any, Instruction] = {}
    kept = []
    for given in program.instructions:
        instruction = given.with_args(replaced) if replaced else given
        if not instruction.effect:
            try:
                known = first.setdefault(_key(instruction), instruction)
            except TypeError:  # it cannot be told what is the same
                known = instruction
            if known is not instruction:
                replaced.update(zip(instruction.outputs, known.outputs, strict=True))
                continue
        kept.append(instruction)
    return program.replaced(kept, [replaced.get(k, k) for k in program.outputs])


def _key(instruction: Instruction) -> Any:
    """What two calls have in common that give the same."""
    args = tuple([arg.id if type(arg) is Ref else _part(arg) for arg in instruction.args])
    if not instruction.kwargs:
        return instruction.fn, args
    return instruction.fn, args, tuple([(name, _part(value)) for name, value in instruction.kwargs.items()])


def _part(value: Any) -> Any:
    """A number for a value; all else in a tuple."""
    kind = type(value)
    if kind is Ref:
        return value.id
    if kind is tuple or kind is list:
        return kind, tuple([_part(part) for part in value])
    if kind is slice:
        return kind, _part(value.start), _part(value.stop), _part(value.step)
    if kind is float or kind is complex:
        return kind, repr(value)  # 0.0 is not -0.0
    return kind, value
