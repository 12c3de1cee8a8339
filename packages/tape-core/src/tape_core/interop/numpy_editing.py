"""NumPy's functions that put arrays together, take them apart and fill them up; see `numpy_functions`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tape_core as tc
from tape_core.backends.errors import AxisError
from tape_core.base.mistakes import integer
from tape_core.typing import ArrayLike, Axis, PyTree

# -- padding


def pad(
    array: ArrayLike,
    /,
    pad_width: Any,
    mode: Any = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
) -> Any:
    array = tc.asarray(array)
    pairs = _pad_widths(pad_width, array.ndim)
    if not isinstance(mode, str):
        raise TypeError(
            "numpy.pad: a function as mode writes into its argument, which no tape sees; put the pieces together with "
            "numpy.concatenate"
        )
    if mode == "empty":
        return tc.pad(array, pairs)
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        known: Any = mode  # one of the op's own modes
        return tc.pad(array, pairs, known)
    if mode == "constant":
        if isinstance(constant_values, int | float | complex):
            return tc.pad(array, pairs, constant_values=constant_values)
        ends = _end_values(constant_values, array)
        return _pad_each_axis(array, pairs, lambda x, axis, k, n: _repeat_along(x, ends(axis, k), axis, n))
    if mode == "linear_ramp":
        ends = _end_values(end_values, array)
        return _pad_each_axis(array, pairs, lambda x, axis, k, n: _ramp(x, ends(axis, k), axis, k, n))
    if mode in _STATISTICS:
        lengths = _stat_lengths(stat_length, array.ndim)
        statistic = _STATISTICS[mode]
        return _pad_each_axis(
            array,
            pairs,
            lambda x, axis, k, n: _repeat_along(
                x, statistic(_edge_elements(x, axis, k, lengths[axis][k]), axis), axis, n
            ),
        )
    raise ValueError(f"numpy.pad: mode {mode!r} is not supported")


def _pad_widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """Return the widths before and after each axis, from any form that NumPy takes."""
    if isinstance(pad_width, dict):
        pairs = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            if not -ndim <= axis < ndim:
                raise AxisError(f"numpy.pad: axis {axis} is out of bounds for an array of {ndim} dimensions")
            before, after = np.broadcast_to(np.asarray(width), 2).tolist()
            pairs[axis] = before, after
        return pairs
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu":
        raise TypeError(f"numpy.pad: pad_width must be of integral type, got {pad_width!r}")
    if (widths < 0).any():
        raise ValueError(f"numpy.pad: pad_width must not be negative, got {pad_width!r}")
    return [(before, after) for before, after in np.broadcast_to(widths, (ndim, 2)).tolist()]


def _end_values(values: ArrayLike, array: ArrayLike) -> Callable[[int, int], Any]:
    """Return a function of an axis and a side (0 before, 1 after) for the value there; Tensors keep their gradient."""
    values = tc.broadcast_to(_as_tensor_like(array, values), (array.ndim, 2))
    return lambda axis, k: values[axis, k]


def _stat_lengths(stat_length: Any, ndim: int) -> Any:
    lengths = np.broadcast_to(np.asarray(stat_length, dtype=object), (ndim, 2)).tolist()
    if any(n is not None and n < 1 for pair in lengths for n in pair):
        raise ValueError(f"numpy.pad: stat_length must be at least 1, got {stat_length!r}")
    return lengths


def _pad_each_axis(x: ArrayLike, pairs: list[tuple[int, int]], piece: Callable[[Any, int, int, int], Any]) -> Any:
    """Pad axis after axis, as NumPy does: each from the result of those before, which fills the corners."""
    if x.size == 0:
        raise ValueError("numpy.pad: an empty array can be padded in mode 'constant' or 'empty' only")
    for axis, widths in enumerate(pairs):
        before, after = (tc.astype(piece(x, axis, k, n), x.dtype) for k, n in enumerate(widths))
        x = tc.concat([before, x, after], axis=axis)
    return x


def _repeat_along(x: ArrayLike, value: ArrayLike, axis: int, n: int) -> Any:
    return tc.broadcast_to(value, (*x.shape[:axis], n, *x.shape[axis + 1 :]))


def _edge_elements(x: ArrayLike, axis: int, k: int, length: int | None = 1) -> Any:
    """Return the first elements along an axis if k is 0, else the last ones."""
    n = x.shape[axis] if length is None else min(length, x.shape[axis])
    return x[(slice(None),) * axis + (slice(n) if k == 0 else slice(x.shape[axis] - n, None),)]


def _ramp(x: ArrayLike, end: ArrayLike, axis: int, k: int, n: int) -> Any:
    edge = tc.squeeze(_edge_elements(x, axis, k), axis=axis)
    ramp = tc.linspace(end, edge, n, endpoint=False, dtype=x.dtype, axis=axis)
    return ramp if k == 0 else tc.flip(ramp, axis=axis)


def _mean(x: ArrayLike, axis: int) -> Any:
    found = tc.mean(x if x.dtype.inexact else tc.astype(x, "float64"), axis=axis, keepdims=True)
    return found if x.dtype.inexact else tc.round(found)


def _median(x: ArrayLike, axis: int) -> Any:
    from tape_core.interop.numpy_statistics import median

    # Integers stay integers, so the padding is rounded to them, as in `_mean`.
    found = median(x, axis=axis, keepdims=True)
    return found if x.dtype.inexact else tc.round(found)


_STATISTICS: dict[str, Callable[[Any, int], Any]] = {
    "maximum": lambda x, axis: tc.max(x, axis=axis, keepdims=True),
    "mean": _mean,
    "median": _median,
    "minimum": lambda x, axis: tc.min(x, axis=axis, keepdims=True),
}


# -- putting together and taking apart


def block(arrays: PyTree, /) -> Any:
    def depth(part: PyTree) -> int:
        return 1 + max((depth(p) for p in part), default=0) if isinstance(part, list) else 0

    levels = depth(arrays)

    def dimensions(part: PyTree) -> int:
        return max(dimensions(p) for p in part) if isinstance(part, list) else _block_entry(part, arrays).ndim

    ndim = max(levels, dimensions(arrays))

    def build(part: PyTree, level: int) -> Any:
        if not isinstance(part, list):
            x = _block_entry(part, arrays)
            return tc.reshape(x, (1,) * (ndim - x.ndim) + x.shape)
        if not part:
            raise ValueError("numpy.block: a list is empty")
        # The innermost lists are joined along the last axis, those around them along the one before it.
        return tc.concat([build(p, level + 1) for p in part], axis=-(levels - level))

    return build(arrays, 0)


def _block_entry(value: ArrayLike, arrays: PyTree) -> Any:
    """Return an entry of nested lists as a Tensor, on the backend of the Tensors among them."""
    if isinstance(value, tc.Tensor):
        return tc.asarray(value)
    if isinstance(value, tuple):
        raise TypeError("numpy.block: only lists are nested, not tuples")
    return tc.asarray(np.asarray(value), backend=_first_tensor(arrays).backend.root)


def _first_tensor(value: ArrayLike) -> Any:
    if isinstance(value, tc.Tensor):
        return value
    return next((t for part in value if (t := _first_tensor(part)) is not None), None) if type(value) is list else None


def broadcast_arrays(*arrays: Any) -> Any:
    """Broadcast the arrays; None and texts become NumPy arrays of objects, which no Tensor can hold."""
    tensors = [a for a in arrays if isinstance(a, tc.Tensor)]
    other = {k: np.asarray(a, dtype=object) for k, a in enumerate(arrays) if a is None or isinstance(a, str)}
    rest = [_as_array(a, tensors) for k, a in enumerate(arrays) if k not in other]
    spread = iter(tc.broadcast_arrays(*rest))
    shape = np.broadcast_shapes(*(a.shape for a in rest))
    return tuple(np.broadcast_to(other[k], shape) if k in other else next(spread) for k in range(len(arrays)))


def _as_array(value: ArrayLike, tensors: list[Any]) -> Any:
    return value if hasattr(value, "shape") else tc.asarray(np.asarray(value), backend=tensors[0].backend.root)


def _axis(name: str, axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise AxisError(f"numpy.{name}: axis {axis} is out of bounds for an array of {ndim} dimensions")
    return int(axis) % ndim


def _as_numpy_index(obj: ArrayLike) -> Any:
    """Return the indices that `insert` and `delete` are given, in a form that NumPy takes."""
    return obj.numpy() if isinstance(obj, tc.Tensor) else list(obj) if isinstance(obj, tuple) else obj


def delete(arr: ArrayLike, /, obj: ArrayLike, axis: int | None = None) -> Any:
    if axis is None:
        arr, axis = tc.reshape(arr, (-1,)), 0
    axis = _axis("delete", axis, arr.ndim)
    # NumPy's own function, on the indices, knows all forms of places; the elements follow by a differentiable take.
    kept = np.delete(np.arange(arr.shape[axis]), _as_numpy_index(obj))
    return tc.take(arr, tc.asarray(kept, backend=arr.backend.root), axis=axis)


def insert(arr: ArrayLike, obj: ArrayLike, values: ArrayLike, /, axis: int | None = None) -> Any:
    arr = tc.asarray(arr)
    values = values if isinstance(values, tc.Tensor) else tc.asarray(np.asarray(values), backend=arr.backend.root)
    values = tc.astype(values, arr.dtype)
    if axis is None:
        arr, axis = tc.reshape(arr, (-1,)), 0
    axis = _axis("insert", axis, arr.ndim)
    obj = _as_numpy_index(obj)
    n = arr.shape[axis]
    if isinstance(obj, slice):
        obj = np.arange(n)[obj]
    places = np.asarray(obj)
    if places.dtype == bool:
        places = np.flatnonzero(places)
    values = tc.reshape(values, (1,) * (arr.ndim - values.ndim) + values.shape)
    # As in NumPy: at a single place, the first axis of the values becomes `axis`.
    if places.ndim == 0:
        values = tc.moveaxis(values, 0, axis)
        count = values.shape[axis]
    else:
        count = max(places.size, values.shape[axis]) if places.size == 1 else places.size
    values = tc.broadcast_to(values, (*arr.shape[:axis], count, *arr.shape[axis + 1 :]))
    # As in `delete`: NumPy inserts indices. Those from n on are of the values, which are joined to the end of `arr`.
    order = np.insert(np.arange(n), places.astype(int) if places.size else places, n + np.arange(count))
    return tc.take(tc.concat([arr, values], axis=axis), tc.asarray(order, backend=arr.backend.root), axis=axis)


def resize(a: ArrayLike, /, new_shape: Any) -> Any:
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    size = math.prod(shape)
    if a.size == 0:
        return tc.zeros_like(tc.broadcast_to(tc.sum(a), shape))
    places = tc.asarray(np.arange(size) % a.size, backend=a.backend.root)
    return tc.reshape(tc.take(tc.reshape(a, (-1,)), places), shape)


def _as_tensor_like(x: ArrayLike, values: ArrayLike) -> Any:
    """Return values as a Tensor; lists, numbers and NumPy's arrays go to the backend of `x`."""
    return values if isinstance(values, tc.Tensor | tc.Variable) else tc.asarray(values, backend=x.backend.root)


