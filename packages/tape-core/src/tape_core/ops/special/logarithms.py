"""`logit`, products with logarithms, linear recurrences and running sums of logarithms.

They are beyond the standard; their kernels are composed of its functions.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator

from tape_core.backends.axes import line_axis
from tape_core.engine.op import REFUSED, elementwise, op, vjp
from tape_core.engine.samples import Draw, Refused, Sample, Samples, binary, unary, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.ops.nn.functions import sigmoid
from tape_core.ops.special.approximation import as_floats, in_double, is_array
from tape_core.typing import Array, ArrayLike, Cotangent, Kernel, Namespace

expit = sigmoid  # SciPy's name for the same op


@in_double
def _logit_kernel(xp: Namespace, x: Array) -> Array:
    inside = xp.logical_and(x > 0, x < 1)
    p = xp.where(inside, x, 0.5)
    # Around 1/2 the quotient p / (1 - p) is near 1, and its logarithm would lose digits.
    middle = 2 * xp.atanh(2 * xp.clip(p, 0.25, 0.75) - 1)
    value = xp.where(xp.abs(p - 0.5) <= 0.25, middle, xp.log(p / (1 - p)))
    outside = xp.where(x == 0, -math.inf, xp.where(x == 1, math.inf, xp.where(x == x, math.nan, x)))
    return xp.where(inside, value, outside)


def _logit_samples(draw: Draw) -> Iterator[Sample]:
    yield from unary(0.05, 0.95)(draw)
    yield Refused(TypeError, "real numbers", draw.complex(2))


@elementwise(
    x=vjp(lambda xp, g, x: g / (x * (1 - x))), kernel=_logit_kernel, samples=_logit_samples, complex_kernel=REFUSED
)
def logit(x: ArrayLike, /) -> Tensor:
    """`log(x / (1 - x))`, the inverse of :func:`expit`. NaN outside [0, 1].

    >>> import tape_core as tc
    >>> tc.logit(0.5).item()
    0.0
    """


# -- products with a logarithm


def _float_arrays(xp: Namespace, *values: Array) -> list[Array]:
    """Convert operands, arrays or Python scalars, to floating-point arrays."""
    values = tuple(as_floats(xp, *values))
    like = next(v for v in values if is_array(v))
    return [v if is_array(v) else xp.zeros_like(like) + v for v in values]


def _quiet_log(xp: Namespace, x: Array, log: Kernel, pole: float) -> Array:
    """`log(x)` for a logarithm with a pole at `pole`, without warnings at the pole and below."""
    if xp.isdtype(x.dtype, "complex floating"):
        return xp.where(x == pole, -math.inf, log(xp.where(x == pole, 1, x)))
    below = x <= pole
    return xp.where(x == pole, -math.inf, xp.where(below, math.nan, log(xp.where(below, 1, x))))


def _times_log(xp: Namespace, x: Array, y: Array, log: Kernel, pole: float) -> Array:
    x, y = _float_arrays(xp, x, y)
    nothing = xp.logical_and(x == 0, xp.logical_not(xp.isnan(y)))
    return x * _quiet_log(xp, xp.where(nothing, 1, y), log, pole)


def _log_in_rule(xp: Namespace, g: Cotangent, y: Array, shift: float = 0.0) -> Cotangent:
    """`log(shift + y)` in a rule: integers take the dtype of `g`, and Python scalars are computed by Python."""
    if is_array(y):
        y = as_floats(xp, g, y)[1]
        return xp.log1p(y) if shift else xp.log(y)
    y = shift + y
    if isinstance(y, complex):
        return cmath.log(y) if y else -math.inf
    return math.log(y) if y > 0 else -math.inf if y == 0 else math.nan


def _quotient_or_0(xp: Namespace, x: Array, y: Array) -> Array:
    """`x / y`, with 0 for 0 / 0."""
    x, y = as_floats(xp, x, y)
    if not is_array(x):
        return x / (xp.where(y == 0, 1, y) if x == 0 else y)
    return x / xp.where(xp.logical_and(x == 0, y == 0), 1, y)


def _times_log_samples(low: float) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield from binary(-2, 2, low, 3)(draw)
        yield Sample(0.0, draw(3, low=low, high=3))
        yield Sample(draw(3), 1.5)
        yield Sample(draw.complex(2), draw.complex(2) + 4)

    return samples


@elementwise(
    x=vjp(lambda xp, g, y: g * _log_in_rule(xp, g, y)),
    y=lambda xp, x, y: _quotient_or_0(xp, x, y),
    kernel=lambda xp, x, y: _times_log(xp, x, y, xp.log, 0.0),
    samples=_times_log_samples(0.2),
)
def xlogy(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x * log(y)`, which is 0 where `x` is 0, unless `y` is NaN.

    The derivatives are `log(y)` and `x / y`; the second is 0 where both are 0.

    >>> import tape_core as tc
    >>> tc.xlogy(tc.asarray([0.0, 2.0]), tc.asarray([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """


