"""Tracers: arrays and numbers that record what is computed with them as instructions of a trace.

`tape_core.function` runs a function on Tensors that hold these, once and with real values underneath: each kernel call,
and each operator on an array inside a derivative rule, becomes an instruction. A Tensor of the tracing backend holds a
:class:`TracedArray`, or an array of the library itself, which is a constant of the trace.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

from tape_core import Tensor
from tape_core.backends import COMPARISONS, OPERATORS, SIGNS, Backend, backend_of_type
from tape_core.staging import TracedValue, TracingError, value_of
from tape_core.support import SCALARS
from tape_core.tracing import STAGE
from tape_core.typing import IndexKey, Raw, RawDType

if TYPE_CHECKING:
    from tape_compile.program import Ref
    from tape_compile.tracer.trace import Trace


current_trace: Callable[[], Trace | None] = STAGE.get  # type: ignore[assignment]  # the only stages are traces
"""Return the trace that is running, or None."""

PLAIN = SCALARS | {str, slice, type(None), type(...)}
"""Classes of arguments that have no arrays in them, so that an instruction keeps them as they are."""
TRUTH = "the value of a traced Tensor here (`if`, bool())"
"""A noun phrase for messages: the value that a branch in Python needs."""
NO_KWARGS: dict[str, Any] = {}
"""The keyword arguments of all instructions without any; shared, so nothing may write into it."""


class TracedArray(TracedValue):
    """A tracer for an array: its value in this run, and the id by which instructions refer to it."""

    __slots__ = ("__weakref__", "backend", "dtype", "made_in", "ref", "shape", "value")
    made_in: Trace
    # With this an array of NumPy on the left of an operator leaves the call to the reflected one here.
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, value: Raw, ref: Ref, trace: Trace, backend: Backend) -> None:
        self.value = value
        self.shape = value.shape
        self.dtype = value.dtype
        self.ref = ref
        self.made_in = trace
        self.backend = backend

    @property
    def id(self) -> int:
        """The id by which instructions refer to it."""
        return self.ref.id

    @property
    def is_known(self) -> bool:
        """Return whether it is a constant, or computed from constants alone: then Python may depend on its value."""
        return self.ref.id in self.made_in.known

    @property
    def trace(self) -> Trace:
        """The trace that records operations on it: the one it was made in, or one inside that.

        Raises:
            TracingError: that trace has ended.
        """
        now = current_trace()
        if now is not self.made_in and (now is None or not now.is_inside(self.made_in)):
            raise_leak(self)
        return now

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.value.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for length in self.value.shape:
            size *= int(length)
        return size

    @property
    def device(self) -> Any:
        """The library's own object for the device."""
        return self.value.device

    def __getattr__(self, name: str) -> Any:
        # A slot that is empty: the value of an update that was put off. The library's attributes are descriptors.
        if name != "value" or (late := self.made_in.late_updates) is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        late.settle(self)
        return self.value

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.trace.call(name, Method(name), (self, *args), kwargs, self.backend)

    def __repr__(self) -> str:
        return f"TracedArray({self.id}, shape={self.shape}, dtype={self.dtype})"

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: IndexKey) -> Any:
        # The common case of `Trace.call` written out: a key without arrays in it.
        trace = self.made_in
        if (
            (type(key) in PLAIN or (type(key) is tuple and PLAIN.issuperset(map(type, key))))
            and trace is current_trace()
            and (trace.stand_ins is None or self.ref.id not in trace.known)
        ):
            a = self.ref
            return trace.record_result(
                "getitem", operator.getitem, (a, key), NO_KWARGS, (a.id,), self.value[key], self.backend
            )
        return self.trace.call("getitem", operator.getitem, (self, key), {}, self.backend)

    def __setitem__(self, key: IndexKey, values: Raw) -> None:
        self._rebind(self.backend.xp.setitem(self, values, key))

    def _rebind(self, other: TracedArray) -> TracedArray:
        """Refer to another value from now on: how a write into a mutable array looks in SSA."""
        if other.made_in is not self.made_in:
            raise TracingError(
                "a function inside a branch or loop writes into an array from around it; return the new one"
            )
        self.value, self.shape, self.dtype, self.ref = other.value, other.shape, other.dtype, other.ref
        return self

    def _in_place(self, function: Callable[..., Any], name: str, other: Raw) -> Any:
        result = self.trace.call(name, _between(self, function, other), (self, other), {}, self.backend)
        if result.value.dtype != self.value.dtype:
            # `x += y` keeps the dtype of x.
            result = self.backend.xp.astype(result, self.value.dtype)
        if tuple(result.value.shape) != tuple(self.value.shape):
            raise ValueError(f"an array of shape {self.shape} cannot become one of shape {result.shape} in place")
        # Of NumPy's scalars, as of Python's numbers, `x += y` makes a new one, and other names for x keep the old.
        immutable = type(self.value) in self.backend.root.scalar_types
        return result if immutable else self._rebind(result)

    # -- conversions to Python, which need the value

    def _concrete(self, what: str, how: Callable[[Any], Any]) -> Any:
        if not self.is_known:
            self.trace.require_value(what)
        return how(self.value)

    def __bool__(self) -> bool:
        return self._concrete(TRUTH, bool)  # type: ignore[no-any-return]

    def __int__(self) -> int:
        return self._concrete("the value of a traced Tensor here (int())", int)  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return self._concrete("the value of a traced Tensor here (as an index)", operator.index)  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return self._concrete("the value of a traced Tensor here (float())", float)  # type: ignore[no-any-return]

    def __complex__(self) -> complex:
        return self._concrete("the value of a traced Tensor here (complex())", complex)  # type: ignore[no-any-return]

    def __array__(self, dtype: RawDType = None, copy: bool | None = None) -> Any:
        found = self._concrete("the values of a traced array here (as a NumPy array)", self.backend.base.numpy)
        return found if dtype is None else found.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self._concrete("the values of a traced array here (DLPack)", lambda value: value.__dlpack__(**options))

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()