def compress(condition: ArrayLike, a: ArrayLike, /, axis: int | None = None) -> Any:
    if axis is None:
        a, axis = tc.reshape(a, (-1,)), 0
    axis = _axis("compress", axis, a.ndim)
    places = tc.nonzero(_as_tensor_like(a, condition))[0]
    return tc.take(a, places, axis=axis)


def extract(condition: ArrayLike, arr: ArrayLike, /) -> Any:
    places = tc.nonzero(tc.reshape(_as_tensor_like(arr, condition), (-1,)))[0]
    return tc.take(tc.reshape(arr, (-1,)), places)


def piecewise(x: ArrayLike, condlist: ArrayLike, funclist: Any, /, *args: Any, **kw: Any) -> Any:
    """Run each function on all elements, and select by the conditions.

    NumPy runs it on the elements that it is for, whose number depends on values.
    """
    x = tc.asarray(x)
    conditions = (
        condlist if isinstance(condlist, list | tuple) else [*condlist] if condlist.ndim > x.ndim else [condlist]
    )
    conditions = [_as_tensor_like(x, c) for c in conditions]
    if conditions and conditions[0].ndim == 0:
        conditions = [tc.broadcast_to(c, x.shape) for c in conditions]
    functions = list(funclist)
    result: Any = tc.zeros_like(x)
    if len(functions) == len(conditions) + 1:
        *functions, other = functions
        result = tc.broadcast_to(tc.astype(_apply(other, x, args, kw), x.dtype), x.shape)
    elif len(functions) != len(conditions):
        raise ValueError(
            f"numpy.piecewise: with {len(conditions)} conditions, {len(conditions)} or {len(conditions) + 1} functions "
            f"are expected"
        )
    for condition, function in zip(conditions, functions, strict=True):
        result = tc.where(condition, tc.astype(_apply(function, x, args, kw), x.dtype), result)
    return result


