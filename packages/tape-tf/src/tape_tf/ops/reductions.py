"""Reductions, cumulative functions, norms, clipping by norms, argmax and top_k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native, static, wrap
from tape_tf.function_lookup import provide
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.tensor import IndexedSlices
from tape_tf.typing import Axis, DTypeLike, TensorLike

Axes: TypeAlias = "int | tuple[int, ...] | None"
"""The axes that reach a function's body: Python ints; None stands for all."""


def _mean(x: tc.Tensor, *, axis: Axes, keepdims: bool) -> tc.Tensor:
    if x.dtype.inexact:
        return tc.mean(x, axis=axis, keepdims=keepdims)
    # TensorFlow's mean of integers is an integer, rounded towards zero.
    mean = tc.mean(tc.astype(x, tc.float64), axis=axis, keepdims=keepdims)
    return tc.astype(tc.trunc(mean), x.dtype)


def _in_own_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction that keeps the dtype: the sum of int32 is int32, where the Array API standard has int64."""

    def reduced(x: tc.Tensor, *, axis: Axes, keepdims: bool) -> Any:
        return function(x, axis=axis, keepdims=keepdims, dtype=x.dtype)

    return reduced


def _real_variance(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a variance or standard deviation that is real for complex values: the sum of those of both parts."""

    def reduced(x: tc.Tensor, *, axis: Axes, keepdims: bool) -> Any:
        if not x.dtype.inexact:
            raise TypeError("Input must be either real or complex. Received integer type " + str(x.dtype))
        if x.dtype.kind == "complex floating":
            parts = [tc.var(part, axis=axis, keepdims=keepdims) for part in (tc.real(x), tc.imag(x))]
            # E|x - E x|**2 is the sum of the variances of both parts.
            total = parts[0] + parts[1]
            return total if function is tc.var else tc.sqrt(total)
        return function(x, axis=axis, keepdims=keepdims)

    return reduced


def _norm(x: tc.Tensor, *, axis: Axes, keepdims: bool) -> tc.Tensor:
    return tc.linalg.vector_norm(x, axis=axis, keepdims=keepdims)


_REDUCTIONS: dict[str, Callable[..., Any]] = {  # the part of the name after "reduce_" -> the reduction
    "sum": _in_own_dtype(tc.sum),
    "prod": _in_own_dtype(tc.prod),
    "mean": _mean,
    "max": tc.max,
    "min": tc.min,
    "any": tc.any,
    "all": tc.all,
    "logsumexp": tc.logsumexp,
    "std": _real_variance(tc.std),
    "variance": _real_variance(tc.var),
    "euclidean_norm": _norm,
}


def _axes(axis: Axes) -> Any:
    return tuple(axis) if isinstance(axis, list | tuple) else axis


