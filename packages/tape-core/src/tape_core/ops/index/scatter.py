"""Updates of elements, such as `x[key] += values` with all duplicates counted; `at` is their public face.

There is one op for each way to combine: `setitem` in `indexing`, and here `scatter_add`, `scatter_multiply`,
`scatter_min` and `scatter_max`. The reductions of `segments` use them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from tape_core.engine.op import NONDIFF, REFUSED, linear, op, refuses, registry, transpose, vjp
from tape_core.engine.promotion import check_real
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, Samples
from tape_core.engine.tensor import SCALARS, Tensor, read_array, wrap
from tape_core.ops import elementwise as ew
from tape_core.ops.creation import ones_like
from tape_core.ops.data_types import astype
from tape_core.ops.index import keys
from tape_core.ops.index.batched_keys import batch_places, batch_update
from tape_core.ops.index.indexing import check_update, getitem_with_key, key_samples, setitem_with_key, with_raw_key
from tape_core.ops.manipulation import reshape, sum_to
from tape_core.ops.statistical import zero_or_nan
from tape_core.typing import Array, ArrayLike, Cotangent, IndexKey, Namespace, Scalar, Shape


def _samples(name: str, *, ordered: bool = False) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        some = draw.distinct if ordered else draw
        for shape, key in key_samples(draw):
            picked = draw(*shape)[
                key
            ].shape  # distinct values for x and for what is combined, so that extrema are unique
            size = math.prod(shape)
            numbers = some(size + math.prod(picked))
            yield Sample(reshape(numbers[:size], shape), reshape(numbers[size:], picked), key)
        yield Sample(draw(2, 3), draw(3) + 5, slice(None))
        yield Sample(draw(2, 3), draw() - 5, (0, 1))
        yield Sample(draw(3), 2.5, draw.rng.integers(0, 3, (5,))._array)
        yield Sample(draw(), draw() + 5, ())
        yield Sample(draw(2, 2), draw(0, 2), draw.rng.integers(0, 1, (0,))._array)
        if not ordered:
            yield Sample(draw.complex(3), draw.complex(4), draw.rng.integers(0, 3, (4,))._array)
        yield Refused(IndexError, name, draw(2, 3), draw(), 2)
        yield Refused(IndexError, name, draw(2, 3), draw(3, 3), draw.rng.integers(2, 9, (3,))._array)
        yield Refused(ValueError, name, draw(2, 3), draw(2), 1)
        text = "real numbers" if ordered else "do not fit into elements of dtype"
        yield Refused(TypeError, text, draw(3), draw.complex(), 1)
        if ordered:
            yield Refused(TypeError, "real numbers", draw.complex(3), draw(), 1)

    return samples


def _places_samples(draw: Draw) -> Iterator[Sample]:
    for shape, key in key_samples(draw):
        yield Sample(draw(*shape), key)
    yield Refused(IndexError, "out of bounds", draw(2, 3), (0, 3))


@refuses("key")
@op(
    x=NONDIFF,
    kernel=lambda xp, x, key: keys.places(xp, x, key, tuple(x.shape))[0],
    samples=_places_samples,
    batch=batch_places,
    reason="the result is the places of elements",
)
def places(x: ArrayLike, /, key: IndexKey) -> Tensor:
    """The numbers of the rows that `key` picks; see `tape_core.ops.index.keys` for what a row is."""


@refuses("key")
@linear(
    x=transpose(lambda xp, g: g),
    values=transpose(lambda xp, g, values_spec, key: sum_to(xp, xp.getitem(g, key), values_spec.shape)),
    kernel=lambda xp, x, values, key: keys.update(xp, xp.add, 0, x, values, key),
    samples=_samples("scatter_add"),
    batch=batch_update,
    writes_into_first=True,
    bounds=keys.check_key_of,
)
def scatter_add(x: ArrayLike, values: ArrayLike, /, key: IndexKey) -> Tensor:
    """A copy of `x` with `values` added at `key`. Several values for one element are all added."""


def _multiply_x(xp: Namespace, g: Cotangent, values: Array, x_spec: Spec, key: IndexKey) -> Cotangent:
    return g * xp.scatter_multiply(xp.zeros_beside(g, x_spec.shape, dtype=x_spec.dtype) + 1, values, key)


def _multiply_values(xp: Namespace, g: Cotangent, x: Array, values: Array, key: IndexKey) -> Cotangent:
    d = xp.getitem(g * x, key)
    if keys.has_integer_arrays(key):
        # The product of the other values for the same element; not out / values, since values may be 0.
        shape, wide = tuple(d.shape), len(x.shape) - keys.leading(key, len(x.shape))
        rows = keys.as_rows(xp, xp.broadcast_to(values, shape), len(shape) - wide)
        d = d * xp.reshape(keys.products_of_others(xp, rows, xp.reshape(xp.places(x, key), (-1,))), shape)
    return sum_to(xp, d, tuple(values.shape))


@refuses("key")
@op(
    x=vjp(_multiply_x),
    values=vjp(_multiply_values),
    kernel=lambda xp, x, values, key: keys.update(xp, xp.multiply, 1, x, values, key),
    samples=_samples("scatter_multiply"),
    batch=batch_update,
    writes_into_first=True,
    bounds=keys.check_key_of,
)
def scatter_multiply(x: ArrayLike, values: ArrayLike, /, key: IndexKey) -> Tensor:
    """A copy of `x` multiplied by `values` at `key`. Several values for one element are all multiplied.

    The derivative is also right where factors are 0.
    """


def _ties(
    xp: Namespace, g: Cotangent, x: Array, values: Array, out: Array, key: IndexKey, neutral: float
) -> tuple[Cotangent, Cotangent, Array, Array]:
    """Divide the cotangent of an extremum equally among the elements that are equal to it.

    Returns:
        The cotangent of elements that are not the extremum (see `zero_or_nan`), that of those that are, and masks of
        these among `x` and among `values`.
    """
    theirs = values == xp.getitem(out, key)
    count = xp.scatter(xp.astype(theirs, g.dtype), key, tuple(out.shape))
    # An infinity in `x` that is only the neutral element, as in the reductions of segments, shares nothing with values
    # that are the same infinity.
    own = xp.logical_and(x == out, xp.logical_or(x != neutral, count == 0))
    count = count + xp.astype(own, g.dtype)
    return zero_or_nan(xp, g, count), g / count, own, theirs


def _extremum_rules(neutral: float) -> dict[str, Any]:
    def rule_x(xp: Namespace, g: Cotangent, x: Array, values: Array, out: Array, key: IndexKey) -> Cotangent:
        rest, share, own, _ = _ties(xp, g, x, values, out, key, neutral)
        return xp.where(own, share, rest)

    def rule_values(xp: Namespace, g: Cotangent, x: Array, values: Array, out: Array, key: IndexKey) -> Cotangent:
        rest, share, _, theirs = _ties(xp, g, x, values, out, key, neutral)
        return sum_to(xp, xp.where(theirs, xp.getitem(share, key), xp.getitem(rest, key)), tuple(values.shape))

    return {"x": vjp(rule_x), "values": vjp(rule_values)}


@refuses("key")
@op(
    kernel=lambda xp, x, values, key: keys.update(xp, xp.minimum, None, x, values, key),
    samples=_samples("scatter_min", ordered=True),
    **_extremum_rules(math.inf),
    batch=batch_update,
    writes_into_first=True,
    complex_kernel=REFUSED,
    bounds=keys.check_key_of,
)
def scatter_min(x: ArrayLike, values: ArrayLike, /, key: IndexKey) -> Tensor:
    """A copy of `x` with the minimum of element and `values` at `key`. Ties share the gradient equally."""


@refuses("key")
@op(
    kernel=lambda xp, x, values, key: keys.update(xp, xp.maximum, None, x, values, key),
    samples=_samples("scatter_max", ordered=True),
    **_extremum_rules(-math.inf),
    batch=batch_update,
    writes_into_first=True,
    complex_kernel=REFUSED,
    bounds=keys.check_key_of,
)
def scatter_max(x: ArrayLike, values: ArrayLike, /, key: IndexKey) -> Tensor:
    """A copy of `x` with the maximum of element and `values` at `key`. Ties share the gradient equally."""


def _with_key(update: Callable[..., Tensor], *, ordered: bool = False) -> Callable[..., Tensor]:
    """Wrap an update op: cast values to the dtype of `x`, and accept a key that holds Tensors."""
    name = update.__name__
    op = registry[name]

    @wraps(update)
    def function(x: ArrayLike, values: ArrayLike, /, key: IndexKey) -> Tensor:
        check_real(op, (x, values))
        tensor, values = check_update(name, x, values)
        check_real(op, (tensor, values))  # they may have been arrays of a library
        if tensor.dtype.kind == "bool":
            lack = "no order" if ordered else "no arithmetic"
            raise TypeError(f"{name}: x must hold numbers, for {tensor.dtype} has {lack}")
        # The result has the dtype of x, as after an assignment; `check_update` has refused casts that lose a kind.
        if type(values) not in SCALARS and values.dtype != tensor.dtype:
            values = astype(values, tensor.dtype)
        tensor, key = with_raw_key(tensor, key)
        return update(tensor, values, key)

    op.function = function
    return function


def constant_beside(x: Tensor, shape: Shape, value: Scalar) -> Tensor:
    """A constant array of a shape, on the backend and device and in the dtype of `x`."""
    xp, array = x.backend.xp, x._array
    return wrap(xp.zeros_beside(array, shape, dtype=array.dtype) + value, x.backend)


def places_with_key(x: Tensor, key: IndexKey) -> Tensor:
    """`places` for a key that may hold Tensors."""
    return places(*with_raw_key(read_array(x, "places: x"), key))


registry["places"].function = places_with_key
scatter_add_with_key = _with_key(scatter_add)
scatter_multiply_with_key = _with_key(scatter_multiply)
scatter_min_with_key = _with_key(scatter_min, ordered=True)
scatter_max_with_key = _with_key(scatter_max, ordered=True)

_UNSET: Any = object()  # no key was given; None is a key


class at:
    """Elements of an array, for updates that return a new array: `at(x)[key].set(values)`, or `at(x, key)`.

    >>> import tape_core as tc
    >>> x = tc.asarray([1.0, 2.0, 3.0])
    >>> tc.at(x)[1:].set(0.0).tolist(), tc.at(x, 0).add(5.0).tolist(), x.tolist()
    ([1.0, 0.0, 0.0], [6.0, 2.0, 3.0], [1.0, 2.0, 3.0])

    An array of integers may name an element more than once. Then all values count, as in JAX, while NumPy's
    `x[key] += values` counts one of them. :meth:`set` takes the last one.

    >>> i = tc.asarray([0, 0, 2])
    >>> tc.at(x)[i].add(10.0).tolist(), tc.at(x)[i].max(tc.asarray([5.0, 4.0, 0.0])).tolist()
    ([21.0, 2.0, 13.0], [5.0, 2.0, 3.0])

    All methods are differentiable in `x` and in the values, which broadcast to the shape of `x[key]`. The result has
    the dtype of `x`.

    Args:
        x: an array. It is not changed.
        key: any key of `x[key]`: integers, slices, `...`, None, boolean masks, integer arrays.

    Raises:
        IndexError: raised by the methods, where the array has no such elements.
        ValueError: raised by the methods, for values that do not broadcast to the shape of the elements.
        TypeError: raised by the methods, for values of a higher kind of dtype than that of `x`, as complex for real.
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: ArrayLike, key: IndexKey = _UNSET, /) -> None:
        self._x = x
        self._key = key

    def __getitem__(self, key: IndexKey) -> at:
        if self._key is not _UNSET:
            raise ValueError("at: the elements are named already; write at(x, key) or at(x)[key]")
        return at(self._x, key)

    def __repr__(self) -> str:
        return f"at({self._x!r})" if self._key is _UNSET else f"at({self._x!r}, {self._key!r})"

    def _operands(self) -> tuple[Any, Any]:
        if self._key is _UNSET:
            raise ValueError("at: name the elements first: at(x)[key].set(values), or at(x, key).set(values)")
        return self._x, self._key

    def get(self) -> Tensor:
        """`x[key]`."""
        return getitem_with_key(*self._operands())

    def set(self, values: ArrayLike, /) -> Tensor:
        """Replace the elements by `values`. Of several for one element the last one stays, and gets the gradient."""
        x, key = self._operands()
        return setitem_with_key(x, values, key)

    def add(self, values: ArrayLike, /) -> Tensor:
        """Add `values` to the elements."""
        x, key = self._operands()
        return scatter_add_with_key(x, values, key)

    def subtract(self, values: ArrayLike, /) -> Tensor:
        """Subtract `values` from the elements."""
        x, key = self._operands()
        x, values = check_update("at.subtract", x, values)
        if type(values) in SCALARS:
            values = constant_beside(x, (), values)
        values = astype(values, x.dtype)
        if x.dtype.kind == "unsigned integer":
            # As a 1-d array, since NumPy warns when a scalar wraps around.
            opposite = reshape(ew.negative(reshape(values, (-1,))), values.shape)
        else:
            opposite = ew.negative(values)
        return scatter_add_with_key(x, opposite, key)

    def multiply(self, values: ArrayLike, /) -> Tensor:
        """Multiply the elements by `values`. The derivative is also right where factors are 0."""
        x, key = self._operands()
        return scatter_multiply_with_key(x, values, key)

    def divide(self, values: ArrayLike, /) -> Tensor:
        """Divide the elements by `values`; by the product of several values for one element."""
        x, key = self._operands()
        x, values = check_update("at.divide", x, values)
        if not x.dtype.inexact:
            raise TypeError(f"at.divide: x must be floating, not {x.dtype}, in which quotients have no room")
        return ew.divide(x, scatter_multiply_with_key(ones_like(x), values, key))

    def power(self, values: ArrayLike, /) -> Tensor:
        """Raise the elements to the power of `values`; of the product of several values for one element."""
        x, key = self._operands()
        x = read_array(x, "at.power: x")
        return ew.pow(x, scatter_multiply_with_key(ones_like(x), values, key))

    def min(self, values: ArrayLike, /) -> Tensor:
        """The minimum of the elements and `values`. Ties share the gradient equally."""
        x, key = self._operands()
        return scatter_min_with_key(x, values, key)

    def max(self, values: ArrayLike, /) -> Tensor:
        """The maximum of the elements and `values`. Ties share the gradient equally."""
        x, key = self._operands()
        return scatter_max_with_key(x, values, key)
