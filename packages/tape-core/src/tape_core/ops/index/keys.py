"""Keys of NumPy's indexing, in terms of the Array API standard.

The standard reads through integer arrays only if they index every dimension, and assigns through none. So an array is
seen as a matrix here. Its rows lie along the last dimensions, those that a key takes whole (`x[i]` and `x[i, :]` pick
rows of `x.shape[1:]`); the dimensions before them number the rows. `places` computes the numbers of the rows that a key
picks. Then reading is `take` of rows, and `update` writes them. Where a row is picked more than once, `update` combines
its values by sorting and log2(n) passes, without a loop over elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeGuard

from tape_core.engine.cotangents import unequal
from tape_core.typing import Array, IndexKey, Namespace, RawDType, Scalar, Shape

Combine = Callable[[Array, Array], Array]
"""A function that combines the values of an update: the earlier and the later ones."""

WHOLE = slice(None)


def is_array(part: object) -> TypeGuard[Array]:
    """Return True if a part of a key, or an operand, is an array and not a Python scalar."""
    return hasattr(part, "dtype")


def is_mask(part: object) -> TypeGuard[Array]:
    """Return True if a part of a key is a boolean array."""
    return is_array(part) and _is_bool(part.dtype)


def _is_bool(dtype: RawDType) -> bool:
    # NumPy, whose dtypes JAX has, takes microseconds for the text of one, and has a letter.
    kind = getattr(dtype, "kind", None)
    return kind == "b" if type(kind) is str and len(kind) == 1 else "bool" in str(dtype)


def has_integer_arrays(key: IndexKey) -> bool:
    """Return True if a key may name an element more than once."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(is_array(part) and part.shape != () and not is_mask(part) for part in parts)


def is_plain(key: IndexKey) -> bool:
    """Return True if all libraries read and assign through the key directly: it has no arrays, or is a single mask.

    It has no negative steps either, which are in the standard but not in PyTorch.
    """
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    parts = key if isinstance(key, tuple) else (key,)
    return is_mask(key) or not any([is_array(part) or _is_backwards(part) for part in parts])


def _is_backwards(part: object) -> bool:
    return isinstance(part, slice) and part.step is not None and part.step < 0


def full_key(key: IndexKey, ndim: int) -> tuple[Any, ...]:
    """The parts of a key for all `ndim` dimensions: full slices for `...` and for the dimensions that it leaves out.

    Raises:
        IndexError: there are too many parts, or one is not an index.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    for part in parts:
        if not (part is None or part is ... or isinstance(part, slice) or hasattr(part, "__index__") or is_array(part)):
            raise IndexError(
                f"an index is an integer, a slice, ..., None or an array of integers or bool; got {part!r}"
            )
    used = sum([_used_dimensions(part) for part in parts])
    if used > ndim:
        raise IndexError(f"too many indices: the array has {ndim} dimensions, and {used} are indexed")
    at = next((k for k, part in enumerate(parts) if part is ...), len(parts))
    if any(part is ... for part in parts[at + 1 :]):
        raise IndexError("an index has ... more than once")
    # An ellipsis that stands for no dimension stays: it still separates the integer arrays beside it, on which the
    # order of the result's dimensions depends.
    slices: list[Any] = [WHOLE] * (ndim - used) or [...] * (at < len(parts))
    return (*parts[:at], *slices, *parts[at + 1 :])


def _plain_parts(key: IndexKey, shape: Shape) -> tuple[IndexKey, Shape | None]:
    """A plain key without None, which some libraries refuse, and the shape of the result if the key had a None."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if is_mask(key):
        return key, None
    whole = [part for part in full_key(key, len(shape)) if part is not ...]
    parts: list[Any] = []
    lengths: list[int] = []
    axis = 0
    for part in whole:
        if part is None:
            lengths.append(1)
            continue
        if isinstance(part, slice):
            # In the standard a slice must not reach beyond the ends of its axis.
            start, stop, step = part.indices(shape[axis])
            lengths.append(len(range(start, stop, step)))
            part = slice(start, None if stop < 0 else stop, step) if lengths[-1] else slice(0, 0)
        else:
            # Checked here, since there are libraries that take the last element for one that is out of bounds.
            part = _number_from_start(part, axis, shape[axis])
        parts.append(part)
        axis += 1
    return tuple(parts), tuple(lengths) if len(whole) > axis else None


