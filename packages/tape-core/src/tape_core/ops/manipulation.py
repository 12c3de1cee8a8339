"""Manipulation functions of the Array API standard. All of them are linear, so each rule is a transpose."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

from tape_core.backends.axes import normal_axis
from tape_core.base.mistakes import explaining, integer, sequence
from tape_core.engine.cotangents import broadcast_shape
from tape_core.engine.levels import BatchedArray
from tape_core.engine.op import NONDIFF, linear, refuses, transpose, with_numbers_as_tensors
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, with_complex
from tape_core.engine.tensor import Tensor, read_all, read_array
from tape_core.modes import batching
from tape_core.modes.batching import Call
from tape_core.typing import Array, ArrayLike, Axis, BatchInput, Cotangent, Namespace, Shape, ShapeLike


def _reshape_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), (3, 2))
    yield Sample(draw(2, 3), (-1,))
    yield Sample(draw(), (1, 1))
    yield Sample(draw(0, 3), (3, 0))
    yield Refused(ValueError, "reshape", draw(2, 3), (4,))


def _reshape_batch(call: Call, x: BatchedArray) -> Any:
    shape, size = call.params["shape"], batching.size_of([x])
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if size == 0 and -1 in shape:  # the library cannot compute the length behind -1 from an array without elements
        rest = math.prod([n for n in shape if n != -1])
        shape = tuple([math.prod(x.shape) // max(rest, 1) if n == -1 else n for n in shape])
    return call(x.value, shape=(size, *shape))


def _reshape_misfit(x: Shape, shape: ShapeLike, **_: Any) -> str | None:
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    size, free = math.prod(x), lengths.count(-1)
    wanted = math.prod([n for n in lengths if n != -1])
    if free > 1 or (size % max(wanted, 1) if free else size != wanted):
        return f"an array of shape {x} has {size} elements, which do not fit the shape {lengths}"
    return None


@linear(
    x=transpose(lambda xp, g, x_spec: xp.reshape(g, x_spec.shape)),
    samples=with_complex(_reshape_samples),
    batch=_reshape_batch,
    keeps_integers=True,
    misfit=_reshape_misfit,
)
def reshape(x: ArrayLike, /, shape: ShapeLike, *, copy: bool | None = None) -> Tensor:
    """Give the elements of `x` another shape, in row-major order; one length may be -1, for what is left."""


def _squeeze_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 1, 3, 1), axis=(1, -1))
    yield Sample(draw(1), axis=0)
    yield Refused(ValueError, "squeeze", draw(2, 3), axis=0)


@linear(
    x=transpose(lambda xp, g, x_spec: xp.reshape(g, x_spec.shape)),
    samples=with_complex(_squeeze_samples),
    batch=batching.along,
    keeps_integers=True,
)
def squeeze(x: ArrayLike, /, axis: int | tuple[int, ...]) -> Tensor:
    """Remove the dimensions of length 1 that `axis` names."""


def _expand_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), axis=1)
    yield Sample(draw(), axis=-1)
    yield Sample(draw(2, 3), axis=(-1, 0, 2))
    yield Sample(draw(2), axis=())
    yield Refused(IndexError, "axis", draw(2), axis=3)
    yield Refused(IndexError, "axis", draw(2), axis=(0, -4))
    yield Refused(ValueError, "axis .* twice", draw(2), axis=(0, -3))


def _expand_kernel(xp: Namespace, x: Array, axis: int | tuple[int, ...] = 0) -> Array:
    # The standard takes a single axis here; this is NumPy's function, which takes several.
    axes = tuple([index(a) for a in axis]) if isinstance(axis, tuple) else (index(axis),)
    n = len(x.shape) + len(axes)
    places = {normal_axis(a, n, "a result") for a in axes}
    if len(places) < len(axes):
        raise ValueError(f"axis {axis} names a dimension twice")
    lengths = iter(x.shape)
    return xp.reshape(x, tuple(1 if k in places else next(lengths) for k in range(n)))


def _expand_batch(call: Call, x: BatchedArray) -> Any:
    axis = call.params["axis"]
    added = 1 if isinstance(axis, int) else len(axis)
    return call(x.value, axis=batching.from_end(axis, x.ndim + added))


@linear(
    x=transpose(lambda xp, g, x_spec: xp.reshape(g, x_spec.shape)),
    kernel=_expand_kernel,
    axes_of="result",
    samples=with_complex(_expand_samples),
    batch=_expand_batch,
    keeps_integers=True,
)
def expand_dims(x: ArrayLike, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Insert dimensions of length 1; `axis` says where they are in the result.

    >>> import tape_core as tc
    >>> tc.expand_dims(tc.zeros((2, 3)), axis=(0, -1)).shape
    (1, 2, 3, 1)
    """


