"""Kernels in compiled functions as the calls of NumPy that they consist of, in the same order: the same bits.

Each function here writes those calls to `steps`, and says whether it has: what is out of the ordinary stays a call of
the kernel.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from tape_compile.extend import LARGE, Method, Ref, Spec

from tape_numpy import kernels
from tape_numpy.kernels import FEW, FLOATS, KERNELS, SHORT, WIDE

DOT = Method("dot")
_T = operator.attrgetter("T")
_COPY = Method("copy")
_SUM, _MAX = KERNELS["sum"], KERNELS["max"]
_max = np.maximum.reduce


def expansion(fn: Any) -> Callable[..., bool] | None:
    """What writes a kernel as calls of NumPy; None for most."""
    try:
        return _EXPANSIONS.get(fn)
    except TypeError:
        return None


def _is_float_array(steps: Any, x: Any) -> bool:
    if type(x) is not Ref:
        return False
    spec = steps.specs[x.id]
    return spec.kind is np.ndarray and spec.dtype in FLOATS


def _relu(steps: Any, x: Any) -> bool:
    if not _is_float_array(steps, x):
        return False
    dtype = steps.specs[x.id].dtype
    steps.last("maximum", np.maximum, x, steps.constant(("zero", dtype), lambda: np.zeros((), dtype)))
    return True


def _sum(steps: Any, x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> bool:
    if axis != 0 or dtype is not None or keepdims or not _is_float_array(steps, x):
        return False
    spec = steps.specs[x.id]
    if len(spec.shape) != 2 or spec.shape[0] > FEW:
        return False
    steps.last("sum", DOT, _ones(steps, spec), x)
    return True


def _ones(steps: Any, spec: Spec) -> Ref:
    rows, dtype = spec.shape[0], spec.dtype
    ones: Ref = steps.constant(("ones", rows, dtype), lambda: np.ones(rows, dtype))
    return ones


def _as_method(name: str, largest: float = math.inf) -> Callable[..., bool]:
    """What writes a kernel as the method of arrays that it calls, where the result has no more elements."""
    method = Method(name)

    def expand(steps: Any, x: Any, *args: Any, **kwargs: Any) -> bool:
        if kwargs or type(x) is not Ref or steps.specs[x.id].kind is not np.ndarray:
            return False
        if steps.specs[x.id].size > largest:
            return False
        steps.last(name, method, x, *args)
        return True

    return expand


def _mean(steps: Any, x: Any, *, axis: Any = None, keepdims: bool = False) -> bool:
    if axis is not None:
        if not _has_lines(steps, x, axis):
            return False
        total = steps.call("sum", _SUM, x, axis=-1, keepdims=keepdims, spec=_line(steps, x, keepdims))
        steps.last("divide", operator.truediv, total, steps.specs[x.id].shape[-1])
        return True
    if keepdims or not _is_float_array(steps, x):
        return False
    spec = steps.specs[x.id]
    if not spec.size:
        return False
    total = steps.call("sum", _SUM, x, spec=Spec(spec.dtype.type, (), spec.dtype))
    steps.last("divide", operator.truediv, total, spec.size)
    return True


def _has_lines(steps: Any, x: Any, axis: Any) -> bool:
    """Whether the last axis of a large array is reduced: such calls are part of runs."""
    if not _is_float_array(steps, x):
        return False
    shape = steps.specs[x.id].shape
    return steps.specs[x.id].size >= LARGE and len(shape) > 1 and axis in (-1, len(shape) - 1, (-1,), (len(shape) - 1,))


def _line(steps: Any, x: Ref, keepdims: bool) -> Spec:
    spec = steps.specs[x.id]
    return Spec(np.ndarray, (*spec.shape[:-1], *[1] * keepdims), spec.dtype)


def _shifted(steps: Any, x: Ref, top: Ref) -> tuple[Ref, Ref]:
    """The difference, and its exponential."""
    spec = steps.specs[x.id]
    shifted = steps.call("subtract", operator.sub, x, top, spec=spec)
    return shifted, steps.call("exp", np.exp, shifted, spec=spec)


def _softmax(steps: Any, x: Any, *, axis: int = -1) -> bool:
    if not _has_lines(steps, x, axis):
        return False
    line = _line(steps, x, True)
    _, exp = _shifted(steps, x, steps.call("max", _MAX, x, axis=-1, keepdims=True, spec=line))
    steps.last("divide", operator.truediv, exp, steps.call("sum", _SUM, exp, axis=-1, keepdims=True, spec=line))
    return True


def _log_softmax(steps: Any, x: Any, *, axis: int = -1) -> bool:
    if not _has_lines(steps, x, axis):
        return False
    line = _line(steps, x, True)
    shifted, exp = _shifted(steps, x, steps.call("max", _MAX, x, axis=-1, keepdims=True, spec=line))
    total = steps.call("sum", _SUM, exp, axis=-1, keepdims=True, spec=line)
    steps.last("subtract", operator.sub, shifted, steps.call("log", np.log, total, spec=line))
    return True


def _shifted_exp(steps: Any, logits: Any) -> tuple[Ref, Ref, Ref]:
    """Class by class: logits less their largest, the exponentials of that, and their sums."""
    spec = steps.specs[logits.id]
    n, classes = spec.shape
    turned = Spec(np.ndarray, (classes, n), spec.dtype)
    line = Spec(np.ndarray, (n,), spec.dtype)
    rows = steps.call("copy", _COPY, steps.call("T", _T, logits, spec=turned), spec=turned)
    shifted = steps.call("subtract", operator.sub, rows, steps.call("max", _max, rows, 0, spec=line), spec=turned)
    exp = steps.call("exp", np.exp, shifted, spec=turned)
    return shifted, exp, steps.call("sum", DOT, _ones(steps, turned), exp, spec=line)


def _matmul(steps: Any, a: Any, b: Any) -> bool:
    """`(eye * d) @ b`, as the cotangents of a Jacobian come, by the rows of `b`."""
    maker = steps.makers.get(a.id) if type(a) is Ref else None
    if maker is None or maker.fn is not operator.mul or type(b) is not Ref:
        return False
    spec, given = steps.specs[a.id], steps.specs[b.id]
    if len(spec.shape) != 2 or len(given.shape) != 2 or not _is_float_array(steps, a) or given.dtype != spec.dtype:
        return False
    for eye, d in (maker.args, maker.args[::-1]):
        if (
            type(eye) is not Ref
            or type(d) is not Ref
            or steps.specs[d.id] != Spec(np.ndarray, spec.shape[1:], spec.dtype)
        ):
            continue
        if kernels.is_identity(steps.constants.get(eye.id)) and kernels.adds_to_zero():
            steps.last("diagonal_matmul", kernels.diagonal_matmul, d, b)
            return True
    return False


def _takes_logits(steps: Any, logits: Any, labels: Any, axis: int) -> bool:
    if not _is_float_array(steps, logits) or type(labels) is not Ref:
        return False
    shape, given = steps.specs[logits.id].shape, steps.specs[labels.id]
    return (
        len(shape) == 2
        and 0 < shape[1] <= SHORT
        and axis in (-1, 1)
        and given.kind is np.ndarray
        and given.shape == shape[:1]
        and given.dtype == WIDE
        and given.size > 0
    )


def _each(steps: Any, logits: Any) -> Ref:
    n = steps.specs[logits.id].shape[0]
    each: Ref = steps.constant(("each", n), lambda: np.arange(n))
    return each


def _cross_entropy(steps: Any, logits: Any, labels: Any, *, axis: int = -1) -> bool:
    if not _takes_logits(steps, logits, labels, axis):
        return False
    n, classes = steps.specs[logits.id].shape
    line = Spec(np.ndarray, (n,), steps.specs[logits.id].dtype)
    if labels.id not in steps.constants:  # those were seen while tracing
        labels = steps.call("checked", kernels.checked_labels, labels, classes, spec=steps.specs[labels.id])
    shifted, _, total = _shifted_exp(steps, logits)
    at_labels = steps.call("at_labels", operator.getitem, shifted, (labels, _each(steps, logits)), spec=line)
    steps.last("subtract", operator.sub, steps.call("log", np.log, total, spec=line), at_labels)
    return True


def _cross_entropy_vjp(steps: Any, cotangent: Any, logits: Any, labels: Any, *, axis: int = -1) -> bool:
    if not _takes_logits(steps, logits, labels, axis) or type(cotangent) is not Ref:
        return False
    if steps.specs[cotangent.id] != Spec(np.ndarray, steps.specs[labels.id].shape, steps.specs[logits.id].dtype):
        return False
    _, exp, total = _shifted_exp(steps, logits)
    steps.last("cross_entropy_vjp", kernels.cross_entropy_slope, cotangent, exp, total, labels, _each(steps, logits))
    return True


_EXPANSIONS: dict[Any, Callable[..., bool]] = {
    KERNELS["relu"]: _relu,
    KERNELS["mean"]: _mean,
    KERNELS["softmax"]: _softmax,
    KERNELS["log_softmax"]: _log_softmax,
    KERNELS["cross_entropy"]: _cross_entropy,
    KERNELS["cross_entropy_vjp"]: _cross_entropy_vjp,
    _SUM: _sum,
    operator.matmul: _matmul,
    KERNELS["reshape"]: _as_method("reshape"),
    KERNELS["astype"]: _as_method("astype", LARGE - 1),  # larger ones are in runs of elementwise calls
}
