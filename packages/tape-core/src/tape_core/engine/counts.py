"""The formulas of Poisson's and the binomial distribution: small counts by searching, large ones by rejection.

All Tensors are float64, and parameters have no derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tape_core.base.lookup import ops
from tape_core.engine.tensor import Tensor

Attempt = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

SEARCH_BELOW: Final = 10.0  # a mean; below, the distribution function is searched, from 0 on
SEARCH_STEPS: Final = 45  # more than that has a probability of 2e-16 at this mean
ATTEMPTS: Final = 10  # of rejection; each fails for at most 1 in 6
SMALLEST: Final = 2.0**-25  # takes the place of 0 before a logarithm or in a divisor


def searched(u: Tensor, term: Tensor, factor: Callable[[int], Tensor]) -> Tensor:
    """Return the counts at which a distribution function exceeds uniform numbers.

    Args:
        term: the probability of 0.
        factor: returns what the probability of k - 1 is multiplied by to be that of k.
    """
    below, found = term, ops.zeros_like(u)
    for k in range(1, SEARCH_STEPS):
        found = found + ops.astype(u >= below, "float64")
        term = term * factor(k)
        below = below + term
    return found


def poisson_attempt(rate: Tensor) -> Attempt:
    """Return the transformed rejection of Poisson's distribution, for rates of at least 10.

    Source: Hörmann, The transformed rejection method for generating Poisson random variables, Insurance: Mathematics
    and Economics 12, 1993.
    """
    b = 0.931 + 2.53 * ops.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    quick = 0.9277 - 3.6224 / (b - 2)
    log_rate = ops.log(rate)

    def attempt(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u = u - 0.5
        side = 0.5 - ops.abs(u)
        inner = _at_least(side, SMALLEST)
        k = ops.floor((2 * a / inner + b) * u + rate + 0.43)
        possible = (k >= 0) & ((side >= 0.013) | (v <= side))
        k = ops.maximum(k, ops.zeros_like(k))
        height = ops.log(_at_least(v, SMALLEST)) + ops.log(inverse) - ops.log(a / (inner * inner) + b)
        exact = height <= k * log_rate - rate - ops.gammaln(k + 1)
        return k, ((side >= 0.07) & (v <= quick)) | (possible & exact)

    return attempt


def binomial_attempt(n: Tensor, p: Tensor) -> tuple[Attempt, Tensor]:
    """Return the transformed rejection of the binomial distribution, for `p <= 1/2` and means of at least 10; its mode.

    Source: Hörmann, The generation of binomial random variates, Journal of Statistical Computation and Simulation 46,
    1993.
    """
    q = 1 - p
    deviation = ops.sqrt(n * p * q)
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    quick = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * deviation
    log_odds = ops.log(p / q)
    mode = ops.floor((n + 1) * p)
    highest = ops.gammaln(mode + 1) + ops.gammaln(n - mode + 1)

    def attempt(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u = u - 0.5
        side = 0.5 - ops.abs(u)
        inner = _at_least(side, SMALLEST)
        k = ops.floor((2 * a / inner + b) * u + n * p + 0.5)
        possible = (k >= 0) & (k <= n)
        k = ops.minimum(ops.maximum(k, ops.zeros_like(k)), n)
        height = ops.log(_at_least(v, SMALLEST)) + ops.log(alpha) - ops.log(a / (inner * inner) + b)
        exact = height <= highest - ops.gammaln(k + 1) - ops.gammaln(n - k + 1) + (k - mode) * log_odds
        return k, ((side >= 0.07) & (v <= quick)) | (possible & exact)

    return attempt, mode


def _at_least(x: Any, smallest: float) -> Any:
    return ops.maximum(x, ops.full_like(x, smallest))
