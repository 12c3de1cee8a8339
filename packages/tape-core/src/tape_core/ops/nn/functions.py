"""The common functions of neural networks: activations, softmax and its kin, cross-entropy, one-hot.

They are beyond the standard; their kernels are composed of its functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tape_core.backends.axes import normal_axis
from tape_core.backends.checks import check_labels
from tape_core.base import dtypes
from tape_core.engine.levels import BatchedArray
from tape_core.engine.op import NONDIFF, REFUSED, elementwise, op, refuses, vjp
from tape_core.engine.samples import Draw, Refused, Sample, unary, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.modes.batching import Call
from tape_core.ops.statistical import reductions, restore_axes
from tape_core.typing import Array, ArrayLike, Axis, BatchInput, Cotangent, DTypeLike, Namespace


@elementwise(
    x=vjp(lambda xp, g, out: xp.where(out > 0, g, 0)),
    kernel=lambda xp, x: xp.maximum(x, 0),
    samples=unary(),
    keeps_integers=True,
    complex_kernel=REFUSED,
)
def relu(x: ArrayLike, /) -> Tensor:
    """`max(x, 0)`. At 0 the derivative is 0."""


def _sigmoid_kernel(xp: Namespace, x: Array) -> Array:
    e = xp.exp(-xp.abs(x))  # at most 1: it cannot overflow
    return xp.where(x >= 0, 1, e) / (1 + e)


def _complex_sigmoid(xp: Namespace, x: Array) -> Array:
    positive = xp.real(x) >= 0
    e = xp.exp(xp.where(positive, -x, x))  # at most 1 in magnitude: it cannot overflow
    return xp.where(positive, 1, e) / (1 + e)


@elementwise(
    x=lambda xp, out: out * (1 - out),
    kernel=_sigmoid_kernel,
    samples=with_complex(unary()),
    complex_kernel=_complex_sigmoid,
)
def sigmoid(x: ArrayLike, /) -> Tensor:
    """`1 / (1 + exp(-x))`, accurate for large positive and negative `x`; also called `expit`."""


def complex_softplus(xp: Namespace, x: Array) -> Array:
    """Return softplus of complex numbers: the principal logarithm."""
    positive = xp.real(x) > 0
    small = xp.log1p(xp.exp(xp.where(positive, -x, x)))  # the exponential is at most 1 in magnitude
    out = xp.where(positive, x + small, small)
    turns = xp.round(xp.imag(out) / (2 * math.pi))
    return out - xp.astype(turns, out.dtype) * (2j * math.pi)


@elementwise(
    x=lambda xp, x: xp.sigmoid(x),
    kernel=lambda xp, x: xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x))),
    samples=with_complex(unary()),
    complex_kernel=complex_softplus,
)
def softplus(x: ArrayLike, /) -> Tensor:
    """`log(1 + exp(x))` without overflow."""


def _silu_partial(xp: Namespace, x: Array) -> Array:
    s = xp.sigmoid(x)
    return s + x * s * (1 - s)


@elementwise(
    x=_silu_partial,
    kernel=lambda xp, x: x * xp.sigmoid(x),
    samples=with_complex(unary()),
    complex_kernel=lambda xp, x: x * _complex_sigmoid(xp, x),
)
def silu(x: ArrayLike, /) -> Tensor:
    """`x * sigmoid(x)`, also called swish.

    Source: Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, 2017.
    """


# Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, section 2: the approximation by tanh.
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def _gelu_kernel(xp: Namespace, x: Array, *, approximate: bool = False) -> Array:
    if approximate:
        return 0.5 * x * (1 + xp.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x)))
    return 0.5 * x * (1 + xp.erf(x * math.sqrt(0.5)))


def _gelu_partial(xp: Namespace, x: Array, approximate: bool) -> Array:
    if approximate:
        t = xp.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (_TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x))
    density = xp.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return 0.5 * (1 + xp.erf(x * math.sqrt(0.5))) + x * density


def _gelu_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3))
    yield Sample(draw(2, 3), approximate=True)
    yield Sample(draw())


@elementwise(x=_gelu_partial, kernel=_gelu_kernel, samples=with_complex(_gelu_samples))
def gelu(x: ArrayLike, /, *, approximate: bool = False) -> Tensor:
    """`x` times the normal distribution function of `x`; `approximate` uses the formula with tanh.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
    """


def _axis_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3))
    yield Sample(draw(2, 3, 2), axis=1)
    yield Sample(draw(4))
    yield Sample(draw(0, 3))
    yield Refused(ValueError, "axis", draw(2, 3), axis=2)


def _softmax_kernel(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def _complex_softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    e = xp.exp(x - xp.max(xp.real(x), axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def _softmax_vjp(xp: Namespace, g: Cotangent, out: Array, axis: int) -> Cotangent:
    # The Jacobian diag(out) - out out^T, applied without forming it.
    return out * (g - xp.sum(g * out, axis=axis, keepdims=True))


@op(
    x=vjp(_softmax_vjp),
    kernel=_softmax_kernel,
    samples=with_complex(_axis_samples),
    batch=batching.along,
    complex_kernel=_complex_softmax,
)
def softmax(x: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """`exp(x)` divided by its sum along `axis`, without overflow."""


def _log_softmax_kernel(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


def _complex_log_softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    return x - _complex_logsumexp(xp, x, axis=axis, keepdims=True)


def _log_softmax_vjp(xp: Namespace, g: Cotangent, out: Array, axis: int) -> Cotangent:
    return g - xp.exp(out) * xp.sum(g, axis=axis, keepdims=True)


@op(
    x=vjp(_log_softmax_vjp),
    kernel=_log_softmax_kernel,
    samples=with_complex(_axis_samples),
    batch=batching.along,
    complex_kernel=_complex_log_softmax,
)
def log_softmax(x: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """`log(softmax(x))` without overflow."""


def _logsumexp_kernel(xp: Namespace, x: Array, *, axis: Axis = None, keepdims: bool = False) -> Array:
    return _shifted_logsumexp(xp, x, xp.max(x, axis=axis, keepdims=True), axis, keepdims)


def _complex_logsumexp(xp: Namespace, x: Array, *, axis: Axis = None, keepdims: bool = False) -> Array:
    # A real shift, so that the result is the principal logarithm of the sum.
    return _shifted_logsumexp(xp, x, xp.max(xp.real(x), axis=axis, keepdims=True), axis, keepdims)


def _shifted_logsumexp(xp: Namespace, x: Array, top: Array, axis: Axis, keepdims: bool) -> Array:
    top = xp.where(xp.isfinite(top), top, 0)
    total = xp.sum(xp.exp(x - top), axis=axis, keepdims=keepdims)
    nothing = total == 0  # all elements are -inf; log(0) would warn
    result = xp.log(xp.where(nothing, 1, total)) + xp.reshape(top, tuple(total.shape))
    return xp.where(nothing, -math.inf, result)


def _logsumexp_vjp(xp: Namespace, g: Cotangent, x: Array, out: Array, axis: Axis, keepdims: bool) -> Cotangent:
    shape = tuple(x.shape)
    # Where all elements are -inf, so is out, and x - out would be NaN.
    out = restore_axes(xp, xp.where(out == -math.inf, 0, out), shape, axis, keepdims)
    return restore_axes(xp, g, shape, axis, keepdims) * xp.exp(x - out)


@op(
    x=vjp(_logsumexp_vjp),
    kernel=_logsumexp_kernel,
    samples=with_complex(reductions(empty=False)),
    batch=batching.along,
    complex_kernel=_complex_logsumexp,
)
def logsumexp(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """`log(sum(exp(x)))` over `axis` (all axes by default), without overflow."""


def _cross_entropy_kernel(xp: Namespace, logits: Array, labels: Array, *, axis: int = -1) -> Array:
    check_labels(logits, labels, axis, xp.isdtype(labels.dtype, "integral"))
    lines = xp.log_softmax(logits, axis=axis)
    return -xp.squeeze(xp.take_along_axis(lines, xp.expand_dims(labels, axis=axis), axis=axis), axis=axis)


def _cross_entropy_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(4, 3), draw.rng.integers(0, 3, (4,)))
    yield Sample(draw(2, 3, 2), draw.rng.integers(0, 3, (2, 2)), axis=1)
    yield Sample(draw(5), draw.rng.integers(0, 5, ()))
    yield Sample(draw(0, 3), draw.rng.integers(0, 3, (0,)))
    yield Refused(ValueError, "labels must have the shape", draw(4, 3), draw.rng.integers(0, 3, (3,)))
    yield Refused(TypeError, "labels must be integers", draw(4, 3), draw(4))


@refuses("labels")
@op(
    logits=vjp(lambda xp, g, logits, labels, axis: xp.cross_entropy_vjp(g, logits, labels, axis=axis)),
    labels=NONDIFF,
    kernel=_cross_entropy_kernel,
    samples=_cross_entropy_samples,
    batch=batching.apart,
    complex_kernel=REFUSED,
)
def cross_entropy(logits: ArrayLike, labels: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross-entropy of each example: `-log_softmax(logits)` at its label. A loss is usually its mean.

    >>> import tape_core as tc
    >>> tc.cross_entropy(tc.asarray([[0.0, 0.0], [9.0, 0.0]]), tc.asarray([1, 0])).shape
    (2,)

    Args:
        logits: the scores of the classes along `axis`, not normalised.
        labels: the numbers of the classes, in the shape of `logits` without `axis`.
    """