def _apply(function: Callable[..., Any] | ArrayLike, x: ArrayLike, args: Any, kw: Any) -> Any:
    found = function(x, *args, **kw) if callable(function) else function
    return found if isinstance(found, tc.Tensor) else tc.asarray(found, backend=x.backend.root)


# -- orders of axes and elements


def rollaxis(a: ArrayLike, /, axis: int, start: int = 0) -> Any:
    axis = _axis("rollaxis", axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    if not 0 <= start <= a.ndim:
        raise AxisError(f"numpy.rollaxis: start {start} is out of bounds for an array of {a.ndim} dimensions")
    order = [k for k in range(a.ndim) if k != axis]
    order.insert(start - (start > axis), axis)
    return tc.permute_dims(a, tuple(order))


def partition(a: ArrayLike, /, kth: Any, axis: int | None = -1) -> Any:
    """Sort the array: NumPy leaves the order on either side of `kth` open."""
    if axis is None:
        a, axis = tc.reshape(a, (-1,)), 0
    n = a.shape[axis]
    if any(not -n <= k < n for k in np.atleast_1d(np.asarray(kth)).tolist()):
        raise ValueError(f"numpy.partition: kth={kth!r} is out of bounds for {n} elements")
    return tc.sort(a, axis=axis)


def tril(m: ArrayLike, /, k: int = 0) -> Any:
    return tc.tril(_as_matrix(m), k=integer("numpy.tril", "k", k))


def triu(m: ArrayLike, /, k: int = 0) -> Any:
    return tc.triu(_as_matrix(m), k=integer("numpy.triu", "k", k))


def _as_matrix(m: ArrayLike) -> Any:
    """Return a matrix; a vector becomes a square matrix with that vector as each row, as in NumPy."""
    return tc.broadcast_to(m, m.shape * 2) if m.ndim == 1 else m


# -- sequences


def vander(x: ArrayLike, /, N: int | None = None, increasing: bool = False) -> Any:
    if x.ndim != 1:
        raise ValueError(f"numpy.vander: x must have one dimension, got shape {x.shape}")
    powers = range(x.shape[0] if N is None else N)
    x = tc.astype(x, np.promote_types(str(x.dtype), int).name)
    columns = [x**k for k in (powers if increasing else reversed(powers))]
    return tc.stack(columns, axis=1) if columns else tc.reshape(x[:0], (x.shape[0], 0))


def ediff1d(ary: ArrayLike, /, to_end: ArrayLike = None, to_begin: ArrayLike = None) -> Any:
    flat = tc.reshape(ary, (-1,))
    parts = [] if to_begin is None else [_flatten_like(to_begin, flat)]
    parts += [flat[1:] - flat[: max(flat.shape[0] - 1, 0)]]
    return tc.concat(parts if to_end is None else [*parts, _flatten_like(to_end, flat)])


def _flatten_like(value: ArrayLike, like: ArrayLike) -> Any:
    value = value if isinstance(value, tc.Tensor) else tc.asarray(np.asarray(value), backend=like.backend.root)
    return tc.astype(tc.reshape(value, (-1,)), like.dtype)


def gradient(f: ArrayLike, /, *varargs: Any, axis: Axis = None, edge_order: int = 1) -> Any:
    f = tc.asarray(f)
    f = f if f.dtype.inexact else tc.astype(f, tc.float64)
    axes = range(f.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    axes = [_axis("gradient", k, f.ndim) for k in axes]
    if len(set(axes)) < len(axes):
        raise ValueError(f"numpy.gradient: an axis is named twice in {axis}")
    spacings: Any = varargs if len(varargs) == len(axes) else varargs * len(axes) if varargs else [1.0] * len(axes)
    if len(varargs) > 1 and len(varargs) != len(axes):
        raise TypeError("numpy.gradient: give one spacing, or one for each axis")
    if edge_order not in (1, 2):
        raise ValueError(f"numpy.gradient: edge_order must be 1 or 2, got {edge_order}")
    found = [_gradient_along(f, spacing, k, edge_order) for k, spacing in zip(axes, spacings, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _gradient_along(f: ArrayLike, spacing: Any, axis: int, edge_order: int) -> Any:
    n = f.shape[axis]
    if n < edge_order + 1:
        raise ValueError(
            f"numpy.gradient: axis {axis} has {n} elements; edge_order={edge_order} takes {edge_order + 1} or more"
        )

    def part(start: int, stop: int | None) -> Any:
        return f[(slice(None),) * axis + (slice(start, stop), ...)]

    def along_axis(h: ArrayLike) -> Any:
        return tc.reshape(h, tuple(-1 if k == axis else 1 for k in range(f.ndim)))

    if getattr(spacing, "ndim", 0) == 0:
        inner = (part(2, None) - part(0, n - 2)) / (2.0 * spacing)
        h: Any = [spacing] * 4
    else:
        if spacing.ndim != 1 or spacing.shape[0] != n:
            raise ValueError("numpy.gradient: coordinates must be vectors as long as their axis")
        # The slope, in the middle, of the parabola through three neighbours; a, b, c are the weights of their values.
        step = spacing[1:] - spacing[: n - 1]
        before, after = along_axis(step[: n - 2]), along_axis(step[1:])
        a = -after / (before * (before + after))
        b = (after - before) / (before * after)
        c = before / (after * (before + after))
        inner = a * part(0, n - 2) + b * part(1, n - 1) + c * part(2, None)
        h = [step[0], step[min(1, n - 2)], step[n - 2], step[max(n - 3, 0)]]
    if edge_order == 1:
        first, last = (part(1, 2) - part(0, 1)) / h[0], (part(n - 1, n) - part(n - 2, n - 1)) / h[2]
    else:
        first = _edge_slope(part(0, 1), part(1, 2), part(2, 3), h[0], h[1])
        # The same from the other end, where x runs backwards.
        last = -_edge_slope(part(n - 1, n), part(n - 2, n - 1), part(n - 3, n - 2), h[2], h[3])
    return tc.astype(tc.concat([first, inner, last], axis=axis), f.dtype)


def _edge_slope(y0: ArrayLike, y1: ArrayLike, y2: ArrayLike, h1: ArrayLike, h2: ArrayLike) -> Any:
    """Return the slope, at the first of three points, of the parabola through them."""
    return -(2.0 * h1 + h2) / (h1 * (h1 + h2)) * y0 + (h1 + h2) / (h1 * h2) * y1 - h1 / (h2 * (h1 + h2)) * y2
