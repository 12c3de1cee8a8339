"""Hoisting of broadcasts: a small array that is broadcast to one shape again and again is laid out in that shape once.

It is the bias that is added in each step of a loop, say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tape_compile import thresholds
from tape_compile.library import support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Program, Raw, Ref, Spec
from tape_compile.rewrite import Builder

Shape = tuple[int, ...]
Broadcast = tuple[int, Shape]
"""A value, and the shape to which it is broadcast."""


@pass_(stage="layout", after=["merge_scatters"])
def hoist_broadcasts(program: Program) -> Program:
    """Give elementwise calls on small arrays such an operand in the shape of their result; constant numbers, too.

    Only where the other operands lie row by row, as the result does with either then: sums of it go along memory, and
    their order, and so their bits, depend on that.
    """
    support = support_of(program)
    if support is None or program.largest < thresholds.HOIST_MIN_CALLS:
        return program
    in_rows = {id(fn): n for fn in program.functions if (n := support.axes_in_rows(fn)) is not None}
    if not in_rows:
        return program
    specs = program.specs
    rows: set[int] = set()  # values that lie row by row
    uses: dict[Broadcast, list[int]] = {}  # by the places of calls
    full_of: dict[int, tuple[int, Callable[[Shape, Raw], Raw]]] = {}  # by place a constant, and what lays it out
    are_no_rows = rows.isdisjoint
    for at, instruction in enumerate(program.instructions):
        out = instruction.out
        if type(out) is not int or instruction.effect:
            continue
        if id(instruction.fn) in in_rows and len(specs[out].shape) <= in_rows[id(instruction.fn)]:
            rows.add(out)
        elif not are_no_rows(instruction.inputs) and support.into(instruction) is not None:
            whole = specs[out]
            given = instruction.inputs
            others = [k for k in given if specs[k].shape == whole.shape]
            if others and rows.issuperset(others):
                rows.add(out)
                for k in given:
                    if _is_repeated(specs[k], whole):
                        uses.setdefault((k, whole.shape), []).append(at)
                    elif (
                        specs[k].shape == ()
                        and k in program.constants
                        and whole.size < thresholds.HOIST_MAX_CONSTANT_ELEMENTS
                    ):
                        full = support.full(instruction)
                        if full is not None:
                            full_of[at] = k, full
    often = {key: places for key, places in uses.items() if len(places) >= thresholds.HOIST_MIN_CALLS}
    if not often and not full_of:
        return program
    builder = Builder(program)
    constants: dict[int, dict[int, int]] = {}
    for at, (k, full) in full_of.items():
        shape = specs[program.instructions[at].out].shape
        constants[at] = {k: builder.constant((k, shape), partial(full, shape, program.constants[k])).id}
    first: dict[int, list[Broadcast]] = {}
    replaced: dict[int, list[Broadcast]] = {}
    for key, places in often.items():
        # It is laid out at its first use: no earlier than the value is there, and no longer alive than it must be.
        first.setdefault(places[0], []).append(key)
        for at in places:
            replaced.setdefault(at, []).append(key)
    laid_out: dict[Broadcast, int] = {}
    kept: list[Instruction] = []
    broadcast_to = program.backend.xp.broadcast_to  # type: ignore[union-attr]
    for at, instruction in enumerate(program.instructions):
        if at in first:
            builder.begin(instruction)
            for k, shape in first[at]:
                spec = Spec(specs[k].kind, shape, specs[k].dtype)
                laid_out[k, shape] = builder.call("broadcast_to", broadcast_to, Ref(k), shape, spec=spec).id
            kept += builder.emitted
        rows_laid_out = {key[0]: laid_out[key] for key in replaced.get(at, ())}
        kept.append(instruction.substitute({**rows_laid_out, **constants.get(at, {})}))
    return builder.finish(kept)


def _is_repeated(spec: Spec, whole: Spec) -> bool:
    """Return whether a value is broadcast by repeating it whole along new first axes, in a small array."""
    n = len(spec.shape)
    is_small = 0 < whole.size <= thresholds.HOIST_MAX_ELEMENTS
    return 0 < n < len(whole.shape) and spec.shape == whole.shape[-n:] and is_small
