"""Dead code: calls whose results nothing needs are left out."""

from __future__ import annotations

from tape_compile.program import Program
from tape_compile.refusals import may_refuse


def dead_code(program: Program) -> Program:
    """The program without instructions that no result depends on.

    Those with effects stay, and those that may refuse the values they are given.
    """
    needed = set(program.outputs)
    kept = []
    need = needed.update
    for instruction in reversed(program.instructions):
        out = instruction.out
        if (
            out in needed
            or instruction.effect
            or (type(out) is tuple and not needed.isdisjoint(instruction.outputs))
            or may_refuse(instruction, program)
        ):
            need(instruction.inputs)
            kept.append(instruction)
    kept.reverse()
    constants = {k: value for k, value in program.constants.items() if k in needed}
    return program.replaced(kept, constants=constants)
