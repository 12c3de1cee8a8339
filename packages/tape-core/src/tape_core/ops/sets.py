"""Set functions of the Array API standard. A gradient flows through distinct values to where each occurs first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from tape_core.engine.op import NONDIFF, op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Sample, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.ops.index.keys import is_array
from tape_core.typing import Array, ArrayLike, Cotangent, Kernel, Namespace

F = TypeVar("F", bound=Callable[..., Any])


class UniqueAllResult(NamedTuple):
    """The result of :func:`unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """The result of :func:`unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """The result of :func:`unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def _unique_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.rng.integers(0, 3, (5,)))
    yield Sample(draw(2, 3))
    yield Sample(draw(0))


def _groups(xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
    """The elements in order, the indices that they come from, and a mask of those that begin a new value."""
    # A stable sort, so that the first of equal elements is the first of its group. NaN differs from NaN: each is a
    # group.
    x = xp.reshape(x, (-1,))
    if xp.isdtype(x.dtype, "complex floating"):  # as NumPy orders them: by the real part, then by the other one
        order = xp.argsort(xp.imag(x), stable=True)
        order = xp.take(order, xp.argsort(xp.take(xp.real(x), order), stable=True))
    else:
        order = xp.argsort(x, stable=True)
    ordered = xp.take(x, order)
    n = int(x.shape[0])
    if n == 0:
        return ordered, order, ordered == ordered
    first = xp.astype(xp.ones_like(order[:1]), xp.bool)
    return ordered, order, xp.concat([first, ordered[1:] != ordered[: n - 1]], axis=0)


def _inverse(xp: Namespace, x: Array, order: Array, new: Array) -> Array:
    # Number the groups, and bring the numbers back into the order of x.
    number = xp.cumulative_sum(xp.astype(new, order.dtype), axis=0) - 1
    return xp.reshape(xp.take(number, xp.argsort(order)), tuple(x.shape))


def _counts(xp: Namespace, order: Array, new: Array) -> Array:
    starts = xp.nonzero(new)[0]
    if starts.shape[0] == 0:
        return starts
    end = xp.zeros_beside(starts, (1,), dtype=starts.dtype) + order.shape[0]
    return xp.concat([starts[1:], end], axis=0) - starts


def _all_kernel(xp: Namespace, x: Array) -> tuple[Any, ...]:
    ordered, order, new = _groups(xp, x)
    return ordered[new], order[new], _inverse(xp, x, order, new), _counts(xp, order, new)


def _counts_kernel(xp: Namespace, x: Array) -> tuple[Any, ...]:
    ordered, order, new = _groups(xp, x)
    return ordered[new], _counts(xp, order, new)


def _inverse_kernel(xp: Namespace, x: Array) -> tuple[Any, ...]:
    ordered, order, new = _groups(xp, x)
    return ordered[new], _inverse(xp, x, order, new)


def _values_kernel(xp: Namespace, x: Array) -> Array:
    ordered, _, new = _groups(xp, x)
    return ordered[new]


# The distinct values are `x[indices]`, in whatever way x changes while no two elements meet or part. So the rule is
# that of indexing; of equal elements the first one has the gradient.


def _first_places_have(xp: Namespace, g: Cotangent, indices: Array, x_spec: Spec) -> Cotangent:
    return xp.reshape(xp.scatter(g, (indices,), (math.prod(x_spec.shape),)), x_spec.shape)


def _all_rule(xp: Namespace, g: Sequence[Cotangent], out: Sequence[Array], x_spec: Spec) -> Cotangent:
    return _first_places_have(xp, g[0], out[1], x_spec)


def _several_rule(xp: Namespace, g: Sequence[Cotangent], x: Array, x_spec: Spec) -> Cotangent:
    return _first_places_have(xp, g[0], xp.unique_all(x)[1], x_spec)


def _values_rule(xp: Namespace, g: Cotangent, x: Array, x_spec: Spec) -> Cotangent:
    return _first_places_have(xp, g, xp.unique_all(x)[1], x_spec)


def _unique(kernel: Kernel, rule: Callable[..., Any], **more: Any) -> Callable[[F], F]:
    # The standard leaves the order of the values open and libraries differ, so that no library's own function is used.
    return op(
        x=vjp(rule),
        kernel=kernel,
        samples=with_complex(_unique_samples),
        batch=batching.one_by_one,
        keeps_integers=True,
        **more,
    )


@_unique(_all_kernel, _all_rule, result=UniqueAllResult)
def unique_all(x: ArrayLike, /) -> UniqueAllResult:
    """The distinct elements of `x` in order, with indices and counts.

    `indices` says where each value occurs first, `inverse_indices` which of the values each element of `x` is, and
    `counts` how often each value occurs.

    >>> import tape_core as tc
    >>> x = tc.asarray([3.0, 1.0, 3.0])
    >>> values, indices, inverse, counts = tc.unique_all(x)
    >>> values.tolist(), indices.tolist(), inverse.tolist(), counts.tolist()
    ([1.0, 3.0], [1, 0], [1, 0, 1], [1, 2])

    The gradient of a value goes to where it occurs first. Indices and counts have none.
    """


@_unique(_counts_kernel, _several_rule, result=UniqueCountsResult)
def unique_counts(x: ArrayLike, /) -> UniqueCountsResult:
    """The distinct elements of `x` in order, and how often each occurs.

    The gradient of a value goes to where it occurs first.
    """


@_unique(_inverse_kernel, _several_rule, result=UniqueInverseResult)
def unique_inverse(x: ArrayLike, /) -> UniqueInverseResult:
    """The distinct elements of `x` in order, and for each element of `x` which of them it is.

    The gradient of a value goes to where it occurs first.
    """


@_unique(_values_kernel, _values_rule)
def unique_values(x: ArrayLike, /) -> Tensor:
    """The distinct elements of `x` in order, on every backend.

    >>> import tape_core as tc
    >>> tc.unique_values(tc.asarray([3, 1, 3, 2])).tolist()
    [1, 2, 3]

    The gradient of a value goes to where it occurs first:

    >>> tc.grad(lambda x: tc.sum(tc.unique_values(x) ** 2))(tc.asarray([3.0, 1.0, 3.0])).tolist()
    [6.0, 2.0, 0.0]
    """


def _isin_samples(draw: Draw) -> Iterator[Sample]:
    integers = draw.rng.integers
    yield Sample(integers(0, 9, (2, 3)), integers(0, 9, (4,)))
    yield Sample(integers(0, 9, ()), integers(0, 9, (2, 2)), invert=True)
    yield Sample(integers(0, 3, (4,)), 1)
    yield Sample(1, integers(0, 3, (4,)))
    yield Sample(integers(0, 3, (4,)), integers(0, 3, (0,)))


def _isin_kernel(xp: Namespace, x1: Array, x2: Array, *, invert: bool = False) -> Array:
    if not is_array(x1) or not is_array(x2):
        found = xp.any(x1 == x2) if is_array(x2) else x1 == x2
    elif 0 in x2.shape:
        found = xp.zeros_beside(x1, tuple(x1.shape), dtype=xp.bool)
    else:  # binary search in the sorted x2: the element at the place of insertion is equal, or none is
        dtype = xp.result_type(x1, x2)
        x1, x2 = xp.astype(x1, dtype), xp.sort(xp.astype(xp.reshape(x2, (-1,)), dtype))
        at = xp.reshape(xp.searchsorted(x2, xp.reshape(x1, (-1,))), tuple(x1.shape))
        last = x2.shape[0] - 1
        nearest = xp.take(x2, xp.reshape(xp.where(at > last, last, at), (-1,)))
        found = xp.reshape(nearest, tuple(x1.shape)) == x1
    return xp.logical_not(found) if invert else found


@op(
    x1=NONDIFF,
    x2=NONDIFF,
    kernel=_isin_kernel,
    samples=_isin_samples,
    reason="the result is a truth value",
)
def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: bool = False) -> Tensor:
    """True where an element of `x1` equals any element of `x2`; with `invert`, where it equals none.

    >>> import tape_core as tc
    >>> tc.isin(tc.asarray([1, 2, 3]), tc.asarray([3, 1])).tolist()
    [True, False, True]

    One of them may be a Python scalar. NaN equals nothing.
    """
