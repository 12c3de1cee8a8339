"""Rules that lower kernels in compiled functions: to the calls of NumPy that they consist of, in the same order.

So they have the same bits. Arguments that are out of the ordinary stay a call of the kernel.
"""

from __future__ import annotations

import operator
from typing import TypeGuard

import numpy as np
from tape_compile.extend import Argument, Method, Ref, Rewriter, Rules, Spec, thresholds

from tape_numpy import kernels
from tape_numpy.kernels import FLOATS, INT64, KERNELS
from tape_numpy.thresholds import CACHED_ONES_MAX_LENGTH, TRANSPOSE_MAX_CLASSES

DOT = Method("dot")
_TRANSPOSE = operator.attrgetter("T")
_COPY, _RESHAPE, _ASTYPE = Method("copy"), Method("reshape"), Method("astype")
_SUM, _MAX = KERNELS["sum"], KERNELS["max"]
_MAX_REDUCE = np.maximum.reduce

Axis = int | tuple[int, ...] | None

RULES = Rules()
lower = RULES.rewrite


def _is_array(x: Argument, r: Rewriter) -> TypeGuard[Ref]:
    return type(x) is Ref and r.spec(x).kind is np.ndarray


def _is_float_array(x: Argument, r: Rewriter) -> TypeGuard[Ref]:
    return type(x) is Ref and r.spec(x).kind is np.ndarray and r.spec(x).dtype in FLOATS


@lower(KERNELS["relu"])
def relu(r: Rewriter, x: Argument) -> bool:
    if not _is_float_array(x, r):
        return False
    # An array of zeros of shape (), not the number 0: NumPy would make one in each call, and compares two arrays by
    # vector instructions.
    dtype = r.spec(x).dtype
    return r.become("maximum", np.maximum, x, r.constant(("zero", dtype), lambda: np.zeros((), dtype)))


@lower(_SUM)
def sum_of_rows(r: Rewriter, x: Argument, *, axis: Axis = None, dtype: object = None, keepdims: bool = False) -> bool:
    # As the kernel does: a product with a vector of ones goes along memory, and is faster than a reduction across it.
    if axis != 0 or dtype is not None or keepdims or not _is_float_array(x, r):
        return False
    spec = r.spec(x)
    if len(spec.shape) != 2 or spec.shape[0] > CACHED_ONES_MAX_LENGTH:
        return False
    return r.become("sum", DOT, _ones(r, spec), x)


def _ones(r: Rewriter, spec: Spec) -> Ref:
    rows, dtype = spec.shape[0], spec.dtype
    return r.constant(("ones", rows, dtype), lambda: np.ones(rows, dtype))


@lower(KERNELS["reshape"])
def reshape(r: Rewriter, x: Argument, shape: Argument) -> bool:
    return _is_array(x, r) and r.become("reshape", _RESHAPE, x, shape)


@lower(KERNELS["astype"])
def small_cast(r: Rewriter, x: Argument, dtype: Argument) -> bool:
    # Casts of larger arrays are part of fused blocks.
    is_small = _is_array(x, r) and r.spec(x).size < thresholds.LOWER_LINES_MIN_ELEMENTS
    return is_small and r.become("astype", _ASTYPE, x, dtype)


@lower(KERNELS["mean"])
def mean(r: Rewriter, x: Argument, *, axis: Axis = None, keepdims: bool = False) -> bool:
    if axis is not None:
        if not _reduces_last_axis(x, r, axis):
            return False
        total = r.call("sum", _SUM, x, axis=-1, keepdims=keepdims, spec=_reduced_spec(r, x, keepdims))
        return r.become("divide", operator.truediv, total, r.spec(x).shape[-1])
    if keepdims or not _is_float_array(x, r):
        return False
    spec = r.spec(x)
    if not spec.size:
        return False
    total = r.call("sum", _SUM, x, spec=Spec(spec.dtype.type, (), spec.dtype))
    return r.become("divide", operator.truediv, total, spec.size)


def _reduces_last_axis(x: Argument, r: Rewriter, axis: Argument) -> TypeGuard[Ref]:
    """Return whether the last axis of a large array is reduced: such calls can be fused."""
    if not _is_float_array(x, r) or r.spec(x).size < thresholds.LOWER_LINES_MIN_ELEMENTS:
        return False
    last = len(r.spec(x).shape) - 1
    return last > 0 and axis in (-1, last, (-1,), (last,))


def _reduced_spec(r: Rewriter, x: Ref, keepdims: bool) -> Spec:
    spec = r.spec(x)
    return Spec(np.ndarray, (*spec.shape[:-1], *[1] * keepdims), spec.dtype)


def _shift_and_exp(r: Rewriter, x: Ref, line: Spec) -> tuple[Ref, Ref]:
    """Add the difference from the maximum of the last axis, which is laid out as `line`, and its exponential."""
    spec = r.spec(x)
    top = r.call("max", _MAX, x, axis=-1, keepdims=True, spec=line)
    shifted = r.call("subtract", operator.sub, x, top, spec=spec)
    return shifted, r.call("exp", np.exp, shifted, spec=spec)


