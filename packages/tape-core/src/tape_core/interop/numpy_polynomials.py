"""NumPy's functions of polynomials, of counts, of rows one by one, and of tensor equations; see `numpy_functions`.

Positional-only parameters are arrays, as there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tape_core as tc
from tape_core.engine.tensor import Tensor
from tape_core.interop.numpy_functions import linalg_lstsq
from tape_core.typing import ArrayLike


def _filled(like: Tensor, shape: tuple[int, ...], value: float) -> Tensor:
    """An array of one value, with the dtype of another one and beside it."""
    return tc.full(shape, value, dtype=like.dtype, backend=like.backend.root, device=like.device)


# -- polynomials, the coefficient of the highest power first


def _coefficients(p: ArrayLike) -> Any:
    p = tc.asarray(p)
    return tc.reshape(p, (1,)) if p.ndim == 0 else p


def _without_leading_zeros(p: ArrayLike) -> Any:
    p = _coefficients(p)
    first = int(np.argmax(np.append(p.backend.numpy(p._array) != 0, True)))
    return p[min(first, p.shape[0] - 1) :]


def _padded(p: ArrayLike, length: int) -> Any:
    missing = length - p.shape[0]
    return tc.concat([_filled(p, (missing,), 0.0), p]) if missing else p


def polyadd(a1: ArrayLike, a2: ArrayLike, /) -> Any:
    a1, a2 = _coefficients(a1), _coefficients(a2)
    length = max(a1.shape[0], a2.shape[0])
    return _padded(a1, length) + _padded(a2, length)


def polysub(a1: ArrayLike, a2: ArrayLike, /) -> Any:
    return polyadd(a1, -_coefficients(a2))


def polymul(a1: ArrayLike, a2: ArrayLike, /) -> Any:
    return tc.convolve(_without_leading_zeros(a1), _without_leading_zeros(a2), "full")


def polyder(p: ArrayLike, /, m: int = 1) -> Any:
    p = _coefficients(p)
    for _ in range(m):
        degree = p.shape[0] - 1
        p = p[:degree] * tc.arange(degree, 0, -1, dtype=p.dtype, backend=p.backend.root, device=p.device)
    return p


def polyint(p: ArrayLike, /, m: int = 1) -> Any:
    p = _coefficients(p)
    p = p if p.dtype.inexact else tc.astype(p, tc.float64)
    for _ in range(m):
        powers = tc.arange(p.shape[0], 0, -1, dtype=p.dtype, backend=p.backend.root, device=p.device)
        p = tc.concat([p / powers, _filled(p, (1,), 0.0)])
    return p


def poly(seq_of_zeros: ArrayLike, /) -> Any:
    zeros = _coefficients(seq_of_zeros)
    if zeros.ndim != 1:
        raise TypeError(
            "numpy.poly: the characteristic polynomial of a matrix has no counterpart; give its eigenvalues"
        )
    product = _filled(zeros, (1,), 1.0)
    for k in range(zeros.shape[0]):
        end = _filled(zeros, (1,), 0.0)
        product = tc.concat([product, end]) - zeros[k] * tc.concat([end, product])
    return product


def polyfit(x: ArrayLike, y: ArrayLike, /, deg: int, *, w: ArrayLike = None) -> Any:
    x, y = (v if v.dtype.inexact else tc.astype(v, tc.float64) for v in (tc.asarray(x), tc.asarray(y)))
    columns = tc.stack([x**k for k in range(deg, -1, -1)], axis=1)
    if w is not None:
        w = tc.asarray(w)
        columns, y = columns * w[:, None], y * (w[:, None] if y.ndim == 2 else w)
    scale = tc.sqrt(tc.sum(columns * columns, axis=0))
    found = linalg_lstsq(columns / scale, y)[0]
    return found / (scale[:, None] if found.ndim == 2 else scale)


# -- counts and choices


def bincount(x: ArrayLike, /, weights: ArrayLike = None, minlength: int = 0) -> Any:
    x = tc.asarray(x)
    counts = np.bincount(x.backend.numpy(x._array), minlength=minlength)
    if weights is None:
        return tc.asarray(counts, backend=x.backend.root, device=x.device)
    weights = tc.astype(tc.asarray(weights), tc.float64)
    return tc.at(_filled(weights, counts.shape, 0.0))[x].add(weights)


def choose(a: ArrayLike, choices: ArrayLike, /) -> Any:
    a, choices = tc.asarray(a), tc.asarray(choices)
    shape = np.broadcast_shapes(a.shape, choices.shape[1:])
    count, own = choices.shape[0], choices.shape[1:]
    aligned = tc.reshape(choices, (count, *(1,) * (len(shape) - len(own)), *own))
    chosen = tc.broadcast_to(a, shape)[None]
    return tc.take_along_axis(tc.broadcast_to(aligned, (count, *shape)), chosen, axis=0)[0]


def trim_zeros(filt: ArrayLike, /, trim: str = "fb") -> Any:
    filt = tc.asarray(filt)
    if filt.ndim != 1:
        raise TypeError(f"numpy.trim_zeros: arrays of {filt.ndim} dimensions have no counterpart for Tensors")
    places = np.flatnonzero(filt.backend.numpy(filt._array))
    first, last = (int(places[0]), int(places[-1]) + 1) if places.size else (filt.shape[0], filt.shape[0])
    return filt[first if "f" in trim.lower() else 0 : last if "b" in trim.lower() else filt.shape[0]]


def unwrap(p: ArrayLike, /, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> Any:
    p = tc.asarray(p)
    p = p if p.dtype.inexact else tc.astype(p, tc.float64)
    values = p.backend.numpy(p._array)
    # What is added is a multiple of the period, constant almost everywhere.
    added = np.unwrap(values, discont, axis, period=period) - values
    return p + tc.asarray(added.astype(values.dtype), backend=p.backend.root, device=p.device)


def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    x1, x2 = tc.asarray(x1), tc.asarray(x2)
    x1 = x1 if x1.dtype.inexact else tc.astype(x1, tc.float64)
    return x1 * tc.pow(tc.asarray(2.0, dtype=x1.dtype, backend=x1.backend.root), tc.astype(x2, x1.dtype))


# -- rows


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, /, *args: Any) -> Any:
    arr = tc.asarray(arr)
    axis = axis % arr.ndim
    rows = tc.moveaxis(arr, axis, -1)
    outer = rows.shape[:-1]
    results = [tc.asarray(func1d(rows[place], *args)) for place in itertools.product(*map(range, outer))]
    if not results:
        raise ValueError("numpy.apply_along_axis: there is no row to apply the function to")
    found = tc.reshape(tc.stack(results), (*outer, *results[0].shape))
    inner = results[0].ndim
    # The result's own axes take the place of the one that the function was applied along.
    return tc.moveaxis(found, tuple(range(-inner, 0)), tuple(range(axis, axis + inner))) if inner else found


def lib_stride_tricks_sliding_window_view(
    x: ArrayLike, /, window_shape: int | Sequence[int], axis: int | Sequence[int] | None = None
) -> Any:
    x = tc.asarray(x)
    lengths = [window_shape] if isinstance(window_shape, int) else list(window_shape)
    axes = list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if len(lengths) != len(axes):
        raise ValueError(f"numpy: a window of {len(lengths)} dimensions does not fit {len(axes)} axes")
    for length, k in zip(lengths, axes, strict=True):
        count = x.shape[k] - length + 1
        if count < 1:
            raise ValueError("numpy: a window must not be larger than the array")
        places = np.arange(count)[:, None] + np.arange(length)
        # The windows come in place of the axis, and their own axis last.
        x = tc.moveaxis(tc.moveaxis(x, k, 0)[tc.asarray(places, backend=x.backend.root)], (0, 1), (k % x.ndim, -1))
    return x


# -- equations of tensors


def linalg_tensorsolve(a: ArrayLike, b: ArrayLike, /, axes: Sequence[int] | None = None) -> Any:
    a, b = tc.asarray(a), tc.asarray(b)
    if axes is not None:
        rest = [k for k in range(a.ndim) if k not in [axis % a.ndim for axis in axes]]
        a = tc.permute_dims(a, (*rest, *[axis % a.ndim for axis in axes]))
    shape = a.shape[b.ndim :]
    size = math.prod(shape)
    if a.size != size * size:
        raise ValueError(f"numpy.linalg.tensorsolve: the equations are not square: shapes {a.shape} and {b.shape}")
    return tc.reshape(tc.linalg.solve(tc.reshape(a, (size, size)), tc.reshape(b, (size,))), shape)


def linalg_tensorinv(a: ArrayLike, /, ind: int = 2) -> Any:
    a = tc.asarray(a)
    if ind < 1:
        raise ValueError(f"numpy.linalg.tensorinv: ind must be positive; got {ind}")
    size = math.prod(a.shape[ind:])
    return tc.reshape(tc.linalg.inv(tc.reshape(a, (-1, size))), (*a.shape[ind:], *a.shape[:ind]))
