"""Data type functions of the Array API standard, and moving between devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.backends import selection
from tape_core.base import dtypes
from tape_core.base.dtypes import DType
from tape_core.engine import cuts
from tape_core.engine.op import linear, transpose
from tape_core.engine.recording import ACTIVE, LISTENERS
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import SCALARS, Tensor, read
from tape_core.modes import batching
from tape_core.typing import ArrayLike, DTypeLike


def _astype_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), "float64")
    yield Sample(draw(2, 3), "complex128")
    yield Sample(draw(), "float64")
    yield Refused(TypeError, "unknown dtype 'float'", draw(2), "float")


@linear(x=transpose(lambda xp, g: g), samples=_astype_samples, batch=batching.elementwise)
def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True) -> Tensor:
    """`x` in another dtype."""


def _device_samples(draw: Draw) -> Iterator[Sample]:
    x = draw(2)
    yield Sample(x, x.device, x.device)


@linear(
    x=transpose(lambda xp, g, origin: xp.to_device(g, origin, origin)),
    kernel=lambda xp, x, device, origin: x.to_device(xp.raw_device(device)) if hasattr(x, "to_device") else x,
    samples=_device_samples,
    batch=batching.elementwise,
)
def to_device(x: ArrayLike, /, device: str, origin: str = "") -> Tensor:
    """`x` on another device; the gradient travels back to `origin`."""


_to_device = to_device


def to_device(x: ArrayLike, device: str, /) -> Tensor:  # type: ignore[no-redef] # the op, from where x is
    """`x` on another device; the gradient travels back.

    Raises:
        BackendError: the backend of `x` has no such device.
    """
    tensor = read(x, "to_device: x")
    selection.select(tensor.backend, device)
    return _to_device(tensor, device, tensor.device)


_astype = astype


def astype(  # type: ignore[no-redef] # the op, and a device
    x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None
) -> Tensor:
    """`x` in another dtype, and on another device. The gradient comes back in the dtype and on the device of `x`.

    A cast to an integer or boolean dtype cuts the path.
    """
    converted = _astype(x, dtype, copy=copy)
    return converted if device is None else to_device(converted, device)


def stop_gradient(x: ArrayLike) -> Tensor:
    """`x` as a constant: the value passes, no gradient does. Reading a Variable here does not watch it.

    >>> import tape_core as tc
    >>> x = tc.Variable(2.0)
    >>> with tc.GradientTape() as tape:
    ...     y = tc.stop_gradient(x) * x
    >>> tape.gradient(y, x).item()
    2.0
    """
    from tape_core.ops.creation import asarray

    if not isinstance(x, Tensor):
        return asarray(x)
    from tape_core.engine.tensor import wrap
    from tape_core.modes.batched import detached

    if LISTENERS:
        LISTENERS[0].left(x, "stop_gradient")
    if x._slots:
        cuts.stopped(x)
    return wrap(detached(x._array), x.backend)


_KINDS = {
    "bool": ("bool",),
    "signed integer": ("signed integer",),
    "unsigned integer": ("unsigned integer",),
    "integral": ("signed integer", "unsigned integer"),
    "real floating": ("real floating",),
    "complex floating": ("complex floating",),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Whether a dtype is of a kind: a DType, a name of the standard (`"real floating"`), or a tuple of them.

    >>> import tape_core as tc
    >>> tc.isdtype(tc.float32, "real floating"), tc.isdtype(tc.int8, ("bool", tc.int8))
    (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    found = neutral(dtype)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: unknown kind {kind!r}; the kinds are {', '.join(_KINDS)}")
        return found.kind in _KINDS[kind]
    return found is neutral(kind)


def neutral(dtype: DTypeLike) -> DType:
    """The DType of a dtype, a library's own included: they all print their name."""
    found = dtypes.as_dtype(dtype)
    if found is None:
        name = getattr(dtype, "__name__", None) or str(dtype).rsplit(".", 1)[-1]
        found = dtypes.DTYPES.get(name)
    if found is None:
        raise TypeError(f"{dtype!r} is not a dtype; the names are {', '.join(dtypes.DTYPES)}")
    return found


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether values of a dtype, or of an array's, keep their meaning in another: what promotion may make of them.

    >>> import tape_core as tc
    >>> tc.can_cast(tc.int8, tc.int16), tc.can_cast(tc.float64, tc.float32)
    (True, False)
    """
    target = neutral(to)
    return dtypes.promote(_dtype_of(from_), target) is target


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of an operation on arrays, dtypes and Python scalars together.

    >>> import tape_core as tc
    >>> tc.result_type(tc.int8, tc.uint8), tc.result_type(tc.float32, 1j)
    (int16, complex64)

    Raises:
        TypeError: the standard leaves it open, as for an integer dtype with a floating one.
        ValueError: there is no array and no dtype.
    """
    scalars = [type(value) for value in arrays_and_dtypes if type(value) in SCALARS]
    result: DType | None = None
    for value in arrays_and_dtypes:
        if type(value) in SCALARS:
            continue
        dtype = _dtype_of(value)
        promoted = dtype if result is None else dtypes.promote(result, dtype)
        if promoted is None:
            raise TypeError(f"result_type: {result} and {dtype} have none; convert one with tape_core.astype")
        result = promoted
    if result is None:
        raise ValueError("result_type: give an array or a dtype")
    for scalar in scalars:
        result = _with_scalar(result, scalar)
    return result


def _with_scalar(dtype: DType, scalar: type) -> DType:
    """A Python scalar takes the array's dtype, if it is not of a higher kind."""
    if dtypes.RANKS[dtypes.default_for(scalar).kind] <= dtypes.RANKS[dtype.kind]:
        return dtype
    if scalar is complex and (promoted := dtypes.promote(dtype, dtypes.complex64)) is not None:
        return promoted
    raise TypeError(f"result_type: a Python {scalar.__name__} and {dtype} have none; convert with tape_core.astype")


def finfo(type: Any, /) -> dtypes.finfo:
    """Limits of a floating dtype, or of an array's: `bits`, `eps`, `max`, `min`, `smallest_normal`, `dtype`.

    >>> import tape_core as tc
    >>> tc.finfo(tc.float32).eps
    1.1920928955078125e-07

    Raises:
        TypeError: it is no floating dtype.
    """
    return dtypes.finfo(_dtype_of(type))


def iinfo(type: Any, /) -> dtypes.iinfo:
    """Limits of an integer dtype, or of an array's: `bits`, `max`, `min`, `dtype`.

    Raises:
        TypeError: it is no integer dtype.
    """
    return dtypes.iinfo(_dtype_of(type))


def _dtype_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else neutral(value)


def is_recording() -> bool:
    """Whether a tape records here and now."""
    return bool(ACTIVE.get())
