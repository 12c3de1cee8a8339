"""Levels of a program: which calls XLA computes together, and which the host makes before and after that.

Calls that only compute have no place of their own in the order of a program: they are moved together as far as what
they depend on allows. Calls with effects keep their order among each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tape_compile.extend import Flow, Instruction, NoteState, Program, RandomBits, SetState

from tape_jax.xla.flows import can_lower, generators_of, program_of
from tape_jax.xla.lowering import GLOBAL, function_by_name


class Level(NamedTuple):
    """Calls for the host, then calls that XLA computes."""

    on_host: list[Instruction]
    computed: list[Instruction]


def divide(program: Program) -> list[Level]:
    """Return the levels of a program."""
    levels = _divided(program, tokens=True)
    if not _tokens_fit(levels):
        levels = _divided(program, tokens=False)
    return levels


def _divided(program: Program, *, tokens: bool) -> list[Level]:
    made: dict[int, tuple[int, bool]] = {}  # by the number of a value its level, and whether XLA computes it
    on_host: list[list[Instruction]] = [[]]
    computed: list[list[Instruction]] = [[]]
    last_effect, last_draw = 0, -1
    for instruction in program.instructions:
        by_xla = _is_for_xla(instruction, program, tokens=tokens)
        at = [made[k] for k in instruction.inputs if k in made]
        level = max([k if not of_xla or by_xla else k + 1 for k, of_xla in at], default=0)
        if by_xla:
            if instruction.effect:
                level = last_draw = max(level, last_effect, last_draw)
        elif instruction.effect:
            # The host may draw random numbers as well: after those that XLA has drawn before.
            level = last_effect = max(level, last_effect, last_draw + 1)
        while len(computed) <= level:
            on_host.append([])
            computed.append([])
        (computed if by_xla else on_host)[level].append(instruction)
        made.update(dict.fromkeys(instruction.outputs, (level, by_xla)))
    return [Level(*pair) for pair in zip(on_host, computed, strict=True)]


def _is_for_xla(instruction: Instruction, program: Program, *, tokens: bool) -> bool:
    fn = instruction.fn
    if type(fn) is RandomBits:
        return True
    if type(fn) in (NoteState, SetState):
        return tokens
    numbers: Iterable[int] = (*instruction.inputs, *instruction.outputs)
    if any([-1 in program.specs[k].shape for k in numbers]):
        return False
    if type(fn) is Flow:
        return can_lower(fn)
    if instruction.effect:
        return False
    # A Python number is computed by Python, which has it to the last bit.
    if any([program.specs[k].dtype is None for k in instruction.outputs]):
        return False
    return function_by_name(instruction.name, fn) is not None


def _tokens_fit(levels: list[Level]) -> bool:
    """Return whether each state of a generator that is set was noted on the same level."""
    noted: dict[int, int] = {}
    for at, level in enumerate(levels):
        for instruction in level.computed:
            fn = instruction.fn
            if type(fn) is NoteState:
                noted[id(fn.token)] = at
            elif type(fn) is SetState and noted.get(id(fn.token), at) != at:
                return False
    return True


def blocks_drawn(instructions: list[Instruction]) -> dict[object, int] | None:
    """Return by generator how many blocks calls draw; None where that depends on values, or on what is set."""
    found: dict[object, int] = {}
    for instruction in instructions:
        fn = instruction.fn
        if type(fn) is RandomBits:
            key = GLOBAL if fn.generator is None else fn.generator
            found[key] = found.get(key, 0) + fn.draw.blocks
        elif type(fn) is SetState or (type(fn) is Flow and any([generators_of(program_of(part)) for part in fn.parts])):
            return None
    return found