_COMPUTED = frozenset({"T", "mT", "real", "imag"})


class _Attribute:
    """A descriptor for an attribute of the library's arrays, on traced arrays."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, array: TracedArray | None, kind: type) -> Any:
        if array is None:
            return self
        name = self.name
        if name in _COMPUTED and array.made_in.open and array.trace.stand_ins is not None:
            return array.trace.call(name, _attribute(name), (array,), {}, array.backend)
        found = getattr(array.value, name)  # AttributeError if this library's arrays have none
        if callable(found):
            return partial(array._method, name)
        # `x.T` and `x.real` are computed in each run; `x.itemsize` is the same in all.
        if is_array(found):
            return array.trace.call(name, _attribute(name), (array,), {}, array.backend)
        return found


_exposed_classes: set[type] = set()


def expose_attributes(kind: type) -> None:
    """Give traced arrays the public attributes of a class of arrays.

    They become descriptors, since `__getattr__` would slow the access to all attributes down.
    """
    if kind not in _exposed_classes:
        _exposed_classes.add(kind)
        for name in dir(kind):
            if (name == "__array_namespace__" or not name.startswith("__")) and not hasattr(TracedArray, name):
                setattr(TracedArray, name, _Attribute(name))


class TracedNumber(TracedValue):
    """A tracer for a Python number that differs between calls, such as a learning rate.

    Its dtype is weak, as that of Python's numbers: an array beside it keeps its own.
    """

    __slots__ = ("__weakref__", "backend", "made_in", "ref", "value")
    __array_ufunc__ = None
    __hash__ = object.__hash__
    shape = ()
    id: Any = TracedArray.id
    trace: Any = TracedArray.trace
    # Never: a number is traced only because it differs between calls.
    is_known = False

    def __init__(self, value: float, ref: Ref, trace: Trace, backend: None = None) -> None:
        self.value = value
        self.ref = ref
        self.made_in = trace
        self.backend = backend  # None: a number is of no library

    def __repr__(self) -> str:
        return f"TracedNumber({self.id})"

    def _concrete(self, what: str, how: Callable[[Any], Any]) -> Any:
        self.trace.require_value(what)
        return how(self.value)

    def __bool__(self) -> bool:
        return self._concrete("the value of a traced number here (`if`, bool())", bool)  # type: ignore[no-any-return]

    def __int__(self) -> int:
        return self._concrete("the value of a traced number here (int())", int)  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return self._concrete("the value of a traced number here (as an index)", operator.index)  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return self._concrete("the value of a traced number here (float())", float)  # type: ignore[no-any-return]


TRACED = (TracedArray, TracedNumber)

_attribute = lru_cache(maxsize=64)(operator.attrgetter)  # one function for each name, so that CSE sees equal calls


class Method:
    """A method of arrays as a function; two of one name are equal, so that CSE finds them."""

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, array: Raw, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, self.__name__)(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return type(other) is Method and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)


def is_array(value: object) -> bool:
    """Return whether a value is an array of any library, traced or not."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


def _between(array: TracedArray, function: Callable[..., Any], other: Any) -> Callable[..., Any]:
    """Return what to call for an operator of an array and another operand."""
    if type(other) in SCALARS or type(other) is TracedNumber:
        return function
    return array.backend.between(function, array.value, value_of(other))


