"""The compiler `xla`: what a program computes becomes functions of `jax.jit`; what only the host can do stays Python.

A program is divided into levels (`levels.py`): on each, the calls for the host come first, and then everything that XLA
computes, as one function. Nearly all programs have one level: they are that function, after Python code of what the
host does, such as counting an optimizer's steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tape_compile.extend import BRANCHES, EFFECTS, NUMBERS, Compiler, Flow, Instruction, Program, Ref, Run, Source
from tape_core.support import deferred, forget_in_children, picking
from tape_core.typing import Raw

import tape_jax.xla.transfer as transfer
from tape_jax.xla.flows import for_xla, generators_of, program_of, step_of
from tape_jax.xla.levels import Level, divide
from tape_jax.xla.residuals import with_residuals
from tape_jax.xla.segment import Segment
from tape_jax.xla.stand_ins import StandIns


class XLA(Compiler):
    """The compiler `xla`, for the arrays of every backend."""

    supports = frozenset({EFFECTS, NUMBERS, BRANCHES})
    by_name = True
    under_tape = True
    stand_ins = StandIns()

    def compile(self, program: Program, run: Run, examples: Sequence[Raw]) -> Run:
        """Return a function that runs the program by XLA.

        Raises:
            TracingError: XLA cannot take an instruction, named with the user's line.
            ValueError: an array is on a device of PyTorch's.
        """
        transfer.check_devices(examples)
        return compiled(for_xla(program), run, examples, "the function")

    def joined(self, program: Program) -> Program:
        """Return a program whose scans take from earlier ones what these have computed for the same elements."""
        return with_residuals(program, step_of)

    def serialized(self, program: Program, name: str, derivatives: int) -> bytes:
        """Return the program as StableHLO, in the format of `jax.export`.

        Raises:
            ValueError: it draws random numbers, or has calls for the host.
        """
        program = for_xla(program)
        levels = divide(program)
        host = [i.name for level in levels for i in level.on_host]
        if host or len(levels) > 1:
            raise ValueError(
                f"export: {name} has calls for the host, which are no part of XLA's program: {host[0]}. Callbacks are "
                f"such, and what is computed with Python's numbers that change, as optimizers count their steps: "
                f"export the function that returns the gradients, and apply them outside"
            )
        numbers = [k for k in program.inputs if program.specs[k].dtype is None]
        if numbers or generators_of(program):
            what = "has Python numbers that change" if numbers else "draws random numbers"
            raise ValueError(f"export: {name} {what}, which cannot be in a file: give them as arguments")
        return Segment(program, levels[0].computed, program.inputs, program.outputs, name).serialized(derivatives)


def compiled(program: Program, run: Run, examples: Sequence[Raw] | None, name: str) -> Run:
    """Return a function that runs a program by XLA, and as Python in a forked child, where XLA's threads are gone."""
    levels = divide(program)
    if not any([level.computed for level in levels]):
        return run
    if len(levels) == 1:
        alone = _Alone(program, levels[0], run, name)
        alone.segment.trace(None if levels[0].on_host else examples)
        return alone
    return _Mixed(program, levels, run, name)


_child = False


def _on_fork() -> None:
    global _child
    _child = True


forget_in_children(_on_fork)


