"""The methods of Tensors that arrays of NumPy and PyTorch have, for libraries that call them on any array.

Each calls the function of the same or a similar name, and is differentiable where that is. They are set on the class
`Tensor` when this module is imported, since `engine.tensor` stands below the ops and cannot name them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tape_core.backends.axes import normal_axis
from tape_core.base.mistakes import explaining
from tape_core.engine.tensor import Tensor, read_array
from tape_core.ops import data_types, elementwise, manipulation, searching, sorting, statistical
from tape_core.ops.creation import asarray, zeros_like
from tape_core.ops.index import indexing
from tape_core.ops.linalg import norms_and_inverses, products
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
    if len(order) == 2 != self.ndim:
        raise ValueError(
            f"transpose: {order} are not all axes of shape {self.shape} in their order; x.swapaxes{order} exchanges two"
        )
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


def _round(self: Tensor, decimals: int = 0) -> Tensor:
    """Round to so many decimals, halves to the even one; to tens or hundreds where the number is negative."""
    return elementwise.round_to(self, decimals)


def _argmax(self: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """See :func:`tape_core.argmax`."""
    return searching.argmax(self, axis=axis, keepdims=keepdims)


def _argmin(self: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """See :func:`tape_core.argmin`."""
    return searching.argmin(self, axis=axis, keepdims=keepdims)


def _argsort(self: Tensor, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """See :func:`tape_core.argsort`; None is for the elements in one line."""
    line = _ravel(self) if axis is None else self
    return sorting.argsort(line, axis=-1 if axis is None else axis, descending=descending, stable=stable)


def _cumprod(self: Tensor, axis: int | None = None) -> Tensor:
    """See :func:`tape_core.cumulative_prod`; without an axis the product runs along all elements."""
    if axis is None:
        return statistical.cumulative_prod(_ravel(self))
    return statistical.cumulative_prod(self, axis=axis)


def _matrix_axes_last(x: Tensor, axis1: int, axis2: int) -> Tensor:
    return x if (axis1, axis2) == (-2, -1) else manipulation.moveaxis(x, (axis1, axis2), (-2, -1))


def _diagonal(self: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """See :func:`tape_core.linalg.diagonal`; the two axes are those of NumPy's method, the first two by default."""
    return norms_and_inverses.diagonal(_matrix_axes_last(self, axis1, axis2), offset=offset)


def _trace(self: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """See :func:`tape_core.linalg.trace`; the two axes are those of NumPy's method, the first two by default."""
    return norms_and_inverses.trace(_matrix_axes_last(self, axis1, axis2), offset=offset)


def _dot(self: Tensor, other: ArrayLike) -> Tensor:
    """Return NumPy's dot product: `x @ other`, but a sum over the last axis but one of `other` if that has several."""
    right = asarray(other) if isinstance(other, list | tuple) else read_array(other, "dot: other", self)
    if self.ndim == 0 or right.ndim == 0:
        return self * right
    if right.ndim <= 2:
        return products.matmul(self, right)
    return products.tensordot(self, right, axes=((-1,), (-2,)))


def _nonzero(self: Tensor) -> tuple[Tensor, ...]:
    """See :func:`tape_core.nonzero`."""
    return searching.nonzero(self)


def _repeat(self: Tensor, repeats: ArrayLike, axis: int | None = None) -> Tensor:
    """Repeat each element. See :func:`tape_core.repeat`; `tape_core.tile` repeats the whole, as PyTorch's method."""
    return manipulation.repeat(self, repeats, axis=axis)


def _searchsorted(self: Tensor, v: ArrayLike, side: Literal["left", "right"] = "left") -> Tensor:
    """See :func:`tape_core.searchsorted`: where to put values into this sorted tensor."""
    return searching.searchsorted(self, v, side=side)


def _swapaxes(self: Tensor, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes. See :func:`tape_core.permute_dims`."""
    order = list(range(self.ndim))
    i, j = [normal_axis(axis, self.ndim) for axis in (axis1, axis2)]
    order[i], order[j] = j, i
    return manipulation.permute_dims(self, tuple(order))


def _take(self: Tensor, indices: ArrayLike, axis: int | None = None) -> Tensor:
    """See :func:`tape_core.take`; without an axis the indices count all elements in one line."""
    return indexing.take(_ravel(self), indices, axis=0) if axis is None else indexing.take(self, indices, axis=axis)


def _cumsum(self: Tensor, axis: int | None = None) -> Tensor:
    """See :func:`tape_core.cumulative_sum`; without an axis the sum runs along all elements."""
    if axis is None:
        return statistical.cumulative_sum(_ravel(self))
    return statistical.cumulative_sum(self, axis=axis)


def _copy(self: Tensor) -> Tensor:
    """Return the same values in memory of their own."""
    return asarray(self, copy=True)


_METHODS: dict[str, Callable[..., Any]] = {
    **{name: _reduction(name, function) for name, function in _REDUCTIONS.items()},
    "argmax": _argmax,
    "argmin": _argmin,
    "argsort": _argsort,
    "astype": _astype,
    "clip": _clip,
    "conj": _conj,
    "conjugate": _conj,
    "copy": _copy,
    "cumprod": _cumprod,
    "cumsum": _cumsum,
    "diagonal": _diagonal,
    "dot": _dot,
    "flatten": _ravel,
    "nonzero": _nonzero,
    "ravel": _ravel,
    "repeat": _repeat,
    "reshape": _reshape,
    "round": _round,
    "searchsorted": _searchsorted,
    "squeeze": _squeeze,
    "std": _std,
    "swapaxes": _swapaxes,
    "take": _take,
    "trace": _trace,
    "transpose": _transpose,
    "var": _var,
}

# Those with parameters that PyTorch calls otherwise, and that do enough for a wrapper not to count.
_EXPLAINING = {"argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "diagonal", "repeat", "round"} | {
    "squeeze", "std", "take", "trace", "var",
}  # fmt: skip

for _name, _method in _METHODS.items():
    _method.__name__ = _method.__qualname__ = _name
    setattr(Tensor, _name, explaining(_method) if _name in _EXPLAINING else _method)


def _real(self: Tensor) -> Tensor:
    """The real part. See :func:`tape_core.real`."""
    return elementwise.real(self)


def _imag(self: Tensor) -> Tensor:
    """The imaginary part, which is 0 for real numbers. See :func:`tape_core.imag`."""
    return elementwise.imag(self) if self.dtype.kind == "complex floating" else zeros_like(self)


def _itemsize(self: Tensor) -> int:
    """The number of bytes of an element."""
    return self.dtype.itemsize


def _nbytes(self: Tensor) -> int:
    """The number of bytes of all elements."""
    return self.size * self.dtype.itemsize


Tensor.real = property(_real)  # type: ignore[assignment, method-assign]
Tensor.imag = property(_imag)  # type: ignore[assignment, method-assign]
Tensor.itemsize = property(_itemsize)  # type: ignore[assignment, method-assign]
Tensor.nbytes = property(_nbytes)  # type: ignore[assignment, method-assign]
