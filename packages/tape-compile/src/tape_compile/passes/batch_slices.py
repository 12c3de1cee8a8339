"""Batching of slices: elementwise calls on several slices of an array become one call, and slices of its result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from tape_compile import thresholds
from tape_compile.library import Specs, support_of
from tape_compile.passes.dce import dce
from tape_compile.passes.merge_scatters import box_of, is_plain
from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Place, Program, Raw, Ref, Spec

_NUMBERS = (bool, int, float, complex)
Base: TypeAlias = "int | _Group"
"""The base of a slice: a value by its number, or the result of the one call that will be there for a group."""
View: TypeAlias = tuple[Base, int, int]
"""A slice along the first axis: of which base, from where, to where."""


class _Group:
    """Calls that differ in nothing but the slices that they are given.

    Attributes:
        key: the function, then for each argument the base that is sliced, or the number.
        members: by the result of a call, where its slices start and stop.
        ends: where all of them together start and stop.
        valid: whether one call replaces them; whole: its result, once it is there.
    """

    __slots__ = ("ends", "key", "members", "valid", "whole")

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key
        self.members: dict[int, tuple[int, int]] = {}
        self.ends = (0, 0)
        self.valid = False
        self.whole: Ref | None = None

    def can_be_one(self, specs: Specs) -> bool:
        """Return whether the slices follow each other without gaps, in small arrays that are there."""
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
        rows = specs[next(iter(self.members))]  # of one shape in all
        return rows.size // rows.shape[0] * (last - first) <= thresholds.BATCH_SLICES_MAX_ELEMENTS


# The slices themselves are equal calls only after CSE.
@pass_(stage="exact", after=["dce"])
def batch_slices(program: Program) -> Program:
    """Make elementwise calls on neighbouring slices along the first axis one call, where the library allows it.

    A recurrent cell does so for its gates, which are slices of one product.
    """
    support = support_of(program)
    if support is None or not support.slices_are_alike or program.largest < 2:
        return program
    member_of = _members(program)
    if not member_of:
        return program
    specs, new = dict(program.specs), max(program.specs)
    cut: dict[View, Ref] = {}
    keys: dict[tuple[int, int], slice] = {}  # one object for thousands of equal ones
    kept: list[Instruction] = []

    def add(name: str, fn: Callable[..., Raw], args: tuple[Any, ...], n: int, like: int, place: Place | None) -> Ref:
        """Add a call, whose result has so many rows, like those of a value."""
        nonlocal new
        new += 1
        spec = specs[like]
        specs[new] = Spec(spec.kind, (n, *spec.shape[1:]), spec.dtype)
        kept.append(Instruction(name, fn, args, {}, new, place))
        return Ref(new)

    def operand(base: Base, first: int, last: int, place: Place | None) -> Ref:
        """Return all slices of one operand as one: the whole base, or one slice of it."""
        whole, offset = (base.whole, base.ends[0]) if isinstance(base, _Group) else (Ref(base), 0)
        assert whole is not None  # a group comes before those that slice its result
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
        key = keys.get((start, stop)) or keys.setdefault((start, stop), slice(start, stop))
        kept.append(Instruction("getitem", operator.getitem, (group.whole, key), {}, out, place))
    # The slices that were operands are not used any more.
    return dce(program.replace(kept, specs=specs))


def _members(program: Program) -> dict[int, _Group]:
    """Return for the result of each call its group, of the groups that one call can replace."""
    from tape_core.extend import registry  # ops are there when something runs

    specs, results = program.specs, set(program.outputs)
    views: dict[int, View] = {}
    groups: dict[Hashable, _Group] = {}
    for instruction in program.instructions:
        if instruction.fn is operator.getitem and instruction.name == "getitem":
            view = _view(instruction, specs) if is_plain(instruction) else None
            if view is not None:
                views[instruction.out] = view
            continue
        for k in instruction.inputs:
            if k not in views:  # nearly always
                break
        else:
            out = instruction.out
            # A result of the program would be a view, which keeps the whole array alive at the caller's.
            if not is_plain(instruction) or out in results:
                continue
            found = _of_slices(instruction, views, specs)
            op = None if found is None else registry.get(instruction.name)
            if found is None or op is None or not op.elementwise:
                continue
            key, start, stop = found
            try:
                group = groups.get(key)
            except TypeError:  # a function without a hash
                continue
            if group is None:
                group = groups[key] = _Group(key)
            group.members[out] = start, stop
            views[out] = group, start, stop
    several = [group for group in groups.values() if len(group.members) > 1]
    for group in several:  # in order: whether a group is valid depends on those whose results it slices
        group.valid = group.can_be_one(specs)
    return {out: group for group in several if group.valid for out in group.members}


def _of_slices(
    instruction: Instruction, views: dict[int, View], specs: Specs
) -> tuple[tuple[Any, ...], int, int] | None:
    """Return the key of a call's group, and where the slices among its arguments start and stop; None for other calls.

    The slices have the shape of the result. A number stands in the key in a tuple, with its kind and sign.
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


def _view(instruction: Instruction, specs: Specs) -> View | None:
    """Return the slice along the first axis that a call of `getitem` gives; None where it gives another view."""
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
