"""Inlining: default kernels, which are written in terms of others, become those, so that they can be fused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tape_core.backends import DEFAULT_KERNELS, WHOLE, Kernels
from tape_core.support import setting
from tape_core.tracing import STAGE

from tape_compile import thresholds
from tape_compile.library import support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Out, Program, Raw, Spec, substitute
from tape_compile.rewrite import Builder
from tape_compile.tracer.traced_array import TracedArray
from tape_compile.tracer.traced_backend import tracing_backend

if TYPE_CHECKING:
    from tape_core.backends import Backend


@pass_(stage="lowering", after=["reassociate"])
def inline_kernels(program: Program) -> Program:
    """Replace calls of default kernels on large arrays by the calls inside them, where no value decides about these.

    Not where that would take more memory: kernels let go at once of what is larger than all that they are given and
    give, windows and scores, and write into parts of arrays, which would be copies here.
    """
    backend = program.backend
    if backend is None or support_of(program) is None or program.largest < thresholds.INLINE_MIN_ELEMENTS:
        return program
    builder = Builder(program)
    kept: list[Instruction] = []
    for instruction in program.instructions:
        kept += _inlined(instruction, builder, backend)
    return builder.finish(kept)


def _inlined(instruction: Instruction, builder: Builder, backend: Backend) -> list[Instruction]:
    """Return the calls that a default kernel makes; any other call is returned itself."""
    fn, specs = instruction.fn, builder.specs
    if instruction.effect or type(fn) is not partial or len(fn.args) != 1 or type(fn.args[0]) is not Kernels:
        return [instruction]
    if fn.func not in DEFAULT_KERNELS.values():  # a rule for arrays of the backend, which sees that these are none
        return [instruction]
    if fn.func in WHOLE:
        return [instruction]
    given = [specs[k] for k in (*instruction.inputs, *instruction.outputs)]
    largest = max([spec.size for spec in given])
    if largest < thresholds.INLINE_MIN_ELEMENTS or any([-1 in spec.shape for spec in given]):
        return [instruction]
    from tape_compile.tracer.trace import Trace

    # Traced on arrays of ones: by shapes alone, since a decision by values ends it and leaves the call whole.
    trace = Trace(instruction.name)
    trace.speculating = 1  # a decision by a value is no error of the user's
    numbers: dict[int, int] = {}  # by numbers of the inner trace those outside
    inputs: dict[int, TracedArray] = {}
    for k in dict.fromkeys(instruction.inputs):
        inputs[k] = trace.input(_example(specs[k], backend), tracing_backend(backend))
        numbers[inputs[k].id] = k
    try:
        with setting(STAGE, trace), backend.quiet():
            args, kwargs = instruction.arguments(inputs)
            found = fn.func(tracing_backend(backend).xp, *args, **kwargs)
    except Exception:  # noqa: BLE001 - for ones in all places it may fail, and not for the values of a call
        return [instruction]
    if any([spec.size > largest for spec in trace.specs.values()]) or any(
        [i.name == "setitem" for i in trace.instructions]
    ):
        return [instruction]
    results: dict[int, int] = {}
    # An argument or a constant that is given back has no call inside that could get the result's number.
    if not _pair(found, instruction.out, results) or not results.keys().isdisjoint({*numbers, *trace.constants}):
        return [instruction]
    if any([trace.specs[k] != specs[number] for k, number in results.items()]):
        return [instruction]
    numbers.update(results)
    for k, spec in trace.specs.items():
        if k not in numbers:
            numbers[k] = builder.new(spec).id
    builder.add_constants({numbers[k]: value for k, value in trace.constants.items()})
    made = [
        Instruction(
            inner.name,
            inner.fn,
            substitute(inner.args, numbers),
            {name: substitute(arg, numbers) for name, arg in inner.kwargs.items()},
            _renumber(inner.out, numbers),
            instruction.place,
            effect=inner.effect,
        )
        for inner in trace.instructions
    ]
    return [part for inner in made for part in _inlined(inner, builder, backend)]


def _example(spec: Spec, backend: Backend) -> Raw:
    """Return an array with this spec."""
    array = backend.xp.ones(spec.shape, dtype=spec.dtype)
    return array if type(array) is spec.kind else array[()]


def _pair(found: object, out: Out, results: dict[int, int]) -> bool:
    """Enter under the numbers of traced arrays in a result those outside; False where the result has another form."""
    if out is None:
        return True
    if isinstance(out, tuple):
        return isinstance(found, tuple | list) and len(found) == len(out) and all(
            [_pair(part, number, results) for part, number in zip(found, out, strict=True)]
        )  # fmt: skip
    if type(found) is not TracedArray or found.id in results:
        return False
    results[found.id] = out
    return True


def _renumber(out: Out, numbers: dict[int, int]) -> Out:
    if isinstance(out, tuple):
        return tuple([_renumber(part, numbers) for part in out])
    return None if out is None else numbers[out]
