"""A program of a function and of its derivatives, taken apart: what runs in the call, and what runs backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tape_compile import passes
from tape_compile.program import Instruction, Program
from tape_compile.refusals import may_refuse


class Backward(NamedTuple):
    """A derivative inside a program: what comes to it as inputs, and what it gives."""

    given: list[int]
    outputs: list[int]


def partition(
    program: Program, results: int, backward: Sequence[tuple[int, int]], options: dict[str, bool]
) -> tuple[tuple[Program, dict[str, int]], list[tuple[Program, list[int]]]]:
    """The program of the results, and one for each derivative.

    Args:
        program: its last inputs are the cotangents of the derivatives, in their order; its outputs begin with the
            results, and what the derivatives give follows.
        results: how many outputs are results.
        backward: of each derivative how many cotangents it has, and how many outputs.
        options: passes that are left out.

    Returns:
        The first program, whose outputs are the results and then what is kept, and what each pass left of it; and for
        each derivative a program and the places of those of the kept values that are its first inputs: its cotangents
        follow.
    """
    n = len(program.inputs) - sum(given for given, _ in backward)
    # What the derivative has in common with the function is seen while they are one.
    program, _ = passes.run(program, options, passes.NOT_BEFORE_SPLIT)
    derivatives, at, end = [], n, results
    for given, outputs in backward:
        derivatives.append(Backward(program.inputs[at : at + given], program.outputs[end : end + outputs]))
        at, end = at + given, end + outputs
    cotangents = {k for one in derivatives for k in one.given}
    early, late = _split(program, results, cotangents)
    bodies = [_needed(program, late, one) for one in derivatives]
    kept = sorted({k for _, first in bodies for k in first})
    ends = [*program.outputs[:results], *kept]
    forward = Program(early, program.inputs[:n], program.constants, ends, program.specs, program.backend)
    places = {k: at for at, k in enumerate(kept)}
    programs = []
    for (body, first), one in zip(bodies, derivatives, strict=True):
        inputs = [*first, *one.given]
        whole = Program(body, inputs, program.constants, one.outputs, program.specs, program.backend)
        programs.append((passes.run(whole, options)[0], [places[k] for k in first]))
    return passes.run(forward, options), programs


def _split(program: Program, results: int, cotangents: set[int]) -> tuple[list[Instruction], list[Instruction]]:
    """The instructions that do not depend on cotangents, and those that do or are of use to them alone.

    Of the latter only those are put off that need nothing that would have to be kept for them, and that refuse no
    values: a check belongs to the call.
    """
    depending = set(cotangents)
    early, late = [], []
    for instruction in program.instructions:
        if depending.isdisjoint(instruction.inputs):
            early.append(instruction)
        else:
            late.append(instruction)
            depending.update(instruction.outputs)
    crossing = {*program.outputs[results:], *[k for instruction in late for k in instruction.inputs]} - depending
    there = {*program.inputs, *program.constants}
    needed = set(program.outputs[:results])
    kept, put_off = [], []
    for instruction in reversed(early):
        outs = instruction.outputs
        unneeded = not instruction.effect and needed.isdisjoint(outs)
        if unneeded and (there | crossing).issuperset(instruction.inputs) and not may_refuse(instruction, program):
            put_off.append(instruction)
            crossing.update(instruction.inputs)
        else:
            kept.append(instruction)
            needed.update(instruction.inputs)
    return kept[::-1], [*put_off[::-1], *late]


def _needed(program: Program, late: list[Instruction], one: Backward) -> tuple[list[Instruction], list[int]]:
    """The instructions for one derivative, and the values that it takes from the function."""
    needed = set(one.outputs)
    body = []
    for instruction in reversed(late):
        if not needed.isdisjoint(instruction.outputs):
            needed.update(instruction.inputs)
            body.append(instruction)
    made = {k for instruction in body for k in instruction.outputs}
    return body[::-1], sorted(needed - made - set(one.given) - program.constants.keys())
