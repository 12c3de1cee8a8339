"""Inlining: kernels that are written in terms of others become those, so that they are part of runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tape_core.backends.kernels import DEFAULT_KERNELS, Kernels
from tape_core.backends.traced import TRACE, TracedArray
from tape_core.compiled.passes.expansion import Steps
from tape_core.compiled.program import Instruction, Program, Ref, Spec, renamed

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

LARGE = 1 << 14  # elements: of smaller arrays a call of one kernel is as good


def inlining(program: Program) -> Program:
    """The program with what default kernels of large arrays call, where their code runs without a look at values."""
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
    if max([specs[k].size for k in (*instruction.inputs, *instruction.outputs)]) < LARGE:
        return [instruction]
    from tape_core.compiled.trace import Trace

    trace = Trace(instruction.name)
    trace.trying = 1  # a decision by a value is no error of the user's
    numbers: dict[int, int] = {}
    inputs: dict[int, TracedArray] = {}

    def given(arg: Any) -> Any:
        if type(arg) is tuple or type(arg) is list:
            return type(arg)([given(part) for part in arg])
        if type(arg) is not Ref:
            return arg
        if arg.id not in inputs:
            inputs[arg.id] = trace.input(_example(specs[arg.id], backend), backend.traced)
            numbers[inputs[arg.id].id] = arg.id
        return inputs[arg.id]

    token = TRACE.set(trace)
    try:
        with backend.quiet():
            args, kwargs = given(instruction.args), {name: given(arg) for name, arg in instruction.kwargs.items()}
            found = fn.func(backend.traced.xp, *args, **kwargs)
    except Exception:  # noqa: BLE001 - for other values it may do otherwise
        return [instruction]
    finally:
        TRACE.reset(token)
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
