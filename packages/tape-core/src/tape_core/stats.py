"""Densities and distribution functions under the names of `scipy.stats`; differentiable.

SciPy's own functions accept Tensors, but return NumPy arrays, which have no gradient. The formulas are those of SciPy's
documentation, written with functions that are accurate at both ends of the range.

>>> import tape_core as tc
>>> scale = tc.Variable(2.0)
>>> with tc.GradientTape() as tape:
...     y = tc.sum(tc.stats.norm.logpdf(tc.asarray([0.5, 1.0]), scale=scale))
>>> print(f"{tape.gradient(y, scale):.4f}")
-0.8438
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tape_core.engine.hints import missing as _missing
from tape_core.engine.tensor import Tensor
from tape_core.ops import elementwise as ew
from tape_core.ops.creation import eye
from tape_core.ops.elementwise import where
from tape_core.ops.linalg.decompositions import cholesky
from tape_core.ops.linalg.factorizations import solve_triangular
from tape_core.ops.linalg.norms_and_inverses import diagonal
from tape_core.ops.logic import logical_and
from tape_core.ops.manipulation import expand_dims
from tape_core.ops.special.by_scipy import betainc, gammainc, gammaincc, stdtr
from tape_core.ops.special.composed import to_float_tensors
from tape_core.ops.special.error_functions import log_ndtr, ndtr
from tape_core.ops.special.gamma import betaln, gammaln
from tape_core.ops.special.logarithms import expit, xlog1py, xlogy
from tape_core.ops.statistical import sum as _sum
from tape_core.typing import ArrayLike

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

Formula = Callable[..., Tensor]


class _Distribution:
    """A continuous distribution: it handles parameters, location and scale, and values outside of the support."""

    def __init__(
        self,
        name: str,
        shapes: tuple[str, ...],
        log_density: Formula,
        cdf: Formula | None,
        low: float = -math.inf,
        high: float = math.inf,
        inside: float = 0.0,
    ) -> None:
        """Define a distribution by its formulas for `loc=0` and `scale=1`.

        Args:
            shapes: the names of the parameters besides `loc` and `scale`; they must be positive.
            log_density: the logarithm of the density, a function of the value and the parameters.
            cdf: the distribution function, of the same arguments; None if it is not implemented.
            low, high: the ends of the support, both included.
            inside: a value inside the support. It stands in for values outside, so that formulas and their derivatives
                give no NaN there.
        """
        self._name, self._shapes, self._log_density, self._cdf = name, shapes, log_density, cdf
        self._low, self._high, self._inside = low, high, inside

    def __repr__(self) -> str:
        return f"<tape_core.stats.{self._name}>"

    def _standardize(
        self, what: str, x: ArrayLike, args: tuple[ArrayLike, ...], given: dict[str, ArrayLike]
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Return `(x - loc) / scale`, the shape parameters, and the scale.

        The scale is NaN, and so the first of them, where a parameter is not positive.
        """
        names = (*self._shapes, "loc", "scale")
        if len(args) > len(names):
            raise TypeError(f"{self._name}.{what} takes {', '.join(names)} after the value; got {len(args)} more")
        found = {"loc": 0.0, "scale": 1.0, **dict(zip(names, args, strict=False))}
        for name, value in given.items():
            if name not in names or name in names[: len(args)]:
                raise TypeError(f"{self._name}.{what}: {name!r} is not a parameter, or is given twice")
            found[name] = value
        if missing := [name for name in names if name not in found]:
            raise TypeError(f"{self._name}.{what}: {', '.join(missing)} is missing")
        x, *shapes, loc, scale = to_float_tensors(x, *[found[name] for name in names])
        for shape in shapes:
            scale = where(shape > 0, scale, math.nan)
        scale = where(scale > 0, scale, math.nan)
        return (x - loc) / scale, shapes, scale

    def logpdf(self, x: ArrayLike, /, *args: ArrayLike, **given: ArrayLike) -> Tensor:
        """The logarithm of the density; -inf outside of the support, NaN where a parameter is out of its range."""
        z, shapes, scale = self._standardize("logpdf", x, args, given)
        there = logical_and(z >= self._low, z <= self._high)
        value = self._log_density(where(there, z, self._inside), *shapes) - ew.log(scale)
        return where(there, value, where(z == z, -math.inf, math.nan))

    def pdf(self, x: ArrayLike, /, *args: ArrayLike, **given: ArrayLike) -> Tensor:
        """The density."""
        return ew.exp(self.logpdf(x, *args, **given))

    def cdf(self, x: ArrayLike, /, *args: ArrayLike, **given: ArrayLike) -> Tensor:
        """The probability of a value of at most `x`."""
        if self._cdf is None:
            raise NotImplementedError(f"{self._name}.cdf is not here")
        z, shapes, _ = self._standardize("cdf", x, args, given)
        there = logical_and(z >= self._low, z <= self._high)
        value = self._cdf(where(there, z, self._inside), *shapes)
        return where(there, value, where(z < self._low, 0.0, where(z > self._high, 1.0, math.nan)))


