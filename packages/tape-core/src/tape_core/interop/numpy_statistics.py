"""NumPy's statistical functions; see `tape_core.interop.numpy_functions`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tape_core as tc
from tape_core.backends.axes import normal_axis
from tape_core.ops.statistical import normal_axes
from tape_core.typing import ArrayLike, Axis, DTypeLike


def _as_floating(a: ArrayLike) -> Any:
    """Return `a` in a floating dtype: float64 for integers, whose mean NumPy computes in that."""
    a = tc.asarray(a)
    return a if a.dtype.inexact else tc.astype(a, "float64")


def _merge_axes(a: ArrayLike, axis: Axis) -> tuple[Any, tuple[int, ...]]:
    """Return the array with the axes of a reduction as one, its last, and the shape of the result with `keepdims`."""
    for k in () if axis is None else axis if isinstance(axis, tuple) else (axis,):
        normal_axis(k, a.ndim)
    axes = normal_axes(axis, a.ndim)
    kept = tuple(k for k in range(a.ndim) if k not in axes)
    moved = tc.permute_dims(a, kept + axes)
    length = math.prod(a.shape[k] for k in axes)
    shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape))
    return tc.reshape(moved, (*(a.shape[k] for k in kept), length)), shape


def _check_real(a: ArrayLike, label: str) -> Any:
    if a.dtype.kind == "complex floating":
        raise TypeError(f"numpy.{label}: complex numbers have no order")
    return a


# -- order statistics

_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""The parameters alpha and beta of Hyndman and Fan, "Sample quantiles in statistical packages", 1996."""

_ROUNDED = frozenset({"lower", "higher", "midpoint", "nearest"})


def _quantile(a: ArrayLike, q: ArrayLike, axis: Axis, method: str, keepdims: bool, label: str, ignore_nan: bool) -> Any:
    if method not in _CONTINUOUS and method not in _ROUNDED:
        known = ", ".join([*_CONTINUOUS, *sorted(_ROUNDED)])
        raise ValueError(f"numpy.{label}: method must be one of {known}; got {method!r}")
    a = _check_real(_as_floating(a), label)
    if not isinstance(q, tc.Tensor) and not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise ValueError(f"numpy.{label}: quantiles must be in [0, 1], and percentiles in [0, 100]")
    if isinstance(q, int | float):
        q = tc.asarray(float(q), dtype=a.dtype, backend=a.backend.root)
    else:
        q = q if isinstance(q, tc.Tensor) else tc.asarray(np.asarray(q, dtype=float), backend=a.backend.root)
    if q.ndim > 1 or 0 in a.shape:
        raise ValueError(f"numpy.{label}: q must have at most one dimension, and the array an element")
    lines, shape = _merge_axes(a, axis)
    lines = tc.sort(lines, axis=-1)  # NaN last: the numbers of a line are its first `number` elements
    missing = tc.isnan(lines)
    share = tc.reshape(q, (-1,))
    number: Any = lines.shape[-1]
    if ignore_nan:
        number = tc.astype(tc.count_nonzero(~missing, axis=-1, keepdims=True), share.dtype)
    alpha, beta = _CONTINUOUS.get(method, (1.0, 1.0))
    # Hyndman and Fan's place among the order statistics, counted from 0.
    place = share * (number + (1 - alpha - beta)) + (alpha - 1)
    place = tc.clip(tc.broadcast_to(place, (*lines.shape[:-1], *place.shape[-1:])), 0, number - 1)
    # Between two neighbours the result is linear: the derivative with respect to q is that of `part` alone.
    low = tc.stop_gradient(tc.maximum(tc.floor(place), 0))
    high = tc.minimum(low + 1, number - 1)
    part = place - low
    if method in _ROUNDED:
        if method == "nearest":
            part = tc.round(place) - low
        else:
            between = tc.astype(part > 0, part.dtype)
            part = between * {"lower": 0.0, "higher": 1.0, "midpoint": 0.5}[method]
    # A line of nothing but NaN has places before its first element: that, a NaN, is taken.
    ends = [tc.take_along_axis(lines, tc.astype(tc.maximum(k, 0), "int64"), axis=-1) for k in (low, high)]
    found = ends[0] + (ends[1] - ends[0]) * part
    # With a NaN in a line, its last element is one, and so is the result.
    if not ignore_nan:
        found = tc.where(missing[..., -1:], lines[..., -1:], found)
    found = tc.moveaxis(found, -1, 0)
    return tc.reshape(found, (*q.shape, *(shape if keepdims else lines.shape[:-1])))


