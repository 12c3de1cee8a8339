"""Scalars to arrays: Python numbers beside arrays become arrays of shape () where the library is faster with those."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tape_compile import thresholds
from tape_compile.library import support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Program, Raw, Ref, Spec
from tape_compile.rewrite import Builder

_NUMBERS = (int, float)


# A fused block has a number as an operand at no cost.
@pass_(stage="layout", after=["fusion"])
def scalars_to_arrays(program: Program) -> Program:
    """Give calls arrays in the place of numbers, each made once: of a literal a constant, of a value in each run.

    Of a value only where it is used more than once.
    """
    support = support_of(program)
    if support is None or program.largest < thresholds.SCALAR_ARRAYS_MIN_ELEMENTS:
        return program
    specs = program.specs
    changing: set[int] = set()  # values that are Python numbers
    if any([spec.kind in _NUMBERS for spec in program.distinct_specs]):
        changing = {k for k, spec in specs.items() if spec.kind in _NUMBERS}
    are_arrays = changing.isdisjoint
    makers: dict[int, tuple[Callable[..., Raw], Spec]] = {}  # by the place of a call
    for at, instruction in enumerate(program.instructions):
        given = instruction.inputs
        if len(given) == len(instruction.args) and are_arrays(given):  # nearly all
            continue
        if not instruction.effect and (maker := support.scalar(instruction, specs)) is not None:
            makers[at] = maker
    if not makers:
        return program
    builder = Builder(program)
    uses: dict[tuple[int, Spec], int] = {}
    for at, (_, spec) in makers.items():
        for k in changing.intersection(program.instructions[at].inputs):
            uses[k, spec] = uses.get((k, spec), 0) + 1
    made: dict[tuple[int, Spec], Ref] = {}
    kept: list[Instruction] = []
    for at, instruction in enumerate(program.instructions):
        if at in makers:
            make, spec = makers[at]
            builder.begin(instruction)
            args = []
            for arg in instruction.args:
                if type(arg) is not Ref:
                    # By its text: 0.0 and -0.0 are equal, and must not be one constant.
                    arg = builder.constant((repr(arg), spec), partial(_make_quietly, program, make, arg, spec))
                elif specs[arg.id].kind is float and uses[key := (arg.id, spec)] > 1:
                    if key not in made:
                        made[key] = builder.call("asarray", make, arg, spec.dtype, spec=spec)
                    arg = made[key]
                args.append(arg)
            kept += builder.emitted
            instruction = Instruction(
                instruction.name, instruction.fn, tuple(args), instruction.kwargs, instruction.out, instruction.place
            )
        kept.append(instruction)
    return builder.finish(kept)


def _make_quietly(program: Program, make: Callable[..., Raw], number: float, spec: Spec) -> Raw:
    """Return an array of a number, without a warning if the number is too large for its dtype."""
    with program.backend.quiet():  # type: ignore[union-attr]
        return make(number, spec.dtype)