def _permute_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3, 4), (2, 0, 1))
    yield Sample(draw(2, 3), (-1, 0))
    yield Refused(ValueError, "permute_dims", draw(2, 3), (0, 0))


def _permute_transpose(xp: Namespace, g: Cotangent, axes: tuple[int, ...]) -> Cotangent:
    order = [a % len(axes) for a in axes]  # the transpose of a permutation is its inverse
    return xp.permute_dims(g, tuple(order.index(a) for a in range(len(axes))))


def _permute_batch(call: Call, x: BatchedArray) -> Any:
    axes = [normal_axis(a, x.ndim) + 1 for a in call.params["axes"]]
    return call(x.value, axes=(0, *axes))


def _permute_misfit(x: Shape, axes: Sequence[int], **_: Any) -> str | None:
    if sorted([a % len(x) for a in axes] if x else axes) == [*range(len(x))]:
        return None
    return f"axes must name each of {len(x)} axes once, got {tuple(axes)}"


@linear(
    x=transpose(_permute_transpose),
    samples=with_complex(_permute_samples),
    batch=_permute_batch,
    misfit=_permute_misfit,
    keeps_integers=True,
)
def permute_dims(x: ArrayLike, /, axes: tuple[int, ...]) -> Tensor:
    """The dimensions in another order."""


