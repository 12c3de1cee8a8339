"""tf.function: `tape_core.function` under TensorFlow's rules, and as it is written where that cannot be."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from typing import Any
from weakref import ref

import numpy as np
import tape_core as tc
from tape_compile.function import Function as CompiledFunction
from tape_compile.methods import Bound, Methods, WeakMethod, found_by_name
from tape_core.base import pytree
from tape_core.base.contexts import setting
from tape_core.staging import current

from tape_tf import logger, nest
from tape_tf.conversion import convert_to_tensor, native, unwrap, wrap
from tape_tf.names import exported
from tape_tf.ops.arrays import TensorArray
from tape_tf.shapes import TensorSpec
from tape_tf.tensor import IndexedSlices, Tensor, Value
from tape_tf.tracing import require_value, without_trace
from tape_tf.typing import PyTree, TensorLike
from tape_tf.variable import Variable

INSIDE: ContextVar[bool] = ContextVar("tape_tf.inside_function", default=False)
"""Whether the code that runs is that of a tf.function."""

_SEVERAL, _RECENT = 5, 10  # so many traces in so many calls are worth a warning


class _Switch:
    """What `tf.config.run_functions_eagerly` turns.

    Attributes:
        eagerly: whether functions run as they are written.
    """

    eagerly = False


class _Compiled(CompiledFunction):
    """A compiled function with TensorFlow's messages."""

    def _check_made(self, trace: object) -> None:
        if self._made_variables:
            raise ValueError(
                "tf.function only supports singleton tf.Variables created on the first call. Make sure the tf.Variable "
                "is only created once or created outside tf.function. See "
                "https://www.tensorflow.org/guide/function#creating_tfvariables for more information."
            )
        self._made_variables = True


