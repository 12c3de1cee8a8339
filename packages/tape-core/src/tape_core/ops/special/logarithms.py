"""Products and running sums with logarithms, beyond the standard, with kernels composed from it."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator
from typing import Any

from tape_core.backends.errors import AxisError
from tape_core.engine.op import elementwise, op, vjp
from tape_core.engine.samples import Draw, Refused, Sample, binary, unary
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.ops.nn.functions import sigmoid
from tape_core.ops.special.approximation import floats, in_double, is_array
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

expit = sigmoid  # one op by both of its names


@in_double
def _logit_kernel(xp: Namespace, x: Array) -> Array:
    inside = xp.logical_and(x > 0, x < 1)
    p = xp.where(inside, x, 0.5)
    # Around 1/2 the quotient is near 1, and its logarithm would lose digits.
    middle = 2 * xp.atanh(2 * xp.clip(p, 0.25, 0.75) - 1)
    value = xp.where(xp.abs(p - 0.5) <= 0.25, middle, xp.log(p / (1 - p)))
    outside = xp.where(x == 0, -math.inf, xp.where(x == 1, math.inf, xp.where(x == x, math.nan, x)))
    return xp.where(inside, value, outside)


def _logit_samples(draw: Draw) -> Iterator[Sample]:
    yield from unary(0.05, 0.95)(draw)
    yield Refused(TypeError, "real numbers", draw.complex(2))


@elementwise(x=vjp(lambda xp, g, x: g / (x * (1 - x))), kernel=_logit_kernel, samples=_logit_samples)
def logit(x: ArrayLike, /) -> Tensor:
    """`log(x / (1 - x))`, the inverse of :func:`expit`. NaN outside [0, 1].

    >>> import tape_core as tc
    >>> tc.logit(0.5).item()
    0.0
    """


# -- products with a logarithm


def _arrays(xp: Namespace, *values: Any) -> list[Any]:
    """Floating-point arrays of operands that are arrays and Python scalars."""
    values = tuple(floats(xp, *values))
    like = next(v for v in values if is_array(v))
    return [v if is_array(v) else xp.zeros_like(like) + v for v in values]


def _logarithm(xp: Namespace, x: Array, log: Any, pole: float) -> Array:
    """`log(x)`, without a warning of its pole or of what is below."""
    if xp.isdtype(x.dtype, "complex floating"):
        return xp.where(x == pole, -math.inf, log(xp.where(x == pole, 1, x)))
    below = x <= pole
    return xp.where(x == pole, -math.inf, xp.where(below, math.nan, log(xp.where(below, 1, x))))


def _product(xp: Namespace, x: Array, y: Array, log: Any, pole: float) -> Array:
    x, y = _arrays(xp, x, y)
    nothing = xp.logical_and(x == 0, xp.logical_not(xp.isnan(y)))
    return x * _logarithm(xp, xp.where(nothing, 1, y), log, pole)


def _log_of(xp: Namespace, g: Cotangent, y: Array, shift: float = 0.0) -> Cotangent:
    """`log(shift + y)`, in the dtype of `g` where y is of integers."""
    if is_array(y):
        y = floats(xp, g, y)[1]
        return xp.log1p(y) if shift else xp.log(y)
    y = shift + y
    if isinstance(y, complex):
        return cmath.log(y) if y else -math.inf
    return math.log(y) if y > 0 else -math.inf if y == 0 else math.nan


def _quotient(xp: Namespace, x: Array, y: Array) -> Array:
    """`x / y`, where 0 / 0 is 0."""
    x, y = floats(xp, x, y)
    if not is_array(x):
        return x / (xp.where(y == 0, 1, y) if x == 0 else y)
    return x / xp.where(xp.logical_and(x == 0, y == 0), 1, y)


def _product_samples(low: float) -> Any:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield from binary(-2, 2, low, 3)(draw)
        yield Sample(0.0, draw(3, low=low, high=3))
        yield Sample(draw(3), 1.5)
        yield Sample(draw.complex(2), draw.complex(2) + 4)

    return samples


@elementwise(
    x=vjp(lambda xp, g, y: g * _log_of(xp, g, y)),
    y=lambda xp, x, y: _quotient(xp, x, y),
    kernel=lambda xp, x, y: _product(xp, x, y, xp.log, 0.0),
    samples=_product_samples(0.2),
)
def xlogy(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x * log(y)`, which is 0 where x is 0, unless y is NaN.

    The derivatives are `log(y)` and `x / y`, the latter 0 where both are 0.

    >>> import tape_core as tc
    >>> tc.xlogy(tc.asarray([0.0, 2.0]), tc.asarray([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """


