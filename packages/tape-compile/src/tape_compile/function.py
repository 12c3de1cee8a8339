"""Compiled functions: the objects that `tape_core.function` makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial, update_wrapper
from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload
from weakref import ref

from tape_core import GradientTape, IndexedSlices, Tensor, asarray, random
from tape_core.backends import BackendMismatchError, compilers
from tape_core.staging import TracingError, current, foreign_tracers
from tape_core.support import (
    ACTIVE,
    OPEN_AXES,
    Lock,
    active_recorders,
    flag,
    lenient,
    lenient_html,
    pytree,
    release_spares,
    report_stage,
    undone_on_error,
    warn_user,
    wrap,
)
from tape_core.tracing import BINDINGS, Moment, is_replaying
from tape_core.typing import Fallback, PyTree, Retrace

from tape_compile import thresholds
from tape_compile.cache import Traces, remember
from tape_compile.cache_key import (
    SLICES,
    TENSOR,
    Args,
    Kwargs,
    Signature,
    Static,
    call_with_static,
    sees_keyword_order,
    static_key,
)
from tape_compile.call_guard import call_guard
from tape_compile.compilers import Compiler, NeedsValues
from tape_compile.events import compiling, not_compiled, traced
from tape_compile.methods import METHODS, Bound, Methods, WeakMethod, importable_name, unbound
from tape_compile.tracer.traced_array import TracedArray
from tape_compile.tracer.traced_backend import tracing_backend
from tape_compile.turns import tracing_turn

if TYPE_CHECKING:
    from os import PathLike

    from tape_core import Variable
    from tape_core.debugging import Float64Origins

    from tape_compile.codegen.executable import Compiled
    from tape_compile.tracer.trace import Trace
    from tape_compile.under_tape.entry import UnderTape
    from tape_compile.under_tape.trace import Joint

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Owner = TypeVar("Owner")
Others = ParamSpec("Others")

_PYTHON = "python"  # the compiler that runs the generated Python code


class Function(Generic[P, R_co]):
    """A compiled function; :func:`function` makes one.

    Attributes:
        python: the Python function that it compiles.
    """

    def __init__(
        self,
        python: Callable[P, R_co],
        *,
        static_argnames: Iterable[str] = (),
        donate: Iterable[str] = (),
        donate_variables: bool = False,
        fallback: Fallback = False,
        retrace: Retrace = "warn",
        compile: str | Compiler | Literal[False] | None = None,
        passes: dict[str, bool] | None = None,
        max_traces: int | None = None,
    ) -> None:
        update_wrapper(self, python)  # first, since it copies the attributes of a wrapped Function, which are set below
        self.python = python
        self._name = getattr(python, "__name__", "function")
        self._settings: dict[str, Any] = {
            "static_argnames": static_argnames,
            "donate": donate,
            "donate_variables": donate_variables,
            "fallback": fallback,
            "retrace": retrace,
            "compile": compile,
            "passes": passes,
            "max_traces": max_traces,
        }
        if inspect.isgeneratorfunction(python) or inspect.iscoroutinefunction(python):
            raise TypeError(f"function: {self._name} is a generator or coroutine, which cannot be traced in one run")
        # None: Python code, unless a compiler of the backend offers to take the program.
        self._compiler: str | Compiler | None
        if compile is None:
            self._compiler = compilers.default()
        else:
            self._compiler = compile if compile and compile != "none" else _PYTHON
        self._static = _parameter_names("static_argnames", static_argnames)
        self._fallback = fallback
        self._retrace = retrace
        if passes is not None and not isinstance(passes, Mapping):
            raise TypeError(f"function: passes must be a dict, as {{'cse': False}}, got {passes!r}")
        if compile is not None and compile is not False and not isinstance(compile, str | Compiler):
            raise TypeError(f"function: compile must be the name of a compiler or a Compiler, got {compile!r}")
        self._options: dict[str, bool] = {}
        if passes:
            from tape_compile.passes import canonical

            self._options = canonical(passes)
            # The names of today, so that the method of each instance does not warn of an old one again.
            self._settings["passes"] = self._options
        self._donate = _parameter_names("donate", donate)
        self._donates_variables = flag("function", "donate_variables", donate_variables)
        self._signature = inspect.signature(python) if self._static or self._donate else None
        self._sees_order = sees_keyword_order(python)
        for option, names in (("static_argnames", self._static), ("donate", self._donate)):
            for name in names:
                if self._signature is not None and name not in self._signature.parameters:
                    raise ValueError(
                        f"function: {option} has {name!r}; the parameters of {self._name} are "
                        f"{', '.join(self._signature.parameters)}"
                    )
        if both := set(self._static) & set(self._donate):
            raise ValueError(f"function: {min(both)!r} is in static_argnames and in donate; only Tensors are donated")
        if fallback not in (False, True, "silent"):
            raise ValueError(f"function: fallback must be True, False or 'silent', got {fallback!r}")
        if retrace not in ("warn", "allow", "error"):
            raise ValueError(f"function: retrace must be 'warn', 'allow' or 'error', got {retrace!r}")
        if max_traces is None:
            max_traces = thresholds.MAX_TRACES
        if type(max_traces) is not int or max_traces < 1:
            raise ValueError(f"function: max_traces must be a positive number, got {max_traces!r}")
        # Several traces have one cache key where they depend on something besides, such as a mode: on guards.
        self._compiled: Traces[Compiled] = Traces(max_traces)
        self._eager: dict[Hashable, str] = {}  # by cache key, why the function runs as plain Python
        # By the cache key of calls with host data alone, a Tensor where they belong, if not on the selected backend.
        self._host_places: dict[Hashable, Tensor] = {}
        self._traces = 0
        self._made_variables = False
        self._under_tape_traces: UnderTape | None = None
        self._lock = Lock()
        self._unbound_ref = ref(self)
        self._alike: dict[Hashable, Function[..., Any]] = {}

    @lenient
    def __repr__(self) -> str:
        state = "1 trace" if self.traces == 1 else f"{self.traces} traces"
        if self._eager:
            state += ", calls that run as plain Python"
        return f"<compiled function {self._name}: {state}>"

    @lenient_html
    def _repr_html_(self) -> str:
        from tape_compile.display import function_html

        kept: list[tuple[str, Any]] = [
            *[("call", one) for one in self._compiled.all], *[("in a tape's block", one) for one in self._joints]
        ]  # fmt: skip
        traces = [(what, one.traced, one.source.program) for what, one in kept]
        return function_html(repr(self), self._name, traces, self.fallbacks)

    # Of a method the type checker sees the parameters without `self`.
    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Function[P, R_co]: ...
    @overload
    def __get__(
        self: Function[Concatenate[Owner, Others], R_co], instance: Owner, owner: type | None = None
    ) -> Function[Others, R_co]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the method of an instance; each has its own traces, which end with it."""
        if instance is None:
            return self
        try:  # the hot path of `Methods.find`: every access of `instance.method` comes here
            entry = instance.__dict__[METHODS][self, id(instance)]
            if entry[0]() is instance:
                return _Method.to(self, instance, entry[1])
        except (AttributeError, KeyError):
            pass
        try:
            found = Methods.find(instance, self, lambda: Function(WeakMethod(self.python, instance), **self._settings))
        except TypeError:  # an instance with __slots__ alone: it is a static argument instead
            return MethodType(self, instance)
        return _Method.to(self, instance, found)

    def __reduce__(self) -> Any:
        """Copy or pickle without the traces: by name if that leads here, else with the Python function."""
        return importable_name(self, self.python) or (_rebuild, (self.python, self._settings))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        active = ACTIVE.get()
        if active:
            active = active_recorders()
        is_traced = False
        for tracer in foreign_tracers:
            is_traced = is_traced or tracer()
        if active or OPEN_AXES.get() or current() is not None or is_traced:
            one = len(active) == 1 and not is_traced and BINDINGS.get() is None
            if one and self._records_whole and not OPEN_AXES.get() and current() is None:
                tape = active[0]
                # A checkpoint keeps the results of ops, and its replay must meet the same ops: it traces through.
                if isinstance(tape, GradientTape) and tape._journal is None and not is_replaying():
                    return self._under_tape(tape, args, kwargs)  # type: ignore[no-any-return]
            # Recorders, vmaps and traces around the call must see each op.
            return self._run_eagerly(args, kwargs)  # type: ignore[no-any-return]
        known = self._compiled.latest
        if known is not None and known.leaves_of is not None:
            leaves = known.leaves_of(args, kwargs)
            if leaves is not None and known.fits() and not known.backend.is_strict:
                known.recent = True
                return known(leaves)  # type: ignore[no-any-return]
        return self._call_compiled(*self._split_call(args, kwargs), args, kwargs)  # type: ignore[no-any-return]

    def _call_compiled(
        self, signature: Signature, static: Static, with_kwargs: bool, args: Args, kwargs: Kwargs
    ) -> Any:
        """Run the trace of this cache key, or trace the function first; no recorder is active."""
        for compiled in self._compiled.get(signature.key, ()):
            if compiled.fits():
                compiled.recent = True
                if compiled.backend.is_strict:
                    return self._run_eagerly(args, kwargs)
                if compiled.leaves_of is None and self._signature is None:
                    compiled.leaves_of = call_guard(signature, args, kwargs)
                self._compiled.latest = compiled
                if signature.host and not compiled.takes_host_data:
                    signature.upload()
                return compiled(signature.leaves)
        if signature.key in self._eager:
            return self._run_eagerly(args, kwargs)
        signature.upload()
        with tracing_turn(self._lock) as may_trace:
            if may_trace:
                # Another thread may have traced it while this one waited.
                found = next((one for one in self._compiled.get(signature.key, ()) if one.fits()), None)
                if found is None and signature.key not in self._eager:
                    bits = None if signature.uploaded is None else random.get_state()
                    eager = partial(self._run_eagerly, args, kwargs)
                    with compiling(self._name, signature):
                        try:
                            return self._first_call(signature, static, with_kwargs, eager)
                        except BackendMismatchError as error:
                            if bits is None or not self._move_host_data(signature, error):
                                raise
                            random.set_state(bits)
                            signature, static, with_kwargs = self._split_call(args, kwargs)
                            signature.upload()
                            return self._first_call(signature, static, with_kwargs, eager)
            else:
                found = None
        return self._run_eagerly(args, kwargs) if found is None else found(signature.leaves)

    def _run_eagerly(self, args: Args, kwargs: Kwargs) -> Any:
        """Run the Python function as it is. What it has assigned is undone if it does not end, as in compiled calls."""
        if current() is not None:  # what it assigns is the trace's
            return self.python(*args, **kwargs)
        tensors = [*args, *kwargs.values()]
        if not all([type(given) is Tensor for given in tensors]):
            tensors = [leaf for leaf in pytree.flatten_whole(tensors)[0] if type(leaf) is Tensor]
        names = ["_array", "_slots", "backend"]  # what `x += y` sets
        with undone_on_error([t for t in tensors for _ in names], names * len(tensors)):
            return self.python(*args, **kwargs)

    def _split_call(self, args: Args, kwargs: Kwargs) -> tuple[Signature, Static, bool]:
        """Return the signature of a call, its static arguments, and whether any others are passed by keyword."""
        static: Static = ()
        if self._signature is None:
            if len(kwargs) > 1 and not self._sees_order:
                kwargs = dict(sorted(kwargs.items()))
        else:
            static, kwargs = self._split_static(args, kwargs)
            args = ()
        keys = [key for _, _, key in static] if static else ()
        signature = Signature(args, kwargs, keys, self._name)
        if self._host_places and (place := self._host_places.get(signature.key)) is not None:
            signature = Signature(args, kwargs, keys, self._name, place)
        return signature, static, bool(kwargs)

    def _move_host_data(self, signature: Signature, error: BackendMismatchError) -> bool:
        """Have the host data of such calls go where the function's own values are; return False where they are there.

        Where all arguments are host data, only the function knows what they meet: Variables, or Tensors of its closure.
        """
        if (made := signature.uploaded) is None:
            return False
        for backend, device in error.places:
            if backend is not made.backend.library:
                remember(self._host_places, signature.key, asarray(0, backend=backend, device=device))
                return True
        return False

    @property
    def _records_whole(self) -> bool:
        """Whether calls inside tapes' blocks are compiled: by Tape, or by a compiler that takes them."""
        how = self._compiler
        if how is None or how == _PYTHON:
            return True
        from tape_compile.codegen.executable import load_compiler

        compiler = load_compiler(how)
        return compiler is not None and compiler.under_tape

    @property
    def _under_tape(self) -> UnderTape:
        """The traces for calls inside tapes' blocks; the first such call makes the object."""
        if self._under_tape_traces is None:
            from tape_compile.under_tape.entry import UnderTape

            how = None if self._compiler == _PYTHON else self._compiler
            self._under_tape_traces = UnderTape(unbound(self), self._name, self._options, how)
        return self._under_tape_traces

    def _split_static(self, args: Args, kwargs: Kwargs) -> tuple[Static, Kwargs]:
        """Return the static arguments with their cache keys, and the others by name."""
        assert self._signature is not None
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        static = [
            (name, value, static_key(value, lambda name=name: f"{self._name}: static argument {name!r}"))  # type: ignore[misc]
            for name, value in bound.arguments.items()
            if name in self._static
        ]
        others = {name: value for name, value in bound.arguments.items() if name not in self._static}
        return tuple(static), others

    def _first_call(
        self,
        signature: Signature,
        static: Static,
        with_kwargs: bool,
        call_python: Callable[[], Any],
        *,
        with_values: bool = False,
    ) -> Any:
        began = perf_counter()
        if not with_values:
            self._check_retraces(self._traces)
        # The tracer is imported with the first call, since `import tape_core` shall not pay for it.
        from tape_compile.codegen.executable import DONATED, Compiled, check_no_alias, load_compiler
        from tape_compile.control_flow import FlowTrace
        from tape_compile.donation import invalidate_donated
        from tape_compile.results import check_containers, check_result, explain_leaked_arrays, settled, warn_of_caught
        from tape_compile.tracer.contexts import outside, tracing
        from tape_compile.tracer.late_updates import LateUpdates

        # Tracing runs the function on the real arrays of this call, so the first call has its results, too.
        compiler = load_compiler(self._compiler)
        by_name = compiler is not None and compiler.by_name
        trace = FlowTrace(self._name, self._options, fallback=bool(self._fallback), by_name=by_name)
        if compiler is not None and compiler.stand_ins is not None and not with_values:
            tensors = [
                leaf._array for leaf, kind in zip(signature.leaves, signature.kinds, strict=True) if kind == TENSOR
            ]
            if tensors and SLICES not in signature.kinds and all(map(compiler.stand_ins.takes, tensors)):
                trace.stand_ins = compiler.stand_ins
        if trace.stand_ins is None and self._options.get("in_place", True):
            trace.late_updates = LateUpdates()
        leaves: list[Any] = []
        for leaf, kind in zip(signature.leaves, signature.kinds, strict=True):
            if kind == TENSOR:
                leaves.append(_trace_input(trace, leaf))
            elif kind == SLICES:
                leaves.append(
                    IndexedSlices(_trace_input(trace, leaf.values), _trace_input(trace, leaf.indices), leaf.dense_shape)
                )
            else:
                leaves.append(leaf)
        for k in self._donated_leaves(signature):
            trace.donated[k] = leaves[k]._array.id
        trace.donates_variables = self._donates_variables
        given = {k: leaf._array for k, leaf in enumerate(leaves) if signature.kinds[k] == TENSOR}
        args, kwargs = signature.arguments(leaves, with_kwargs)
        # With fallback the function may run once more, as Python: then it draws the same random numbers.
        bits = random.get_state() if self._fallback or trace.stand_ins is not None else None
        release_spares()  # this call makes new values beside what is there
        moment = Moment()
        try:
            with tracing(trace), moment.undone_on_error():
                with explain_leaked_arrays(trace):
                    result = settled(
                        moment, lambda: self._call_python(args, kwargs, static), self._refuse_change, leaves
                    )
                if args or kwargs:
                    tree = (args, kwargs) if with_kwargs else args
                    check_containers(self._name, signature.structure, leaves, tree)
                check_result(self._name, result)
                warn_of_caught(trace)
                # x += y inside the function assigns to the caller's Tensor: each run returns its new array, too.
                changed = {k: leaves[k]._array for k, array in given.items() if leaves[k]._array is not array}
                check_no_alias(self._name, signature.leaves, changed)
                check_no_alias(self._name, signature.leaves, trace.donated, DONATED)
                compiled = None
                if trace.failed is None:
                    compiled = Compiled(self._name, trace, signature, changed, result, self._options, self._compiler)
            new_variables = trace.new_variables
            if trace.stand_ins is None:
                given.clear()
                trace.complete({signature.leaves[k]: array for k, array in changed.items()})
            elif compiled is None:
                raise NeedsValues("the function runs as plain Python")
        except Exception as error:
            if trace.stand_ins is not None and bits is not None:
                # A decision by a value, an error of the user's, or something that has values only: it is told, or done,
                # in a trace with values.
                random.set_state(bits)
                return self._first_call(signature, static, with_kwargs, call_python, with_values=True)
            if bits is None or not isinstance(error, TracingError):
                raise
            random.set_state(bits)
            self._fall_back(signature.key, error)
            return call_python()
        finally:
            trace.end()
        if trace.stand_ins is not None:
            assert compiled is not None
            self._keep(compiled, signature, static, began)
            report_stage(f"compiler {self._compiler}, first run" if isinstance(self._compiler, str) else "first run")
            return compiled(signature.leaves)
        if compiled is not None and compiled.spares is not None:
            compiled.spares.settle()
        if trace.failed is None:
            invalidate_donated(self._name, signature.leaves, trace.donated)
        if trace.failed is not None:
            self._fall_back(signature.key, trace.failed)
        elif new_variables:
            # The trace makes them in each run, but a function is to make its Variables once: the second call is traced
            # again, finds them, and that trace is kept.
            self._check_new_variables(new_variables)
        else:
            assert compiled is not None
            self._keep(compiled, signature, static, began)
        with outside():
            return _concrete_result(result)

    def _refuse_change(self, what: str) -> Exception:
        return TracingError(
            f"{self._name} is compiled, and {what}: there it is a constant. Write x = x + y in place of x += y, and "
            f"x = tape_core.at(x)[key].set(value) in place of x[key] = value, for a new Tensor; or make it a Variable "
            f"and assign it, or give it as an argument"
        )

    def _keep(self, compiled: Compiled, signature: Signature, static: Static, began: float) -> None:
        """Keep a trace for further calls."""
        traced(self._name, compiled, signature, self._traces, began)
        callers = [*signature.leaves, *[value for _, value, _ in static]]
        compiled.release(callers, self._forget_key(signature.key))
        self._compiled.add(signature.key, compiled)
        self._traces += 1

    def _fall_back(self, key: Hashable, why: TracingError) -> None:
        """Run the function as plain Python for this cache key from now on, with a warning."""
        remember(self._eager, key, str(why))
        not_compiled(self._name, str(why))
        if self._fallback != "silent":
            warn_user(f"{why}\n{self._name} is not compiled for these arguments, and runs as plain Python.")

    def _forget_key(self, key: Hashable) -> Callable[[], None]:
        """Return a callback that drops the traces of a key, which cannot occur again once its arguments are gone."""
        function = self._unbound_ref

        def forget() -> None:
            if (found := function()) is not None:
                found._compiled.forget(key)
                found._eager.pop(key, None)

        return forget

    def _donated_leaves(self, signature: Signature) -> list[int]:
        """Return the numbers of the donated Tensors among the leaves of the arguments."""
        if not self._donate or not signature.leaves:
            return []
        _, named = pytree.unflatten(signature.structure, list(range(len(signature.leaves))))
        places = [k for name in self._donate for k in pytree.flatten_whole(named[name])[0]]
        return [k for k in places if signature.kinds[k] == TENSOR]

    def _compiled_alike(
        self, key: Hashable, make: Callable[[Callable[P, R_co]], Callable[..., Any]], x: Tensor
    ) -> Function[..., Any] | None:
        """Return what `make` makes of the Python function, compiled as this one is, and kept with it under a key.

        None where that does not pay: only of arrays like JAX's is each call by itself another program to compile. What
        cannot be compiled runs as plain Python, as a call of this function does in there.
        """
        from tape_compile.codegen.executable import load_compiler

        compiler = load_compiler(self._compiler)
        if compiler is None or compiler.stand_ins is None or not compiler.stand_ins.takes(x._array):
            return None
        found = self._alike.get(key)
        if found is None:
            own = {"static_argnames": (), "donate": (), "donate_variables": False, "fallback": "silent"}
            made = Function(make(self.python), **{**self._settings, **own, "retrace": "allow"})
            found = self._alike.setdefault(key, made)
        return found

    def _call_python(self, args: Args, kwargs: Kwargs, static: Static) -> Any:
        return call_with_static(self.python, self._signature, args, kwargs, static)

    def _check_retraces(self, known: int) -> None:
        if known and self._retrace == "error":
            raise RuntimeError(
                f"{self._name} is compiled, and would have to be traced again: with retrace='error' it is traced once. "
                f"Call it with arrays of the same shapes and dtypes, and the same Python values; known: "
                f"{known} trace"
            )
        if known == thresholds.RETRACES_WARN_AT and self._retrace == "warn":
            warn_user(
                f"{self._name} is compiled, and is traced for the {known + 1}th time, which takes longer than an "
                f"eager call. Numbers among its arguments, Python's and NumPy's scalars, are constants of a trace: "
                f"give those that change as Tensors; pad arrays of many shapes to a few; make Tensors, not functions, "
                f"in loops. If it is meant: tape_core.function(retrace='allow')"
            )

    def _check_new_variables(self, made: list[Variable]) -> None:
        if self._made_variables:
            raise ValueError(
                f"{self._name} is compiled, and makes a Variable again in a later call: {made[0]!r}. Make it "
                f"outside, or keep the one of the first call"
            )
        self._made_variables = True

    # -- inspection

    @property
    def traces(self) -> int:
        """The number of traces that are kept, including those of calls inside tapes' blocks."""
        return len(self._compiled.all) + len(self._joints)

    @property
    def _joints(self) -> list[Joint]:
        return [] if self._under_tape_traces is None else self._under_tape_traces.compiled

    @property
    def fallbacks(self) -> list[str]:
        """The reasons why the function runs as plain Python, one for each cache key for which it does.

        Those of calls inside tapes' blocks come last.
        """
        under_tape = self._under_tape_traces
        return [*self._eager.values(), *(() if under_tape is None else under_tape.refusals.values())]

    def show(self) -> None:
        """Print the generated source of each trace; the newest comes last."""
        print(self.text())  # noqa: T201 - what it is for

    def text(self) -> str:
        """Return the generated source of each trace, as :meth:`show` prints it."""
        found = [compiled.source for compiled in self._compiled.all]
        found += [source for joint in self._joints for source in joint.sources]
        return "\n".join([source.whole for source in found]) or f"# {self._name} was not traced yet"

    def float64_origins(self, *args: P.args, **kwargs: P.kwargs) -> Float64Origins:
        """Return the ops that make float64 (or complex128) of narrower floats, with your lines.

        What is computed further with their results is not listed, nor what no result depends on.

        Args:
            args, kwargs: arguments as in a call, to choose their trace; where there is none yet, the function is
                called with them.

        Raises:
            ValueError: the function runs as plain Python for these arguments.
        """
        from tape_compile.precision import float64_origins

        return float64_origins(self._compiled_for(args, kwargs, "float64_origins").traced)

    def export(
        self,
        path: str | PathLike[str],
        /,
        *args: Any,
        constants: Literal["inline", "npz"] = "inline",
        variables: Literal["arguments", "constants"] = "arguments",
        format: Literal["python", "stablehlo"] = "python",
        derivatives: int = 0,
        **kwargs: Any,
    ) -> None:
        """Write the generated code of a trace to a Python file that needs the array library, but not Tape.

        The file has one function of raw arrays: the Tensors among the arguments, then the Variables that are read. It
        returns a tuple: the Tensors of the result, then the new values of the Variables that are assigned. So gradients
        are source code, and so are branches and loops.

        Args:
            path: the file.
            args, kwargs: arguments as in a call, to choose their trace; where there is none yet, the function is
                called with them. By default it is the newest trace.
            constants: where arrays go that are the same in each call: into the file, or with `"npz"` those of more than
                64 elements into a file of NumPy's beside it, of the same name.
            variables: whether Variables are arguments, or constants of the values that they have now.
            format: `"stablehlo"` writes the program of a function that is compiled by XLA as data, for
                `tape_jax.load_exported` and `jax.export.deserialize`.
            derivatives: in that format, up to which order derivatives are in the file.

        Raises:
            RuntimeError: there is no trace yet.
            ValueError: the function draws random numbers, makes opaque calls, assigns Variables that are
                constants, or has something that is in no file; or an argument of this method is not what it must be.
        """
        from tape_compile.export import export

        for name, given, known in (
            ("constants", constants, ("inline", "npz")), ("variables", variables, ("arguments", "constants")),
            ("format", format, ("python", "stablehlo")),
        ):  # fmt: skip
            if given not in known:
                raise ValueError(f"export: {name} must be {known[0]!r} or {known[1]!r}, got {given!r}")
        if args or kwargs:
            chosen = self._compiled_for(args, kwargs, "export")
        elif self._compiled:
            chosen = list(self._compiled.values())[-1][0]
        else:
            raise RuntimeError(f"export: {self._name} was not traced yet: call it with arguments like those it is for")
        if format == "stablehlo":
            export.write_data(path, chosen.serialized(self._name, variables, derivatives))
            return
        beside: dict[str, Any] | None = {} if constants == "npz" else None
        export.write(path, chosen.exported(self._name, variables, beside), beside)

    def _compiled_for(self, args: Args, kwargs: Kwargs, method: str) -> Compiled:
        """Return the code for these arguments, after a call with them if there is none.

        Raises:
            ValueError: the function runs as plain Python for these arguments.
        """
        signature, _, _ = self._split_call(args, kwargs)
        for _ in range(3):  # the trace of a call that makes Variables is not kept, so it takes another call
            for compiled in self._compiled.get(signature.key, ()):
                if compiled.fits():
                    return compiled
            self(*args, **kwargs)
        raise ValueError(f"{method}: {self._name} is not compiled for these arguments, and runs as plain Python")

    def stats(self) -> list[dict[str, Any]]:
        """Return the effect of the passes, as one dict for each trace.

        `"traced"` is the number of instructions in the trace, and the name of each pass that ran is a key for the
        number after it. `"elements_traced"` and `"elements"` count the elements of all arrays that a call allocates,
        before and after the passes.
        """
        from tape_compile.passes import Statistics

        kept: list[Any] = [*self._compiled.all, *self._joints]
        return [
            Statistics(
                {
                    "traced": len(compiled.traced.instructions),
                    **compiled.effects,
                    "elements_traced": compiled.traced.elements,
                    "elements": compiled.source.program.elements,
                }
            )
            for compiled in kept
        ]


