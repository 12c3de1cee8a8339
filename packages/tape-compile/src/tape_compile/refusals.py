"""Which calls may raise because of the values they are given: these are checks, whatever becomes of their results."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from tape_compile.program import Instruction, Program, Ref


def may_refuse(instruction: Instruction, program: Program) -> bool:
    """Whether a call may raise in a later run, for other values than those of the trace.

    It is so for branches and loops with such a call in them, for functions that say so by an attribute `refuses`, and
    for ops that are declared so (`tape_core.engine.op.refuses`), unless what they refuse is the same in each call.
    """
    fn = instruction.fn
    parts = getattr(fn, "parts", None)
    if parts is not None:
        return any([part.refuses for part in parts])
    if getattr(fn, "refuses", False):
        return True
    from tape_core.extend import registry  # ops are there when something runs

    op = registry.get(instruction.name.removesuffix("_keeping"))
    if op is None or not op.refuses or not instruction.inputs:
        return False
    if op.elementwise and not all(["int" in str(program.specs[k].dtype) for k in instruction.inputs]):
        return False
    return any([_varies(value, program.constants) for value in _given(op, instruction)])


def refuses(program: Program) -> bool:
    """Whether a program may raise because of the values that it is given."""
    return any([i.effect or may_refuse(i, program) for i in program.instructions])


def _given(op: Any, instruction: Instruction) -> list[Any]:
    """What is given for the arguments whose values the op may refuse."""
    names = list(op.signature.parameters)
    args, kwargs = instruction.args, instruction.kwargs
    places = [(name, names.index(name)) for name in op.refuses]
    return [args[at] if at < len(args) else kwargs.get(name) for name, at in places]


def _varies(value: Any, constants: Container[int]) -> bool:
    kind = type(value)
    if kind is Ref:
        return value.id not in constants
    if kind is tuple or kind is list:
        return any([_varies(part, constants) for part in value])
    return False
