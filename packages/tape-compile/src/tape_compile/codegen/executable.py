"""The executable of a trace: it passes arrays of arguments and Variables to code, and makes Tensors of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import wraps
from operator import attrgetter
from typing import Any, cast
from weakref import proxy, ref

from tape_core import IndexedSlices, Tensor, Variable
from tape_core.backends import Backend, CompilerLoadError, compilers
from tape_core.staging import TracingError
from tape_core.support import FORMER, binding, keep_former, layouts, pytree, report_stage, wrap
from tape_core.tracing import NO_SLOTS, on_change

from tape_compile import passes
from tape_compile.cache import notify_on_end
from tape_compile.cache_key import SLICES, STATIC, TENSOR, Signature
from tape_compile.call_guard import CallGuard
from tape_compile.codegen import spares
from tape_compile.codegen.deferral import Deferral, deferrable
from tape_compile.codegen.overwriting import Late
from tape_compile.codegen.source import Source
from tape_compile.compilers import BRANCHES, EFFECTS, NUMBERS, Compiler, Python, Run
from tape_compile.donation import invalidate_donated
from tape_compile.failures import fail
from tape_compile.library import support_of
from tape_compile.program import Program, Raw, Spec
from tape_compile.results import freeze_leaf, restore_leaf
from tape_compile.tracer.trace import Trace

# In the place of a program's backend where there are several: callers ask it whether it `is_strict`.
_ANY = Backend("several", None)
_UNSUPPORTED = {
    EFFECTS: "is for what depends on its inputs alone, and the function calls {}: draw random numbers outside, and "
    "return the gradients to the optimizer",
    NUMBERS: "is for arrays, and the function has Python numbers that change, {}, as optimizers and metrics do: return "
    "the gradients to the optimizer",
    BRANCHES: "is for what runs in the same way in each call, and {} decide by values: leave out compile, or use "
    "tape_core.where and scan",
}
_CHANGED = "changes one of its arguments (as x += y does)"
_is_trainable, _raw_of = attrgetter("trainable"), attrgetter("_raw")
DONATED = "overwrites an argument that is donated to it"


class Compiled:
    """The executable of one trace; it is called with the leaves of arguments whose cache key is the trace's.

    Attributes:
        traced, program: the program before and after all passes.
        effects: how many instructions each pass left.
        source: the program as Python; run: that, or what another compiler made of the program.
        kinds: of each argument `STATIC`, `TENSOR` or `SLICES`.
        variables: those that are read, whose values are inputs after the arguments.
        assigned: those that get new values, which are outputs after the results.
        changed: the places of Tensors among the arguments to which the function assigns.
        donated: the places of those that it may overwrite.
        trainable: Variables, and for each whether it was trainable; guards: other things that must be as they were.
        deferral: of Variables whose values are deferred by the code; None for none.
        spares: memory of former values of Variables, into which calls write new ones; None if there is none.
        outs: how each leaf of the result is made; structure: of the leaves, None for the only one.
        age, recent: of the cache.
        leaves_of: tells a call of the cache key without making that; None before the trace is used again.
    """

    age = 0
    recent = False
    leaves_of: CallGuard | None = None
    deferral: Deferral | None = None
    _groups: Sequence[Sequence[int]] = ()
    _replaces = False  # whether the code may take the memory of Variables

    def __init__(
        self,
        name: str,
        trace: Trace,
        signature: Signature,
        changed: dict[int, Raw],
        result: object,
        options: dict[str, bool],
        how: str | Compiler | None,
    ) -> None:
        self.kinds = signature.kinds
        self.donated = list(trace.donated)
        held = [h for h in trace.variable_states.values() if h.first is not None]
        self.variables = [h.variable for h in held]
        self.assigned = [h.variable for h in held if h.written]
        # Attributes that get new values, by object and name, for one `map(setattr, ...)`: no signal comes between.
        places = [(v._holder, v._held_as) for v in self.assigned]
        leaves_of = [v for v in self.assigned if v._holder is v and v.backend is not None]
        self.objects = [*[holder for holder, _ in places], *leaves_of]
        self.attributes = [*[name for _, name in places], *["_raw_slots"] * len(leaves_of)]
        self.new_leaves = len(leaves_of)
        watched = [h for h in held if isinstance(h.variable, Variable)]
        self.trainable = [h.variable for h in watched], [h.trainable for h in watched]
        self.guards = trace.guards
        # Most training steps return nothing: then optree, which takes a while to import, is not needed.
        leaves: list[Any] = [None]
        self.structure: Any = None
        if result is not None:
            leaves, self.structure = pytree.flatten_whole(result)
        arrays: list[Any] = []
        self.outs: list[tuple[Any, ...]] = []
        for leaf in leaves:
            if isinstance(leaf, Tensor) and not isinstance(leaf, Variable):
                self.outs.append((TENSOR, leaf.backend.library))
                arrays.append(leaf._array)
            elif isinstance(leaf, IndexedSlices):
                self.outs.append((SLICES, leaf.values.backend.library, leaf.dense_shape))
                arrays += [leaf.values._array, leaf.indices._array]
            else:
                self.outs.append((STATIC, freeze_leaf(leaf)))
        self.name = name
        self.changed = list(changed)
        self.traced: Program = trace.program([*arrays, *changed.values()])
        self.compiler = compiler = load_compiler(how)
        report_stage("passes")
        self.program, self.effects = passes.run(self.traced, options, left_out(compiler))
        report_stage("code")
        self.options = options
        self._note_updates(trace)
        self.spares = self.program.spares = self._spares(compiler, trace, places)
        self.source = Source(self.program if self.spares is None else self.spares.planned(self.program), name)
        self.run = self._compiled(name, how, compiler, trace)
        # What the library warns of is no matter of a compiler that calls none of its functions.
        library = None if compiler is not None and compiler.by_name else self.program.backend
        self.quiet: Callable[[], Any] = nullcontext if library is None else library.quiet
        self._warns = library is not None
        self.backend: Any = self.program.backend or _ANY
        # The common cases, for short loops in each call.
        has_slices = SLICES in self.kinds
        self.tensors = None if has_slices else [k for k, kind in enumerate(self.kinds) if kind == TENSOR]
        self.returns_only_tensors = all(out[0] == TENSOR for out in self.outs)
        self.libraries = [out[1] for out in self.outs]

    def _note_updates(self, trace: Trace) -> None:
        """Tell the program which of its inputs are the old values of which of its outputs."""
        program = self.program
        inputs = program.inputs[len(program.inputs) - len(self.variables) :]
        outputs = program.outputs[len(program.outputs) - len(self.assigned) :]
        known = {id(variable): k for variable, k in zip(self.variables, inputs, strict=True)}
        program.updates = {known[id(v)]: k for v, k in zip(self.assigned, outputs, strict=True)}
        if trace.donates_variables:
            program.replaced = frozenset(program.updates)
        if not self.changed:
            program.deferrable = deferrable(self.assigned, outputs)

    def _spares(
        self, compiler: Compiler | None, trace: Trace, places: Sequence[tuple[object, str]]
    ) -> spares.Spares | None:
        """Return memory of former values to write new ones into; None for what others compile, or what has none."""
        if not (compiler is None or type(compiler) is Python) or not self.options.get("in_place", True):
            return None
        return spares.spares_for(self.program, support_of(self.program), places, trace.values)

    def _compiled(self, name: str, how: str | Compiler | None, compiler: Compiler | None, trace: Trace) -> Run:
        """Return the function that runs the program: Python code, or a compiler's.

        Raises:
            ValueError: the compiler is not for arrays of this backend, or not for what this program does.
            RuntimeError: the compiler fails, or what it returns is no function.
        """
        program, run = self.program, self.source.run
        examples = [trace.values[k] for k in program.inputs]
        numbers = sorted({v.name for v in self.variables if v.backend is None})
        if compiler is None:
            return run if program.backend is None else self._offered(name, run, examples, numbers)
        code = compile_program(program, run, examples, name, how, compiler, numbers, trace.backends)
        self._replaces = bool(program.replaced) and getattr(code, "takes_variables", True) is True
        return self._check_first_run(code, run, name, how)

    def _offered(self, name: str, run: Run, examples: list[Any], numbers: Sequence[str]) -> Run:
        """Return what a compiler of the backend offers, where the user names none; else the Python code."""
        assert self.program.backend is not None
        offering = [cast("str | Compiler", how) for how in self.program.backend.compilers]
        found = {feature for feature, names in _unsupported(self.program, numbers).items() if names} if offering else ()
        for how in offering:
            compiler = load_compiler(how)
            assert compiler is not None
            if not compiler.supports.issuperset(found):
                continue
            offered = compiler.offer(self.program, run, examples)
            if offered is not None:
                if self.program.owned and compiler.fuses:
                    # What is planned to be overwritten is not for a compiler that plans memory itself.
                    program, _ = passes.run(self.traced, self.options, left_out(compiler))
                    offered = compiler.offer(program, Source(program, name).run, examples)
                return run if offered is None else self._check_first_run(offered, run, name, how)
        return run

    def _check_first_run(self, code: Run, run: Run, name: str, how: str | Compiler | None) -> Run:
        """Return a compiler's code such that the first run checks its results, before anything is assigned.

        Results are told apart by their places alone: with one too few, a Variable would get the value of another.

        Raises:
            RuntimeError: it is no function; in its first run, its results are not those of the program.
        """
        owner = ref(self)
        self._groups = getattr(code, "deferred", [])

        def keep(code: Run) -> None:
            if (compiled := owner()) is not None:
                compiled.run = code  # later runs cost nothing

        return check_first_run(code, run, self.program, name, how, keep)

    def exported(self, name: str, variables: str, beside: dict[str, Any] | None) -> str:
        """Return the source of a file that defines this function."""
        from tape_compile.export.export import exported

        traced, held = self.traced.replace(self.traced.instructions), self.variables
        traced.owned = {}  # what callers of the file give it is theirs
        n = len(traced.inputs) - len(held)
        if variables == "constants":
            self._refuse_assigned(name)
            arrays = [v._array if v.backend is None else v.backend.library.asarray(v._array, copy=True) for v in held]
            values = dict(zip(traced.inputs[n:], arrays, strict=True))
            traced, held = traced.replace(traced.instructions, constants={**traced.constants, **values}), []
            traced.inputs = traced.inputs[:n]
        # Anew from the trace: fused functions and lowered kernels of `self.program` have no source, or none to be
        # read.
        program, _ = passes.run(traced, self.options, passes.NOT_EXPORTED)
        shown = [f"{spec.dtype}, shape {spec.shape}" for spec in (program.specs[k] for k in program.inputs)]
        inputs = [(f"argument{k}", what) for k, what in enumerate(shown[:n])]
        for variable, what in zip(held, shown[n:], strict=True):
            inputs.append(
                (variable.name or "variable", "a number" if variable.backend is None else f"a Variable, {what}")
            )
        outputs = [f"result {k}" for k in range(len(program.outputs) - len(self.assigned))]
        if self.changed:
            outputs[-len(self.changed) :] = [f"the new value of argument {k}" for k in self.changed]
        outputs += [f"the new value of {v.name or 'a Variable'} of shape {v.shape}" for v in self.assigned]
        return exported(program, name, inputs, outputs, beside)

    def serialized(self, name: str, variables: str, derivatives: int) -> bytes:
        """Return the program in the format of the function's compiler.

        Raises:
            ValueError: it has none, or the program has a part that cannot be in it.
        """
        from tape_compile.export.linker import ExportError

        if self.compiler is None:
            raise ExportError(f"export: {name} is compiled to Python: make it with function(compile='xla')")
        traced = self.traced.replace(self.traced.instructions)
        traced.owned = {}
        if variables == "constants":
            self._refuse_assigned(name)
            n = len(traced.inputs) - len(self.variables)
            values = dict(zip(traced.inputs[n:], [v._array for v in self.variables], strict=True))
            traced = traced.replace(traced.instructions, constants={**traced.constants, **values})
            traced.inputs = traced.inputs[:n]
        program, _ = passes.run(traced, self.options, left_out(self.compiler))
        return self.compiler.serialized(program, name, derivatives)

    def _refuse_assigned(self, name: str) -> None:
        from tape_compile.export.linker import ExportError

        if self.assigned:
            v = self.assigned[0]
            raise ExportError(
                f"export: {name} assigns to {v.name or 'a Variable'} of shape {v.shape}, which cannot be a constant"
            )

    def release(self, values: list[Any], forget: Callable[[], None]) -> None:
        """Keep no argument of the traced call alive; `forget` is called at the end of one that every call needs."""
        variables = {id(value) for value in values if isinstance(value, Variable)}
        if variables:
            # A Variable that is an argument belongs to the caller: by a strong reference the trace would keep it
            # alive.
            self.variables = [proxy(v) if id(v) in variables else v for v in self.variables]
            self.assigned = [proxy(v) if id(v) in variables else v for v in self.assigned]
            self.objects = [proxy(v) if id(v) in variables else v for v in self.objects]
            watched, expected = self.trainable
            self.trainable = [proxy(v) if id(v) in variables else v for v in watched], expected
        if self._groups:
            places = self.objects, self.attributes
            first = len(self.program.outputs) - len(self.assigned)
            self.deferral = Deferral(self._groups, first, self.assigned, self.variables, places)
        self._gone = notify_on_end([value for value in values if type(value) is not Tensor], forget)

    @property
    def takes_host_data(self) -> bool:
        """Whether the code takes host arrays as `Backend.as_argument` returns them in place of the library's."""
        return getattr(self.run, "takes_host_data", False) is True

    def fits(self) -> bool:
        """Return whether guards hold, and Variables are trainable as they were."""
        watched, expected = self.trainable
        # By functions of C: there may be hundreds of Variables, and this is done in each call.
        if list(map(_is_trainable, watched)) != expected:
            return False
        return not self.guards or all([get() == value for get, value in self.guards])  # a generator takes longer

    def __call__(self, leaves: list[Any]) -> Any:
        places = self.tensors
        if places is not None:
            arrays = [leaves[k]._array for k in places]
        else:
            arrays = []
            for leaf, kind in zip(leaves, self.kinds, strict=True):
                if kind == TENSOR:
                    arrays.append(leaf._array)
                elif kind == SLICES:
                    arrays += [leaf.values._array, leaf.indices._array]
        keeper, as_left = self.deferral, False
        is_plain = not (binding.in_use or layouts.in_use or layouts.are_compared or FORMER.get())
        defers = keeper is not None and is_plain
        # Past the property that tells tapes of a read: none is active, or `Joint.read` has told it.
        if defers:
            assert keeper is not None
            values, as_left = keeper.values()
            arrays += values
        elif binding.in_use:
            arrays += [variable._place._raw for variable in self.variables]
        else:
            arrays += map(_raw_of, self.variables)
        if self.changed:
            check_no_alias(self.name, leaves, self.changed)
        if self.donated:
            check_no_alias(self.name, leaves, self.donated, DONATED)
            invalidate_donated(self.name, leaves, self.donated)
        if self._replaces:
            return self._call_replacing(arrays, [leaves[k] for k in self.changed])
        try:
            if not self._warns:
                found = self.run(arrays)
            else:
                with self.quiet():  # tapes do not warn of what becomes infinite or NaN in a backward pass either
                    found = self.run(arrays)
        except Exception as error:  # noqa: BLE001 - it is raised again
            fail(error)
        if keeper is not None:
            if defers and keeper.commit(found, as_left):
                return self.result(found)
            found = keeper.settled(found)
        if self.changed:
            self._commit(found, [leaves[k] for k in self.changed])
        elif self.assigned:
            arrays.clear()  # old values end with the commit
            self._commit(found, ())
        return self.result(found)

    def _call_replacing(self, arrays: list[Any], changed: Sequence[Tensor]) -> Any:
        """Run code that may take the memory of Variables: when it has run, they get their new values, come what may."""
        # Values that are assigned again if the caller fails have a reference more, so that none is taken.
        kept = list(arrays) if FORMER.get() else None
        try:
            with self.quiet():
                found = self.run(arrays)
            self._commit(found, changed)
        except BaseException as error:
            finished = getattr(self.run, "finished", None)
            made = None if finished is None else finished(arrays)
            if made is not None:  # Ctrl-C came between: the call has taken place
                self._commit(made, changed)
            if isinstance(error, Exception):
                fail(error)
            raise
        del kept
        return self.result(found)

    def _commit(self, found: tuple[Raw, ...], changed: Sequence[Tensor]) -> None:
        """Assign the new values of Variables and Tensors, all at once, as `tape_core.engine.commit` does."""
        objects, names = self.objects, self.attributes
        if binding.in_use:
            objects = [getattr(holder, "_place", holder) for holder in objects]
        if FORMER.get():
            # The objects themselves: there are weak proxies among them.
            keep_former([getattr(holder, "_place", holder) for holder in objects], names)
            keep_former([*changed, *changed], [*["_array"] * len(changed), *["_slots"] * len(changed)])
        for tensor in changed:
            on_change(tensor)
        at = len(found) - len(self.assigned)
        news, compared = found[at:], layouts.are_compared
        # Of a single Variable nobody sees half of the values.
        if len(objects) == 2 and self.new_leaves and not (changed or self.spares is not None or compared):
            (value,) = self._finished(objects, news)
            slots: dict[int, int] = {}
            objects[0]._raw = value
            objects[0]._raw_slots = slots
            return
        # The end of an old value may run others' code, which waits until all are assigned. That of slots runs none.
        before = list(map(getattr, objects[: len(self.assigned)], names))
        others: list[Any] = [{} for _ in range(self.new_leaves)]
        if changed:
            objects = [*objects, *changed, *changed]
            names = [*names, *["_array"] * len(changed), *["_slots"] * len(changed)]
            others += [*found[at - len(changed) : at], *[NO_SLOTS] * len(changed)]
        # `setattr` returns None, so `any` runs through all of it, in C: no signal handler sees half of the new values.
        if self.spares is None:
            any(map(setattr, objects, names, [*self._finished(objects, news), *others]))
        else:
            objects = [getattr(holder, "_place", holder) for holder in objects]  # there are weak proxies among them
            self.spares.commit(objects, names, news, before, lambda news: [*self._finished(objects, news), *others])
        if compared:  # those that are assigned: a call that has failed is no update
            layouts.count(self.assigned)
        before.clear()  # those that are not kept end here
        if self.spares is not None:
            self.spares.settle()

    def _finished(self, objects: Sequence[Any], news: Sequence[Raw]) -> Sequence[Raw]:
        """Return new values of Variables in the layouts of the former ones."""
        if not layouts.in_use:
            return news
        return layouts.settled(news, list(map(getattr, objects[: len(self.assigned)], self.attributes)))

    def result(self, found: tuple[Raw, ...]) -> Any:
        """Return the function's result, made of raw arrays."""
        if self.returns_only_tensors:
            tensors = list(map(wrap, found, self.libraries))
            return tensors[0] if self.structure is None else pytree.unflatten(self.structure, tensors)
        made: list[Any] = []
        at = 0
        for out in self.outs:
            if out[0] == TENSOR:
                made.append(wrap(found[at], out[1]))
                at += 1
            elif out[0] == SLICES:
                values, indices = (wrap(array, out[1]) for array in found[at : at + 2])
                made.append(IndexedSlices(values, indices, out[2]))
                at += 2
            else:
                made.append(restore_leaf(out[1]))
        return pytree.unflatten(self.structure, made)