def _cross_entropy_vjp_kernel(
    xp: Namespace, cotangent: Cotangent, logits: Array, labels: Array, *, axis: int = -1
) -> Array:
    # d(-log_softmax(z)[label]) / dz = softmax(z) - one_hot(label)
    hot = xp.one_hot(labels, logits.shape[axis], dtype=logits.dtype, axis=axis)
    return (xp.softmax(logits, axis=axis) - hot) * xp.expand_dims(cotangent, axis=axis)


def _cross_entropy_vjp_g(xp: Namespace, g: Cotangent, logits: Array, labels: Array, axis: int) -> Cotangent:
    hot = xp.one_hot(labels, logits.shape[axis], dtype=g.dtype, axis=axis)
    return xp.sum(g * (xp.softmax(logits, axis=axis) - hot), axis=axis)


def _cross_entropy_vjp_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(4), draw(4, 3), draw.rng.integers(0, 3, (4,)))
    yield Sample(draw(2, 2), draw(2, 3, 2), draw.rng.integers(0, 3, (2, 2)), axis=1)
    yield Sample(draw(3), draw(3, 3), draw.rng.integers(0, 3, (3,)), axis=-1)


def _cross_entropy_vjp_batch(call: Call, cotangent: BatchInput, logits: BatchInput, labels: BatchInput) -> Any:
    size = batching.size_of((cotangent, logits, labels))
    axis = batching.from_end(call.params["axis"], logits.ndim)
    return call(*[batching.spread(x, size) for x in (cotangent, logits, labels)], axis=axis)