def _define_operators() -> None:
    # Methods are made here rather than written out: each gets its function, its name and the fast path as closure.
    now = current_trace

    def accepts(other: object) -> bool:
        kind = type(other)
        return kind in TRACED or kind in SCALARS or (is_array(other) and not _is_slices(other))

    def binary(function: Callable[..., Any], name: str) -> Any:
        def method(self: TracedArray, other: Raw) -> Any:
            trace = self.made_in
            if trace is now() and (trace.stand_ins is None or self.ref.id not in trace.known):
                # The common cases of `Trace.call` written out.
                if type(other) is TracedArray and other.made_in is trace:
                    a, b = self.ref, other.ref
                    called = function
                    if type(self.value) is not type(other.value):
                        called = self.backend.between(function, self.value, other.value)
                    out = called(self.value, other.value)
                    return trace.record_result(name, called, (a, b), NO_KWARGS, (a.id, b.id), out, self.backend)
                if type(other) in SCALARS:
                    a = self.ref
                    out = function(self.value, other)
                    return trace.record_result(name, function, (a, other), NO_KWARGS, (a.id,), out, self.backend)
            if not accepts(other):
                return NotImplemented
            return self.trace.call(name, _between(self, function, other), (self, other), {}, self.backend)

        return method

    def reflected(function: Callable[..., Any], name: str) -> Any:
        def method(self: TracedArray, other: Raw) -> Any:
            trace = self.made_in
            usual = trace is now() and (trace.stand_ins is None or self.ref.id not in trace.known)
            if usual and type(other) in SCALARS:
                a = self.ref
                return trace.record_result(
                    name, function, (other, a), NO_KWARGS, (a.id,), function(other, self.value), self.backend
                )
            if not accepts(other):
                return NotImplemented
            return self.trace.call(name, _between(self, function, other), (other, self), {}, self.backend)

        return method

    def in_place(function: Callable[..., Any], name: str) -> Any:
        def method(self: TracedArray, other: Raw) -> Any:
            return self._in_place(function, name, other) if accepts(other) else NotImplemented

        return method

    def unary(function: Callable[..., Any], name: str) -> Any:
        return lambda self: self.trace.call(name, function, (self,), {}, self.backend)

    def sign(function: Callable[..., Any], name: str) -> Any:
        return lambda self: self.trace.number(name, function, (self,))

    def of_number(function: Callable[..., Any], name: str, *, swapped: bool = False) -> Any:
        def method(self: TracedNumber, other: Raw) -> Any:
            if isinstance(other, Tensor):
                number = _as_tensor_like(self, other)
                return function(other, number) if swapped else function(number, other)
            given = (other, self) if swapped else (self, other)
            if type(other) is TracedNumber or type(other) in SCALARS:
                return self.trace.number(name, function, given)
            if type(other) is TracedArray or not is_array(other) or _is_slices(other):
                # Then Python asks the array's own operator, which records the call.
                return NotImplemented
            return self.trace.call(name, function, given, {}, self.trace.tracing(_backend_of(other)))

        return method

    def compared(function: Callable[..., Any]) -> Any:
        # Of arrays a comparison is an array; of numbers it is a bool of Python's, for which the value is needed now.
        def method(self: TracedNumber, other: Raw) -> Any:
            return self._concrete(
                "the value of a traced number here (a comparison)", lambda value: function(value, value_of(other))
            )

        return method

    for symbol, name in {**OPERATORS, **COMPARISONS}.items():
        setattr(TracedArray, f"__{symbol}__", binary(getattr(operator, f"__{symbol}__"), name))
    for symbol in COMPARISONS:
        setattr(TracedNumber, f"__{symbol}__", compared(getattr(operator, f"__{symbol}__")))
    for symbol, name in OPERATORS.items():
        setattr(TracedNumber, f"__{symbol}__", of_number(getattr(operator, f"__{symbol}__"), name))
        setattr(TracedNumber, f"__r{symbol}__", of_number(getattr(operator, f"__{symbol}__"), name, swapped=True))
        setattr(TracedArray, f"__r{symbol}__", reflected(getattr(operator, f"__{symbol}__"), name))
        setattr(TracedArray, f"__i{symbol}__", in_place(getattr(operator, f"__{symbol}__"), name))
    for symbol, name in SIGNS.items():
        setattr(TracedArray, f"__{symbol}__", unary(getattr(operator, f"__{symbol}__"), name))
        setattr(TracedNumber, f"__{symbol}__", sign(getattr(operator, f"__{symbol}__"), name))


def _backend_of(array: Raw) -> Backend:
    backend = backend_of_type(type(array))
    assert backend is not None  # it is an array
    return backend


def _as_tensor_like(number: TracedNumber, tensor: Tensor) -> Tensor:
    """Make a number a Tensor for arithmetic with another one, of its dtype where that is Python's own promotion."""
    from tape_core import asarray

    dtype = tensor.dtype if tensor.dtype.inexact or type(number.value) is int else None
    return asarray(number, dtype=dtype, backend=tensor.backend, device=tensor.device)


def _is_slices(value: object) -> bool:
    from tape_core import IndexedSlices

    return isinstance(value, IndexedSlices)


_define_operators()


def trace_of(values: Iterable[Any]) -> Trace | None:
    """Return the trace that records operations on these values; None if none of them is traced."""
    now = current_trace()
    for value in values:
        kind = type(value)
        if kind in TRACED:
            # `value.trace` raises for a value of a trace that has ended.
            return now if value.made_in is now else value.trace  # type: ignore[no-any-return]
        if (kind is tuple or kind is list) and (found := trace_of(value)) is not None:
            return found
    return None


def raise_leak(array: TracedArray) -> NoReturn:
    """Raise a TracingError for a traced array whose function has returned, or does not see what is done with it."""
    raise TracingError(
        f"a Tensor of shape {tuple(array.shape)} from inside a compiled function is used after that function has "
        f"returned, or by a function of another library that is not given it. Return it from the function, or assign "
        f"it to a Variable, in place of keeping it elsewhere; make it an argument of the other function"
    )
