"""Instructions that may raise because of values: they are checks, which DCE keeps even if nobody uses their results."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from tape_compile.program import Argument, Instruction, Program, Ref

if TYPE_CHECKING:
    from tape_core.engine.op import Op


def may_refuse(instruction: Instruction, program: Program) -> bool:
    """Return whether an instruction may raise in a later run, for other values than those of the trace.

    These are branches and loops with such an instruction in them, functions with a true attribute `refuses`, and ops
    declared with `refuses=` (see `tape_core.engine.op`), unless the values that they check are constants.
    """
    fn = instruction.fn
    parts = getattr(fn, "parts", None)
    if parts is not None:
        return any([part.refuses for part in parts])
    if getattr(fn, "refuses", False):
        return True
    from tape_core.extend import registry  # imported late: ops register themselves when tape_core is loaded

    op = registry.get(instruction.name.removesuffix("_with_residuals"))
    if op is None or not op.refuses or not instruction.inputs:
        return False
    # Elementwise ops refuse integers alone: a division by 0, a shift by a negative number.
    if op.elementwise and not all(["int" in str(program.specs[k].dtype) for k in instruction.inputs]):
        return False
    return any([_varies(value, program.constants) for value in _checked_arguments(op, instruction)])


def refuses(program: Program) -> bool:
    """Return whether a program may raise because of its inputs' values, or has another effect."""
    return any([i.effect or may_refuse(i, program) for i in program.instructions])


def _checked_arguments(op: Op, instruction: Instruction) -> list[Argument]:
    """Return the arguments whose values the op may refuse."""
    names = list(op.signature.parameters)
    args, kwargs = instruction.args, instruction.kwargs
    places = [(name, names.index(name)) for name in op.refuses]
    return [args[at] if at < len(args) else kwargs.get(name) for name, at in places]


def _varies(value: Argument, constants: Container[int]) -> bool:
    if type(value) is Ref:
        return value.id not in constants
    if type(value) is tuple or type(value) is list:
        return any([_varies(part, constants) for part in value])
    return False
