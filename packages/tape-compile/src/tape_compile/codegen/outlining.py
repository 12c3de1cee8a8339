"""Outlining: a stretch of calls that comes again and again, as the turns of a loop of Python's do, is written once.

It becomes a function of its own in the source, which changes nothing of what is computed, or in which order: Python
compiles less, and what runs again is in the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, cast

from tape_compile import thresholds
from tape_compile.program import Instruction, Program, Ref, Spec, literal_key

Stretch = tuple[int, int]
"""From which instruction on, up to which."""


def outlined(program: Program) -> tuple[Program, list[Program]]:
    """A program in which stretches that are alike are calls, whose `fn` are programs; and these programs."""
    instructions = program.instructions
    if len(instructions) <= thresholds.OUTLINE_MIN_PROGRAM or program.largest >= thresholds.OUTLINE_MAX_ELEMENTS:
        return program, []
    codes, numbers = _codes(instructions)
    groups: dict[Any, list[tuple[int, Shape]]] = {}
    for (start, stop), at in _alike(codes):
        end = at + stop - start
        shape = Shape(instructions[at:end], [numbers[k] for k in range(at, end) if k in numbers])
        groups.setdefault((start, stop, *shape.uses), []).append((at, shape))
    totals = Counter(chain.from_iterable([instruction.inputs for instruction in instructions]))
    totals.update(program.outputs)
    calls: dict[int, tuple[int, Instruction]] = {}  # by where a stretch starts
    made: list[Program] = []
    for (start, stop, *_), found in groups.items():
        if len(found) > 1:
            body, called = _called(program, stop - start, found, totals)
            made.append(body)
            for (at, _), call in zip(found, called, strict=True):
                calls[at] = at + stop - start, call
    if not calls:
        return program, []
    kept: list[Instruction] = []
    at = 0
    while at < len(instructions):
        at, instruction = calls.get(at) or (at + 1, instructions[at])
        kept.append(instruction)
    return program.replace(kept), made


class Shape:
    """How the instructions of a stretch depend on each other.

    Attributes:
        given: the values from elsewhere, in the order in which they are needed.
        made: the values that it makes, in order.
        uses: for each argument the place in `made`, or -1 - the place in `given`.
        numbers: the whole numbers among the arguments.
    """

    def __init__(self, instructions: Sequence[Instruction], numbers: Iterable[list[int]]) -> None:
        self.given: list[int] = []
        self.made: list[int] = []
        self.uses: list[int] = []
        self.numbers = list(chain.from_iterable(numbers))
        given, made, uses = self.given, self.made, self.uses
        places: dict[int, int] = {}
        for instruction in instructions:
            for k in instruction.inputs:
                if k not in places:
                    given.append(k)
                    places[k] = -len(given)
                uses.append(places[k])
            out = instruction.out
            for k in (out,) if type(out) is int else instruction.outputs:
                places[k] = len(made)
                made.append(k)


def _codes(instructions: list[Instruction]) -> tuple[list[int], dict[int, list[int]]]:
    """A number for each instruction; those of the same one do the same, from the same line, with other values.

    Whole numbers among the arguments, as in `x[3]`, may differ, too: they come beside, by the places of instructions.
    """
    known: dict[Any, int] = {}
    codes: list[int] = []
    numbers: dict[int, list[int]] = {}
    for at, instruction in enumerate(instructions):
        key: Any = at
        kinds: tuple[Any, ...]
        if not instruction.effect:
            args = instruction.args
            kinds = tuple(map(type, args))
            if kinds.count(Ref) < len(kinds):
                found: list[int] = []
                kinds = tuple([Ref if type(arg) is Ref else _without(arg, found) for arg in args])
                if found:
                    numbers[at] = found
            key = instruction.fn, id(instruction.place), kinds
            if instruction.kwargs:
                key = key, *[(name, literal_key(value)) for name, value in instruction.kwargs.items()]
        try:
            codes.append(known.setdefault(key, at))
        except TypeError:  # it cannot be told what is the same
            codes.append(at)
    return codes, numbers


def _without(value: Any, found: list[int]) -> Any:
    """As `literal_key`, but for whole numbers, which are noted."""
    kind = type(value)
    if kind is int:
        found.append(value)
        return int
    if kind is tuple or kind is list:
        return kind, *[_without(part, found) for part in value]
    if kind is slice:
        return kind, _without(value.start, found), _without(value.stop, found), _without(value.step, found)
    return literal_key(value)


def _with(value: Any, numbers: Iterator[Any]) -> Any:
    """An argument with these in the place of its whole numbers."""
    kind = type(value)
    if kind is int:
        return next(numbers)
    if kind is tuple or kind is list:
        return kind([_with(part, numbers) for part in value])
    if kind is slice:
        return slice(_with(value.start, numbers), _with(value.stop, numbers), _with(value.step, numbers))
    return value


def _alike(codes: list[int]) -> list[tuple[Stretch, int]]:
    """Stretches of the same codes: the first of each kind, and where each begins; none has a part of another in it."""
    least = thresholds.OUTLINE_MIN_STRETCH
    first: dict[tuple[int, ...], int] = {}  # by how it begins
    kinds: dict[tuple[int, ...], Stretch] = {}
    found: list[tuple[Stretch, int]] = []
    taken = bytearray(len(codes))
    at = 0
    while at + least <= len(codes):
        begin = tuple(codes[at : at + least])
        start, stop = kinds.get(begin) or (first.setdefault(begin, at), 0)
        if not stop and start + least <= at:  # the first that is like an earlier one: as far as both go
            stop = start + least
            while stop < at and at + stop - start < len(codes) and codes[stop] == codes[at + stop - start]:
                stop += 1
            kinds[begin] = start, stop
            if not any(taken[start:stop]):
                found.append(((start, stop), start))
                taken[start:stop] = b"\1" * (stop - start)
        end = at + stop - start
        if stop and codes[at:end] == codes[start:stop]:
            found.append(((start, stop), at))
            taken[at:end] = b"\1" * (stop - start)
            at = end
        else:
            at += 1
    return found


def _called(
    program: Program, length: int, found: list[tuple[int, Shape]], totals: Counter[int]
) -> tuple[Program, list[Instruction]]:
    """A program for stretches that are alike, and calls of it in their places."""
    (start, shape), shapes = found[0], [other for _, other in found]
    # A constant that all are given is one in the function, and a number, too.
    fixed = {
        k for k, *others in zip(*[s.given for s in shapes], strict=True) if k in program.constants and {*others} == {k}
    }
    passed = [n for n, k in enumerate(shape.given) if k not in fixed]
    differ = [n for n, values in enumerate(zip(*[s.numbers for s in shapes], strict=True)) if len({*values}) > 1]
    inside = Counter(shape.uses)
    needed = [n for n in range(len(shape.made)) if any([totals[s.made[n]] > inside[n] for s in shapes])]
    largest = max(program.specs)
    names = {n: largest + at for at, n in enumerate(differ, 1)}
    numbers = iter([Ref(names[n]) if n in names else number for n, number in enumerate(shape.numbers)])
    body = program.replace(
        [_numbered(instruction, numbers) for instruction in program.instructions[start : start + length]],
        [shape.made[n] for n in needed],
        {k: program.constants[k] for k in fixed},
    )
    body.inputs = [*[shape.given[n] for n in passed], *names.values()]
    if names:
        body.specs = {**program.specs, **dict.fromkeys(names.values(), Spec(int, (), None))}
    calls = []
    for s in shapes:
        out: Any = tuple([k if totals[k := s.made[n]] > inside[n] else None for n in needed])
        if len(needed) == 1:
            out = s.made[needed[0]]
        args = (*[Ref(s.given[n]) for n in passed], *[s.numbers[n] for n in differ])
        calls.append(Instruction("part", cast("Any", body), args, {}, out, None))
    return body, calls


def _numbered(instruction: Instruction, numbers: Iterator[Any]) -> Instruction:
    """A call with these in the place of its whole numbers."""
    args = tuple([arg if type(arg) is Ref else _with(arg, numbers) for arg in instruction.args])
    return Instruction(instruction.name, instruction.fn, args, instruction.kwargs, instruction.out, instruction.place)
