"""Kernels of ops where NumPy's own function of that name is missing or slower.

Many replace a function of NumPy's Python layer by an operator, a method or a ufunc, which for small arrays saves most
of the time. A kernel takes the arguments of the op of the same name in `tape_core`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, Final, SupportsIndex

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from tape_core.backends import check_labels, get_default_dtype, label_error, line_axis
from tape_core.typing import Axis, Kernel, Raw, RawDType

from tape_numpy import indexing, windows
from tape_numpy.thresholds import (
    BLAS_SUM_MAX_LINE,
    BLAS_SUM_MIN_ELEMENTS,
    CACHED_ONES_MAX_LENGTH,
    FILL_MAX_ELEMENTS,
    LINE_SUMS_BLOCK,
    TRANSPOSE_MAX_CLASSES,
)

# The default axis of a ufunc's reduce is 0, that of the functions None: callers always pass it.
# np.sum, np.max and np.min without their Python layers.
_add: Any = np.add.reduce
_maximum: Any = np.maximum.reduce
_minimum: Any = np.minimum.reduce

INT64 = np.dtype(np.int64)
FLOATS: frozenset[np.dtype[Any]] = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


def _gather(params: Raw, indices: Raw) -> Raw:
    # For a few rows `take` needs a quarter of the time of `params[indices]`, which first works out what kind of key it
    # is.
    if not params.ndim:  # NumPy takes from it as if it had one element
        raise IndexError("an array without dimensions has no rows")
    return params.take(indices, axis=0)


def _take(x: Raw, indices: Raw, *, axis: int | None = None) -> Raw:
    # NumPy takes from an array without dimensions as if it had one, and without an axis from the flattened array.
    if axis is None or not x.ndim:
        axis = line_axis(axis, x.ndim)
    return x.take(indices, axis=axis)


def _take_along_axis(x: Raw, indices: Raw, *, axis: int = -1) -> Raw:
    return np.take_along_axis(x, indices, axis)  # before NumPy 2.3 its axis has no default


def _count_nonzero(x: Raw, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Raw:
    # Before NumPy 2.3 the count of all elements is an integer of Python.
    return np.asarray(np.count_nonzero(x, axis=axis, keepdims=keepdims))[()]


def _one_hot(labels: Raw, num_classes: int, *, dtype: RawDType = None, axis: int = -1) -> Raw:
    if dtype is None:
        dtype = get_default_dtype().name
    labels = np.asarray(labels)
    return (np.expand_dims(labels, axis) == _arange_along(num_classes, labels.ndim + 1, axis)).astype(dtype)


def _arange_along(n: int, ndim: int, axis: int) -> Raw:
    """Return arange(n) with `ndim` dimensions, along one of them."""
    shape = [1] * ndim
    shape[axis] = n
    return np.arange(n).reshape(shape)


def _softmax(x: Raw, *, axis: int = -1) -> Raw:
    # A reduction takes axis=-1 of what has no axes, without an error.
    normalize_axis_index(axis, np.ndim(x))
    return _unchecked_softmax(x, axis)


def _unchecked_softmax(x: Raw, axis: int) -> Raw:
    e = np.exp(x - _maximum(x, axis=axis, keepdims=True))
    e /= _sum(e, axis=axis, keepdims=True)
    return e


def _log_softmax(x: Raw, *, axis: int = -1) -> Raw:
    normalize_axis_index(axis, np.ndim(x))  # as in `_softmax`
    shifted = x - _maximum(x, axis=axis, keepdims=True)
    shifted -= np.log(_sum(np.exp(shifted), axis=axis, keepdims=True))
    return shifted


def _cross_entropy(logits: Raw, labels: Raw, *, axis: int = -1) -> Raw:
    labels = np.asarray(labels)
    if axis not in (-1, logits.ndim - 1) or labels.shape != logits.shape[:-1] or labels.dtype is not INT64:
        check_labels(logits, labels, axis, labels.dtype.kind in "iu")
        return _cross_entropy(np.moveaxis(logits, axis, -1), labels.astype(INT64))
    n = logits.shape[-1]
    if labels.size:
        labels_in_range(labels, n)
    if logits.ndim == 2 and n <= TRANSPOSE_MAX_CLASSES:  # transposed: reductions go along long lines
        shifted = logits.T.copy()
        shifted -= _maximum(shifted, axis=0)
        at_labels = shifted[labels, np.arange(len(labels))]
        return np.log(_sum(np.exp(shifted, out=shifted), axis=0)) - at_labels
    shifted = logits - _maximum(logits, axis=-1, keepdims=True)
    return np.log(_sum(np.exp(shifted), axis=-1)) - shifted[_key_of_labels(labels)]


def labels_in_range(labels: Raw, n: int) -> Raw:
    """Return the labels, int64, if all are from 0 to n - 1.

    Raises:
        ValueError: one is not.
    """
    # Read as unsigned, a negative label is a large one: one pass checks both bounds.
    unsigned = labels.view(np.uint64)
    if unsigned.item(unsigned.argmax()) >= n:
        raise label_error(labels.min(), labels.max(), n)
    return labels


# Compiled code keeps a call that may refuse its arguments, though its result be unused.
labels_in_range.refuses = True  # type: ignore[attr-defined]


def _cross_entropy_vjp(cotangent: Raw, logits: Raw, labels: Raw, *, axis: int = -1) -> Raw:
    labels = np.asarray(labels)
    if axis not in (-1, logits.ndim - 1):
        d = _cross_entropy_vjp(cotangent, np.moveaxis(logits, axis, -1), labels)
        return np.moveaxis(d, -1, axis)
    # The labels are those of the forward pass, which has checked them.
    if logits.ndim == 2 and logits.shape[-1] <= TRANSPOSE_MAX_CLASSES:
        d = logits.T.copy()
        d -= _maximum(d, axis=0)
        np.exp(d, out=d)
        return cross_entropy_slope(cotangent, d, _sum(d, axis=0), labels, np.arange(len(labels)))
    d = _unchecked_softmax(logits, -1)
    d[_key_of_labels(labels)] -= 1
    d *= cotangent[..., None]
    return d


def cross_entropy_slope(cotangent: Raw, exp: Raw, total: Raw, labels: Raw, each: Raw) -> Raw:
    """Return the cotangent of logits, `(softmax - one_hot) * cotangent`, with arrays transposed: classes first.

    Args:
        exp: the exponentials of the shifted logits, of shape (classes, examples).
        total: their sums over the classes.
        each: `arange(examples)`.
    """
    d = exp * (cotangent / total)
    d[labels, each] -= cotangent
    return d.T


def _key_of_labels(labels: Raw) -> tuple[Raw, ...]:
    """Return the key of the element at each label along the last axis."""
    if labels.ndim == 1:
        return np.arange(len(labels)), labels
    return (*np.indices(labels.shape, sparse=True), labels)


def _broadcast_to(x: Raw, shape: tuple[int, ...]) -> Raw:
    # np.broadcast_to takes several microseconds in Python: more than filling a small array.
    if x.shape == ():
        # A view of the one element, with strides of 0: as np.broadcast_to makes it, and as read-only.
        out = np.ndarray(shape, x.dtype, np.asarray(x), strides=(0,) * len(shape))
        out.flags.writeable = False
        return out
    size = 1
    for length in shape:
        size *= length
    # With fewer dimensions than x, broadcast_to raises, but an assignment would drop leading axes of length 1.
    if size > FILL_MAX_ELEMENTS or len(shape) < x.ndim:
        return np.broadcast_to(x, shape)
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def _tile(x: Raw, repetitions: SupportsIndex | Iterable[SupportsIndex]) -> Raw:
    # np.tile dispatches on `repetitions`, too: with a Tensor there it would call Tape, which calls this, without end.
    if isinstance(repetitions, Iterable) and getattr(repetitions, "shape", None) != ():
        return np.tile(x, tuple(map(operator.index, repetitions)))
    return np.tile(x, operator.index(repetitions))  # type: ignore[arg-type]


def _ones_like(x: Raw, **kwargs: Any) -> Raw:
    return np.ones_like(x, **kwargs) if kwargs or type(x) is np.ndarray else type(x)(1)


def _sum(x: Raw, *, axis: Axis = None, dtype: RawDType = None, keepdims: bool = False) -> Raw:
    # A reduction takes 20 ns for each line before it adds anything, which is most of its time on short lines.
    # Along some axes as a product with ones, which BLAS computes several times as fast.
    if axis is not None and dtype is None and x.ndim >= 2 and x.dtype in FLOATS:
        if axis == 0 and x.ndim == 2:  # as for the gradient of a bias
            total = _ones(len(x), x.dtype).dot(x)
            return total[None] if keepdims else total
        large = x.size >= BLAS_SUM_MIN_ELEMENTS and x.flags.c_contiguous
        first, last = sum_span(axis, x.shape) if large else (0, 0)
        if first < last:
            shape = x.shape
            n = math.prod(shape[first:last])
            if last == x.ndim:
                total = line_sums(x.reshape(-1, n))
            elif first == 0:
                total = _ones(n, x.dtype).dot(x.reshape(n, -1))
            else:
                total = _ones(n, x.dtype) @ x.reshape(math.prod(shape[:first]), n, -1)
            return total.reshape(shape[:first] + (1,) * ((last - first) * keepdims) + shape[last:])
    return _add(x, axis=axis, dtype=dtype, keepdims=keepdims)


def sum_span(axis: Axis, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the range of axes, first and last + 1, of a sum that is computed as a product with ones; else (0, 0)."""
    ndim = len(shape)
    axes = (axis,) if type(axis) is int else axis
    if type(axes) is not tuple or not 0 < len(axes) < ndim:
        return 0, 0
    first = axes[0] + ndim if axes[0] < 0 else axes[0]
    last = first + len(axes)
    if first < 0 or last > ndim or (len(axes) > 1 and [a % ndim for a in axes] != [*range(first, last)]):
        return 0, 0
    return (0, 0) if last == ndim and math.prod(shape[first:]) > BLAS_SUM_MAX_LINE else (first, last)


