"""Fusion: groups of elementwise calls on large arrays become one call, which takes them block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tape_compile import thresholds
from tape_compile.library import LibrarySupport, Role, support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Program, Ref, Spec


class Group:
    """Elementwise calls of one shape, with reductions of their results.

    Attributes:
        shape: of every result but the sums and lines.
        instructions: the calls, in order.
        roles: by result the part that its call has, as the library says.
        inputs: the numbers of what they need from outside; outputs: of what is needed of them outside.
        made: the results.
        sums: those that are sums of all elements.
        lines: those that have one element for each line along the last axis.
        spread: those that are numbers and smaller arrays, broadcast.
        reduced: the inputs that are reduced to lines.
        seen: by smaller inputs their shapes, with as many axes at the end as the group's shape.
        specs, constants: those of the program.
    """

    def __init__(self, shape: tuple[int, ...], program: Program) -> None:
        self.shape = shape
        self.instructions: list[Instruction] = []
        self.roles: dict[int, Role] = {}
        self.made: set[int] = set()
        self.sums: set[int] = set()
        self.lines: set[int] = set()
        self.spread: set[int] = set()
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.reduced: set[int] = set()
        self.seen: dict[int, tuple[int, ...]] = {}
        self.specs: dict[int, Spec] = program.specs
        self.constants = program.constants

    def takes(self, role: Role) -> bool:
        """Return whether a call in this role can join."""
        # For sums all elements are one line, cut where the library's own summation cuts it; for the others blocks are
        # whole lines. A group has one kind of blocks.
        if role == "sum":
            return not self.lines and not self.seen
        return not self.sums or role in ("each", "number")

    def is_apart(self, needed: Sequence[int]) -> bool:
        """Return whether a call shares no value with a group that has many operands already."""
        return (
            len(self.inputs) >= thresholds.FUSE_MANY_OPERANDS
            and self.made.isdisjoint(needed)
            and set(self.inputs).isdisjoint(needed)
        )

    def sees(self, k: int, shape: tuple[int, ...]) -> bool:
        """Return whether a smaller value can be broadcast as an array of this shape, to all calls or to none."""
        if k in self.made:
            return k in self.lines and shape == (*self.shape[:-1], 1)
        return self.seen.get(k, shape) == shape

    def add(self, instruction: Instruction, role: Role) -> None:
        """Let a call join."""
        out = instruction.out
        tail = (1,) * (role == "short" and len(self.specs[out].shape) < len(self.shape))
        for k in instruction.inputs:
            if k not in self.made:
                shape = self.specs[k].shape
                if shape not in ((), self.shape):
                    self.seen[k] = shape + tail
                if k not in self.inputs:
                    self.inputs.append(k)
        self.instructions.append(instruction)
        self.made.add(out)
        self.roles[out] = role
        if role == "sum":
            self.sums.add(out)
        elif role in ("line", "short", "view"):
            self.lines.add(out)
            if role == "line":
                self.reduced.update({*instruction.inputs} - self.made)
        elif role in ("number", "spread"):
            self.spread.add(out)


# Updates have their places by now: a group is where its first call was, and frees no gradient before its last.
@pass_(stage="fusion", after=["schedule_updates"])
def fusion(program: Program) -> Program:
    """Make groups of elementwise calls one call each, where the backend writes functions for them.

    A group is open while calls can join it; a call that needs a result of another group closes that, so that no call
    comes before what it needs.
    """
    support = support_of(program)
    if support is None:
        return program
    if program.largest < thresholds.FUSE_MIN_ELEMENTS and not any(map(support.is_slow, program.distinct_specs)):
        return program
    uses: dict[int, list[Instruction]] = {}
    for instruction in program.instructions:
        for k in instruction.inputs:
            uses.setdefault(k, []).append(instruction)
    results = set(program.outputs)
    open_groups: dict[tuple[int, ...], Group] = {}
    kept: list[Instruction] = []

    def close(group: Group) -> None:
        del open_groups[group.shape]
        inside = set(map(id, group.instructions))
        group.outputs = [
            k
            for instruction in group.instructions
            for k in instruction.outputs
            if k in results or any(id(user) not in inside for user in uses.get(k, ()))
        ]
        calls, slow = len(group.instructions), support.is_slow(program.specs[group.instructions[0].out])
        pays = slow or calls * math.prod(group.shape) >= thresholds.FUSE_MIN_WORK
        fused = support.fused(group) if calls >= thresholds.FUSE_MIN_CALLS and pays and group.outputs else None
        # Too little work, or the backend declines: the calls stay as they are.
        if fused is None:
            kept.extend(group.instructions)
            return
        args = tuple([Ref(k) for k in group.inputs])
        first = group.instructions[0]
        kept.append(Instruction("fused", fused, args, {}, tuple(group.outputs), first.place))

    for instruction in program.instructions:
        needed = instruction.inputs
        own, role = _group_for(instruction, open_groups, program, support)
        for group in list(open_groups.values()):
            if group is not own and not group.made.isdisjoint(needed):
                close(group)
        if role is None:
            if program.owned and _is_large(instruction, program):
                # A gradient of which new values of Variables were made is freed before the next one is computed.
                for group in list(open_groups.values()):
                    if not group.made.isdisjoint(results):
                        close(group)
            kept.append(instruction)
            continue
        if own is None:
            shape = program.specs[instruction.inputs[0] if role == "line" else instruction.out].shape
            # One open group for each shape: a call that cannot join it ends it.
            if shape in open_groups:
                close(open_groups[shape])
            own = open_groups[shape] = Group(shape, program)
        own.add(instruction, role)
    for group in list(open_groups.values()):
        close(group)
    return program.replace(kept)


def _group_for(
    instruction: Instruction, groups: dict[tuple[int, ...], Group], program: Program, support: LibrarySupport
) -> tuple[Group | None, Role | None]:
    """Return the group that a call joins, and its role there; None and the role in a new group if it joins none."""
    if instruction.effect or type(instruction.out) is not int:
        return None, None
    needed, specs = instruction.inputs, program.specs
    for group in groups.values():
        # A sum is there only after the last block, so no call of its own group can use it.
        if group.sums.isdisjoint(needed):
            role = support.role(instruction, specs, group)
            if role is not None and group.takes(role) and not (program.owned and group.is_apart(needed)):
                return group, role
    large = max([specs[k].size for k in (instruction.out, *needed)]) >= thresholds.FUSE_MIN_ELEMENTS
    if not large and not support.is_slow(specs[instruction.out]):
        return None, None
    return None, support.role(instruction, specs, None)


def _is_large(instruction: Instruction, program: Program) -> bool:
    return type(instruction.out) is int and program.specs[instruction.out].size >= thresholds.FUSE_MIN_ELEMENTS
