"""Arrays without values, on which a function of JAX's arrays is traced: to run each op by itself would compile each."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from tape_compile.extend import Flow, NeedsValues, RandomBits
from tape_core.backends import COMPARISONS, OPERATORS, SIGNS
from tape_core.extend import registry
from tape_core.typing import Raw, RawDType

from tape_jax import devices, kernels
from tape_jax.jitted import NUMBERS, number_key
from tape_jax.tasks import JaxCall
from tape_jax.xla.constants import as_array, evaluated
from tape_jax.xla.draws import drawn
from tape_jax.xla.flows import can_lower, results_of
from tape_jax.xla.lowering import STATE_CALLS

_PLAIN = frozenset({str, type(None), type(...)})
_MOST = 4096
_shapes: dict[Any, Any] = {}  # what calls return, by the function and its arguments
_dtypes: dict[Any, Any] = {}  # of what elementwise calls return, by the function and the dtypes of its arguments


class AbstractArray:
    """The shape and dtype of a JAX array; what needs its values raises NeedsValues.

    Attributes:
        device: as that of a JAX array: a device, or a sharding over several, of which the mesh alone is what counts.
    """

    __slots__ = ("device", "dtype", "shape")
    stands_for_jax = True
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> Any:
        """The transposed array."""
        return evaluate(operator.attrgetter("T"), (self,), {})

    @property
    def mT(self) -> Any:
        """The array with its last two axes exchanged."""
        return evaluate(operator.attrgetter("mT"), (self,), {})

    @property
    def real(self) -> Any:
        """The real part."""
        return evaluate(operator.attrgetter("real"), (self,), {})

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return evaluate(operator.attrgetter("imag"), (self,), {})

    def astype(self, dtype: RawDType, **options: object) -> Any:
        """Return the array in another dtype."""
        return AbstractArray(self.shape, np.dtype(dtype), self.device)

    def __getitem__(self, key: object) -> Any:
        return evaluate(operator.getitem, (self, key), {})

    def __len__(self) -> int:
        return self.shape[0]

    def _no_value(self, *_: object, **__: object) -> Any:
        raise NeedsValues("the value of an array that has none while its function is traced")

    __bool__ = __int__ = __float__ = __index__ = __complex__ = __array__ = __iter__ = __dlpack__ = _no_value


def _operators() -> None:
    def binary(function: Callable[..., Any]) -> Any:
        return lambda self, other: evaluate(function, (self, other), {})

    def reflected(function: Callable[..., Any]) -> Any:
        return lambda self, other: evaluate(function, (other, self), {})

    def unary(function: Callable[..., Any]) -> Any:
        return lambda self: evaluate(function, (self,), {})

    for symbol in (*OPERATORS, *COMPARISONS):
        setattr(AbstractArray, f"__{symbol}__", binary(getattr(operator, f"__{symbol}__")))
    for symbol in OPERATORS:
        setattr(AbstractArray, f"__r{symbol}__", reflected(getattr(operator, f"__{symbol}__")))
    for symbol in SIGNS:
        setattr(AbstractArray, f"__{symbol}__", unary(getattr(operator, f"__{symbol}__")))


_operators()


class StandIns:
    """What stands for JAX's arrays in a trace; the contract is `tape_compile.compilers.StandIns`."""

    def takes(self, array: object) -> bool:
        """Return whether an array can be stood in for: JAX's own, on one device or on a mesh."""
        return isinstance(array, jax.Array) and isinstance(array.device, jax.Device | NamedSharding)

    def of(self, array: Raw) -> AbstractArray:
        """Return what stands for an array.

        Raises:
            NeedsValues: it is of another library, or on several devices without a mesh.
        """
        if type(array) is AbstractArray:
            return array
        if not self.takes(array):
            raise NeedsValues("an array of another library")
        return AbstractArray(array.shape, array.dtype, array.device)

    def example(self, array: Raw) -> Raw:
        """Return an array of zeros for what stands for one."""
        return as_array(np.zeros(array.shape, array.dtype)) if type(array) is AbstractArray else array

    def evaluate(self, fn: Callable[..., Any], args: Sequence[object], kwargs: dict[str, object]) -> Any:
        """Call a function, or where an array has no values, say of which shapes and dtypes its results are."""
        return evaluate(fn, args, kwargs)

    def effect(self, fn: Any, args: Sequence[object]) -> Any:
        """Return stand-ins for the results of a call with an effect, which is not made.

        Raises:
            NeedsValues: only a call tells.
        """
        if type(fn) is RandomBits:
            state: Any = np.zeros(3, np.uint64)
            return _abstract(jax.eval_shape(lambda state: drawn(fn.draw, state)[0], state), devices.default())
        if type(fn) is Flow:
            return _flow(fn, args)
        if type(fn) in STATE_CALLS:
            return ()
        raise NeedsValues("the results of a call")


