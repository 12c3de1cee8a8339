"""The rewrite driver: one walk over a program, in which rules replace calls by other calls, or by known values.

A rule is a function of the rewriter and of the arguments of a call, and stands in a table under the op's name:

>>> from tape_compile.rewrite import Rewriter, Rules
>>> rules = Rules()
>>> @rules.rewrite("exp")
... def exp_of_log(r: Rewriter, x: object) -> bool:
...     log = r.maker(x, "log")
...     return log is not None and r.replace_by(log.args[0])
>>> sorted(rules)
['exp']

It returns True where it has replaced the call, by :meth:`Rewriter.become` or :meth:`Rewriter.replace_by`, and False
where the call stays. `rules.run(program)` is the whole pass; docs/write-a-pass.md tells more. Rules see the program as
it is up to the call, earlier replacements included, so one walk in order is enough: what a rule emits is not visited
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tape_compile.program import VIEWS, Argument, Instruction, Program, Raw, Ref, Spec

if TYPE_CHECKING:
    from tape_core.backends import Backend

_TAKES_ANY_NUMBER = 0x04  # inspect.CO_VARARGS: the function has *args

F = TypeVar("F", bound=Callable[..., bool])


class Rule(NamedTuple):
    """A rewrite rule, and the calls that it is for.

    Attributes:
        function: what is called with the rewriter and the call's arguments.
        arity: how many positional arguments the call must have, or at least where the rule is `variadic`.
        keywords: the keyword arguments that the rule knows; a call with another one is not its.
        of_constant: whether it does nothing where both operands are values that change.
    """

    function: Callable[..., bool]
    arity: int
    variadic: bool
    keywords: frozenset[str]
    of_constant: bool

    def fits(self, instruction: Instruction) -> bool:
        """Return whether a call has the arguments that the rule knows."""
        given = len(instruction.args)
        if given != self.arity and not (self.variadic and given > self.arity):
            return False
        return not instruction.kwargs or self.keywords.issuperset(instruction.kwargs)


class Rules(dict[Hashable, list[Rule]]):
    """A table of rules, by the name of the op or operator, or by the function that is called."""

    def rewrite(self, *keys: Hashable, of_constant: bool = False) -> Callable[[F], F]:
        """A decorator that adds a rule under these keys; where there are several, the first that applies wins.

        Args:
            *keys: names of ops, or functions.
            of_constant: whether the rule needs a number or a constant among two operands. Calls of two values that
                change, which are nearly all, are then passed over without a call of the rule.
        """

        def add(function: F) -> F:
            code = function.__code__
            keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
            variadic = bool(code.co_flags & _TAKES_ANY_NUMBER)
            rule = Rule(function, code.co_argcount - 1, variadic, frozenset(keywords), of_constant)
            for key in keys:
                self.setdefault(key, []).append(rule)
            return function

        return add

    def run(self, program: Program) -> Program:
        """Return the program after one walk with these rules; the program itself if none applies."""
        return Rewriter(program).run(self)


class Builder:
    """New values and constants for a program that is being changed.

    Attributes:
        program: the program before.
        instruction: the call that is being replaced: new calls have its line of the user's code.
        emitted: the calls in its place, so far.
        specs, constants: those of the program, and of what is new. The program's own are copied before they change.
    """

    instruction: Instruction

    def __init__(self, program: Program) -> None:
        self.program = program
        self.specs: dict[int, Spec] = program.specs
        self.constants: dict[int, Raw] = program.constants
        self.emitted: list[Instruction] = []
        self._known: dict[Hashable, Ref] = {}
        self._next = -1

    def begin(self, instruction: Instruction) -> None:
        """Let calls that are emitted from now on stand in the place of this one."""
        self.instruction, self.emitted = instruction, []

    def new(self, spec: Spec) -> Ref:
        """Return a reference to a new value."""
        if self._next < 0:
            # A copy before the first change: other programs have the same dict.
            self.specs = dict(self.specs)
            self._next = max(self.specs, default=-1) + 1
        number = self._next
        self._next = number + 1
        self.specs[number] = spec
        return Ref(number)

    def constant(self, key: Hashable, make: Callable[[], Raw]) -> Ref:
        """Return an array that is the same in each call; one for each key, which `make` makes the first time."""
        found = self._known.get(key)
        if found is None:
            value = make()
            found = self._known[key] = self.new(Spec(type(value), tuple(value.shape), value.dtype))
            self.add_constants({found.id: value})
        return found

    def add_constants(self, constants: dict[int, Raw]) -> None:
        """Let values be constants."""
        if constants and self.constants is self.program.constants:
            self.constants = dict(self.constants)
        self.constants.update(constants)

    def call(self, name: str, fn: Callable[..., Raw], *args: Argument, spec: Spec, **kwargs: Argument) -> Ref:
        """Emit a call whose result has this spec, and return the result."""
        out = self.new(spec)
        self.emitted.append(Instruction(name, fn, args, kwargs, out.id, self.instruction.place))
        return out

    def become(self, name: str, fn: Callable[..., Raw], *args: Argument, **kwargs: Argument) -> bool:
        """Emit the call that gives the result of the one that is replaced. Always True, so that rules can return it."""
        given = self.instruction
        self.emitted.append(Instruction(name, fn, args, kwargs, given.out, given.place))
        return True

    def finish(self, instructions: list[Instruction], outputs: list[int] | None = None) -> Program:
        """Return the program of these instructions, with what is new."""
        return self.program.replace(instructions, outputs, constants=self.constants, specs=self.specs)


class Rewriter(Builder):
    """The argument of rules: the program up to the call, and the verbs to replace the call.

    Attributes:
        makers: by value the call that gives it, as it is in the new program.
    """

    backend: Backend | None

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.backend = program.backend
        self.makers: dict[int, Instruction] = {}
        self._replaced: dict[int, int] = {}

    # -- the walk

    def select(self, instruction: Instruction, rules: Rules) -> Sequence[Rule]:
        """Return the rules that may apply to a call: those under its name."""
        return rules.get(instruction.name, ())

    def run(self, rules: Rules) -> Program:
        """Return the program with each call replaced to which a rule applies; the program itself if there is none."""
        program, replaced, makers = self.program, self._replaced, self.makers
        select, refers_to_none = self.select, replaced.keys().isdisjoint
        kept: list[Instruction] = []
        changed = False
        for instruction in program.instructions:
            if replaced and not refers_to_none(instruction.inputs):
                instruction = instruction.substitute(replaced)
            candidates = select(instruction, rules)
            out = instruction.out
            if type(out) is int:
                if candidates and not instruction.effect and self._apply(instruction, candidates):
                    changed = True
                    kept += self.emitted
                    # Later rules see these calls, so that one rule builds on what another has made.
                    for call in self.emitted:
                        if type(call.out) is int:
                            makers[call.out] = call
                    continue
                makers[out] = instruction
            kept.append(instruction)
        return self.finish(kept, [replaced.get(k, k) for k in program.outputs]) if changed else program

    def _apply(self, instruction: Instruction, candidates: Sequence[Rule]) -> bool:
        inputs = instruction.inputs
        for rule in candidates:
            if rule.of_constant and len(inputs) == 2 and self.constants.keys().isdisjoint(inputs):
                continue
            if rule.fits(instruction):
                # It also drops what a rule has emitted that returned False in the end.
                self.begin(instruction)
                if rule.function(self, *instruction.args, **instruction.kwargs):
                    return True
        return False

    # -- questions

    @property
    def out(self) -> Spec:
        """The spec of the call's result."""
        return self.specs[self.instruction.out]

    @cached_property
    def uses(self) -> dict[int, int]:
        """The number of times that each value is needed in the program before, by calls and as a result."""
        uses: dict[int, int] = dict.fromkeys(self.program.outputs, 1)
        for instruction in self.program.instructions:
            for k in instruction.inputs:
                uses[k] = uses.get(k, 0) + 1
        return uses

    @cached_property
    def _inputs(self) -> frozenset[int]:
        return frozenset(self.program.inputs)

    @cached_property
    def _exposed(self) -> set[int]:
        """The values whose memory results of the program may have."""
        found = set(self.program.outputs)
        for instruction in reversed(self.program.instructions):
            if instruction.name in VIEWS and not found.isdisjoint(instruction.outputs):
                found.update(instruction.inputs[:1])
        return found

    def spec(self, x: Ref) -> Spec:
        """Return the class, shape and dtype of a value."""
        return self.specs[x.id]

    def maker(self, x: Argument, *names: str) -> Instruction | None:
        """Return the call that gives a value, if it has one of these names and no keyword arguments."""
        found = self.makers.get(x.id) if type(x) is Ref else None
        return found if found is not None and found.name in names and not found.kwargs else None

    def is_number(self, x: Argument, number: float) -> bool:
        """Return whether an argument is this number, or a constant that is so everywhere; for 0 it must not be -0."""
        found: float | None
        if type(x) is int or type(x) is float:
            found = x
        elif type(x) is Ref and x.id in self.constants:
            found = _number_everywhere(self.constants[x.id], self.specs[x.id])
        else:
            return False
        return found is not None and found == number and (number != 0 or math.copysign(1, found) > 0)

    # -- verbs

    def replace_by(self, x: Argument) -> bool:
        """Let a value stand for the call's result, if it has the same class, shape and dtype; whether it has.

        An input does not stand for a result of the program: its memory is the caller's, who may write to it later.
        """
        if type(x) is not Ref or self.specs[x.id] != self.out:
            return False
        is_view = self.instruction.name in VIEWS and self.instruction.name != "broadcast_to"  # which copies on NumPy
        if not is_view and x.id in self._inputs and self.instruction.out in self._exposed:
            return False
        self._replaced[self.instruction.out] = x.id
        return True


def _number_everywhere(constant: Raw, spec: Spec) -> float | None:
    """Return the number that is everywhere in a floating-point constant, if its strides show that; else None."""
    if spec.dtype is None or not spec.dtype_name.startswith("float"):
        return None
    strides = getattr(constant, "strides", None)
    if strides is None and callable(getattr(constant, "stride", None)):
        strides = constant.stride()  # PyTorch's way to say it
    if spec.shape and (strides is None or any(strides) or spec.size == 0):
        return None
    return float(constant[(0,) * len(spec.shape)] if spec.shape else constant)
