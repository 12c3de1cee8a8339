"""The joint trace: a function together with its derivative; see `entry.py`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple, NoReturn, Protocol
from weakref import ref

from tape_core import GradientTape, IndexedSlices, Tensor, Variable, random
from tape_core.staging import HostNumber, TracingError
from tape_core.support import ACTIVE, pytree, report_stage, setting, wrap
from tape_core.tracing import Capture, Closure, Cuts, Moment, flows_into, sweep, unrecorded

from tape_compile.cache_key import STATIC, TENSOR, Signature
from tape_compile.codegen.executable import check_first_run, compile_program, left_out
from tape_compile.codegen.source import Source
from tape_compile.compilers import Compiler, Run
from tape_compile.control_flow import FlowTrace
from tape_compile.methods import WeakMethod
from tape_compile.program import Program, Spec
from tape_compile.results import check_result, freeze_leaf, settled, warn_of_caught
from tape_compile.tracer.contexts import tracing
from tape_compile.tracer.traced_backend import tracing_backend
from tape_compile.under_tape.partition import partition

INPUT, DIFFERENTIABLE = (
    3,
    4,
)  # kinds of leaves of a result, besides STATIC and TENSOR: inputs that are returned, and results with a derivative


class Pattern(NamedTuple):
    """The pattern of cotangents that a derivative is compiled for.

    Attributes:
        masked: how far masks reach, as a tape says it.
        results: for each result with a derivative, whether it has a cotangent.
        inputs: for each input, whether it has a cotangent already, to which the derivative is added.
    """

    masked: int
    results: tuple[bool, ...]
    inputs: tuple[bool, ...]


class Derivative:
    """The code of a derivative, for one pattern.

    Attributes:
        slice_shapes: for each input None for no gradient, () for an array, or the dense shape of IndexedSlices.
        all_dense: whether the gradient of each input is an array.
        residuals: the places of the residuals that are its first inputs; the cotangents follow.
        source: the code as Python; run: that, or what a compiler made of the program.
    """

    source: Source
    run: Run

    def __init__(self, slice_shapes: list[Any], residuals: list[int]) -> None:
        self.slice_shapes = slice_shapes
        self.residuals = residuals
        self.all_dense = all(shape == () for shape in slice_shapes)


class Owner(Protocol):
    """The part of `UnderTape` that a joint trace uses."""

    name: str
    options: dict[str, bool]
    how: str | Compiler | None
    compiler: Compiler | None

    @property
    def function(self) -> Any:
        """The compiled function."""

    def on_missing_derivative(self, joint: Joint, pattern: Pattern) -> None:
        """A derivative was needed that is not compiled."""


def watches(tape: GradientTape, variable: Variable) -> bool:
    """Return whether a tape gives a Variable a slot when the Variable is read, or has done so."""
    return variable._inexact and (
        tape._key in variable._slots or id(variable) in tape._variables or (tape._watch_accessed and variable.trainable)
    )


class JointTrace(FlowTrace):
    """A run of a function that may be run again for a derivative: what cannot be run again ends it.

    Attributes:
        around: the Tensors from around the function that it has used.
        draws: whether it draws random numbers.
    """

    def __init__(self, name: str, options: Mapping[str, bool], tape: GradientTape, *, by_name: bool) -> None:
        super().__init__(name, options, by_name=by_name)
        self.outer_tensors: list[Tensor] = []
        self.draws = False
        self._tape = tape

    def refuse(self, what: str) -> NoReturn:
        """End the trace with an error: the function runs as plain Python inside tapes."""
        raise self.refusal(what)

    def refusal(self, what: str) -> TracingError:
        """Return the error with which `refuse` ends the trace."""
        return TracingError(f"{self.name} is called inside a tape's block and {what}")

    def on_outer_tensor(self, tensor: Tensor) -> None:
        """A Tensor from around the function is used: it must not be watched."""
        self.outer_tensors.append(tensor)

    def on_draw(self, generator: Any) -> None:
        """Random numbers are drawn."""
        if generator is not random.global_rng():
            self.refuse("draws from a generator of its own")
        self.draws = True

    def on_new_generator(self, generator: Any) -> None:
        """A generator is made."""
        self.refuse("makes a generator")

    def on_foreign_draw(self, what: str) -> None:
        """Another library draws, which cannot be made to draw the same again."""
        self.refuse(f"has {what} draw random numbers")

    def effect(self, name: str, fn: Callable[..., Any], args: Any, backend: Any) -> Any:
        """Add an effect, which must be a draw: any other would happen again when the derivative runs the function."""
        if name != "random_bits":
            self.refuse(f"calls {name}")
        return super().effect(name, fn, args, backend)

    def read(self, variable: Variable | HostNumber) -> Any:
        """A Variable is read; an optimizer's or a metric's number is not, whose state is none of the tape's."""
        if type(variable) is HostNumber:
            self.refuse(f"has the number {variable.name} of an optimizer, a metric or the like")
        return super().read(variable)

    def write(self, variable: Variable | HostNumber, array: Any) -> None:
        """A Variable is assigned; it must be there, and none that a derivative is asked for."""
        if isinstance(variable, HostNumber):
            self.read(variable)
            return
        if not self.holds(variable):
            self.refuse("makes a Variable")
        if watches(self._tape, variable):
            self.refuse("assigns to a Variable that the tape watches")
        super().write(variable, array)