def check_no_alias(name: str, leaves: list[Any], changed: Iterable[int], what: str = _CHANGED) -> None:
    """Refuse a Tensor that the function assigns to, or overwrites, and that is two of its arguments.

    Raises:
        ValueError: with advice.
    """
    for k in changed:
        if sum([leaf is leaves[k] for leaf in leaves]) > 1:
            raise ValueError(
                f"{name} is compiled, and {what}, a Tensor of shape {leaves[k].shape} that is given to it twice: "
                f"give a copy, x + 0, for one of them"
            )


def compile_program(
    program: Program,
    run: Run,
    examples: list[Any],
    name: str,
    how: str | Compiler | None,
    compiler: Compiler,
    numbers: Sequence[str],
    used: Iterable[Backend],
) -> Run:
    """Return what a compiler makes of a program.

    Args:
        program, run, examples: as for `Compiler.compile`.
        name: the function's; how: the compiler as the user has named it.
        compiler: the compiler.
        numbers: the names of Python numbers that change.
        used: the backends of the arrays.

    Raises:
        ValueError: the compiler is not for arrays of this backend, or not for what this program does.
        RuntimeError: the compiler fails.
    """
    found = _unsupported(program, numbers)
    for feature, names in found.items():
        if names and feature not in compiler.supports:
            raise ValueError(f"{name}: compile={how!r} {_UNSUPPORTED[feature].format(', '.join(names))}")
    backends = compilers.info(how).backends if isinstance(how, str) else ()
    if program.backend is None and (backends or not compiler.supports.issuperset(found)):
        several = sorted([backend.name for backend in used])
        if not several:
            raise ValueError(f"{name}: compile={how!r} has nothing to compile, as the function computes nothing")
        raise ValueError(
            f"{name}: compile={how!r} is for arrays of one backend, and there are those of {' and '.join(several)}"
        )
    if backends and program.backend is not None and program.backend.root.name not in backends:
        raise ValueError(
            f"{name}: compile={how!r} is for arrays of {' and '.join(backends)}, and these are of "
            f"{program.backend.root.name}: leave out compile, or select another backend"
        )
    report_stage(f"compiler {how if isinstance(how, str) else type(how).__name__}")
    try:
        return compiler.compile(program, run, examples)
    except (ValueError, RuntimeError, TracingError) as error:  # these are meant for the user
        if not isinstance(error, NotImplementedError):
            raise
        raise RuntimeError(f"{name}: compile={how!r} has no compile()") from error
    except Exception as error:
        text = f"{name}: compile={how!r} failed with {type(error).__name__}: {error}"
        raise RuntimeError(text) from error


