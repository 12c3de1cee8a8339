"""Linear equations and their like: `solve`, `lstsq`, `pinv`, banded systems, Sylvester's and Lyapunov's equations."""

from __future__ import annotations

from typing import Any, Literal

import tape_core as tc
from tape_core.scipy.arguments import adjoint, choose, floats, identity, is_complex, refuse, square
from tape_core.typing import ArrayLike

MOST_UNKNOWNS = 4096
"""Of a Sylvester equation: they are those of one system of linear equations, whose matrix takes 128 MiB in float64."""

_GENERAL = (None, "gen", "general", "banded")
_HERMITIAN = ("her", "hermitian", "pos", "positive definite")
_SYMMETRIC = ("sym", "symmetric")
_TRIANGULAR = ("lower triangular", "upper triangular")
_OTHERS = ("diagonal", "tridiagonal")
_STRUCTURES = (*_GENERAL, *_SYMMETRIC, *_HERMITIAN, *_TRIANGULAR, *_OTHERS)


def mirrored(a: tc.Tensor, lower: bool, *, conjugate: bool = True) -> tc.Tensor:
    """The Hermitian or symmetric matrix of which one triangle is read."""
    triangle = tc.tril(a) if lower else tc.triu(a)
    strict = tc.tril(a, k=-1) if lower else tc.triu(a, k=1)
    if conjugate and is_complex(a):  # what is on the diagonal of a Hermitian matrix is real
        triangle = strict + tc.astype(tc.real(triangle - strict), a.dtype)
    return triangle + (adjoint(strict) if conjugate else strict.mT)


def _structured(a: tc.Tensor, assume_a: str | None, lower: bool) -> tc.Tensor:
    """The matrix that SciPy reads under an assumption."""
    if assume_a in _SYMMETRIC or assume_a in _HERMITIAN:
        return mirrored(a, lower, conjugate=assume_a in _HERMITIAN)
    if assume_a in _TRIANGULAR:
        return tc.tril(a) if assume_a == "lower triangular" else tc.triu(a)
    if assume_a in _OTHERS:
        k = 1 if assume_a == "tridiagonal" else 0
        return tc.triu(tc.tril(a, k=k), k=-k)
    return a


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> tc.Tensor:
    """Solve `a @ x == b` for x.

    >>> solve(tc.asarray([[2.0, 0.0], [1.0, 1.0]]), tc.asarray([2.0, 3.0])).tolist()
    [1.0, 2.0]

    Args:
        a: shape (..., n, n).
        b: a vector, shape (n,), or matrices, shape (..., n, k).
        lower: of a symmetric or Hermitian `a`, whether its lower triangle is read; by default the upper one is.
        assume_a: "sym", "her", "pos", "lower triangular", "upper triangular", "diagonal" or "tridiagonal": only the
            elements that such a matrix needs are read, and have a gradient. "gen" and "banded" read all.
        transposed: solve `a.mT @ x == b`.
        overwrite_a, overwrite_b, check_finite: without effect.

    Raises:
        ValueError: shapes do not fit, a matrix is singular, or not positive definite with `assume_a="pos"`.
        NotImplementedError: `transposed` of a complex matrix that is assumed Hermitian.
    """
    name = "scipy.linalg.solve"
    a, b = floats(name, a=a, b=b)
    square(name, "a", a)
    choose(name, "assume_a", assume_a, _STRUCTURES)
    a = _structured(a, assume_a, lower)
    if transposed and assume_a in _HERMITIAN and is_complex(a):
        refuse(name, transposed=(transposed, (False,)))
    if transposed and assume_a not in _HERMITIAN:
        a = a.mT
        assume_a = {"lower triangular": "upper triangular", "upper triangular": "lower triangular"}.get(
            str(assume_a), assume_a
        )
    if assume_a in ("pos", "positive definite"):
        return tc.linalg.cho_solve(tc.linalg.cholesky(a), b)
    if assume_a in _TRIANGULAR:
        return tc.linalg.solve_triangular(a, b, lower=assume_a == "lower triangular")
    return tc.linalg.solve(a, b)


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> tc.Tensor:
    """Solve `a @ x == b` for x with a triangular `a`, whose other triangle is ignored.

    >>> solve_triangular(tc.asarray([[2.0, 9.0], [3.0, 4.0]]), tc.asarray([2.0, 11.0]), lower=True).tolist()
    [1.0, 2.0]

    Args:
        a: shape (..., n, n).
        b: shape (n,) or (..., n, k).
        trans: 0 or "N"; 1 or "T" for `a.mT @ x == b`; 2 or "C" for the conjugate transpose.
        lower: whether the lower triangle counts.
        unit_diagonal: whether the diagonal is taken to be ones.
        overwrite_b, check_finite: without effect.

    Raises:
        ValueError: shapes do not fit, `a` is singular, or `trans` is none of these.
    """
    name = "scipy.linalg.solve_triangular"
    a, b = floats(name, a=a, b=b)
    square(name, "a", a)
    choose(name, "trans", trans, (0, "N", 1, "T", 2, "C"))
    if trans not in (0, "N"):
        a, lower = (adjoint(a) if trans in (2, "C") else a.mT), not lower
    return tc.linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unit_diagonal)