class _Alone:
    """A program that is one function of XLA, after Python code of the calls for the host, if there are any.

    Attributes:
        takes_host_data: whether inputs of JAX may be NumPy's arrays: nothing but XLA has them.
        takes_variables: whether XLA may be given the memory of Variables.
        deferred: the places of outputs that are deferred values, in groups; see `tape_core.engine.deferred`.
    """

    __name__ = "xla"

    def __init__(self, program: Program, level: Level, run: Run, name: str) -> None:
        self._run = run
        inputs, constants = program.inputs, program.constants
        self._host: Run | None = None
        for_host: list[int] = []
        on_host: list[int] = []  # the numbers of what the host makes
        if level.on_host:
            wanted = {*program.outputs, *[k for i in level.computed for k in i.inputs]}
            on_host = [k for k in dict.fromkeys([k for i in level.on_host for k in i.outputs]) if k in wanted]
            used = {k for i in level.on_host for k in i.inputs}
            host = program.replace([_on_host(i, name) for i in level.on_host], outputs=on_host)
            host.inputs, host.owned = [k for k in inputs if k in used], {}
            for_host = [at for at, k in enumerate(inputs) if k in used]
            self.source = Source(host, name)
            self._host = self.source.run
            used = {k for i in level.computed for k in i.inputs}
            taken = [k for k in (*inputs, *on_host) if k in used]
        else:
            taken = inputs
        known = [*inputs, *on_host]
        outputs = [k for k in dict.fromkeys(program.outputs) if k not in {*known, *constants}]
        # What is the new value of a Variable and nothing else, whose old value nothing but XLA needs.
        counts, needed = Counter(program.outputs), {*program.outputs, *[inputs[at] for at in for_host]}
        olds = {o: i for i, o in program.updates.items() if o in program.deferrable and i in taken and i not in needed}
        deferrable = [k for k in outputs if k in olds and counts[k] == 1]
        self.segment = Segment(program, level.computed, taken, outputs, name, program.replaced, deferrable)
        groups = [[outputs[at] for at in group] for group in self.segment.deferred]
        self.deferred = [[program.outputs.index(k) for k in group] for group in groups]
        self._may_be_deferred = [[inputs.index(olds[k]) for k in group] for group in groups]
        # An output that is an input is the array that was given, as in Python; a constant is the constant.
        kept = [k for k in dict.fromkeys(program.outputs) if k in known]
        self._for_host = picking(for_host)
        self._taken = picking([known.index(k) for k in taken])
        self._kept = picking([known.index(k) for k in kept])
        self._is_whole = program.outputs == outputs
        # The outputs in one list: what was given, what XLA makes, and constants. They are picked from it by one call of
        # C, since a program that trains may have hundreds.
        named = [k for k in dict.fromkeys(program.outputs) if k not in {*kept, *outputs}]
        self._constants = [constants[k] for k in named]
        place_of = {k: at for at, k in enumerate([*kept, *outputs, *named])}
        places = [place_of[k] for k in program.outputs]
        self._pick = picking(places)
        self._plain = self.segment.plain if self._host is None else None
        arrays = {k for k in inputs if program.specs[k].dtype is not None}
        used = {*program.outputs, *[k for i in level.on_host for k in i.inputs]}
        self.takes_variables = self.segment.takes_variables
        self.takes_host_data = self.segment.native and not arrays & used

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        if _child and not self.segment.native:
            return self._run(deferred.settled(arrays, self._may_be_deferred))
        given = tuple(arrays)
        arrays.clear()
        plain = self._plain  # what JAX has made, where nothing else is left to do
        if plain is not None:
            kept = self._kept(given)
            found = plain([], self.segment.large, *given)[0]
        else:
            if self._host is None:
                kept = self._kept(given)
            else:
                known = given + self._host([*self._for_host(given)])
                kept = self._kept(known)
                given = self._taken(known)
                del known  # there is one reference to each argument from here, as the segment counts them
            if self.segment.whole is not None:
                found = self.segment.whole([], self.segment.large, given)[0]
            elif self.segment.takes_variables:
                arrays.append(_Begun(kept))
                found = self.segment.call_into(arrays, given)
            else:
                found = self.segment(*given)
        return self._all(kept, found)

    def _all(self, kept: Sequence[Raw], found: Sequence[Raw]) -> tuple[Any, ...]:
        if self._is_whole:
            return tuple(found)
        return self._pick((*kept, *found, *self._constants))

    def finished(self, arrays: list[Any]) -> tuple[Any, ...] | None:
        """Return the outputs of a call that something has ended, if XLA had made them; `arrays` is the list it got."""
        if len(arrays) != 2 or type(arrays[0]) is not _Begun:
            return None
        kept, made = arrays
        return self._all(kept, self.segment.results(made))


class _Begun(list[Any]):
    """The outputs of a call that XLA does not make, before what XLA makes."""


class _Mixed:
    """A program of several levels: Python code, in which each function of XLA is one instruction."""

    __name__ = "xla"

    def __init__(self, program: Program, levels: Sequence[Any], run: Run, name: str) -> None:
        instructions: list[Instruction] = []
        self.segments: list[Segment] = []
        wanted = {*program.outputs, *[k for level in levels for i in level.on_host for k in i.inputs]}
        uses = [{k for i in level.computed for k in i.inputs} for level in levels]
        for at, level in enumerate(levels):
            instructions += [_on_host(i, name) for i in level.on_host]
            if not level.computed:
                continue
            made = {k: None for i in level.computed for k in i.outputs}
            inputs = dict.fromkeys(
                [k for i in level.computed for k in i.inputs if k not in made and k not in program.constants]
            )
            later = wanted.union(*uses[at + 1 :])
            outputs = [k for k in made if k in later]
            segment = Segment(program, level.computed, list(inputs), outputs, name)
            self.segments.append(segment)
            args = tuple([Ref(k) for k in inputs])
            instructions.append(
                Instruction("xla", segment, args, {}, tuple(outputs), level.computed[0].place, effect=True)
            )
        mixed = program.replace(instructions)
        mixed.owned = {}
        self._run = run
        self.source = Source(mixed, name)
        for segment in self.segments:
            segment.trace(None)
        arrays = {k for k in program.inputs if program.specs[k].dtype is not None}
        used = {*program.outputs, *[k for level in levels for i in level.on_host for k in i.inputs]}
        self.takes_host_data = all([segment.native for segment in self.segments]) and not arrays & used

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        if _child and not any([segment.native for segment in self.segments]):
            return self._run(arrays)
        return self.source.run(arrays)


def _on_host(instruction: Instruction, name: str) -> Instruction:
    """Return an instruction for the host; a loop there has steps that XLA computes."""
    fn = instruction.fn
    if type(fn) is not Flow:
        return instruction
    looped = _HostFlow(fn, name)
    return Instruction(instruction.name, looped, instruction.args, instruction.kwargs, instruction.out,
                       instruction.place, effect=True)  # fmt: skip


class _HostFlow:
    """A branch or a loop that Python runs, with parts that are compiled at their first run."""

    def __init__(self, flow: Flow, name: str) -> None:
        self.__name__ = flow.__name__
        self.flow = flow
        self._programs = [program_of(part) for part in flow.parts]
        self._name = name
        self._runs: list[Run] = []

    def __call__(self, *args: Any) -> Any:
        if not self._runs:
            self._runs = [
                compiled(program, part.source.run, None, self._name)
                for program, part in zip(self._programs, self.flow.parts, strict=True)
            ]
        return self.flow.run(self._runs, *self.flow.settings, *args)