@elementwise(
    x=vjp(lambda xp, g, y: g * _log_in_rule(xp, g, y, 1.0)),
    y=lambda xp, x, y: _quotient_or_0(xp, x, 1 + y),
    kernel=lambda xp, x, y: _times_log(xp, x, y, xp.log1p, -1.0),
    samples=_times_log_samples(-0.8),
)
def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x * log1p(y)`, which is 0 where `x` is 0, unless `y` is NaN.

    The derivatives are `log1p(y)` and `x / (1 + y)`; the second is 0 where `x` and `1 + y` are 0.

    >>> import tape_core as tc
    >>> tc.xlog1py(0.0, -1.0).item()
    0.0
    """


@in_double
def _entr_kernel(xp: Namespace, x: Array) -> Array:
    inside = x > 0
    value = -x * xp.log(xp.where(inside, x, 1))
    return xp.where(inside, value, xp.where(x == 0, 0, xp.where(x < 0, -math.inf, x)))


@elementwise(x=lambda xp, x: -1 - xp.log(x), kernel=_entr_kernel, samples=unary(0.1, 3), complex_kernel=REFUSED)
def entr(x: ArrayLike, /) -> Tensor:
    """`-x * log(x)`, the contribution of a probability to the entropy: 0 at 0, and -inf for negative numbers.

    >>> import tape_core as tc
    >>> print(f"{tc.entr(0.5):.4f}")
    0.3466
    """


@in_double
def _rel_entr_kernel(xp: Namespace, x: Array, y: Array) -> Array:
    x, y = _float_arrays(xp, x, y)
    inside = xp.logical_and(xp.logical_and(x > 0, y > 0), xp.logical_and(x < math.inf, y < math.inf))
    p, q = xp.where(inside, x, 1), xp.where(inside, y, 1)
    distance = xp.log(p) - xp.log(q)
    apart = xp.abs(distance) > 700  # the quotient p / q might overflow: log of the largest float64 is 709.8
    close = xp.logical_and(0.5 * p < q, 0.5 * q < p)
    a, b = xp.where(apart, 1, p), xp.where(apart, 1, q)
    quotient = xp.where(close, xp.log1p(xp.where(close, (a - b) / b, 0)), xp.log(a / b))
    value = p * xp.where(apart, distance, quotient)
    valid = xp.logical_and(x >= 0, y >= 0)
    known = xp.logical_and(x == x, y == y)
    # The remaining cases: x is 0, y is 0, or one of them is infinite.
    edge = xp.where(x == 0, 0, xp.where(y == math.inf, -math.inf, xp.where(y == y, math.inf, y)))
    edge = xp.where(xp.logical_and(x == math.inf, y == math.inf), math.nan, edge)
    outside = xp.where(known, xp.where(valid, edge, math.inf), math.nan)
    return xp.where(inside, value, outside)


def _rel_entr_x(xp: Namespace, g: Cotangent, x: Array, y: Array) -> Cotangent:
    both = xp.logical_and(_is_zero(xp, g, x), _is_zero(xp, g, y))
    return xp.where(both, 0, g * (_log_in_rule(xp, g, x) - _log_in_rule(xp, g, y) + 1))


def _is_zero(xp: Namespace, g: Cotangent, x: Array) -> Cotangent:
    return (x if is_array(x) else xp.zeros_like(g) + x) == 0


@elementwise(
    x=vjp(_rel_entr_x),
    y=lambda xp, x, y: -_quotient_or_0(xp, x, y),
    kernel=_rel_entr_kernel,
    samples=binary(0.2, 3),
    complex_kernel=REFUSED,
)
def rel_entr(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x * log(x / y)`, the contribution of two probabilities to the relative entropy.

    It is 0 where `x` is 0, and inf where one of them is negative or only `y` is 0. Where both are 0, so are the
    derivatives.

    >>> import tape_core as tc
    >>> print(f"{tc.rel_entr(0.5, 0.25):.4f}")
    0.3466
    """


# -- running sums


def _recurrence_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    # After each pass, element j of b has the contributions of the `step` elements up to j, and a their products.
    n = b.shape[-1]
    if n <= 1:
        return b + xp.zeros_like(a)
    step = 1
    while step < n:
        b = xp.concat([b[..., :step], b[..., step:] + a[..., step:] * b[..., :-step]], axis=-1)
        a = xp.concat([a[..., :step], a[..., step:] * a[..., :-step]], axis=-1)
        step *= 2
    return b


def _reverse_recurrence(xp: Namespace, a: Array, g: Cotangent) -> Array:
    """The recurrence from the end: `d[j] = g[j] + a[j + 1] * d[j + 1]`, the transpose of `linear_recurrence`."""
    reversed = xp.linear_recurrence(xp.roll(xp.flip(a, axis=-1), 1, axis=-1), xp.flip(g, axis=-1))
    return xp.flip(reversed, axis=-1)


def _recurrence_vjp_a(xp: Namespace, g: Cotangent, a: Array, out: Array) -> Cotangent:
    if a.shape[-1] == 0:
        return g
    before = xp.concat([xp.zeros_like(out[..., :1]), out[..., :-1]], axis=-1)
    return _reverse_recurrence(xp, a, g) * before


def _recurrence_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(5), draw(5))
    yield Sample(draw(2, 3), draw(2, 3))
    yield Sample(draw(1), draw(1))
    yield Sample(draw(0), draw(0))
    yield Sample(draw(2, 0), draw(2, 0))


@op(
    a=vjp(_recurrence_vjp_a),
    b=vjp(lambda xp, g, a: _reverse_recurrence(xp, a, g)),
    kernel=_recurrence_kernel,
    samples=with_complex(_recurrence_samples),
)
def linear_recurrence(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The recurrence `y[j] = a[j] * y[j - 1] + b[j]`, `y[0] = b[0]`, along the last axis of two arrays of one shape.

    It is computed as a parallel scan (Hillis and Steele, "Data parallel algorithms", Communications of the ACM 29,
    1986): O(n log(n)) operations in log2(n) passes.
    """


