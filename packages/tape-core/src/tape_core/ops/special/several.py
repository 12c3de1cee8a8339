"""Functions under the names of `scipy.special` that have several results, or are made of those in `tabled`."""

from __future__ import annotations

import math
from typing import Any

from tape_core.base.lookup import ops
from tape_core.engine.tensor import Tensor
from tape_core.ops import elementwise as ew
from tape_core.ops.elementwise import where
from tape_core.ops.special import spherical, tabled
from tape_core.ops.special.by_scipy import dawsn
from tape_core.ops.special.composed import to_float_tensors
from tape_core.ops.special.elliptic import amplitude
from tape_core.ops.special.further import binom, poch
from tape_core.ops.special.gamma import gamma, gammaln
from tape_core.ops.special.polynomials import degree_of, eval_jacobi
from tape_core.typing import ArrayLike

Pair = tuple[Tensor, Tensor]
Four = tuple[Tensor, Tensor, Tensor, Tensor]

# -- integrals and Airy functions


def fresnel(x: ArrayLike, /) -> Pair:
    """Fresnel's integrals S and C."""
    return tabled.fresnel_s(x), tabled.fresnel_c(x)


def sici(x: ArrayLike, /) -> Pair:
    """The sine and cosine integrals Si and Ci."""
    return tabled.sine_integral(x), tabled.cosine_integral(x)


def shichi(x: ArrayLike, /) -> Pair:
    """The hyperbolic sine and cosine integrals Shi and Chi."""
    return tabled.sinh_integral(x), tabled.cosh_integral(x)


def itj0y0(x: ArrayLike, /) -> Pair:
    """The integrals of `j0` and `y0` from 0 to `x`."""
    return tabled.integral_j0(x), tabled.integral_y0(x)


def it2j0y0(x: ArrayLike, /) -> Pair:
    """The integrals of `(1 - j0(t)) / t` from 0 to `x`, and of `y0(t) / t` from `x` to infinity."""
    return tabled.integral_j0_over(x), tabled.integral_y0_over(x)


def iti0k0(x: ArrayLike, /) -> Pair:
    """The integrals of `i0` and `k0` from 0 to `x`."""
    return tabled.integral_i0(x), tabled.integral_k0(x)


def it2i0k0(x: ArrayLike, /) -> Pair:
    """The integrals of `(i0(t) - 1) / t` from 0 to `x`, and of `k0(t) / t` from `x` to infinity."""
    return tabled.integral_i0_over(x), tabled.integral_k0_over(x)


def airy(x: ArrayLike, /) -> Four:
    """The Airy functions of real numbers: Ai, its derivative, Bi, its derivative."""
    return tabled.airy_ai(x), tabled.airy_ai_slope(x), tabled.airy_bi(x), tabled.airy_bi_slope(x)


def airye(x: ArrayLike, /) -> Four:
    """The Airy functions of real numbers, scaled so that they neither overflow nor vanish."""
    return tabled.airye_ai(x), tabled.airye_ai_slope(x), tabled.airye_bi(x), tabled.airye_bi_slope(x)


def itairy(x: ArrayLike, /) -> Four:
    """The integrals of Ai and Bi from 0 to `x`, and from `-x` to 0."""
    return tabled.integral_ai(x), tabled.integral_bi(x), tabled.integral_ai_below(x), tabled.integral_bi_below(x)


def kelvin(x: ArrayLike, /) -> Four:
    """Kelvin's functions as complex numbers: `ber + 1j * bei`, `ker + 1j * kei`, and their derivatives."""
    return (
        tabled.ber(x) + 1j * tabled.bei(x),
        tabled.ker(x) + 1j * tabled.kei(x),
        tabled.berp(x) + 1j * tabled.beip(x),
        tabled.kerp(x) + 1j * tabled.keip(x),
    )


def pbdv(v: ArrayLike, x: ArrayLike, /) -> Pair:
    """The parabolic cylinder function D, and its derivative by `x`."""
    return tabled.cylinder_d(v, x), tabled.cylinder_d_slope(v, x)


def pbvv(v: ArrayLike, x: ArrayLike, /) -> Pair:
    """The parabolic cylinder function V, and its derivative by `x`."""
    return tabled.cylinder_v(v, x), tabled.cylinder_v_slope(v, x)


def pbwa(a: ArrayLike, x: ArrayLike, /) -> Pair:
    """The parabolic cylinder function W, and its derivative by `x`."""
    return tabled.cylinder_w(a, x), tabled.cylinder_w_slope(a, x)


# -- error functions of complex numbers


