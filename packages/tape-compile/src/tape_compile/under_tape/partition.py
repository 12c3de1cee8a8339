"""The split of a program of a function and its derivatives: into one for the call, and one for each derivative.

A value of the call that a derivative needs is a residual: an output of the first program, and an input of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tape_compile import passes
from tape_compile.program import Instruction, Program
from tape_compile.refusals import may_refuse


class Backward(NamedTuple):
    """A derivative inside a program."""

    cotangents: list[int]
    outputs: list[int]


def partition(
    program: Program,
    results: int,
    backward: Sequence[tuple[int, int]],
    options: dict[str, bool],
    without: frozenset[passes.Stage] = frozenset(),
    prepare: Callable[[Program], Program] | None = None,
) -> tuple[tuple[Program, dict[str, int]], list[tuple[Program, list[int]]]]:
    """Split a joint program: return the program of the results, and one for each derivative.

    Args:
        program: its last inputs are the cotangents of the derivatives, in their order; its outputs begin with the
            results, and what the derivatives give follows.
        results: how many outputs are results.
        backward: of each derivative how many cotangents it has, and how many outputs.
        options: passes that are left out, or asked for.
        without: stages that are left to a compiler.
        prepare: what a compiler changes in the joint program: `Compiler.joined`.

    Returns:
        The program of the call, whose outputs are the results and then the residuals, and how many instructions each
        pass left of it; and for each derivative a program, and the places among the residuals of its first inputs,
        which its cotangents follow.
    """
    n = len(program.inputs) - sum(given for given, _ in backward)
    # CSE finds what the derivatives have in common with the function while they are one.
    program, _ = passes.run(program, options, passes.NOT_BEFORE_SPLIT | without)
    if prepare is not None:
        program = prepare(program)
    derivatives, at, end = [], n, results
    for given, outputs in backward:
        derivatives.append(Backward(program.inputs[at : at + given], program.outputs[end : end + outputs]))
        at, end = at + given, end + outputs
    cotangents = {k for one in derivatives for k in one.cotangents}
    early, late = _split(program, results, cotangents)
    bodies = [_needed(program, late, one) for one in derivatives]
    # Sorted, as sets have no order: the generated source is the same in each process.
    residuals = sorted({k for _, first in bodies for k in first})
    ends = [*program.outputs[:results], *residuals]
    forward = Program(early, program.inputs[:n], program.constants, ends, program.specs, program.backend)
    places = {k: at for at, k in enumerate(residuals)}
    programs = []
    for (body, first), one in zip(bodies, derivatives, strict=True):
        inputs = [*first, *one.cotangents]
        whole = Program(body, inputs, program.constants, one.outputs, program.specs, program.backend)
        # Only now the stages of `NOT_BEFORE_SPLIT`: each half is fused, and reuses memory, by itself.
        programs.append((passes.run(whole, options, without)[0], [places[k] for k in first]))
    return passes.run(forward, options, without), programs


def _split(program: Program, results: int, cotangents: set[int]) -> tuple[list[Instruction], list[Instruction]]:
    """Return the instructions of the call, and those of the derivatives.

    An instruction that depends on no cotangent, and that only derivatives need, is computed in these if that takes no
    further residual. A check of values stays in the call.
    """
    # First everything that can run in the call does. Then what only derivatives need moves over to them, where that
    # makes no residual more. Nothing is computed twice, unlike with the min-cut of PyTorch's AOTAutograd.
    depending = set(cotangents)
    early, late = [], []
    for instruction in program.instructions:
        if depending.isdisjoint(instruction.inputs):
            early.append(instruction)
        else:
            late.append(instruction)
            depending.update(instruction.outputs)
    crossing = {*program.outputs[results:], *[k for instruction in late for k in instruction.inputs]} - depending
    # Inputs and constants live on anyway, as the tape's record refers to them: as residuals they take no memory.
    there = {*program.inputs, *program.constants}
    needed = set(program.outputs[:results])
    kept, put_off = [], []
    # Backwards, since whether a call can be put off depends on whether all users of its results are.
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
    """Return the instructions of one derivative, and its residuals."""
    # A call that several derivatives need is in each of them: they are for different patterns, and a sweep runs one.
    needed = set(one.outputs)
    body = []
    for instruction in reversed(late):
        if not needed.isdisjoint(instruction.outputs):
            needed.update(instruction.inputs)
            body.append(instruction)
    made = {k for instruction in body for k in instruction.outputs}
    return body[::-1], sorted(needed - made - set(one.cotangents) - program.constants.keys())
