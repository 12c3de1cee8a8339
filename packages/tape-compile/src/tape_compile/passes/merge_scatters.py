"""Merging of scatters: gradients of an array's slices are put together once, not each in an array of zeros."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, product
from typing import Any

from tape_compile import thresholds
from tape_compile.library import LibrarySupport, Specs, support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import Argument, Instruction, Program, Ref

Box = tuple[tuple[int, int, bool], ...]
"""The elements that a key selects: for each axis where they start and stop, and whether by a slice or an integer."""
Parts = dict[Box, Ref]
"""The parts of a sum, by where they go."""

_KINDS = ("float", "complex", "int", "uint")


@pass_(stage="exact", after=["batch_slices"])
def merge_scatters(program: Program) -> Program:
    """Let a sum of `scatter`s to equal or disjoint places sum the parts for each place, and put these together.

    The bits are the same: where a part is not, the sum adds 0 to the others, which changes nothing but the sign of -0,
    and `joined` and `placed` add the parts to 0, too. (Which of two NaNs a sum is, processors choose by the place in an
    array.)
    """
    support = support_of(program)
    if support is None or support.joined is None:
        return program
    if not any([instruction.name == "scatter" for instruction in program.instructions]):
        return program
    found = _Sums(program, support)
    if not found.inside:
        return program
    specs, involved = dict(program.specs), found.inside | found.roots
    new = max(specs)
    # The cotangent of `x` in `f(x[0]) + g(x[1])` is scatter(...) + scatter(...): two whole arrays, nearly all zeros.
    parts: dict[int, Parts] = {}
    layouts: dict[tuple[int, tuple[int, ...]], _Layout] = {}
    kept: list[Instruction] = []
    for instruction in program.instructions:
        out = instruction.out
        if out not in involved:
            kept.append(instruction)
            continue
        if instruction.name == "scatter":
            parts[out] = dict.fromkeys(found.boxes[out], instruction.args[0])
            continue
        a, b = instruction.inputs
        # Nothing else uses either sum (`counts`), so their parts may be changed and put together here.
        left, right = parts.pop(a), parts.pop(b)
        for box, part in right.items():
            if box in left:
                new += 1
                specs[new] = specs[part.id]
                args = left[box], part
                kept.append(Instruction("add", instruction.fn, args, {}, new, instruction.place))
                part = Ref(new)
            left[box] = part
        if out in found.inside:
            parts[out] = left
            continue
        shape = specs[out].shape
        key = id(found.boxes[out]), shape
        layout = layouts.get(key) or layouts.setdefault(key, _Layout(left, shape))
        kept.append(_put_together(left, layout, instruction, found.first[out], shape, support))
    return program.replace(kept, specs=specs)


class _Sums:
    """The sums of scatters in a program.

    Attributes:
        inside: the results that nothing but another call of a sum needs; roots: the sums themselves.
        boxes: by result where its parts go: one object for equal boxes in the same order, so that `id` tells them.
        first: by result one of its scatters.
    """

    def __init__(self, program: Program, support: LibrarySupport) -> None:
        inputs = [instruction.inputs for instruction in program.instructions]
        counts = Counter(chain(program.outputs, chain.from_iterable(inputs)))
        self.inside: set[int] = set()
        self.roots: set[int] = set()
        self.boxes: dict[int, dict[Box, None]] = {}
        self.first: dict[int, Instruction] = {}
        specs, boxes = program.specs, self.boxes
        one: dict[Box, dict[Box, None]] = {}
        unions: dict[tuple[int, int], dict[Box, None] | None] = {}
        for instruction in program.instructions:
            name = instruction.name
            if name == "scatter":
                box = _box(instruction, specs) if is_plain(instruction) else None
                if box is not None and support.can_place(specs[instruction.args[0].id]):
                    boxes[instruction.out] = one.get(box) or one.setdefault(box, {box: None})
                    self.first[instruction.out] = instruction
            elif name == "add" and len(instruction.inputs) == 2:
                a, b = instruction.inputs
                # A partial sum that something else needs, too, has to be there.
                if a not in boxes or b not in boxes or not counts[a] == counts[b] == 1 or not is_plain(instruction):
                    continue
                out = instruction.out
                if not specs[a] == specs[b] == specs[out]:
                    continue
                key = id(boxes[a]), id(boxes[b])
                if key not in unions:
                    unions[key] = _union(boxes[a], boxes[b])
                both = unions[key]
                if both is not None:
                    boxes[out], self.first[out] = both, self.first[a]
                    self.inside.update(instruction.inputs)
                    self.roots.difference_update(instruction.inputs)
                    self.roots.add(out)


def is_plain(instruction: Instruction) -> bool:
    """Return whether a call has one result, no effect and no keyword arguments."""
    return type(instruction.out) is int and not instruction.kwargs and not instruction.effect


def _box(instruction: Instruction, specs: Specs) -> Box | None:
    """Return the box into which a `scatter` puts its values; None if they do not go to a box."""
    if len(instruction.args) != 3 or type(instruction.args[0]) is not Ref:
        return None
    values, key, shape = instruction.args
    if not _is_numeric(specs[values.id].dtype) or -1 in shape:
        return None
    box = box_of(key, shape)
    if box is None or specs[values.id].shape != tuple([stop - start for start, stop, is_slice in box if is_slice]):
        return None
    return box


@lru_cache(maxsize=64)
def _is_numeric(dtype: object) -> bool:
    return str(dtype).rpartition(".")[2].startswith(_KINDS)


def box_of(key: Argument, shape: tuple[int, ...]) -> Box | None:
    """Return the elements that a key selects, if it consists of integers and slices of step 1."""
    parts: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    box: list[tuple[int, int, bool]] = []
    for part in parts:
        if part is ...:
            hidden = len(shape) - len(parts) + 1
            box += [(0, n, True) for n in shape[len(box) : len(box) + hidden]]
            continue
        if len(box) == len(shape):
            return None
        n, kind = shape[len(box)], type(part)
        if kind is int and -n <= part < n:
            start = part % n
            box.append((start, start + 1, False))
        elif kind is slice:
            try:
                start, stop, step = part.indices(n)
            except TypeError:  # not of integers
                return None
            if step != 1:
                return None
            box.append((start, max(start, stop), True))
        else:
            return None
    if len(box) < len(shape):
        box += [(0, n, True) for n in shape[len(box) :]]
    return tuple(box)


def _union(some: dict[Box, None], others: dict[Box, None]) -> dict[Box, None] | None:
    """Return all boxes, if they are few, and no element is in two of them; None otherwise."""
    new = [box for box in others if box not in some]
    if not new:
        return some
    if len(some) + len(new) > thresholds.MERGE_SCATTERS_MAX_PLACES:
        return None
    for one, other in product(some, new):  # among each other, those of either sum were compared before
        if not any([a[1] <= b[0] or b[1] <= a[0] for a, b in zip(one, other, strict=True)]):
            return None
    return some | dict.fromkeys(new)


class _Layout:
    """The places of the parts of an array.

    Attributes:
        ordered: the boxes, in order; keys: the same as keys of integers and slices.
        axis: along which the parts, one after the other, are the whole array; None where they are not.
    """

    def __init__(self, boxes: Iterable[Box], shape: tuple[int, ...]) -> None:
        self.ordered = sorted(boxes)
        self.keys = [tuple([slice(i, j) if is_slice else i for i, j, is_slice in box]) for box in self.ordered]
        self.axis = _whole(self.ordered, shape)


def _put_together(
    parts: Parts,
    layout: _Layout,
    given: Instruction,
    scatter: Instruction,
    shape: tuple[int, ...],
    support: LibrarySupport,
) -> Instruction:
    """Return the call that computes a sum from its parts for each place."""
    assert support.joined is not None
    assert support.placed is not None
    refs = [parts[box] for box in layout.ordered]
    if len(refs) == 1:  # all went to one place
        return Instruction("scatter", scatter.fn, (*refs, *layout.keys, shape), {}, given.out, given.place)
    if layout.axis is not None:
        return Instruction("joined", support.joined, (layout.axis, *refs), {}, given.out, given.place)
    return Instruction("placed", support.placed, (shape, list(layout.keys), *refs), {}, given.out, given.place)


def _whole(ordered: list[Box], shape: tuple[int, ...]) -> int | None:
    """Return the axis along which the boxes, one after the other, make up the whole array; None if there is none."""
    for axis, n in enumerate(shape):
        others = [box[:axis] + box[axis + 1 :] for box in ordered]
        full = tuple([(0, m, True) for m in shape[:axis] + shape[axis + 1 :]])
        ends = [box[axis] for box in ordered]
        follow = [end[0] for end in ends[1:]] == [end[1] for end in ends[:-1]]
        if all([other == full for other in others]) and all([end[2] for end in ends]):
            return axis if follow and ends[0][0] == 0 and ends[-1][1] == n else None
    return None
