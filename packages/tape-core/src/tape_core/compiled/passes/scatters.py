"""Sums of scattered parts: gradients of an array's slices are put together once, not each in an array of zeros."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, combinations
from typing import Any

from tape_core.compiled.program import Instruction, Program, Ref, Spec

Box = tuple[tuple[int, int, bool], ...]
"""The elements that a key of integers and slices names: for each axis from where to where, and whether as a slice."""
Parts = dict[Box, Any]
"""By where they go, the numbers of the parts of a sum."""

MOST = 16  # places in one array: a sum over more is left as it is
_KINDS = ("float", "complex", "int", "uint")


def scatters(program: Program) -> Program:
    """The program in which sums of `scatter`s to equal or disjoint places sum the parts for each place.

    Where a part is not, the other parts are added to 0, which changes no bit but the sign of -0: what puts the parts
    together adds them to 0, too. (Which of two NaNs a sum is, processors choose by the place in an array.)
    """
    compiler = None if program.backend is None else program.backend.compiler
    if not hasattr(compiler, "joined") or not any(
        [instruction.name == "scatter" for instruction in program.instructions]
    ):
        return program
    found = _Sums(program)
    if not found.inside:
        return program
    specs = dict(program.specs)
    new = max(specs)
    parts: dict[int, Parts] = {}
    kept: list[Instruction] = []
    for instruction in program.instructions:
        out = instruction.out
        if type(out) is not int or (out not in found.inside and out not in found.roots):
            kept.append(instruction)
            continue
        if instruction.name == "scatter":
            parts[out] = dict.fromkeys(found.boxes[out], instruction.args[0].id)
            continue
        left, right = (parts.pop(arg.id) for arg in instruction.args)
        for box, k in right.items():
            if box not in left:
                left[box] = k
                continue
            new += 1
            specs[new] = specs[k]
            place = instruction.place
            kept.append(Instruction("add", instruction.fn, (Ref(left[box]), Ref(k)), {}, new, place))
            left[box] = new
        parts[out] = left
        if out in found.roots:
            kept.append(_together(parts.pop(out), instruction, found.first[out], specs[out], compiler))
    return Program(kept, program.inputs, program.constants, program.outputs, specs, program.backend)


class _Sums:
    """Which instructions are inside of such sums.

    Attributes:
        inside: the results that only another instruction of a sum needs; roots: the sums.
        boxes: where the parts of each go; first: a `scatter` of each.
    """

    def __init__(self, program: Program) -> None:
        counts = Counter(chain(program.outputs, *[instruction.inputs for instruction in program.instructions]))
        self.inside: set[int] = set()
        self.roots: set[int] = set()
        self.boxes: dict[int, dict[Box, None]] = {}
        self.first: dict[int, Instruction] = {}
        specs, boxes = program.specs, self.boxes
        for instruction in program.instructions:
            out, args = instruction.out, instruction.args
            if type(out) is not int or instruction.kwargs or instruction.effect:
                continue
            if instruction.name == "scatter" and (box := _box(instruction, specs)) is not None:
                boxes[out], self.first[out] = {box: None}, instruction
            elif instruction.name == "add" and all([type(a) is Ref and a.id in boxes for a in args]):
                a, b = (arg.id for arg in args)
                alike = counts[a] == counts[b] == 1 and specs[a] == specs[b] == specs[out]
                both = boxes[a] | boxes[b]
                new = len(both) > len(boxes[a])
                if alike and len(both) <= MOST and (not new or _are_disjoint(both, boxes[a])):
                    boxes[out], self.first[out] = both, self.first[a]
                    self.inside |= {a, b}
                    self.roots -= {a, b}
                    self.roots.add(out)


def _box(instruction: Instruction, specs: dict[int, Spec]) -> Box | None:
    """Where a `scatter` puts its values; None where that is not known or no box."""
    if len(instruction.args) != 3 or type(instruction.args[0]) is not Ref:
        return None
    values, key, shape = instruction.args
    if not _is_of_numbers(specs[values.id].dtype) or -1 in shape:
        return None
    box = box_of(key, shape)
    if box is None or specs[values.id].shape != tuple([stop - start for start, stop, is_slice in box if is_slice]):
        return None
    return box


@lru_cache(maxsize=64)
def _is_of_numbers(dtype: Any) -> bool:
    return str(dtype).rpartition(".")[2].startswith(_KINDS)


def box_of(key: Any, shape: tuple[int, ...]) -> Box | None:
    """The elements that a key names, if it consists of integers and slices without gaps."""
    parts = key if type(key) is tuple else (key,)
    box: list[tuple[int, int, bool]] = []
    for part in parts:
        if part is ...:
            hidden = len(shape) - len(parts) + 1
            box += [(0, n, True) for n in shape[len(box) : len(box) + hidden]]
            continue
        if len(box) == len(shape):
            return None
        n = shape[len(box)]
        if type(part) is slice:
            try:
                start, stop, step = part.indices(n)
            except TypeError:  # not of integers
                return None
            if step != 1:
                return None
            box.append((start, max(start, stop), True))
        elif type(part) is int and -n <= part < n:
            box.append((part % n, part % n + 1, False))
        else:
            return None
    box += [(0, n, True) for n in shape[len(box) :]]
    return tuple(box)


def _are_disjoint(boxes: Iterable[Box], known: dict[Box, None]) -> bool:
    """Whether no element is in two of them; those that are known are so among each other."""
    for one, other in combinations(boxes, 2):
        if one in known and other in known:
            continue
        if not any([a[1] <= b[0] or b[1] <= a[0] for a, b in zip(one, other, strict=True)]):
            return False
    return True


def _together(parts: Parts, given: Instruction, scatter: Instruction, spec: Spec, compiler: Any) -> Instruction:
    """The instruction that gives the sum, of what it is in each place."""
    keys = {box: tuple([slice(i, j) if is_slice else i for i, j, is_slice in box]) for box in parts}
    if len(parts) == 1:
        ((box, k),) = parts.items()
        return Instruction("scatter", scatter.fn, (Ref(k), keys[box], spec.shape), {}, given.out, given.place)
    ordered = sorted(parts)
    refs = [Ref(parts[box]) for box in ordered]
    axis = _whole(ordered, spec.shape)
    if axis is not None:
        return Instruction("joined", compiler.joined, (axis, *refs), {}, given.out, given.place)
    args = (spec.shape, [keys[box] for box in ordered], *refs)
    return Instruction("placed", compiler.placed, args, {}, given.out, given.place)


def _whole(ordered: list[Box], shape: tuple[int, ...]) -> int | None:
    """The axis along which boxes, one after the other, are the whole array."""
    for axis, n in enumerate(shape):
        others = [box[:axis] + box[axis + 1 :] for box in ordered]
        full = tuple([(0, m, True) for m in shape[:axis] + shape[axis + 1 :]])
        ends = [box[axis] for box in ordered]
        follow = [end[0] for end in ends[1:]] == [end[1] for end in ends[:-1]]
        if all([other == full for other in others]) and all([end[2] for end in ends]):
            return axis if follow and ends[0][0] == 0 and ends[-1][1] == n else None
    return None