def moveaxis(x: ArrayLike, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """The dimensions `source` moved to `destination`, the others in their order."""
    x = read_array(x, "moveaxis: x")
    n = len(x.shape)
    sources = [normal_axis(a, n) for a in (source if isinstance(source, tuple) else (source,))]
    places = [normal_axis(a, n) for a in (destination if isinstance(destination, tuple) else (destination,))]
    if len(sources) != len(places):
        raise ValueError(f"moveaxis: source {source} and destination {destination} differ in length")
    order = [a for a in range(n) if a not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


def sum_to(xp: Namespace, g: Cotangent, shape: tuple[int, ...]) -> Cotangent:
    """Sum `g` over the axes along which an array of `shape` was repeated: the transpose of broadcasting.

    `shape` may also have leading axes of length 1 that `g` lacks, as the value of an assignment may.
    """
    extra = len(g.shape) - len(shape)
    kept = shape[max(-extra, 0) :]
    extra = max(extra, 0)
    axes = (*range(extra), *(extra + k for k, n in enumerate(kept) if n == 1 and g.shape[extra + k] != 1))
    if axes:
        g = xp.sum(g, axis=axes)
    return g if tuple(g.shape) == tuple(shape) else xp.reshape(g, shape)


def _broadcast_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(3), (2, 3))
    yield Sample(draw(2, 1), (4, 2, 3))
    yield Sample(draw(), (2,))
    yield Sample(draw(1), (0,))
    yield Refused(ValueError, "broadcast", draw(3), (2,))


def _broadcast_batch(call: Call, x: BatchedArray) -> Any:
    shape = tuple(call.params["shape"])
    # The dimensions that broadcasting adds come after the hidden axis.
    return call(batching.front(x, max(len(shape), x.ndim)), shape=(batching.size_of([x]), *shape))


def _broadcast_misfit(x: Shape, shape: Shape, **_: Any) -> str | None:
    fits = len(x) <= len(shape) and all([n in (1, m) for n, m in zip(x[::-1], shape[::-1], strict=False)])
    return None if fits else f"an array of shape {x} does not broadcast to the shape {tuple(shape)}"


@linear(
    x=transpose(lambda xp, g, x_spec: sum_to(xp, g, x_spec.shape)),
    samples=with_complex(_broadcast_samples),
    batch=_broadcast_batch,
    keeps_integers=True,
    misfit=_broadcast_misfit,
)
def broadcast_to(x: ArrayLike, /, shape: tuple[int, ...]) -> Tensor:
    """Repeat `x` along new leading dimensions and along those of length 1 until it has `shape`."""


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to; () if none is given.

    >>> import tape_core as tc
    >>> tc.broadcast_shapes((2, 1), (3,), ())
    (2, 3)

    Raises:
        ValueError: they do not broadcast.
    """
    n = builtins.max(map(len, shapes), default=0)
    out = []
    for k in range(-n, 0):
        lengths = {shape[k] for shape in shapes if len(shape) >= -k} - {1}
        if len(lengths) > 1:
            raise ValueError(f"broadcast_shapes: shapes {', '.join(map(str, shapes))} do not broadcast")
        out.append(lengths.pop() if lengths else 1)
    return tuple(out)


def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """Broadcast arrays against each other; all results have one shape."""
    tensors = with_numbers_as_tensors(tuple(read_all(arrays, lambda k: f"broadcast_arrays: arrays[{k}]")))
    shape: tuple[int, ...] = ()
    for tensor in tensors:
        shape = broadcast_shape(shape, tensor.shape)
    return tuple([broadcast_to(tensor, shape) for tensor in tensors])


def _concat_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample([draw(2, 3), draw(1, 3)])
    yield Sample([draw(2, 1), draw(2, 0), draw(2, 2)], axis=-1)
    yield Sample([draw(2), draw(1, 2)], axis=None)
    yield Refused(ValueError, "concat", [draw(2, 3), draw(2, 2)])


def _concat_transpose(xp: Namespace, g: Cotangent, arrays_spec: Sequence[Spec], axis: int | None) -> list[Any]:
    if axis is None:
        sizes = [math.prod(spec.shape) for spec in arrays_spec]
        pieces = _pieces(g, sizes, 0)
        return [xp.reshape(piece, spec.shape) for piece, spec in zip(pieces, arrays_spec, strict=True)]
    axis %= len(g.shape)
    return _pieces(g, [spec.shape[axis] for spec in arrays_spec], axis)


def _pieces(x: Array, sizes: Sequence[int], axis: int) -> list[Any]:
    """Cut an array into consecutive pieces of these sizes along a non-negative axis."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(x[(slice(None),) * axis + (slice(start, start + size), ...)])
        start += size
    return pieces


def _concat_batch(call: Call, *arrays: BatchInput) -> Any:
    size, axis = batching.size_of(arrays), call.params["axis"]
    whole = [batching.spread(x, size) for x in arrays]
    if axis is None:  # flatten each example, not the batch
        return call(*[reshape(x, (size, math.prod(x.shape[1:]))) for x in whole], axis=1)
    return call(*whole, axis=batching.from_end(axis, batching.dimensions(arrays)))


def _concat_misfit(arrays: list[Shape], axis: int | None, **_: Any) -> str | None:
    if axis is None:
        return None
    if len({len(shape) for shape in arrays}) > 1:
        return f"arrays must have one number of dimensions, got shapes {', '.join(map(str, arrays))}"
    place = axis % len(arrays[0])
    if len({shape[:place] + shape[place + 1 :] for shape in arrays}) == 1:
        return None
    return f"arrays may differ in length along axis {axis} only, got shapes {', '.join(map(str, arrays))}"


@linear(
    arrays=transpose(_concat_transpose),
    sequence=True,
    samples=with_complex(_concat_samples),
    batch=_concat_batch,
    misfit=_concat_misfit,
)
def concat(arrays: Sequence[ArrayLike], /, *, axis: int | None = 0) -> Tensor:
    """Join arrays along an existing `axis`; where it is None, they are flattened first."""


def _stack_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample([draw(2, 3), draw(2, 3)])
    yield Sample([draw(2), draw(2), draw(2)], axis=-1)
    yield Sample([draw(), draw()])
    yield Refused(ValueError, "stack", [draw(2), draw(3)])


def _stack_misfit(arrays: list[Shape], **_: Any) -> str | None:
    return None if len(set(arrays)) == 1 else f"arrays must have one shape, got {', '.join(map(str, arrays))}"


def _stack_batch(call: Call, *arrays: BatchInput) -> Any:
    size = batching.size_of(arrays)
    axis = batching.from_end(call.params["axis"], batching.dimensions(arrays) + 1)
    return call(*[batching.spread(x, size) for x in arrays], axis=axis)


@linear(
    arrays=transpose(lambda xp, g, axis: xp.unstack(g, axis=axis)),
    sequence=True,
    axes_of="result",
    misfit=_stack_misfit,
    samples=with_complex(_stack_samples),
    batch=_stack_batch,
)
def stack(arrays: Sequence[ArrayLike], /, *, axis: int = 0) -> Tensor:
    """Join arrays of one shape along a new dimension at `axis`."""


def _unstack_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3))
    yield Sample(draw(2, 3), axis=-1)
    yield Refused(ValueError, "unstack", draw(2), axis=1)


