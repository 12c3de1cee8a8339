"""Constant folding: calls of constants alone are evaluated once."""

from __future__ import annotations

from contextlib import nullcontext

from tape_compile.passes.registry import pass_
from tape_compile.program import Program, results


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
                    args, kwargs = instruction.arguments(found)
                    found.update(results(instruction.out, instruction.fn(*args, **kwargs)))
    return program if len(kept) == len(program.instructions) else program.replace(kept, constants=found)
