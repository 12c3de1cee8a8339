"""Factorizations with SciPy's arguments and results: Cholesky, LU, QR, singular values, eigenvalues, polar."""

from __future__ import annotations

from typing import Any

import tape_core as tc
from tape_core.scipy.arguments import adjoint, choose, floats, identity, refuse, square
from tape_core.scipy.linalg.equations import hermitian_from_bands, mirrored
from tape_core.typing import ArrayLike


def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tc.Tensor:
    """The triangular factor of a Hermitian positive definite matrix, of which one triangle is read.

    >>> cholesky(tc.asarray([[4.0, 2.0], [9.0, 10.0]])).tolist()
    [[2.0, 1.0], [0.0, 3.0]]

    Args:
        a: shape (..., n, n).
        lower: whether the lower triangle is read and a lower triangular factor returned, L with `L @ L^H == a`; by
            default an upper one, U with `U^H @ U == a`.
        overwrite_a, check_finite: without effect.

    Raises:
        ValueError: a matrix is not square, or not positive definite.
    """
    (a,) = floats("scipy.linalg.cholesky", a=a)
    square("scipy.linalg.cholesky", "a", a)
    return tc.linalg.cholesky(mirrored(a, lower), upper=not lower)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[tc.Tensor, bool]:
    """The factor of :func:`cholesky` and `lower`, for :func:`cho_solve`; the other triangle is zeros, in SciPy rests.

    >>> factor, lower = cho_factor(tc.asarray([[4.0, 2.0], [2.0, 10.0]]))
    >>> factor.tolist(), lower
    ([[2.0, 1.0], [0.0, 3.0]], False)
    """
    return cholesky(a, lower), lower


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> tc.Tensor:
    """Solve `a @ x == b` for x, with the results of :func:`cho_factor` of `a`.

    >>> cho_solve(cho_factor(tc.asarray([[4.0]])), tc.asarray([8.0])).tolist()
    [2.0]
    """
    factor, lower = c_and_lower
    c, b = floats("scipy.linalg.cho_solve", c=factor, b=b)
    square("scipy.linalg.cho_solve", "c", c)
    return tc.linalg.cho_solve(c, b, upper=not lower)


def lu(
    a: ArrayLike,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    p_indices: bool = False,
) -> Any:
    """The factors P, L, U of each matrix, by partial pivoting: `P @ L @ U == a`.

    >>> p, l, u = lu(tc.asarray([[1.0, 4.0], [2.0, 4.0]]))
    >>> p.tolist(), l.tolist(), u.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 1.0]], [[2.0, 4.0], [0.0, 2.0]])

    Args:
        a: shape (..., m, n).
        permute_l: return two factors, `P @ L` and U.
        p_indices: return numbers of rows p for P: `L[p] @ U == a`.
    """
    (a,) = floats("scipy.linalg.lu", a=a)
    if a.ndim < 2:
        raise ValueError(f"scipy.linalg.lu: a must be matrices, got shape {a.shape}")
    packed, order = tc.linalg.lu_factor(a)
    m, n = a.shape[-2:]
    k = min(m, n)
    one = identity(a, m)[:, :k]
    lower, upper = tc.tril(packed[..., :, :k], k=-1) + one, tc.triu(packed[..., :k, :])
    rows = tc.argsort(order, axis=-1)
    if permute_l:
        places = tc.broadcast_to(rows[..., None], lower.shape)
        return tc.take_along_axis(lower, places, axis=-2), upper
    if p_indices:
        return rows, lower, upper
    numbers = tc.arange(m, backend=a.backend.root, device=a.device)
    real = tc.real(a).dtype if a.dtype.kind == "complex floating" else a.dtype
    return tc.astype(rows[..., :, None] == numbers, real), lower, upper


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: int | None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """The factors Q and R of each matrix: `Q @ R == a`, with orthonormal columns of Q and an upper triangular R.

    >>> q, r = qr(tc.asarray([[3.0], [4.0]]), mode="economic")
    >>> (q @ r).round(4).tolist()
    [[3.0], [4.0]]

    Args:
        a: shape (..., m, n).
        mode: "full", of shapes (m, m) and (m, n): the columns that Q has beyond n have no derivative; "economic", with
            the smaller of m and n in place of m; or "r", R of shape (m, n) alone, in a tuple.
        overwrite_a, lwork, check_finite: without effect.

    Raises:
        NotImplementedError: `pivoting`, or `mode="raw"`.
    """
    name = "scipy.linalg.qr"
    (a,) = floats(name, a=a)
    refuse(name, pivoting=(pivoting, (False,)), mode=(mode, ("full", "economic", "r")))
    if mode == "r":
        r = tc.linalg.qr(a).R
        below = a.shape[-2] - r.shape[-2]
        return (tc.pad(r, (*[(0, 0)] * (a.ndim - 2), (0, below), (0, 0))),)
    q, r = tc.linalg.qr(a, mode="reduced" if mode == "economic" else "complete")
    return q, r


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """The singular value decomposition of each matrix: U, s and Vh; see `tape_core.linalg.svd` on derivatives.

    >>> svd(tc.asarray([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False).tolist()
    [4.0, 3.0]

    Args:
        full_matrices: whether U and Vh are square; the vectors that it adds have no derivative.
        compute_uv: whether U and Vh are returned.
        overwrite_a, check_finite, lapack_driver: without effect.
    """
    (a,) = floats("scipy.linalg.svd", a=a)
    if not compute_uv:
        return tc.linalg.svdvals(a)
    u, s, vh = tc.linalg.svd(a, full_matrices=full_matrices)
    return u, s, vh


