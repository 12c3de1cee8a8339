"""Slices: an elementwise call for each of several slices of an array is one call, and slices of that."""

from __future__ import annotations

import operator
from typing import Any

from tape_compile.passes.dce import dead_code
from tape_compile.passes.merge_scatters import box_of, is_plain
from tape_compile.program import Instruction, Program, Ref, Spec

LARGE = 1 << 12  # elements: of larger arrays the calls themselves take the time
_NUMBERS = (bool, int, float, complex)
View = tuple[Any, int, int]
"""A slice along the first axis: of an array by its number, or of the call of a group; from where to where."""


class _Group:
    """Calls that are the same but for the slices that they are of.

    Attributes:
        key: what they have in common; members: by what a call gives, where its slices start and stop.
        ends: from where to where they go together.
        valid: whether one call is to do for all; whole: its result, once it is there.
    """

    __slots__ = ("ends", "key", "members", "valid", "whole")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.members: dict[int, tuple[int, int]] = {}
        self.ends = (0, 0)
        self.valid = False
        self.whole: Ref | None = None

    def fits(self, specs: dict[int, Spec]) -> bool:
        """Whether they follow each other without gaps, and are of small arrays that are there."""
        places = sorted(self.members.values())
        first = last = places[0][0]
        for start, stop in places:
            if start != last:
                return False
            last = stop
        self.ends = first, last
        for base in self.key[1:]:
            if type(base) is _Group and not (base.valid and base.ends[0] <= first and last <= base.ends[1]):
                return False
        rows = specs[next(iter(self.members))]
        return rows.size // rows.shape[0] * (last - first) <= LARGE  # all have rows of one shape


def slices(program: Program) -> Program:
    """The program in which elementwise calls on neighbouring slices along the first axis are one call each.

    Where the backend says that an element's result does not depend on where in an array it is.
    """
    compiler = None if program.backend is None else program.backend.compiler
    if not getattr(compiler, "SLICES_ARE_ALIKE", False) or program.largest < 2:
        return program
    member_of = _members(program)
    if not member_of:
        return program
    specs, new = dict(program.specs), max(program.specs)
    cut: dict[View, Ref] = {}
    rows: dict[tuple[int, int], slice] = {}  # keys, one for each part: thousands are alike
    kept: list[Instruction] = []

    def add(name: str, fn: Any, args: tuple[Any, ...], n: int, like: int, place: Any) -> Ref:
        """One more call, of a result with so many rows."""
        nonlocal new
        new += 1
        spec = specs[like]
        specs[new] = Spec(spec.kind, (n, *spec.shape[1:]), spec.dtype)
        kept.append(Instruction(name, fn, args, {}, new, place))
        return Ref(new)

    def operand(base: Any, first: int, last: int, place: Any) -> Ref:
        """What all slices of one operand are together."""
        whole, offset = (base.whole, base.ends[0]) if type(base) is _Group else (Ref(base), 0)
        assert whole is not None  # groups that others are of come first
        k, start, stop = whole.id, first - offset, last - offset
        if start == 0 and stop == specs[k].shape[0]:
            return whole
        found = cut.get((k, start, stop))
        if found is None:
            args = (whole, slice(start, stop))
            found = cut[k, start, stop] = add("getitem", operator.getitem, args, stop - start, k, place)
        return found

    for instruction in program.instructions:
        out = instruction.out
        group = member_of.get(out)
        if group is None:
            kept.append(instruction)
            continue
        first, last = group.ends
        place = instruction.place
        if group.whole is None:
            pairs = zip(group.key[1:], instruction.args, strict=True)
            args = tuple([operand(base, first, last, place) if type(arg) is Ref else arg for base, arg in pairs])
            group.whole = add(instruction.name, instruction.fn, args, last - first, out, place)
        start, stop = group.members[out]
        start, stop = start - first, stop - first
        key = rows.get((start, stop)) or rows.setdefault((start, stop), slice(start, stop))
        kept.append(Instruction("getitem", operator.getitem, (group.whole, key), {}, out, place))
    return dead_code(Program(kept, program.inputs, program.constants, program.outputs, specs, program.backend))


def _members(program: Program) -> dict[int, _Group]:
    """The groups of calls for which one is to do, by what the calls give."""
    from tape_core.extend import registry  # ops are there when something runs

    specs, results = program.specs, set(program.outputs)
    views: dict[int, View] = {}
    groups: dict[Any, _Group] = {}
    for instruction in program.instructions:
        if instruction.fn is operator.getitem and instruction.name == "getitem":
            view = _view(instruction, specs) if is_plain(instruction) else None
            if view is not None:
                views[instruction.out] = view
            continue
        for k in instruction.inputs:
            if k not in views:  # so it is of nearly all
                break
        else:
            out = instruction.out
            if not is_plain(instruction) or out in results:
                continue
            found = _of_slices(instruction, views, specs)
            op = None if found is None else registry.get(instruction.name)
            if found is None or op is None or not op.elementwise:
                continue
            key, start, stop = found
            try:
                group = groups.get(key)
            except TypeError:  # it cannot be told what is the same
                continue
            if group is None:
                group = groups[key] = _Group(key)
            group.members[out] = start, stop
            views[out] = group, start, stop
    several = [group for group in groups.values() if len(group.members) > 1]
    for group in several:  # those that others are of come first
        group.valid = group.fits(specs)
    return {out: group for group in several if group.valid for out in group.members}


def _of_slices(instruction: Instruction, views: dict[int, View], specs: dict[int, Spec]) -> tuple[Any, int, int] | None:
    """What a call has in common with those of other slices, and from where to where all arrays in it are slices.

    Those have the shape of its result. A number is in a tuple, with its kind and sign.
    """
    place, shape = None, specs[instruction.out].shape
    key: list[Any] = [instruction.fn]
    for arg in instruction.args:
        kind = type(arg)
        if kind is Ref:
            base, start, stop = views[arg.id]
            if specs[arg.id].shape != shape or (place is not None and place != (start, stop)):
                return None
            place = start, stop
            key.append(base)
        elif kind in _NUMBERS:
            key.append((kind, repr(arg)))
        else:
            return None
    return None if place is None else (tuple(key), *place)


def _view(instruction: Instruction, specs: dict[int, Spec]) -> View | None:
    """What a call of `getitem` gives, if that is a slice along the first axis."""
    array, key = instruction.args
    shape = specs[array.id].shape if type(array) is Ref else ()
    if not shape or shape[1:] != specs[instruction.out].shape[1:]:
        return None
    if type(key) is tuple and key and type(key[0]) is int:
        return None
    box = box_of(key, shape) if -1 not in shape else None
    if box is None or (len(box) > 1 and box[1:] != tuple([(0, n, True) for n in shape[1:]])):
        return None
    start, stop, is_slice = box[0]
    return (array.id, start, stop) if is_slice and start < stop else None