def _logcumsumexp_kernel(xp: Namespace, x: Array, *, axis: int | None = None, include_initial: bool = False) -> Array:
    axis = line_axis(axis, len(x.shape))

    def scan(xp: Namespace, x: Array) -> Array:
        x = xp.moveaxis(x, axis, -1)
        n = x.shape[-1]
        step = 1  # the parallel scan of `linear_recurrence`
        while step < n:
            x = xp.concat([x[..., :step], xp.logaddexp(x[..., step:], x[..., :-step])], axis=-1)
            step *= 2
        if include_initial:
            initial = xp.zeros_beside(x, (*x.shape[:-1], 1), dtype=x.dtype) - math.inf
            x = xp.concat([initial, x], axis=-1)
        return xp.moveaxis(x, -1, axis)

    return in_double(scan)(xp, x)


def _logcumsumexp_vjp(
    xp: Namespace, g: Cotangent, x: Array, out: Array, axis: int | None, include_initial: bool
) -> Cotangent:
    axis = line_axis(axis, len(x.shape))
    if x.shape[axis] == 0:
        return xp.zeros_like(x)
    g, x, out = (xp.moveaxis(v, axis, -1) for v in (g, x, out))
    if include_initial:
        g, out = g[..., 1:], out[..., 1:]
    # The cotangent of x[i] is the sum of g[j] * exp(x[i] - out[j]) over j >= i. It is exp(x[i] - out[i]) times a
    # recurrence from the end whose factors exp(out[j] - out[j + 1]) are at most 1, so that nothing overflows.
    before, after = out[..., :-1], out[..., 1:]
    infinite = xp.isinf(after)
    decay = xp.where(infinite, 0, xp.exp(xp.where(infinite, 0, before) - xp.where(infinite, 0, after)))
    total = _reverse_recurrence(xp, xp.concat([xp.zeros_like(out[..., :1]), decay], axis=-1), g)
    nothing = out == -math.inf
    weight = xp.where(nothing, 0, xp.exp(x - xp.where(nothing, 0, out)))
    return xp.moveaxis(weight * total, -1, axis)


def _logcumsumexp_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(5))
    yield Sample(draw(2, 3), axis=1)
    yield Sample(draw(2, 3, 2), axis=-2, include_initial=True).observe(lambda xp, out: out[:, 1:])
    yield Sample(draw(0))
    yield Sample(draw(2, 0), axis=1, include_initial=True).observe(lambda xp, out: out[:, 1:])
    yield Sample(draw(4, low=500, high=503))
    yield Refused(ValueError, "axis 2 is out of bounds", draw(2, 3), axis=2)
    yield Refused(ValueError, "axis must be given", draw(2, 3))
    yield Refused(TypeError, "real numbers", draw.complex(2))


@op(
    x=vjp(_logcumsumexp_vjp),
    kernel=_logcumsumexp_kernel,
    samples=_logcumsumexp_samples,
    batch=batching.running,
    complex_kernel=REFUSED,
)
def logcumsumexp(x: ArrayLike, /, *, axis: int | None = None, include_initial: bool = False) -> Tensor:
    """`log(cumulative_sum(exp(x)))` along `axis`, without overflow; `axis` may be left out for a 1-d array.

    Where all elements so far are -inf, so is the result, and the derivative is 0.

    >>> import tape_core as tc
    >>> [f"{value:.2f}" for value in tc.logcumsumexp(tc.asarray([1000.0, 1000.0, -float("inf")]))]
    ['1000.00', '1000.69', '1000.69']

    Args:
        include_initial: whether the result begins with the logarithm of the empty sum, -inf.
    """