def check_first_run(
    code: Run, run: Run, program: Program, name: str, how: str | Compiler | None, keep: Callable[[Run], None]
) -> Run:
    """Return a compiler's code such that the first run checks its results, and then gives the code to `keep`.

    Raises:
        RuntimeError: it is no function; in its first run, its results are not those of the program.
    """
    if code is run:  # Tape's own
        return run
    if not callable(code):
        raise RuntimeError(f"{name}: compile={how!r} returned {code!r} for the program, which is not a function")
    specs = [program.specs.get(k) for k in program.outputs]
    for places in getattr(code, "deferred", ()):
        for at in places:
            specs[at] = None  # no array yet

    @wraps(code, updated=())
    def first_run(arrays: list[Raw]) -> tuple[Raw, ...]:
        found = code(arrays)
        if problem := _wrong_results(found, specs):
            raise RuntimeError(f"{name}: the function that compile={how!r} made of the program returned {problem}")
        keep(code)
        return found

    return first_run


def _unsupported(program: Program, numbers: Sequence[str]) -> dict[str, list[str]]:
    """Return what a program has besides calls of kernels, by what a compiler must support."""
    return {
        EFFECTS: sorted({instruction.name for instruction in program.instructions if instruction.effect}),
        NUMBERS: list(numbers),
        BRANCHES: sorted(_branches(program)),
    }


