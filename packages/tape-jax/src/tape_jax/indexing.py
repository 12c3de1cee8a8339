"""Indexing and updates: one XLA program each, which is not compiled again for another number or window.

Keys are NumPy's, with raw arrays. That indices are within bounds is looked at before, see `Backend.checks`; inside
`jax.jit` nobody can: JAX then reads the nearest element, and drops what would be written elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core.backends import line_axis
from tape_core.typing import IndexKey

from tape_jax import manual
from tape_jax.jitted import Jitted

_INDICES = frozenset(map(np.dtype, ("bool", "int32", "int64")))


def _index(part: Any) -> Any:
    """Return an array of indices in a dtype that holds the length of an axis, which JAX adds to those below 0."""
    dtype = getattr(part, "dtype", None)
    return part if dtype is None or dtype in _INDICES or dtype.kind not in "iu" else part.astype("int64")


def _parts(key: IndexKey) -> tuple[Any, ...]:
    return key if type(key) is tuple else (key,)


def _is_mask(part: object) -> bool:
    return getattr(part, "dtype", None) == np.bool_


def _may_repeat(key: IndexKey) -> bool:
    """Return whether a key may name an element more than once."""
    return any(hasattr(part, "dtype") and not _is_mask(part) and part.shape != () for part in _parts(key))


def _is_static(key: IndexKey) -> bool:
    """Return whether a key has Python numbers, slices of them, new axes and an ellipsis only."""
    numbers = [(part.start, part.stop, part.step) if type(part) is slice else (part,) for part in _parts(key)]
    return all(part is None or part is ... or type(part) is int for parts in numbers for part in parts)


def _without_masks(key: IndexKey) -> Any:
    """Return a key with the integer arrays of `nonzero` in place of masks, and integers that are known when it runs.

    Arrays of indices are in the dtype of `_index`.
    """
    parts: list[Any] = []
    for part in _parts(key):
        if _is_mask(part) and part.shape != () and not isinstance(part, jax.core.Tracer):
            parts += [jnp.asarray(places) for places in np.nonzero(np.asarray(part))]
        else:
            parts.append(np.int64(part) if type(part) is int else _index(part))
    return tuple(parts)


# -- plain keys: integers and slices without a step


def _window(key: IndexKey, shape: tuple[int, ...]) -> tuple[list[int], tuple[int, ...], tuple[int, ...]] | None:
    """Return where the window of a key begins, its lengths, and the shape of the result; None for other keys."""
    parts = _parts(key)
    missing = len(shape) - sum([part is not None and part is not ... for part in parts])
    if missing < 0:
        return None
    starts: list[int] = []
    sizes: list[int] = []
    kept: list[int] = []
    rest = True
    for part in parts:
        axis = len(starts)
        kind = type(part)
        if part is None:
            kept.append(1)
        elif part is ... and rest:
            rest = False
            starts += [0] * missing
            sizes += shape[axis : axis + missing]
            kept += shape[axis : axis + missing]
        elif kind is int and -shape[axis] <= part < shape[axis]:
            starts.append(part % shape[axis])
            sizes.append(1)
        elif kind is slice:
            start, stop, step = part.indices(shape[axis])
            if step != 1:
                return None
            length = max(0, stop - start)
            starts.append(start if length else 0)
            sizes.append(length)
            kept.append(length)
        else:
            return None
    axis = len(starts)
    starts += [0] * (len(shape) - axis)
    return starts, (*sizes, *shape[axis:]), (*kept, *shape[axis:])


@partial(jax.jit, static_argnums=(2, 3))
def _read_window(x: jax.Array, starts: list[int], sizes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    return jax.lax.dynamic_slice(x, starts, sizes).reshape(shape)


@partial(jax.jit, static_argnums=(3, 4))
def _write_window(
    x: jax.Array, values: jax.Array, starts: list[int], sizes: tuple[int, ...], shape: tuple[int, ...]
) -> Any:
    values = jnp.broadcast_to(_fitting(values, shape), shape).reshape(sizes)
    return jax.lax.dynamic_update_slice(x, values.astype(x.dtype), starts)


def _fitting(values: Any, shape: tuple[int, ...]) -> Any:
    """Return values without axes of length 1 in front that the place, of this shape, does not have."""
    values = jnp.asarray(values)
    extra = values.ndim - len(shape)
    return values.reshape(values.shape[extra:]) if extra > 0 and set(values.shape[:extra]) == {1} else values


# -- reading

_read = Jitted(lambda x, key: x[key])


def getitem(x: jax.Array, key: IndexKey) -> Any:
    if isinstance(x, jax.core.Tracer):
        return x[tuple(map(_index, _parts(key)))]
    window = _window(key, x.shape)
    if window is not None:
        return _read_window(x, *window)
    return _read(x, _without_masks(key))


def gather(params: jax.Array, indices: jax.Array) -> Any:
    return _read(params, _index(indices))


# -- writing


def put(array: jax.Array, key: IndexKey, values: Any) -> Any:
    """Return a copy of an array with other elements at a key; under `jax.jit` XLA writes in place."""
    window = _window(key, array.shape)
    if window is not None:
        return _write_window(array, values, *window)
    parts = _parts(key)
    if len(parts) == 1 and _is_mask(parts[0]) and parts[0].shape != ():
        return _put_masked(array, parts[0], values)
    return _put(array, _without_masks(key), values)


_put = Jitted(lambda array, key, values: array.at[key].set(_fitting(values, array[key].shape).astype(array.dtype)))


def _put_masked(array: jax.Array, mask: jax.Array, values: Any) -> Any:
    rest = array.shape[mask.ndim :]
    values = _fitting(values, (0, *rest))
    if mask.shape != array.shape[: mask.ndim]:
        raise IndexError(f"a mask of shape {mask.shape} does not fit an array of shape {array.shape}")
    if values.ndim > len(rest) and not isinstance(mask, jax.core.Tracer):
        n = int(np.asarray(mask).sum())
        if values.shape[0] not in (1, n):
            raise ValueError(f"{values.shape[0]} values do not fit the {n} elements of the mask")
    return _where_masked(array, mask, values)


@jax.jit
def _where_masked(array: jax.Array, mask: jax.Array, values: Any) -> Any:
    # By numbers of elements, not by their places: how many there are is not known inside `jax.jit`.
    rest = array.shape[mask.ndim :]
    values = jnp.asarray(values, dtype=array.dtype)
    if values.ndim > len(rest) and values.shape[0] == 0:
        return array
    if values.ndim > len(rest):
        values = jnp.broadcast_to(values, (values.shape[0], *rest))
        numbers = jnp.clip(jnp.cumsum(mask.reshape(-1)) - 1, 0, values.shape[0] - 1).reshape(mask.shape)
        values = values[numbers]
    return jnp.where(mask.reshape(mask.shape + (1,) * len(rest)), values, array)


@Jitted
def _put_the_last(array: jax.Array, key: Any, values: Any) -> Any:
    """Put values at integer arrays: of several for one element the last, which JAX's own update leaves open."""
    # What is out of range, inside `jax.jit`, has a number that no element has: it is dropped, and not put elsewhere.
    numbers = jnp.arange(array.size).reshape(array.shape).at[key].get(mode="fill", fill_value=array.size)
    flat = jnp.broadcast_to(_fitting(values, numbers.shape).astype(array.dtype), numbers.shape).reshape(-1)
    if not flat.size:
        return array
    last = jnp.full(array.size, -1).at[numbers.reshape(-1)].max(jnp.arange(flat.size))
    return jnp.where(last >= 0, flat[last], array.reshape(-1)).reshape(array.shape)


