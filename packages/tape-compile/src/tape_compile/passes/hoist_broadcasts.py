"""Broadcasting: what is broadcast to one shape again and again, as a bias in a loop, is laid out in it once."""

from __future__ import annotations

from functools import partial
from typing import Any

from tape_compile.passes.lower_kernels import Steps
from tape_compile.program import Instruction, Program, Ref, Spec

OFTEN = 4  # calls: laying it out takes as long as two of them
SMALL = 1 << 12  # elements: in larger arrays the rows are long, and broadcasting costs nothing
LARGE = 1 << 14  # elements: constants of this size would take memory for little; see `fusion`


def broadcasts(program: Program) -> Program:
    """The program in which elementwise calls on small arrays get such an operand in the shape of their result.

    So they do constant numbers, where the array library is faster then.

    Only where the other operands lie row by row, as the result then does with either: sums of it go along memory.
    """
    compiler = None if program.backend is None else program.backend.compiler
    if compiler is None or program.largest < OFTEN:
        return program
    in_rows = {id(fn): n for fn in program.functions if (n := compiler.axes_in_rows(fn)) is not None}
    if not in_rows:
        return program
    specs = program.specs
    rows: set[int] = set()  # values that lie row by row
    uses: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    full_of: dict[int, tuple[int, Any]] = {}  # by place a constant number, and what lays it out
    of_no_rows = rows.isdisjoint
    for at, instruction in enumerate(program.instructions):
        out = instruction.out
        if type(out) is not int or instruction.effect:
            continue
        if id(instruction.fn) in in_rows and len(specs[out].shape) <= in_rows[id(instruction.fn)]:
            rows.add(out)
        elif not of_no_rows(instruction.inputs) and compiler.into(instruction) is not None:
            whole = specs[out]
            given = instruction.inputs
            others = [k for k in given if specs[k].shape == whole.shape]
            if others and rows.issuperset(others):
                rows.add(out)
                for k in given:
                    if _is_repeated(specs[k], whole):
                        uses.setdefault((k, whole.shape), []).append(at)
                    elif specs[k].shape == () and k in program.constants and whole.size < LARGE:
                        full = compiler.full(instruction)
                        if full is not None:
                            full_of[at] = k, full
    often = {key: places for key, places in uses.items() if len(places) >= OFTEN}
    if not often and not full_of:
        return program
    steps = Steps(program)
    constants: dict[int, dict[int, int]] = {}
    for at, (k, full) in full_of.items():
        shape = specs[program.instructions[at].out].shape
        constants[at] = {k: steps.constant((k, shape), partial(full, shape, program.constants[k])).id}
    first: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    replaced: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for key, places in often.items():
        first.setdefault(places[0], []).append(key)
        for at in places:
            replaced.setdefault(at, []).append(key)
    laid_out: dict[tuple[int, tuple[int, ...]], int] = {}
    kept: list[Instruction] = []
    broadcast_to = program.backend.xp.broadcast_to  # type: ignore[union-attr]
    for at, instruction in enumerate(program.instructions):
        if at in first:
            steps.instruction, steps.made = instruction, []
            for k, shape in first[at]:
                spec = Spec(specs[k].kind, shape, specs[k].dtype)
                laid_out[k, shape] = steps.call("broadcast_to", broadcast_to, Ref(k), shape, spec=spec).id
            kept += steps.made
        rows_laid_out = {key[0]: laid_out[key] for key in replaced.get(at, ())}
        kept.append(instruction.with_args({**rows_laid_out, **constants.get(at, {})}))
    return Program(kept, program.inputs, steps.constants, program.outputs, steps.specs, program.backend)


def _is_repeated(spec: Spec, whole: Spec) -> bool:
    """Whether an array is rows of a small one."""
    n = len(spec.shape)
    return 0 < n < len(whole.shape) and spec.shape == whole.shape[-n:] and 0 < whole.size <= SMALL
