"""The methods of Tensors that arrays of NumPy and PyTorch have, for libraries that call them on any array.

Each calls the function of the same or a similar name, and is differentiable where that is. They are set on the class
`Tensor` when this module is imported, since `engine.tensor` stands below the ops and cannot name them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.engine.tensor import Tensor
from tape_core.ops import data_types, elementwise, manipulation, searching, statistical
from tape_core.ops.creation import asarray
from tape_core.typing import ArrayLike, Axis, DTypeLike

AxisOrList = Axis | list[int]
"""The `axis` of a method; NumPy's own methods take lists as well as tuples."""
_REDUCTIONS = {
    "all": searching.all,
    "any": searching.any,
    "max": statistical.max,
    "mean": statistical.mean,
    "min": statistical.min,
    "prod": statistical.prod,
    "sum": statistical.sum,
}


def _axis(axis: AxisOrList) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _reduction(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(self: Tensor, axis: AxisOrList = None, **options: Any) -> Tensor:
        return function(self, axis=_axis(axis), **options)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"See :func:`tape_core.{name}`."
    return method


def _std(self: Tensor, axis: AxisOrList = None, *, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """See :func:`tape_core.std`; `ddof` is its `correction`."""
    return statistical.std(self, axis=_axis(axis), correction=ddof, keepdims=keepdims)


def _var(self: Tensor, axis: AxisOrList = None, *, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """See :func:`tape_core.var`; `ddof` is its `correction`."""
    return statistical.var(self, axis=_axis(axis), correction=ddof, keepdims=keepdims)


def _lengths(numbers: tuple[Any, ...]) -> tuple[int, ...]:
    """The numbers of `x.reshape(2, 3)` or `x.reshape((2, 3))`: given one by one, or in one tuple or list."""
    return tuple(numbers[0]) if len(numbers) == 1 and isinstance(numbers[0], tuple | list) else numbers


def _reshape(self: Tensor, *shape: Any) -> Tensor:
    """See :func:`tape_core.reshape`; the lengths may be given one by one or in a tuple."""
    return manipulation.reshape(self, _lengths(shape))


def _ravel(self: Tensor) -> Tensor:
    """Return all elements along one axis."""
    return manipulation.reshape(self, (-1,))


def _squeeze(self: Tensor, axis: AxisOrList = None) -> Tensor:
    """Remove axes of length 1, all of them by default. See :func:`tape_core.squeeze`."""
    axes = tuple(k for k, n in enumerate(self.shape) if n == 1) if axis is None else _axis(axis)
    return manipulation.squeeze(self, axes)


def _transpose(self: Tensor, *axes: Any) -> Tensor:
    """Put the axes in this order; reverse them by default. See :func:`tape_core.permute_dims`."""
    order = _lengths(axes) if axes and axes != (None,) else tuple(reversed(range(self.ndim)))
    return manipulation.permute_dims(self, order)


def _astype(self: Tensor, dtype: DTypeLike, copy: bool = True) -> Tensor:
    """See :func:`tape_core.astype`."""
    result: Tensor = data_types.astype(self, dtype, copy=copy)
    return result


def _conj(self: Tensor) -> Tensor:
    """See :func:`tape_core.conj`."""
    return elementwise.conj(self) if self.dtype.kind == "complex floating" else +self


def _clip(self: Tensor, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """See :func:`tape_core.clip`."""
    return elementwise.clip(self, min, max)


def _round(self: Tensor) -> Tensor:
    """See :func:`tape_core.round`."""
    return elementwise.round(self)


def _argmax(self: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """See :func:`tape_core.argmax`."""
    return searching.argmax(self, axis=axis, keepdims=keepdims)


def _argmin(self: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """See :func:`tape_core.argmin`."""
    return searching.argmin(self, axis=axis, keepdims=keepdims)


def _cumsum(self: Tensor, axis: int | None = None) -> Tensor:
    """See :func:`tape_core.cumulative_sum`; without an axis the sum runs along all elements."""
    if axis is None:
        return statistical.cumulative_sum(_ravel(self))
    return statistical.cumulative_sum(self, axis=axis)


def _copy(self: Tensor) -> Tensor:
    """Return the same values in memory of their own."""
    return asarray(self, copy=True)


_METHODS = {
    **{name: _reduction(name, function) for name, function in _REDUCTIONS.items()},
    "argmax": _argmax,
    "argmin": _argmin,
    "astype": _astype,
    "clip": _clip,
    "conj": _conj,
    "conjugate": _conj,
    "copy": _copy,
    "cumsum": _cumsum,
    "flatten": _ravel,
    "ravel": _ravel,
    "reshape": _reshape,
    "round": _round,
    "squeeze": _squeeze,
    "std": _std,
    "transpose": _transpose,
    "var": _var,
}

for _name, _method in _METHODS.items():
    setattr(Tensor, _name, _method)
