"""tf.function: `tape_core.function` under TensorFlow's rules.

A function that cannot be compiled, because Python decides by a tensor's value, runs as plain Python in each call.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload
from weakref import ref

import numpy as np
import tape_core as tc
from tape_compile.extend import Bound, Methods, WeakMethod, importable_name
from tape_compile.extend import Function as CompiledFunction
from tape_core.staging import current
from tape_core.support import pytree, setting

from tape_tf import logger, nest
from tape_tf.conversion import convert_to_tensor, native, unwrap, wrap
from tape_tf.names import exported
from tape_tf.ops.arrays import TensorArray
from tape_tf.shapes import TensorSpec
from tape_tf.string_tensor import StringTensor
from tape_tf.tensor import IndexedSlices, Tensor, Value
from tape_tf.tracing import require_value, without_trace
from tape_tf.typing import PyTree, TensorLike
from tape_tf.variable import Variable

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)  # noqa: PLC0105 - not `R_co`: it is an ordinary one elsewhere
S = TypeVar("S")

INSIDE: ContextVar[bool] = ContextVar("tape_tf.inside_function", default=False)
"""True while the code of a tf.function runs."""

# TensorFlow's own limits: it warns of 5 traces in the last 10 calls.
RETRACING_WARNING_TRACES = 5  # traces
RETRACING_WARNING_CALLS = 10  # calls


class _Switch:
    """The process-wide switch that `tf.config.run_functions_eagerly` sets.

    Attributes:
        eagerly: True to run functions as plain Python.
    """

    eagerly = False


class _Compiled(CompiledFunction[..., Any]):
    """A compiled function with TensorFlow's rule, and message, for Variables made inside it."""

    def _check_new_variables(self, trace: object) -> None:
        # The first trace may make Variables (`if self.w is None: self.w = tf.Variable(...)`), a later one may not.
        if self._made_variables:
            raise ValueError(
                "tf.function only supports singleton tf.Variables created on the first call. Make sure the tf.Variable "
                "is only created once or created outside tf.function. See "
                "https://www.tensorflow.org/guide/function#creating_tfvariables for more information."
            )
        self._made_variables = True

    def code_for(self, args: tuple[Any, ...]) -> Any:
        """Return the code for these arguments.

        Raises:
            ValueError: the function runs as plain Python for these arguments.
        """
        try:
            return self._compiled_for(args, {}, "saved_model.save")
        except ValueError as error:
            raise ValueError("\n".join([str(error), *self.fallbacks])) from None