class Function:
    """What `tf.function` makes of a Python function.

    Attributes:
        python_function: the function.
        input_signature: the TensorSpecs that its arguments must fit.
    """

    def __init__(self, python_function: Callable[..., Any], input_signature: Sequence[PyTree] | None = None) -> None:
        self.python_function = python_function
        self.input_signature = None if input_signature is None else tuple(input_signature)
        update_wrapper(self, python_function)
        self._signature = _signature_of(python_function)
        self._itself = ref(self)
        self._compiled = self._new()
        self._traces = 0
        self._calls: deque[bool] = deque(maxlen=_RECENT)  # whether the last ones have traced

    def _new(self) -> _Compiled:
        itself = self._itself  # which has what is made here, and is there while it is called

        def traced(*args: Any, **kwargs: Any) -> Any:
            return itself()._traced(args, kwargs)  # type: ignore[union-attr]

        traced.__name__ = getattr(self.python_function, "__name__", "function")
        traced.__wrapped__ = self.python_function  # type: ignore[attr-defined]
        return _Compiled(traced, fallback="silent", retrace="allow")

    # -- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._bound(args, kwargs)
        if _Switch.eagerly:
            return nest.map_structure(returned, self.python_function(*args, **kwargs))
        given = _beneath(args, kwargs)
        if given is None:
            return self._as_it_is(args, kwargs)
        if current() is not None:  # it becomes a part of the function around it
            return wrap(self._compiled(*given[0], **given[1]))
        before = self._traces
        found = self._compiled(*given[0], **given[1])
        self._calls.append(self._traces > before)
        if self._traces > before:
            self._warn_of_traces()
        return wrap(found)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments by their places, defaults among them, so that one trace is for each way to write a call."""
        signature = self._signature
        if self.input_signature is not None:
            return self._checked(args, kwargs), {}
        if signature is None or (not kwargs and len(args) == len(signature.parameters)):
            return args, kwargs
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function on tensors of tape_core, for a trace or where something around records."""
        if current() is not None:
            self._traces += 1
        found = self._as_it_is(wrap(args), wrap(kwargs))
        leaves, structure = pytree.flatten(found)
        for leaf in leaves:
            if isinstance(leaf, TensorArray) and current() is not None:
                require_value("what is in a TensorArray")
                leaf._parts = [None if part is None else without_trace(part) for part in leaf._parts]
        return pytree.unflatten(structure, [unwrap(leaf) for leaf in leaves])

    def _as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with setting(INSIDE, True):
            return nest.map_structure(returned, self.python_function(*args, **kwargs))

    def _warn_of_traces(self) -> None:
        if (several := sum(self._calls)) >= _SEVERAL and self.input_signature is None:
            logger.warning(
                "%d out of the last %d calls to %s triggered tf.function retracing. Tracing is expensive and the "
                "excessive number of tracings could be due to (1) creating @tf.function repeatedly in a loop, (2) "
                "passing tensors with different shapes, (3) passing Python objects instead of tensors.",
                several, len(self._calls), self.python_function,
            )  # fmt: skip
            self._calls.clear()

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments as tensors that fit the signature."""
        specs = self.input_signature or ()
        if kwargs and self._signature is not None:
            try:
                args = self._signature.bind(*args, **kwargs).args
            except TypeError as error:
                raise self._unfit(str(error), args, kwargs) from None
        if len(args) != len(specs):
            what = "too many positional arguments" if len(args) > len(specs) else "missing a required argument"
            raise self._unfit(what, args, kwargs)

        def check(spec: TensorSpec, value: TensorLike) -> Any:
            try:
                tensor = value if isinstance(value, Value) else convert_to_tensor(value, dtype=spec.dtype)
            except (TypeError, ValueError) as error:
                raise self._unfit(str(error), args, kwargs) from None
            if not spec.is_compatible_with(tensor):
                raise self._unfit(f"Can not cast {TensorSpec.from_tensor(tensor)} to {spec}", args, kwargs)
            return tensor

        return tuple(
            check(spec, arg) if isinstance(spec, TensorSpec) else nest.map_structure(check, spec, arg)
            for spec, arg in zip(specs, args, strict=True)
        )

    def _unfit(self, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        specs = ", ".join(map(repr, self.input_signature or ()))
        return TypeError(
            f"Binding inputs to tf.function failed due to `{what}`. Received args: {args} and kwargs: {kwargs} for "
            f"signature: {getattr(self, '__name__', 'function')}({specs})."
        )

    # -- methods

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A method: each instance has traces of its own, for as long as it lives."""
        if instance is None:
            return self

        method = self.python_function.__get__(instance, owner)
        try:
            found = Methods.find(
                instance, self, lambda: Function(WeakMethod.of(method, instance), self.input_signature)
            )
        except TypeError:  # it has slots alone
            found = Function(method, self.input_signature)
            found.__dict__.pop("__wrapped__", None)
            return found
        return _Method.to(self, instance, found)

    # -- what it tells of itself

    def experimental_get_tracing_count(self) -> int:
        """How often the function was traced."""
        return self._traces

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The function for arguments of one kind.

        Args:
            *args, **kwargs: tensors or TensorSpecs, and Python values as they will be; none where there is an
                `input_signature`.
        """
        if self.input_signature is not None and not args and not kwargs:
            args = self.input_signature
        return ConcreteFunction(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("experimental_get_compiler_ir", "pretty_printed_concrete_signatures"):
            raise AttributeError(f"tf.function has no {name}: there is no graph")
        raise AttributeError(f"'Function' object has no attribute {name!r}")

    def __reduce__(self) -> Any:
        """Copies have no traces."""
        return found_by_name(self, self.python_function) or (Function, (self.python_function, self.input_signature))

    def __repr__(self) -> str:
        return f"<tf.function {getattr(self.python_function, '__qualname__', self.python_function)!r}>"


class _Method(Bound, Function):
    """A method that is a function, of an instance that it keeps alive."""

    __slots__ = ("_bound_to",)


class ConcreteFunction:
    """A function for arguments of one kind: `tf.function(...).get_concrete_function(...)`.

    Attributes:
        function: the function that it is of.
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
        """Call it with tensors that fit; Python values may be left out."""
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
                raise self._unfit(f"missing a required argument: {missing[0]!r}", args, kwargs)
            ordered = inspect.BoundArguments(signature, {name: given_by[name] for name in specs_by})
            args, kwargs = ordered.args, ordered.kwargs
        try:
            nest.assert_same_structure((expected, named), (args, kwargs))
        except (TypeError, ValueError) as error:
            raise self._unfit(str(error), args, kwargs) from None
        nest.map_structure(lambda s, value: self._check(s, value, args, kwargs), (expected, named), (args, kwargs))
        return self.function(*args, **kwargs)

    def _check(self, spec: object, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not isinstance(spec, TensorSpec):
            if spec is not value and spec != value:
                raise self._unfit(f"{value!r} in place of {spec!r}", args, kwargs)
            return
        tensor = value if isinstance(value, Value) else convert_to_tensor(value, dtype=spec.dtype)
        if not spec.is_compatible_with(tensor):
            raise self._unfit(f"Can not cast {TensorSpec.from_tensor(tensor)} to {spec}", args, kwargs)

    def _unfit(self, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
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


def _beneath(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """The arguments with values of tape_core; None for those that no trace can be kept for."""
    if not kwargs and all([type(arg) is Tensor for arg in args]):
        return [arg.native for arg in args], kwargs
    leaves, structure = pytree.flatten((args, kwargs))
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Value | IndexedSlices):
            leaves[k] = leaf.native
        elif isinstance(leaf, np.ndarray | np.generic):
            leaves[k] = native(leaf)
        elif isinstance(leaf, TensorArray):
            return None  # it holds tensors, and changes
        elif not isinstance(leaf, tc.Tensor | tc.IndexedSlices):
            try:
                hash(leaf)
            except TypeError:
                return None
    found: tuple[Any, Any] = pytree.unflatten(structure, leaves)
    return found


def returned(value: Any) -> Any:
    """Results are tensors: numbers, arrays and Variables too."""
    if isinstance(value, Variable):
        return value.value()
    if isinstance(value, bool | int | float | complex | np.ndarray | np.generic):
        return convert_to_tensor(value)
    return value


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
    """Decorator: a function of tensors that is traced once for arguments of one kind, and then runs without Python.

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

    It is :func:`tape_core.function`: a trace is for the shapes and dtypes of tensors, and for the values of other
    arguments. Where Python decides by the value of a tensor, as by `if` or `numpy()`, the function runs as it is
    written, in each call.

    Args:
        func: the function.
        input_signature: the TensorSpecs that arguments must fit; what is no tensor is converted.
        autograph, jit_compile, reduce_retracing, ...: no effect: there are no graphs, and each shape has its own trace.

    Raises:
        TypeError: in the call: an argument does not fit the signature.
        ValueError: in the call: a Variable is made each time.
    """
    if func is not None and not callable(func):
        raise TypeError(f"tf.function: {func!r} is not callable")
    if func is None:
        return lambda f: Function(f, input_signature)
    return Function(func, input_signature)


@exported("config.run_functions_eagerly config.experimental_run_functions_eagerly")
def run_functions_eagerly(run_eagerly: bool) -> None:
    """Have functions run as they are written, in each call: for debugging."""
    _Switch.eagerly = bool(run_eagerly)


@exported("config.functions_run_eagerly config.experimental_functions_run_eagerly")
def functions_run_eagerly() -> bool:
    """Whether functions run as they are written: what :func:`run_functions_eagerly` was given."""
    return _Switch.eagerly


@exported("executing_eagerly")
def executing_eagerly() -> bool:
    """Whether code runs as it is written: not inside of a `tf.function`."""
    return not INSIDE.get()


@exported("inside_function")
def inside_function() -> bool:
    """Whether this is called inside of a `tf.function`."""
    return INSIDE.get()