def evaluate(fn: Callable[..., Any], args: Sequence[object], kwargs: dict[str, object]) -> Any:
    """Call a function; of arrays without values, return arrays without values."""
    found: list[AbstractArray] = []
    _collect((args, tuple(kwargs.values())), found)
    if type(fn) is Flow:
        return _flow(fn, args) if found else fn(*args, **kwargs)
    if not found:
        return fn(*args, **kwargs) if type(fn) is JaxCall else evaluated(fn, args, kwargs)
    elementwise = _dtypes_and_shape(fn, args) if not kwargs and _is_elementwise(fn) else None
    if elementwise is not None and (dtype := _dtypes.get(elementwise[0])) is not None:
        return AbstractArray(elementwise[1], dtype, _place(found, args))
    try:
        key: Any = (fn, _key(tuple(args)), tuple([(name, _key(value)) for name, value in kwargs.items()]))
        known = _shapes.get(key)
    except TypeError:  # an argument without a hash, or an array of values
        key = known = None
    if known is None:
        structs = [_struct(array) for array in found]

        def call(*arrays: Raw) -> Any:
            rest = iter(arrays)
            return fn(*_filled(tuple(args), rest), **{name: _filled(value, rest) for name, value in kwargs.items()})

        known = jax.eval_shape(call, *structs)
        if elementwise is not None and isinstance(known, jax.ShapeDtypeStruct) and known.shape == elementwise[1]:
            _remember(_dtypes, elementwise[0], known.dtype)
        elif key is not None:
            _remember(_shapes, key, known)
    return _abstract(known, _place(found, (*args, *kwargs.values())))


def _remember(found: dict[Any, Any], key: Any, value: Any) -> None:
    if len(found) >= _MOST:
        found.clear()
    found[key] = value


@cache
def _elementwise_functions() -> frozenset[Any]:
    """Return JAX's functions for elementwise ops and operators, but for those that are ufuncs."""
    symbols = {*OPERATORS, *COMPARISONS, *SIGNS} - {"matmul"}
    names = [name for name, op in registry.items() if op.elementwise]
    found = [getattr(library, name, None) for library in (jnp, kernels) for name in names]
    return frozenset([*[getattr(operator, f"__{symbol}__") for symbol in symbols], *filter(callable, found)])


def _is_elementwise(fn: Any) -> bool:
    """Return whether a function's result has the shape of its arguments, broadcast, and a dtype by theirs alone."""
    return type(fn) is jnp.ufunc or (fn.__hash__ is not None and fn in _elementwise_functions())


def _dtypes_and_shape(fn: Any, args: Sequence[Any]) -> tuple[Any, tuple[int, ...]] | None:
    """Return a key of an elementwise call without its shapes, and the shape of its result; None where JAX must say."""
    parts: list[Any] = [fn]
    shapes: list[tuple[int, ...]] = []
    for value in args:
        kind = type(value)
        if kind is AbstractArray:
            parts.append(value.dtype)
            shapes.append(value.shape)
        elif kind is float:
            parts.append(float)
        elif kind in NUMBERS:
            parts.append(number_key(value))  # an integer may be too large for the dtype
        elif isinstance(value, jax.Array):
            parts.append((value.dtype, value.weak_type))
            shapes.append(value.shape)
        else:
            return None
    try:
        return tuple(parts), shapes[0] if len({*shapes}) == 1 else np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _place(found: Sequence[AbstractArray], arguments: Sequence[object]) -> Any:
    """Return where the result of a call is: on the mesh that an argument names, or that an array is on.

    Raises:
        NeedsValues: arrays are on different devices, of which JAX makes an error, or on meshes of which it decides.
    """
    named = [argument for argument in arguments if isinstance(argument, NamedSharding)]
    on_meshes = [array.device for array in found if not isinstance(array.device, jax.Device)]
    if not named and len({place.mesh for place in on_meshes}) > 1:
        raise NeedsValues("arrays on several meshes")
    return [*named, *on_meshes, found[0].device][0]


def _flow(flow: Flow, args: Sequence[object]) -> Any:
    if not can_lower(flow) or any([spec.dtype is None for part in flow.parts for spec in part.results]):
        raise NeedsValues("a loop that runs on the host")
    found: list[AbstractArray] = []
    _collect(tuple(args), found)
    device = _place(found, ()) if found else devices.default()
    return tuple([AbstractArray(shape, dtype, device) for shape, dtype in results_of(flow, args)])


def _struct(array: AbstractArray) -> Any:
    like: Any = jax.ShapeDtypeStruct  # its constructor has no types
    return like(array.shape, array.dtype)


def _abstract(result: Any, device: Any) -> Any:
    return jax.tree.map(lambda struct: AbstractArray(struct.shape, struct.dtype, device), result)


def _collect(value: object, found: list[AbstractArray]) -> None:
    if type(value) is AbstractArray:
        found.append(value)
    elif type(value) is tuple or type(value) is list:
        for part in value:
            _collect(part, found)


def _filled(value: Any, arrays: Any) -> Any:
    if type(value) is AbstractArray:
        return next(arrays)
    if type(value) is tuple or type(value) is list:
        return type(value)([_filled(part, arrays) for part in value])
    return value


def _key(value: Any) -> Any:
    """Return a key for an argument.

    Raises:
        TypeError: it has an array of values, which may make a difference, or is something without a hash.
    """
    kind = type(value)
    if kind is AbstractArray:
        return AbstractArray, value.shape, value.dtype
    if kind in NUMBERS:
        return number_key(value)
    if kind in _PLAIN:
        return kind, value
    if kind is tuple or kind is list:
        return kind, *map(_key, value)
    if kind is slice:
        return kind, _key(value.start), _key(value.stop), _key(value.step)
    if hasattr(value, "shape"):
        raise TypeError("an array of values")
    hash(value)
    return kind, value
