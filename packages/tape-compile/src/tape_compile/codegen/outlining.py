"""Outlining: a stretch of calls that is repeated, as the turns of a Python loop are, becomes a function of its own.

It is the inverse of inlining. The same is computed in the same order; Python compiles less, and code that runs again is
in the processor's cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, cast

from tape_compile import thresholds
from tape_compile.program import Argument, Instruction, Program, Ref, Spec, literal_key

Stretch = tuple[int, int]
"""The indices of its first instruction, and of the first one behind it."""


def outline(program: Program) -> tuple[Program, list[Program]]:
    """Return a program with calls of functions in place of equal stretches, and the programs of these functions."""
    instructions = program.instructions
    if len(instructions) <= thresholds.OUTLINE_MIN_PROGRAM or program.largest >= thresholds.OUTLINE_MAX_ELEMENTS:
        return program, []
    codes, numbers = _codes(instructions)
    groups: dict[Any, list[tuple[int, DataFlow]]] = {}
    for (start, stop), at in _repeats(codes):
        end = at + stop - start
        shape = DataFlow(instructions[at:end], [numbers[k] for k in range(at, end) if k in numbers])
        # Equal codes: the calls are alike. Equal uses: their results go to the same places. Only both make one
        # function.
        groups.setdefault((start, stop, *shape.uses), []).append((at, shape))
    totals = Counter(chain.from_iterable([instruction.inputs for instruction in instructions]))
    totals.update(program.outputs)
    calls: dict[int, tuple[int, Instruction]] = {}  # by the start of a stretch its end, and the call
    made: list[Program] = []
    for (start, stop, *_), found in groups.items():
        if len(found) > 1:
            body, called = _as_function(program, stop - start, found, totals)
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


class DataFlow:
    """The dependencies between the instructions of a stretch.

    Attributes:
        given: the values from elsewhere, in the order of their first uses.
        made: the results, in order.
        uses: for each argument its place in `made`, or -1 minus its place in `given`: equal for stretches of one form.
        numbers: the integers among the arguments, which may differ between stretches.
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
    """Return a code for each instruction: equal for calls of one function, from one line, on other values.

    Integers among the arguments, as in `x[3]`, may differ, too: they are returned beside, by instruction.
    """
    known: dict[Any, int] = {}
    codes: list[int] = []
    numbers: dict[int, list[int]] = {}
    for at, instruction in enumerate(instructions):
        # The index is a code that no other call has: an effect is never part of a stretch.
        key: Any = at
        kinds: tuple[Any, ...]
        if not instruction.effect:
            args = instruction.args
            kinds = tuple(map(type, args))
            if kinds.count(Ref) < len(kinds):
                found: list[int] = []
                kinds = tuple([Ref if type(arg) is Ref else _key_without_integers(arg, found) for arg in args])
                if found:
                    numbers[at] = found
            # With the place, so that the function's source shows the user's lines. (Equal places are one object.)
            key = instruction.fn, id(instruction.place), kinds
            if instruction.kwargs:
                key = key, *[(name, literal_key(value)) for name, value in instruction.kwargs.items()]
        try:
            codes.append(known.setdefault(key, at))
        except TypeError:  # an argument without a hash: it is equal to none
            codes.append(at)
    return codes, numbers


def _key_without_integers(value: Any, found: list[int]) -> Any:
    """Return the `literal_key` of an argument with `int` for each integer; these are appended to `found`."""
    kind = type(value)
    if kind is int:
        found.append(value)
        return int
    if kind is tuple or kind is list:
        return kind, *[_key_without_integers(part, found) for part in value]
    if kind is slice:
        return (
            kind,
            _key_without_integers(value.start, found),
            _key_without_integers(value.stop, found),
            _key_without_integers(value.step, found),
        )
    return literal_key(value)


def _with_integers(value: Any, numbers: Iterator[Argument]) -> Any:
    """Return an argument with others in the place of its integers."""
    kind = type(value)
    if kind is int:
        return next(numbers)
    if kind is tuple or kind is list:
        return kind([_with_integers(part, numbers) for part in value])
    if kind is slice:
        return slice(
            _with_integers(value.start, numbers),
            _with_integers(value.stop, numbers),
            _with_integers(value.step, numbers),
        )
    return value


def _repeats(codes: list[int]) -> list[tuple[Stretch, int]]:
    """Equal stretches of codes that do not overlap: for each the first one that is equal, and its own start."""
    least = thresholds.OUTLINE_MIN_STRETCH
    first: dict[tuple[int, ...], int] = {}  # by the codes with which a stretch begins, its first occurrence
    kinds: dict[tuple[int, ...], Stretch] = {}
    found: list[tuple[Stretch, int]] = []
    taken = bytearray(len(codes))
    at = 0
    # Greedy, from left to right: the first codes find where a stretch begins again, and the first repetition settles
    # how long all stretches with that beginning are. The turns of a loop follow each other, so nothing is searched for.
    while at + least <= len(codes):
        begin = tuple(codes[at : at + least])
        start, stop = kinds.get(begin) or (first.setdefault(begin, at), 0)
        if not stop and start + least <= at:  # the first repetition: the stretch is as long as both agree
            stop = start + least
            while stop < at and at + stop - start < len(codes) and codes[stop] == codes[at + stop - start]:
                stop += 1
            kinds[begin] = start, stop
            # The first occurrence may be part of another stretch by now: then it stays with that.
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


def _as_function(
    program: Program, length: int, found: list[tuple[int, DataFlow]], totals: Counter[int]
) -> tuple[Program, list[Instruction]]:
    """Return a program for equal stretches, and calls of it in their places."""
    (start, shape), shapes = found[0], [other for _, other in found]
    # A constant that is the same argument in all stretches is one of the function, and so is an integer.
    fixed = {
        k for k, *others in zip(*[s.given for s in shapes], strict=True) if k in program.constants and {*others} == {k}
    }
    passed = [n for n, k in enumerate(shape.given) if k not in fixed]
    differ = [n for n, values in enumerate(zip(*[s.numbers for s in shapes], strict=True)) if len({*values}) > 1]
    # A result is returned if it has more uses, in any of the stretches, than those inside.
    inside = Counter(shape.uses)
    needed = [n for n in range(len(shape.made)) if any([totals[s.made[n]] > inside[n] for s in shapes])]
    largest = max(program.specs)
    # Integers that differ, as the `k` of `x[k]`, become parameters, with new numbers.
    names = {n: largest + at for at, n in enumerate(differ, 1)}
    numbers = iter([Ref(names[n]) if n in names else number for n, number in enumerate(shape.numbers)])
    body = program.replace(
        [_replace_integers(instruction, numbers) for instruction in program.instructions[start : start + length]],
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


def _replace_integers(instruction: Instruction, numbers: Iterator[Argument]) -> Instruction:
    """Return a call with others in the place of its integers."""
    args = tuple([arg if type(arg) is Ref else _with_integers(arg, numbers) for arg in instruction.args])
    return Instruction(instruction.name, instruction.fn, args, instruction.kwargs, instruction.out, instruction.place)
