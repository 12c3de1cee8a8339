"""Keys of indexing in terms of the standard, which reads through integer arrays alone and assigns through none.

A key picks rows: what lies along the last dimensions, those that it takes whole. `places` numbers them. Where rows are
picked more than once, `update` combines their values by sorting and log2(n) passes, without a loop over elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tape_core.typing import Array, IndexKey, Namespace

WHOLE = slice(None)


def is_array(part: Any) -> bool:
    """Whether a part of a key is an array."""
    return hasattr(part, "dtype")


def is_mask(part: Any) -> bool:
    """Whether a part of a key is a boolean array."""
    return is_array(part) and "bool" in str(part.dtype)


def has_integer_arrays(key: IndexKey) -> bool:
    """Whether a key may name an element more than once."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(is_array(part) and part.shape != () and not is_mask(part) for part in parts)


def is_plain(key: IndexKey) -> bool:
    """Whether every library reads and assigns through the key as it is: no arrays, or a mask alone.

    Nor steps backwards: these are in the standard, but not in PyTorch.
    """
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    parts = key if isinstance(key, tuple) else (key,)
    return is_mask(key) or not any([is_array(part) or _is_backwards(part) for part in parts])


def _is_backwards(part: Any) -> bool:
    return isinstance(part, slice) and part.step is not None and part.step < 0


def whole_key(key: IndexKey, ndim: int) -> tuple[Any, ...]:
    """The parts of a key for all `ndim` dimensions: slices in place of what `...` stands for and of what is missing.

    Raises:
        IndexError: there are too many of them, or one is no index.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    for part in parts:
        if not (part is None or part is ... or isinstance(part, slice) or hasattr(part, "__index__") or is_array(part)):
            raise IndexError(
                f"an index is an integer, a slice, ..., None or an array of integers or bool; got {part!r}"
            )
    used = sum([_dimensions(part) for part in parts])
    if used > ndim:
        raise IndexError(f"too many indices: the array has {ndim} dimensions, and {used} are indexed")
    at = next((k for k, part in enumerate(parts) if part is ...), len(parts))
    if any(part is ... for part in parts[at + 1 :]):
        raise IndexError("an index has ... more than once")
    # One that stands for nothing still parts the integer arrays beside it.
    filled: list[Any] = [WHOLE] * (ndim - used) or [...] * (at < len(parts))
    return (*parts[:at], *filled, *parts[at + 1 :])


def _plain_parts(key: IndexKey, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...] | None]:
    """A plain key without None, which not every library takes, and the shape of the result if it had any."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if is_mask(key):
        return key, None
    whole = [part for part in whole_key(key, len(shape)) if part is not ...]
    parts: list[Any] = []
    lengths: list[int] = []
    axis = 0
    for part in whole:
        if part is None:
            lengths.append(1)
            continue
        if isinstance(part, slice):
            # The standard has no slices that reach beyond the ends.
            start, stop, step = part.indices(shape[axis])
            lengths.append(len(range(start, stop, step)))
            part = slice(start, None if stop < 0 else stop, step) if lengths[-1] else slice(0, 0)
        parts.append(part)
        axis += 1
    return tuple(parts), tuple(lengths) if len(whole) > axis else None


