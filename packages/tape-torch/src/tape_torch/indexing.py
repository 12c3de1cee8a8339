"""Indexing and updates with NumPy's rules, where PyTorch's own indexing differs.

- A slice with a negative step, which PyTorch refuses, becomes one with a positive step of the flipped array.
- An integer beside integer arrays counts as an array, which decides where the arrays' dimensions go in the result.
- Where a key may name an element twice, updates work on the flat array, by each element's flat index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tape_core.backends import line_axis
from tape_core.typing import IndexKey
from torch import Tensor

from tape_torch.fallback import default_kernel
from tape_torch.promotion import SIGNED, Operand, bits, flip, ordered, unbits, unordered

_SIMPLE = frozenset({int, type(None), type(...)})


def _normalize_key(x: Tensor, key: IndexKey) -> tuple[Any, Any, tuple[int, ...]]:
    """Return `x`, maybe flipped, a key for it that PyTorch reads as NumPy would, and the axes that were flipped."""
    parts = list(key) if type(key) is tuple else [key]
    plain = True
    for part in parts:
        kind = type(part)
        if not (kind in _SIMPLE or (kind is slice and (part.step is None or part.step > 0))):
            plain = False
            break
    if plain:
        return x, key, ()
    parts = [_index_part(part, x) for part in parts]
    arrays = [part for part in parts if type(part) is Tensor]
    ndim = max([1 if part.dtype is torch.bool else part.ndim for part in arrays], default=0)
    if ndim:  # integers beside arrays become arrays
        parts = [
            torch.as_tensor(part, device=x.device).reshape((1,) * ndim) if _is_integer(part) else part for part in parts
        ]
    flipped = []
    if any([type(part) is slice and part.step is not None and part.step < 0 for part in parts]):
        used = sum([_dimensions(part) for part in parts])
        axis = 0
        for k, part in enumerate(parts):
            if type(part) is slice and part.step is not None and part.step < 0:
                # x[start:stop:step] is flip(x)[n-1-start : n-1-stop : -step].
                n = x.shape[axis]
                start, stop, step = part.indices(n)
                parts[k] = slice(n - 1 - start, n - 1 - stop, -step)
                flipped.append(axis)
            axis += x.ndim - used if part is ... else _dimensions(part)
    return flip(x, flipped) if flipped else x, tuple(parts), tuple(flipped)


def _index_part(part: Any, x: Tensor) -> Any:
    """Convert index arrays to tensors of bool or int64, and other parts of a key to Python's objects."""
    if type(part) is slice or type(part) in _SIMPLE:
        return part
    if hasattr(part, "dtype") and getattr(part, "shape", None) is not None:
        array = part if isinstance(part, Tensor) else torch.as_tensor(part, device=x.device)
        if array.dtype is torch.bool or array.dtype is torch.int64:
            return array
        if array.numel() and (array.dtype.is_floating_point or array.dtype.is_complex):  # [] is of floats
            raise IndexError(f"arrays used as indices must be of integers or bool, not {array.dtype}")
        return array.to(torch.int64)  # PyTorch takes uint8 for a mask
    # True has an __index__, too, but is a mask of shape ().
    if type(part) is not bool and hasattr(part, "__index__"):
        return part.__index__()
    return part


def _with_tensors(key: IndexKey, x: Tensor) -> tuple[Any, ...]:
    """A key for what is computed with functions of the standard, which take no arrays of NumPy."""
    return tuple([_index_part(part, x) for part in (key if type(key) is tuple else (key,))])


def _is_integer(part: object) -> bool:
    return type(part) is int or (type(part) is Tensor and part.ndim == 0 and part.dtype is not torch.bool)


def _dimensions(part: object) -> int:
    """Return the number of dimensions of the array that a part of a key uses."""
    if part is None or part is ...:
        return 0
    return part.ndim if type(part) is Tensor and part.dtype is torch.bool else 1


def _repeats(key: IndexKey) -> bool:
    """Return whether a key may name an element more than once."""
    parts = key if type(key) is tuple else (key,)
    return any([hasattr(part, "dtype") and "bool" not in str(part.dtype) and len(part.shape) > 0 for part in parts])


def getitem(x: Tensor, key: IndexKey) -> Any:
    if type(key) is int:
        return x[key]
    x, key, _ = _normalize_key(x, key)
    return x[key]