def svdvals(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tc.Tensor:
    """The singular values of each matrix, in descending order.

    >>> svdvals(tc.asarray([[3.0, 0.0], [0.0, 4.0]])).tolist()
    [4.0, 3.0]
    """
    return tc.linalg.svdvals(floats("scipy.linalg.svdvals", a=a)[0])


def eig(
    a: ArrayLike,
    b: ArrayLike | None = None,
    left: bool = False,
    right: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> Any:
    """The eigenvalues of each matrix and, with `right`, its eigenvectors; see `tape_core.linalg.eig` on derivatives.

    >>> eig(tc.asarray([[3.0, 0.0], [0.0, 4.0]]), right=False).tolist()
    [(3+0j), (4+0j)]

    Raises:
        NotImplementedError: `b`, `left` or `homogeneous_eigvals` is given.
    """
    (a,) = floats("scipy.linalg.eig", a=a)
    refuse(
        "scipy.linalg.eig", b=(b, (None,)), left=(left, (False,)), homogeneous_eigvals=(homogeneous_eigvals, (False,))
    )
    if not right:
        return tc.linalg.eigvals(a)
    w, v = tc.linalg.eig(a)
    return w, v


def eigvals(
    a: ArrayLike,
    b: ArrayLike | None = None,
    overwrite_a: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> tc.Tensor:
    """The eigenvalues of each matrix, complex, in no order.

    >>> eigvals(tc.asarray([[3.0, 0.0], [0.0, 4.0]])).tolist()
    [(3+0j), (4+0j)]
    """
    refuse("scipy.linalg.eigvals", b=(b, (None,)), homogeneous_eigvals=(homogeneous_eigvals, (False,)))
    return tc.linalg.eigvals(floats("scipy.linalg.eigvals", a=a)[0])


def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> Any:
    """The eigenvalues of Hermitian matrices, ascending, and eigenvectors: `a @ v == v * w`, or `a @ v == b @ v * w`.

    >>> eigh(tc.asarray([[3.0, 0.0], [0.0, 4.0]]), eigvals_only=True).tolist()
    [3.0, 4.0]

    Args:
        a: shape (..., n, n).
        b: Hermitian positive definite matrices.
        lower: which triangle of both is read.
        eigvals_only: whether eigenvalues alone are returned.
        subset_by_index: the numbers of the first and the last eigenvalue that are returned.
        overwrite_a, overwrite_b, check_finite, driver: without effect.

    Raises:
        NotImplementedError: `subset_by_value` is given, or `type` is 2 or 3.
    """
    name = "scipy.linalg.eigh"
    refuse(name, type=(type, (1,)), subset_by_value=(subset_by_value, (None,)))
    if b is None:
        (a,) = floats(name, a=a)
        square(name, "a", a)
        factor = None
        a = mirrored(a, lower)
    else:
        a, b = floats(name, a=a, b=b)
        square(name, "a", a)
        square(name, "b", b)
        # With b = L L^H the eigenvalues are those of L^-1 a L^-H.
        factor = tc.linalg.cholesky(mirrored(b, lower))
        half = tc.linalg.solve_triangular(factor, mirrored(a, lower), lower=True)
        a = tc.linalg.solve_triangular(factor, adjoint(half), lower=True)
        a = (a + adjoint(a)) / 2
    n = a.shape[-1]
    low, high = (0, n - 1) if subset_by_index is None else subset_by_index
    if subset_by_index is not None and not 0 <= low <= high < n:
        raise ValueError(f"{name}: subset_by_index must be in order and from 0 to {n - 1}; got {subset_by_index}")
    if eigvals_only:
        return tc.linalg.eigvalsh(a)[..., low : high + 1]
    w, v = tc.linalg.eigh(a)
    if factor is not None:
        v = tc.linalg.solve_triangular(adjoint(factor), v)
    return w[..., low : high + 1], v[..., low : high + 1]


def eigvalsh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    lower: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> tc.Tensor:
    """The eigenvalues of :func:`eigh`.

    >>> eigvalsh(tc.asarray([[3.0, 0.0], [0.0, 4.0]]), subset_by_index=(1, 1)).tolist()
    [4.0]
    """
    found: tc.Tensor = eigh(
        a,
        b,
        lower=lower,
        eigvals_only=True,
        type=type,
        subset_by_index=subset_by_index,
        subset_by_value=subset_by_value,
    )
    return found


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[int, int] | None = None,
    check_finite: bool = True,
    tol: float = 0.0,
    lapack_driver: str = "auto",
) -> Any:
    """The eigenvalues and eigenvectors of a real symmetric tridiagonal matrix, solved as any other, in n**3 steps.

    >>> eigh_tridiagonal(tc.asarray([2.0, 2.0]), tc.asarray([1.0]), eigvals_only=True).round(4).tolist()
    [1.0, 3.0]

    Args:
        d: the diagonal, shape (n,).
        e: the diagonal beside it, shape (n - 1,).
        select: "a" for all, or "i" for the numbers `select_range`, first and last.
        tol, lapack_driver, check_finite: without effect.

    Raises:
        ValueError: the shapes do not fit.
        NotImplementedError: `select="v"`.
    """
    name = "scipy.linalg.eigh_tridiagonal"
    d, e = floats(name, d=d, e=e)
    choose(name, "select", select, ("a", "i", "v"))
    refuse(name, select=(select, ("a", "i")))
    if d.ndim != 1 or e.shape != (d.shape[0] - 1,):
        raise ValueError(f"{name}: d must be a vector, and e one element shorter; got shapes {d.shape} and {e.shape}")
    bands = tc.stack([d, tc.concat([e, tc.zeros_like(d[:1])])])
    return eigh(
        hermitian_from_bands(name, bands, True),
        eigvals_only=eigvals_only,
        subset_by_index=select_range if select == "i" else None,
    )


def eigvalsh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    select: str = "a",
    select_range: tuple[int, int] | None = None,
    check_finite: bool = True,
    tol: float = 0.0,
    lapack_driver: str = "auto",
) -> tc.Tensor:
    """The eigenvalues of :func:`eigh_tridiagonal`.

    >>> eigvalsh_tridiagonal(tc.asarray([2.0, 2.0]), tc.asarray([1.0])).round(4).tolist()
    [1.0, 3.0]
    """
    found: tc.Tensor = eigh_tridiagonal(d, e, eigvals_only=True, select=select, select_range=select_range)
    return found


def polar(a: ArrayLike, side: str = "right") -> tuple[tc.Tensor, tc.Tensor]:
    """The polar decomposition of each matrix: U with orthonormal columns or rows, and a positive semidefinite P.

    It is made of the singular value decomposition: where singular values are equal, the derivative is NaN.

    >>> u, p = polar(tc.asarray([[0.0, -2.0], [3.0, 0.0]]))
    >>> (abs(u) + 0.0).round(4).tolist(), (p + 0.0).round(4).tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[3.0, 0.0], [0.0, 2.0]])

    Args:
        a: shape (..., m, n).
        side: "right" for `a == U @ P`, "left" for `a == P @ U`.
    """
    (a,) = floats("scipy.linalg.polar", a=a)
    choose("scipy.linalg.polar", "side", side, ("right", "left"))
    w, s, vh = tc.linalg.svd(a, full_matrices=False)
    if side == "right":
        return w @ vh, (adjoint(vh) * s[..., None, :]) @ vh
    return w @ vh, (w * s[..., None, :]) @ adjoint(w)
