"""`scipy.linalg`: `solve_triangular`, `sqrtm`, `solve_sylvester`, `solve_banded` and others have derivatives."""

from __future__ import annotations

from typing import Any

import scipy.linalg as _raw
import tape_core as _tc
from tape_core.typing import ArrayLike as _ArrayLike

import tape_autograd.numpy as _np
from tape_autograd.boxes import getval as _getval
from tape_autograd.primitives import defjvp as _defjvp
from tape_autograd.primitives import defvjp as _defvjp
from tape_autograd.primitives import primitive as _primitive
from tape_autograd.scipy.dispatch import dispatching as _dispatching


def _solve_triangular(
    a: _ArrayLike, b: _ArrayLike, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, **_: Any
) -> Any:
    a, b = (x if isinstance(x, _tc.Tensor) else _tc.asarray(x) for x in (a, b))
    if trans in (1, "T", 2, "C"):
        a, lower = a.mT, not lower
        a = _tc.conj(a) if trans in (2, "C") else a
    return _tc.linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unit_diagonal)


_OWN: dict[str, Any] = {
    "det": _tc.linalg.det,
    "expm": _tc.linalg.expm,
    "inv": _tc.linalg.inv,
    "solve_triangular": _solve_triangular,
}


def _wrapped() -> dict[str, Any]:
    found = {}
    for name in _raw.__all__:
        value = getattr(_raw, name)
        plain = isinstance(value, type) or not callable(value)
        found[name] = value if plain else _dispatching(value, _OWN.get(name), f"scipy.linalg.{name}")
    return found


globals().update(_wrapped())
__all__ = list(_raw.__all__)

# Matrix functions that are given by an equation: the derivative of the equation is a Sylvester equation.
solve_sylvester = _primitive(_raw.solve_sylvester)


def _adjoint_solution(a: _ArrayLike, b: _ArrayLike, g: _ArrayLike) -> Any:
    return solve_sylvester(_np.transpose(a), _np.transpose(b), g)


_defvjp(
    solve_sylvester,
    lambda ans, a, b, q: lambda g: -_np.dot(_adjoint_solution(a, b, g), _np.transpose(ans)),
    lambda ans, a, b, q: lambda g: -_np.dot(_np.transpose(ans), _adjoint_solution(a, b, g)),
    lambda ans, a, b, q: lambda g: _adjoint_solution(a, b, g),
)
_defjvp(
    solve_sylvester,
    lambda da, ans, a, b, q: -solve_sylvester(a, b, _np.dot(da, ans)),
    lambda db, ans, a, b, q: -solve_sylvester(a, b, _np.dot(ans, db)),
    lambda dq, ans, a, b, q: solve_sylvester(a, b, dq),
)

sqrtm = _primitive(_raw.sqrtm)
_defvjp(sqrtm, lambda ans, a: lambda g: _adjoint_solution(ans, ans, g))
_defjvp(sqrtm, lambda da, ans, a: solve_sylvester(ans, ans, da))

solve_banded = _primitive(_raw.solve_banded)


def _transposed_bands(bands: tuple[int, int], ab: _ArrayLike) -> Any:
    """Return the bands of the transposed matrix: each diagonal is kept at its columns, which become its rows."""
    below, above = bands
    n = ab.shape[1]
    rows = []
    for offset in range(below, -above - 1, -1):  # of the transposed matrix, from its uppermost diagonal
        diagonal = ab[above + offset]
        # Here entry j is in column j; the entry of row i, column i - offset, moves to column i.
        zeros = _np.zeros(min(abs(offset), n))
        parts = [zeros, diagonal[: n - offset]] if offset > 0 else [diagonal[-offset:], zeros]
        rows.append(_np.concatenate(parts))
    return _np.stack(rows)


def _bands_of_product(bands: tuple[int, int], u: _ArrayLike, v: _ArrayLike) -> Any:
    """Return the bands of the matrix u @ v.T, for vectors, or matrices of columns."""
    below, above = bands
    u, v = (_np.reshape(x, (_np.shape(x)[0], -1)) for x in (u, v))
    n = u.shape[0]
    rows = []
    for offset in range(above, -below - 1, -1):
        zeros = _np.zeros(min(abs(offset), n))
        if offset >= 0:
            rows.append(_np.concatenate([zeros, _np.sum(u[: n - offset] * v[offset:], axis=1)]))
        else:
            rows.append(_np.concatenate([_np.sum(u[-offset:] * v[:offset], axis=1), zeros]))
    return _np.stack(rows)


def _adjoint_banded(bands: tuple[int, int], ab: _ArrayLike, g: _ArrayLike) -> Any:
    bands = tuple(_getval(list(bands)))
    return solve_banded(bands[::-1], _transposed_bands(bands, ab), g)


_defvjp(
    solve_banded,
    lambda ans, bands, ab, b: lambda g: -_bands_of_product(tuple(bands), _adjoint_banded(bands, ab, g), ans),
    lambda ans, bands, ab, b: lambda g: _adjoint_banded(bands, ab, g),
    argnums=(1, 2),
)


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
