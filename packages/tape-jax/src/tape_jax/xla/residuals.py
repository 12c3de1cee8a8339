"""Residuals of scans: a scan does not compute again what an earlier one has computed in its step for the same element.

The derivative of a scan is another scan, of which each step gets the carry that went into the step, and runs it again.
Here the earlier scan gives what the later one would compute in this way as further results, one for each step, as a
function gives its residuals; so does `jax.lax.scan`. Cheap calls, which XLA does on the way, are still made twice.

Equal values have equal numbers, by the function that makes them and the numbers of its arguments (value numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple

from tape_compile.extend import VIEWS, Flow, Instruction, Program, Ref, Spec, literal_key

StepOf = Callable[[Instruction], "Program | None"]
"""Return the program of the step of a call that is a scan for XLA, and None for any other call."""

_CHEAP = VIEWS | frozenset({
    "abs", "add", "equal", "greater", "greater_equal", "isfinite", "isinf", "isnan", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "maximum", "minimum", "multiply", "negative", "not_equal", "ones_like",
    "pos", "sign", "signbit", "square", "subtract", "tril", "triu", "where", "zeros_like",
})  # fmt: skip
"""Names of calls that XLA makes while it computes what needs them, in less time than it takes to read their results."""


def with_residuals(program: Program, step_of: StepOf) -> Program:
    """Return a program whose scans take from earlier ones what these have computed for the same elements."""
    steps = {at: step for at, call in enumerate(program.instructions) if (step := step_of(call)) is not None}
    if len(steps) < 2:
        return program
    pass_ = _Pass(program)
    for at, step in steps.items():
        pass_.visit(at, step)
    return pass_.finished()


class _Source(NamedTuple):
    """What gives a value for each step.

    Attributes:
        at: the place of the scan in the program. value: the number of the value in the program of its step.
    """

    at: int
    value: int


class _Scan:
    """A scan that is being changed.

    Attributes:
        step: the program of its step. arguments: of the call. numbers: by value of the step its number.
        n: the length of the carry. length: the number of steps.
        axes, specs, depths: see `tape_compile.control_flow_runtime.scan`.
        outs: by result of the call its value. saved: further results, the values of the step.
    """

    def __init__(self, instruction: Instruction, step: Program, program: Program) -> None:
        flow: Any = instruction.fn
        sizes, n, axes, specs, depths, length, _, self.keeps, self.assigned, *_ = flow.settings
        self.instruction, self.flow, self.n = instruction, flow, n
        self.step = step
        self.arguments = list(instruction.args)
        self.captured = len(self.arguments) - sizes[0]
        self.axes, self.specs, self.depths = list(axes), list(specs), list(depths)
        self.outs: list[Any] = list(instruction.out)
        elements = self.arguments[n : self.captured]
        if elements:
            length = program.specs[elements[0].id].shape[self.axes[0]]
        self.length: int = length
        self.numbers: dict[int, int] = {}

    @property
    def stacks(self) -> Iterable[tuple[Any, int, int]]:
        """Each result of the call that has a row for each step: the result, its axis, and the value of the step."""
        n, k = self.n, self.n + len(self.specs)
        outputs, inputs = self.step.outputs, self.step.inputs
        yield from zip(self.outs[n:k], self.depths[n:], outputs[n:k], strict=False)
        if self.keeps:
            yield from zip(self.outs[k : k + n], self.depths[:n], inputs[:n], strict=False)

    def give(self, value: int, out: int) -> None:
        """Let the values that the steps compute be a further result of the call."""
        k = self.n + len(self.specs)
        spec = self.step.specs[value]
        outputs = self.step.outputs
        self.step = self.step.replace(self.step.instructions, [*outputs[:k], value, *outputs[k:]])
        self.outs.insert(k, out)
        self.specs.append((spec.shape, spec.dtype))
        self.depths.append(0)

    def take(self, taken: dict[int, tuple[int, int]], kept: list[Instruction]) -> None:
        """Let values of the step be elements of arrays, each with its axis, and leave only these calls in the step."""
        inputs = self.step.inputs
        at = self.captured
        step = self.step.replace(kept)
        step.inputs = [*inputs[:at], *taken, *inputs[at:]]
        self.step = step
        self.arguments[at:at] = [Ref(number) for number, _ in taken.values()]
        self.axes += [axis for _, axis in taken.values()]
        self.captured += len(taken)

    def changed(self) -> Instruction:
        """Return the call as it is now."""
        _, n, _, _, _, length, reverse, keep, assigned, *kernels = self.flow.settings
        part: Any = self.flow.parts[0].rewritten(self.step)
        part.by_name, part.for_xla = self.step, None  # it is simplified already
        settings = (n, self.axes, self.specs, self.depths, length, reverse, keep, assigned, *kernels)
        flow = Flow(self.flow.run, [part], settings)
        given = self.instruction
        return Instruction(given.name, flow, tuple(self.arguments), given.kwargs, tuple(self.outs), given.place)


class _Pass:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.specs = dict(program.specs)
        self.scans: dict[int, _Scan] = {}
        self.changed: set[int] = set()
        self._numbers: dict[Hashable, int] = {}
        self._stacked: dict[tuple[int, int], int] = {}  # by array and axis, the number of its elements
        self._varying: set[int] = set()  # numbers of values that are not the same in all steps
        self._made: dict[tuple[int, int], _Source] = {}  # by the number of steps, and the number of a value
        self._arrays: dict[tuple[int, int], tuple[int, int]] = {}  # the same, to an array and the axis of its elements

    def _number(self, key: Hashable) -> int:
        try:
            return self._numbers.setdefault(key, len(self._numbers))
        except TypeError:  # an argument without a hash: the value is equal to none
            return self._new()

    def _new(self) -> int:
        return self._number(object())

    def visit(self, at: int, step: Program) -> None:
        """Let a scan take what earlier ones have computed."""
        scan = self.scans[at] = _Scan(self.program.instructions[at], step, self.program)
        self._number_inputs(scan)
        for call in scan.step.instructions:
            self._number_results(scan, call)
        self._take(at, scan)
        for call in scan.step.instructions:
            for k in call.outputs:
                self._made.setdefault((scan.length, scan.numbers[k]), _Source(at, k))
        for out, axis, value in scan.stacks:
            if type(out) is int and value in scan.numbers:
                self._note_array(scan.length, scan.numbers[value], out, axis)

    def _note_array(self, length: int, number: int, array: int, axis: int) -> None:
        self._stacked[array, axis] = number
        self._arrays.setdefault((length, number), (array, axis))

    def _number_inputs(self, scan: _Scan) -> None:
        n, numbers = scan.n, scan.numbers
        for k, constant in scan.step.constants.items():
            numbers[k] = self._number(("constant", id(constant)))
        inputs = scan.step.inputs
        for k in inputs[:n]:
            numbers[k] = self._new()
            self._varying.add(numbers[k])
        for k, array, axis in zip(inputs[n : scan.captured], scan.arguments[n : scan.captured], scan.axes, strict=True):
            known = self._stacked.get((array.id, axis))
            numbers[k] = self._number(("element", array.id, axis)) if known is None else known
            self._varying.add(numbers[k])
            if known is None:
                self._note_array(scan.length, numbers[k], array.id, axis)
        for place, (k, given) in enumerate(zip(inputs[scan.captured :], scan.arguments[scan.captured :], strict=True)):
            if type(given) is Ref and place not in scan.assigned:
                numbers[k] = self._number(("value", given.id))
            else:
                numbers[k] = self._new()
                self._varying.add(numbers[k])

    def _number_results(self, scan: _Scan, call: Instruction) -> None:
        numbers = scan.numbers
        outputs = call.outputs
        if call.effect:
            found = [self._new() for _ in outputs]
        else:
            key = self._key(call, numbers)
            found = [self._number((key, place)) for place in range(len(outputs))]
        numbers.update(zip(outputs, found, strict=True))
        if call.effect or not self._varying.isdisjoint([numbers[k] for k in call.inputs]):
            self._varying.update(found)

    def _key(self, call: Instruction, numbers: dict[int, int]) -> Hashable:
        fn = call.fn
        function: Hashable = fn
        if type(fn) is partial:
            function = fn.func, literal_key(fn.args), tuple(sorted(fn.keywords.items()))
        kwargs = tuple([(name, literal_key(value)) for name, value in call.kwargs.items()])
        return call.name, function, literal_key(call.args), kwargs, tuple([numbers[k] for k in call.inputs])

    def _take(self, at: int, scan: _Scan) -> None:
        """Replace what the step needs, and an earlier scan has, by elements of arrays."""
        needed = set(scan.step.outputs)
        taken: dict[int, _Source | None] = {}
        kept: list[Instruction] = []
        for call in reversed(scan.step.instructions):
            outputs = [k for k in call.outputs if k in needed]
            if not outputs and not call.effect:
                continue
            sources = [self._source(scan, call, k) for k in outputs]
            if outputs and not call.effect and all(sources):
                taken.update(zip(outputs, sources, strict=True))
            else:
                needed.update(call.inputs)
                kept.append(call)
        if not taken:
            return
        kept.reverse()
        arrays: dict[int, tuple[int, int]] = {}
        for k, source in sorted(taken.items()):
            number = scan.numbers[k]
            known = self._arrays.get((scan.length, number))
            if known is None:
                assert source is not None
                known = self._give(source, scan.length), 0
                self._note_array(scan.length, number, *known)
            arrays[k] = known
        scan.take(arrays, kept)
        self.changed.add(at)

    def _source(self, scan: _Scan, call: Instruction, value: int) -> _Source | None:
        """Return where a value comes from that an earlier scan should give; None where it is made here."""
        number = scan.numbers[value]
        if call.name in _CHEAP or number not in self._varying or scan.step.specs[value].dtype is None:
            return None
        source = self._made.get((scan.length, number))
        if source is not None and any([source.value in values for values in self.scans[source.at].step.recomputed]):
            return None
        return source

    def _give(self, source: _Source, length: int) -> int:
        """Let a scan give a value of its steps, and return the array of them."""
        scan = self.scans[source.at]
        spec = scan.step.specs[source.value]
        out = max(self.specs) + 1
        self.specs[out] = Spec(spec.kind, (length, *spec.shape), spec.dtype)
        scan.give(source.value, out)
        self.changed.add(source.at)
        return out

    def finished(self) -> Program:
        """Return the program with the scans as they are now."""
        if not self.changed:
            return self.program
        instructions = list(self.program.instructions)
        for at in self.changed:
            instructions[at] = self.scans[at].changed()
        return self.program.replace(instructions, specs=self.specs)
