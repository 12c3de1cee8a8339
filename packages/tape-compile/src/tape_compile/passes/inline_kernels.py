"""Inlining: kernels that are written in terms of others become those, so that they are part of runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tape_core.backends import DEFAULT_KERNELS, WHOLE, Kernels
from tape_core.support import setting
from tape_core.tracing import STAGE

from tape_compile.passes.lower_kernels import Steps
from tape_compile.program import Instruction, Program, Spec, filled, renamed
from tape_compile.tracer.traced_array import TracedArray
from tape_compile.tracer.traced_backend import tracing_backend

if TYPE_CHECKING:
    from tape_core.backends import Backend

LARGE = 1 << 14  # elements: of smaller arrays a call of one kernel is as good


def inlining(program: Program) -> Program:
    """The program with what default kernels of large arrays call, where their code runs without a look at values.

    Not where that would take more memory: kernels let go at once of what is larger than all that they are given and
    give, windows and scores, and write into parts of arrays, which would be copies here.
    """
    backend = program.backend
    if backend is None or backend.compiler is None or program.largest < LARGE:
        return program
    steps = Steps(program)
    kept: list[Instruction] = []
    for instruction in program.instructions:
        kept += _inside(instruction, steps, backend)
    return Program(kept, program.inputs, steps.constants, program.outputs, steps.specs, backend)


def _inside(instruction: Instruction, steps: Steps, backend: Backend) -> list[Instruction]:
    """The calls inside a call of a default kernel; of another one the call itself."""
    fn, specs = instruction.fn, steps.specs
    if instruction.effect or type(fn) is not partial or len(fn.args) != 1 or type(fn.args[0]) is not Kernels:
        return [instruction]
    if fn.func not in DEFAULT_KERNELS.values():  # a rule for arrays of the backend, which sees that these are none
        return [instruction]
    if fn.func in WHOLE:
        return [instruction]
    largest = max([specs[k].size for k in (*instruction.inputs, *instruction.outputs)])
    if largest < LARGE:
        return [instruction]
    from tape_compile.tracer.trace import Trace

    trace = Trace(instruction.name)
    trace.trying = 1  # a decision by a value is no error of the user's
    numbers: dict[int, int] = {}
    inputs: dict[int, TracedArray] = {}

    for k in dict.fromkeys(instruction.inputs):
        inputs[k] = trace.input(_example(specs[k], backend), tracing_backend(backend))
        numbers[inputs[k].id] = k
    try:
        with setting(STAGE, trace), backend.quiet():
            kwargs = {name: filled(arg, inputs) for name, arg in instruction.kwargs.items()}
            found = fn.func(tracing_backend(backend).xp, *filled(instruction.args, inputs), **kwargs)
    except Exception:  # noqa: BLE001 - for other values it may do otherwise
        return [instruction]
    if any([spec.size > largest for spec in trace.specs.values()]) or any(
        [i.name == "setitem" for i in trace.instructions]
    ):
        return [instruction]
    results: dict[int, int] = {}
    if not _paired(found, instruction.out, results) or not results.keys().isdisjoint({*numbers, *trace.constants}):
        return [instruction]
    if any([trace.specs[k] != specs[number] for k, number in results.items()]):
        return [instruction]
    numbers.update(results)
    for k, spec in trace.specs.items():
        if k not in numbers:
            numbers[k] = steps.new(spec).id
    steps.constants.update({numbers[k]: value for k, value in trace.constants.items()})
    made = [
        Instruction(
            inner.name,
            inner.fn,
            renamed(inner.args, numbers),
            {name: renamed(arg, numbers) for name, arg in inner.kwargs.items()},
            _renumbered(inner.out, numbers),
            instruction.place,
            effect=inner.effect,
        )
        for inner in trace.instructions
    ]
    return [part for inner in made for part in _inside(inner, steps, backend)]


def _example(spec: Spec, backend: Backend) -> Any:
    """An array as it says."""
    array = backend.xp.ones(spec.shape, dtype=spec.dtype)
    return array if type(array) is spec.kind else array[()]


def _paired(found: Any, out: Any, results: dict[int, int]) -> bool:
    """Note for the traced arrays of a result which numbers they have outside; whether all is as it was."""
    if out is None:
        return True
    if type(out) is tuple:
        return isinstance(found, tuple | list) and len(found) == len(out) and all(
            [_paired(part, number, results) for part, number in zip(found, out, strict=True)]
        )  # fmt: skip
    if type(found) is not TracedArray or found.id in results:
        return False
    results[found.id] = out
    return True


def _renumbered(out: Any, numbers: dict[int, int]) -> Any:
    if type(out) is tuple:
        return tuple([_renumbered(part, numbers) for part in out])
    return None if out is None else numbers[out]