def _publish(short: str, function: Callable[..., Any]) -> None:
    only_in_math = short in ("std", "variance", "euclidean_norm")
    names = f"math.reduce_{short}" + ("" if only_in_math else f" reduce_{short}")

    floating = short in ("logsumexp", "euclidean_norm")

    @op(names, "input_tensor", static_args="axis", kernel=short.capitalize(), floating=floating)
    def reduce(input_tensor: tc.Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
        # In TensorFlow an empty list of axes is no reduction; None is one over all of them.
        if axis == ():  # a reduction over no axes keeps the shape: one over an axis of length 1 does the same
            if input_tensor.ndim:
                return function(tc.expand_dims(input_tensor, axis=0), axis=0, keepdims=False)
            axis = None
        return function(input_tensor, axis=_axes(axis), keepdims=bool(keepdims))

    reduce.__doc__ = f"Return the {short} of the elements along `axis`: an int, several, or None for all."


for _short, _reduction in _REDUCTIONS.items():
    _publish(_short, _reduction)


# -- positions and counts


@op("math.argmax argmax", "input", static_args="axis", kernel="ArgMax")
def argmax(input: tc.Tensor, axis: int | None = None, output_type: tc.DType = dtypes.int64.native) -> tc.Tensor:
    """Return the indices of the largest elements along `axis`, by default 0."""
    return tc.astype(tc.argmax(input, axis=0 if axis is None else axis), output_type)


@op("math.argmin argmin", "input", static_args="axis", kernel="ArgMin")
def argmin(input: tc.Tensor, axis: int | None = None, output_type: tc.DType = dtypes.int64.native) -> tc.Tensor:
    """Return the indices of the smallest elements along `axis`, by default 0."""
    return tc.astype(tc.argmin(input, axis=0 if axis is None else axis), output_type)


@op("math.count_nonzero", "input", static_args="axis")
def count_nonzero(
    input: tc.Tensor, axis: Axes = None, keepdims: bool = False, dtype: tc.DType = dtypes.int64.native
) -> tc.Tensor:
    """Return the number of elements along `axis` that are not 0."""
    return tc.astype(tc.count_nonzero(input, axis=_axes(axis), keepdims=bool(keepdims)), dtype)


@op("math.zero_fraction nn.zero_fraction", "value")
def zero_fraction(value: tc.Tensor) -> tc.Tensor:
    """Return the fraction of the elements that are 0."""
    return tc.mean(tc.astype(value == 0, tc.float32))


# -- running reductions


def _cumulative(names: str, function: Callable[..., Any], neutral: float) -> None:
    @op(names, "x", static_args="axis")
    def cumulative(x: tc.Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> tc.Tensor:
        axis = axis % x.ndim if x.ndim else 0
        # From the end: reverse the input and the result. Exclusive: shift by one, and begin with the neutral element.
        if reverse:
            x = tc.flip(x, axis=axis)
        found = function(x, axis)
        if exclusive:
            first = tc.full_like(x[(slice(None),) * axis + (slice(0, 1),)], neutral)
            found = tc.concat([first, found[(slice(None),) * axis + (slice(0, -1),)]], axis=axis)
        return tc.flip(found, axis=axis) if reverse else found

    cumulative.__doc__ = (
        "Return the running result along `axis`: without the element itself if `exclusive`, from the end if `reverse`."
    )


_cumulative("math.cumsum cumsum", lambda x, axis: tc.cumulative_sum(x, axis=axis, dtype=x.dtype), 0)
_cumulative("math.cumprod", lambda x, axis: tc.cumulative_prod(x, axis=axis, dtype=x.dtype), 1)
_cumulative("math.cumulative_logsumexp", lambda x, axis: tc.logcumsumexp(x, axis=axis), float("-inf"))


# -- norms, and clipping by them


@op("norm linalg.norm", "tensor", static_args="axis")
def norm(tensor: tc.Tensor, ord: float | str = "euclidean", axis: Axes = None, keepdims: bool = False) -> tc.Tensor:
    """Return the norm of vectors along `axis`, of matrices along two axes, or of all elements if `axis` is None.

    Args:
        ord: `"euclidean"`, `"fro"`, 1, 2, infinity or another positive number.
    """
    if isinstance(axis, tuple) and len(axis) == 2:
        # Two axes are a matrix in TensorFlow: its "euclidean" norm is Frobenius', and 1, 2, inf are norms of operators.
        kind: Any = "fro" if ord in ("euclidean", "fro") else ord
        rest = tc.moveaxis(tensor, axis, (-2, -1))
        found = tc.linalg.matrix_norm(rest, ord=kind)
        found = tc.expand_dims(found, axis=tuple(a % tensor.ndim for a in axis)) if keepdims else found
        return tc.astype(found, tensor.dtype)
    if ord == "fro":
        raise ValueError("'ord' must be a supported vector norm, got fro")
    kind = 2.0 if ord == "euclidean" else ord
    return tc.astype(tc.linalg.vector_norm(tensor, axis=axis, ord=kind, keepdims=keepdims), tensor.dtype)


@op("linalg.normalize", "tensor", static_args="axis")
def normalize(tensor: tc.Tensor, ord: float | str = "euclidean", axis: Axes = None) -> tuple[Any, tc.Tensor]:
    """Return the tensor divided by its norm along `axis`, and that norm."""
    size = norm(wrap(tensor), ord, axis, keepdims=True).native
    return tensor / size, size


@exported("linalg.global_norm")
def global_norm(t_list: Sequence[TensorLike | None], name: str | None = None) -> Any:
    """Return the norm of all tensors together, as of one vector; None is skipped; IndexedSlices count their values."""
    import tape_nn as nn

    return wrap(nn.global_norm([None if t is None else _values_of(t) for t in t_list]))


def _values_of(t: TensorLike) -> tc.Tensor:
    """Return a gradient's values: TensorFlow takes the norm of IndexedSlices without merging duplicates."""
    return t.native.values if isinstance(t, IndexedSlices) else native(t)


def _with_values(t: TensorLike, clipped: tc.Tensor | None) -> Any:
    """Return `clipped` as a gradient of the kind of `t`, dense or IndexedSlices."""
    if clipped is None:
        return None
    if isinstance(t, IndexedSlices):
        return wrap(tc.IndexedSlices(clipped, t.native.indices, t.native.dense_shape))
    return wrap(clipped)


@exported("clip_by_norm")
def clip_by_norm(t: TensorLike, clip_norm: TensorLike, axes: Axis = None, name: str | None = None) -> Any:
    """Scale `t` to the norm `clip_norm` if its own norm along `axes`, by default all, is larger."""
    # t * limit / max(norm, limit) is t itself where the norm is smaller, and has no division by 0 at t = 0.
    rows = _values_of(t)
    norm = tc.linalg.vector_norm(rows, axis=_axes(static(axes)), keepdims=True)
    limit = native(clip_norm, dtypes.of(rows.dtype), like=rows)
    return _with_values(t, rows * limit / tc.maximum(norm, limit))


@exported("clip_by_global_norm")
def clip_by_global_norm(
    t_list: Sequence[TensorLike | None],
    clip_norm: TensorLike,
    use_norm: TensorLike | None = None,
    name: str | None = None,
) -> Any:
    """Scale all tensors by one factor, so that their global norm is at most `clip_norm`; return them and their norm.

    If the norm is not finite, all become NaN, as in TensorFlow. None stays None.
    """
    import tape_nn as nn

    if not isinstance(t_list, list | tuple):
        raise TypeError("`t_list` should be a sequence of tensors. Received " + repr(type(t_list)))
    rows = [None if t is None else _values_of(t) for t in t_list]
    if use_norm is None:
        clipped, norm = nn.clip_by_global_norm(rows, float(native(clip_norm)))
    else:
        norm = native(use_norm)
        factor = float(native(clip_norm)) / tc.maximum(norm, tc.full_like(norm, float(native(clip_norm))))
        clipped = [None if r is None else r * tc.astype(factor, r.dtype) for r in rows]
    return [None if t is None else _with_values(t, c) for t, c in zip(t_list, clipped, strict=True)], wrap(norm)


@op("math.l2_normalize linalg.l2_normalize nn.l2_normalize", "x", static_args="axis")
def l2_normalize(x: tc.Tensor, axis: Axes = None, epsilon: float = 1e-12) -> tc.Tensor:
    """Return `x / max(norm, √epsilon)`, for the Euclidean norm along `axis`."""
    total = tc.sum(tc.square(tc.abs(x)), axis=_axes(axis), keepdims=True)
    return x * tc.astype(tc.reciprocal(tc.sqrt(tc.maximum(total, tc.full_like(total, epsilon)))), x.dtype)


# -- largest elements


class TopKV2(NamedTuple):
    """The result of :func:`top_k`."""

    values: Any
    indices: Any


@op("math.top_k nn.top_k", "input", static_args="k", kernel="TopKV2")
def top_k(input: tc.Tensor, k: int = 1, sorted: bool = True, index_type: DTypeLike = dtypes.int32) -> TopKV2:
    """Return the `k` largest elements of each row, in falling order, and their indices: `(values, indices)`."""
    values, indices = tc.top_k(input, k)
    # `sorted` is ignored: sorted values are allowed where no order is asked for.
    return TopKV2(values, tc.astype(indices, dtypes.native_dtype(index_type)))


for _function in (clip_by_norm,):
    provide(_function)
