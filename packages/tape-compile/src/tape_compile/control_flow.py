"""Branches and loops inside a compiled function: one instruction each, whose function runs programs of its own.

The functions that users pass to `cond`, `while_loop` and `scan` are traced on their own (`SubTrace`); values of the
trace around that they use are captured as further inputs. Their arguments and results are Tensors that may be batched,
by a vmap around: the instruction has the arrays underneath.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tape_core import Tensor, Variable, asarray
from tape_core.staging import HostNumber, TracingError, value_of
from tape_core.support import check_assignable, contextmanager, setting
from tape_core.tracing import (
    STAGE,
    Layers,
    Moment,
    RepeatedEffectError,
    base_of,
    both_layers,
    hidden_axes,
    in_layers,
    layers_of,
    note_uses,
    widened,
    will_run_again,
)

from tape_compile import passes
from tape_compile.codegen.source import Source
from tape_compile.control_flow_runtime import cond, scan, while_loop
from tape_compile.program import Program
from tape_compile.refusals import refuses
from tape_compile.tracer.trace import Trace
from tape_compile.tracer.traced_array import TRACED
from tape_compile.tracer.traced_backend import tracing_backend
from tape_compile.tracer.variable_state import VariableState

if TYPE_CHECKING:
    from tape_core.backends import Backend
    from tape_core.random import Generator

T = TypeVar("T")

Tensors = list[Any]
Test = Callable[[Tensors], Any]
Step = Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]


class FlowTrace(Trace):
    """A trace that records branches and loops as instructions: the one with which functions are traced.

    Attributes:
        options: passes that are left out, or asked for: the function's, which branches and loops have, too.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, bool],
        *,
        fallback: bool = False,
        parent: Trace | None = None,
        by_name: bool = False,
    ) -> None:
        super().__init__(name, fallback=fallback, parent=parent, by_name=by_name)
        self.options = options

    def attempt(self, call: Callable[[], T]) -> T | None:
        """Return what a call returns; None, and nothing of it in the trace, where it cannot be traced."""
        try:
            with self.speculation(), Moment().undone_on_error():
                return call()
        except (RepeatedEffectError, TracingError):
            return None

    def cond(self, predicate: Tensor, branches: Sequence[Any], operands: Tensors) -> Tensors | None:
        """Add a branch on flat lists of Tensors; None where it must be traced through instead."""
        return trace_cond(self, predicate, branches, operands)

    def while_loop(self, test: Test, step: Step, carry: Tensors, keep: bool) -> tuple[Any, Any, Any] | None:
        """Add a loop that runs while a test holds; None where it must be traced through instead."""
        return trace_while(self, test, step, carry, keep)

    def scan(
        self, step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool, keep: bool
    ) -> tuple[Any, Any, Any] | None:
        """Add a loop over the elements of arrays; None where it must be traced through instead."""
        return trace_scan(self, step, carry, xs, length, reverse, keep)


