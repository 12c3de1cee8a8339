"""Activation functions of neural networks; the most common ones are in `functions`."""

from __future__ import annotations

from collections.abc import Iterator

from tape_core.backends.errors import AxisError
from tape_core.engine.op import REFUSED, elementwise, vjp
from tape_core.engine.samples import Draw, Sample, Samples, unary, with_complex
from tape_core.engine.tensor import Tensor, read_array
from tape_core.ops.manipulation import split
from tape_core.ops.nn.functions import complex_softplus, sigmoid
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace


def _samples_with(low: float = -2.0, high: float = 2.0, **kwargs: float) -> Samples:
    """Samples of an activation, without and with a parameter."""

    def samples(draw: Draw) -> Iterator[Sample]:
        yield from unary(low, high)(draw)
        if kwargs:
            yield Sample(draw(2, 3, low=low, high=high), **kwargs)

    return samples


@elementwise(
    x=vjp(lambda xp, g, x, slope: xp.where(x > 0, g, g * slope)),
    kernel=lambda xp, x, slope=0.01: xp.where(x > 0, x, x * slope),
    samples=_samples_with(slope=0.3),
    complex_kernel=REFUSED,
)
def leaky_relu(x: ArrayLike, /, slope: float = 0.01) -> Tensor:
    """`x` where it is positive, `slope * x` elsewhere. At 0 the derivative is `slope`."""


def _elu_kernel(xp: Namespace, x: Array, alpha: float = 1.0) -> Array:
    # The minimum keeps the branch that is not taken from overflowing, in the rule as well.
    return xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


def _elu_vjp(xp: Namespace, g: Cotangent, x: Array, alpha: float) -> Cotangent:
    return xp.where(x > 0, g, g * (alpha * xp.exp(xp.minimum(x, 0))))


@elementwise(x=vjp(_elu_vjp), kernel=_elu_kernel, samples=_samples_with(alpha=0.3), complex_kernel=REFUSED)
def elu(x: ArrayLike, /, alpha: float = 1.0) -> Tensor:
    """`x` where it is positive, `alpha * (exp(x) - 1)` elsewhere. At 0 the derivative is `alpha`.

    Source: Clevert, Unterthiner and Hochreiter, Fast and Accurate Deep Network Learning by ELUs, 2015.
    """


# Klambauer and others, Self-Normalizing Neural Networks, 2017, appendix A1: with these two numbers, mean 0 and variance
# 1 are a fixed point of a layer.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@elementwise(
    x=vjp(lambda xp, g, x: _elu_vjp(xp, g * _SELU_SCALE, x, _SELU_ALPHA)),
    kernel=lambda xp, x: _SELU_SCALE * _elu_kernel(xp, x, _SELU_ALPHA),
    samples=unary(),
    complex_kernel=REFUSED,
)
def selu(x: ArrayLike, /) -> Tensor:
    """:func:`elu` with the two numbers that keep mean 0 and variance 1.

    Source: Klambauer and others, Self-Normalizing Neural Networks, 2017.
    """


@elementwise(
    x=vjp(lambda xp, g, x: xp.where(x > 0, xp.where(x < 6, g, 0), 0)),
    kernel=lambda xp, x: xp.minimum(xp.maximum(x, 0), 6),
    samples=unary(-2, 8),
    complex_kernel=REFUSED,
)
def relu6(x: ArrayLike, /) -> Tensor:
    """`x` limited to [0, 6]. At both ends the derivative is 0."""


def _hard_sigmoid_kernel(xp: Namespace, x: Array) -> Array:
    return xp.minimum(xp.maximum(x / 6 + 0.5, 0), 1)


@elementwise(
    x=vjp(lambda xp, g, x: xp.where(xp.abs(x) < 3, g / 6, 0)),
    kernel=_hard_sigmoid_kernel,
    samples=unary(-5, 5),
    complex_kernel=REFUSED,
)
def hard_sigmoid(x: ArrayLike, /) -> Tensor:
    """`x / 6 + 1 / 2` limited to [0, 1]. At both ends the derivative is 0."""


@elementwise(
    x=vjp(lambda xp, g, x: xp.where(x > -3, xp.where(x < 3, g * (x / 3 + 0.5), g), 0)),
    kernel=lambda xp, x: xp.where(x > -3, x * _hard_sigmoid_kernel(xp, x), 0 * xp.maximum(x, 0)),
    samples=unary(-5, 5),
    complex_kernel=REFUSED,
)
def hard_silu(x: ArrayLike, /) -> Tensor:
    """`x * hard_sigmoid(x)`, also called hard swish. At -3 the derivative is 0, at 3 it is 1.

    Source: Howard and others, Searching for MobileNetV3, 2019.
    """


@elementwise(
    x=lambda xp, x: xp.sigmoid(-x),
    kernel=lambda xp, x: -xp.softplus(-x),
    samples=with_complex(unary()),
    complex_kernel=lambda xp, x: -complex_softplus(xp, -x),
)
def log_sigmoid(x: ArrayLike, /) -> Tensor:
    """`log(sigmoid(x))` without overflow."""


def _mish_partial(xp: Namespace, x: Array) -> Array:
    t = xp.tanh(xp.softplus(x))
    return t + x * xp.sigmoid(x) * (1 - t * t)


@elementwise(
    x=_mish_partial,
    kernel=lambda xp, x: x * xp.tanh(xp.softplus(x)),
    samples=with_complex(unary()),
    complex_kernel=lambda xp, x: x * xp.tanh(complex_softplus(xp, x)),
)
def mish(x: ArrayLike, /) -> Tensor:
    """`x * tanh(softplus(x))`.

    Source: Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019.
    """


def glu(x: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The gated linear unit: the first half of `x` along `axis`, times the sigmoid of the second half.

    >>> import tape_core as tc
    >>> tc.glu(tc.asarray([2.0, 4.0, 0.0, 0.0])).tolist()
    [1.0, 2.0]

    Source: Dauphin and others, Language Modeling with Gated Convolutional Networks, 2017.

    Raises:
        ValueError: the length along `axis` is odd, or there is no such axis.
    """
    x = read_array(x, "glu: x")
    ndim = len(getattr(x, "shape", ()))
    if not -ndim <= axis < ndim:
        raise AxisError(f"glu: axis {axis} is out of bounds for {ndim} dimensions")
    value, gate = split(x, 2, axis=axis)
    return value * sigmoid(gate)