def places(xp: Namespace, beside: Any, key: IndexKey, shape: tuple[int, ...]) -> tuple[Any, int]:
    """The numbers of the rows that a key picks of an array of `shape`, and how many leading dimensions they number.

    What the dimensions of the result are is NumPy's rule: those of integer arrays stand where the first array is, or
    in front if something stands between the arrays. An integer beside arrays is an array.

    Raises:
        IndexError: an index is out of bounds.
    """
    lead = leading(key, len(shape))
    parts = _without_masks(xp, _touching(key, len(shape)), shape)
    arrays = any([is_array(part) for part in parts])
    slices: list[Any] = []  # for each dimension of the result but those of arrays, what it adds to the number
    first, between, last = None, False, -1
    picked: Any = 0
    axis = 0
    for k, part in enumerate(parts):
        if part is None:
            slices.append(xp.arange_beside(beside, 1))
        if part is None or part is ...:
            continue
        length, stride = shape[axis], math.prod(shape[axis + 1 : lead])
        axis += 1
        if isinstance(part, slice):
            start, stop, step = part.indices(length)
            slices.append((xp.arange_beside(beside, len(range(start, stop, step))) * step + start) * stride)
            continue
        picked = picked + _in_bounds(xp, part, axis - 1, length) * stride
        if arrays:
            between = between or (first is not None and last != k - 1)
            first = len(slices) if first is None else first
            last = k
    front = 0 if between else first or 0
    width = len(picked.shape) if is_array(picked) else 0
    n = len(slices) + width
    numbers = xp.arange_beside(beside, 1)[0]
    for k, steps in enumerate(slices):
        at = k if k < front else k + width
        numbers = numbers + xp.reshape(steps, (1,) * at + (-1,) + (1,) * (n - at - 1))
    if width:
        picked = xp.reshape(picked, (1,) * front + tuple(picked.shape) + (1,) * (n - front - width))
    return numbers + picked, lead


def _touching(key: IndexKey, ndim: int) -> list[Any]:
    """The parts of a key, without the last dimensions that it takes whole."""
    parts = [*whole_key(key, ndim)]
    while parts and (parts[-1] is ... or (isinstance(parts[-1], slice) and parts[-1] == WHOLE)):
        parts.pop()
    return parts


def leading(key: IndexKey, ndim: int) -> int:
    """How many dimensions there are before the last ones that a key takes whole."""
    return sum([_dimensions(part) for part in _touching(key, ndim)])


def _dimensions(part: Any) -> int:
    return len(part.shape) if is_mask(part) else int(part is not None and part is not ...)