@op(
    cotangent=vjp(_cross_entropy_vjp_g),
    logits=vjp(
        lambda xp, g, cotangent, logits, axis: _softmax_vjp(
            xp, g * xp.expand_dims(cotangent, axis=axis), xp.softmax(logits, axis=axis), axis
        )
    ),
    labels=NONDIFF,
    kernel=_cross_entropy_vjp_kernel,
    axes_of="result",  # the cotangent, its first input, is without the axis
    samples=_cross_entropy_vjp_samples,
    batch=_cross_entropy_vjp_batch,
    complex_kernel=REFUSED,
)
def cross_entropy_vjp(cotangent: ArrayLike, logits: ArrayLike, labels: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cotangent of the logits of :func:`cross_entropy`. It is an op, so that a backend can fuse it."""


def _one_hot_kernel(
    xp: Namespace, labels: Array, num_classes: int, *, dtype: DTypeLike = None, axis: int = -1
) -> Array:
    classes = xp.arange_beside(labels, num_classes)
    n = len(labels.shape) + 1
    axis = normal_axis(axis, n, "a result")
    classes = xp.reshape(classes, tuple(num_classes if k == axis else 1 for k in range(n)))
    if dtype is None:
        dtype = getattr(xp, dtypes.get_default_dtype().name)
    if not xp.isdtype(labels.dtype, "real floating"):  # some libraries compare unsigned integers with nothing else
        labels = xp.astype(labels, classes.dtype)
    return xp.astype(xp.expand_dims(labels, axis=axis) == classes, dtype)


def _one_hot_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.rng.integers(0, 3, (4,)), 3)
    yield Sample(draw.rng.integers(0, 3, (2, 2)), 4, axis=0, dtype="float64")
    yield Sample(draw.rng.integers(0, 3, ()), 3)


def _one_hot_batch(call: Call, labels: BatchedArray) -> Any:
    return call(labels.value, axis=batching.from_end(call.params["axis"], labels.ndim + 1))


@op(
    labels=NONDIFF,
    kernel=_one_hot_kernel,
    axes_of="result",
    samples=_one_hot_samples,
    reason="the input is a class number",
    batch=_one_hot_batch,
)
def one_hot(labels: ArrayLike, /, num_classes: int, *, dtype: DTypeLike = None, axis: int = -1) -> Tensor:
    """1 at each label and 0 elsewhere, along a new `axis`; float32 by default.

    A label that is not in [0, `num_classes`) gives zeros only.
    """
