"""Special functions whose values SciPy computes, on any backend: incomplete gamma and beta functions, Bessel functions.

Arrays of other libraries and devices are copied to NumPy and back. Without SciPy a call raises an ImportError that says
what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.op import TODO, elementwise
from tape_core.ops.approximation import in_double, is_array
from tape_core.ops.incomplete import beta_density, gamma_density, t_density
from tape_core.samples import Draw, Refused, Sample, Samples, binary, unary
from tape_core.tensor import ArrayLike, Tensor


def _kernel(place: str) -> Any:
    """The function of this name, such as `"scipy.special.j0"`, as a kernel."""

    def computed(xp: Any, *values: Any) -> Any:
        name = place.rpartition(".")[2]
        try:
            from scipy import special
        except ImportError as error:
            raise ImportError(f"{name} is computed by SciPy: pip install 'tape-core[special]'") from error
        import numpy as np

        first = next(v for v in values if is_array(v))
        with np.errstate(all="ignore"):
            out = getattr(special, name)(*[_on_host(v) if is_array(v) else v for v in values])
        return xp.asarray(np.asarray(out, dtype=np.float64), dtype=first.dtype, device=first.device)

    return in_double(computed)


def _on_host(x: Any) -> Any:
    import numpy as np

    try:
        return np.asarray(x)
    except (TypeError, RuntimeError):  # it is on another device
        return np.from_dlpack(x, device="cpu")


def _of_order(low: float, high: float, orders: tuple[float, ...] = (0, 1, 2.5)) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        for order in orders:
            yield Sample(order, draw(2, 3, low=low, high=high))
        yield Sample(draw(2, 1, low=0.2, high=4), draw(3, low=low, high=high))
        yield Sample(1, draw(low=low, high=high))
        yield Sample(1, draw(0, 2))
        yield Refused(TypeError, "real numbers", 1, draw.complex(2))

    return samples


# -- incomplete functions


@elementwise(
    a=lambda xp, a, x: xp.gammainc_derivative(a, x),
    x=gamma_density,
    kernel=_kernel("scipy.special.gammainc"),
    samples=binary(0.3, 8),
)
def gammainc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularized lower incomplete gamma function: the gamma distribution's probability of less than `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.gammainc(2.0, 3.0):.4f}")
    0.8009
    """


@elementwise(
    a=lambda xp, a, x: -xp.gammainc_derivative(a, x),
    x=lambda xp, a, x: -gamma_density(xp, a, x),
    kernel=_kernel("scipy.special.gammaincc"),
    samples=binary(0.3, 8),
)
def gammaincc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`1 - gammainc(a, x)`, exact where it is small."""


def _betainc_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3, low=0.4, high=5), draw(2, 3, low=0.4, high=5), draw(2, 3, low=0.05, high=0.95))
    yield Sample(2.5, 0.5, draw(3, low=0.05, high=0.95))
    yield Sample(draw(2, 1, low=0.4, high=5), draw(3, low=0.4, high=5), draw(low=0.05, high=0.95))
    yield Sample(draw(0, 2), draw(2), draw(0, 2))


@elementwise(
    a=lambda xp, a, b, x: xp.betainc_derivative(a, b, x, orders=(1, 0)),
    b=lambda xp, a, b, x: xp.betainc_derivative(a, b, x, orders=(0, 1)),
    x=beta_density,
    kernel=_kernel("scipy.special.betainc"),
    samples=_betainc_samples,
)
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularized incomplete beta function: the beta distribution's probability of less than `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.betainc(2.0, 3.0, 0.5):.4f}")
    0.6875
    """


@elementwise(
    df=lambda xp, df, t: xp.stdtr_derivative(df, t),
    t=t_density,
    kernel=_kernel("scipy.special.stdtr"),
    samples=binary(0.8, 6, -4, 4),
)
def stdtr(df: ArrayLike, t: ArrayLike, /) -> Tensor:
    """The distribution function of Student's t: the probability of less than `t`, with `df` degrees of freedom."""


# -- Bessel functions


@elementwise(x=lambda xp, x: -xp.j1(x), kernel=_kernel("scipy.special.j0"), samples=unary(-9, 9))
def j0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 0."""


@elementwise(x=lambda xp, x: 0.5 * (xp.j0(x) - xp.jv(2.0, x)), kernel=_kernel("scipy.special.j1"), samples=unary(-9, 9))
def j1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 1."""


@elementwise(x=lambda xp, x: -xp.y1(x), kernel=_kernel("scipy.special.y0"), samples=unary(0.3, 9))
def y0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 0. NaN below 0."""


@elementwise(
    x=lambda xp, x: 0.5 * (xp.y0(x) - xp.yv(2.0, x)), kernel=_kernel("scipy.special.y1"), samples=unary(0.3, 9)
)
def y1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 1. NaN below 0."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.jv(v - 1, x) - xp.jv(v + 1, x)),
    kernel=_kernel("scipy.special.jv"),
    samples=_of_order(0.3, 9),
)
def jv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and of real order `v`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.jv(2, 1.0):.4f}")
    0.1149

    There is a derivative by `x`. For one by the order there is no formula that holds for all orders and arguments:
    asking for it raises NotImplementedError.
    """


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.yv(v - 1, x) - xp.yv(v + 1, x)),
    kernel=_kernel("scipy.special.yv"),
    samples=_of_order(0.5, 9),
)
def yv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and of real order `v`; derivatives as for :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.iv(v - 1, x) + xp.iv(v + 1, x)),
    kernel=_kernel("scipy.special.iv"),
    samples=_of_order(0.3, 9),
)
def iv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the first kind and of real order `v`; derivatives as for :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x, out: 0.5 * (xp.ive(v - 1, x) + xp.ive(v + 1, x)) - xp.sign(x) * out,
    kernel=_kernel("scipy.special.ive"),
    samples=_of_order(0.3, 9),
)
def ive(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(-abs(x)) * iv(v, x)`, also where the two overflow and underflow; derivatives as for :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: -0.5 * (xp.kv(v - 1, x) + xp.kv(v + 1, x)),
    kernel=_kernel("scipy.special.kv"),
    samples=_of_order(0.5, 9),
)
def kv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and of real order `v`; derivatives as for :func:`jv`."""
