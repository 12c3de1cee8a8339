"""Where float64 begins in a trace: the calls of its programs, as `tape_core.debugging.Float64Origins` takes them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from tape_core.debugging import Float64Origins, Place

from tape_compile.passes.dce import dce
from tape_compile.program import Program

_Value = tuple[Hashable, str]
_Call = tuple[str, list[_Value], list[_Value], Place | None]


def float64_origins(program: Program) -> Float64Origins:
    """Return the ops of a trace that make float64 of narrower floats."""
    return Float64Origins.of(_calls(program, ()))


def _calls(program: Program, path: tuple[object, ...]) -> Iterator[_Call]:
    """The calls that a result depends on; `path` tells the values of a branch or loop from those around it."""

    def typed(numbers: Iterable[int], program: Program = program, path: tuple[object, ...] = path) -> list[_Value]:
        return [((path, k), program.specs[k].dtype_name) for k in numbers if k in program.specs]

    for at, instruction in enumerate(dce(program).instructions):
        place = None if instruction.place is None else Place(*instruction.place)
        operands, results = typed(instruction.inputs), typed(instruction.outputs)
        # What goes into a branch or a loop and what comes out of it is not computed there: with the same dtypes on
        # both sides these calls are no origins, and tell what depends on one.
        inside: list[_Value] = []
        for k, part in enumerate(flow.traced for flow in getattr(instruction.fn, "parts", ())):
            below = (*path, at, k)
            for value in typed(part.inputs, part, below):
                yield "input", [one for one in operands if one[1] == value[1]], [value], place
            yield from _calls(part, below)
            inside += typed(part.outputs, part, below)
        if inside:
            for value in results:
                yield instruction.name, [one for one in inside if one[1] == value[1]], [value], place
        else:
            yield instruction.name, operands, results, place
