"""Matrices of a structure, made of vectors: Toeplitz, Hankel, circulant, block diagonal and others."""

from __future__ import annotations

from typing import Any

import tape_core as tc
from tape_core.scipy.arguments import choose, conj, floats, is_complex
from tape_core.typing import ArrayLike


def _vector(function: str, name: str, x: tc.Tensor, least: int = 1) -> tc.Tensor:
    if x.ndim == 0 or x.shape[-1] < least:
        what = "is a number" if x.ndim == 0 else f"has {x.shape[-1]} elements"
        raise ValueError(f"{function}: {name} must have {least} or more elements along its last axis; it {what}")
    return x


def _stack(*xs: tc.Tensor) -> list[tc.Tensor]:
    """Vectors with their leading dimensions broadcast."""
    if all([x.ndim == 1 for x in xs]):
        return list(xs)
    lead = tc.broadcast_shapes(*[x.shape[:-1] for x in xs])
    return [tc.broadcast_to(x, (*lead, x.shape[-1])) for x in xs]


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> tc.Tensor:
    """The Toeplitz matrix with first column `c` and first row `r`, whose first element is ignored.

    >>> toeplitz(tc.asarray([1.0, 2.0, 3.0]), tc.asarray([0.0, 8.0])).tolist()
    [[1.0, 8.0], [2.0, 1.0], [3.0, 2.0]]

    Args:
        c: shape (..., m).
        r: shape (..., n); the conjugate of `c` by default.

    Returns:
        Shape (..., m, n).
    """
    if r is None:
        (c,) = floats("scipy.linalg.toeplitz", c=c)
        r = conj(c)
    c, r = floats("scipy.linalg.toeplitz", c=c, r=r)
    c, r = _stack(_vector("scipy.linalg.toeplitz", "c", c), _vector("scipy.linalg.toeplitz", "r", r))
    along = tc.concat([tc.flip(c, axis=-1), r[..., 1:]], axis=-1)
    return tc.flip(tc.sliding_windows(along, r.shape[-1], axis=-1), axis=-2)


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> tc.Tensor:
    """The Hankel matrix with first column `c` and last row `r`, whose first element is ignored; zeros by default.

    >>> hankel(tc.asarray([1.0, 2.0]), tc.asarray([0.0, 7.0, 8.0])).tolist()
    [[1.0, 2.0, 7.0], [2.0, 7.0, 8.0]]

    Args:
        c: shape (..., m).
        r: shape (..., n).

    Returns:
        Shape (..., m, n).
    """
    (c,) = floats("scipy.linalg.hankel", c=c)
    c, r = floats("scipy.linalg.hankel", c=c, r=tc.zeros_like(c) if r is None else r)
    c, r = _stack(_vector("scipy.linalg.hankel", "c", c), _vector("scipy.linalg.hankel", "r", r))
    return tc.sliding_windows(tc.concat([c, r[..., 1:]], axis=-1), r.shape[-1], axis=-1)


def circulant(c: ArrayLike) -> tc.Tensor:
    """The circulant matrix with first column `c`.

    >>> circulant(tc.asarray([1.0, 2.0, 3.0])).tolist()
    [[1.0, 3.0, 2.0], [2.0, 1.0, 3.0], [3.0, 2.0, 1.0]]

    Args:
        c: shape (..., n).

    Returns:
        Shape (..., n, n).
    """
    (c,) = floats("scipy.linalg.circulant", c=c)
    _vector("scipy.linalg.circulant", "c", c)
    return toeplitz(c, tc.concat([c[..., :1], tc.flip(c[..., 1:], axis=-1)], axis=-1))


def _below(row: tc.Tensor, diagonal: tc.Tensor) -> tc.Tensor:
    """The matrix with a first row and, below it, a diagonal."""
    below = diagsvd(diagonal, diagonal.shape[-1], diagonal.shape[-1] + 1)
    return tc.concat([row[..., None, :], below], axis=-2)


def companion(a: ArrayLike) -> tc.Tensor:
    """The companion matrix of a polynomial, whose eigenvalues are its roots.

    >>> companion(tc.asarray([1.0, -10.0, 31.0])).tolist()
    [[10.0, -31.0], [1.0, 0.0]]

    Args:
        a: the coefficients, that of the highest power first, shape (..., n), n >= 2.

    Returns:
        Shape (..., n - 1, n - 1).
    """
    (a,) = floats("scipy.linalg.companion", a=a)
    _vector("scipy.linalg.companion", "a", a, 2)
    row = -a[..., 1:] / a[..., :1]
    return _below(row, tc.ones_like(row[..., 1:]))


