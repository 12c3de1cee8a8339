"""Functions of matrices: exponential, logarithm, square root, powers, sine, cosine and their like."""

from __future__ import annotations

import math
from typing import Any

import tape_core as tc
from tape_core.ops.linalg.matrix_functions import expm_derivative
from tape_core.scipy.arguments import floats, identity, is_complex, square
from tape_core.scipy.quadrature import gauss_legendre
from tape_core.typing import ArrayLike

_ROOT_STEPS = 20
_ROOTS_OF_LOGARITHM = 6
_UNSET = object()


def _matrices(function: str, x: ArrayLike, name: str = "A") -> tc.Tensor:
    (found,) = floats(f"scipy.linalg.{function}", **{name: x})
    square(f"scipy.linalg.{function}", name, found)
    return found


def expm(A: ArrayLike) -> tc.Tensor:
    """The exponential of each matrix.

    >>> expm(tc.asarray([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return tc.linalg.expm(_matrices("expm", A))


def expm_frechet(
    A: ArrayLike, E: ArrayLike, method: str | None = None, compute_expm: bool = True, check_finite: bool = True
) -> Any:
    """The exponential of each `A`, and its derivative in the direction `E`.

    >>> one = tc.asarray([[0.0]])
    >>> [y.item() for y in expm_frechet(one, one + 2.0)]
    [1.0, 2.0]

    Args:
        A, E: shapes (..., n, n).
        compute_expm: whether the exponential is returned, too.
        method, check_finite: without effect.
    """
    A, E = floats("scipy.linalg.expm_frechet", A=A, E=E)
    square("scipy.linalg.expm_frechet", "A", A)
    if E.shape != A.shape:
        raise ValueError(f"scipy.linalg.expm_frechet: A and E must have one shape, got {A.shape} and {E.shape}")
    derivative = expm_derivative(A, E)
    return (tc.linalg.expm(A), derivative) if compute_expm else derivative


def _cosine_and_sine(function: str, A: ArrayLike) -> tuple[tc.Tensor, tc.Tensor]:
    A = _matrices(function, A)
    if not is_complex(A):
        whole = tc.linalg.expm(1j * A)
        return tc.real(whole), tc.imag(whole)
    forth, back = tc.linalg.expm(1j * A), tc.linalg.expm(-1j * A)
    return (forth + back) / 2, (forth - back) / 2j


def cosm(A: ArrayLike) -> tc.Tensor:
    """The cosine of each matrix.

    >>> cosm(tc.asarray([[0.0]])).tolist()
    [[1.0]]
    """
    return _cosine_and_sine("cosm", A)[0]


def sinm(A: ArrayLike) -> tc.Tensor:
    """The sine of each matrix.

    >>> sinm(tc.asarray([[0.0]])).tolist()
    [[0.0]]
    """
    return _cosine_and_sine("sinm", A)[1]


def tanm(A: ArrayLike) -> tc.Tensor:
    """The tangent of each matrix.

    >>> tanm(tc.asarray([[0.0]])).tolist()
    [[0.0]]
    """
    cosine, sine = _cosine_and_sine("tanm", A)
    return tc.linalg.solve(cosine, sine)


def _hyperbolic(function: str, A: ArrayLike) -> tuple[tc.Tensor, tc.Tensor]:
    A = _matrices(function, A)
    forth, back = tc.linalg.expm(A), tc.linalg.expm(-A)
    return (forth + back) / 2, (forth - back) / 2


def coshm(A: ArrayLike) -> tc.Tensor:
    """The hyperbolic cosine of each matrix.

    >>> coshm(tc.asarray([[0.0]])).tolist()
    [[1.0]]
    """
    return _hyperbolic("coshm", A)[0]


def sinhm(A: ArrayLike) -> tc.Tensor:
    """The hyperbolic sine of each matrix.

    >>> sinhm(tc.asarray([[0.0]])).tolist()
    [[0.0]]
    """
    return _hyperbolic("sinhm", A)[1]


def tanhm(A: ArrayLike) -> tc.Tensor:
    """The hyperbolic tangent of each matrix.

    >>> tanhm(tc.asarray([[0.0]])).tolist()
    [[0.0]]
    """
    cosine, sine = _hyperbolic("tanhm", A)
    return tc.linalg.solve(cosine, sine)


def _root(a: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
    """The principal square root, and for each matrix whether it was found.

    It is the iteration of Denman and Beavers, with determinants as scales: Higham, "Functions of Matrices", 2008,
    equations 6.28 and 6.29. The root is a fixed point whatever the scales are, so they are constants
    for the derivative.
    """
    n = a.shape[-1]
    one = identity(a, n)
    x, y = a, tc.broadcast_to(one, a.shape)
    for _ in range(_ROOT_STEPS):
        sizes = tc.linalg.slogdet(x).logabsdet + tc.linalg.slogdet(y).logabsdet
        scale = tc.stop_gradient(tc.exp(sizes / (-2 * n)))[..., None, None]
        x, y = (scale * x + tc.linalg.inv(y) / scale) / 2, (scale * y + tc.linalg.inv(x) / scale) / 2
    # Where the iteration has not come to an end, as with eigenvalues on the negative axis, there is no answer.
    off = tc.linalg.matrix_norm(tc.stop_gradient(x @ x - a))
    close = off <= math.sqrt(float(tc.finfo(a.dtype).eps)) * tc.linalg.matrix_norm(tc.stop_gradient(a))
    return x, close[..., None, None]


def sqrtm(A: ArrayLike, disp: object = _UNSET, blocksize: object = _UNSET) -> tc.Tensor:
    """The principal square root of each matrix: `R @ R == A`, with eigenvalues in the right half plane.

    >>> sqrtm(tc.asarray([[4.0, 0.0], [0.0, 9.0]])).round(4).tolist()
    [[2.0, 0.0], [0.0, 3.0]]

    Args:
        A: shape (..., n, n). It is NaN where a matrix has an eigenvalue on the negative real axis. SciPy's is complex
            there, and has no derivative.
        disp, blocksize: SciPy no longer has a use for them.

    Raises:
        ValueError: a matrix is not square, or singular: there is no derivative.
    """
    root, found = _root(_matrices("sqrtm", A))
    return tc.where(found, root, math.nan)


def _logarithm(a: tc.Tensor) -> tc.Tensor:
    """The principal logarithm, by repeated square roots and Gauss-Legendre quadrature.

    Higham, "Functions of Matrices", 2008, equations 11.3 and 11.18: log(1 + x) is the integral of x (1 + t x)^-1.
    """
    one = identity(a, a.shape[-1])
    found: tc.Tensor | bool = True
    for _ in range(_ROOTS_OF_LOGARITHM):
        root, close = _root(a)
        a, found = tc.where(close, root, one), tc.logical_and(close, found)
    x = a - one
    total = tc.zeros_like(x)
    for node, weight in _GAUSS:
        total = total + weight * tc.linalg.solve(one + node * x, x)
    return tc.where(found, 2.0**_ROOTS_OF_LOGARITHM * total, math.nan)


def logm(A: ArrayLike, disp: object = _UNSET) -> tc.Tensor:
    """The principal logarithm of each matrix: the inverse of :func:`expm`.

    >>> logm(tc.asarray([[1.0, 0.0], [0.0, 1.0]])).round(4).tolist()
    [[0.0, 0.0], [0.0, 0.0]]

    Args:
        A: shape (..., n, n). It is NaN where a matrix has an eigenvalue on the negative real axis.
        disp: SciPy no longer has a use for it.

    Raises:
        ValueError: a matrix is not square, or singular.
    """
    return _logarithm(_matrices("logm", A))


def fractional_matrix_power(A: ArrayLike, t: float) -> tc.Tensor:
    """The power `A**t` of each matrix, with a real number `t`.

    >>> fractional_matrix_power(tc.asarray([[4.0, 0.0], [0.0, 9.0]]), 0.5).round(4).tolist()
    [[2.0, 0.0], [0.0, 3.0]]

    Args:
        A: shape (..., n, n). For a `t` that is no integer it is NaN where a matrix has an eigenvalue on the negative
            real axis.

    Raises:
        ValueError: a matrix is not square, or singular.
    """
    A = _matrices("fractional_matrix_power", A)
    whole = math.floor(t)
    power = tc.linalg.matrix_power(A, whole)
    return power if t == whole else power @ tc.linalg.expm((t - whole) * _logarithm(A))


_GAUSS = gauss_legendre(12)