def _without_masks(xp: Namespace, whole: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """The parts of a key, with the places of what is true for each mask."""
    parts: list[Any] = []
    axis = 0
    for part in whole:
        if is_mask(part):
            masked = shape[axis : axis + len(part.shape)]
            if tuple(part.shape) != masked or not masked:
                raise IndexError(f"a mask of shape {tuple(part.shape)} does not fit dimensions of shape {masked}")
            parts += xp.nonzero(part)
        else:
            parts.append(part)
        axis += _dimensions(part)
    return parts


def _in_bounds(xp: Namespace, part: Any, axis: int, length: int) -> Array:
    """An index, or an array of them, that counts from the start."""
    if not is_array(part):
        index = part.__index__()
        if not -length <= index < length:
            raise IndexError(f"index {index} is out of bounds for axis {axis} of length {length}")
        return index % length
    if not xp.isdtype(part.dtype, "integral"):
        raise IndexError(f"an array that indexes holds integers or bool, not {part.dtype}")
    part = xp.astype(part, xp.int64)
    if 0 not in part.shape and bool(xp.any(xp.logical_or(part < -length, part >= length))):
        raise IndexError(
            f"indices {int(xp.min(part))} to {int(xp.max(part))} are out of bounds for axis {axis} of length {length}"
        )
    return xp.where(part < 0, part + length, part)


def as_rows(xp: Namespace, x: Array, lead: int) -> Array:
    """`x` as a matrix: its first `lead` dimensions along the one side, the others along the other."""
    shape = tuple(x.shape)
    return xp.reshape(x, (math.prod(shape[:lead]), math.prod(shape[lead:])))


def running(xp: Namespace, combine: Callable[[Any, Any], Any], neutral: Any, rows: Array, numbers: Any) -> Array:
    """Each row combined with those before it that have the same number. The numbers must be in order."""
    distance = 1
    while distance < numbers.shape[0]:
        same = numbers[distance:] == numbers[:-distance]
        if _is_nowhere(xp, same):
            break
        later = rows[distance:, :]
        earlier = xp.where(xp.expand_dims(same, axis=1), rows[:-distance, :], later if neutral is None else neutral)
        rows = xp.concat([rows[:distance, :], combine(earlier, later)], axis=0)
        distance *= 2
    return rows


def _is_nowhere(xp: Namespace, mask: Array) -> bool:
    """Whether a mask is False everywhere, as far as it is known: inside vmap each example may have its own."""
    try:
        return not bool(xp.any(mask))
    except Exception:
        if hasattr(mask, "_slots"):  # a Tensor, of many examples or of a trace: the value is not needed
            return False
        raise  # what is traced of the rule is taken back


def others(xp: Namespace, values: Array, numbers: Any) -> Array:
    """For each row of a matrix the product of the others that have the same number: exact where some are 0."""
    if values.shape[0] == 0:
        return values
    order = xp.argsort(numbers, stable=True)
    numbers, rows = xp.take(numbers, order), xp.take(values, order, axis=0)
    before = _product_before(xp, rows, numbers)
    # Their opposites are in order backwards.
    after = xp.flip(_product_before(xp, xp.flip(rows, axis=0), -xp.flip(numbers, axis=0)), axis=0)
    return xp.take(before * after, xp.argsort(order), axis=0)


def _product_before(xp: Namespace, rows: Array, numbers: Any) -> Array:
    one = xp.ones_like(rows[:1, :])
    until = xp.concat([one, running(xp, xp.multiply, 1, rows, numbers)[:-1, :]], axis=0)
    same = xp.concat([numbers[:1] != numbers[:1], numbers[1:] == numbers[:-1]], axis=0)
    return xp.where(xp.expand_dims(same, axis=1), until, 1)


def read(xp: Namespace, x: Array, key: IndexKey) -> Array:
    """`x[key]`."""
    if is_plain(key):
        parts, shape = _plain_parts(key, tuple(x.shape))
        return x[parts] if shape is None else xp.reshape(x[parts], shape)
    numbers, lead = places(xp, x, key, tuple(x.shape))
    rows = xp.take(as_rows(xp, x, lead), xp.reshape(numbers, (-1,)), axis=0)
    return xp.reshape(rows, (*numbers.shape, *x.shape[lead:]))


def update(
    xp: Namespace, combine: Callable[[Any, Any], Any], neutral: Any, x: Array, values: Array, key: IndexKey
) -> Array:
    """A copy of `x` with `values` combined into it at a key: `combine(there, values)`.

    Values of one place are combined first, in their order. `neutral` is what changes nothing, or None where
    `combine(v, v)` is v.
    """
    shape = tuple(x.shape)
    if is_plain(key):
        out = xp.asarray(x, copy=True)
        parts, longer = _plain_parts(key, shape)
        there = out[parts]
        if longer is not None and is_array(values):
            values = xp.reshape(_broadcast(xp, values, longer, x), tuple(there.shape))
        out[parts] = combine(there, values)
        return out
    numbers, lead = places(xp, x, key, shape)
    values = _broadcast(xp, values, (*numbers.shape, *shape[lead:]), x)
    if 0 in values.shape:
        return x
    rows, new = as_rows(xp, x, lead), as_rows(xp, values, len(numbers.shape))
    numbers = xp.reshape(numbers, (-1,))
    order = xp.argsort(numbers, stable=True)
    numbers = xp.take(numbers, order)
    new = running(xp, combine, neutral, xp.take(new, order, axis=0), numbers)
    # The last row of each number has them all.
    wanted = xp.arange_beside(x, rows.shape[0])
    until = xp.searchsorted(numbers, wanted, side="right")
    there = until > xp.searchsorted(numbers, wanted, side="left")
    new = xp.take(new, xp.where(there, until - 1, 0), axis=0)
    return xp.reshape(xp.where(xp.expand_dims(there, axis=1), combine(rows, new), rows), shape)


def _broadcast(xp: Namespace, values: Array, shape: tuple[int, ...], beside: Any) -> Array:
    """An array or number in a shape, a number in the dtype of `beside`."""
    if not is_array(values):
        return xp.zeros_beside(beside, shape, dtype=beside.dtype) + values
    return values if tuple(values.shape) == shape else xp.broadcast_to(values, shape)