def setitem(x: jax.Array, values: Any, key: IndexKey) -> Any:
    return _put_the_last(x, _without_masks(key), values) if _may_repeat(key) else put(x, key, values)


def _updater(how: str, combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @Jitted
    def update(x: jax.Array, key: Any, values: Any) -> Any:
        return getattr(x.at[key], how)(_fitting(values, x[key].shape).astype(x.dtype))

    def kernel(x: jax.Array, values: Any, key: IndexKey) -> Any:
        parts = _parts(key)
        if len(parts) == 1 and _is_mask(parts[0]) and not isinstance(x, jax.core.Tracer):
            return put(x, key, combine(x[key], values))
        return update(x, _without_masks(key), values)

    return kernel


_add = _updater("add", jnp.add)


@Jitted
def _scattered(values: Any, key: Any, shape: tuple[int, ...]) -> Any:
    if values.dtype == np.bool_:
        return jnp.zeros(shape, values.dtype).at[key].max(values)
    return jnp.zeros(shape, values.dtype).at[key].add(values)


def _padded(values: jax.Array, key: IndexKey, shape: tuple[int, ...]) -> Any:
    return jax.linear_transpose(lambda x: x[key], manual.template(shape, values))(values)[0]


_jitted_padded = Jitted(_padded)


def scatter(values: jax.Array, key: IndexKey, shape: tuple[int, ...]) -> Any:
    if _may_repeat(key):
        return _scattered(values, _without_masks(key), tuple(shape))
    if _is_static(key) and jnp.issubdtype(values.dtype, jnp.inexact):
        # The transpose of reading is a padding, which XLA fuses; an update would be of an array of zeros in memory, and
        # with a step that takes four times as long. Without one, no program is compiled anew for another window.
        if isinstance(values, jax.core.Tracer):
            return _padded(values, key, tuple(shape))
        if any([type(part) is slice and part.step not in (None, 1) for part in _parts(key)]):
            return _jitted_padded(values, key, tuple(shape))
    return put(jnp.zeros(shape, values.dtype), key, values)


@jax.jit
def _add_rows(x: jax.Array, indices: jax.Array, rows: jax.Array) -> Any:
    return x.at[indices].add(rows.astype(x.dtype))


def add_rows(x: jax.Array, indices: jax.Array, rows: jax.Array, *, in_place: bool = False) -> Any:
    return _add_rows(x, _index(indices), rows)


def take(x: jax.Array, indices: jax.Array, *, axis: int | None = None) -> Any:
    # Without one JAX would take from all elements in a row.
    return jnp.take(x, _index(indices), axis=line_axis(axis, x.ndim))


def take_along_axis(x: jax.Array, indices: jax.Array, *, axis: int = -1) -> Any:
    return jnp.take_along_axis(x, _index(indices), axis=axis)


KERNELS: dict[str, Callable[..., Any]] = {
    "add_rows": add_rows,
    "gather": gather,
    "getitem": getitem,
    "scatter": scatter,
    "scatter_add": _add,
    "scatter_max": _updater("max", jnp.maximum),
    "scatter_min": _updater("min", jnp.minimum),
    "scatter_multiply": _updater("multiply", jnp.multiply),
    "setitem": setitem,
    "take": take,
    "take_along_axis": take_along_axis,
}