class _Normal(_Distribution):
    def logcdf(self, x: ArrayLike, /, *args: ArrayLike, **given: ArrayLike) -> Tensor:
        """The logarithm of :meth:`cdf`, accurate far below the mean as well."""
        return log_ndtr(self._standardize("logcdf", x, args, given)[0])

    def sf(self, x: ArrayLike, /, *args: ArrayLike, **given: ArrayLike) -> Tensor:
        """The survival function `1 - cdf`, accurate where it is small."""
        return ndtr(-self._standardize("sf", x, args, given)[0])


def _beta(z: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return xlogy(a - 1.0, z) + xlog1py(b - 1.0, -z) - betaln(a, b)


def _gamma(z: Tensor, a: Tensor) -> Tensor:
    return xlogy(a - 1.0, z) - z - gammaln(a)


def _chi2(z: Tensor, df: Tensor) -> Tensor:
    return xlogy(0.5 * df - 1.0, 0.5 * z) - 0.5 * z - gammaln(0.5 * df) - math.log(2.0)


def _t(z: Tensor, df: Tensor) -> Tensor:
    # betaln wants both arguments as Tensors, hence 0.5 + 0.0 * df.
    return -0.5 * (df + 1.0) * ew.log1p(z * z / df) - betaln(0.5 * df, 0.5 + 0.0 * df) - 0.5 * ew.log(df)


def _lognorm(z: Tensor, s: Tensor) -> Tensor:
    there = z > 0
    log = ew.log(where(there, z, 1.0))
    return where(there, -0.5 * (log / s) ** 2 - ew.log(s) - log - _HALF_LOG_2PI, -math.inf)


def _lognorm_cdf(z: Tensor, s: Tensor) -> Tensor:
    there = z > 0
    return where(there, ndtr(ew.log(where(there, z, 1.0)) / s), 0.0)


def _laplace_cdf(z: Tensor) -> Tensor:
    # exp(-|z|) cannot overflow, also in the branch that `where` does not take. The same holds for `_logistic`.
    tail = 0.5 * ew.exp(-ew.abs(z))
    return where(z > 0, 1.0 - tail, tail)


def _logistic(z: Tensor) -> Tensor:
    size = ew.abs(z)
    return -size - 2.0 * ew.log1p(ew.exp(-size))


_INF = math.inf
norm = _Normal("norm", (), lambda z: -0.5 * z * z - _HALF_LOG_2PI, ndtr)
"""The normal distribution: `loc`, `scale`."""
t = _Distribution("t", ("df",), _t, lambda z, df: stdtr(df, z))
"""Student's t: `df`, `loc`, `scale`."""
gamma = _Distribution("gamma", ("a",), _gamma, lambda z, a: gammainc(a, z), 0.0, _INF, 1.0)
"""The gamma distribution: `a`, `loc`, `scale`."""
beta = _Distribution("beta", ("a", "b"), _beta, lambda z, a, b: betainc(a, b, z), 0.0, 1.0, 0.5)
"""The beta distribution: `a`, `b`, `loc`, `scale`."""
chi2 = _Distribution("chi2", ("df",), _chi2, lambda z, df: gammainc(0.5 * df, 0.5 * z), 0.0, _INF, 1.0)
"""The chi-squared distribution: `df`, `loc`, `scale`."""
expon = _Distribution("expon", (), lambda z: -z, lambda z: -ew.expm1(-z), 0.0, _INF, 1.0)
"""The exponential distribution: `loc`, `scale`."""
uniform = _Distribution("uniform", (), lambda z: 0.0 * z, lambda z: z, 0.0, 1.0, 0.5)
"""The uniform distribution from `loc` to `loc + scale`."""
laplace = _Distribution("laplace", (), lambda z: -ew.abs(z) - math.log(2.0), _laplace_cdf)
"""Laplace's distribution: `loc`, `scale`."""
logistic = _Distribution("logistic", (), _logistic, expit)
"""The logistic distribution: `loc`, `scale`."""
cauchy = _Distribution(
    "cauchy", (), lambda z: -math.log(math.pi) - ew.log1p(z * z), lambda z: 0.5 + ew.atan(z) / math.pi
)
"""Cauchy's distribution: `loc`, `scale`."""
lognorm = _Distribution("lognorm", ("s",), _lognorm, _lognorm_cdf, 0.0, _INF, 1.0)
"""The log-normal distribution: `s`, `loc`, `scale`."""


class _Poisson:
    """The Poisson distribution: `mu`, `loc`."""

    def logpmf(self, k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0.0) -> Tensor:
        """The logarithm of the probability of `k`; -inf where `k` is not a whole number of at least 0."""
        k, mu, loc = to_float_tensors(k, mu, loc)
        k, mu = k - loc, where(mu >= 0, mu, math.nan)
        there = logical_and(k >= 0, k == ew.floor(k))
        k = where(there, k, 0.0)
        return where(there, xlogy(k, mu) - gammaln(k + 1.0) - mu, -math.inf)

    def pmf(self, k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0.0) -> Tensor:
        """The probability of `k`."""
        return ew.exp(self.logpmf(k, mu, loc))

    def cdf(self, k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0.0) -> Tensor:
        """The probability of a value of at most `k`."""
        k, mu, loc = to_float_tensors(k, mu, loc)
        k, mu = ew.floor(k - loc), where(mu >= 0, mu, math.nan)
        # DLMF 8.4.10: exp(-mu) * sum(mu**j / j! for j <= k) is Q(k + 1, mu), the regularized incomplete gamma function.
        return where(k >= 0, gammaincc(where(k >= 0, k, 0.0) + 1.0, mu), 0.0)


class _Binomial:
    """The binomial distribution: `n`, `p`, `loc`."""

    def logpmf(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0.0) -> Tensor:
        """The logarithm of the probability of `k`; -inf where `k` is not a whole number from 0 to `n`."""
        k, n, p, loc = to_float_tensors(k, n, p, loc)
        k, p = k - loc, where(logical_and(p >= 0, p <= 1), p, math.nan)
        there = logical_and(logical_and(k >= 0, k <= n), k == ew.floor(k))
        k = where(there, k, 0.0)
        # log of n over k, without the difference of large values of gammaln.
        ways = -betaln(1.0 + n - k, 1.0 + k) - ew.log1p(n)
        return where(there, ways + xlogy(k, p) + xlog1py(n - k, -p), -math.inf)

    def pmf(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0.0) -> Tensor:
        """The probability of `k`."""
        return ew.exp(self.logpmf(k, n, p, loc))


class _MultivariateNormal:
    """The normal distribution of vectors, along the last axis: `mean`, `cov`."""

    def logpdf(self, x: ArrayLike, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0) -> Tensor:
        """The logarithm of the density.

        Args:
            x: of shape (..., d).
            mean: of shape (d,), or a number.
            cov: of shape (d, d), positive definite; or a vector or a number, which stand on the diagonal.

        Raises:
            ValueError: `cov` is not positive definite.
        """
        x, mean, cov = to_float_tensors(x, mean, cov)
        difference = x - mean
        size = difference.shape[-1]
        if cov.ndim < 2:
            cov = cov * eye(size, dtype=cov.dtype, backend=cov.backend.root, device=cov.device)
        # With cov = L L^T, the quadratic form is |L^-1 (x - mean)|^2, and log det cov is twice the sum of log diag L.
        factor = cholesky(cov)
        white = solve_triangular(factor, _columns(difference), lower=True)
        logs = _sum(ew.log(diagonal(factor)), axis=-1)
        value: Tensor = -0.5 * _sum(white * white, axis=(-2, -1)) - logs - size * _HALF_LOG_2PI
        return value

    def pdf(self, x: ArrayLike, mean: ArrayLike = 0.0, cov: ArrayLike = 1.0) -> Tensor:
        """The density."""
        return ew.exp(self.logpdf(x, mean, cov))


def _columns(x: Tensor) -> Tensor:
    return expand_dims(x, axis=-1)


class _Dirichlet:
    """The Dirichlet distribution of vectors with the sum 1, along the first axis: `alpha`."""

    def logpdf(self, x: ArrayLike, alpha: ArrayLike) -> Tensor:
        """The logarithm of the density.

        Args:
            x: of shape (d,) or (d, n), with the sum 1 along the first axis; this is not checked.
            alpha: of shape (d,).
        """
        x, alpha = to_float_tensors(x, alpha)
        constant = gammaln(_sum(alpha)) - _sum(gammaln(alpha))
        powers = _columns(alpha) if x.ndim == 2 else alpha
        return _sum(xlogy(powers - 1.0, x), axis=0) + constant

    def pdf(self, x: ArrayLike, alpha: ArrayLike) -> Tensor:
        """The density."""
        return ew.exp(self.logpdf(x, alpha))


poisson = _Poisson()
binom = _Binomial()
multivariate_normal = _MultivariateNormal()
dirichlet = _Dirichlet()

__all__ = [
    "beta",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "laplace",
    "logistic",
    "lognorm",
    "multivariate_normal",
    "norm",
    "poisson",
    "t",
    "uniform",
]


if not TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
