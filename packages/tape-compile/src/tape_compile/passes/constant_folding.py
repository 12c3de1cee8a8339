"""Constants: what depends on nothing but them is computed once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tape_compile.program import Instruction, Program, filled


def constants(program: Program) -> Program:
    """The program with the values of what is the same in each call, as further constants."""
    found = dict(program.constants)
    kept = []
    # What is infinite or NaN was warned of while tracing.
    with nullcontext() if program.backend is None else program.backend.quiet():
        for instruction in program.instructions:
            for k in instruction.inputs:
                if k not in found:
                    kept.append(instruction)
                    break
            else:
                if instruction.effect:
                    kept.append(instruction)
                else:
                    _store(instruction.out, _value(instruction, found), found)
    return program if len(kept) == len(program.instructions) else program.replaced(kept, constants=found)


def _value(instruction: Instruction, known: dict[int, Any]) -> Any:
    args = filled(instruction.args, known)
    return instruction.fn(*args, **{name: filled(arg, known) for name, arg in instruction.kwargs.items()})


def _store(out: Any, value: Any, known: dict[int, Any]) -> None:
    """Note what an instruction gives, by the numbers that its results have."""
    if type(out) is int:
        known[out] = value
    elif out is not None:
        for number, part in zip(out, value, strict=True):
            _store(number, part, known)