def _flat_indices(x: Tensor, key: IndexKey) -> Any:
    """Return the flat index into `x` of each element of `x[key]`."""
    if type(key) is Tensor and key.ndim and x.ndim == 1 and key.dtype is torch.int64:
        x[key]  # raises the error for an index out of bounds
        return torch.where(key < 0, key + x.shape[0], key)
    every = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    return getitem(every, key)


def _assign(out: Tensor, key: IndexKey, values: Operand) -> Any:
    """Return `out` after `out[key] = values`, in its memory unless it has to be flipped for the key."""
    target, key, flipped = _normalize_key(out, key)
    target[key] = values
    return flip(target, flipped) if flipped else target


def _as_tensor(values: Operand, x: Tensor) -> Any:
    """Return a number as a tensor of the dtype of `x`, beside it, and a tensor as it is."""
    if isinstance(values, Tensor):  # of a class of its own where calls are noted
        return values
    return torch.tensor(values, dtype=x.dtype, device=x.device)


def _flat_values(values: Operand, shape: Sequence[int], x: Tensor) -> Any:
    """Broadcast `values` to the shape that a key selects, and flatten them."""
    values = _as_tensor(values, x)
    # NumPy lets a value have more axes than its place, if these have the length 1; broadcast_to does not.
    extra = values.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in values.shape[:extra]):
        values = values.reshape(values.shape[extra:])
    return values.broadcast_to(shape).reshape(-1)


def _rows_along_axis(x: Tensor, key: IndexKey) -> tuple[int, Any] | None:
    """Return the axis and the indices along it, if a key is one array of integers after whole slices; else None."""
    parts = key if type(key) is tuple else (key,)
    axis = len(parts) - 1
    rows = parts[-1]
    if type(rows) is not Tensor or rows.dtype is not torch.int64 or rows.ndim == 0 or x.ndim <= axis:
        return None
    if any([type(part) is not slice or part != _WHOLE for part in parts[:-1]]):
        return None
    return axis, rows if rows.numel() == 0 else torch.where(rows < 0, rows + x.shape[axis], rows)


_WHOLE = slice(None)


def _add(out: Tensor, key: IndexKey, values: Operand) -> Any:
    """Add `values` at `key` in the memory of `out`; duplicates add up."""
    found = _rows_along_axis(out, key)
    if found is not None:
        # index_add_ along an axis adds rows as a whole; by flat indices each element would need an index of its own.
        axis, rows = found
        before, after = out.shape[:axis], out.shape[axis + 1 :]
        values = _as_tensor(values, out).broadcast_to((*before, *rows.shape, *after))
        values = values.reshape(*before, rows.numel(), *after)
        return out.index_add_(axis, rows.reshape(-1), values)
    numbers = _flat_indices(out, key)
    # `out` is contiguous: it was made here or by `_copy`, so view(-1) is its memory.
    out.view(-1).index_add_(0, numbers.reshape(-1), _flat_values(values, numbers.shape, out))
    return out


def scatter(values: Tensor, key: IndexKey, shape: tuple[int, ...]) -> Any:
    if values.dtype in SIGNED:
        return unbits(scatter(bits(values), key, shape), values.dtype)
    out = torch.zeros(shape, dtype=values.dtype, device=values.device)
    return _add(out, key, values) if _repeats(key) else _assign(out, key, values)


def scatter_add(x: Tensor, values: Operand, key: IndexKey) -> Any:
    if x.dtype in SIGNED:
        return unbits(scatter_add(bits(x), bits(_as_tensor(values, x).to(x.dtype)), key), x.dtype)
    out = _copy(x)
    if _repeats(key):
        return _add(out, key, values)
    return _assign(out, key, getitem(out, key) + values)


def add_rows(x: Tensor, indices: Tensor, rows: Tensor, *, in_place: bool = False) -> Any:
    indices = _index_part(indices, x)
    indices = torch.where(indices < 0, indices + x.shape[0], indices)
    return (x if in_place else x.clone()).index_add_(0, indices, rows.to(x.dtype))