def leslie(f: ArrayLike, s: ArrayLike) -> tc.Tensor:
    """The Leslie matrix of a population with fecundities `f` and survivals `s`.

    >>> leslie(tc.asarray([0.5, 2.0]), tc.asarray([0.25])).tolist()
    [[0.5, 2.0], [0.25, 0.0]]

    Args:
        f: shape (..., n).
        s: shape (..., n - 1).

    Raises:
        ValueError: their lengths do not fit.
    """
    f, s = floats("scipy.linalg.leslie", f=f, s=s)
    f, s = _stack(_vector("scipy.linalg.leslie", "f", f, 2), _vector("scipy.linalg.leslie", "s", s))
    if s.shape[-1] != f.shape[-1] - 1:
        raise ValueError(
            f"scipy.linalg.leslie: s must have one element less than f; they have {s.shape[-1]} and {f.shape[-1]}"
        )
    return _below(f, s)


def fiedler(a: ArrayLike) -> tc.Tensor:
    """The matrix of `abs(a[i] - a[j])`.

    >>> fiedler(tc.asarray([1.0, 4.0])).tolist()
    [[0.0, 3.0], [3.0, 0.0]]
    """
    (a,) = floats("scipy.linalg.fiedler", a=a)
    _vector("scipy.linalg.fiedler", "a", a)
    return tc.abs(a[..., :, None] - a[..., None, :])


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> tc.Tensor:
    """The matrix whose product with a vector of length `n` is the convolution of `a` with it.

    >>> convolution_matrix(tc.asarray([1.0, 2.0]), 2).tolist()
    [[1.0, 0.0], [2.0, 1.0], [0.0, 2.0]]

    Args:
        a: shape (..., m).
        n: the length of the vector.
        mode: "full", "same" or "valid", as in `numpy.convolve`.

    Raises:
        ValueError: `n` is not positive, or `mode` is none of these.
    """
    name = "scipy.linalg.convolution_matrix"
    (a,) = floats(name, a=a)
    _vector(name, "a", a)
    if n <= 0:
        raise ValueError(f"{name}: n must be positive; got {n}")
    choose(name, "mode", mode, ("full", "same", "valid"))
    none = tc.zeros_like(a[..., :1])
    column = tc.concat([a, *[none] * (n - 1)], axis=-1)
    whole = toeplitz(column, tc.concat([a[..., :1], *[none] * (n - 1)], axis=-1))
    trim = 0 if mode == "full" else min(n, a.shape[-1]) - 1
    before = trim // 2 if mode == "same" else trim
    after = trim - before if mode == "same" else trim
    return whole[..., before : whole.shape[-2] - after, :]


def block_diag(*arrs: ArrayLike) -> tc.Tensor:
    """The matrix with matrices along its diagonal, and zeros elsewhere. A vector is a row.

    >>> block_diag(tc.asarray([[1.0], [2.0]]), tc.asarray([3.0])).tolist()
    [[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]

    Args:
        arrs: shapes (..., m, n), with leading dimensions that broadcast.
    """
    if not arrs:
        return tc.zeros((1, 0))
    blocks = floats("scipy.linalg.block_diag", **{f"arrs[{k}]": x for k, x in enumerate(arrs)})
    blocks = [tc.reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else x for x in blocks]
    lead = tc.broadcast_shapes(*[x.shape[:-2] for x in blocks])
    width, left, rows = sum([x.shape[-1] for x in blocks]), 0, []
    dtype = tc.result_type(*blocks)
    for x in blocks:
        x = tc.broadcast_to(tc.astype(x, dtype, copy=False), (*lead, *x.shape[-2:]))
        widths = [(0, 0)] * (x.ndim - 1) + [(left, width - left - x.shape[-1])]
        rows.append(tc.pad(x, tuple(widths)))
        left += x.shape[-1]
    return tc.concat(rows, axis=-2)


def diagsvd(s: ArrayLike, M: int, N: int) -> tc.Tensor:
    """The matrix of singular values of a decomposition: `s` on the diagonal of M rows and N columns.

    >>> diagsvd(tc.asarray([2.0, 1.0]), 2, 3).tolist()
    [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]

    Raises:
        ValueError: `s` has neither M nor N elements.
    """
    (s,) = floats("scipy.linalg.diagsvd", s=s)
    if s.ndim == 0 or s.shape[-1] not in (M, N):
        raise ValueError(f"scipy.linalg.diagsvd: s must have {M} or {N} elements along its last axis; got {s.shape}")
    k = s.shape[-1]
    square = s[..., None] * tc.eye(k, dtype=s.dtype, backend=s.backend.root, device=s.device)
    lead = [(0, 0)] * (s.ndim - 1)
    return tc.pad(square[..., :M, :N], (*lead, (0, max(M - k, 0)), (0, max(N - k, 0))))