@lower(KERNELS["softmax"])
def softmax(r: Rewriter, x: Argument, *, axis: int = -1) -> bool:
    if not _reduces_last_axis(x, r, axis):
        return False
    line = _reduced_spec(r, x, True)
    _, exp = _shift_and_exp(r, x, line)
    return r.become("divide", operator.truediv, exp, r.call("sum", _SUM, exp, axis=-1, keepdims=True, spec=line))


@lower(KERNELS["log_softmax"])
def log_softmax(r: Rewriter, x: Argument, *, axis: int = -1) -> bool:
    if not _reduces_last_axis(x, r, axis):
        return False
    line = _reduced_spec(r, x, True)
    shifted, exp = _shift_and_exp(r, x, line)
    total = r.call("sum", _SUM, exp, axis=-1, keepdims=True, spec=line)
    return r.become("subtract", operator.sub, shifted, r.call("log", np.log, total, spec=line))


def _transposed_softmax_parts(r: Rewriter, logits: Ref) -> tuple[Ref, Ref, Ref]:
    """Class by class: logits less their largest, the exponentials of that, and their sums."""
    # The loss and its gradient call the same first steps: CSE makes them one, so that the exponentials are computed
    # once.
    spec = r.spec(logits)
    n, classes = spec.shape
    transposed = Spec(np.ndarray, (classes, n), spec.dtype)
    line = Spec(np.ndarray, (n,), spec.dtype)
    rows = r.call("copy", _COPY, r.call("T", _TRANSPOSE, logits, spec=transposed), spec=transposed)
    shifted = r.call("subtract", operator.sub, rows, r.call("max", _MAX_REDUCE, rows, 0, spec=line), spec=transposed)
    exp = r.call("exp", np.exp, shifted, spec=transposed)
    return shifted, exp, r.call("sum", DOT, _ones(r, transposed), exp, spec=line)


@lower(operator.matmul)
def diagonal_product(r: Rewriter, a: Argument, b: Argument) -> bool:
    """`(eye * d) @ b`, as the cotangents of a Jacobian come, by the rows of `b`."""
    maker = r.makers.get(a.id) if type(a) is Ref else None
    if type(a) is not Ref or type(b) is not Ref or maker is None or maker.fn is not operator.mul:
        return False
    # A Jacobian begins with an identity as its cotangents. Each elementwise layer multiplies its rows by a diagonal,
    # and the next product by a matrix would be one with all those zeros.
    spec, given = r.spec(a), r.spec(b)
    if len(spec.shape) != 2 or len(given.shape) != 2 or not _is_float_array(a, r) or given.dtype != spec.dtype:
        return False
    for eye, d in (maker.args, maker.args[::-1]):
        if type(eye) is not Ref or type(d) is not Ref or r.spec(d) != Spec(np.ndarray, spec.shape[1:], spec.dtype):
            continue
        if kernels.is_identity(r.constants.get(eye.id)) and kernels.diagonal_matmul_is_exact():
            return r.become("diagonal_matmul", kernels.diagonal_matmul, d, b)
    return False


def _takes_logits(logits: Argument, r: Rewriter, labels: Argument, axis: int) -> TypeGuard[Ref]:
    """Return whether these are few classes for each of several rows, and labels as `kernels` takes them."""
    if not _is_float_array(logits, r) or type(labels) is not Ref:
        return False
    shape, given = r.spec(logits).shape, r.spec(labels)
    return (
        len(shape) == 2
        and 0 < shape[1] <= TRANSPOSE_MAX_CLASSES
        and axis in (-1, 1)
        and given.kind is np.ndarray
        and given.shape == shape[:1]
        and given.dtype == INT64
        and given.size > 0
    )


def _row_numbers(r: Rewriter, logits: Ref) -> Ref:
    n = r.spec(logits).shape[0]
    return r.constant(("each", n), lambda: np.arange(n))


@lower(KERNELS["cross_entropy"])
def cross_entropy(r: Rewriter, logits: Argument, labels: Argument, *, axis: int = -1) -> bool:
    if not _takes_logits(logits, r, labels, axis) or type(labels) is not Ref:
        return False
    n, classes = r.spec(logits).shape
    line = Spec(np.ndarray, (n,), r.spec(logits).dtype)
    if labels.id not in r.constants:  # constant ones were checked while tracing
        labels = r.call("checked", kernels.labels_in_range, labels, classes, spec=r.spec(labels))
    shifted, _, total = _transposed_softmax_parts(r, logits)
    at_labels = r.call("at_labels", operator.getitem, shifted, (labels, _row_numbers(r, logits)), spec=line)
    return r.become("subtract", operator.sub, r.call("log", np.log, total, spec=line), at_labels)


@lower(KERNELS["cross_entropy_vjp"])
def cross_entropy_vjp(r: Rewriter, cotangent: Argument, logits: Argument, labels: Argument, *, axis: int = -1) -> bool:
    if not _takes_logits(logits, r, labels, axis) or type(cotangent) is not Ref or type(labels) is not Ref:
        return False
    if r.spec(cotangent) != Spec(np.ndarray, r.spec(labels).shape, r.spec(logits).dtype):
        return False
    _, exp, total = _transposed_softmax_parts(r, logits)
    return r.become(
        "cross_entropy_vjp", kernels.cross_entropy_slope, cotangent, exp, total, labels, _row_numbers(r, logits)
    )