def has_line_sums(shape: tuple[int, ...]) -> bool:
    """Return whether a sum along the last axis of a C-contiguous array of this shape is computed by `line_sums`."""
    return math.prod(shape) >= BLAS_SUM_MIN_ELEMENTS and shape[-1] <= BLAS_SUM_MAX_LINE


_ROWS_AT_A_TIME: Final = 8  # rows that a BLAS kernel takes at once, or a multiple of that


def line_sums(x: Raw) -> Raw:
    """Return the sums of a matrix's rows, with bits that do not depend on the place of a row or the number of rows.

    So compiled code, which sums block by block, has the bits of eager code. BLAS takes several rows at a time and left
    over ones in another way: so the last rows are padded to a multiple of 8. With several threads the rows would be
    divided otherwise: so it gets few enough at a time to take one thread.
    """
    m, n = x.shape
    rows = _ROWS_AT_A_TIME
    ones, step = _ones(n, x.dtype), LINE_SUMS_BLOCK // n // rows * rows
    rest = m % rows
    if m <= step and not rest:
        return x.dot(ones)
    out = np.empty(m, x.dtype)
    for k in range(0, m - rest, step):
        stop = min(k + step, m - rest)
        np.dot(x[k:stop], ones, out=out[k:stop])
    if rest:
        padded = np.zeros((rows, n), x.dtype)
        padded[:rest] = x[m - rest :]
        out[m - rest :] = padded.dot(ones)[:rest]
    return out