def inv(
    a: ArrayLike,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    assume_a: str | None = None,
    lower: bool = False,
) -> tc.Tensor:
    """The inverse of each matrix; the arguments are those of :func:`solve`.

    >>> inv(tc.asarray([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]

    Raises:
        ValueError: a matrix is singular or not square, or `assume_a` is unknown.
    """
    (a,) = floats("scipy.linalg.inv", a=a)
    square("scipy.linalg.inv", "a", a)
    choose("scipy.linalg.inv", "assume_a", assume_a, _STRUCTURES)
    return tc.linalg.inv(_structured(a, assume_a, lower))


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tc.Tensor:
    """The determinant of each matrix.

    >>> det(tc.asarray([[2.0, 1.0], [1.0, 3.0]])).item()
    5.0
    """
    (a,) = floats("scipy.linalg.det", a=a)
    square("scipy.linalg.det", "a", a)
    return tc.linalg.det(a)


def norm(
    a: ArrayLike,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: int | tuple[int, int] | None = None,
    keepdims: bool = False,
    check_finite: bool = True,
) -> tc.Tensor:
    """A norm of vectors or matrices, as `numpy.linalg.norm`.

    >>> norm(tc.asarray([3.0, 4.0])).item(), norm(tc.asarray([[3.0, 4.0]]), ord=1).item()
    (5.0, 4.0)

    Args:
        a: an array; of one or two dimensions if `ord` is given and `axis` is not.
        ord: of vectors a number; of matrices "fro", "nuc", 1, -1, 2, -2, inf or -inf. By default, the root of the sum
            of squares.
        axis: one axis of vectors, or two of matrices.
        keepdims: whether the axes stay, with length 1.
        check_finite: without effect.

    Raises:
        ValueError: the dimensions or `ord` do not fit.
    """
    name = "scipy.linalg.norm"
    (a,) = floats(name, a=a)
    if axis is None:
        if ord is None:
            return tc.linalg.vector_norm(a, keepdims=keepdims)
        if a.ndim not in (1, 2):
            raise ValueError(f"{name}: with ord, an array of shape {a.shape} needs axis")
        axis = (0, 1) if a.ndim == 2 else 0
    if isinstance(axis, int):
        if isinstance(ord, str):
            raise ValueError(f"{name}: ord={ord!r} is for matrices, with two axes")
        return tc.linalg.vector_norm(a, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    found = tc.linalg.matrix_norm(tc.moveaxis(a, axis, (-2, -1)), ord="fro" if ord is None else ord)
    if keepdims:
        for k in sorted(k % a.ndim for k in axis):
            found = tc.expand_dims(found, axis=k)
    return found


def pinv(
    a: ArrayLike,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    return_rank: bool = False,
    check_finite: bool = True,
) -> Any:
    """The Moore-Penrose inverse of each matrix; singular values up to `rtol` times the largest count as 0.

    >>> pinv(tc.asarray([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]

    Args:
        rtol: by default the larger of both lengths times the precision of the dtype.
        return_rank: return the rank, too.

    Raises:
        NotImplementedError: `atol` is given.
    """
    (a,) = floats("scipy.linalg.pinv", a=a)
    refuse("scipy.linalg.pinv", atol=(atol, (None, 0, 0.0)))
    found = tc.linalg.pinv(a, rtol=rtol)
    return (found, tc.linalg.matrix_rank(a, rtol=rtol)) if return_rank else found


def pinvh(
    a: ArrayLike,
    atol: float | None = None,
    rtol: float | None = None,
    lower: bool = True,
    return_rank: bool = False,
    check_finite: bool = True,
) -> Any:
    """The Moore-Penrose inverse of each Hermitian matrix, of which one triangle is read; see :func:`pinv`.

    >>> pinvh(tc.asarray([[2.0, 7.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    (a,) = floats("scipy.linalg.pinvh", a=a)
    square("scipy.linalg.pinvh", "a", a)
    refuse("scipy.linalg.pinvh", atol=(atol, (None, 0, 0.0)))
    return pinv(mirrored(a, lower), rtol=rtol, return_rank=return_rank)


def lstsq(
    a: ArrayLike,
    b: ArrayLike,
    cond: float | None = None,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    lapack_driver: str | None = None,
) -> tuple[tc.Tensor, tc.Tensor, tc.Tensor, tc.Tensor]:
    """Solve `a @ x == b` for x in the least-squares sense; of several solutions the shortest is found.

    >>> x, residues, rank, s = lstsq(tc.asarray([[1.0], [1.0]]), tc.asarray([1.0, 3.0]))
    >>> round(x.item(), 4), round(residues.item(), 4)
    (2.0, 2.0)

    Args:
        a: shape (..., m, n).
        b: shape (m,) or (..., m, k).
        cond: singular values up to `cond` times the largest count as 0; by default the precision of the dtype.
        lapack_driver, overwrite_a, overwrite_b, check_finite: without effect.

    Returns:
        x; the sums of squared residuals, which are empty if `m <= n`; the rank; and the singular values. In SciPy the
        residuals are also empty where the rank is less than n, which is not known in a trace.
    """
    name = "scipy.linalg.lstsq"
    a, b = floats(name, a=a, b=b)
    if a.ndim < 2 or b.ndim == 0 or b.shape[-2 if b.ndim > 1 else -1] != a.shape[-2]:
        raise ValueError(f"{name}: b must have as many rows as a; got shapes {a.shape} and {b.shape}")
    rtol = float(tc.finfo(a.dtype).eps) if cond is None else cond
    columns = b[:, None] if b.ndim == 1 else b
    x = tc.linalg.pinv(a, rtol=rtol) @ columns
    residuals = tc.sum(tc.square(tc.abs(columns - a @ x)), axis=-2)
    if a.shape[-2] <= a.shape[-1]:
        residuals = tc.reshape(residuals, (-1,))[:0]
    elif b.ndim == 1:
        residuals = residuals[..., 0]
    x = x[..., 0] if b.ndim == 1 else x
    return x, residuals, tc.linalg.matrix_rank(a, rtol=rtol), tc.linalg.svdvals(a)


def _from_bands(bands: tc.Tensor, below: int, above: int) -> tc.Tensor:
    """The matrix whose diagonals are the rows of `bands`, the uppermost first, each in its columns."""
    n = bands.shape[-1]
    total = bands[0, :, None] * 0
    rows = tc.arange(n, backend=bands.backend.root, device=bands.device)
    for k in range(above + below + 1):
        here = (rows[None, :] - rows[:, None]) == above - k
        total = total + tc.where(here, bands[k][None, :], 0)
    return total


def solve_banded(
    l_and_u: tuple[int, int],
    ab: ArrayLike,
    b: ArrayLike,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> tc.Tensor:
    """Solve `a @ x == b` for x with a banded matrix `a`, which is solved as any other, in n**3 steps.

    >>> bands = tc.asarray([[0.0, 1.0], [2.0, 2.0], [1.0, 0.0]])
    >>> solve_banded((1, 1), bands, tc.asarray([3.0, 3.0])).round(4).tolist()
    [1.0, 1.0]

    Args:
        l_and_u: the numbers of diagonals below and above the main one.
        ab: the diagonals, shape (l + u + 1, n): `ab[u + i - j, j] == a[i, j]`.
        b: shape (n,) or (n, k).

    Raises:
        ValueError: the shapes do not fit, or the matrix is singular.
    """
    name = "scipy.linalg.solve_banded"
    below, above = l_and_u
    ab, b = floats(name, ab=ab, b=b)
    if ab.ndim != 2 or ab.shape[0] != below + above + 1:
        raise ValueError(f"{name}: ab must have {below + above + 1} rows, as l_and_u says; got shape {ab.shape}")
    return tc.linalg.solve(_from_bands(ab, below, above), b)


def hermitian_from_bands(function: str, bands: tc.Tensor, lower: bool) -> tc.Tensor:
    """The Hermitian matrix of which the diagonals on one side are given."""
    if bands.ndim != 2:
        raise ValueError(f"{function}: the diagonals must be the rows of a matrix, got shape {bands.shape}")
    k = bands.shape[0] - 1
    return mirrored(_from_bands(bands, k if lower else 0, 0 if lower else k), lower)


def solveh_banded(
    ab: ArrayLike,
    b: ArrayLike,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    lower: bool = False,
    check_finite: bool = True,
) -> tc.Tensor:
    """Solve `a @ x == b` for x with a banded Hermitian positive definite `a`, in n**3 steps.

    >>> solveh_banded(tc.asarray([[0.0, 1.0], [2.0, 2.0]]), tc.asarray([3.0, 3.0])).round(4).tolist()
    [1.0, 1.0]

    Args:
        ab: the diagonals from the uppermost to the main one, each in its columns; with `lower` from the main one down.
        b: shape (n,) or (n, k).

    Raises:
        ValueError: the shapes do not fit, or the matrix is not positive definite.
    """
    ab, b = floats("scipy.linalg.solveh_banded", ab=ab, b=b)
    a = hermitian_from_bands("scipy.linalg.solveh_banded", ab, lower)
    return tc.linalg.cho_solve(tc.linalg.cholesky(a), b)


def solve_sylvester(a: ArrayLike, b: ArrayLike, q: ArrayLike) -> tc.Tensor:
    """Solve `a @ x + x @ b == q` for x.

    It is one system for all elements of x, so it is for small matrices: with m * n elements it takes (m * n)**3 steps.

    >>> solve_sylvester(tc.asarray([[1.0]]), tc.asarray([[2.0]]), tc.asarray([[6.0]])).item()
    2.0

    Args:
        a: shape (..., m, m).
        b: shape (..., n, n).
        q: shape (..., m, n).

    Raises:
        ValueError: the shapes do not fit, m * n is above 4096, or an eigenvalue of `a` is minus one of `b`.
    """
    return _sylvester("scipy.linalg.solve_sylvester", *floats("scipy.linalg.solve_sylvester", a=a, b=b, q=q))


def _sylvester(name: str, a: tc.Tensor, b: tc.Tensor, q: tc.Tensor) -> tc.Tensor:
    square(name, "a", a)
    square(name, "b", b)
    m, n = a.shape[-1], b.shape[-1]
    if q.ndim < 2 or q.shape[-2:] != (m, n):
        raise ValueError(f"{name}: q must have shape (..., {m}, {n}), got {q.shape}")
    if m * n > MOST_UNKNOWNS:
        raise ValueError(
            f"{name}: x has {m} * {n} elements, and this way is for {MOST_UNKNOWNS} at most; SciPy's own solves it of "
            f"t.numpy(), and tape_core.custom_root gives its solution a derivative"
        )
    # Row by row, with x[i, j] at i * n + j.
    rows = a[..., :, None, :, None] * identity(a, n)[:, None, :]
    columns = identity(b, m)[:, None, :, None] * b.mT[..., None, :, None, :]
    whole = rows + columns
    x = tc.linalg.solve(tc.reshape(whole, (*whole.shape[:-4], m * n, m * n)), tc.reshape(q, (*q.shape[:-2], m * n, 1)))
    return tc.reshape(x, (*x.shape[:-2], m, n))


def solve_continuous_lyapunov(a: ArrayLike, q: ArrayLike) -> tc.Tensor:
    """Solve `a @ x + x @ conj(a.mT) == q` for x, as :func:`solve_sylvester` does.

    >>> solve_continuous_lyapunov(tc.asarray([[2.0]]), tc.asarray([[8.0]])).item()
    2.0
    """
    a, q = floats("scipy.linalg.solve_continuous_lyapunov", a=a, q=q)
    return _sylvester("scipy.linalg.solve_continuous_lyapunov", a, adjoint(a), q)


def solve_discrete_lyapunov(a: ArrayLike, q: ArrayLike, method: str | None = None) -> tc.Tensor:
    """Solve `a @ x @ conj(a.mT) - x + q == 0` for x, as one system for all elements of x.

    >>> solve_discrete_lyapunov(tc.asarray([[0.5]]), tc.asarray([[3.0]])).item()
    4.0

    Args:
        a, q: shapes (n, n).
        method: "direct", the default here, or "bilinear", which leads to :func:`solve_continuous_lyapunov`.

    Raises:
        ValueError: the shapes do not fit, n * n is above 4096, or there is no unique solution.
    """
    name = "scipy.linalg.solve_discrete_lyapunov"
    a, q = floats(name, a=a, q=q)
    square(name, "a", a)
    choose(name, "method", method.lower() if isinstance(method, str) else method, (None, "direct", "bilinear"))
    n = a.shape[-1]
    if q.shape[-2:] != (n, n):
        raise ValueError(f"{name}: q must have shape {(n, n)}, got {q.shape}")
    one = identity(a, n)
    if method is not None and method.lower() == "bilinear":
        inner = tc.linalg.inv(adjoint(a) + one)
        b = (adjoint(a) - one) @ inner
        return _sylvester(name, adjoint(b), b, -2 * tc.linalg.inv(a + one) @ q @ inner)
    if n * n > MOST_UNKNOWNS:
        raise ValueError(f"{name}: x has {n} * {n} elements, and this way is for {MOST_UNKNOWNS} at most")
    conjugate = adjoint(a).mT
    product = a[..., :, None, :, None] * conjugate[..., None, :, None, :]
    whole = tc.eye(n * n, dtype=a.dtype, backend=a.backend.root, device=a.device) - tc.reshape(
        product, (*product.shape[:-4], n * n, n * n)
    )
    x = tc.linalg.solve(whole, tc.reshape(q, (*q.shape[:-2], n * n, 1)))
    return tc.reshape(x, (*x.shape[:-2], n, n))