def wofz(x: ArrayLike, /) -> Tensor:
    """Faddeeva's function, `exp(-x**2) * erfc(-1j * x)`, of real or complex numbers."""
    (x,) = to_float_tensors(x)
    if x.dtype.kind == "complex floating":
        result: Tensor = tabled.faddeeva(x)
        return result
    value: Tensor = ew.exp(-x * x) + (2j / math.sqrt(math.pi)) * dawsn(x)
    return value


def voigt_profile(x: ArrayLike, sigma: ArrayLike, gamma: ArrayLike, /) -> Tensor:
    """The Voigt profile: the density of the sum of a normal number, of deviation `sigma`, and one of Cauchy's."""
    x, sigma, gamma = to_float_tensors(x, sigma, gamma)
    z = (x + 1j * gamma) / (sigma * math.sqrt(2))
    value: Tensor = ew.real(tabled.faddeeva(z)) / (sigma * math.sqrt(2 * math.pi))
    return value


def modfresnelp(x: ArrayLike, /) -> Pair:
    """The modified Fresnel integrals: of `exp(1j * t**2)` from `x` to infinity, and that times `exp(-1j * x**2)`."""
    (x,) = to_float_tensors(x)
    turn = ew.exp(1j * x * x)
    # exp(1j * x**2) * erfc(exp(-1j * pi / 4) * x) is Faddeeva's function on a line: nothing cancels.
    scaled = tabled.faddeeva((1j * complex(math.sqrt(0.5), -math.sqrt(0.5))) * x) * 0.5
    return scaled * turn * (math.sqrt(math.pi) * complex(math.sqrt(0.5), math.sqrt(0.5))), scaled


def modfresnelm(x: ArrayLike, /) -> Pair:
    """The modified Fresnel integrals: of `exp(-1j * t**2)` from `x` to infinity, and that times `exp(1j * x**2)`."""
    one, other = modfresnelp(x)
    return ew.conj(one), ew.conj(other)


def lambertw(z: ArrayLike, k: int = 0, tol: float = 1e-8, /) -> Tensor:
    """Lambert's function: the w with `w * exp(w) == z`, on the branch `k`; complex, as in SciPy."""
    (z,) = to_float_tensors(z)
    result: Tensor = tabled.lambert(z if z.dtype.kind == "complex floating" else z + 0j, k=int(k))
    return result


# -- elliptic functions


def ellipj(u: ArrayLike, m: ArrayLike, /) -> Four:
    """Jacobi's elliptic functions sn, cn and dn, and the amplitude."""
    u, m = to_float_tensors(u, m)
    phi = amplitude(u, m)
    sn, cn = ew.sin(phi), ew.cos(phi)
    return sn, cn, ew.sqrt(cn * cn + (1.0 - m) * sn * sn), phi


# -- Bessel functions of half orders


def _spherical(name: str, n: ArrayLike, z: ArrayLike, derivative: bool) -> Tensor:
    n, z = to_float_tensors(n, z)
    result: Tensor = spherical.slope(ops, name, n, z) if derivative else getattr(spherical, name)(n, z)
    return result


