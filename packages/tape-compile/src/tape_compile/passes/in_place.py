"""The pass `in_place`: an elementwise call writes its result into an operand that nothing needs afterwards.

The operand is a result of the program's own, or an argument that is donated; whether a caller or a view refers to that,
too, is looked up in each run. The old value of a Variable is never overwritten: until the run is over, and nothing can
raise any more, other threads and signal handlers see it. Rows that are added to one go to the memory of the value
before it.
"""

from __future__ import annotations

from functools import partial

from tape_core.support import rows_added

from tape_compile import thresholds
from tape_compile.library import FusedFunction, support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import NEVER_OVERWRITTEN, IfExclusive, Instruction, Program, Ref


@pass_(stage="memory", after=["scalars_to_arrays"])
def in_place(program: Program) -> Program:
    """Add `out=` where an operand dies, has the result's shape and dtype, and shares its memory with no other value.

    A fused function may write its results over the inputs that die with it.
    """
    backend, support = program.backend, support_of(program)
    if backend is None or support is None or program.largest < thresholds.IN_PLACE_MIN_ELEMENTS:
        return program
    specs = program.specs
    last: dict[int, int] = {}
    # Values to whose memory somebody else refers: callers, later runs, and views, of which nothing is known here.
    shared = {*program.inputs, *program.constants, *program.outputs}
    news: set[int] = set()  # the places of calls whose one result has memory of its own
    for at, instruction in enumerate(program.instructions):
        for k in instruction.inputs:
            last[k] = at
        if type(instruction.out) is int and support.gives_new(instruction, specs):
            news.add(at)
        elif not hasattr(instruction.fn, "over"):
            shared.update(instruction.inputs)  # the result may be a view
    # `out=` must not change how a result lies, for sums go along memory: so row by row goes over row by row only.
    own: set[int] = set()  # values in memory of their own, row by row
    fused: set[int] = set()  # results of fused functions, which lie row by row unless their inputs do not
    kept: list[Instruction] = []
    replaced = {k for k, references in program.owned.items() if references == NEVER_OVERWRITTEN}
    free = {k: n for k, n in program.owned.items() if k not in program.outputs and k not in replaced}
    for at, instruction in enumerate(program.instructions):
        out = instruction.out
        dead = [k for k in dict.fromkeys(instruction.inputs) if k in free and last[k] == at]
        if at in news:
            spec = specs[out]
            # An elementwise result lies as its operands of the same shape do; others lie by rows if the library says
            # so.
            alike = [k for k in instruction.inputs if k in own and specs[k] == spec]
            if alike or support.is_in_rows(instruction, specs):
                own.add(out)
            targets: list[IfExclusive | Ref] = [IfExclusive(k, free[k]) for k in dead if specs[k] == spec]
            targets += [Ref(k) for k in alike if last[k] == at and k not in shared]
            into = support.into(instruction) if targets and spec.size >= thresholds.IN_PLACE_MIN_ELEMENTS else None
            if into is not None:
                own.add(out)
                fn, arguments = into
                instruction = Instruction(
                    instruction.name, fn, tuple(arguments), {"out": targets[0]}, out, instruction.place
                )
        elif instruction.kwargs.get("in_place") is False and type(first := instruction.args[0]) is Ref:
            # Rows are added to a table: all others stay, so the table's memory is the result's.
            if first.id in replaced and out in program.outputs and specs[first.id] == specs[out]:
                args = (first, *instruction.args[1:])
                instruction = Instruction(
                    instruction.name, partial(rows_added, backend), args, {}, out, instruction.place
                )
            elif (
                first.id in dead
                and specs[first.id] == specs[out]
                and specs[first.id].size >= thresholds.IN_PLACE_MIN_ELEMENTS
            ):
                kwargs = {**instruction.kwargs, "in_place": IfExclusive(first.id, free[first.id])}
                instruction = Instruction(
                    instruction.name, instruction.fn, instruction.args, kwargs, out, instruction.place
                )
        elif hasattr(instruction.fn, "over"):
            run: FusedFunction = instruction.fn  # type: ignore[assignment]
            spare = [k for k in sorted({*instruction.inputs} & (own | fused)) if last[k] == at and k not in shared]
            fused.update(run.own)
            if dead or spare:
                run = run.over(dead, spare)
                given = {n: IfExclusive(k, free[k]) if k in free else Ref(k) for n, k in run.targets.items()}
                kwargs = {"out": tuple([given.get(n) for n in out])}
                instruction = Instruction(instruction.name, run, instruction.args, kwargs, out, instruction.place)
        kept.append(instruction)
    return program.replace(kept)
