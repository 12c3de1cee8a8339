"""Dead code elimination (DCE)."""

from __future__ import annotations

from tape_compile.passes.registry import pass_
from tape_compile.program import Program
from tape_compile.refusals import may_refuse


@pass_(stage="exact", after=["cse"])
def dce(program: Program) -> Program:
    """Leave out calls that no result depends on, but not those with effects, nor checks of values."""
    needed = set(program.outputs)
    kept = []
    need = needed.update
    # Backwards, so that all users of a result are known before the call that gives it.
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
    return program.replace(kept, constants=constants)
