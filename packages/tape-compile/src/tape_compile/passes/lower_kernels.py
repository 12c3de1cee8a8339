"""Expansion: a call of a kernel becomes the calls of the array library that it consists of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from tape_compile.program import Instruction, Program, Ref, Spec


class Steps:
    """The calls that stand for one instruction, as a backend's compiler writes them.

    Attributes:
        instruction: the one.
        made: the calls so far.
        specs, constants: those of the program; they grow with the calls.
    """

    def __init__(self, program: Program) -> None:
        self.specs: dict[int, Spec] = dict(program.specs)
        self.constants: dict[int, Any] = dict(program.constants)
        self.made: list[Instruction] = []
        self._program = program
        self.instruction: Instruction
        self._known: dict[Any, Ref] = {}
        self._next = max(self.specs, default=-1) + 1

    @cached_property
    def makers(self) -> dict[int, Instruction]:
        """By value the instruction of the program that gives it."""
        return {call.out: call for call in self._program.instructions if type(call.out) is int}

    def constant(self, key: Any, make: Callable[[], Any]) -> Ref:
        """An array that is the same in each call; one for each key."""
        found = self._known.get(key)
        if found is None:
            value = make()
            found = self._known[key] = self.new(Spec(type(value), tuple(value.shape), value.dtype))
            self.constants[found.id] = value
        return found

    def call(self, name: str, fn: Any, *args: Any, spec: Spec, **kwargs: Any) -> Ref:
        """One more call, of a result with this spec."""
        out = self.new(spec)
        self.made.append(Instruction(name, fn, args, kwargs, out.id, self.instruction.place))
        return out

    def last(self, name: str, fn: Any, *args: Any, **kwargs: Any) -> None:
        """The call that gives what the instruction does."""
        given = self.instruction
        self.made.append(Instruction(name, fn, args, kwargs, given.out, given.place))

    def new(self, spec: Spec) -> Ref:
        """One more value."""
        number = self._next
        self._next = number + 1
        self.specs[number] = spec
        return Ref(number)


def expansion(program: Program) -> Program:
    """The program with calls of the array library for kernels of which the backend knows how.

    So two kernels share what they have in common, and sums inside of them end runs of elementwise calls.
    """
    compiler = None if program.backend is None else program.backend.compiler
    if compiler is None:
        return program
    expansions = {id(fn): expand for fn in program.functions if (expand := compiler.expansion(fn)) is not None}
    if not expansions:
        return program
    steps = Steps(program)
    kept: list[Instruction] = []
    found = False
    for instruction in program.instructions:
        known = id(instruction.fn) in expansions and not instruction.effect and type(instruction.out) is int
        # What loops of any length give has another shape in another call.
        if known and not any([-1 in program.specs[k].shape for k in instruction.inputs]):
            steps.instruction, steps.made = instruction, []
            if expansions[id(instruction.fn)](steps, *instruction.args, **instruction.kwargs):
                kept += steps.made
                found = True
                continue
        kept.append(instruction)
    if not found:
        return program
    return Program(kept, program.inputs, steps.constants, program.outputs, steps.specs, program.backend)
