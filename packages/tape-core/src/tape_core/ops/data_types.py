"""Data type functions of the Array API standard, and moving between devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core import dtypes
from tape_core.dtypes import DType
from tape_core.op import linear, transpose
from tape_core.recording import ACTIVE
from tape_core.samples import Draw, Refused, Sample
from tape_core.tensor import ArrayLike, Tensor


def _astype_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), "float64")
    yield Sample(draw(2, 3), "complex128")
    yield Sample(draw(), "float64")
    yield Refused(TypeError, "unknown dtype 'float'", draw(2), "float")


@linear(x=transpose(lambda xp, g: g), samples=_astype_samples)
def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = True) -> Tensor:
    """`x` in another dtype. The gradient comes back in the dtype of `x`; a cast to an integer cuts the path."""


def _device_samples(draw: Draw) -> Iterator[Sample]:
    x = draw(2)
    yield Sample(x, x.device)


@linear(
    x=transpose(lambda xp, g, x_spec: g),
    kernel=lambda xp, x, device: x.to_device(device) if hasattr(x, "to_device") else x,
    samples=_device_samples,
)
def to_device(x: ArrayLike, device: str, /) -> Tensor:
    """`x` on another device; the gradient travels back."""


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
    from tape_core.tensor import wrap

    return wrap(x._array, x.backend)


_KINDS = {
    "bool": ("bool",),
    "signed integer": ("signed integer",),
    "unsigned integer": ("unsigned integer",),
    "integral": ("signed integer", "unsigned integer"),
    "real floating": ("real floating",),
    "complex floating": ("complex floating",),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


def isdtype(dtype: Any, kind: Any) -> bool:
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


def neutral(dtype: Any) -> DType:
    """The DType of a dtype, a library's own included: they all print their name."""
    found = dtypes.as_dtype(dtype)
    if found is None:
        name = getattr(dtype, "__name__", None) or str(dtype).rsplit(".", 1)[-1]
        found = dtypes.DTYPES.get(name)
    if found is None:
        raise TypeError(f"{dtype!r} is not a dtype; the names are {', '.join(dtypes.DTYPES)}")
    return found


def is_recording() -> bool:
    """Whether a tape records here and now."""
    return bool(ACTIVE.get())
