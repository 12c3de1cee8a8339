"""Common subexpression elimination (CSE)."""

from __future__ import annotations

from collections.abc import Hashable

from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Program, literal_key


# Kernels that were lowered share calls that they did not share as wholes.
@pass_(stage="exact", after=["lower_kernels"])
def cse(program: Program) -> Program:
    """Let a call that is equal to an earlier one have the earlier one's results, and drop checks that were made."""
    replaced: dict[int, int] = {}
    refers_to_none = replaced.keys().isdisjoint
    # The full key of a call is dear, so it is made only for calls of one function on the same values, of which there is
    # nearly always a single one: by function and inputs that call, and None where there are several.
    single: dict[Hashable, Instruction | None] = {}
    first: dict[Hashable, Instruction] = {}
    checked: set[Hashable] = set()
    kept = []
    for instruction in program.instructions:
        if replaced and not refers_to_none(instruction.inputs):
            instruction = instruction.substitute(replaced)
        if not instruction.effect:
            try:
                call = instruction.fn, *instruction.inputs
                other = single.setdefault(call, instruction)
            except TypeError:  # a function that has no hash: it is equal to none
                other = instruction
            if other is not instruction:
                if other is not None:
                    _first_equal(other, call, first)
                    single[call] = None
                known = _first_equal(instruction, call, first)
                if known is not instruction:
                    replaced.update(zip(instruction.outputs, known.outputs, strict=True))
                    continue
        elif (check := getattr(instruction.fn, "check", None)) is not None:
            # It has raised, if it does, where it stood first.
            known_check = check, *instruction.inputs, *map(literal_key, instruction.args)
            if known_check in checked:
                continue
            checked.add(known_check)
        kept.append(instruction)
    return program.replace(kept, [replaced.get(k, k) for k in program.outputs])


def _first_equal(instruction: Instruction, call: Hashable, first: dict[Hashable, Instruction]) -> Instruction:
    """Return the first call that equals this one, which may be this one."""
    args, kwargs = tuple([literal_key(arg) for arg in instruction.args]), instruction.kwargs
    key: Hashable = (call, args)
    if kwargs:
        key = (call, args, tuple([(name, literal_key(value)) for name, value in kwargs.items()]))
    try:
        return first.setdefault(key, instruction)
    except TypeError:  # an argument that has no hash
        return instruction
