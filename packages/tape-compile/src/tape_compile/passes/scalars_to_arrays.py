"""Scalars: Python numbers beside arrays become arrays of shape () where the array library is faster with those."""

from __future__ import annotations

from functools import partial
from typing import Any

from tape_compile.passes.lower_kernels import Steps
from tape_compile.program import Instruction, Program, Ref

_NUMBERS = (int, float)
MANY = 2  # elements: a single one is a scalar of the array library, which takes numbers as they are


def scalars(program: Program) -> Program:
    """The program with arrays for numbers, each made once: literals are constants, what changes is made in each call.

    What changes only where it is used more than once. It comes after fusion: runs have a number as an operand at no
    cost.
    """
    compiler = None if program.backend is None else program.backend.compiler
    if compiler is None or program.largest < MANY:
        return program
    specs = program.specs
    changing: set[int] = set()
    if any([spec.kind in _NUMBERS for spec in program.distinct_specs]):
        changing = {k for k, spec in specs.items() if spec.kind in _NUMBERS}
    of_arrays = changing.isdisjoint
    makers: dict[int, Any] = {}
    for at, instruction in enumerate(program.instructions):
        given = instruction.inputs
        if len(given) == len(instruction.args) and of_arrays(given):  # nearly all
            continue
        if not instruction.effect and (maker := compiler.scalar(instruction, specs)) is not None:
            makers[at] = maker
    if not makers:
        return program
    steps = Steps(program)
    uses: dict[tuple[int, Any], int] = {}
    for at, (_, spec) in makers.items():
        for k in changing.intersection(program.instructions[at].inputs):
            uses[k, spec] = uses.get((k, spec), 0) + 1
    made: dict[tuple[int, Any], Ref] = {}
    kept: list[Instruction] = []
    for at, instruction in enumerate(program.instructions):
        if at in makers:
            make, spec = makers[at]
            steps.instruction, steps.made = instruction, []
            args = []
            for arg in instruction.args:
                if type(arg) is not Ref:
                    arg = steps.constant((repr(arg), spec), partial(_quietly, program, make, arg, spec.dtype))
                elif specs[arg.id].kind is float and uses[key := (arg.id, spec)] > 1:
                    if key not in made:
                        made[key] = steps.call("asarray", make, arg, spec.dtype, spec=spec)
                    arg = made[key]
                args.append(arg)
            kept += steps.made
            instruction = Instruction(
                instruction.name, instruction.fn, tuple(args), instruction.kwargs, instruction.out, instruction.place
            )
        kept.append(instruction)
    return Program(kept, program.inputs, steps.constants, program.outputs, steps.specs, program.backend)


def _quietly(program: Program, make: Any, number: float, dtype: Any) -> Any:
    """An array of a number that may be too large for its dtype."""
    with program.backend.quiet():  # type: ignore[union-attr]
        return make(number, dtype)