def reachable_tensors(function: Callable[..., Any], arguments: Sequence[Any]) -> list[Tensor]:
    """Return the Tensors that a function can name: in its closure, module, defaults, and its arguments' attributes.

    It follows other functions of the same module. A Tensor that the tape around watches must not become a constant, so
    each later call checks these (`Joint.fits`).
    """
    found: list[Tensor] = []
    seen: set[int] = set()
    module = inspect.unwrap(function).__module__
    ahead = [function, *[value for a in arguments for value in getattr(a, "__dict__", {}).values()]]
    while ahead:
        value = ahead.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            found.append(value)
        elif hasattr(type(value), "__tape_tensor__"):
            ahead.append(value.__tape_tensor__())
        elif type(value) in (list, tuple, dict):
            ahead += value.values() if type(value) is dict else value
        elif type(value) in (MethodType, WeakMethod):
            ahead += [value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
        elif type(inner := inspect.unwrap(value)) is FunctionType and inner.__module__ == module:
            # `co_names` has the names of attributes, too. A Tensor too many is looked at in vain in each call; one too
            # few would be a constant without a gradient.
            ahead += [inner.__globals__[name] for name in inner.__code__.co_names if name in inner.__globals__]
            ahead += [cell.cell_contents for cell in inner.__closure__ or () if not _is_empty(cell)]
            ahead += inner.__defaults__ or ()
    # Variables are inputs of the code, and `fits` asks for each.
    return [t for t in found if not isinstance(t, Variable)]


def _is_empty(cell: CellType) -> bool:
    """Return whether the name has no value yet, as that of a function which is being defined."""
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


class Joint:
    """The compiled form of one joint trace: code for the call, and for the derivatives.

    Attributes:
        inputs: whether anything is watched, so that there is a derivative.
        tensors: the places of Tensors among the arguments.
        input_places: the places of the arguments that are inputs of the code; a watched Tensor only once.
        watched_places: the places of the watched arguments, each Tensor once.
        watched_ids: for each argument its place in `watched_places`, or None.
        variables: the Variables that are read, whose values are inputs after the arguments.
        assigned: the Variables that get new values, which are outputs after the result.
        differentiable_variables: the places in `variables` of those with a derivative.
        specs: shape and dtype of the results with a derivative.
        leading: the numbers of those results that others of them depend on.
        derivatives: the code by pattern; used: the patterns that calls had.
        outer_tensors: Tensors from around the function; it must be traced anew where a tape watches one of them.
        name, options: of the function; how, compiler: its compiler, None for Tape's own.
        source: the code of the call as Python; run: that, or what the compiler made of the program.
        age, recent: for the cache.
        gone: weak references whose callbacks drop the trace when an argument that it needs ends.
    """

    age = 0
    recent = False
    gone: Sequence[Any] = ()

    def __init__(
        self,
        owner: Owner,
        kind: Any,
        python: Callable[[list[Any]], Any],
        tape: GradientTape,
        signature: Signature,
        watched: Sequence[int | None],
        patterns: set[Pattern],
    ) -> None:
        self.owner = ref(owner)  # weak, since the owner keeps this object
        self.name = owner.name
        self.how, self.compiler = owner.how, owner.compiler
        compiler = owner.compiler
        self.options = owner.options
        self.kind = kind
        self.python = python
        self.watched_ids = watched
        self.tensors = [k for k, kind in enumerate(signature.kinds) if kind == TENSOR]
        self.input_places: list[int] = []
        self.watched_places: list[int] = []
        static = [leaf for leaf in signature.leaves if type(leaf) is not Tensor]
        self.used: set[Pattern] = set()
        self.derivatives: dict[Pattern, Derivative] = {}
        with unrecorded():
            self.outer_tensors = reachable_tensors(owner.function.python, static)
        trace = JointTrace(owner.name, owner.options, tape, by_name=compiler is not None and compiler.by_name)
        try:
            with tracing(trace):
                own, inputs, result = self._trace_forward(trace, tape, signature, watched)
                arrays = self._analyze_results(trace, result, own, inputs)
                self.inputs = bool(self.specs and inputs)
                if not self.specs and any([kind == INPUT for kind, *_ in self.outs]):
                    trace.refuse("gives back what it is given")
                if self.inputs:
                    self._compile(trace, own, inputs, arrays, tape, patterns)
                elif self.compiler is not None and arrays:
                    # The call is left to the code for calls outside of tapes: that must be one that there can be.
                    self.source = Source(trace.program(arrays), self.name)
                    self._compiled(self, self.source.program, trace)
        finally:
            trace.end()

    def _trace_forward(
        self, trace: JointTrace, tape: GradientTape, signature: Signature, watched: Sequence[int | None]
    ) -> tuple[GradientTape, dict[int, Any], Any]:
        """Run the function; return the tape that recorded it, the arrays of its inputs by slot, and the result."""
        # The caller's tape must get no records of traced arrays, of a run that is not its own.
        own = GradientTape(watch_accessed_variables=tape._watch_accessed)
        own._special = tape._special
        own._cuts = self.cuts = Cuts()
        own._variables = {name: (variable, ()) for name, (variable, _) in tape._variables.items()}
        unique: dict[int, Tensor] = {}
        leaves = list(signature.leaves)
        for k, (kind, number) in enumerate(zip(signature.kinds, watched, strict=True)):
            # Arguments that share a slot are one input with one gradient, as they are to the caller's tape.
            if kind == TENSOR and number in unique:
                leaves[k] = unique[number]
            elif kind == TENSOR:
                backend = tracing_backend(leaves[k].backend)
                leaves[k] = wrap(trace.input(leaves[k]._array, backend), backend)
                self.input_places.append(k)
                if number is not None:
                    own.watch(leaves[k])
                    unique[number] = leaves[k]
                    self.watched_places.append(k)
        given = [(leaves[k], leaves[k]._array) for k in self.tensors]
        closure = Closure()
        own._open = True  # it is in no block of its own, but records like one that is
        try:
            with setting(ACTIVE, (own, Capture(tape._key, closure))):
                result = settled(Moment(), lambda: self.python(leaves), trace.refusal, leaves)
        finally:
            own._open = False
        if any([leaf._array is not array for leaf, array in given]):
            trace.refuse("changes an argument")
        held = [h for h in trace.variable_states.values() if h.first is not None]
        self.variables = [h.variable for h in held]
        self.assigned = [h.variable for h in held if h.written]
        self.trainable = [(h.variable, h.trainable, watches(tape, h.variable)) for h in held]
        self.guards, self.draws = trace.guards, trace.draws
        self.outer_tensors += trace.outer_tensors
        self.masked, self.special = own._masked, own._special
        of_variables = {id(v._slots) for v in self.variables}
        if any([slots not in of_variables for slots in closure.found]):
            trace.refuse("uses a Tensor from around it that the tape knows")
        inputs = {t._slots[own._key]: t._array for t in unique.values()}
        self.differentiable_variables = [
            k for k, v in enumerate(self.variables) if own._variables.get(id(v), (v, ()))[1]
        ]
        for v in [self.variables[k] for k in self.differentiable_variables]:
            inputs[own._variables[id(v)][1][0]] = trace.variable_states[id(v)].first
        return own, inputs, result

    def _analyze_results(self, trace: JointTrace, result: Any, own: GradientTape, inputs: dict[int, Any]) -> list[Any]:
        """Return the arrays of the result, and keep in `outs` how to make its leaves from them."""
        check_result(trace.name, result)
        warn_of_caught(trace)
        leaves, self.structure = pytree.flatten_whole(result)
        arrays: list[Any] = []
        self.outs: list[
            tuple[int, Any, int]
        ] = []  # kind; backend, or the static leaf; number of the input or of the result with a derivative
        self._differentiable: dict[int, Tensor] = {}  # results with a derivative, by slot
        for leaf in leaves:
            if isinstance(leaf, IndexedSlices):
                trace.refuse("returns IndexedSlices")
            if not isinstance(leaf, Tensor) or isinstance(leaf, Variable):
                self.outs.append((STATIC, freeze_leaf(leaf), 0))
                continue
            slot, library = leaf._slots.get(own._key), leaf.backend.library
            if slot is None:
                self.outs.append((TENSOR, library, 0))
            elif slot in inputs:
                self.outs.append((INPUT, library, list(inputs).index(slot)))
            else:
                # Several leaves may be one result.
                self._differentiable.setdefault(slot, leaf)
                self.outs.append((DIFFERENTIABLE, library, list(self._differentiable).index(slot)))
            arrays.append(leaf._array)
        self.specs = tuple([(tuple(t._array.shape), t._array.dtype) for t in self._differentiable.values()])
        at = list(self._differentiable)
        self.leading = [k for k, slot in enumerate(at) if len(at) > 1 and flows_into(own, slot, at)]
        return arrays

    def _compile(
        self,
        trace: JointTrace,
        own: GradientTape,
        inputs: dict[int, Any],
        arrays: list[Any],
        tape: GradientTape,
        patterns: set[Pattern],
    ) -> None:
        """Trace the derivatives, partition the program, and generate the code."""
        if len(trace.backends) != 1:
            trace.refuse("computes with arrays of several backends")
        self.backend = next(iter(trace.backends))
        self.input_specs = tuple([(tuple(a.shape), a.dtype) for a in inputs.values()])
        self.cotangent_specs = (*self.specs, *self.input_specs)
        n, m, sizes = len(arrays), len(self.specs), []
        # The first guess: each result gets a cotangent, and no input has one before. Any other pattern is compiled
        # after a sweep has met it (`on_missing_derivative`).
        first = Pattern(max(self.masked, tape._masked), (True,) * m, (False,) * len(inputs))
        fitting = [p for p in patterns if (len(p.results), len(p.inputs)) == (m, len(inputs))]
        for pattern in sorted(fitting) or [first]:
            cotangents, found = self._trace_sweep(trace, own, inputs, pattern)
            new = [
                part._array
                for d in found
                for part in ((d.values, d.indices) if isinstance(d, IndexedSlices) else () if d is None else (d,))
            ]
            shapes = [None if d is None else d.dense_shape if isinstance(d, IndexedSlices) else () for d in found]
            self.derivatives[pattern] = Derivative(shapes, [])
            arrays += new
            sizes.append((cotangents, len(new)))
        self.sparse = any(
            [shape is not None and shape != () for d in self.derivatives.values() for shape in d.slice_shapes]
        )
        self.traced = program = trace.program(arrays)
        program.owned = {}  # derivatives may need the old value of a Variable
        # `trace.program` has the new values of Variables last; they belong to the call, so they follow its results.
        k = len(program.outputs) - len(self.assigned)
        program.outputs = [*program.outputs[:n], *program.outputs[k:], *program.outputs[n:k]]
        self.size = n + len(self.assigned)
        report_stage("passes")
        prepare = None if self.compiler is None else self.compiler.joined
        (forward, self.effects), backward = partition(
            program, self.size, sizes, self.options, left_out(self.compiler), prepare
        )
        self.source = Source(forward, self.name)
        self.run = self._compiled(self, forward, trace)
        for derivative, (part, needed) in zip(self.derivatives.values(), backward, strict=True):
            derivative.residuals = needed
            derivative.source = Source(part, f"{self.name}_derivative")
            derivative.run = self._compiled(derivative, part, trace)
        # What the library warns of is no matter of a compiler that calls none of its functions.
        by_name = self.compiler is not None and self.compiler.by_name
        library = None if by_name else forward.backend
        self.quiet: Callable[[], Any] = nullcontext if library is None else library.quiet
        # Its Tensors hold the trace, with all values of this run.
        del self._differentiable

    def _compiled(self, holder: Joint | Derivative, program: Program, trace: JointTrace) -> Run:
        """Return the function that runs a program for `holder`: its Python code, or what the compiler makes of it.

        Raises:
            ValueError, RuntimeError, TracingError: the compiler cannot take it; the function runs as plain Python then.
        """
        run = holder.source.run
        if self.compiler is None:
            return run
        examples = [trace.values[k] if k in trace.values else self._example(program.specs[k]) for k in program.inputs]
        code = compile_program(program, run, examples, self.name, self.how, self.compiler, (), trace.backends)
        owner = ref(holder)

        def keep(code: Run) -> None:
            if (found := owner()) is not None:
                found.run = code

        return check_first_run(code, run, program, self.name, self.how, keep)

    def _example(self, spec: Spec) -> Any:
        """Return an array like a residual."""
        if spec.dtype is None:
            return spec.kind()
        return self.backend.xp.zeros(tuple([max(n, 0) for n in spec.shape]), dtype=spec.dtype)

    def _trace_sweep(
        self, trace: JointTrace, own: GradientTape, inputs: dict[int, Any], pattern: Pattern
    ) -> tuple[int, list[Any]]:
        """Trace a sweep; return the number of cotangents that it starts from, and the gradient of each input."""
        seeds = {}
        arrays = [*[(slot, t._array) for slot, t in self._differentiable.items()], *inputs.items()]
        for (slot, array), given in zip(arrays, (*pattern.results, *pattern.inputs), strict=True):
            if given:
                backend = tracing_backend(self.backend)
                # Cotangents are inputs, on whose values no instruction may depend; so any value does for the trace.
                seeds[slot] = wrap(trace.input(self.backend.xp.ones_like(array.value), backend), backend)
        own._masked = own._starts_masked = pattern.masked
        # Not released: the next pattern goes through the same records.
        found = sweep(own, tracing_backend(self.backend), seeds, list(inputs), False, release=False)
        return len(seeds), [found.get(slot) for slot in inputs]

    @property
    def sources(self) -> list[Source]:
        """The code of the call, and of the derivatives."""
        return [self.source, *[derivative.source for derivative in self.derivatives.values()]]

    # -- in later calls

    def fits(self, tape: GradientTape) -> bool:
        """Return whether guards hold, Variables are watched and trainable as before, and no outer Tensor is watched."""
        read = tape._watch_accessed
        for variable, trainable, watched in self.trainable:
            if variable.trainable is not trainable:
                return False
            # Watched for certain is a trainable Variable under a tape that watches reads: nearly all, without a look.
            if not (watched and trainable and read) and watches(tape, variable) is not watched:
                return False
        if any([tape._key in tensor._slots for tensor in self.outer_tensors]):
            return False
        return all(get() == value for get, value in self.guards)

    def read(self, tape: GradientTape) -> None:
        """Tell a tape which Variables the call reads."""
        for variable in self.variables:
            if tape._key not in variable._slots:
                tape._on_read(variable)
