"""Fusion: runs of elementwise calls on large arrays become one call, which takes them block by block."""

from __future__ import annotations

from typing import Any

from tape_core.compiled.program import Instruction, Program, Ref, Spec

LARGE = 1 << 16  # elements: smaller arrays stay in the cache by themselves
MANY = 4  # operands: beyond that, what has nothing to do with a run is the beginning of another one
FEW = 2  # a run of fewer calls is no run


class Group:
    """A run of elementwise calls of one shape, perhaps with sums of all elements of some of their results.

    Attributes:
        shape: of every result but the sums.
        instructions: the calls, in order.
        inputs: the numbers of what they need from outside; outputs: of what is needed of them outside.
        specs, constants: those of the program.
    """

    def __init__(self, shape: tuple[int, ...], program: Program) -> None:
        self.shape = shape
        self.instructions: list[Instruction] = []
        self.made: set[int] = set()
        self.sums: set[int] = set()
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.specs: dict[int, Spec] = program.specs
        self.constants = program.constants

    def add(self, instruction: Instruction, *, is_sum: bool) -> None:
        """One more call."""
        for k in instruction.inputs:
            if k not in self.made and k not in self.inputs:
                self.inputs.append(k)
        self.instructions.append(instruction)
        self.made.update(instruction.outputs)
        if is_sum:
            self.sums.update(instruction.outputs)

    def may_overwrite(self, given: int, out: int) -> bool:
        """Whether an input is not needed any more where a result is made."""
        if out in self.sums:
            return False
        for instruction in reversed(self.instructions):
            if instruction.out == out:
                return True
            if given in instruction.inputs:
                return False
        return False


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
        fused = compiler.fused(group) if len(group.instructions) >= FEW and group.outputs else None
        if fused is None:
            kept.extend(group.instructions)
            return
        args = tuple([Ref(k) for k in group.inputs])
        first = group.instructions[0]
        kept.append(Instruction("fused", fused, args, {}, tuple(group.outputs), first.place))

    for instruction in program.instructions:
        needed = set(instruction.inputs)
        shape, is_sum = _shape(instruction, program, compiler)
        for group in list(open_groups.values()):
            own = shape == group.shape and not (needed & group.sums) and (not is_sum or needed <= group.made)
            if needed & group.made and not own:
                close(group)
        if shape is None or (is_sum and shape not in open_groups):
            if program.owned and _is_large(instruction, program):
                # A gradient that new values of Variables were made of is let go before there is more.
                for group in list(open_groups.values()):
                    if not group.made.isdisjoint(results):
                        close(group)
            kept.append(instruction)
            continue
        if shape in open_groups and not is_sum:
            group = open_groups[shape]
            if len(group.inputs) >= MANY and group.made.isdisjoint(needed) and not needed & set(group.inputs):
                close(group)
        if shape not in open_groups:
            open_groups[shape] = Group(shape, program)
        open_groups[shape].add(instruction, is_sum=is_sum)
    for group in list(open_groups.values()):
        close(group)
    return program.replaced(kept)


def _is_large(instruction: Instruction, program: Program) -> bool:
    return type(instruction.out) is int and program.specs[instruction.out].size >= LARGE


def _shape(instruction: Instruction, program: Program, compiler: Any) -> tuple[tuple[int, ...] | None, bool]:
    """The shape of the group that an instruction may join, and whether it is a sum of one of its results."""
    if instruction.effect or type(instruction.out) is not int:
        return None, False
    specs = program.specs
    if compiler.is_sum(instruction):
        (k,) = instruction.inputs
        return (specs[k].shape, True) if specs[k].size >= LARGE else (None, False)
    spec = specs[instruction.out]
    if _is_large(instruction, program) and compiler.takes(instruction, specs):
        return spec.shape, False
    return None, False