class SubTrace(FlowTrace):
    """The trace of a branch, test or step inside a compiled function; `captured` are its inputs after the arguments.

    Attributes:
        parent: the trace around.
        draws: whether random numbers are drawn.
        seeded: generators that are made.
        later: Variables that the step assigns further on, as a trace before this one has shown.
        asked: whether it mattered which Variables have been assigned.
    """

    parent: FlowTrace

    def __init__(self, parent: FlowTrace, *, repeats: bool, later: Sequence[Variable] = ()) -> None:
        super().__init__(parent.name, parent.options, fallback=parent.fallback, parent=parent)
        self.repeats = repeats
        self.later = later
        self.asked = False
        self.speculating = parent.speculating
        # The list itself, not a copy: a mode that a branch depends on is a condition of the whole trace.
        self.guards = parent.guards
        self.draws = False
        self.seeded: list[Any] = []
        self._rewound: dict[int, tuple[Any, Any]] = {}  # generators that are drawn from, and their states before

    def read(self, variable: Variable | HostNumber) -> Any:
        """Read a Variable, as a captured input: a loop's step may find another value each time."""
        if id(variable) not in self.variable_states:
            now = own = self.parent.read(variable)
            if type(now) in TRACED:
                own = self.input(now.value, now.backend)
                # The key has this trace, where `_capture` has the one around: a Variable's value gets a place of its
                # own among the captured, for a loop replaces it there from step to step (`Part.place`).
                self.captured[self, own.id] = now
            self.variable_states[id(variable)] = VariableState(variable, own, own)
        return super().read(variable)

    def write(self, variable: Variable | HostNumber, array: Any) -> None:
        """Assign to a Variable; one that is being made is made in the trace around."""
        if not self.holds(variable):
            self.parent.write(variable, value_of(array))
        else:
            # The outputs of a part must be values of this trace, so one from around is captured first.
            outer = type(array) in TRACED and array.made_in is not self
            super().write(variable, self._capture(array) if outer else array)

    def assigned_variables(self) -> list[Variable]:
        """Return the Variables to which the program has assigned so far, in steps before this one too."""
        self.asked = True
        found = super().assigned_variables()
        return [*found, *[v for v in self.later if not any([v is known for known in found])]]

    def holds(self, variable: Variable | HostNumber) -> bool:
        """Return whether a Variable exists, and is not just being made."""
        return id(variable) in self.variable_states or self.parent.holds(variable)

    def effect(self, name: str, fn: Callable[..., Any], args: Sequence[Any], backend: Backend) -> Any:
        """Add a call with an effect.

        Raises:
            TracingError: it is neither a draw nor a branch or loop: nobody knows how often it would run.
        """
        if name not in _DRAWING_EFFECTS and not isinstance(fn, Flow):
            raise TracingError(
                f"{self.name} is compiled, and {name} is called in a branch or a loop of it, of which it is not known "
                f"how often it runs: call it outside"
            )
        return super().effect(name, fn, args, backend)

    def on_outer_tensor(self, tensor: Tensor) -> None:
        """Tell the outermost trace of a Tensor from around the function."""
        self.parent.on_outer_tensor(tensor)

    def emit(self, name: str, fn: Callable[..., Any], args: Sequence[Any], backend: Backend) -> None:
        """Add an effect without a result; it does not run now, for the branch may not be taken.

        Raises:
            TracingError: a derivative is wanted, for which the branch or step would run once more.
        """
        if will_run_again():
            raise TracingError(
                f"{self.name} is compiled, and {name} is called in a branch or a loop of it, of which a derivative is "
                f"wanted: call it outside"
            )
        inputs: list[int] = []
        refs = tuple([self._split(arg, inputs)[1] for arg in args])
        self._append_instruction(name, fn, refs, {}, (), backend, inputs, effect=True)

    def on_new_generator(self, generator: Generator) -> None:
        """A generator is made: it draws the same numbers in each run."""
        self.seeded.append(generator)

    def on_draw(self, generator: Generator) -> None:
        """Random numbers are drawn, by a run that is none of the user's: `running` rewinds the generator.

        Raises:
            TracingError: a derivative would have to draw them again, for which this generator is not rewound.
        """
        from tape_core import random

        if generator is not random.global_rng() and generator not in self.seeded and will_run_again():
            raise TracingError(
                f"{self.name} is compiled, and a function inside a branch or loop, of which a derivative is wanted, "
                f"draws from a generator of its own: use tape_core.random.global_rng(), or draw outside"
            )
        self.draws = True
        self.parent.on_draw(generator)
        # Of the first draw only: later states are in the midst of this trace's own draws.
        self._rewound.setdefault(id(generator), (generator, generator._state))

    def on_foreign_draw(self, what: str) -> None:
        """Refuse draws of another library: this run is none of the user's, and a derivative would draw again.

        Raises:
            TracingError: always.
        """
        raise TracingError(
            f"{self.name} is compiled, and {what} draws random numbers in a branch or a loop of it, of which it is not "
            f"known how often it runs: draw outside, or use tape_core.dropout"
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context that is traced here, after which random numbers go on as if it had not been."""
        from tape_core import random

        seeded = random.global_rng()
        state = seeded._state
        try:
            with setting(STAGE, self):
                yield
        finally:
            for generator, before in self._rewound.values():
                generator._state = before
            seeded._state = state

    @property
    def assigned(self) -> list[Variable]:
        """The Variables to which is assigned.

        Raises:
            TracingError: one was made in this call, so that it is no input.
        """
        found = [held for held in self.variable_states.values() if held.written]
        if any([type(held.first) not in TRACED for held in found]):
            raise TracingError(f"{self.name} is compiled, and a branch or a loop makes a Variable and assigns to it")
        return [held.variable for held in found]

    def finish(self, results: Sequence[Any], variables: Sequence[Variable]) -> Program:
        """Close the trace; the outputs of the program are the results, and the values of Variables then."""
        # A loop that may be differentiated notes the generator's state at each step. Without draws the notes are left
        # out: they are effects, which no pass may drop, and they would make one of the whole loop.
        if not self.draws:
            self.instructions = [i for i in self.instructions if i.name not in _STATE_EFFECTS]
        outputs = [*results, *map(self.read, variables)]
        program = self.program(outputs)
        # `program` adds the new values of all Variables that this trace writes. A branch must give those of the other
        # branch's as well, which is what `variables` has: these replace them.
        del program.outputs[len(outputs) :]
        program.owned = {}  # the next step may need its inputs
        self.open = False
        return program


_STATE_EFFECTS = frozenset({"note_state_of_step", "set_state_of_step", "note_random_state", "set_random_state"})
_DRAWING_EFFECTS = _STATE_EFFECTS | {"random_bits", "seed_generator"}


class Part:
    """A branch, test or step inside a compiled function, as a program.

    Attributes:
        name: for the source.
        traced: the program before passes.
        options: the passes that are left out, or asked for.
        captured: the values of the trace around that are its last inputs.
        variables: the Variables whose values are its last results.
        results: the specs of all results.
        effect: whether it has instructions with effects; refuses: whether it may raise because of values.
    """

    def __init__(self, trace: SubTrace, name: str, results: Sequence[Any], variables: Sequence[Variable]) -> None:
        self.name = name
        self.traced = trace.finish(results, variables)
        self.captured = list(trace.captured.values())
        self.variables = list(variables)
        self._places = {name: k for k, name in enumerate(trace.captured)}
        self._trace = trace
        self.options = trace.options
        self.results = [self.program.specs[k] for k in self.program.outputs]
        self.effect = any(instruction.effect for instruction in self.program.instructions)
        # Asked once: dead code elimination asks again for each branch and loop, in each of its runs.
        self.refuses = refuses(self.program)

    def rewritten(self, program: Program) -> Part:
        """Return the part with another program, which captures the same values, and assigns to the same Variables."""
        found = copy(self)
        for name in ("program", "source"):
            vars(found).pop(name, None)
        found.traced = program
        found.results = [program.specs[k] for k in program.outputs]
        return found

    # Where a compiler takes the program, nobody asks for its source.
    @cached_property
    def program(self) -> Program:
        """The program after passes."""
        return passes.run(self.traced, self.options)[0]

    @cached_property
    def source(self) -> Source:
        """The program as Python."""
        return Source(self.program, self.name)

    def place(self, variable: Variable) -> int | None:
        """The place of a Variable's value among `captured`."""
        held = self._trace.variable_states.get(id(variable))
        return None if held is None else self._places[self._trace, held.first.id]

    def __call__(self, arrays: list[Any]) -> list[Any]:
        return list(self.source.run(arrays))


class Flow:
    """The function of an instruction that is a branch or a loop.

    Its last arguments are the captured values of each part, in order; its last results are the values of the Variables
    to which the last part assigns.

    Attributes:
        run: a function of `control_flow_runtime`: of the parts' code, of how many values each has captured, of
            settings, and of the arguments. parts: the branches, or the test and the step. settings: all arguments of
            `run` between the code and the arguments.
    """

    def __init__(self, run: Callable[..., Any], parts: Sequence[Part], settings: tuple[Any, ...] = ()) -> None:
        # The instruction, and so the function in the generated source, is called `cond`, `while_loop` or `scan`.
        self.__name__ = run.__name__
        self.run = run
        self.parts = list(parts)
        # First `sizes`: what all parts have captured comes in one row of arguments, which `run` cuts by them.
        self.settings = ([len(part.captured) for part in parts], *settings)

    @cached_property
    def _runs(self) -> list[Any]:
        return [part.source.run for part in self.parts]

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self.run(self._runs, *self.settings, *args)
        return found

    # Tracing continues with the results of a real call, so a branch runs for the values of the first call.
    def add_to(self, trace: Trace, args: Sequence[Any], backends: Sequence[Any]) -> list[Any]:
        """Add the instruction to a trace, and assign to Variables; returns traced arrays of these backends."""
        variables = self.parts[-1].variables
        for variable in variables:
            check_assignable(variable)
        backends = [*backends, *[variable.backend for variable in variables]]
        effect = any(part.effect for part in self.parts)
        if not backends and not effect:
            return []
        # Host numbers, such as an optimizer's count of steps, have no backend.
        first: Any = next((b for b in backends if b is not None), None)
        args = [*args, *[array for part in self.parts for array in part.captured]]
        if effect or first is None:
            found = list(trace.effect(self.__name__, self, args, first))
        else:
            found = list(trace.call(self.__name__, self, args, {}, first))
        # `call` gives all results one backend; those of a part may be of several, or numbers of none.
        for array, backend in zip(found, backends, strict=True):
            array.backend = backend
        n = len(found) - len(variables)
        for variable, array in zip(variables, found[n:], strict=True):
            # Without slots: to a tape an assigned value is a new one.
            variable._array, variable._slots = array, {}
        return found[:n]


# -- Tensors and the arrays underneath


def _traced(
    trace: FlowTrace,
    function: Callable[[Tensors], Tensors],
    given: Sequence[tuple[Any, Any, Layers]],
    *,
    repeats: bool,
    later: Sequence[Variable] = (),
) -> tuple[SubTrace, Tensors] | None:
    """Return a trace of a function of these arrays, with their backends and layers, and its results.

    None where the compiled function is given up, so that tracing goes on to no purpose.
    """
    sub = SubTrace(trace, repeats=repeats, later=later)
    # No warnings from a branch that may not be taken.
    moment = Moment()
    with sub.running(), given[0][1].quiet() if given else nullcontext(), moment.undone_on_error():
        outs = function([in_layers(sub.input(value, backend), backend, layers) for value, backend, layers in given])
        outs = moment.settled(
            outs,
            lambda what: TracingError(
                f"{trace.name} is compiled, and a branch or a step of a loop {what}: it is traced once, for all of its "
                f"runs. Return the new value as part of the result or of the carry"
            ),
        )
    if sub.failed is not None:
        trace.failed = trace.failed or sub.failed
        return None
    note_uses(outs)
    return sub, outs


def _part(sub: SubTrace, name: str, outs: Tensors, variables: Sequence[Variable]) -> Part:
    return Part(sub, name, [base_of(t)._array for t in outs], variables)


def _backends(tensors: Tensors) -> list[Any]:
    """Return the tracing backends of the arrays underneath."""
    return [tracing_backend(base_of(t).backend.library) for t in tensors]


def _arguments(tensors: Tensors) -> list[tuple[Any, Any, Layers]]:
    """Return the values of Tensors, their tracing backends, and their layers."""
    note_uses(tensors)
    return [(value_of((t := base_of(x))._array), tracing_backend(t.backend.library), layers_of(x)) for x in tensors]


# -- instructions


def trace_cond(trace: FlowTrace, predicate: Tensor, branches: Sequence[Any], operands: Tensors) -> Tensors | None:
    """Add a branch to a trace; None where the compiled function is given up."""
    # Both branches must give equally batched results: they are traced again until they do. So they are, once, where the
    # first gave numbers, whose dtypes are those of the other's results.
    wide: list[Layers] = []
    numbers = True
    while True:
        runs = []
        for branch in branches:
            if (run := _traced(trace, _widening(branch, wide), _arguments(operands), repeats=False)) is None:
                return None
            runs.append(run)
        yes, no = ([layers_of(t) for t in outs] for _, outs in runs)
        differ = numbers and [t.dtype for t in runs[0][1]] != [t.dtype for t in runs[1][1]]
        if yes == no and not differ:
            break
        numbers = numbers and not differ
        wide = [both_layers(a, b) for a, b in zip(yes, no, strict=True)]
    # Both branches return the values of the Variables that either assigns to: one that does not gives what it found.
    variables = list({id(v): v for sub, _ in runs for v in sub.assigned}.values())
    names = ("cond_true", "cond_false")
    parts = [_part(sub, name, outs, variables) for name, (sub, outs) in zip(names, runs, strict=True)]
    outs = runs[0][1]
    given = [base_of(predicate)._array, *[base_of(t)._array for t in operands]]
    arrays = Flow(cond, parts).add_to(trace, given, _backends(outs))
    return [in_layers(array, array.backend, layers) for array, layers in zip(arrays, yes, strict=True)]


def trace_while(trace: FlowTrace, test: Test, step: Step, carry: Tensors, keep: bool) -> tuple[Any, Any, Any] | None:
    """Add a loop with a test to a trace; None where the compiled function is given up.

    Returns:
        The carry, no results, and with `keep` the carries that the steps were given, along a new axis.

    Raises:
        TracingError: the test assigns to a Variable.
    """

    def tested(carry: Tensors) -> Tensors:
        found = test(carry)
        return [found if isinstance(found, Tensor) else asarray(found)]

    if trace.failed is not None:
        return None
    # The step comes first: it settles how the carry is batched, and the test is traced for that carry.
    loop = _trace_step(trace, "while_step", lambda carry: step(carry, [])[0], carry, [])
    later = [] if loop is None else _without_numbers(loop[0].variables)
    run = None if loop is None else _traced(trace, tested, _arguments(loop[1]), repeats=True, later=later)
    if loop is None or run is None:
        return None
    part, carry, outs = loop
    if run[0].assigned:
        v = run[0].assigned[0]
        raise TracingError(
            f"{trace.name} is compiled, and the test of a while_loop assigns to {v.name or 'a Variable'} of shape "
            f"{v.shape}"
        )
    until = _part(run[0], "while_test", run[1], [])
    # A step's new value of a Variable goes to where the step has captured it and, if the test reads it, to there too.
    assigned = [(part.place(v), until.place(v)) for v in part.variables]
    depths = [hidden_axes(layers_of(t)) for t in outs]
    flow = Flow(while_loop, [until, part], (depths, keep, assigned, *_kernels(outs, "stack", "zeros")))
    return _loop_results(trace, flow, carry, [], outs, keep)


def trace_scan(
    trace: FlowTrace, step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool, keep: bool
) -> tuple[Any, Any, Any] | None:
    """Add a loop over elements to a trace; None where the compiled function is given up.

    Returns:
        The carry, the results, and with `keep` the carries that the steps were given, along a new axis.
    """
    if trace.failed is not None:
        return None
    n = len(carry)

    def flat(values: Tensors) -> Tensors:
        carry, ys = step(values[:n], values[n:])
        return [*carry, *ys]

    # In raw arrays the hidden axes of vmaps come first, so elements lie along the one that follows them.
    axes = [hidden_axes(layers_of(x)) for x in xs]
    elements = []
    for (value, backend, layers), axis in zip(_arguments(xs), axes, strict=True):
        xp = backend.library.xp
        shape = (*value.shape[:axis], *value.shape[axis + 1 :])
        # The step is traced for the first element. Without elements zeros stand for it: results have shapes all the
        # same.
        if trace.stand_ins is not None:
            first = trace.stand_ins.of(trace.stand_ins.evaluate(xp.empty, (shape,), {"dtype": value.dtype}))
        else:
            first = xp.unstack(value, axis=axis)[0] if length else xp.zeros(shape, dtype=value.dtype)
        elements.append((first, backend, layers))
    loop = _trace_step(trace, "scan_step", flat, carry, elements)
    if loop is None:
        return None
    part, carry, outs = loop
    specs = [(spec.shape, spec.dtype) for spec in part.results[n : len(outs)]]
    depths = [hidden_axes(layers_of(t)) for t in outs]
    assigned = [part.place(v) for v in part.variables]
    kernels = _kernels([*xs, *outs], "unstack", "stack", "zeros")
    flow = Flow(scan, [part], (n, axes, specs, depths, length, reverse, keep, assigned, *kernels))
    return _loop_results(trace, flow, carry, xs, outs, keep)


def _trace_step(
    trace: FlowTrace, name: str, function: Callable[[Tensors], Tensors], carry: Tensors, elements: list[Any]
) -> tuple[Part, Tensors, Tensors] | None:
    """Return a loop's step as a part, the carry before the first step, and a step's results.

    The carry has to be batched before a step if it is so after one: so it is widened until both agree. Likewise a call
    that is given what the step has assigned is given what it assigns later, since it runs after that in the next step.
    """
    later: list[Variable] = []
    # This ends: a carry only gains hidden axes, and at most those of the vmaps around.
    while True:
        wide = [layers_of(t) for t in carry]
        run = _traced(trace, _widening(function, wide), [*_arguments(carry), *elements], repeats=True, later=later)
        if run is None:
            return None
        sub, outs = run
        assigned = _without_numbers(sub.assigned)
        if sub.asked and len(assigned) > len(later):
            later = assigned
            continue
        layers = [layers_of(t) for t in outs[: len(carry)]]
        if layers == wide:
            return _part(sub, name, outs, sub.assigned), carry, outs
        carry = [widened(t, both_layers(w, one)) for t, w, one in zip(carry, wide, layers, strict=True)]


def _without_numbers(holders: Sequence[Any]) -> list[Variable]:
    return [holder for holder in holders if not isinstance(holder, HostNumber)]


def _widening(function: Callable[[Tensors], Tensors], wide: list[Layers]) -> Callable[[Tensors], Tensors]:
    """Return the function with these layers for its first results, at least."""

    def run(values: Tensors) -> Tensors:
        outs = function(values)
        n = len(wide)
        return [*[widened(t, both_layers(layers_of(t), w)) for t, w in zip(outs, wide, strict=False)], *outs[n:]]

    return run


def _loop_results(
    trace: FlowTrace, flow: Flow, carry: Tensors, xs: Tensors, outs: Tensors, keep: bool
) -> tuple[Tensors, Tensors, Tensors]:
    n, m = len(carry), len(outs)
    like = [*outs, *outs[:n]] if keep else outs
    arrays = flow.add_to(trace, [base_of(t)._array for t in (*carry, *xs)], _backends(like))
    # The length of a scan is fixed by the cache key; how many steps a test allows is not.
    if keep and flow.run is while_loop:
        trace.mark_unknown_length([array.id for array in arrays[m:]])
    found = [in_layers(array, array.backend, layers_of(t)) for array, t in zip(arrays, like, strict=True)]
    return found[:n], found[n:m], found[m:]


def _kernels(tensors: Tensors, *names: str) -> list[Any]:
    """Return functions of the library of some arrays, by name; None for each where there are no arrays.

    Raises:
        TracingError: the arrays are of several libraries.
    """
    libraries = {backend.library.name: backend.library for backend in _backends(tensors)}
    if len(libraries) > 1:
        raise TracingError(
            f"a loop in a compiled function has arrays of the backends {' and '.join(libraries)}; convert them to one "
            f"with tape_core.asarray(x, backend=...)"
        )
    if not libraries:
        return [None] * len(names)
    xp = next(iter(libraries.values())).xp
    return [getattr(xp, name) for name in names]