@elementwise(
    x=vjp(lambda xp, g, y: g * _log_of(xp, g, y, 1.0)),
    y=lambda xp, x, y: _quotient(xp, x, 1 + y),
    kernel=lambda xp, x, y: _product(xp, x, y, xp.log1p, -1.0),
    samples=_product_samples(-0.8),
)
def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x * log1p(y)`, which is 0 where x is 0, unless y is NaN.

    The derivatives are `log1p(y)` and `x / (1 + y)`, the latter 0 where both are 0.

    >>> import tape_core as tc
    >>> tc.xlog1py(0.0, -1.0).item()
    0.0
    """


@in_double
def _entr_kernel(xp: Namespace, x: Array) -> Array:
    inside = x > 0
    value = -x * xp.log(xp.where(inside, x, 1))
    return xp.where(inside, value, xp.where(x == 0, 0, xp.where(x < 0, -math.inf, x)))


@elementwise(x=lambda xp, x: -1 - xp.log(x), kernel=_entr_kernel, samples=unary(0.1, 3))
def entr(x: ArrayLike, /) -> Tensor:
    """`-x * log(x)`, the share of a probability in the entropy: 0 at 0, and -inf below.

    >>> import tape_core as tc
    >>> print(f"{tc.entr(0.5):.4f}")
    0.3466
    """


@in_double
def _rel_entr_kernel(xp: Namespace, x: Array, y: Array) -> Array:
    x, y = _arrays(xp, x, y)
    inside = xp.logical_and(xp.logical_and(x > 0, y > 0), xp.logical_and(x < math.inf, y < math.inf))
    p, q = xp.where(inside, x, 1), xp.where(inside, y, 1)
    distance = xp.log(p) - xp.log(q)
    apart = xp.abs(distance) > 700  # the quotient might overflow
    close = xp.logical_and(0.5 * p < q, 0.5 * q < p)
    a, b = xp.where(apart, 1, p), xp.where(apart, 1, q)
    quotient = xp.where(close, xp.log1p(xp.where(close, (a - b) / b, 0)), xp.log(a / b))
    value = p * xp.where(apart, distance, quotient)
    valid = xp.logical_and(x >= 0, y >= 0)
    known = xp.logical_and(x == x, y == y)
    # What is left: x is 0, or y is 0, or one of them infinite.
    edge = xp.where(x == 0, 0, xp.where(y == math.inf, -math.inf, xp.where(y == y, math.inf, y)))
    edge = xp.where(xp.logical_and(x == math.inf, y == math.inf), math.nan, edge)
    outside = xp.where(known, xp.where(valid, edge, math.inf), math.nan)
    return xp.where(inside, value, outside)


def _rel_entr_x(xp: Namespace, g: Cotangent, x: Array, y: Array) -> Cotangent:
    both = xp.logical_and(_equal(xp, g, x), _equal(xp, g, y))
    return xp.where(both, 0, g * (_log_of(xp, g, x) - _log_of(xp, g, y) + 1))


def _equal(xp: Namespace, g: Cotangent, x: Array) -> Cotangent:
    return (x if is_array(x) else xp.zeros_like(g) + x) == 0


@elementwise(
    x=vjp(_rel_entr_x),
    y=lambda xp, x, y: -_quotient(xp, x, y),
    kernel=_rel_entr_kernel,
    samples=binary(0.2, 3),
)
def rel_entr(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x * log(x / y)`, the share of two probabilities in the relative entropy: 0 where x is 0.

    Where both are 0, so are the derivatives.

    It is inf where one is negative, and where y is 0 and x is not.

    >>> import tape_core as tc
    >>> print(f"{tc.rel_entr(0.5, 0.25):.4f}")
    0.3466
    """


# -- running sums


def _recurrence_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    # By doubling: after each round element j has what the last `step` elements before it bring.
    n = b.shape[-1]
    if n <= 1:
        return xp.positive(b)
    step = 1
    while step < n:
        b = xp.concat([b[..., :step], b[..., step:] + a[..., step:] * b[..., :-step]], axis=-1)
        a = xp.concat([a[..., :step], a[..., step:] * a[..., :-step]], axis=-1)
        step *= 2
    return b


def _back(xp: Namespace, a: Array, g: Cotangent) -> Array:
    """The recurrence the other way: `d[j] = g[j] + a[j + 1] * d[j + 1]`."""
    reversed = xp.linear_recurrence(xp.roll(xp.flip(a, axis=-1), 1, axis=-1), xp.flip(g, axis=-1))
    return xp.flip(reversed, axis=-1)


def _recurrence_vjp_a(xp: Namespace, g: Cotangent, a: Array, out: Array) -> Cotangent:
    if a.shape[-1] == 0:
        return g
    before = xp.concat([xp.zeros_like(out[..., :1]), out[..., :-1]], axis=-1)
    return _back(xp, a, g) * before


def _recurrence_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(5), draw(5))
    yield Sample(draw(2, 3), draw(2, 3))
    yield Sample(draw(1), draw(1))
    yield Sample(draw(0), draw(0))
    yield Sample(draw(2, 0), draw(2, 0))


@op(
    a=vjp(_recurrence_vjp_a),
    b=vjp(lambda xp, g, a: _back(xp, a, g)),
    kernel=_recurrence_kernel,
    samples=_recurrence_samples,
)
def linear_recurrence(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """`y[j] = a[j] * y[j - 1] + b[j]` along the last axis, from `y[0] = b[0]` on; of two arrays of one shape.

    By doubling (Hillis and Steele, Communications of the ACM 29, 1986): in n log(n) steps, of which log(n) are one
    after the other.
    """


def _one_axis(ndim: int, axis: int | None) -> int:
    if axis is None:
        if ndim != 1:
            raise ValueError(f"axis must be given for an array of {ndim} dimensions")
        return 0
    if not -ndim <= axis < ndim:
        raise AxisError(f"axis {axis} is out of bounds for an array of {ndim} dimensions")
    return axis % ndim


def _logcumsumexp_kernel(xp: Namespace, x: Array, *, axis: int | None = None, include_initial: bool = False) -> Array:
    axis = _one_axis(len(x.shape), axis)

    def running(xp: Namespace, x: Array) -> Array:
        x = xp.moveaxis(x, axis, -1)
        n = x.shape[-1]
        step = 1
        while step < n:
            x = xp.concat([x[..., :step], xp.logaddexp(x[..., step:], x[..., :-step])], axis=-1)
            step *= 2
        if include_initial:
            initial = xp.zeros_beside(x, (*x.shape[:-1], 1), dtype=x.dtype) - math.inf
            x = xp.concat([initial, x], axis=-1)
        return xp.moveaxis(x, -1, axis)

    return in_double(running)(xp, x)


def _logcumsumexp_vjp(
    xp: Namespace, g: Cotangent, x: Array, out: Array, axis: int | None, include_initial: bool
) -> Cotangent:
    axis = _one_axis(len(x.shape), axis)
    if x.shape[axis] == 0:
        return xp.zeros_like(x)
    g, x, out = (xp.moveaxis(v, axis, -1) for v in (g, x, out))
    if include_initial:
        g, out = g[..., 1:], out[..., 1:]
    # Element i has g[j] * exp(x[i] - out[j]) from each j >= i: exp(x[i] - out[i]) times a sum in which each step on
    # multiplies by exp(out[j] - out[j + 1]) <= 1, so that nothing overflows.
    before, after = out[..., :-1], out[..., 1:]
    infinite = xp.isinf(after)
    decay = xp.where(infinite, 0, xp.exp(xp.where(infinite, 0, before) - xp.where(infinite, 0, after)))
    total = _back(xp, xp.concat([xp.zeros_like(out[..., :1]), decay], axis=-1), g)
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


@op(x=vjp(_logcumsumexp_vjp), kernel=_logcumsumexp_kernel, samples=_logcumsumexp_samples, batch=batching.running)
def logcumsumexp(x: ArrayLike, /, *, axis: int | None = None, include_initial: bool = False) -> Tensor:
    """`log(cumulative_sum(exp(x)))` along `axis`, which may be left out in one dimension, without overflow.

    Where everything so far is -inf, so is the result, and the derivative is 0.

    >>> import tape_core as tc
    >>> [f"{value:.2f}" for value in tc.logcumsumexp(tc.asarray([1000.0, 1000.0, -float("inf")]))]
    ['1000.00', '1000.69', '1000.69']

    Args:
        include_initial: begin with the logarithm of the empty sum, -inf.
    """
