"""NumPy's own ways: operators on scalars and arrays, and functions with less in front of the loop.

Each is the op of the same name in `tape_core`; only what is faster, or missing from the standard, is here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from tape_core.backends import check_labels, get_default_dtype

from tape_numpy import indexing, windows

# The reductions without the Python layers of np.sum and its like.
_add: Any = np.add.reduce
_maximum: Any = np.maximum.reduce
_minimum: Any = np.minimum.reduce


def _gather(params: Any, indices: Any) -> Any:
    return params.take(indices, axis=0)


def _one_hot(labels: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Any:
    if dtype is None:
        dtype = get_default_dtype().name
    labels = np.asarray(labels)
    return (np.expand_dims(labels, axis) == _classes(num_classes, labels.ndim + 1, axis)).astype(dtype)


def _classes(n: int, ndim: int, axis: int) -> Any:
    shape = [1] * ndim
    shape[axis] = n
    return np.arange(n).reshape(shape)


def _softmax(x: Any, *, axis: int = -1) -> Any:
    normalize_axis_index(axis, np.ndim(x))
    return _normalised_exp(x, axis)


def _normalised_exp(x: Any, axis: int) -> Any:
    e = np.exp(x - _maximum(x, axis=axis, keepdims=True))
    e /= _sum(e, axis=axis, keepdims=True)
    return e


def _log_softmax(x: Any, *, axis: int = -1) -> Any:
    normalize_axis_index(axis, np.ndim(x))
    shifted = x - _maximum(x, axis=axis, keepdims=True)
    shifted -= np.log(_sum(np.exp(shifted), axis=axis, keepdims=True))
    return shifted


WIDE = np.dtype(np.int64)
SHORT = 32  # lines of so few classes are laid out the other way round: NumPy is slow along short lines


def _cross_entropy(logits: Any, labels: Any, *, axis: int = -1) -> Any:
    labels = np.asarray(labels)
    if axis not in (-1, logits.ndim - 1) or labels.shape != logits.shape[:-1] or labels.dtype is not WIDE:
        check_labels(logits, labels, axis, labels.dtype.kind in "iu")
        return _cross_entropy(np.moveaxis(logits, axis, -1), labels.astype(WIDE))
    n = logits.shape[-1]
    if labels.size:
        checked_labels(labels, n)
    if logits.ndim == 2 and n <= SHORT:
        shifted = logits.T.copy()
        shifted -= _maximum(shifted, axis=0)
        at_labels = shifted[labels, np.arange(len(labels))]
        return np.log(_sum(np.exp(shifted, out=shifted), axis=0)) - at_labels
    shifted = logits - _maximum(logits, axis=-1, keepdims=True)
    return np.log(_sum(np.exp(shifted), axis=-1)) - shifted[_each(labels)]


def checked_labels(labels: Any, n: int) -> Any:
    """Labels that are classes.

    Raises:
        ValueError: one is none of `n`.
    """
    # Read as unsigned, a negative label is a large one: one pass checks both bounds.
    unsigned = labels.view(np.uint64)
    if unsigned.item(unsigned.argmax()) >= n:
        raise ValueError(f"labels must be in [0, {n}), got {labels.min()} to {labels.max()}")
    return labels


checked_labels.refuses = True  # type: ignore[attr-defined]


def _cross_entropy_vjp(cotangent: Any, logits: Any, labels: Any, *, axis: int = -1) -> Any:
    labels = np.asarray(labels)
    if axis not in (-1, logits.ndim - 1):
        d = _cross_entropy_vjp(cotangent, np.moveaxis(logits, axis, -1), labels)
        return np.moveaxis(d, -1, axis)
    if logits.ndim == 2 and logits.shape[-1] <= SHORT:
        d = logits.T.copy()
        d -= _maximum(d, axis=0)
        np.exp(d, out=d)
        return cross_entropy_slope(cotangent, d, _sum(d, axis=0), labels, np.arange(len(labels)))
    d = _normalised_exp(logits, -1)
    d[_each(labels)] -= 1
    d *= cotangent[..., None]
    return d


def cross_entropy_slope(cotangent: Any, exp: Any, total: Any, labels: Any, each: Any) -> Any:
    """The cotangent of logits from their exponentials class by class, and the sums of these."""
    d = exp * (cotangent / total)
    d[labels, each] -= cotangent
    return d.T


def _each(labels: Any) -> tuple[Any, ...]:
    """The key of the element at each label along the last axis."""
    if labels.ndim == 1:
        return np.arange(len(labels)), labels
    return (*np.indices(labels.shape, sparse=True), labels)


def _broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    # np.broadcast_to's Python layers cost more than filling a small array.
    if x.shape == ():
        out = np.ndarray(shape, x.dtype, np.asarray(x), strides=(0,) * len(shape))
        out.flags.writeable = False
        return out
    size = 1
    for length in shape:
        size *= length
    if size > 4096 or len(shape) < x.ndim:  # an assignment would leave out leading axes of length 1
        return np.broadcast_to(x, shape)
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def _ones_like(x: Any, **kwargs: Any) -> Any:
    return np.ones_like(x, **kwargs) if kwargs or type(x) is np.ndarray else type(x)(1)


def _sum(x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    # By products with ones: BLAS forms them several times as fast.
    if axis is not None and dtype is None and x.ndim >= 2 and x.dtype in FLOATS:
        if axis == 0 and x.ndim == 2:  # as for the gradient of a bias
            total = _ones_of(len(x), x.dtype).dot(x)
            return total[None] if keepdims else total
        first, last = sum_span(axis, x.shape) if x.size >= MANY and x.flags.c_contiguous else (0, 0)
        if first < last:
            shape = x.shape
            n = math.prod(shape[first:last])
            if last == x.ndim:
                total = line_sums(x.reshape(-1, n))
            elif first == 0:
                total = _ones_of(n, x.dtype).dot(x.reshape(n, -1))
            else:
                total = _ones_of(n, x.dtype) @ x.reshape(math.prod(shape[:first]), n, -1)
            return total.reshape(shape[:first] + (1,) * ((last - first) * keepdims) + shape[last:])
    return _add(x, axis=axis, dtype=dtype, keepdims=keepdims)


def sum_span(axis: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    """The first axis of a sum and the one behind its last, where it is one of products; else 0, 0."""
    ndim = len(shape)
    axes = (axis,) if type(axis) is int else axis
    if type(axes) is not tuple or not 0 < len(axes) < ndim:
        return 0, 0
    first = axes[0] + ndim if axes[0] < 0 else axes[0]
    last = first + len(axes)
    if first < 0 or last > ndim or (len(axes) > 1 and [a % ndim for a in axes] != [*range(first, last)]):
        return 0, 0
    return (0, 0) if last == ndim and math.prod(shape[first:]) > SHORT_SUM else (first, last)


def has_line_sums(shape: tuple[int, ...]) -> bool:
    """Whether a sum along the last axis of an array that lies row by row is one by `line_sums`."""
    return math.prod(shape) >= MANY and shape[-1] <= SHORT_SUM


def line_sums(x: Any) -> Any:
    """The sums of a matrix's rows, each the same wherever it stands and however many there are.

    BLAS takes several rows at a time, and what is left over in other ways: so the last ones come with zeros behind. And
    it gets so few at a time that it takes one thread.
    """
    m, n = x.shape
    ones, step = _ones_of(n, x.dtype), 8192 // n // 8 * 8
    rest = m % 8
    if m <= step and not rest:
        return x.dot(ones)
    out = np.empty(m, x.dtype)
    for k in range(0, m - rest, step):
        stop = min(k + step, m - rest)
        np.dot(x[k:stop], ones, out=out[k:stop])
    if rest:
        padded = np.zeros((8, n), x.dtype)
        padded[:rest] = x[m - rest :]
        out[m - rest :] = padded.dot(ones)[:rest]
    return out


@cache
def lines_are_alike() -> bool:
    """Whether `line_sums` keeps its promise with this BLAS."""
    rng = np.random.default_rng(0)
    for dtype in FLOATS:
        for n in (2, 3, 10, 25, 64, 127):
            x = rng.normal(size=(16384 // n + 5, n)).astype(dtype)
            whole = line_sums(x)
            for first, last in rng.integers(0, len(x), (8, 2)):
                if line_sums(x[first : first + last]).tobytes() != whole[first : first + last].tobytes():
                    return False
    return True


@cache
def extrema_are_alike() -> bool:
    """Whether the larger and the smaller of an array and a number are those of two arrays, -0.0 and NaN included."""
    values = [-0.0, 0.0, math.nan, -math.nan, 1.0, -1.0, math.inf, -math.inf]
    for dtype in FLOATS:
        x = np.resize(np.array(values, dtype), 69)
        numbers = np.broadcast_to(x[:8, None], (8, 69)).copy()  # a line for each
        for line in numbers:
            for n in (1, 2, 3, 5, 8, 11, 16, 19, 32, 37, 64, 69):
                for fn in (np.maximum, np.minimum):
                    if fn(x[:n], line[0]).tobytes() != fn(x[:n], line[:n]).tobytes():
                        return False
    return True


def _ones_of(n: int, dtype: Any) -> Any:
    return (_ones if n <= FEW else np.ones)(n, dtype)


SHORT_SUM = 128  # elements: longer lines are added up pairwise, which rounds less
MANY = 1 << 11  # elements: of fewer, NumPy's own sums are as fast
FLOATS: frozenset[Any] = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
FEW = 4096  # rows; longer vectors of ones are not kept
_ones = lru_cache(maxsize=32)(np.ones)


def diagonal_matmul(d: Any, x: Any) -> Any:
    """`(np.eye(len(d)) * d) @ x`, to the last bit, at the price of a pass over `x` where all is finite."""
    line = x.ravel(order="K")
    if math.isfinite(line.dot(line)) and math.isfinite(d.dot(d)):
        out = np.multiply(d[:, None], x, order="C")
        out += 0  # as sums begin with 0, none is -0
        return out
    return (np.eye(len(d), dtype=d.dtype) * d) @ x


def is_identity(x: Any) -> bool:
    """Whether an array is an identity matrix."""
    return isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[0] == x.shape[1] and bool((x == np.eye(len(x))).all())


@cache
def adds_to_zero() -> bool:
    """Whether BLAS makes of one product and many zeros that product, and of zeros alone 0, not -0."""
    rng = np.random.default_rng(0)
    for dtype in FLOATS:
        for n, columns in ((2, 2), (17, 5), (100, 100), (130, 300)):
            x = rng.normal(size=(n, columns)).astype(dtype)
            d = rng.normal(size=n).astype(dtype)
            d[::5] = 0
            x[:, ::4] *= -0.0
            product = (np.eye(n, dtype=dtype) * d) @ x
            if diagonal_matmul(d, x).tobytes() != product.tobytes():
                return False
    return True


def _max(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    return _maximum(x, axis=axis, keepdims=keepdims)


def _min(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    return _minimum(x, axis=axis, keepdims=keepdims)


def _mean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    if x.dtype.kind not in "fc" or x.dtype.itemsize < 4:
        return np.mean(x, axis=axis, keepdims=keepdims)
    total = _sum(x, axis=axis, keepdims=keepdims)
    count = x.size // total.size if total.size else 0
    if count == 0:
        return np.mean(x, axis=axis, keepdims=keepdims)
    return total / count


def _isdtype(dtype: Any, kind: Any) -> Any:
    if kind == "complex floating" and type(dtype) is not type:
        return dtype.kind == "c"
    return np.isdtype(dtype, kind)


def _sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    ordered = np.sort(x, axis=axis, stable=stable)
    return np.flip(ordered, axis=axis) if descending else ordered


def _argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    # Backwards twice, so that equal elements keep their order.
    places = np.flip(np.argsort(np.flip(x, axis=axis), axis=axis, stable=stable), axis=axis)
    return x.shape[axis] - 1 - places


def _eig(x: Any) -> tuple[Any, Any]:
    w, v = np.linalg.eig(x)
    # NumPy's are real where they all happen to be; in the standard they are complex.
    dtype = np.result_type(w.dtype, np.complex64)
    return w.astype(dtype, copy=False), v.astype(dtype, copy=False)


def _eigvals(x: Any) -> Any:
    w = np.linalg.eigvals(x)
    return w.astype(np.result_type(w.dtype, np.complex64), copy=False)


KERNELS: dict[str, Callable[..., Any]] = {
    "abs": operator.abs,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negative": operator.neg,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "arange_beside": lambda x, n: np.arange(n),
    "zeros_beside": lambda x, shape, dtype: np.zeros(shape, dtype=dtype),
    "broadcast_to": _broadcast_to,
    "reshape": lambda x, shape, *, copy=None: x.reshape(shape) if copy is None else np.reshape(x, shape, copy=copy),
    "matrix_transpose": operator.attrgetter("mT"),
    "permute_dims": lambda x, axes: x.transpose(axes),
    "astype": lambda x, dtype, *, copy=True: x.astype(dtype, copy=copy),
    "ones_like": _ones_like,
    "isdtype": _isdtype,
    "sum": _sum,
    "mean": _mean,
    "max": _max,
    "min": _min,
    "eig": _eig,
    "eigvals": _eigvals,
    "isin": lambda x1, x2, *, invert=False: np.isin(x1, x2, invert=invert)[()],
    "unique_all": np.unique_all,
    "unique_counts": np.unique_counts,
    "unique_inverse": np.unique_inverse,
    "unique_values": lambda x: np.unique(x, equal_nan=False),
    "sort": _sort,
    "argsort": _argsort,
    "getitem": operator.getitem,
    "scatter": indexing.scatter,
    "setitem": indexing.setitem,
    "scatter_add": indexing.updater(np.add),
    "scatter_multiply": indexing.updater(np.multiply),
    "scatter_min": indexing.updater(np.minimum),
    "scatter_max": indexing.updater(np.maximum),
    "add_rows": indexing.add_rows,
    "top_k": indexing.top_k,
    "gather": _gather,
    "one_hot": _one_hot,
    "relu": lambda x: np.maximum(x, 0),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cross_entropy": _cross_entropy,
    "cross_entropy_vjp": _cross_entropy_vjp,
    **windows.KERNELS,
}

RULES: dict[str, dict[str, Any]] = {
    # NumPy multiplies by a mask faster than np.where selects.
    "relu": {"x": lambda xp, out: xp.astype(out > 0, out.dtype)},
}