class _Method(Bound, Function[P, R_co]):
    """A compiled method, which keeps its instance alive."""

    __slots__ = ("_bound_to",)


def _parameter_names(option: str, given: object) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"function: {option} must be a parameter's name, or several, got {wrong[0]!r}")
    return names


def _rebuild(python: Callable[..., Any], settings: dict[str, Any]) -> Function[..., Any]:
    return Function(python, **settings)


def _trace_input(trace: Trace, tensor: Tensor) -> Tensor:
    backend = tracing_backend(tensor.backend, trace)
    return wrap(trace.input(tensor._array, backend), backend)


def _concrete_result(result: PyTree) -> Any:
    """Return the result of the traced run with the library's arrays in place of traced ones."""
    if result is None:
        return None
    leaves, structure = pytree.flatten_whole(result)
    return pytree.unflatten(structure, [_concrete_leaf(leaf) for leaf in leaves])


def _concrete_leaf(leaf: object) -> Any:
    if isinstance(leaf, IndexedSlices):
        return IndexedSlices(_concrete_leaf(leaf.values), _concrete_leaf(leaf.indices), leaf.dense_shape)
    if type(leaf) is not Tensor:
        return leaf
    array = leaf._array
    return wrap(array.value if type(array) is TracedArray else array, leaf.backend.library)
