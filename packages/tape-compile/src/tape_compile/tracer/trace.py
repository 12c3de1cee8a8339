"""The trace: the instructions that one run of a Python function makes through kernels, operators and Variables.

Values are computed while they are recorded, as in PyTorch's eager mode and unlike in `jax.make_jaxpr`: so the first
call is also a run, and Python may depend on values that are constants of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from tape_core import Tensor, Variable
from tape_core.backends import backend_of_type
from tape_core.staging import HostNumber, TracedValue, TracingError, value_of
from tape_core.support import SCALARS, Commit, contextmanager, deciding_frame, set_all, user_frame, wrap
from tape_core.tracing import BINDINGS, NO_SLOTS, on_change

from tape_compile import thresholds
from tape_compile.compilers import NeedsValues
from tape_compile.effects import Effects
from tape_compile.frozen import frozen
from tape_compile.program import NEVER_OVERWRITTEN, VIEWS, Argument, Instruction, Place, Program, Raw, Ref, Spec
from tape_compile.tracer.contexts import outside
from tape_compile.tracer.kernels import MAYBE_SHAPED_BY_VALUES, VALUE_FREE, shaped_by_values
from tape_compile.tracer.late_updates import Compute, LateUpdates, recorded_formulas
from tape_compile.tracer.traced_array import (
    NO_KWARGS,
    PLAIN,
    TRACED,
    TRUTH,
    TracedArray,
    TracedNumber,
    expose_attributes,
    is_array,
    raise_leak,
)
from tape_compile.tracer.traced_backend import tracing_backend
from tape_compile.tracer.variable_state import Bindings, VariableState, real_place, tracing_backend_of

if TYPE_CHECKING:
    from tape_core.backends import Backend
    from tape_core.random import Generator

    from tape_compile.compilers import StandIns

Outputs: TypeAlias = Any
"""The result of a kernel: an array, a nested tuple or list with arrays, or a value without, such as a dtype."""

Snapshot: TypeAlias = tuple[int, int, dict[int, Any]]
"""The state of a trace: the numbers of instructions and guards, and the values of Variables."""

_new = object.__new__


class Trace(Effects):
    """One run of a function that is being compiled.

    Args:
        name: the function's name in messages.
        fallback: whether the run goes on as plain Python where it depends on a value; `failed` is the error then.
        parent: the trace around this one, if this one is of a branch or a loop.
        by_name: whether the calls must have a meaning by their names alone, for another library (`Compiler.by_name`).
    """

    def __init__(
        self, name: str, *, fallback: bool = False, parent: Trace | None = None, by_name: bool = False
    ) -> None:
        self.parent = parent
        self.stand_ins: StandIns | None = None if parent is None else parent.stand_ins
        self.by_name: bool = by_name if parent is None else parent.by_name
        self.fixed_shapes = self.by_name  # another library's compiler computes, as XLA
        # Bindings around the function are inputs, as Variables are; those made inside belong to the program.
        self.bindings: Bindings = BINDINGS.get() if parent is None else parent.bindings
        self.captured: dict[tuple[Trace, int], TracedArray] = {}  # values of the traces around, by their ids there
        self.name = name
        self.fallback = fallback
        self.failed: TracingError | None = None
        # By lines of the user's that have caught the error that a value is needed, what it has said.
        self.caught: dict[str, str] = {} if parent is None else parent.caught
        self.notes: dict[object, Any] = {}
        self.repeats = False
        self.open = True
        self.speculating = 0  # depth of attempts which, where they need a value, become one opaque instruction
        self.instructions: list[Instruction] = []
        self.inputs: list[int] = []
        self.values: dict[int, Any] = {}  # of the inputs, in this run
        self.constants: dict[int, Any] = {}
        self.known: set[int] = set()  # constants and values computed from them alone: Python may depend on these
        self.specs: dict[int, Spec] = {}  # by value id; ids count up from 0
        self.recomputed_values: list[range] = []  # no derivative is to keep them
        self.unknown_length: set[int] = set()  # values whose length may differ between calls
        self.variable_states: dict[int, VariableState] = {}
        self.donated: dict[int, int] = {}  # arguments that may be overwritten: their places to value ids
        self.donates_variables = False  # whether old values of Variables may be overwritten by a compiler
        self.guards: list[tuple[Callable[[], Any], Any]] = []
        self.late_updates: LateUpdates | None = None
        self._capture_inputs: dict[tuple[Trace, int], TracedArray] = {}
        self.backends: set[Backend] = set()
        self._constant_refs: dict[int, Ref] = {}
        self._places: dict[tuple[int, int], tuple[Any, Place]] = {}  # by code object and the offset in it
        self._interned_places: dict[Place, Place] = {}  # one object for each equal place
        self._pinned_place: Place | None = (
            None  # the user's line while a backward sweep runs, whose instructions all get it
        )
        self._interned_specs: dict[Any, Spec] = {}
        self._backend_of_class: dict[type, Backend] = {}  # by class of array: the libraries seen in results

    # -- values

    def _define(self, value: Raw) -> int:
        # Specs are never dropped, not even by `roll_back`, so their number is an id that was not given before.
        name = len(self.specs)
        self.specs[name] = self._spec(value)
        return name

    def _spec(self, value: Raw) -> Spec:
        # Thousands of values share one spec, and passes look at each object once (`Program.distinct_specs`).
        kind, shape, dtype = key = type(value), getattr(value, "shape", ()), getattr(value, "dtype", None)
        found = self._interned_specs.get(key)
        if found is None:
            expose_attributes(kind)
            found = self._interned_specs[key] = Spec(kind, tuple(shape), dtype)
        return found

    def _define_spec(self, spec: Spec) -> int:
        name = len(self.specs)
        self.specs[name] = spec
        return name

    def input(self, value: Raw, backend: Backend | None) -> Any:
        """Add an input of the program: an array, or without a backend a Python number."""
        name = self._define(value) if backend is not None else self._define_spec(Spec(type(value), (), None))
        self.inputs.append(name)
        self.values[name] = value
        if backend is None:
            return TracedNumber(value, Ref(name), self)
        if self.stand_ins is not None:
            value = self.stand_ins.of(value)
        return TracedArray(value, Ref(name), self, backend)

    def is_inside(self, other: Trace) -> bool:
        """Return whether this trace is of a branch or a loop inside another one."""
        parent = self.parent
        return parent is other or (parent is not None and parent.is_inside(other))

    def _capture(self, array: TracedArray) -> TracedArray:
        """Make an array of a trace around this one an input, once."""
        if not self.is_inside(array.made_in):
            raise_leak(array)
        # A constant there is one here: as an input it could be neither folded nor decided by.
        if array.id in array.made_in.known:
            return self.constant(array.value, array.backend, own=True)
        key = array.made_in, array.id
        found = self._capture_inputs.get(key)
        if found is None:
            # Another tracer of the same value: an in-place update by the code around rebinds its own tracer.
            self.captured[key] = type(array)(array.value, array.ref, array.made_in, array.backend)
            found = self._capture_inputs[key] = self.input(array.value, array.backend)
        return found

    def _constant(self, value: Raw) -> Ref:
        # `constants` keeps the value alive, so that its id stays its own.
        ref = self._constant_refs.get(id(value))
        if ref is None:
            name = self._define(value)
            ref = self._constant_refs[id(value)] = Ref(name)
            self.constants[name] = value
            self.known.add(name)
        return ref

    def constant(self, value: Raw, backend: Backend, *, own: bool = False) -> TracedArray:
        """Return an array as a traced constant, which may stand on either side of an operator with traced arrays.

        It is copied, so that later writes of the user do not change the trace, unless nobody else has it (`own`).
        """
        if not own:
            value = frozen(value)
        return TracedArray(value, self._constant(value), self, backend)

    def ref(self, array: Raw) -> Ref:
        """Return the reference by which instructions name an array."""
        if type(array) in TRACED:
            return (array if array.made_in is self else self._capture(array)).ref
        return self._constant(frozen(array))

    def _split(self, value: Any, inputs: list[int]) -> tuple[Any, Any]:
        """Return an argument with raw arrays, to call with, and with `Ref`, to record; append ids to `inputs`."""
        kind = type(value)
        if kind in PLAIN:
            return value, value
        if kind in TRACED:
            if value.made_in is not self:
                value = self._capture(value)
            inputs.append(value.ref.id)
            return value.value, value.ref
        if kind is tuple or kind is list:
            # Shapes and keys, nearly always: they are kept as they are.
            if kind is tuple and PLAIN.issuperset(map(type, value)):
                return value, value
            pairs = [self._split(part, inputs) for part in value]
            return kind([raw for raw, _ in pairs]), kind([ref for _, ref in pairs])
        if isinstance(value, Tensor):
            return self._parameter(value, inputs)
        if is_array(value):
            value = frozen(value)
            ref = self._constant(value)
            inputs.append(ref.id)
            return value, ref
        return value, value

    def _parameter(self, tensor: Tensor, inputs: list[int]) -> tuple[Any, Any]:
        """Return the value of a Tensor where a kernel expects a Python value; integers become a Python int."""
        array = tensor._array
        if type(array) is TracedArray:
            if array.id not in self.known:
                self.require_value("a parameter that is a Tensor")
            array = array.value
        if tensor.shape or "integer" not in tensor.dtype.kind:
            return tensor, self._split(array, inputs)[1]
        return wrap(array, tensor.backend.library), int(array)

    def mark_unknown_length(self, numbers: Iterable[int]) -> None:
        """Mark values whose length may differ between calls: no pass may rely on their shapes."""
        for k in numbers:
            self.unknown_length.add(k)
            spec = self.specs[k]
            if spec.shape:
                self.specs[k] = Spec(spec.kind, (-1, *spec.shape[1:]), spec.dtype)

    # -- instructions

    def call(
        self, name: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], backend: Backend
    ) -> Any:
        """Call a function of raw arrays and append an instruction for it; return the results as traced arrays."""
        # The two common kinds of arguments are looked at here, the others in `_split`: a first call is as slow as this
        # loop.
        raws: list[Any] = []
        refs: list[Any] = []
        inputs: list[int] = []
        for arg in args:
            kind = type(arg)
            if kind is TracedArray:
                if arg.made_in is not self:
                    arg = self._capture(arg)
                raws.append(arg.value)
                ref = arg.ref
                refs.append(ref)
                inputs.append(ref.id)
            elif kind in PLAIN or (kind is tuple and PLAIN.issuperset(map(type, arg))):
                raws.append(arg)
                refs.append(arg)
            else:
                raw, ref = self._split(arg, inputs)
                raws.append(raw)
                refs.append(ref)
        names = NO_KWARGS
        if kwargs:
            given, names = {}, {}
            for k, arg in kwargs.items():
                given[k], names[k] = self._split(arg, inputs)
        if name in MAYBE_SHAPED_BY_VALUES and shaped_by_values(name, args):
            self.require_value(f"the shape of the result of {name}")
        if self.stand_ins is None:
            out = fn(*raws, **given) if kwargs else fn(*raws)
        else:
            out = self._without_values(name, fn, raws, given if kwargs else {}, refs)
            if inputs and self.known.issuperset(inputs) and is_array(out) and type(out) not in SCALARS:
                return self.constant(out, backend, own=True)  # now, so that no pass computes it once more
        if (
            # Zeros of a shape that the cache key fixes are the same in each call: a small array of them is a constant.
            name in VALUE_FREE
            and not any([type(ref) is Ref for ref in refs[1:]])
            and _size(out) <= thresholds.KEEP_CONSTANT_MAX_ELEMENTS
        ):
            first = refs[0]
            if type(first) is not Ref or first.id not in self.unknown_length:
                return self.constant(out, backend, own=True)
        return self.record_result(name, fn, tuple(refs), names, inputs, out, backend)

    def _without_values(
        self, name: str, fn: Callable[..., Any], raws: list[Any], kwargs: dict[str, Any], refs: list[Any]
    ) -> Outputs:
        """Call a function of stand-ins; small arrays of zeros, which become constants, have values all the same."""
        assert self.stand_ins is not None
        if name in VALUE_FREE and not any([type(ref) is Ref for ref in refs[1:]]):
            out = self.stand_ins.evaluate(fn, raws, kwargs)
            if _size(out) > thresholds.KEEP_CONSTANT_MAX_ELEMENTS:
                return out
            raws = [self.stand_ins.example(raws[0]), *raws[1:]]
        return self.stand_ins.evaluate(fn, raws, kwargs)

    def record_result(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: Sequence[int],
        out: Outputs,
        backend: Backend,
    ) -> Any:
        """Append an instruction for a call that has been made, with the result `out`; return that as a traced array."""
        kind = type(out)
        # The general case: a class of results not seen yet, tuples, Python scalars, results that are no arrays, and
        # any result where lengths differ between calls and have to be passed on.
        if self._backend_of_class.get(kind) is not backend or self.unknown_length:
            if kind in SCALARS:
                fn, out = AsArray(fn, backend.library), backend.library.asarray(out)
            if not (is_array(out) or (isinstance(out, tuple | list) and _has_arrays(out))):
                return out  # a dtype, say
            before = len(self.specs)
            found = self._append_instruction(name, fn, args, kwargs, out, backend, inputs)
            # Of known values alone: Python may depend on the results as well.
            if self.known.issuperset(inputs):
                self.known.update(range(before, len(self.specs)))
            return found
        # The common case, one array of a class seen before: `_append_instruction`, `_output` and the constructors
        # written out, since this runs once for each instruction of a trace and first calls should be quick.
        specs = self.specs
        number = len(specs)
        traced = _new(TracedArray)
        traced.value = out
        traced.shape = shape = out.shape
        traced.dtype = dtype = out.dtype
        traced.ref = ref = _new(Ref)
        ref.id = number
        traced.made_in = self
        traced.backend = backend
        spec = self._interned_specs.get((kind, shape, dtype))
        specs[number] = self._spec(out) if spec is None else spec
        made = _new(Instruction)
        made.name = name
        made.fn = fn
        made.args = args
        made.kwargs = kwargs
        made.out = number
        made.place = self._pinned_place or self._place()
        made.effect = False
        made.inputs = inputs
        self.instructions.append(made)
        known = self.known
        for k in inputs:
            if k not in known:
                return traced
        known.add(number)
        return traced

    def record(
        self, name: str, fn: Callable[..., Any], args: Sequence[Argument], like: Raw, backend: Backend
    ) -> TracedArray:
        """Append an instruction for a call that is not made, whose result would be an array like another one."""
        inputs: list[int] = []
        refs = tuple([self._split(arg, inputs)[1] for arg in args])
        made: TracedArray = self.record_result(name, fn, refs, NO_KWARGS, inputs, like, backend)
        return made

    def number(self, name: str, fn: Callable[..., Any], args: Sequence[Argument]) -> TracedNumber:
        """Call a function that returns a Python number, and append an instruction for it."""
        inputs: list[int] = []
        pairs = [self._split(arg, inputs) for arg in args]
        with outside():
            out = fn(*[raw for raw, _ in pairs])
        made = self._as_number(out)
        refs = tuple([ref for _, ref in pairs])
        self.instructions.append(Instruction(name, fn, refs, NO_KWARGS, made.id, self._place(), False, inputs))
        return made

    def _as_number(self, value: float) -> TracedNumber:
        return TracedNumber(value, Ref(self._define_spec(Spec(type(value), (), None))), self)

    def effect(self, name: str, fn: Callable[..., Any], args: Sequence[Argument], backend: Backend) -> Any:
        """Call a function, and append an instruction that no pass may drop or reorder."""
        inputs: list[int] = []
        pairs = [self._split(arg, inputs) for arg in args]
        raws = [raw for raw, _ in pairs]
        out = fn(*raws) if self.stand_ins is None else self.stand_ins.effect(fn, raws)
        refs = tuple([ref for _, ref in pairs])
        return self._append_instruction(name, fn, refs, NO_KWARGS, out, backend, inputs, effect=True)

    def record_call(self, name: str, fn: Callable[..., Any], args: Sequence[Argument], backend: Backend) -> Any:
        """Call a function of raw arrays that returns a tuple, and append an instruction for it."""
        inputs: list[int] = []
        pairs = [self._split(arg, inputs) for arg in args]
        raws = [raw for raw, _ in pairs]
        out = fn(*raws) if self.stand_ins is None else self.stand_ins.evaluate(fn, raws, {})
        refs = tuple([ref for _, ref in pairs])
        return self._append_instruction(name, fn, refs, NO_KWARGS, out, backend, inputs)

    def emit(self, name: str, fn: Callable[..., Any], args: Sequence[Argument], backend: Backend) -> None:
        """Append an effect without a result, such as printing or a check."""
        if self.stand_ins is None:
            self.effect(name, fn, args, backend)
            return
        inputs: list[int] = []
        refs = tuple([self._split(arg, inputs)[1] for arg in args])
        self._append_instruction(name, fn, refs, NO_KWARGS, (), backend, inputs, effect=True)

    def _append_instruction(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Argument, ...],
        kwargs: dict[str, Any],
        out: Outputs,
        backend: Backend,
        inputs: Sequence[int],
        *,
        effect: bool = False,
    ) -> Any:
        if type(out) not in self._backend_of_class and isinstance(out, tuple | list):
            numbers = effect or hasattr(
                fn, "parts"
            )  # opaque calls, branches and loops may return Python numbers, which are state
            traced, names = self._outputs(out, backend, numbers)
            names = () if names is None else names
        else:
            traced = self._output(out, backend)
            names = traced.id
        instruction = Instruction(name, fn, args, kwargs, names, self._place(), effect, inputs)
        self.instructions.append(instruction)
        if self.unknown_length and not self.unknown_length.isdisjoint(inputs):
            self.mark_unknown_length(instruction.outputs)
        return traced

    def _outputs(self, out: Outputs, backend: Backend, numbers: bool) -> tuple[Any, Any]:
        if isinstance(out, tuple | list) and (numbers or _has_arrays(out) or not out):
            pairs = [self._outputs(part, backend, numbers) for part in out]
            names, kind = tuple([name for _, name in pairs]), type(out)
            parts = [traced for traced, _ in pairs]
            # A named tuple, as that of a decomposition, whose fields callers use.
            if hasattr(kind, "_fields"):
                return kind(*parts), names
            return parts if kind is list else tuple(parts), names
        if numbers and type(out) in _NUMBERS:
            made = self._as_number(out)
            return made, made.id
        if not is_array(out):
            return out, None
        traced = self._output(out, backend)
        return traced, traced.id

    def _output(self, out: Raw, backend: Backend) -> TracedArray:
        if self._backend_of_class.get(type(out)) is not backend:
            self._backend_of_class[type(out)] = backend
            self._meet(backend.library)
        return TracedArray(out, Ref(self._define(out)), self, backend)

    def _meet(self, library: Backend) -> None:
        self.backends.add(library)
        if (settings := library.settings) is not None:
            self.guard(settings, settings())

    @contextmanager
    def attributed_to_caller(self) -> Iterator[None]:
        """Enter a context whose instructions all belong to the user's line that leads here."""
        before = self._pinned_place
        self._pinned_place = before or self._place()
        try:
            yield
        finally:
            self._pinned_place = before

    def _place(self) -> Place:
        if self._pinned_place is not None:
            return self._pinned_place
        frame = user_frame()
        code = frame.f_code
        key = id(code), frame.f_lasti  # hashing a code object, or asking for its line, reads all of it
        found = self._places.get(key)
        if found is None:
            # Equal places are one object: the source writer and outlining compare them by identity. The entry keeps
            # the code object alive, whose id is in the key.
            place = Place(code.co_filename, frame.f_lineno, code.co_qualname)
            found = self._places[key] = code, self._interned_places.setdefault(place, place)
        return found[1]

    def require_value(self, what: str) -> None:
        """Raise, or with `fallback` stop compiling: Python needs a value that differs between calls.

        Args:
            what: a noun phrase for the value, for the message.

        Raises:
            TracingError: with the user's line, and advice.
        """
        if not self.open:
            if self.failed is not None:
                return  # the function ran as plain Python, so its results are real values
            raise TracingError(f"a Tensor from inside {self.name}, which is compiled, is used after it has returned")
        # The error has no local name: its traceback refers to this frame, which would make a cycle.
        if self.speculating or not self.fallback:
            raise self._missing_value_error(what).noted_in(self.caught)
        # Only the first reason is told: from here on the run is plain Python, and the trace is not used.
        if self.failed is None:
            self.failed = self._missing_value_error(what)

    def _missing_value_error(self, what: str) -> TracingError:
        place = self._place()
        if what == TRUTH and (own := deciding_frame()) is not None:
            return TracingError(
                f"{self.name} is compiled, and {own} of Tape, to which {place.file}:{place.line}, in {place.function}, "
                f"leads, decides by a value. That is a bug in Tape, not in your code: please report it. Until it is "
                f"mended, the function can run as plain Python, with tape_core.function(fallback=True)"
            )
        return TracingError(
            f"{self.name} is compiled, but Python needs {what}: {place.file}:{place.line}, in {place.function}. "
            f"It differs between calls, so a trace cannot depend on it. Use tape_core.where for a choice between "
            f"values, tape_core.cond, while_loop and scan for branches and loops; give what decides as a Python value "
            f"and name it in static_argnames; take values out after the call; or let the function run as plain Python, "
            f"with tape_core.function(fallback=True)"
        )

    # -- Variables and host numbers

    def read(self, variable: Variable | HostNumber) -> Any:
        """Return the value of a Variable or host number at this point; the first read makes it an input."""
        held = self.variable_states.get(id(variable))
        if held is None:
            now = self.input(real_place(variable, self.bindings)._raw, tracing_backend_of(variable, self.bindings))
            held = self.variable_states[id(variable)] = VariableState(variable, now, now)
        now = held.now
        # Each reader gets an object of its own: an in-place update rebinds that object, and must not reach others.
        return TracedArray(now.value, now.ref, self, now.backend) if type(now) is TracedArray else now

    def write(self, variable: Variable | HostNumber, array: Raw) -> None:
        """Assign a value to a Variable or host number; the real one gets it at the commit."""
        held = self.variable_states.get(id(variable))
        if held is None:
            try:
                _ = real_place(variable, self.bindings)._raw
            except AttributeError:  # the Variable is being made, in this run
                if self.stand_ins is not None:
                    raise NeedsValues("the first value of a Variable") from None
                held = self.variable_states[id(variable)] = VariableState(variable, None, array)
                # The real Variable gets its initial value now, so that it is whole even if this run fails later.
                setattr(variable, "_raw", array.value if type(array) is TracedArray else array)  # noqa: B010
            else:
                # A read that the user has not made: the state needs the first value, to tell later whether it has
                # changed.
                self.read(variable)
                held = self.variable_states[id(variable)]
        if type(array) is TracedArray and self._has_memory_of_argument(array):
            # Who gave the array may write to it later, such as to the buffer of a data loader.
            array = self.copied(array)
        held.now = array

    def _has_memory_of_argument(self, array: TracedArray) -> bool:
        """Return whether a value may have the memory of an argument of the function that is not donated."""
        k = self.base_of(array) if array.made_in is self else None
        if k is None or k in self.donated.values():
            return False
        firsts = [held.first for held in self.variable_states.values()]
        return not any([type(first) is TracedArray and first.id == k for first in firsts])

    def base_of(self, array: TracedArray) -> int | None:
        """Return the number of the input whose memory a value may have, as itself or a view of it; None if of none."""
        k = array.id
        for instruction in reversed(self.instructions):
            if k in instruction.outputs:
                if instruction.name not in VIEWS or not instruction.inputs:
                    return None
                k = instruction.inputs[0]
        return k if k in self.values else None

    def copied(self, array: TracedArray) -> TracedArray:
        """Return a value in memory of its own; itself where the library has arrays that nobody can write to."""
        library = array.backend.library
        if self.stand_ins is not None or library.frozen(array.value) is array.value:
            return array
        found: TracedArray = self.call("asarray", library.asarray, (array,), {"copy": True}, array.backend)
        return found

    def holds(self, variable: Variable | HostNumber) -> bool:
        """Return whether a Variable exists, and is not just being made."""
        if id(variable) in self.variable_states:
            return True
        try:
            _ = real_place(variable, self.bindings)._raw
        except AttributeError:
            return False
        return True

    def on_outer_tensor(self, tensor: Tensor) -> None:
        """A Tensor from around the function is used; it becomes a constant."""

    def on_draw(self, generator: Generator) -> None:
        """Random numbers are drawn."""

    def on_new_generator(self, generator: Generator) -> None:
        """The traced function makes a generator."""

    def state(self) -> Snapshot:
        """Return a snapshot of the trace, for `roll_back`."""
        return len(self.instructions), len(self.guards), {key: held.now for key, held in self.variable_states.items()}

    def roll_back(self, state: Snapshot) -> None:
        """Drop all that was recorded since a snapshot."""
        instructions, guards, nows = state
        del self.instructions[instructions:]
        del self.guards[guards:]
        for library in self.backends:
            self._meet(library)
        # A Variable that was read since then stays an input: one too many does no harm.
        for key, held in self.variable_states.items():
            held.now = nows.get(key, held.first)

    def is_assigned(self, *variables: Variable) -> bool:
        """Return whether the program has assigned to one of these Variables; without arguments, to any."""
        chosen = {id(variable) for variable in variables}
        return any(held.written and (not chosen or key in chosen) for key, held in self.variable_states.items())

    def assigned_variables(self) -> list[Variable]:
        """Return the Variables to which the program has assigned so far, here or around."""
        held = [held for held in self.variable_states.values() if held.written and held.first is not None]
        own = [h.variable for h in held if not isinstance(h.variable, HostNumber)]
        around = [] if self.parent is None else self.parent.assigned_variables()
        return [*own, *[v for v in around if not any([v is known for known in own])]]

    def is_traced(self, value: TracedValue) -> bool:
        """Return whether a value is an input or computed in each run, rather than a constant."""
        return self.failed is None and value.id not in self.constants  # type: ignore[attr-defined]  # of our classes

    def symbol(self, tensor: Tensor) -> str | None:
        """Return the name of a Tensor that differs between runs, for its text; None for a constant."""
        array = tensor._array
        if type(array) is not TracedArray or not self.is_traced(array):
            return None
        if array.id in self.inputs:
            return f"args_{self.inputs.index(array.id)}:0"
        for instruction in reversed(self.instructions):
            if array.id in (found := instruction.outputs):
                return f"{instruction.name}:{found.index(array.id)}"
        return "Tensor:0"

    @contextmanager
    def recomputed(self) -> Iterator[None]:
        """Enter a context of calls whose results no derivative is to keep: it computes them again."""
        first = len(self.specs)
        try:
            yield
        finally:
            self.recomputed_values.append(range(first, len(self.specs)))

    def outside(self) -> AbstractContextManager[None]:
        """Enter a context in which nothing is traced, and Variables have their real values."""
        return outside()

    def tracing(self, backend: Backend) -> Backend:
        """Return the backend whose arrays are those of `backend`, traced."""
        return tracing_backend(backend)

    @property
    def new_variables(self) -> list[Variable]:
        """The Variables that were made in this run."""
        return [held.variable for held in self.variable_states.values() if held.first is None]

    def late_formulas(
        self, backend: Backend, variables: Sequence[Variable], example: Raw
    ) -> Mapping[str, Callable[..., Raw]]:
        """Return formulas of updates that are recorded, and not computed; none where they are to be computed."""
        if self.late_updates is None or self.bindings or self.by_name or self.failed is not None:
            return {}
        states = [self.variable_states.get(id(v)) for v in variables]
        if any([held is None or held.written or held.first is None for held in states]):
            return {}  # one of an update before
        return recorded_formulas(self, backend, example)

    def put_off(self, variables: Sequence[Variable], results: Sequence[Raw], compute: Compute) -> None:
        """Have new values of Variables, which are results of `late_formulas`, computed at the end."""
        assert self.late_updates is not None  # as there are such formulas
        self.late_updates.add(variables, results, compute)

    def commit(self) -> None:
        """Assign the traced values to the real Variables, all at once."""
        written = [held for held in self.variable_states.values() if held.written]
        set_all([real_place(held.variable, self.bindings) for held in written], [value_of(h.now) for h in written])

    def complete(self, tensors: dict[Tensor, Any]) -> None:
        """Commit, and give other Tensors arrays, all at once, and end the trace; updates that were put off are made."""
        commit = self._all_values(tensors)
        self.end()  # for nobody but the Variables is to have their old values, which may be written over
        commit.make()

    def _all_values(self, tensors: dict[Tensor, Any]) -> Commit:
        commit = Commit()
        for tensor, array in tensors.items():
            on_change(tensor)
            commit.attribute(tensor, "_array", value_of(array))
            commit.attribute(tensor, "_slots", NO_SLOTS)
        written = [held for held in self.variable_states.values() if held.written]
        late = [] if self.late_updates is None else self.late_updates.pending(written)
        done = {id(v) for update in late for v in update.variables}
        for held in written:
            if id(held.variable) not in done:
                commit.value(real_place(held.variable, self.bindings), value_of(held.now))
        for update in late:
            update.compute(commit)
        return commit

    def end(self) -> None:
        """Close the trace, and free its values now: traced arrays refer to it, so they would wait for the collector."""
        self.open = False
        self.late_updates = None
        for part in (self.variable_states, self.values, self.captured, self._capture_inputs, self.notes):
            part.clear()

    def program(self, results: Sequence[Any]) -> Program:
        """Return the program; its outputs are these results, then the new values of Variables."""
        written = [held.now for held in self.variable_states.values() if held.written and held.first is not None]
        outputs = [self.ref(array).id for array in (*results, *written)]
        # Without results of instructions, as where a function returns a constant, constants tell the backend.
        backends = self.backends or _backends_of(self.constants.values())
        backend = next(iter(backends)) if len(backends) == 1 else None
        program = Program(self.instructions, self.inputs, self.constants, outputs, self.specs, backend)
        # The in-place pass may overwrite a donated argument, to which one name refers while the code runs. The old
        # value of a Variable can be seen until the commit, so it is replaced after the run and never overwritten.
        states = self.variable_states.values()
        program.owned = {s.first.id: NEVER_OVERWRITTEN for s in states if s.written and type(s.first) is TracedArray}
        program.owned |= dict.fromkeys(self.donated.values(), 1)
        program.recomputed = self.recomputed_values
        return program


def _backends_of(arrays: Iterable[Any]) -> set[Backend]:
    found = [backend_of_type(type(array)) for array in arrays]
    return {backend for backend in found if backend is not None}


class AsArray:
    """A function that returns Python scalars, made to return arrays."""

    def __init__(self, function: Callable[..., Any], backend: Backend) -> None:
        self.function = function
        self.backend = backend
        self.__name__ = getattr(function, "__name__", "function")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.backend.asarray(self.function(*args, **kwargs))


_NUMBERS = frozenset({int, float})


def _size(array: Raw) -> int:
    size = 1
    for length in array.shape:
        size *= int(length)
    return size


def _has_arrays(values: Iterable[object]) -> bool:
    return any([_has_arrays(v) if isinstance(v, tuple | list) else is_array(v) for v in values])