@cache
def line_sums_are_reproducible() -> bool:
    """Return whether `line_sums` keeps its promise with this BLAS: tried once, on random rows."""
    # Which rows a kernel takes together depends on BLAS and processor, so parts of random length
    # that begin at random rows are compared.
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
def extrema_take_numbers() -> bool:
    """Return whether np.maximum and np.minimum of an array and a number have the bits of those of two arrays.

    For -0.0 and NaN this depends on the vector instructions; it is tried once. Compiled code uses two arrays.
    """
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


_cached_ones = lru_cache(maxsize=32)(np.ones)


def _ones(n: int, dtype: RawDType) -> Raw:
    return (_cached_ones if n <= CACHED_ONES_MAX_LENGTH else np.ones)(n, dtype)


def diagonal_matmul(d: Raw, x: Raw) -> Raw:
    """Return `(np.eye(len(d)) * d) @ x`, to the last bit, with one pass over `x` if everything is finite."""
    # A sum of squares is finite only if all elements are: one product in place of np.isfinite(x).all(), which makes a
    # mask. If it overflows for finite elements, the matrix product below is right, too.
    line = x.ravel(order="K")
    if math.isfinite(line.dot(line)) and math.isfinite(d.dot(d)):
        out = np.multiply(d[:, None], x, order="C")
        out += 0  # -0 + 0 is 0: the matrix product adds zeros to each product, and so has no -0
        return out
    return (np.eye(len(d), dtype=d.dtype) * d) @ x  # infinity times the zeros of the matrix is NaN


def is_identity(x: object) -> bool:
    """Return whether an array is an identity matrix."""
    return isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[0] == x.shape[1] and bool((x == np.eye(len(x))).all())


@cache
def diagonal_matmul_is_exact() -> bool:
    """Return whether `diagonal_matmul` keeps its promise with this BLAS: tried once, on random matrices."""
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


def _max(x: Raw, *, axis: Axis = None, keepdims: bool = False) -> Raw:
    return _maximum(x, axis=axis, keepdims=keepdims)


def _min(x: Raw, *, axis: Axis = None, keepdims: bool = False) -> Raw:
    return _minimum(x, axis=axis, keepdims=keepdims)


