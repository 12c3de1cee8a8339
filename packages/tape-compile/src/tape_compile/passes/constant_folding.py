"""Constant folding: calls of constants alone are evaluated once."""

from __future__ import annotations

from contextlib import nullcontext

from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Out, Program, Raw, resolve


@pass_(stage="exact")
def constant_folding(program: Program) -> Program:
    """Evaluate calls that depend on nothing but constants, and make their results constants."""
    found = dict(program.constants)
    kept = []
    # Of what is infinite or NaN the run that was traced has warned.
    with nullcontext() if program.backend is None else program.backend.quiet():
        for instruction in program.instructions:
            for k in instruction.inputs:  # a loop of Python's is faster than `issuperset`: nearly all end at the first
                if k not in found:
                    kept.append(instruction)
                    break
            else:
                if instruction.effect:
                    kept.append(instruction)
                else:
                    _store(instruction.out, _evaluate(instruction, found), found)
    return program if len(kept) == len(program.instructions) else program.replace(kept, constants=found)


def _evaluate(instruction: Instruction, known: dict[int, Raw]) -> Raw:
    args = resolve(instruction.args, known)
    return instruction.fn(*args, **{name: resolve(arg, known) for name, arg in instruction.kwargs.items()})


def _store(out: Out, value: Raw, known: dict[int, Raw]) -> None:
    """Enter results under their numbers."""
    if isinstance(out, int):
        known[out] = value
    elif out is not None:
        for number, part in zip(out, value, strict=True):
            _store(number, part, known)
