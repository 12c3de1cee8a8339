"""Indexing: `getitem` and its transpose `scatter`, `setitem`, `take` and `gather`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tape_core.backends.axes import line_axis, normal_axis
from tape_core.backends.discovery import is_host_data
from tape_core.base import dtypes
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.levels import lift, move_to_level
from tape_core.engine.op import NONDIFF, linear, refuses, registry, transpose, with_numbers_as_tensors
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, with_complex
from tape_core.engine.tensor import SCALARS, Tensor, read, read_all, read_array
from tape_core.modes import batching
from tape_core.modes.batching import Call
from tape_core.ops.index import keys
from tape_core.ops.index.batched_keys import batch_getitem, batch_scatter, batch_update
from tape_core.ops.index.keys import has_integer_arrays, is_array
from tape_core.ops.manipulation import sum_to
from tape_core.typing import Array, ArrayLike, BatchInput, Cotangent, IndexKey, Namespace


def key_samples(draw: Draw) -> Iterator[tuple[tuple[int, ...], IndexKey]]:
    """Shapes and keys for each kind of indexing."""
    yield (2, 3), 1
    yield (2, 3), (slice(None, None, 2), -1)
    yield (2, 3), (..., None, slice(1, None))
    yield (4,), slice(None, None, -1)
    yield (2, 3), draw(2, 3)._array > 0
    yield (3, 2), draw.rng.integers(0, 3, (2, 2))._array
    yield (3, 4), (draw.rng.integers(0, 3, (5,))._array, slice(1, 3))
    yield (3, 4), (draw.rng.integers(0, 3, (5,))._array, draw.rng.integers(0, 4, (5,))._array)


def _get_samples(draw: Draw) -> Iterator[Sample]:
    for shape, key in key_samples(draw):
        yield Sample(draw(*shape), key)
    yield Refused(IndexError, "getitem", draw(2, 3), 2)


def _scatter_samples(draw: Draw) -> Iterator[Sample]:
    for shape, key in key_samples(draw):
        yield Sample(draw(*shape)[key], key, shape)


def _scatter_kernel(xp: Namespace, values: Array, key: IndexKey, shape: tuple[int, ...]) -> Array:
    # Through a plain key no two values meet, so that nothing has to be added, which booleans would refuse.
    combine = _take_later if keys.is_plain(key) else xp.add
    return keys.update(xp, combine, 0, xp.zeros_beside(values, shape, dtype=values.dtype), values, key)


def _take_later(earlier: Array, later: Array) -> Array:
    return later


@refuses("key")
@linear(
    x=transpose(lambda xp, g, x_spec, key: xp.scatter(g, key, x_spec.shape)),
    kernel=keys.read,
    samples=with_complex(_get_samples),
    batch=batch_getitem,
    keeps_integers=True,
    bounds=keys.check_key_of,
)
def getitem(x: ArrayLike, /, key: IndexKey) -> Tensor:
    """`x[key]`, for integers, slices, `...`, None, boolean masks and integer arrays, as in NumPy."""


@refuses("key")
@linear(
    values=transpose(lambda xp, g, key: xp.getitem(g, key)),
    kernel=_scatter_kernel,
    samples=with_complex(_scatter_samples),
    batch=batch_scatter,
    keeps_integers=True,
    bounds=lambda xp, values, key, shape: keys.check_key(xp, key, tuple(shape)),
)
def scatter(values: ArrayLike, /, key: IndexKey, shape: tuple[int, ...]) -> Tensor:
    """Zeros of `shape` with `values` added at `key`; values for one element add up. The transpose of `getitem`."""


def with_raw_key(x: Tensor, key: IndexKey) -> tuple[Tensor, Any]:
    """An array and its key with raw index arrays in place of Tensors.

    Inside vmap, an array that is not batched is lifted to the batch of an index that is, and the other way round.
    """
    if type(key) in _BASIC_TYPES or (type(key) is tuple and _BASIC_TYPES.issuperset(map(type, key))):
        return x, key
    tensors = map(move_to_level, [x, *_tensors_in(key)])
    deepest = max(tensors, key=lambda tensor: tensor.backend.height).backend
    if deepest.height and deepest.library is x.backend.library:
        x = lift(x, deepest)
    return x, raw_key(key, x)


_BASIC_TYPES = frozenset({int, slice, type(None), type(...)})  # the types of parts of keys without arrays


def _tensors_in(key: IndexKey) -> list[Tensor]:
    return [part for part in (key if isinstance(key, tuple) else (key,)) if isinstance(part, Tensor)]


def raw_key(key: IndexKey, tensor: Tensor) -> IndexKey:
    """A key with raw arrays of the backend of `tensor` in place of Tensors and lists."""
    if isinstance(key, tuple):
        # A tuple inside the key is an array of indices, as a list is.
        return tuple([raw_key(list(part) if isinstance(part, tuple) else part, tensor) for part in key])
    if isinstance(key, Tensor):
        if key.backend is not tensor.backend:
            if key.backend.library is tensor.backend.library and key.backend.height < tensor.backend.height:
                return lift(key, tensor.backend)._array
            raise TypeError(
                f"getitem: the index is on backend {key.backend.name!r}, the array on {tensor.backend.name!r}; "
                f"convert one with tape_core.asarray"
            )
        return key._array
    if isinstance(key, list):
        # NumPy's indexing takes lists for arrays; the standard has none.
        found = tensor.backend.asarray(key)
        xp = tensor.backend.xp
        return xp.astype(found, xp.int64) if 0 in found.shape else found  # an empty list becomes an array of floats
    if type(key) not in _BASIC_TYPES and is_host_data(key) and not tensor.backend.library.host_data:
        # An integer of NumPy is one of Python's: the position is known without asking the device.
        if key.shape == () and tensor.backend.library.dtype(str(key.dtype)).kind.endswith("integer"):
            return int(key)
        return read(key, "getitem: the index", tensor)._array
    return key


def _set_samples(draw: Draw) -> Iterator[Sample]:
    for shape, key in key_samples(draw):
        yield Sample(draw(*shape), draw(*draw(*shape)[key].shape), key)
    yield Sample(draw(2, 3), draw(3), slice(None))
    yield Sample(draw(2, 3), draw(), (0, 1))
    yield Sample(draw(3), 2.0, 1)
    yield Sample(draw(3), draw(4), draw.rng.integers(0, 2, (4,))._array)  # twice the same: the last one stays
    yield Refused(IndexError, "setitem", draw(2, 3), draw(), 2)
    yield Refused(ValueError, "setitem", draw(2, 3), draw(2), 1)


def _set_kernel(xp: Namespace, x: Array, values: Array, key: IndexKey) -> Array:
    if is_array(values) and values.dtype != x.dtype:
        values = xp.astype(values, x.dtype)
    return keys.update(xp, _take_later, None, x, values, key)


def _set_values_transpose(xp: Namespace, g: Cotangent, values_spec: Spec, key: IndexKey) -> Cotangent:
    d = xp.getitem(g, key)
    if has_integer_arrays(key):
        # Of several values for one element only the last one is in the result, and gets the cotangent. To find it,
        # assign to each element the number of the value: a value is the last one where its own number is left.
        n = math.prod(d.shape)
        numbers = xp.reshape(xp.arange_beside(d, n), tuple(d.shape))
        left = xp.setitem(xp.zeros_beside(d, tuple(g.shape), dtype=numbers.dtype), numbers, key)
        d = xp.where(xp.getitem(left, key) == numbers, d, 0)
    return sum_to(xp, d, values_spec.shape)


@refuses("key")
@linear(
    x=transpose(lambda xp, g, key: xp.setitem(g, 0, key)),
    values=transpose(_set_values_transpose),
    kernel=_set_kernel,
    masks=True,
    samples=with_complex(_set_samples),
    batch=batch_update,
    keeps_integers=True,
    writes_into_first=True,
    bounds=keys.check_key_of,
)
def setitem(x: ArrayLike, values: ArrayLike, /, key: IndexKey) -> Tensor:
    """A copy of `x` with `values` at `key`, as after `x[key] = values`.

    No gradient flows to the elements that are overwritten, not even NaN; as with the branch that `where` does not take.
    """


# What users call, and rules whose sweep is recorded, must also accept keys with Tensors in them. The functions below
# unwrap such keys, call the op, and take its place in the registry.
_getitem, _scatter, _setitem = getitem, scatter, setitem


def getitem_with_key(x: Tensor, key: IndexKey) -> Tensor:
    """`x[key]` for a key that may hold Tensors."""
    return _getitem(*with_raw_key(read_array(x, "getitem: x", next(iter(_tensors_in(key)), None)), key))


def scatter_with_key(values: Tensor, key: IndexKey, shape: tuple[int, ...]) -> Tensor:
    """`scatter` for a key that may hold Tensors."""
    values, key = with_raw_key(read(values, "scatter: values", next(iter(_tensors_in(key)), None)), key)
    return _scatter(values, key, shape)


def check_update(name: str, x: ArrayLike, values: ArrayLike) -> tuple[Tensor, Any]:
    """Read the operands of an update of elements, and check their dtypes.

    Raises:
        TypeError: the values have a higher kind of dtype than `x`, as complex is higher than floating.
        OverflowError: the value is an integer of Python's that `x` cannot hold.
    """
    x, values = read_all((x, values), lambda k: f"{name}: {('x', 'values')[k]}")
    if type(x) in SCALARS:
        raise TypeError(f"{name}: x must be an array; got {x!r}")
    result = dtypes.default_for(type(values)) if type(values) in SCALARS else values.dtype
    if dtypes.RANKS[result.kind] > dtypes.RANKS[x.dtype.kind]:
        raise TypeError(
            f"{name}: values of dtype {result} do not fit into elements of dtype {x.dtype}; convert one of them with "
            f"tape_core.astype"
        )
    if (wrong := dtypes.out_of_bounds(values, x.dtype)) is not None:
        raise OverflowError(f"{name}: {wrong}")
    if type(values) is int and values >= 1 << 63:  # not every library takes such a number of Python's
        _, values = with_numbers_as_tensors((x, values))
    return x, values


def setitem_with_key(x: Tensor, values: ArrayLike, key: IndexKey) -> Tensor:
    """`setitem` for a key that may hold Tensors."""
    x, values = check_update("setitem", x, values)
    x, key = with_raw_key(x, key)
    return _setitem(x, values, key)


registry["setitem"].function = setitem_with_key
registry["getitem"].function = getitem_with_key
registry["scatter"].function = scatter_with_key


def _take_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(3, 2), draw.rng.integers(0, 3, (4,)), axis=0)
    yield Sample(draw(2, 3), draw.rng.integers(0, 3, (2,)), axis=-1)
    yield Sample(draw(4), draw.rng.integers(0, 4, (2,)))
    yield Refused(IndexError, "take", draw(2, 3), draw.rng.integers(5, 9, (2,)), axis=0)


def _take_transpose(xp: Namespace, g: Cotangent, x_spec: Spec, indices: Array, axis: int | None) -> Cotangent:
    axis = 0 if axis is None else axis % len(x_spec.shape)
    return xp.scatter(g, (slice(None),) * axis + (indices,), x_spec.shape)


def _take_batch(call: Call, x: BatchInput, indices: BatchInput) -> Any:
    # One vector of indices for all examples is a `take`; with indices of its own for each, it is indexing.
    axis = line_axis(call.params["axis"], x.ndim)
    if not batching.is_batched(indices):
        return call(x.value, indices.value, axis=batching.from_end(axis, x.ndim))
    return x[(*[slice(None)] * axis, indices)]


def _bounds_along(xp: Namespace, x: Array, indices: Array, axis: int | None = 0) -> None:
    if is_array(indices) and x.shape:
        place = 0 if axis is None else normal_axis(axis, len(x.shape))
        keys.check_indices(xp, indices, place, x.shape[place])


@refuses("indices")
@linear(
    x=transpose(_take_transpose),
    indices=NONDIFF,
    samples=with_complex(_take_samples),
    batch=_take_batch,
    keeps_integers=True,
    bounds=_bounds_along,
)
def take(x: ArrayLike, indices: ArrayLike, /, *, axis: int | None = None) -> Tensor:
    """The elements at `indices` along `axis`, which may be left out for a 1-d array."""


def _along_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), draw.rng.integers(0, 3, (2, 2)), axis=1)
    yield Sample(draw(3, 2), draw.rng.integers(0, 3, (1, 2)), axis=0)
    yield Sample(draw(4), draw.rng.integers(0, 4, (3,)))
    yield Refused(IndexError, "take_along_axis", draw(2, 3), draw.rng.integers(3, 9, (2, 2)), axis=1)


def take_along_axis_transpose(xp: Namespace, g: Cotangent, x_spec: Spec, indices: Array, axis: int) -> Cotangent:
    # Written as plain indexing: `indices` along the axis, and a range along each other one.
    n = len(x_spec.shape)
    grid = [
        indices if k == axis % n else xp.reshape(xp.arange_beside(g, length), (1,) * k + (-1,) + (1,) * (n - k - 1))
        for k, length in enumerate(x_spec.shape)
    ]
    return xp.scatter(g, tuple(grid), x_spec.shape)


@refuses("indices")
@linear(
    x=transpose(take_along_axis_transpose),
    indices=NONDIFF,
    samples=with_complex(_along_samples),
    batch=batching.apart,
    keeps_integers=True,
    bounds=_bounds_along,
)
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The elements at `indices` along `axis`, line by line; `indices` has a line of its own for each line of `x`.

    As `numpy.take_along_axis`; `indices` of :func:`argsort` sort, for example.
    """


