"""Functions of the standard on whole arrays: reductions, sorting, sets, shapes and creation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tape_core.backends import line_axis, normal_axis
from tape_core.support import warn_user
from tape_core.typing import Axis, Scalar
from torch import Tensor

from tape_torch import elementwise, linalg
from tape_torch.fallback import default_kernel
from tape_torch.promotion import (
    FLOATING,
    PROMOTED,
    SIGNED,
    Operand,
    bits,
    common,
    flip,
    ordered,
    promote,
    unbits,
    unordered,
)

Kernel = Callable[..., Any]
_UNSIGNED = frozenset({torch.uint8, *SIGNED})


def _normal_axes(x: Tensor, axis: Axis) -> tuple[int, ...]:
    """Return the axes of a reduction as a tuple of non-negative integers."""
    if axis is None:
        return tuple(range(x.ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple([normal_axis(a, x.ndim) for a in axes])


def _merge_axes_last(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Merge axes into one and move it to the end, for functions that reduce only one axis."""
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = x.permute((*kept, *axes))
    return moved.reshape((*[x.shape[a] for a in kept], math.prod([x.shape[a] for a in axes])))


def _keepdims_shape(x: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a reduction that keeps its axes, with length 1."""
    return tuple([1 if a in axes else n for a, n in enumerate(x.shape)])


# -- sums


def _sum(x: Tensor, *, axis: Axis = None, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    if dtype is None and (x.is_floating_point() or x.is_complex()):
        if axis is None:
            return torch.sum(x, _all_axes(x), keepdim=True) if keepdims else torch.sum(x)
        if axis != ():  # PyTorch takes () for all axes, the standard for none
            return torch.sum(x, axis, keepdim=keepdims)
        return x.clone()
    dtype = dtype or _sum_dtype(x)
    x, working = _to_working_dtype(x, dtype)
    total = (
        x.clone()
        if axis == ()
        else torch.sum(x, _all_axes(x) if axis is None else axis, keepdim=keepdims, dtype=working)
    )
    return _from_working_dtype(total, dtype)


def _all_axes(x: Tensor) -> tuple[int, ...]:
    """Return all axes: PyTorch takes () for them, too, but its strategies for DTensors take it for none."""
    return tuple(range(x.ndim))


def _sum_dtype(x: Tensor) -> torch.dtype:
    """Return the default dtype of sums and products: integers become 64-bit."""
    if x.is_floating_point() or x.is_complex():
        return x.dtype
    return torch.uint64 if x.dtype in _UNSIGNED else torch.int64


def _to_working_dtype(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, torch.dtype]:
    """Return `x` in the dtype in which PyTorch can compute a sum of the wanted one, and that working dtype."""
    working = torch.int64 if dtype in SIGNED else dtype
    return (bits(x) if x.dtype is torch.uint64 is dtype else x.to(working)), working


def _from_working_dtype(total: Tensor, dtype: torch.dtype) -> Tensor:
    return unbits(total, dtype) if dtype is torch.uint64 else total.to(dtype)


def _trace(x: Tensor, *, offset: int = 0, dtype: torch.dtype | None = None) -> Tensor:
    return _sum(torch.diagonal(x, offset, -2, -1), axis=-1, dtype=dtype)


def _prod(x: Tensor, *, axis: Axis = None, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    dtype = dtype or _sum_dtype(x)
    x, _ = _to_working_dtype(x, dtype)
    if axis is None and not keepdims:
        return _from_working_dtype(torch.prod(x), dtype)
    axes = _normal_axes(x, axis)
    # torch.prod takes one axis only.
    out = torch.prod(_merge_axes_last(x, axes), -1)
    return _from_working_dtype(out.reshape(_keepdims_shape(x, axes)) if keepdims else out, dtype)


def _mean(x: Tensor, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(FLOATING[x.dtype])
    if axis is None and not keepdims:
        return torch.mean(x)
    return x.clone() if axis == () else torch.mean(x, _all_axes(x) if axis is None else axis, keepdim=keepdims)


def _var(x: Tensor, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(FLOATING[x.dtype])
    axes = _normal_axes(x, axis)
    n = math.prod([x.shape[a] for a in axes])
    if n > correction and axes:
        return torch.var(x, axes, correction=correction, keepdim=keepdims)
    # Fewer elements than the correction, of which PyTorch warns, or no axes, which it takes for all.
    squares = torch.abs(x - _mean(x, axis=axes, keepdims=True)) ** 2
    total = _sum(squares, axis=axes, keepdims=keepdims)
    return total / torch.full_like(total, max(n - correction, 0))


def _std(x: Tensor, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    return torch.sqrt(_var(x, axis=axis, correction=correction, keepdims=keepdims))


def _running(function: Kernel, first: int) -> Kernel:
    def kernel(
        x: Tensor, *, axis: int | None = None, dtype: torch.dtype | None = None, include_initial: bool = False
    ) -> Tensor:
        axis = line_axis(axis, x.ndim)
        dtype = dtype or _sum_dtype(x)
        x, working = _to_working_dtype(x, dtype)
        out = function(x, axis, dtype=working)
        if include_initial:
            shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
            out = torch.cat([torch.full(shape, first, dtype=working, device=x.device), out], axis)
        return _from_working_dtype(out, dtype)

    return kernel


# -- extrema and truth


def _extremum(function: Kernel) -> Kernel:
    def kernel(x: Tensor, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
        if axis == ():
            return x.clone()
        axes = _all_axes(x) if axis is None else axis
        if x.dtype in SIGNED:
            return unordered(function(ordered(x), axes, keepdim=keepdims), x.dtype)
        return function(x, axes, keepdim=keepdims)  # type: ignore[no-any-return]

    return kernel


def _place(function: Kernel) -> Kernel:
    def kernel(x: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        if x.dtype in SIGNED:
            x = ordered(x)
        elif x.dtype is torch.bool:
            # argmax and argmin have no kernel for bool.
            x = x.to(torch.uint8)
        return function(x, axis, keepdim=keepdims)  # type: ignore[no-any-return]

    return kernel


def _truth(function: Kernel) -> Kernel:
    def kernel(x: Tensor, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
        if x.dtype is not torch.bool:
            x = x != 0
        if axis is None and not keepdims:
            return function(x)  # type: ignore[no-any-return]
        return x.clone() if axis == () else function(x, _normal_axes(x, axis), keepdim=keepdims)

    return kernel


def _count_nonzero(x: Tensor, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _sum(x != 0, axis=axis, keepdims=keepdims)


def _nonzero(x: Tensor) -> tuple[Tensor, ...]:
    if x.ndim == 0:
        raise ValueError("an array of no dimensions has no indices")
    return torch.nonzero(x if x.dtype is torch.bool else x != 0, as_tuple=True)


# -- order


def _sort(x: Tensor, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    return torch.sort(x, dim=axis, descending=descending, stable=stable)[0]


def _argsort(x: Tensor, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    return torch.sort(x, dim=axis, descending=descending, stable=stable)[1]


def _searchsorted(x1: Tensor, x2: Tensor, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    if sorter is not None:
        x1 = x1[sorter]
    x1, x2 = promote(x1, x2)
    if x1.dtype in SIGNED:
        x1, x2 = ordered(x1), ordered(x2)
    elif x1.dtype is torch.bool:
        x1, x2 = x1.to(torch.uint8), x2.to(torch.uint8)
    # PyTorch warns of strided arguments, though it would copy them itself.
    return torch.searchsorted(x1.contiguous(), x2.contiguous(), side=side)


# -- sets


def _groups(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the elements; return them, their old positions, and which of them differ from the one before."""
    flat = x.reshape(-1)
    if flat.is_complex():  # by real part, then by imaginary part: a stable sort by the second key comes first
        order = torch.sort(flat.imag, stable=True)[1]
        order = order[torch.sort(flat.real[order], stable=True)[1]]
        ordered = flat[order]
    else:
        ordered, order = torch.sort(flat, stable=True)
    first = torch.ones(min(1, len(flat)), dtype=torch.bool, device=x.device)
    return ordered, order, torch.cat([first, ordered[1:] != ordered[:-1]])


def _inverse(x: Tensor, order: Tensor, new: Tensor) -> Tensor:
    # cumsum(new) - 1 numbers the groups in sorted order; `order` leads back to the old positions.
    inverse = torch.empty_like(order)
    inverse[order] = torch.cumsum(new, 0) - 1
    return inverse.reshape(x.shape)


def _counts(new: Tensor) -> Tensor:
    (starts,) = torch.nonzero(new, as_tuple=True)
    return torch.diff(starts, append=torch.full((1,), len(new), dtype=starts.dtype, device=new.device))


def _unique_all(x: Tensor) -> tuple[Tensor, ...]:
    # torch.unique returns no indices, and treats NaN in another way than the standard.
    ordered, order, new = _groups(x)
    return ordered[new], order[new], _inverse(x, order, new), _counts(new)


def _unique_counts(x: Tensor) -> tuple[Tensor, ...]:
    ordered, _, new = _groups(x)
    return ordered[new], _counts(new)


def _unique_inverse(x: Tensor) -> tuple[Tensor, ...]:
    ordered, order, new = _groups(x)
    return ordered[new], _inverse(x, order, new)


def _unique_values(x: Tensor) -> Tensor:
    ordered, _, new = _groups(x)
    return ordered[new]


def _isin(x1: Operand, x2: Operand, *, invert: bool = False) -> Tensor:
    x1, x2 = promote(x1, x2)
    if x1.dtype in SIGNED:
        x1, x2 = bits(x1), bits(x2)
    elif x1.dtype is torch.bool:
        x1, x2 = x1.to(torch.uint8), x2.to(torch.uint8)
    elif x1.is_complex():
        # torch.isin takes real numbers only.
        among: Tensor = (x1[..., None] == x2.reshape(-1)).any(-1) ^ invert
        return among
    found: Tensor = torch.isin(x1, x2, invert=invert)
    return found


# -- shapes


def _reshape(x: Tensor, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    if copy is None:
        return x.reshape(shape)
    if copy:
        return x.clone(memory_format=torch.contiguous_format).view(shape)
    # Without a copy: view raises an error where one is needed.
    return x.view(shape)


def _squeeze(x: Tensor, axis: int | tuple[int, ...]) -> Tensor:
    for a in _normal_axes(x, axis):
        if x.shape[a] != 1:
            raise ValueError(f"axis {a} has the length {x.shape[a]}, not 1")
    return torch.squeeze(x, axis)


def _expand_dims(x: Tensor, axis: int | tuple[int, ...] = 0) -> Tensor:
    if type(axis) is int:
        return torch.unsqueeze(x, axis)
    return default_kernel("expand_dims", x, axis)  # type: ignore[no-any-return]


def _in_common_dtype(arrays: Sequence[Operand]) -> Any:
    """Convert a sequence of arrays to their common dtype; the sequence itself if they have it."""
    first = arrays[0]
    if type(first) is Tensor:
        dtype = first.dtype
        if all([type(x) is Tensor and x.dtype is dtype for x in arrays]):
            return arrays
    return promote(*arrays)


def _concat(arrays: Sequence[Operand], *, axis: int | None = 0) -> Tensor:
    tensors = _in_common_dtype(arrays)
    if axis is None:
        return torch.cat([x.reshape(-1) for x in tensors])
    n = tensors[0].ndim
    if any([x.ndim != n for x in tensors]):  # PyTorch would ignore arrays of shape (0,)
        raise ValueError(
            f"all must have as many dimensions, got shapes {', '.join(str(tuple(x.shape)) for x in tensors)}"
        )
    return torch.cat(tensors, axis)


def _flip(x: Tensor, *, axis: Axis = None) -> Tensor:
    return flip(x, _normal_axes(x, axis))


def _roll(x: Tensor, shift: int | tuple[int, ...], *, axis: Axis = None) -> Tensor:
    if isinstance(axis, tuple) and not isinstance(shift, tuple):
        shift = (shift,) * len(axis)
    elif isinstance(shift, tuple) and axis is not None and not isinstance(axis, tuple):
        axis = (axis,) * len(shift)
    return torch.roll(x, shift, axis)  # type: ignore[arg-type] # without an axis it rolls the flat array


def _repeat(x: Tensor, repeats: int | Tensor, *, axis: int | None = None) -> Tensor:
    if isinstance(repeats, Tensor):
        repeats = repeats.to(torch.int64)
    if x.dtype in SIGNED:  # PyTorch's index_select has not all unsigned dtypes
        return unbits(torch.repeat_interleave(bits(x), repeats, axis), x.dtype)
    return torch.repeat_interleave(x, repeats, axis)


def _triangle(function: Kernel) -> Kernel:
    def kernel(x: Tensor, *, k: int = 0) -> Tensor:
        return unbits(function(bits(x), k), x.dtype) if x.dtype in SIGNED else function(x, k)

    return kernel


# -- making arrays


def _arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    if stop is None:
        start, stop = 0, start
    working = torch.int64 if dtype in SIGNED else dtype
    if step != 0 and (stop - start) / step <= 0:  # PyTorch raises an error where the standard has an empty array
        integers = all([isinstance(x, int) for x in (start, stop, step)])
        working = working or (torch.int64 if integers else torch.get_default_dtype())
        return torch.empty(0, dtype=dtype or working, device=device)
    out = torch.arange(start, stop, step, dtype=working, device=device)
    return out if working is dtype or dtype is None else out.to(dtype)


def _linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    endpoint: bool = True,
) -> Tensor:
    # Integers are rounded down from float64, as NumPy does; PyTorch computes in the integer dtype.
    whole = dtype is not None and not (dtype.is_floating_point or dtype.is_complex)
    working = torch.float64 if whole else dtype
    if endpoint:
        out = torch.linspace(start, stop, num, dtype=working, device=device)
    else:
        out = torch.linspace(start, stop, num + 1, dtype=working, device=device)[:-1]
    return out.floor().to(dtype) if whole else out


def _eye(
    n_rows: int,
    n_cols: int | None = None,
    *,
    k: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    # torch.eye has no other diagonals than the main one.
    out = torch.zeros((n_rows, n_rows if n_cols is None else n_cols), dtype=dtype, device=device)
    if -n_rows < k < out.shape[1]:
        out.diagonal(k).fill_(1)
    return out


def _full(
    shape: int | tuple[int, ...],
    fill_value: Scalar,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    return torch.full((shape,) if isinstance(shape, int) else shape, fill_value, dtype=dtype, device=device)


def _astype(x: Tensor, dtype: torch.dtype, *, copy: bool = True) -> Tensor:
    if x.is_complex() and not dtype.is_complex and dtype is not torch.bool:
        # Warn each time, as NumPy does; PyTorch warns once per process.
        warn_user(f"{x.dtype} becomes {dtype}: the imaginary part is discarded")
        x = x.real
    return x.to(dtype, copy=copy)


def _isdtype(dtype: torch.dtype, kind: Any) -> bool:
    if kind == "complex floating":
        return dtype.is_complex
    if isinstance(kind, tuple):
        return any([_isdtype(dtype, k) for k in kind])
    if not isinstance(kind, str):
        return bool(dtype is kind)
    return dtype in _KINDS[kind]


_SIGNED_INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_KINDS = {
    "bool": frozenset({torch.bool}),
    "signed integer": _SIGNED_INTEGERS,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED_INTEGERS | _UNSIGNED,
    "real floating": _FLOATS,
    "numeric": _SIGNED_INTEGERS | _UNSIGNED | _FLOATS | {torch.complex64, torch.complex128},
}


def _result_type(*arrays_and_dtypes: Any) -> torch.dtype:
    dtypes = [x for x in arrays_and_dtypes if isinstance(x, torch.dtype)]
    found = (
        [common([x for x in arrays_and_dtypes if not isinstance(x, torch.dtype)])]
        if len(dtypes) < len(arrays_and_dtypes)
        else []
    )
    result = (dtypes + found)[0]
    for dtype in dtypes + found:
        result = PROMOTED[result, dtype]
    return result


KERNELS: dict[str, Kernel] = {
    **elementwise.KERNELS,
    **linalg.KERNELS,
    "sum": _sum,
    "prod": _prod,
    "trace": _trace,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "cumulative_sum": _running(torch.cumsum, 0),
    "cumulative_prod": _running(torch.cumprod, 1),
    "max": _extremum(torch.amax),
    "min": _extremum(torch.amin),
    "argmax": _place(torch.argmax),
    "argmin": _place(torch.argmin),
    "all": _truth(torch.all),
    "any": _truth(torch.any),
    "count_nonzero": _count_nonzero,
    "nonzero": _nonzero,
    "sort": _sort,
    "argsort": _argsort,
    "searchsorted": _searchsorted,
    "search_in_order": _searchsorted,
    "unique_all": _unique_all,
    "unique_counts": _unique_counts,
    "unique_inverse": _unique_inverse,
    "unique_values": _unique_values,
    "isin": _isin,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    # By functions of their own, since PyTorch names the parameters otherwise, and users may pass them by name.
    "permute_dims": lambda x, axes: torch.permute(x, axes),
    "broadcast_to": lambda x, shape: torch.broadcast_to(x, shape),
    "concat": _concat,
    "stack": lambda arrays, *, axis=0: torch.stack(_in_common_dtype(arrays), axis),
    "unstack": lambda x, *, axis=0: torch.unbind(x, axis),
    "flip": _flip,
    "roll": _roll,
    "tile": torch.tile,
    "repeat": _repeat,
    "tril": _triangle(torch.tril),
    "triu": _triangle(torch.triu),
    "astype": _astype,
    "isdtype": _isdtype,
    "result_type": _result_type,
    "arange": _arange,
    "linspace": _linspace,
    "eye": _eye,
    "full": _full,
    "arange_beside": lambda x, n: torch.arange(n, device=x.device),
    "zeros_beside": lambda x, shape, dtype: torch.zeros(shape, dtype=dtype, device=x.device),
}