def places(xp: Namespace, like: Array, key: IndexKey, shape: Shape) -> tuple[Array, int]:
    """The numbers of the rows that a key picks, and the number of leading dimensions that number them.

    The array of numbers has the dimensions of `x[key]` without those of the rows, in the order of NumPy's "advanced
    indexing": the dimensions of integer arrays stand where the first array does, or in front if a slice or None
    stands between the arrays. An integer counts as an array if there are arrays.

    Args:
        like: an array on whose backend and device the numbers are made.
        key: the key.
        shape: the shape of the array that is indexed.

    Raises:
        IndexError: an index is out of bounds.
    """
    lead = leading(key, len(shape))
    parts = _replace_masks(xp, _leading_parts(key, len(shape)), shape)
    arrays = any([is_array(part) for part in parts])
    slices: list[Array] = []  # for each dimension that a slice or None leaves: its contributions to the row number
    first, between, last = None, False, -1
    picked: Array = 0  # the contributions of integers and arrays
    axis = 0
    for k, part in enumerate(parts):
        if part is None:
            slices.append(xp.arange_beside(like, 1))
        if part is None or part is ...:
            continue
        length, stride = shape[axis], math.prod(shape[axis + 1 : lead])
        axis += 1
        if isinstance(part, slice):
            start, stop, step = part.indices(length)
            slices.append((xp.arange_beside(like, len(range(start, stop, step))) * step + start) * stride)
            continue
        picked = picked + _from_start(xp, part, axis - 1, length) * stride
        if arrays:
            between = between or (first is not None and last != k - 1)
            first = len(slices) if first is None else first
            last = k
    # Reshape the contributions so that they broadcast against each other; `front` dimensions stand before the arrays'.
    front = 0 if between else first or 0
    width = len(picked.shape) if is_array(picked) else 0
    n = len(slices) + width
    numbers = xp.arange_beside(like, 1)[0]
    for k, steps in enumerate(slices):
        at = k if k < front else k + width
        numbers = numbers + xp.reshape(steps, (1,) * at + (-1,) + (1,) * (n - at - 1))
    if width:
        picked = xp.reshape(picked, (1,) * front + tuple(picked.shape) + (1,) * (n - front - width))
    return numbers + picked, lead


def _leading_parts(key: IndexKey, ndim: int) -> list[Any]:
    """The parts of a key, without full slices at the end."""
    parts = [*full_key(key, ndim)]
    while parts and (parts[-1] is ... or (isinstance(parts[-1], slice) and parts[-1] == WHOLE)):
        parts.pop()
    return parts


def leading(key: IndexKey, ndim: int) -> int:
    """The number of dimensions before the last ones that a key takes whole."""
    return sum([_used_dimensions(part) for part in _leading_parts(key, ndim)])


def _used_dimensions(part: object) -> int:
    return len(part.shape) if is_mask(part) else int(part is not None and part is not ...)


