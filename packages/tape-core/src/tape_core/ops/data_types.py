"""Data type functions of the Array API standard, moves between devices, and `stop_gradient`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tape_core.backends import selection
from tape_core.backends.protocol import Backend
from tape_core.base import dtypes
from tape_core.base.ambient import ACTIVE
from tape_core.base.dtypes import DType
from tape_core.base.lookup import ops
from tape_core.engine.levels import BatchedArray, detached
from tape_core.engine.op import NONDIFF, linear, transpose
from tape_core.engine.recording import report_leave
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor, is_number, read, to_number, wrap
from tape_core.modes import batching
from tape_core.typing import ArrayLike, BatchInput, DTypeKind, DTypeLike


def _astype_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), "float64")
    yield Sample(draw(2, 3), "complex128")
    yield Sample(draw(), "float64")
    yield Sample(draw.complex(2, 3), "complex128")
    yield Refused(TypeError, "unknown dtype 'float'", draw(2), "float")


@linear(x=transpose(lambda xp, g: g), samples=_astype_samples, batch=batching.elementwise, keeps_integers=True)
def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True) -> Tensor:
    """Convert `x` to another dtype."""


def _device_samples(draw: Draw) -> Iterator[Sample]:
    x = draw(2)
    yield Sample(x, x.device, x.device)
    yield Sample(draw.complex(2), x.device, x.device)


@linear(
    x=transpose(lambda xp, g, origin: xp.to_device(g, origin, origin)),
    kernel=lambda xp, x, device, origin: x.to_device(xp.raw_device(device)) if hasattr(x, "to_device") else x,
    samples=_device_samples,
    batch=batching.elementwise,
    keeps_integers=True,
)
def to_device(x: ArrayLike, /, device: str, origin: str = "") -> Tensor:
    """Move `x` to another device; the gradient travels back to `origin`."""


# The op must know the device that x came from, as its rule needs it. Users do not pass it: the function of the same
# name below does. The same holds for `astype`, which also moves.
_to_device = to_device


def to_device(x: ArrayLike, device: str, /) -> Tensor:  # type: ignore[no-redef] # hides the op
    """Move `x` to another device; the gradient travels back.

    Raises:
        BackendError: the backend of `x` has no such device.
    """
    tensor = read(x, "to_device: x")
    # Called for its check of the device only; the op itself would fail with an error of the library.
    selection.select(tensor.backend, device)
    return _to_device(tensor, device, tensor.device)


def _layout_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), draw(2, 3))
    yield Sample(draw(), draw())
    yield Sample(draw.complex(2), draw(2))


def _batched_layout(call: batching.Call, x: BatchInput, like: BatchInput) -> Tensor:
    # What is mapped over has another shape than what is not, and is not laid out. A backend may still look at it.
    return laid_out_like(batching.spread(x, batching.size_of((x, like))), like.value)


@linear(
    x=transpose(lambda xp, g: g),
    like=NONDIFF,
    kernel=lambda xp, x, like: x,
    samples=_layout_samples,
    batch=_batched_layout,
    keeps_integers=True,
    axes_of=None,
)
def laid_out_like(x: ArrayLike, like: ArrayLike, /) -> Tensor:
    """Return `x`, divided among devices or processes as `like` is, if that is divided and has the shape of `x`.

    Gradients are laid out as their sources are, and an optimizer's steps as the Variables: what a library gives to a
    result depends on what the result is computed of.
    """


_astype = astype


def astype(  # type: ignore[no-redef] # hides the op
    x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None
) -> Tensor:
    """Convert `x` to another dtype, and move it to `device` if one is given.

    The gradient comes back in the dtype and on the device of `x`. A cast to an integer or boolean dtype cuts the path.
    """
    converted = _astype(x, dtype, copy=copy)
    return converted if device is None else to_device(converted, device)


def stop_gradient(x: ArrayLike) -> Tensor:
    """Return `x` as a constant: its value passes, a gradient does not. A Variable that is read here is not watched.

    >>> import tape_core as tc
    >>> x = tc.Variable(2.0)
    >>> with tc.GradientTape() as tape:
    ...     y = tc.stop_gradient(x) * x
    >>> tape.gradient(y, x).item()
    2.0
    """
    if not isinstance(x, Tensor):
        return ops.asarray(x)
    if ACTIVE.get():
        report_leave(x, "stop_gradient", sys._getframe(1))
    return wrap(_stopped(x._array, x.backend), x.backend)


def _stopped(array: Any, backend: Backend) -> Any:
    """Return an array that no tape knows, also of a vmap, and that the library does not differentiate by either."""
    if type(array) is not BatchedArray:
        return backend.library.stopped(array)
    value = array.value
    return BatchedArray(wrap(_stopped(value._array, value.backend), value.backend), array.backend, array.axis)


def off_tapes(x: Tensor) -> Tensor:
    """Return `x` as a value that no tape knows. A library that differentiates from outside, as `jax.grad`, goes on."""
    if ACTIVE.get():
        report_leave(x, "stop_gradient", sys._getframe(1))
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


def isdtype(dtype: DTypeLike, kind: DTypeKind) -> bool:
    """Return True if a dtype is of a kind: a dtype, a name of the standard (`"real floating"`), or a tuple of them.

    >>> import tape_core as tc
    >>> tc.isdtype(tc.float32, "real floating"), tc.isdtype(tc.int8, ("bool", tc.int8))
    (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    found = to_dtype(dtype)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: unknown kind {kind!r}; the kinds are {', '.join(_KINDS)}")
        return found.kind in _KINDS[kind]
    return found is to_dtype(kind)


def to_dtype(dtype: DTypeLike) -> DType:
    """The `DType` of a dtype in any form: a DType, a name, a Python type, or the own object of any array library."""
    found = dtypes.as_dtype(dtype)
    if found is None:  # an object of a library: all of them have or print the name
        name = getattr(dtype, "__name__", None) or str(dtype).rsplit(".", 1)[-1]
        found = dtypes.DTYPES.get(name)
    if found is None:
        raise TypeError(f"{dtype!r} is not a dtype; the names are {', '.join(dtypes.DTYPES)}")
    return found


def can_cast(from_: ArrayLike | DTypeLike, to: DTypeLike, /) -> bool:
    """Return True if the rules of type promotion allow to cast from one dtype, or that of an array, to another.

    >>> import tape_core as tc
    >>> tc.can_cast(tc.int8, tc.int16), tc.can_cast(tc.float64, tc.float32)
    (True, False)

    Between kinds an array of the lower one may be cast: int64 to float32, though that does not hold all values.
    """
    target = to_dtype(to)
    return dtypes.promote(_dtype_of(from_), target) is target


def result_type(*arrays_and_dtypes: ArrayLike | DTypeLike) -> DType:
    """Return the dtype that the operands promote to: arrays, dtypes and Python scalars, which are weak.

    It is the dtype of their sum; docs/dtypes.md has the whole table.

    >>> import tape_core as tc
    >>> tc.result_type(tc.int8, tc.uint8), tc.result_type(tc.int64, tc.float32), tc.result_type(tc.float32, 1j)
    (int16, float32, complex64)

    Raises:
        ValueError: there is neither an array nor a dtype among them.
    """
    arrays = [_dtype_of(value) for value in arrays_and_dtypes if not is_number(value)]
    if not arrays:
        raise ValueError("result_type: give an array or a dtype")
    return dtypes.common_dtype(arrays, [type(to_number(value)) for value in arrays_and_dtypes if is_number(value)])


def finfo(type: ArrayLike | DTypeLike, /) -> dtypes.finfo:
    """Limits of a floating dtype, or that of an array: `bits`, `eps`, `max`, `min`, `smallest_normal`, `dtype`.

    >>> import tape_core as tc
    >>> tc.finfo(tc.float32).eps
    1.1920928955078125e-07

    Raises:
        TypeError: it is not a floating dtype.
    """
    return dtypes.finfo(_dtype_of(type))


def iinfo(type: ArrayLike | DTypeLike, /) -> dtypes.iinfo:
    """Limits of an integer dtype, or that of an array: `bits`, `max`, `min`, `dtype`.

    Raises:
        TypeError: it is not an integer dtype.
    """
    return dtypes.iinfo(_dtype_of(type))


def _dtype_of(value: ArrayLike | DTypeLike) -> DType:
    return value.dtype if isinstance(value, Tensor) else to_dtype(value)


def is_recording() -> bool:
    """Return True if a tape records in the current context."""
    return bool(ACTIVE.get())
