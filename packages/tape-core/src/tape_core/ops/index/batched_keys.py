"""Indexing inside vmap: the key for one example becomes a key for all examples, with the hidden axis first."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tape_core.backends.errors import BatchError
from tape_core.base.lookup import ops
from tape_core.engine.levels import BatchedArray
from tape_core.engine.tensor import Tensor
from tape_core.modes.batching import Call, front, is_batched, size_of, spread
from tape_core.ops.index import keys
from tape_core.typing import Array, BatchInput, IndexKey


class StackedKey(NamedTuple):
    """A key for all examples together.

    Attributes:
        key: a key for an array whose dimension 0 is the hidden axis.
        ndim: the number of dimensions of `x[key]` for one example.
        order: the permutation that brings the dimensions of the result into the order that one example has, with the
            hidden axis first; None where they are in that order.
    """

    key: tuple[Any, ...]
    ndim: int
    order: tuple[int, ...] | None


def stacked_key(key: IndexKey, ndim: int, size: int) -> StackedKey:
    """The key for all examples that does what `key` does for one, on arrays of `ndim` dimensions."""
    parts = list(keys.full_key(key, ndim))
    arrays = [part for part in parts if keys.is_array(part)]
    kept = sum([_is_basic(part) for part in parts])
    if not arrays:
        return StackedKey((slice(None), *parts), kept, None)
    m, before, together = _analyse_arrays(parts, arrays)
    ndim = m + kept
    if not any([is_batched(part) for part in arrays]):
        # The slice for the hidden axis makes no difference, unless the arrays are separated: their dimensions then go
        # in front of it.
        order = None if together else (m, *range(m), *range(m + 1, ndim + 1))
        return StackedKey((slice(None), *map(_unwrap, parts)), ndim, order)
    example = next(part for part in arrays if is_batched(part))
    # Index the hidden axis by the number of the example, which broadcasts against the index arrays.
    number = ops.reshape(ops.arange_beside(example.value, size), (size, *[1] * m))
    order = None
    if together and before:
        # The hidden axis, the dimensions of the index arrays, then those that one example has in front of them.
        order = (0, *range(1 + m, 1 + m + before), *range(1, 1 + m), *range(1 + m + before, ndim + 1))
    return StackedKey((number, *[front(part, m) for part in parts]), ndim, order)


def _is_basic(part: object) -> bool:
    """Return True if a part of a key gives a dimension of the result by itself."""
    return part is None or isinstance(part, slice)


def _analyse_arrays(parts: list[Any], arrays: list[Any]) -> tuple[int, int, bool]:
    """Describe the index arrays of a key.

    Returns:
        The number of dimensions that they broadcast to, the number of dimensions in front of them in the result, and
        whether they stand side by side.
    """
    if any([is_batched(part) and keys.is_mask(part) for part in arrays]):
        raise BatchError(
            "indexing with a mask inside vmap: the shape of the result depends on values, and examples differ; use "
            "tape_core.where"
        )
    advanced = [k for k, part in enumerate(parts) if keys.is_array(part) or hasattr(part, "__index__")]
    together = advanced[-1] - advanced[0] + 1 == len(advanced)
    m = max([1 if keys.is_mask(part) else part.ndim for part in arrays])
    return m, sum([_is_basic(part) for part in parts[: advanced[0]]]), together


def _unwrap(part: IndexKey) -> IndexKey:
    return part.value if type(part) is BatchedArray else part


def _inverse_permutation(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([order.index(k) for k in range(len(order))])


def batch_getitem(call: Call, x: BatchedArray) -> Any:
    """`x[key]` for all examples."""
    key = call.params["key"]
    if is_batched(x):
        stacked = stacked_key(key, x.ndim, size_of([x]))
        out = call(x.value, key=stacked.key)
        return out if stacked.order is None else ops.permute_dims(out, stacked.order)
    # Only the key is batched: all examples read from one array, each by indices of its own.
    parts = list(keys.full_key(key, x.ndim))
    m, before, together = _analyse_arrays(parts, [part for part in parts if keys.is_array(part)])
    out = call(x.value, key=tuple([front(part, m) for part in parts]))
    return ops.moveaxis(out, before, 0) if together and before else out


def _size_of_key(key: IndexKey) -> int:
    return size_of(key if isinstance(key, tuple) else (key,))


def batch_scatter(call: Call, values: BatchedArray) -> Any:
    """`scatter(values, key, shape)` for all examples."""
    key, shape = call.params["key"], tuple(call.params["shape"])
    size = values.axis.size if values.axis is not None else _size_of_key(key)
    stacked = stacked_key(key, len(shape), size)
    return call(_arrange_values(spread(values, size), stacked), key=stacked.key, shape=(size, *shape))


def batch_update(call: Call, x: BatchInput, values: BatchInput) -> Any:
    """An update of the elements at a key, for all examples."""
    key = call.params["key"]
    parts = key if isinstance(key, tuple) else (key,)
    size = size_of((x, values, *parts))
    only = parts[0] if len(parts) == 1 else None
    if type(only) is BatchedArray and is_batched(only) and keys.is_mask(only) and not _has_elements(values):
        # A number assigned through a batched mask: it needs no key of one shape, as the values broadcast.
        return call(spread(x, size), _unwrap(values), key=only.value)
    stacked = stacked_key(key, x.ndim, size)
    if type(values) is BatchedArray:
        extra = values.ndim - stacked.ndim
        if any(n != 1 for n in values.shape[: max(extra, 0)]):
            raise ValueError(f"values of shape {values.shape} do not fit what the key picks")
        fitted = front(values, stacked.ndim)
        if extra > 0:  # an assignment drops leading axes of length 1
            fitted = ops.reshape(fitted, (*fitted.shape[: is_batched(values)], *values.shape[extra:]))
        values = _arrange_values(fitted, stacked, batched=is_batched(values))
    return call(spread(x, size), values, key=stacked.key)


def batch_places(call: Call, x: BatchedArray) -> Any:
    """`places(x, key)` for all examples; a result that they share unless the key is batched."""
    key = call.params["key"]
    parts = key if isinstance(key, tuple) else (key,)
    if not any([is_batched(part) for part in parts]):
        example = x.value[0] if is_batched(x) else x.value
        return BatchedArray(call(example, key=tuple(map(_unwrap, parts))), x.backend, None)
    # The numbers for the whole batch count through the examples; the remainder is the number in an example.
    stacked = stacked_key(key, x.ndim, size_of((x, *parts)))
    numbers = call(spread(x, size_of((x, *parts))), key=stacked.key)
    return numbers % math.prod(x.shape[: keys.leading(key, x.ndim)])


def _has_elements(values: Array) -> bool:
    """Return True if the values of an update are more than one number: they are batched, or have dimensions."""
    return type(values) is BatchedArray and (is_batched(values) or values.ndim > 0)


def _arrange_values(values: Tensor, stacked: StackedKey, *, batched: bool = True) -> Tensor:
    """Permute the dimensions of values to the order in which the stacked key picks them."""
    if not batched:
        if stacked.order is None:
            return values  # they broadcast
        values = ops.reshape(values, (*[1] * (stacked.ndim + 1 - len(values.shape)), *values.shape))
    return values if stacked.order is None else ops.permute_dims(values, _inverse_permutation(stacked.order))
