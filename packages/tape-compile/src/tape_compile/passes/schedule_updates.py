"""Early updates: a Variable's new value is computed as soon as its gradient is there, which need not be kept then."""

from __future__ import annotations

from tape_compile.program import Instruction, Program, Spec

_NUMBERS = (int, float)


def early(program: Program) -> Program:
    """The program with the calls that lead to new values of Variables, and to nothing else, moved up.

    What reads an old value stays before the call that may overwrite it. Nothing is moved past calls with effects, for
    these may raise, as checks of values do: then nothing that comes later has happened.
    """
    moved = _leading_to_new_values(program) if program.owned else set()
    if not moved:
        return program
    last = {k: at for at, instruction in enumerate(program.instructions) for k in instruction.inputs}
    made = dict.fromkeys([*program.inputs, *program.constants], -1)  # by value the place after which it is there
    read: dict[int, int] = {}  # by old value that after which nobody reads it any more
    views = {k: k for k in program.owned}  # old values by what may be a view of them
    order: list[tuple[int, bool, int]] = []
    effect = -1
    for at, instruction in enumerate(program.instructions):
        place = at
        if at in moved:
            place = max([effect, *[made[k] for k in instruction.inputs]])
            for k in instruction.inputs:
                if k in program.owned and last[k] == at:
                    place = max(place, read.get(k, -1))
        for k in instruction.inputs:
            if k in views:
                read[views[k]] = max(read.get(views[k], -1), place)
        if len(instruction.inputs) == 1 and instruction.inputs[0] in views:
            views.update(dict.fromkeys(instruction.outputs, views[instruction.inputs[0]]))
        if instruction.effect:
            effect = at
        made.update(dict.fromkeys(instruction.outputs, place))
        order.append((place, at in moved, at))
    return program.replaced([program.instructions[at] for _, _, at in sorted(order)])


def _leading_to_new_values(program: Program) -> set[int]:
    """The places of calls that only new values of Variables, or Python numbers, depend on."""
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
    return not instruction.effect and (spec in like or spec.kind in _NUMBERS or (spec.shape == () and not is_result))