class Function:
    """A Python function with its traces: the result of `tf.function`.

    Attributes:
        python_function: the Python function.
        input_signature: the TensorSpecs that its arguments must be compatible with; None for any arguments.
        seen: the specs of the arguments of each trace, and of each concrete function, for which it can be saved.
    """

    def __init__(self, python_function: Callable[..., Any], input_signature: Sequence[PyTree] | None = None) -> None:
        self.python_function = python_function
        self.input_signature = None if input_signature is None else tuple(input_signature)
        update_wrapper(self, python_function)
        self._signature = _signature_of(python_function)
        self._weak_self = ref(self)
        self._compiled = self._compile()
        self._traces = 0
        self.seen: list[Any] = []
        self._recent_calls: deque[bool] = deque(maxlen=RETRACING_WARNING_CALLS)  # True for each call that traced

    def _compile(self) -> _Compiled:
        # A weak reference, since self holds the compiled function: a cycle would keep both until the next collection.
        # While the function is called, self is alive.
        weak_self = self._weak_self

        def traced(*args: Any, **kwargs: Any) -> Any:
            return weak_self()._call_native(args, kwargs)  # type: ignore[union-attr]

        traced.__name__ = getattr(self.python_function, "__name__", "function")
        traced.__wrapped__ = self.python_function  # type: ignore[attr-defined]
        # Silent, since in TensorFlow, whose autograph compiles an `if` on a tensor, the same code gives no warning.
        return _Compiled(traced, fallback="silent", retrace="allow")

    # -- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # In this order: as plain Python if that is asked for or no trace can be kept; inlined into the trace around it;
        # else by a trace of this function, which tape_core's function finds or makes.
        args, kwargs = self._bind(args, kwargs)
        if _Switch.eagerly:
            return nest.map_structure(as_result, self.python_function(*args, **kwargs))
        given = _native_arguments(args, kwargs)
        if given is None:
            return self._call_python(args, kwargs)
        if current() is not None:  # the function around this one is being traced, and this is inlined into it
            return wrap(self._compiled(*given[0], **given[1]))
        before = self._traces
        found = self._compiled(*given[0], **given[1])
        self._recent_calls.append(self._traces > before)
        if self._traces > before:
            self._warn_of_retracing()
            if self.input_signature is None:
                self._note(nest.map_structure(_spec, (args, kwargs)))
        return wrap(found)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Return the arguments by position, with defaults, so that `f(1, b=2)` and `f(1, 2)` share a trace."""
        signature = self._signature
        if self.input_signature is not None:
            return self._fit_signature(args, kwargs), {}
        if signature is None or (not kwargs and len(args) == len(signature.parameters)):
            return args, kwargs
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def _call_native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the Python function with tape_core's values: in a trace, or uncompiled when a tape around needs it."""
        if current() is not None:
            self._traces += 1
        args, kwargs = nest.map_structure(_untyped, (wrap(args), wrap(kwargs)))
        found = self._call_python(args, kwargs)
        leaves, structure = pytree.flatten_whole(found)
        for leaf in leaves:
            # A TensorArray that is returned holds tensors that the trace does not know as results.
            if isinstance(leaf, TensorArray) and current() is not None:
                require_value("what is in a TensorArray")
                leaf._parts = [None if part is None else without_trace(part) for part in leaf._parts]
        return pytree.unflatten(structure, [unwrap(leaf) for leaf in leaves])

    def _call_python(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Also where the function is not compiled: tf.executing_eagerly() is False inside of any tf.function.
        with setting(INSIDE, True):
            return nest.map_structure(as_result, self.python_function(*args, **kwargs))

    def _warn_of_retracing(self) -> None:
        if (traced := sum(self._recent_calls)) >= RETRACING_WARNING_TRACES and self.input_signature is None:
            logger.warning(
                "%d out of the last %d calls to %s triggered tf.function retracing. Tracing is expensive and the "
                "excessive number of tracings could be due to (1) creating @tf.function repeatedly in a loop, (2) "
                "passing tensors with different shapes, (3) passing Python objects instead of tensors.",
                traced, len(self._recent_calls), self.python_function,
            )  # fmt: skip
            self._recent_calls.clear()

    def _fit_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Convert the arguments to tensors, and check them against the input signature."""
        specs = self.input_signature or ()
        if self._signature is not None and (kwargs or len(args) < len(specs)):
            try:
                bound = self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise self._signature_error(str(error), args, kwargs) from None
            given = set(bound.arguments)
            bound.apply_defaults()
            # Defaults of parameters after those that the signature describes are left to the Python function.
            described = given.isdisjoint(list(bound.arguments)[len(specs) :])
            args = bound.args[: len(specs)] if described else bound.args
        if len(args) != len(specs):
            what = "too many positional arguments" if len(args) > len(specs) else "missing a required argument"
            raise self._signature_error(what, args, kwargs)

        def check(spec: TensorSpec, value: TensorLike) -> Any:
            try:
                tensor = value if isinstance(value, Value) else convert_to_tensor(value, dtype=spec.dtype)
            except (TypeError, ValueError) as error:
                raise self._signature_error(str(error), args, kwargs) from None
            if not spec.is_compatible_with(tensor):
                raise self._signature_error(f"Can not cast {TensorSpec.from_tensor(tensor)} to {spec}", args, kwargs)
            return tensor

        return tuple(
            check(spec, arg) if isinstance(spec, TensorSpec) else nest.map_structure(check, spec, arg)
            for spec, arg in zip(specs, args, strict=True)
        )

    def _signature_error(self, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        specs = ", ".join(map(repr, self.input_signature or ()))
        return TypeError(
            f"Binding inputs to tf.function failed due to `{what}`. Received args: {args} and kwargs: {kwargs} for "
            f"signature: {getattr(self, '__name__', 'function')}({specs})."
        )

    # -- methods

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind a method: each instance has traces of its own, for as long as it lives."""
        if instance is None:
            return self

        method = self.python_function.__get__(instance, owner)
        try:
            found = Methods.find(
                instance, self, lambda: Function(WeakMethod.of(method, instance), self.input_signature)
            )
        except TypeError:  # the instance has __slots__ and takes no weak references: it is traced anew in each access
            found = Function(method, self.input_signature)
            found.__dict__.pop("__wrapped__", None)
            return found
        return _Method.to(self, instance, found)

    # -- what it tells of itself

    def experimental_get_tracing_count(self) -> int:
        """Return how often the function was traced."""
        return self._traces

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """Return the function for arguments of given shapes and dtypes.

        Args:
            *args, **kwargs: tensors or TensorSpecs, and the Python values of the others; none if there is an
                `input_signature`.
        """
        if self.input_signature is not None and not args and not kwargs:
            # Without arguments the specs themselves stand for them.
            args = self.input_signature
        found = ConcreteFunction(self, args, kwargs)
        if self.input_signature is None:
            self._note(found.structured_input_signature)
        return found

    def _note(self, signature: Any) -> None:
        # Other objects are not kept: they are in no file, and would live as long as the function.
        plain = all(isinstance(leaf, TensorSpec | bool | int | float | str | None) for leaf in nest.flatten(signature))
        # By their text, since 1 == True == 1.0, of which each has its own trace.
        if plain and repr(signature) not in map(repr, self.seen):
            self.seen.append(signature)

    def trace_apart(self, args: tuple[Any, ...]) -> Any:
        """Return the compiled code for tape_core's values, which later calls do not use.

        Raises:
            ValueError: the function runs as plain Python for these arguments.
        """
        known, compiled = self._traces, self._compile()
        try:
            return compiled.code_for(args)
        finally:
            self._traces = known

    def __getattr__(self, name: str) -> Any:
        if name in ("experimental_get_compiler_ir", "pretty_printed_concrete_signatures"):
            # Messages for what users of TensorFlow ask a function for; the second line is Python's usual one.
            raise AttributeError(f"tf.function has no {name}: there is no graph")
        raise AttributeError(f"'Function' object has no attribute {name!r}")

    def __reduce__(self) -> Any:
        """Pickle the Python function and the signature: a copy has no traces."""
        return importable_name(self, self.python_function) or (Function, (self.python_function, self.input_signature))

    def __repr__(self) -> str:
        return f"<tf.function {getattr(self.python_function, '__qualname__', self.python_function)!r}>"


class _Method(Bound, Function):
    """A tf.function that is bound to an instance, which it keeps alive."""

    __slots__ = ("_bound_to",)


class ConcreteFunction:
    """A function for arguments of given shapes and dtypes: `tf.function(...).get_concrete_function(...)`.

    Attributes:
        function: the tf.function.
        structured_input_signature: a pair: the specs of positional arguments, and those of keyword arguments.
    """

    def __init__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        signature = function._signature
        if signature is not None:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        self.structured_input_signature = nest.map_structure(_spec, (args, kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with tensors that fit the signature; Python values may be left out."""
        signature = self.function._signature
        expected, named = self.structured_input_signature
        if signature is not None:
            specs = signature.bind(*expected, **named)
            given = signature.bind_partial(*args, **kwargs)
            for name, spec in specs.arguments.items():
                if name not in given.arguments and not _has_specs(spec):
                    given.arguments[name] = spec
            specs_by, given_by = dict(specs.arguments), dict(given.arguments)
            if missing := [name for name in specs_by if name not in given_by]:
                raise self._signature_error(f"missing a required argument: {missing[0]!r}", args, kwargs)
            ordered = inspect.BoundArguments(signature, {name: given_by[name] for name in specs_by})
            args, kwargs = ordered.args, ordered.kwargs
        try:
            nest.assert_same_structure((expected, named), (args, kwargs))
        except (TypeError, ValueError) as error:
            raise self._signature_error(str(error), args, kwargs) from None
        nest.map_structure(lambda s, value: self._check(s, value, args, kwargs), (expected, named), (args, kwargs))
        return self.function(*args, **kwargs)

    def _check(self, spec: object, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not isinstance(spec, TensorSpec):
            if spec is not value and spec != value:
                raise self._signature_error(f"{value!r} in place of {spec!r}", args, kwargs)
            return
        tensor = value if isinstance(value, Value) else convert_to_tensor(value, dtype=spec.dtype)
        if not spec.is_compatible_with(tensor):
            raise self._signature_error(f"Can not cast {TensorSpec.from_tensor(tensor)} to {spec}", args, kwargs)

    def _signature_error(self, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        return TypeError(
            f"Binding inputs to tf.function failed due to `{what}`. Received args: {args} and kwargs: {kwargs} for "
            f"signature: {self.structured_input_signature}."
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a concrete function has no {name}: it is traced when it is called, and has no graph")


def _spec(leaf: object) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        leaf = convert_to_tensor(leaf)
    return TensorSpec.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf


def _has_specs(tree: PyTree) -> bool:
    return any(isinstance(leaf, TensorSpec) for leaf in nest.flatten(tree))


def _signature_of(python_function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(python_function)
    except (TypeError, ValueError):  # built-in functions
        return None


def _native_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """Convert arguments to tape_core's values; return None if no trace can be kept for them (unhashable ones)."""
    # The common call, without a walk through nested arguments; a list, since short ones are faster than a generator.
    if not kwargs and all([type(arg) is Tensor for arg in args]):
        return [arg.native for arg in args], kwargs
    leaves, structure = pytree.flatten_whole((args, kwargs))
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, StringTensor):
            return None  # the code depends on strings on the host, which a trace could only take for constants
        if isinstance(leaf, Value | IndexedSlices):
            leaves[k] = leaf.native
        elif isinstance(leaf, np.ndarray | np.generic):
            leaves[k] = native(leaf)
        elif isinstance(leaf, TensorArray):
            return None  # a mutable list of tensors, which a trace could not tell apart by its identity
        elif not isinstance(leaf, tc.Tensor | tc.IndexedSlices):
            if hasattr(type(leaf), "__tf_tracing_type__"):
                leaves[k] = leaf = _Typed(leaf, leaf.__tf_tracing_type__(None))
            try:
                hash(leaf)
            except TypeError:
                return None
    found: tuple[Any, Any] = pytree.unflatten(structure, leaves)
    return found


class _Typed:
    """An argument of a class with `__tf_tracing_type__`, equal to others of an equal type: they share a trace."""

    def __init__(self, value: Any, kind: Any) -> None:
        self.value, self.kind = value, kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Typed) and bool(self.kind == other.kind)

    def __hash__(self) -> int:
        return hash(self.kind)


def _untyped(value: Any) -> Any:
    return value.value if isinstance(value, _Typed) else value


def as_result(value: Any) -> Any:
    """Convert a leaf of a function's result as TensorFlow does: numbers, arrays and Variables become tensors."""
    if isinstance(value, Variable):
        return value.value()
    if isinstance(value, bool | int | float | complex | np.ndarray | np.generic):
        return convert_to_tensor(value)
    return value


class Traced(Protocol[P, R]):
    """What :func:`function` returns, as type checkers see it: it is called as the function is."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __getattr__(self, name: str, /) -> Any: ...
    def __get__(self: Traced[Concatenate[Any, Q], S], instance: object, owner: Any) -> Callable[Q, S]: ...


@overload
def function(
    func: Callable[P, R],
    input_signature: Sequence[PyTree] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: object = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: object = None,
    experimental_compile: object = None,
    experimental_follow_type_hints: object = None,
) -> Traced[P, R]: ...
@overload
def function(
    func: None = None,
    input_signature: Sequence[PyTree] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: object = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: object = None,
    experimental_compile: object = None,
    experimental_follow_type_hints: object = None,
) -> Callable[[Callable[P, R]], Traced[P, R]]: ...
@exported("function", differs="where Python decides by a tensor's value, the function runs as it is written")
def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[PyTree] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: object = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: object = None,
    experimental_compile: object = None,
    experimental_follow_type_hints: object = None,
) -> Any:
    """Decorator: trace a function once per combination of shapes and dtypes, and then run it without Python.

    >>> import tape_tf as tf
    >>> @tf.function
    ... def double(x):
    ...     print("tracing")
    ...     return 2 * x
    >>> print(double(tf.constant(3.0)))
    tracing
    tf.Tensor(6.0, shape=(), dtype=float32)
    >>> print(double(tf.constant(4.0)))
    tf.Tensor(8.0, shape=(), dtype=float32)

    It is :func:`tape_core.function`: there is one trace for each combination of shapes and dtypes of tensors and values
    of other arguments. A function in which Python decides by the value of a tensor, as by `if` or `numpy()`, runs as
    plain Python in each call.

    Args:
        func: the function.
        input_signature: the TensorSpecs that arguments must be compatible with; they are converted to tensors.
        autograph, jit_compile, reduce_retracing, ...: no effect: there are no graphs, and each shape has its own trace.

    Raises:
        TypeError: in the call, if an argument does not fit the signature.
        ValueError: in the call, if the function makes a Variable each time.
    """
    if func is not None and not callable(func):
        raise TypeError(f"tf.function: {func!r} is not callable")
    if func is None:
        return lambda f: Function(f, input_signature)
    return Function(func, input_signature)


@exported("config.run_functions_eagerly config.experimental_run_functions_eagerly")
def run_functions_eagerly(run_eagerly: bool) -> None:
    """Run all tf.functions as plain Python, without traces, to debug them."""
    _Switch.eagerly = bool(run_eagerly)


@exported("config.functions_run_eagerly config.experimental_functions_run_eagerly")
def functions_run_eagerly() -> bool:
    """Return the value that :func:`run_functions_eagerly` has set."""
    return _Switch.eagerly


@exported("executing_eagerly")
def executing_eagerly() -> bool:
    """Return True outside of a `tf.function`."""
    return not INSIDE.get()


@exported("inside_function")
def inside_function() -> bool:
    """Return True inside of a `tf.function`."""
    return INSIDE.get()