def _replace_masks(xp: Namespace, whole: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """The parts of a key, with the integer arrays of `nonzero` in place of each mask."""
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
        axis += _used_dimensions(part)
    return parts


def _number_from_start(part: SupportsIndex, axis: int, length: int) -> int:
    """Return an index counted from the start; raise IndexError for one that is out of bounds."""
    index = part.__index__()
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for axis {axis} of length {length}")
    return index % length


def _from_start(xp: Namespace, part: SupportsIndex | Array, axis: int, length: int) -> Array:
    """Replace negative indices, which count from the end, and raise IndexError for those out of bounds."""
    if not is_array(part):
        return _number_from_start(part, axis, length)
    if not xp.isdtype(part.dtype, "integral"):
        raise IndexError(f"an array that indexes holds integers or bool, not {part.dtype}")
    # In narrow or unsigned dtypes, products with strides, and comparisons with -length, would wrap around.
    part = xp.astype(part, xp.int64)
    if 0 not in part.shape and xp.is_known(part) and bool(xp.any(xp.logical_or(part < -length, part >= length))):
        raise IndexError(_out_of_bounds(int(xp.min(part)), int(xp.max(part)), axis, length))
    return xp.where(part < 0, part + length, part)


def _out_of_bounds(least: int, most: int, axis: int, length: int) -> str:
    which = f"index {least} is" if least == most else f"indices {least} to {most} are"
    return f"{which} out of bounds for axis {axis} of length {length}"


def check_indices(xp: Namespace, indices: Array, axis: int, length: int) -> None:
    """Raise IndexError for indices out of bounds, as far as their values are known."""
    if 0 in indices.shape or not xp.is_known(indices):
        return
    least, most = xp.extremes(indices)
    if least < -length or most >= length:
        raise IndexError(_out_of_bounds(least, most, axis, length))


def check_key(xp: Namespace, key: IndexKey, shape: Shape) -> None:
    """Raise IndexError for a key that an array of this shape does not have, as far as its values are known."""
    axis = 0
    for part in full_key(key, len(shape)):
        if is_mask(part):
            if tuple(part.shape) != tuple(shape[axis : axis + len(part.shape)]):
                raise IndexError(f"a mask of shape {tuple(part.shape)} does not fit dimensions of an array of {shape}")
        elif is_array(part):
            check_indices(xp, part, axis, shape[axis])
        elif hasattr(part, "__index__"):
            _number_from_start(part, axis, shape[axis])
        axis += _used_dimensions(part)


def check_key_of(xp: Namespace, x: Array, *others: Any, key: IndexKey) -> None:
    """The bounds of ops of an array and a key; see `check_key`."""
    check_key(xp, key, tuple(x.shape))


def as_rows(xp: Namespace, x: Array, lead: int) -> Array:
    """`x` as a matrix: its first `lead` dimensions become the rows, the others the columns."""
    shape = tuple(x.shape)
    return xp.reshape(x, (math.prod(shape[:lead]), math.prod(shape[lead:])))


def segmented_scan(xp: Namespace, combine: Combine, neutral: Scalar | None, rows: Array, numbers: Array) -> Array:
    """Combine each row with those before it that have the same number. The numbers must be in order.

    This is the data-parallel inclusive scan of Hillis and Steele ("Data parallel algorithms", 1986), on segments of
    equal numbers: in log2(n) passes each row takes in the row at distance 1, 2, 4, ..., which has taken in as many.

    Args:
        combine: an associative function of the earlier and the later rows.
        neutral: a number that changes nothing when it is combined with; None where `combine(v, v)` is v.
    """
    distance = 1
    while distance < numbers.shape[0]:
        same = numbers[distance:] == numbers[:-distance]
        if _is_false_everywhere(xp, same):
            break
        later = rows[distance:, :]
        earlier = xp.where(xp.expand_dims(same, axis=1), rows[:-distance, :], later if neutral is None else neutral)
        rows = xp.concat([rows[:distance, :], combine(earlier, later)], axis=0)
        distance *= 2
    return rows


def _is_false_everywhere(xp: Namespace, mask: Array) -> bool:
    """Return True if a mask is known to be False everywhere; False also where its values are not known."""
    if not xp.is_known(mask):
        return False
    try:
        return not bool(xp.any(mask))
    except Exception:
        if hasattr(mask, "_slots"):  # a Tensor whose value is not known: it is batched or traced
            return False
        raise  # a raw traced array: the tracer catches this, and makes the whole rule one instruction


def products_of_others(xp: Namespace, values: Array, numbers: Array) -> Array:
    """Return for each row of a matrix the product of all others with the same number, without a division."""
    if values.shape[0] == 0:
        return values
    order = xp.argsort(numbers, stable=True)
    numbers, rows = xp.take(numbers, order), xp.take(values, order, axis=0)
    before = _products_before(xp, rows, numbers)
    # A scan wants ascending numbers; reversed, the negative numbers ascend.
    after = xp.flip(_products_before(xp, xp.flip(rows, axis=0), -xp.flip(numbers, axis=0)), axis=0)
    return xp.take(before * after, xp.argsort(order), axis=0)


def _products_before(xp: Namespace, rows: Array, numbers: Array) -> Array:
    """Return for each row the product of those before it that have the same number; an exclusive scan."""
    one = xp.ones_like(rows[:1, :])
    until = xp.concat([one, segmented_scan(xp, xp.multiply, 1, rows, numbers)[:-1, :]], axis=0)
    same = xp.concat([numbers[:1] != numbers[:1], numbers[1:] == numbers[:-1]], axis=0)
    return xp.where(xp.expand_dims(same, axis=1), until, 1)


def read(xp: Namespace, x: Array, key: IndexKey) -> Array:
    """`x[key]`, the default kernel of `getitem`."""
    if is_plain(key):
        parts, shape = _plain_parts(key, tuple(x.shape))
        return x[parts] if shape is None else xp.reshape(x[parts], shape)
    numbers, lead = places(xp, x, key, tuple(x.shape))
    rows = xp.take(as_rows(xp, x, lead), xp.reshape(numbers, (-1,)), axis=0)
    return xp.reshape(rows, (*numbers.shape, *x.shape[lead:]))


def update(xp: Namespace, combine: Combine, neutral: Scalar | None, x: Array, values: Array, key: IndexKey) -> Array:
    """A copy of `x` in which the elements at a key are `combine(x[key], values)`.

    Several values for one element are combined with each other first, in their order. `combine` and `neutral` are as
    in `segmented_scan`.
    """
    shape = tuple(x.shape)
    if is_plain(key):
        out = xp.asarray(x, copy=True)
        parts, longer = _plain_parts(key, shape)
        there = out[parts]
        if longer is not None and is_array(values):
            values = xp.reshape(_broadcast(xp, values, longer, x), tuple(there.shape))
        if (
            is_array(values)
            and values.shape != there.shape
            and (wrong := unequal([tuple(values.shape), tuple(there.shape)]))
        ):
            raise ValueError(wrong)  # some libraries have another error for it
        return xp.put(out, parts, combine(there, values))
    numbers, lead = places(xp, x, key, shape)
    values = _broadcast(xp, values, (*numbers.shape, *shape[lead:]), x)
    if 0 in values.shape:
        return x
    rows, new = as_rows(xp, x, lead), as_rows(xp, values, len(numbers.shape))
    numbers = xp.reshape(numbers, (-1,))
    order = xp.argsort(numbers, stable=True)
    numbers = xp.take(numbers, order)
    new = segmented_scan(xp, combine, neutral, xp.take(new, order, axis=0), numbers)
    # The last row of each number has all values for it. Look it up for each row of x, where there is one.
    wanted = xp.arange_beside(x, rows.shape[0])
    until = xp.searchsorted(numbers, wanted, side="right")
    there = until > xp.searchsorted(numbers, wanted, side="left")
    new = xp.take(new, xp.where(there, until - 1, 0), axis=0)
    return xp.reshape(xp.where(xp.expand_dims(there, axis=1), combine(rows, new), rows), shape)


def _broadcast(xp: Namespace, values: Array, shape: Shape, like: Array) -> Array:
    """Broadcast an array or a number to a shape; a number takes the dtype of `like`."""
    if not is_array(values):
        return xp.zeros_beside(like, shape, dtype=like.dtype) + values
    return values if tuple(values.shape) == shape else xp.broadcast_to(values, shape)
