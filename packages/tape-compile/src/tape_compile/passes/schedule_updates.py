"""The schedule of updates: a Variable's new value is computed as soon as its gradient is there, which is then freed."""

from __future__ import annotations

from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Program, Spec

_NUMBERS = (int, float)


@pass_(stage="exact", after=["hoist_broadcasts"])
def schedule_updates(program: Program) -> Program:
    """Move up the calls that lead to new values of Variables, and to nothing else.

    A call that reads an old value stays before the one that may overwrite it. Nothing is moved past a call with an
    effect, for that may raise, as checks of values do: then nothing that comes later has happened.
    """
    moved = _leading_to_new_values(program) if program.owned else set()
    if not moved:
        return program
    last = {k: at for at, instruction in enumerate(program.instructions) for k in instruction.inputs}
    # Where a moved call can stand is told by the places of calls that stay: it follows the latest of
    made = dict.fromkeys([*program.inputs, *program.constants], -1)  # - the call that makes an input of it;
    last_read: dict[int, int] = {}  # - the last call that reads an old value, or a view of it, which it may overwrite;
    effect = -1  # - the last call with an effect before it.
    view_of = {k: k for k in program.owned}  # by what may be a view of an old value, that value
    order: list[tuple[int, bool, int]] = []
    for at, instruction in enumerate(program.instructions):
        place = at
        if at in moved:
            place = max([effect, *[made[k] for k in instruction.inputs]])
            for k in instruction.inputs:
                if k in program.owned and last[k] == at:
                    place = max(place, last_read.get(k, -1))
        for k in instruction.inputs:
            if k in view_of:
                last_read[view_of[k]] = max(last_read.get(view_of[k], -1), place)
        # Any call of one value may give a view of it: who reads that reads the old value.
        if len(instruction.inputs) == 1 and instruction.inputs[0] in view_of:
            view_of.update(dict.fromkeys(instruction.outputs, view_of[instruction.inputs[0]]))
        if instruction.effect:
            effect = at
        made.update(dict.fromkeys(instruction.outputs, place))
        # True sorts after False: a moved call stands behind the one whose place it has, and moved ones keep their
        # order.
        order.append((place, at in moved, at))
    return program.replace([program.instructions[at] for _, _, at in sorted(order)])


def _leading_to_new_values(program: Program) -> set[int]:
    """Return the places of calls on which only new values of Variables, or Python numbers, depend."""
    specs, results = program.specs, set(program.outputs)
    like = {specs[k] for k in program.owned}
    moved: set[int] = set()
    others: set[int] = set()  # values that are needed for something else
    for at in range(len(program.instructions) - 1, -1, -1):
        instruction = program.instructions[at]
        out = instruction.out
        if like and type(out) is int and out not in others and _may_move(instruction, specs[out], like, out in results):
            moved.add(at)
        else:
            others.update(instruction.inputs)
    return moved


def _may_move(instruction: Instruction, spec: Spec, like: set[Spec], is_result: bool) -> bool:
    # Of a Variable's shape, or no larger than a number: what is in between must not take more memory for longer.
    return not instruction.effect and (spec in like or spec.kind in _NUMBERS or (spec.shape == () and not is_result))