def spherical_jn(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Tensor:
    """The spherical Bessel function of the first kind and order `n`, of real numbers, or its derivative."""
    return _spherical("spherical_j", n, z, derivative)


def spherical_yn(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Tensor:
    """The spherical Bessel function of the second kind and order `n`, of real numbers, or its derivative."""
    return _spherical("spherical_y", n, z, derivative)


def spherical_in(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Tensor:
    """The modified spherical Bessel function of the first kind and order `n`, of real numbers, or its derivative."""
    return _spherical("spherical_i", n, z, derivative)


def spherical_kn(n: ArrayLike, z: ArrayLike, derivative: bool = False) -> Tensor:
    """The modified spherical Bessel function of the second kind and order `n`, of positive `z`, or its derivative."""
    return _spherical("spherical_k", n, z, derivative)


# -- Legendre functions and spherical harmonics


def eval_sh_jacobi(n: ArrayLike, p: ArrayLike, q: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The shifted Jacobi polynomial of degree `n`, which is on (0, 1)."""
    p, q, x = to_float_tensors(p, q, x)
    value = eval_jacobi(n, p - q, q - 1.0, 2.0 * x - 1.0)
    # That of degree 0 is 1 for all parameters, also where the binomial coefficient is not defined.
    return value if n == 0 else value / binom(2.0 * n + p - 1.0, n)


def _sph_legendre(n: int, m: int, theta: Tensor) -> Tensor:
    """The spherical Legendre function of degree `n` and order `m`, normalised as the spherical harmonics are."""
    size = abs(m)
    if size > n:
        return 0.0 * theta
    # From degree `size` on by the recurrence, DLMF 14.10.3: polynomials, which have all derivatives at the poles. As in
    # SciPy, the sine has no sign beyond them.
    sine, cosine = ew.sin(theta), ew.cos(theta)
    scale = math.sqrt((2 * size + 1) / (4 * math.pi) * math.prod(1 - 0.5 / k for k in range(1, size + 1)))
    here: Any = (scale if m < 0 or size % 2 == 0 else -scale) * ew.pow(where(sine < 0, -sine, sine), size)
    before: Any = 0.0
    factor = 1.0
    for k in range(size + 1, n + 1):
        last, factor = factor, math.sqrt((4 * k * k - 1) / (k * k - size * size))
        here, before = factor * (cosine * here - before / last), here
    result: Tensor = here
    return result


def sph_harm_y(n: int, m: int, theta: ArrayLike, phi: ArrayLike, /) -> Tensor:
    """The spherical harmonic of degree `n` and order `m`, at the polar angle `theta` and the azimuth `phi`; complex."""
    theta, phi = to_float_tensors(theta, phi)
    degree, order = degree_of("sph_harm_y", n), degree_of("sph_harm_y", abs(m))
    return _sph_legendre(degree, order if m >= 0 else -order, theta) * ew.exp(1j * m * phi)


# -- factorials, sums and others


def factorial(n: ArrayLike, exact: bool = False) -> Tensor:
    """The factorial of real numbers, `gamma(n + 1)`; 0 below 0."""
    if exact:
        raise ValueError("factorial: exact=True is for Python's integers: scipy.special.factorial")
    (n,) = to_float_tensors(n)
    return where(n < 0, 0.0, gamma(where(n < 0, 0.0, n) + 1.0))


def comb(N: ArrayLike, k: ArrayLike) -> Tensor:
    """The number of ways to choose `k` of `N` elements, of real numbers; 0 where `k` is outside of 0 to `N`."""
    N, k = to_float_tensors(N, k)
    inside = (k <= N) & (N >= 0) & (k >= 0)
    return where(inside, binom(where(inside, N, 1.0), where(inside, k, 0.0)), 0.0)


def perm(N: ArrayLike, k: ArrayLike) -> Tensor:
    """The number of arrangements of `k` of `N` elements, of real numbers; 0 where `k` is outside of 0 to `N`."""
    N, k = to_float_tensors(N, k)
    inside = (k <= N) & (N >= 0) & (k >= 0)
    N, k = where(inside, N, 1.0), where(inside, k, 0.0)
    return where(inside, poch(N - k + 1.0, k), 0.0)


# Euler and Maclaurin's sum, DLMF 25.11.7: its terms have derivatives by both arguments.
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138,
)  # fmt: skip
_SUMMED = 12


def _hurwitz(s: Tensor, q: Tensor) -> Tensor:
    total: Any = 0.0
    for n in range(_SUMMED):
        total = total + ew.pow(q + float(n), -s)
    end = q + float(_SUMMED)
    total = total + ew.pow(end, 1.0 - s) / (s - 1.0) + 0.5 * ew.pow(end, -s)
    rising = s
    for k, b in enumerate(_BERNOULLI, 1):
        total = total + b / math.factorial(2 * k) * rising * ew.pow(end, 1.0 - 2.0 * k - s)
        rising = rising * (s + (2.0 * k - 1.0)) * (s + 2.0 * k)
    result: Tensor = total
    return result


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Tensor:
    """Riemann's zeta function, or with `q` > 0 and `x` > 1 that of Hurwitz: the sum of `(n + q)**-x` from n = 0 on."""
    if q is not None:
        x, q = to_float_tensors(x, q)
        there = (x > 1) & (q > 0)
        value = _hurwitz(where(there, x, 2.0), where(there, q, 1.0))
        return where(there, value, where((x == 1) | ((x > 1) & (q == 0)), math.inf, math.nan))
    (x,) = to_float_tensors(x)
    below = x < -0.5  # the functional equation, DLMF 25.4.1, whose factors are 0 and infinite at 0
    other = where(below, 1.0 - x, where(x == 1, 2.0, x))
    value = _hurwitz(other, 1.0 + 0.0 * other)
    up = where(below, other, 2.0)
    log_factor = gammaln(up) - up * math.log(2 * math.pi)
    reflected = 2.0 * ew.exp(log_factor) * ew.cos(0.5 * math.pi * up) * value
    return where(x == 1, math.inf, where(below, reflected, value))


def zetac(x: ArrayLike, /) -> Tensor:
    """`zeta(x) - 1`, accurate where `x` is large."""
    (x,) = to_float_tensors(x)
    large = x > 20
    (far,) = to_float_tensors(where(large, x, 30.0))
    tail: Any = 0.0
    for n in range(2, 16):  # 16**-20 is nothing beside 2**-20
        tail = tail + ew.exp(-math.log(n) * far)
    return where(large, tail, zeta(where(large, 2.0, x)) - 1.0)