def khatri_rao(a: ArrayLike, b: ArrayLike) -> tc.Tensor:
    """The Kronecker product of each column of `a` with that of `b`.

    >>> khatri_rao(tc.asarray([[1.0, 2.0]]), tc.asarray([[3.0, 4.0], [5.0, 6.0]])).tolist()
    [[3.0, 8.0], [5.0, 12.0]]

    Raises:
        ValueError: one is no matrix, or they have different numbers of columns.
    """
    a, b = floats("scipy.linalg.khatri_rao", a=a, b=b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"scipy.linalg.khatri_rao: a and b must be matrices of as many columns; got shapes {a.shape}, {b.shape}"
        )
    product = a[..., :, None, :] * b[..., None, :, :]
    return tc.reshape(product, (*product.shape[:-3], a.shape[-2] * b.shape[-2], a.shape[-1]))


def _column_and_row(function: str, c_or_cr: Any) -> tuple[tc.Tensor, tc.Tensor]:
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    (c,) = floats(function, c=c)
    (r,) = (conj(c),) if r is None else floats(function, r=r)
    return c, r


def matmul_toeplitz(
    c_or_cr: ArrayLike | tuple[ArrayLike, ArrayLike],
    x: ArrayLike,
    check_finite: bool = False,
    workers: int | None = None,
) -> tc.Tensor:
    """The product of a Toeplitz matrix and `x`, by Fourier transforms.

    >>> matmul_toeplitz((tc.asarray([1.0, 2.0]), tc.asarray([1.0, 0.0])), tc.asarray([1.0, 1.0])).round(4).tolist()
    [1.0, 3.0]

    Args:
        c_or_cr: the first column, or it and the first row: vectors; see :func:`toeplitz`.
        x: a vector, shape (n,), or a matrix, shape (n, k).
        check_finite, workers: without effect.

    Raises:
        ValueError: the shapes do not fit.
    """
    name = "scipy.linalg.matmul_toeplitz"
    c, r = _column_and_row(name, c_or_cr)
    c, r, x = floats(name, c=c, r=r, x=x)
    m, n = c.shape[-1], r.shape[-1]
    if x.ndim not in (1, 2) or x.shape[0] != n or c.ndim != 1 or r.ndim != 1:
        raise ValueError(f"{name}: c and r must be vectors and x have {n} rows, got {c.shape}, {r.shape}, {x.shape}")
    columns = x[:, None] if x.ndim == 1 else x
    around = tc.concat([c, tc.flip(r[1:])])
    length = m + n - 1
    if any([is_complex(one) for one in (c, r, x)]):
        spectrum = tc.fft.fft(around)[:, None] * tc.fft.fft(columns, n=length, axis=0)
        product = tc.fft.ifft(spectrum, axis=0)[:m]
    else:
        spectrum = tc.fft.rfft(around)[:, None] * tc.fft.rfft(columns, n=length, axis=0)
        product = tc.fft.irfft(spectrum, n=length, axis=0)[:m]
    return product[:, 0] if x.ndim == 1 else product


def solve_toeplitz(
    c_or_cr: ArrayLike | tuple[ArrayLike, ArrayLike], b: ArrayLike, check_finite: bool = True
) -> tc.Tensor:
    """Solve `toeplitz(c, r) @ x == b` for x. It is solved as any other matrix is, in n**3 steps.

    >>> solve_toeplitz(tc.asarray([2.0, 0.0]), tc.asarray([2.0, 4.0])).tolist()
    [1.0, 2.0]

    Args:
        c_or_cr: the first column, or it and the first row: shapes (n,).
        b: shape (n,) or (n, k).
        check_finite: without effect.

    Raises:
        ValueError: the shapes do not fit, or the matrix is singular.
    """
    name = "scipy.linalg.solve_toeplitz"
    c, r = _column_and_row(name, c_or_cr)
    c, r, b = floats(name, c=c, r=r, b=b)
    if c.shape != r.shape:
        raise ValueError(f"{name}: c and r must have one length, got shapes {c.shape} and {r.shape}")
    return tc.linalg.solve(toeplitz(c, r), b)
