"""Branches and loops of a program as those of XLA: `jax.lax.cond`, `while_loop` and `scan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from tape_compile.extend import Flow, Instruction, NoteStateOfStep, Program, RandomBits, SetStateOfStep, passes
from tape_core.typing import Raw

from tape_jax.xla.lowering import GLOBAL, STATE_CALLS, Lowering, as_spec, function_by_name, is_uniform, on_host
from tape_jax.xla.masks import with_fewer_masks
from tape_jax.xla.residuals import with_residuals
from tape_jax.xla.simplify import simplified
from tape_jax.xla.sorts import with_fewer_sorts
from tape_jax.xla.transfer import into, jax_dtype

if TYPE_CHECKING:
    from tape_compile.extend import Spec
    from tape_core.random import Generator


def for_xla(program: Program) -> Program:
    """Return a program for XLA that computes the same by fewer calls; so do its branches and loops."""
    found = with_fewer_masks(with_fewer_sorts(_shared(program)))
    if found is not program:
        renamed = dict(zip(program.outputs, found.outputs, strict=True))
        found.updates = {k: renamed[out] for k, out in program.updates.items()}
        found.replaced = program.replaced
        found.deferrable = frozenset([renamed[out] for out in program.deferrable])
    return found


def program_of(part: Any) -> Program:
    """Return the program of a branch, test or step as XLA gets it."""
    found: Program | None = getattr(part, "for_xla", None)
    if found is None:
        part.for_xla = found = with_fewer_masks(with_fewer_sorts(_shared_of(part)))
    return found


def step_of(call: Instruction) -> Program | None:
    """Return the program of the step of a call that is a scan for XLA, which Python can run; else None."""
    fn = call.fn
    if type(fn) is not Flow or fn.__name__ != "scan" or call.effect or not can_lower(fn):
        return None
    return _shared_of(fn.parts[0])


def _shared_of(part: Any) -> Program:
    found: Program | None = getattr(part, "by_name", None)
    if found is None:
        traced, _ = passes.run(part.traced, part.options, passes.NOT_BY_NAME)
        part.by_name = found = _shared(traced)
    return found


def _shared(program: Program) -> Program:
    """Return the simplified program, whose scans take from earlier ones what these have computed."""
    return with_residuals(simplified(program), step_of)


def can_lower(flow: Flow) -> bool:
    """Return whether XLA can run a branch or a loop: nothing in it calls the host, or has a row for each step."""
    if flow.__name__ == "while_loop" and flow.settings[2]:
        return False  # it keeps the carries of an unknown number of steps
    for part in flow.parts:
        program = program_of(part)
        if any([-1 in spec.shape for spec in program.distinct_specs]):
            return False
        for instruction in program.instructions:
            fn = instruction.fn
            if type(fn) is Flow:
                if not can_lower(fn):
                    return False
            elif instruction.effect:
                if type(fn) is not RandomBits and type(fn) not in STATE_CALLS:
                    return False
                if type(fn) in (NoteStateOfStep, SetStateOfStep) and flow.__name__ != "scan":
                    return False
            elif function_by_name(instruction.name, fn) is None:
                return False
    return True


def generators_of(program: Program) -> dict[int | Generator, None]:
    """Return the keys of the generators that a program draws from, also in branches and loops."""
    found: dict[int | Generator, None] = {}
    for instruction in program.instructions:
        fn = instruction.fn
        if type(fn) is RandomBits:
            found[GLOBAL if fn.generator is None else fn.generator] = None
        elif type(fn) in STATE_CALLS:
            found[GLOBAL] = None
        elif type(fn) is Flow:
            for part in fn.parts:
                found |= generators_of(program_of(part))
    return found


class FlowLowering(Lowering):
    """The values of a program that may have branches and loops."""

    def flow(self, flow: Flow, args: Sequence[Raw]) -> list[Raw]:
        """Return the results of a branch or a loop; generators go on in `states`."""
        return lower_flow(self, flow, args)


class PartLowering(FlowLowering):
    """The values of a branch, test or step."""

    def __init__(self, outer: Lowering, program: Program, given: Sequence[Raw], states: dict[Any, Any]) -> None:
        values = {**constants_of(program), **dict(zip(program.inputs, given, strict=True))}
        super().__init__(program, values, states, outer.name)
        self.tokens = dict(outer.tokens)
        self.noted: dict[int, tuple[Any, Any]] = {}  # by the id of a dict of states, a step and the state there

    def note_step(self, states: dict[int, Any], step: Raw) -> None:
        """Note the state at this step."""
        self.noted[id(states)] = step, self.states[GLOBAL]


def constants_of(program: Program) -> dict[int, Any]:
    """Return the constants of a program as arrays for JAX."""
    found = {}
    for k, value in program.constants.items():
        convert = into(program.specs[k])
        array = value if convert is None else convert(value)
        if isinstance(array, np.ndarray):
            # JAX reads a NumPy array that is a constant of its program at any time later.
            array = np.array(array)
        elif is_uniform(known := on_host(array)):
            array = known
        found[k] = array
    return found


def _number(value: Raw, spec: Spec) -> Raw:
    """Return a carried value with the dtype of its spec; that of a Python number is weak."""
    if spec.dtype is not None:
        return as_spec(value, spec)
    return lax.convert_element_type(value, spec.kind)


class _Runner:
    """A part as a function of values and states; both come back."""

    def __init__(self, outer: Lowering, part: Any, keys: Sequence[Any]) -> None:
        self.outer = outer
        self.part = part
        self.program = program_of(part)
        self.keys = keys

    def __call__(self, given: Sequence[Raw], states: Sequence[Raw]) -> tuple[list[Any], list[Any], PartLowering]:
        known = dict(zip(self.keys, states, strict=True))
        lowering = PartLowering(self.outer, self.program, given, known)
        lowering.run(self.program.instructions)
        outs = [_number(lowering.values[k], self.program.specs[k]) for k in self.program.outputs]
        return outs, [lowering.states[key] for key in self.keys], lowering


def lower_flow(lowering: Lowering, flow: Flow, args: Sequence[Raw]) -> list[Any]:
    """Return the results of a branch or a loop; generators go on in `lowering.states`."""
    keys = list(dict.fromkeys([key for part in flow.parts for key in generators_of(program_of(part))]))
    states = [lowering.states[key] for key in keys]
    lower = {"cond": _cond, "while_loop": _while_loop, "scan": _scan}[flow.__name__]
    found, states = lower(lowering, flow, [_Runner(lowering, part, keys) for part in flow.parts], args, states)
    lowering.states.update(zip(keys, states, strict=True))
    return found


def results_of(flow: Flow, args: Sequence[Any]) -> list[tuple[tuple[int, ...], Any]]:
    """Return the shape and dtype of each result of a branch or a loop, which `lower_flow` would return."""
    found = [(spec.shape, jax_dtype(spec.kind, spec.dtype)) for spec in flow.parts[-1].results]
    if flow.__name__ != "scan":
        return found
    sizes, n, axes, ys, depths, length, _, keep, *_ = flow.settings
    if len(args) - sizes[0] > n:
        length = args[n].shape[axes[0]]
    m = n + len(ys)
    of_steps = [
        ((*shape[:depth], length, *shape[depth:]), dtype)
        for (shape, dtype), depth in zip(found[:m], depths, strict=True)
    ]
    return [*found[:n], *of_steps[n:], *(of_steps[:n] if keep else []), *found[m:]]


Lowered = tuple[list[Any], list[Any]]


def _cond(lowering: Lowering, flow: Flow, parts: list[_Runner], args: Sequence[Raw], states: list[Raw]) -> Lowered:
    sizes = flow.settings[0]
    predicate, *rest = args
    n = len(rest) - sum(sizes)
    given, captured = rest[:n], rest[n:]
    yes, no = parts

    def run(part: _Runner, values: Sequence[Raw], states: Sequence[Raw]) -> Lowered:
        outs, states, _ = part(values, states)
        return outs, states

    predicate = jnp.reshape(jnp.asarray(predicate) != 0, ())
    found: Lowered = lax.cond(
        predicate,
        lambda given, captured, states: run(yes, [*given, *captured[: sizes[0]]], states),
        lambda given, captured, states: run(no, [*given, *captured[sizes[0] :]], states),
        given,
        captured,
        states,
    )
    return found


def _input_specs(part: _Runner) -> list[Any]:
    return [part.program.specs[k] for k in part.program.inputs]


def _while_loop(
    lowering: Lowering, flow: Flow, parts: list[_Runner], args: Sequence[Raw], states: list[Raw]
) -> Lowered:
    sizes, _, _, assigned, *_ = flow.settings
    test, step = parts
    n = len(args) - sum(sizes)
    of_test, of_step = list(args[n : n + sizes[0]]), list(args[n + sizes[0] :])
    specs = _input_specs(step)
    carry = [_number(value, spec) for value, spec in zip(args[:n], specs, strict=False)]
    # Values of Variables that a step replaces are carried, too.
    held = [_number(of_step[k], specs[n + k]) for k, _ in assigned]

    def captured(held: Sequence[Raw]) -> tuple[list[Any], list[Any]]:
        for_test, for_step = list(of_test), list(of_step)
        for (k, j), value in zip(assigned, held, strict=True):
            for_step[k] = value
            if j is not None:
                for_test[j] = value
        return for_test, for_step

    def holds(values: tuple[Any, ...]) -> Any:
        carry, held, states = values
        outs, _, _ = test([*carry, *captured(held)[0]], states)
        return jnp.reshape(jnp.asarray(outs[0]) != 0, ())

    def run(values: tuple[Any, ...]) -> tuple[Any, ...]:
        carry, held, states = values
        # The test may draw as well: it has drawn before this step, from the same state.
        _, states, _ = test([*carry, *captured(held)[0]], states) if test_draws else ((), states, None)
        outs, states, _ = step([*carry, *captured(held)[1]], states)
        return outs[:n], outs[n:], states

    test_draws = bool(generators_of(test.program))
    carry, held, states = lax.while_loop(holds, run, (carry, held, states))
    if test_draws:  # the last test, which ends the loop
        _, states, _ = test([*carry, *captured(held)[0]], states)
    return [*carry, *held], states


def _scan(lowering: Lowering, flow: Flow, parts: list[_Runner], args: Sequence[Raw], states: list[Raw]) -> Lowered:
    sizes, n, axes, ys_specs, depths, length, reverse, keep, assigned, *_ = flow.settings
    (step,) = parts
    at = len(args) - sizes[0]
    specs = _input_specs(step)
    carry = [_number(value, spec) for value, spec in zip(args[:n], specs, strict=False)]
    of_step = list(args[at:])
    held = [_number(of_step[place], specs[at + place]) for place in assigned]
    xs = [jnp.moveaxis(x, axis, 0) for x, axis in zip(args[n:at], axes, strict=True)]
    if xs:
        length = xs[0].shape[0]
    m = n + len(ys_specs)
    noted: list[int] = []

    def run(values: tuple[Any, ...], elements: Sequence[Any]) -> tuple[Any, Any]:
        carry, held, states = values
        captured = list(of_step)
        for place, value in zip(assigned, held, strict=True):
            captured[place] = value
        outs, states, inner = step([*carry, *elements, *captured], states)
        noted[:] = inner.noted
        steps = [(jnp.asarray(k), state) for k, state in inner.noted.values()]
        return (outs[:n], outs[m:], states), (outs[n:m], list(carry) if keep else [], steps)

    (carry, held, states), (ys, kept, steps) = lax.scan(run, (carry, held, states), xs, length=length, reverse=reverse)
    for key, (numbers, found) in zip(noted, steps, strict=True):
        lowering.tokens[key] = jnp.zeros_like(found).at[numbers].set(found)
    ys = [jnp.moveaxis(y, 0, depth) for y, depth in zip(ys, depths[n:], strict=False)]
    kept = [jnp.moveaxis(x, 0, depth) for x, depth in zip(kept, depths[:n], strict=False)]
    return [*carry, *ys, *kept, *held], states