def quantile(a: ArrayLike, /, q: ArrayLike, axis: Axis = None, method: str = "linear", keepdims: bool = False) -> Any:
    return _quantile(a, q, axis, method, keepdims, "quantile", False)


def nanquantile(
    a: ArrayLike, /, q: ArrayLike, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    return _quantile(a, q, axis, method, keepdims, "nanquantile", True)


def _as_quantile(q: ArrayLike) -> Any:
    if isinstance(q, tc.Tensor) and not q.dtype.inexact:
        q = tc.astype(q, "float64")
    return q / 100 if isinstance(q, tc.Tensor | int | float) else np.asarray(q) / 100


def percentile(a: ArrayLike, /, q: ArrayLike, axis: Axis = None, method: str = "linear", keepdims: bool = False) -> Any:
    return _quantile(a, _as_quantile(q), axis, method, keepdims, "percentile", False)


def nanpercentile(
    a: ArrayLike, /, q: ArrayLike, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    return _quantile(a, _as_quantile(q), axis, method, keepdims, "nanpercentile", True)


def median(a: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Any:
    return _quantile(a, 0.5, axis, "linear", keepdims, "median", False)


def nanmedian(a: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Any:
    return _quantile(a, 0.5, axis, "linear", keepdims, "nanmedian", True)


# -- without NaN


def _count_present(a: ArrayLike, axis: Axis, keepdims: bool, dtype: DTypeLike) -> Any:
    return tc.astype(tc.count_nonzero(~tc.isnan(a), axis=axis, keepdims=keepdims), dtype)


def _nan_extremum(a: ArrayLike, reduce: Any, worst: float, axis: Axis, keepdims: bool) -> Any:
    if not a.dtype.inexact:
        return reduce(a, axis=axis, keepdims=keepdims)
    missing = tc.isnan(a)
    # `worst` never wins against a number, so it decides only where all are missing: there the result is NaN.
    found = reduce(tc.where(missing, worst, a), axis=axis, keepdims=keepdims)
    return tc.where(tc.all(missing, axis=axis, keepdims=keepdims), math.nan, found)


def nanmax(a: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Any:
    return _nan_extremum(a, tc.max, -math.inf, axis, keepdims)


def nanmin(a: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Any:
    return _nan_extremum(a, tc.min, math.inf, axis, keepdims)


def nansum(a: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Any:
    return tc.sum(tc.where(tc.isnan(a), 0, a), axis=axis, keepdims=keepdims)


def nanprod(a: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Any:
    return tc.prod(tc.where(tc.isnan(a), 1, a), axis=axis, keepdims=keepdims)


def nancumsum(a: ArrayLike, /, axis: Axis = None) -> Any:
    return _accumulate(tc.cumulative_sum, a, 0, axis)


def nancumprod(a: ArrayLike, /, axis: Axis = None) -> Any:
    return _accumulate(tc.cumulative_prod, a, 1, axis)


def _accumulate(function: Callable[..., Any], a: ArrayLike, neutral: int, axis: Axis) -> Any:
    a = tc.where(tc.isnan(a), neutral, a) if a.dtype.inexact else a
    return function(tc.reshape(a, (-1,)) if axis is None else a, axis=0 if axis is None else axis)


def _cast(name: str, a: ArrayLike, dtype: DTypeLike) -> Any:
    """Return `a` in the floating dtype that is asked for, or else in the one that NumPy computes in."""
    if dtype is None:
        return _as_floating(a)
    found = tc.zeros(0, dtype=dtype).dtype
    if not found.inexact or (a.dtype.kind == "complex floating" != found.kind):
        raise TypeError(f"numpy.{name}: dtype must be floating for Tensors, and complex for complex ones; got {dtype}")
    return tc.astype(a, dtype)


def nanmean(a: ArrayLike, /, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Any:
    a = _cast("nanmean", a, dtype)
    return nansum(a, axis=axis, keepdims=keepdims) / _count_present(a, axis, keepdims, a.dtype)


def nanvar(
    a: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: Any = None,
) -> Any:
    a = _cast("nanvar", a, dtype)
    missing = tc.isnan(a)
    centred = tc.where(missing, 0, a - nanmean(a, axis=axis, keepdims=True))
    squares = tc.abs(centred) ** 2 if a.dtype.kind == "complex floating" else centred * centred
    total = tc.sum(squares, axis=axis, keepdims=keepdims)
    left = _count_present(a, axis, keepdims, total.dtype) - (ddof if correction is None else correction)
    # With too few numbers for `ddof` the result is NaN, as in NumPy, and never a negative variance.
    return total / tc.where(left > 0, left, math.nan)


def nanstd(
    a: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: Any = None,
) -> Any:
    found = nanvar(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, correction=correction)
    return tc.where(found == 0, 0, tc.sqrt(found))


# -- covariance


def _observations(x: ArrayLike, rowvar: bool, label: str) -> Any:
    if x.ndim > 2:
        raise ValueError(f"numpy.{label}: an array of at most two dimensions is needed, got shape {x.shape}")
    x = tc.reshape(x, (1, -1)) if x.ndim < 2 else x
    return x if rowvar or x.shape[0] == 1 else x.mT


def _as_double(x: ArrayLike) -> Any:
    return tc.astype(x, tc.complex128 if x.dtype.kind == "complex floating" else tc.float64)


def cov(
    m: ArrayLike,
    /,
    y: ArrayLike = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike = None,
    aweights: ArrayLike = None,
    *,
    dtype: DTypeLike = None,
) -> Any:
    x = _observations(_as_double(m), rowvar, "cov")
    if y is not None:
        x = tc.concat([x, _observations(_as_double(y), rowvar, "cov")])
    x = x if dtype is None else tc.astype(x, dtype)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            given = tc.astype(tc.asarray(given), tc.float64)
            weights = given if weights is None else weights * given
    if weights is None:
        total: Any = x.shape[1]
        centred = weighted = x - tc.mean(x, axis=1, keepdims=True)
        factor: Any = max(total - ddof, 0)  # of too few observations it is NaN
    else:
        total = tc.sum(weights)
        centred = x - tc.sum(x * weights, axis=1, keepdims=True) / total
        weighted = centred * weights
        factor = total if ddof == 0 else total - ddof
        # As in NumPy: fweights are counts of observations, so their sum is n; aweights are shares, and n - ddof is then
        # V1 - ddof * V2 / V1, of the sums of the weights and of their squares.
        if ddof and aweights is not None:
            squares = weights * tc.astype(tc.asarray(aweights), tc.float64)
            factor = total - ddof * tc.sum(squares) / total
    conjugate = tc.conj(weighted) if weighted.dtype.kind == "complex floating" else weighted
    found = tc.matmul(centred, conjugate.mT) / factor
    return tc.reshape(found, tuple(n for n in found.shape if n != 1))


def corrcoef(x: ArrayLike, /, y: ArrayLike = None, rowvar: bool = True, *, dtype: DTypeLike = None) -> Any:
    found = cov(x, y, rowvar, dtype=dtype)
    if found.ndim == 0:
        return found / found
    size = tc.sqrt(tc.real(tc.linalg.diagonal(found)))
    found = found / size[:, None] / size
    if found.dtype.kind == "complex floating":
        return found
    return tc.clip(found, -1, 1)  # rounding may lead out of [-1, 1]