def _gather_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(4, 2), draw.rng.integers(0, 4, (3,)))
    yield Sample(draw(4), draw.rng.integers(0, 4, (2, 2)))
    yield Sample(draw(3, 2, 2), draw.rng.integers(0, 3, (0,)))
    yield Refused(IndexError, "gather", draw(2, 3), draw.rng.integers(5, 9, (2,)))


def _gather_transpose(xp: Namespace, g: Cotangent, params_spec: Spec, indices: Array) -> IndexedSlices:
    # The transpose of `take` without adding rows up to a dense array. Optimizers update only the rows in use.
    shape = params_spec.shape
    rows = 1
    for length in indices.shape:
        rows *= length
    return IndexedSlices(xp.reshape(g, (rows, *shape[1:])), xp.reshape(indices, (rows,)), shape, _xp=xp)


def _gather_batch(call: Call, params: BatchInput, indices: BatchInput) -> Any:
    return params[indices] if batching.is_batched(params) else call(params.value, indices.value)


@refuses("indices")
@linear(
    params=transpose(_gather_transpose),
    indices=NONDIFF,
    kernel=lambda xp, params, indices: xp.reshape(
        xp.take(params, xp.reshape(indices, (-1,)), axis=0), tuple(indices.shape) + tuple(params.shape[1:])
    ),
    sparse=True,
    samples=with_complex(_gather_samples),
    batch=_gather_batch,
    keeps_integers=True,
    bounds=_bounds_along,
)
def gather(params: ArrayLike, indices: ArrayLike, /) -> Tensor:
    """The rows of `params` at `indices`: shape `indices.shape + params.shape[1:]`.

    Its gradient is :class:`~tape_core.IndexedSlices`, which hold only the rows in use. :func:`take` gives the same
    values and a dense gradient.
    """


def _add_rows_kernel(xp: Namespace, x: Array, indices: Array, rows: Array, *, in_place: bool = False) -> Array:
    return x + xp.scatter(rows, indices, tuple(x.shape))


def _add_rows_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(4, 2), draw.rng.integers(0, 4, (3,)), draw(3, 2))


@refuses("indices")
@linear(
    x=transpose(lambda xp, g: g),
    indices=NONDIFF,
    rows=transpose(lambda xp, g, indices: xp.getitem(g, indices)),
    kernel=_add_rows_kernel,
    samples=with_complex(_add_rows_samples),
    writes_into_first=True,
    bounds=lambda xp, x, indices, rows, in_place: _bounds_along(xp, x, indices),
)
def add_rows(x: ArrayLike, indices: ArrayLike, rows: ArrayLike, /, *, in_place: bool = False) -> Tensor:
    """Add `rows` to those of `x` at `indices`; duplicates add up. `in_place` allows a kernel to overwrite `x`."""
