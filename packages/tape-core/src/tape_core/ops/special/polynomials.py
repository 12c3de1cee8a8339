"""Orthogonal polynomials under the names of `scipy.special`, by their recurrences.

The degree `n` is an integer of Python: it says how often the recurrence is run. All other arguments have derivatives.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

from tape_core.engine.tensor import Tensor
from tape_core.ops.special.composed import to_float_tensors
from tape_core.typing import ArrayLike


def degree_of(name: str, n: SupportsIndex) -> int:
    """Return the degree as a Python integer.

    Raises:
        TypeError: it is no integer.
        ValueError: it is negative.
    """
    try:
        degree = operator.index(n)
    except TypeError:
        degree = int(n) if isinstance(n, float) and n.is_integer() else None  # type: ignore[assignment]
    if degree is None:
        raise TypeError(
            f"{name}: the degree must be one integer; got {n!r}. The polynomials of several degrees are several calls, "
            f"and functions of a real degree have no counterpart here: give scipy.special.{name} t.numpy() where no "
            f"gradient is needed"
        )
    if degree < 0:
        raise ValueError(f"{name}: the degree must not be negative; got {degree}")
    return degree


def _recurrence(n: int, first: Tensor, second: Any, step: Any) -> Tensor:
    """Run `p[k + 1] = step(k, p[k], p[k - 1])` from `p[0]` and `p[1]` to `p[n]`."""
    before, here = first, second
    if n == 0:
        return first
    for k in range(1, n):
        before, here = here, step(k, here, before)
    result: Tensor = here
    return result


def _ones(x: Tensor, *others: Tensor) -> Tensor:
    """1 in the shape of all arguments together."""
    result: Tensor = 0.0 * x + 1.0
    for other in others:
        result = result + 0.0 * other
    return result


def eval_legendre(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Legendre polynomial of degree `n`.

    >>> import tape_core as tc
    >>> tc.special.eval_legendre(2, tc.asarray([0.0, 1.0])).tolist()
    [-0.5, 1.0]

    Raises:
        TypeError: `n` is no integer.
        ValueError: `n` is negative.
    """
    n = degree_of("eval_legendre", n)
    (x,) = to_float_tensors(x)
    return _recurrence(n, _ones(x), x, lambda k, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1))


def eval_chebyt(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Chebyshev polynomial of the first kind of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_chebyt", n)
    (x,) = to_float_tensors(x)
    return _recurrence(n, _ones(x), x, lambda k, p, q: 2.0 * x * p - q)


def eval_chebyu(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Chebyshev polynomial of the second kind of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_chebyu", n)
    (x,) = to_float_tensors(x)
    return _recurrence(n, _ones(x), 2.0 * x, lambda k, p, q: 2.0 * x * p - q)


def eval_chebyc(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Chebyshev polynomial of the first kind on [-2, 2]: `2 * eval_chebyt(n, x / 2)`."""
    n = degree_of("eval_chebyc", n)
    (x,) = to_float_tensors(x)
    return 2.0 * eval_chebyt(n, 0.5 * x)


def eval_chebys(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Chebyshev polynomial of the second kind on [-2, 2]: `eval_chebyu(n, x / 2)`."""
    n = degree_of("eval_chebys", n)
    (x,) = to_float_tensors(x)
    return eval_chebyu(n, 0.5 * x)


def eval_hermite(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The physicists' Hermite polynomial of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_hermite", n)
    (x,) = to_float_tensors(x)
    return _recurrence(n, _ones(x), 2.0 * x, lambda k, p, q: 2.0 * (x * p - k * q))


def eval_hermitenorm(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The probabilists' Hermite polynomial of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_hermitenorm", n)
    (x,) = to_float_tensors(x)
    return _recurrence(n, _ones(x), x, lambda k, p, q: x * p - k * q)


def eval_laguerre(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Laguerre polynomial of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_laguerre", n)
    return eval_genlaguerre(n, 0.0, x)


def eval_genlaguerre(n: SupportsIndex, alpha: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The generalized Laguerre polynomial of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_genlaguerre", n)
    a, x = to_float_tensors(alpha, x)
    return _recurrence(n, _ones(x, a), 1.0 + a - x, lambda k, p, q: ((2 * k + 1 + a - x) * p - (k + a) * q) / (k + 1))


def eval_gegenbauer(n: SupportsIndex, alpha: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Gegenbauer polynomial of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_gegenbauer", n)
    a, x = to_float_tensors(alpha, x)
    return _recurrence(
        n, _ones(x, a), 2.0 * a * x, lambda k, p, q: (2.0 * (k + a) * x * p - (k + 2.0 * a - 1.0) * q) / (k + 1)
    )


def eval_jacobi(n: SupportsIndex, alpha: ArrayLike, beta: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Jacobi polynomial of degree `n`; see :func:`eval_legendre` for its errors."""
    n = degree_of("eval_jacobi", n)
    a, b, x = to_float_tensors(alpha, beta, x)

    def step(k: int, p: Tensor, q: Tensor) -> Tensor:
        c = 2 * k + a + b
        slope = (c + 1.0) * (c * (c + 2.0) * x + a * a - b * b)
        result: Tensor = (slope * p - 2.0 * (k + a) * (k + b) * (c + 2.0) * q) / (2.0 * (k + 1) * (k + 1 + a + b) * c)
        return result

    return _recurrence(n, _ones(x, a, b), 0.5 * (a - b + (a + b + 2.0) * x), step)


def eval_sh_legendre(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Legendre polynomial on [0, 1]: `eval_legendre(n, 2 * x - 1)`."""
    n = degree_of("eval_sh_legendre", n)
    (x,) = to_float_tensors(x)
    return eval_legendre(n, 2.0 * x - 1.0)


def eval_sh_chebyt(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Chebyshev polynomial of the first kind on [0, 1]: `eval_chebyt(n, 2 * x - 1)`."""
    n = degree_of("eval_sh_chebyt", n)
    (x,) = to_float_tensors(x)
    return eval_chebyt(n, 2.0 * x - 1.0)


def eval_sh_chebyu(n: SupportsIndex, x: ArrayLike, /) -> Tensor:
    """The Chebyshev polynomial of the second kind on [0, 1]: `eval_chebyu(n, 2 * x - 1)`."""
    n = degree_of("eval_sh_chebyu", n)
    (x,) = to_float_tensors(x)
    return eval_chebyu(n, 2.0 * x - 1.0)