def _mean(x: Raw, *, axis: Axis = None, keepdims: bool = False) -> Raw:
    if x.dtype.kind not in "fc" or x.dtype.itemsize < 4:  # np.mean adds integers in float64, and float16 in float32
        return np.mean(x, axis=axis, keepdims=keepdims)
    total = _sum(x, axis=axis, keepdims=keepdims)
    count = x.size // total.size if total.size else 0
    if count == 0:  # np.mean warns
        return np.mean(x, axis=axis, keepdims=keepdims)
    return total / count


def _isdtype(dtype: RawDType, kind: str | tuple[str, ...] | RawDType) -> bool:
    if kind == "complex floating" and type(dtype) is not type:  # the question of many kernels
        return bool(dtype.kind == "c")
    return np.isdtype(dtype, kind)


def _sort(x: Raw, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Raw:
    ordered = np.sort(x, axis=axis, stable=stable)
    return np.flip(ordered, axis=axis) if descending else ordered


def _argsort(x: Raw, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Raw:
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    # Reversed before and after, equal elements keep their order.
    places = np.flip(np.argsort(np.flip(x, axis=axis), axis=axis, stable=stable), axis=axis)
    return x.shape[axis] - 1 - places


def _eig(x: Raw) -> tuple[Raw, Raw]:
    w, v = np.linalg.eig(x)
    # NumPy returns real eigenvalues if all happen to be real; the standard asks for complex ones.
    dtype = np.result_type(w.dtype, np.complex64)
    return w.astype(dtype, copy=False), v.astype(dtype, copy=False)


def _eigvals(x: Raw) -> Raw:
    w = np.linalg.eigvals(x)
    return w.astype(np.result_type(w.dtype, np.complex64), copy=False)


def _band(x: Raw, *, first: int | None = None, last: int | None = None) -> Raw:
    if x.ndim < 2:
        raise ValueError(f"band: x must have at least 2 dimensions, got shape {x.shape}")
    if first is None or first != last:
        x = x if last is None else np.tril(x, last)
        return x if first is None else np.triu(x, first)
    # To write one diagonal into zeros takes a quarter of the time of a mask.
    *stack, rows, columns = x.shape
    found: Raw = np.zeros(x.shape, x.dtype)
    diagonal = np.diagonal(x, first, -2, -1)
    begin = first if first >= 0 else -first * columns
    found.reshape(*stack, rows * columns)[..., begin :: columns + 1][..., : diagonal.shape[-1]] = diagonal
    return found


# Operators in place of ufuncs: on NumPy scalars, which Tensors of shape () hold, `x + y` takes a ninth of the time of
# np.add(x, y); on arrays both take as long.
KERNELS: dict[str, Kernel] = {
    "count_nonzero": _count_nonzero,
    "abs": operator.abs,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negative": operator.neg,
    "pow": operator.pow,
    "reciprocal": lambda x: np.reciprocal(x) if x.dtype.kind in "fc" else 1 / x,  # NumPy's of integers are integers
    "matmul": operator.matmul,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "arange_beside": lambda x, n: np.arange(n),
    "band": _band,
    "zeros_beside": lambda x, shape, dtype: np.zeros(shape, dtype=dtype),
    "broadcast_to": _broadcast_to,
    "reshape": lambda x, shape, *, copy=None: x.reshape(shape) if copy is None else np.reshape(x, shape, copy=copy),
    "matrix_transpose": operator.attrgetter("mT"),
    "permute_dims": lambda x, axes: x.transpose(axes),
    "astype": lambda x, dtype, *, copy=True: x.astype(dtype, copy=copy),
    "ones_like": _ones_like,
    "isdtype": _isdtype,
    "sum": _sum,
    "tile": _tile,
    "mean": _mean,
    "max": _max,
    "min": _min,
    "eig": _eig,
    "eigvals": _eigvals,
    # np.isin returns an array also for a scalar.
    "isin": lambda x1, x2, *, invert=False: np.isin(x1, x2, invert=invert)[()],
    "unique_all": np.unique_all,
    "unique_counts": np.unique_counts,
    "unique_inverse": np.unique_inverse,
    # np.unique_values gives the values in the order of a hash table, from NumPy 2.3 on. The standard allows that, but
    # other backends, and the other three functions, sort.
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
    "take": _take,
    "take_along_axis": _take_along_axis,
    "one_hot": _one_hot,
    "relu": lambda x: np.maximum(x, 0),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cross_entropy": _cross_entropy,
    "cross_entropy_vjp": _cross_entropy_vjp,
    **windows.KERNELS,
}

RULES: dict[str, dict[str, Callable[..., Any]]] = {
    # Multiplying by a mask is faster than np.where.
    "relu": {"x": lambda xp, out: xp.astype(out > 0, out.dtype)},
}