def setitem(x: Tensor, values: Operand, key: IndexKey) -> Any:
    if x.dtype in SIGNED:
        return unbits(setitem(bits(x), bits(_as_tensor(values, x).to(x.dtype)), key), x.dtype)
    out = _copy(x)
    if type(values) is Tensor and values.dtype is not x.dtype:
        values = values.to(x.dtype)
    if not _repeats(key):
        return _assign(out, key, values)
    # PyTorch does not say which of several values for one element stays. Here it is the last, as in NumPy: the greatest
    # position among the values that go to an element is found first.
    numbers = _flat_indices(out, key)
    values = _flat_values(values, numbers.shape, out)
    flat, order = numbers.reshape(-1), torch.arange(numbers.numel(), device=x.device)
    last = torch.full((out.numel(),), -1, dtype=torch.int64, device=x.device)
    last.scatter_reduce_(0, flat, order, "amax")
    # Elements without a value have the position -1, which picks the zero at the end; the last line does not take it.
    chosen = torch.cat([values, values.new_zeros(1)])[last]
    return torch.where(last >= 0, chosen, out.view(-1)).reshape(out.shape)


def _copy(x: Tensor) -> Any:
    return x.clone(memory_format=torch.contiguous_format)


# The dtypes for which PyTorch has scatter_reduce_ on all devices.
_REDUCED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64})


def _updater(
    name: str, how: str, combine: Callable[[Any, Any], Any], signed: Callable[[Any], Any], back: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the kernel of an update; unsigned integers are computed with as `signed` ones, of which `back` returns."""

    def update(x: Tensor, values: Operand, key: IndexKey) -> Any:
        if x.dtype not in _REDUCED:
            return default_kernel(name, x, values, _with_tensors(key, x))
        out = _copy(x)
        if not _repeats(key):
            return _assign(out, key, combine(getitem(out, key), _as_tensor(values, x)))
        numbers = _flat_indices(out, key)
        out.view(-1).scatter_reduce_(0, numbers.reshape(-1), _flat_values(values, numbers.shape, out), how)
        return out

    def kernel(x: Tensor, values: Operand, key: IndexKey) -> Any:
        if x.dtype in SIGNED:
            return back(update(signed(x), signed(_as_tensor(values, x).to(x.dtype)), key), x.dtype)
        return update(x, values, key)

    return kernel


def places(x: Tensor, key: IndexKey) -> Any:
    return default_kernel("places", x, _with_tensors(key, x))


def take(x: Tensor, indices: Tensor, *, axis: int | None = None) -> Any:
    axis = line_axis(axis, x.ndim)
    if indices.dtype is not torch.int64:
        indices = indices.to(torch.int64)
    return x[(slice(None),) * axis + (indices,)]


def gather(params: Tensor, indices: Tensor) -> Any:
    if indices.dtype is not torch.int64:
        indices = indices.to(torch.int64)
    # On the CPU `embedding`, the quicker one, raises for a negative index. On CUDA that is an assertion on the device,
    # after which the process cannot use it any more; indexing counts negative ones from the end.
    if params.ndim == 2 and params.device.type == "cpu":
        try:
            return torch.embedding(params, indices)
        except IndexError:
            pass  # negative indices, or ones out of bounds
    return params[indices]


def take_along_axis(x: Tensor, indices: Tensor, *, axis: int = -1) -> Any:
    """Gather along an axis by `torch.gather`; `take_along_dim` would wrap indices out of bounds without an error."""
    if x.dtype in SIGNED:
        return unbits(take_along_axis(bits(x), indices, axis=axis), x.dtype)
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"axis {axis} is out of bounds for an array of {x.ndim} dimensions")
    if indices.ndim != x.ndim:
        raise ValueError(f"indices must have {x.ndim} dimensions, as x has; they have {indices.ndim}")
    axis %= x.ndim
    n, m = x.shape[axis], indices.shape[axis]
    around = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        (*x.shape[:axis], 1, *x.shape[axis + 1 :]), (*indices.shape[:axis], 1, *indices.shape[axis + 1 :])
    )
    indices = indices.to(torch.int64)
    places = torch.where(indices < 0, indices + n, indices).expand(*around[:axis], m, *around[axis + 1 :])
    try:
        return torch.gather(x.expand(*around[:axis], n, *around[axis + 1 :]), axis, places)
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        wrong = indices[(indices < -n) | (indices >= n)][0].item()
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {n}") from error


KERNELS: dict[str, Callable[..., Any]] = {
    "getitem": getitem,
    "places": places,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_max": _updater("scatter_max", "amax", torch.maximum, ordered, unordered),
    "scatter_min": _updater("scatter_min", "amin", torch.minimum, ordered, unordered),
    "scatter_multiply": _updater("scatter_multiply", "prod", torch.mul, bits, unbits),
    "setitem": setitem,
    "add_rows": add_rows,
    "take": take,
    "take_along_axis": take_along_axis,
    "gather": gather,
}