@linear(
    x=transpose(lambda xp, g, axis: xp.stack(g, axis=axis)),
    samples=with_complex(_unstack_samples),
    batch=batching.along,
    keeps_integers=True,
)
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Take an array apart along a dimension: the inverse of :func:`stack`."""


@explaining
def split(x: ArrayLike, sections: int | Sequence[int], /, *, axis: int = 0) -> list[Tensor]:
    """Cut `x` along `axis` into consecutive pieces: a number of equal ones, or pieces of the sizes given.

    Raises:
        ValueError: the sizes do not add up to the length, or the length is not divisible by the number.
    """
    x = read_array(x, "split: x")
    axis = normal_axis(axis, len(x.shape))
    length = x.shape[axis]
    if isinstance(sections, int):
        if sections <= 0 or length % sections:
            raise ValueError(f"split: axis {axis} of length {length} has no {sections} equal parts")
        sections = [length // sections] * sections
    else:
        sizes = sequence("split", "sections", "sizes, or their number", sections)
        sections = [integer("split", f"sections[{k}]", size, 0) for k, size in enumerate(sizes)]
        if builtins.sum(sections) != length:
            raise ValueError(f"split: sizes {sections} add up to {builtins.sum(sections)}, not to the length {length}")
    return _pieces(x, sections, axis)


def _flip_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3))
    yield Sample(draw(2, 3), axis=-1)
    yield Sample(draw(2, 3), axis=(0, 1))


@linear(
    x=transpose(lambda xp, g, axis: xp.flip(g, axis=axis)),
    samples=with_complex(_flip_samples),
    batch=batching.along,
    keeps_integers=True,
)
def flip(x: ArrayLike, /, *, axis: Axis = None) -> Tensor:
    """Reverse the order of elements along `axis` (all axes by default)."""


def _roll_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), 1)
    yield Sample(draw(2, 3), -2, axis=1)
    yield Sample(draw(2, 3), (1, 2), axis=(0, 1))


def _roll_transpose(xp: Namespace, g: Cotangent, shift: int | tuple[int, ...], axis: Axis) -> Cotangent:
    return xp.roll(g, tuple(-s for s in shift) if isinstance(shift, tuple) else -shift, axis=axis)


def _roll_batch(call: Call, x: BatchedArray) -> Any:
    if call.params["axis"] is not None:
        return batching.along(call, x)
    flat = call(reshape(x.value, (batching.size_of([x]), math.prod(x.shape))), axis=1)
    return reshape(flat, (batching.size_of([x]), *x.shape))


@linear(x=transpose(_roll_transpose), samples=with_complex(_roll_samples), batch=_roll_batch, keeps_integers=True)
def roll(x: ArrayLike, /, shift: int | tuple[int, ...], *, axis: Axis = None) -> Tensor:
    """Shift elements along `axis`; those that leave at one end come in at the other.

    Where `axis` is None, `x` is shifted as if it were flattened.
    """


def _tile_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), (2, 1))
    yield Sample(draw(3), (2, 2))
    yield Sample(draw(2, 1, 2), (3,))


def _tile_transpose(xp: Namespace, g: Cotangent, x_spec: Spec, repetitions: int | tuple[int, ...]) -> Cotangent:
    repetitions = (repetitions,) if isinstance(repetitions, int) else repetitions  # NumPy accepts an integer too
    n = builtins.max(len(x_spec.shape), len(repetitions))
    shape = (1,) * (n - len(x_spec.shape)) + tuple(x_spec.shape)
    repetitions = (1,) * (n - len(repetitions)) + tuple(repetitions)
    # Each axis as two, (repetition, place): the sum over all repetitions of a place is its cotangent.
    pairs = tuple(length for pair in zip(repetitions, shape, strict=True) for length in pair)
    return xp.reshape(xp.sum(xp.reshape(g, pairs), axis=tuple(range(0, 2 * n, 2))), x_spec.shape)


def _tile_batch(call: Call, x: BatchedArray) -> Any:
    given = call.params["repetitions"]
    repetitions = (given,) if isinstance(given, int) else tuple(given)
    ndim = max(len(repetitions), x.ndim)
    return call(batching.front(x, ndim), repetitions=(1, *[1] * (ndim - len(repetitions)), *repetitions))


@linear(x=transpose(_tile_transpose), samples=with_complex(_tile_samples), batch=_tile_batch, keeps_integers=True)
def tile(x: ArrayLike, repetitions: tuple[int, ...], /) -> Tensor:
    """Repeat the whole array along each dimension; `repetitions` says how many times."""


def _repeat_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), 2)
    yield Sample(draw(2, 3), 3, axis=-1)
    yield Sample(draw(3, 2), draw.rng.integers(0, 3, (3,)), axis=0)


def _repeat_transpose(xp: Namespace, g: Cotangent, x_spec: Spec, repeats: int | Array, axis: int | None) -> Cotangent:
    shape = x_spec.shape
    length, axis = (math.prod(shape), 0) if axis is None else (shape[axis], axis % len(shape))
    if isinstance(repeats, int):  # each element became `repeats` neighbours: sum over them
        pairs = (*g.shape[:axis], length, repeats, *g.shape[axis + 1 :])
        return xp.reshape(xp.sum(xp.reshape(g, pairs), axis=axis + 1), shape)
    origins = xp.repeat(xp.arange_beside(g, length), repeats)  # for each element of the result, its index in x
    rows = (*g.shape[:axis], length, *g.shape[axis + 1 :])
    return xp.reshape(xp.scatter(g, (slice(None),) * axis + (origins,), rows), shape)


def _repeat_batch(call: Call, x: BatchInput, repeats: BatchInput) -> Any:
    if batching.is_batched(repeats) or not batching.is_batched(x):
        return batching.one_by_one(call, x, repeats)  # the results of the examples may differ in length
    axis = call.params["axis"]
    value = reshape(x.value, (batching.size_of([x]), math.prod(x.shape))) if axis is None else x.value
    axis = -1 if axis is None else batching.from_end(axis, x.ndim)
    return call(value, batching.front(repeats, 0), axis=axis)


@refuses("repeats")
@linear(
    x=transpose(_repeat_transpose),
    repeats=NONDIFF,
    samples=with_complex(_repeat_samples),
    batch=_repeat_batch,
    keeps_integers=True,
)
def repeat(x: ArrayLike, repeats: int | ArrayLike, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along `axis`; where it is None, `x` is flattened first."""
