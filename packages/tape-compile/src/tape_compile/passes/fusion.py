"""Fusion: runs of elementwise calls on large arrays become one call, which takes them block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tape_compile.program import Instruction, Program, Ref, Spec

LARGE = 1 << 14  # elements: smaller arrays stay in the cache by themselves
MANY = 4  # operands: beyond that, what has nothing to do with a run is the beginning of another one
FEW = 2  # a run of fewer calls is no run
ENOUGH = 1 << 18  # elements of all results together: for fewer, blocks cost more than they save


class Group:
    """A run of elementwise calls of one shape, with reductions of their results.

    Attributes:
        shape: of every result but the sums and lines.
        instructions: the calls, in order; roles: what the backend's compiler says that each result is.
        inputs: the numbers of what they need from outside; outputs: of what is needed of them outside.
        made: the results; among them sums of all elements, lines, which have one element for each line along the last
            axis, and what is spread, numbers and smaller arrays that are broadcast.
        reduced: the inputs of which lines are made.
        seen: the shapes of smaller inputs, with as many axes at the end as the group's shape.
        specs, constants: those of the program.
    """

    def __init__(self, shape: tuple[int, ...], program: Program) -> None:
        self.shape = shape
        self.instructions: list[Instruction] = []
        self.roles: dict[int, str] = {}
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

    def takes(self, role: str) -> bool:
        """Whether a call in this role can join: blocks are pieces of the whole line for sums, lines for the others."""
        if role == "sum":
            return not self.lines and not self.seen
        return not self.sums or role in ("each", "number")

    def is_apart(self, needed: Sequence[int]) -> bool:
        """Whether a call has nothing to do with a run that has many operands as it is."""
        return len(self.inputs) >= MANY and self.made.isdisjoint(needed) and set(self.inputs).isdisjoint(needed)

    def sees(self, k: int, shape: tuple[int, ...]) -> bool:
        """Whether a smaller value can be broadcast as an array of this shape."""
        if k in self.made:
            return k in self.lines and shape == (*self.shape[:-1], 1)
        return self.seen.get(k, shape) == shape

    def add(self, instruction: Instruction, role: str) -> None:
        """One more call."""
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


def fusion(program: Program) -> Program:
    """The program with runs of elementwise calls as one call each, where the backend knows how."""
    compiler = None if program.backend is None else program.backend.compiler
    if compiler is None or program.largest < LARGE:
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
        calls = len(group.instructions)
        pays = calls >= FEW and calls * math.prod(group.shape) >= ENOUGH
        fused = compiler.fused(group) if pays and group.outputs else None
        if fused is None:
            kept.extend(group.instructions)
            return
        args = tuple([Ref(k) for k in group.inputs])
        first = group.instructions[0]
        kept.append(Instruction("fused", fused, args, {}, tuple(group.outputs), first.place))

    for instruction in program.instructions:
        needed = instruction.inputs
        own, role = _place(instruction, open_groups, program, compiler)
        for group in list(open_groups.values()):
            if group is not own and not group.made.isdisjoint(needed):
                close(group)
        if role is None:
            if program.owned and _is_large(instruction, program):
                # A gradient that new values of Variables were made of is let go before there is more.
                for group in list(open_groups.values()):
                    if not group.made.isdisjoint(results):
                        close(group)
            kept.append(instruction)
            continue
        if own is None:
            shape = program.specs[instruction.inputs[0] if role == "line" else instruction.out].shape
            if shape in open_groups:
                close(open_groups[shape])
            own = open_groups[shape] = Group(shape, program)
        own.add(instruction, role)
    for group in list(open_groups.values()):
        close(group)
    return program.replaced(kept)


def _place(
    instruction: Instruction, groups: dict[tuple[int, ...], Group], program: Program, compiler: Any
) -> tuple[Group | None, str | None]:
    """The group that an instruction joins, and what it is there; a new group where there is none."""
    if instruction.effect or type(instruction.out) is not int:
        return None, None
    needed, specs = instruction.inputs, program.specs
    for group in groups.values():
        if group.sums.isdisjoint(needed):
            role = compiler.role(instruction, specs, group)
            if role is not None and group.takes(role) and not (program.owned and group.is_apart(needed)):
                return group, role
    if max([specs[k].size for k in (instruction.out, *needed)]) < LARGE:
        return None, None
    return None, compiler.role(instruction, specs, None)


def _is_large(instruction: Instruction, program: Program) -> bool:
    return type(instruction.out) is int and program.specs[instruction.out].size >= LARGE