def _branches(program: Program) -> set[str]:
    """Return the names of branches and loops, also inside loops, that decide by values in each call."""
    found: set[str] = set()
    if not any([getattr(fn, "parts", None) for fn in program.functions]):
        return found
    for instruction in program.instructions:
        if parts := getattr(instruction.fn, "parts", None):
            found.update({instruction.name} - {"scan"}, *[_branches(part.traced) for part in parts])
    return found


def load_compiler(how: str | Compiler | None) -> Compiler | None:
    """Return the compiler of this name. Core, which loads it, does not know the class.

    Raises:
        CompilerError: it cannot be loaded.
    """
    if not isinstance(how, str):
        return how
    compiler: object = compilers.load(how)
    if not isinstance(compiler, Compiler):
        raise CompilerLoadError(
            f"compiler {how!r} cannot be loaded: tape_load_compiler() returned {compiler!r}, which is not a "
            f"tape_compile.extend.Compiler"
        )
    return compiler


def _wrong_results(found: object, specs: list[Spec | None]) -> str:
    """Say what is wrong with the results of a compiler's code; "" for nothing."""
    if not isinstance(found, tuple | list):
        return f"{found!r}, not a tuple of arrays"
    if len(found) != len(specs):
        return f"a tuple of {len(found)}, and the program has {len(specs)} outputs"
    for k, (value, spec) in enumerate(zip(found, specs, strict=True)):
        if spec is None or spec.dtype is None:
            continue  # a Python number
        if type(value) is Late:
            value = value.old
        shape = getattr(value, "shape", None)
        if shape is None or not hasattr(value, "dtype"):
            return f"{value!r} for output {k}, not an array"
        # A length of -1 is another one in each run.
        fits = len(shape) == len(spec.shape) and all(n in (m, -1) for m, n in zip(shape, spec.shape, strict=True))
        if not fits or value.dtype != spec.dtype:
            return (
                f"an array of shape {tuple(shape)} and {value.dtype} for output {k}, not {spec.shape} and {spec.dtype}"
            )
    return ""


def left_out(compiler: Compiler | None) -> frozenset[passes.Stage]:
    """Return the stages of passes that are left to a compiler which fuses by itself."""
    if compiler is None or not compiler.fuses:
        return frozenset()
    return passes.NOT_BY_NAME if compiler.by_name else passes.NOT_FOR_LIBRARY_COMPILERS
