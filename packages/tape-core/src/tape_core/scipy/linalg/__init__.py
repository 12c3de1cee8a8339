"""`scipy.linalg` for Tensors: equations, factors, functions of matrices and matrices of a structure.

Arguments `overwrite_...` are permissions, and there is no use for them: nothing is overwritten. `check_finite` has no
effect, either: values are not known in a trace, and what is not finite gives NaN. Stacks of matrices have their leading
dimensions first.

>>> import tape_core as tc
>>> from tape_core.scipy import linalg
>>> a = tc.asarray([[4.0, 2.0], [2.0, 3.0]])
>>> linalg.cho_solve(linalg.cho_factor(a), tc.asarray([2.0, 1.0])).tolist()
[0.5, 0.0]
"""

import typing as _typing

from tape_core.engine.hints import missing as _missing
from tape_core.scipy.linalg.equations import (
    det,
    inv,
    lstsq,
    norm,
    pinv,
    pinvh,
    solve,
    solve_banded,
    solve_continuous_lyapunov,
    solve_discrete_lyapunov,
    solve_sylvester,
    solve_triangular,
    solveh_banded,
)
from tape_core.scipy.linalg.factors import (
    cho_factor,
    cho_solve,
    cholesky,
    eig,
    eigh,
    eigh_tridiagonal,
    eigvals,
    eigvalsh,
    eigvalsh_tridiagonal,
    lu,
    polar,
    qr,
    svd,
    svdvals,
)
from tape_core.scipy.linalg.functions import (
    coshm,
    cosm,
    expm,
    expm_frechet,
    fractional_matrix_power,
    logm,
    sinhm,
    sinm,
    sqrtm,
    tanhm,
    tanm,
)
from tape_core.scipy.linalg.structured import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    diagsvd,
    fiedler,
    hankel,
    khatri_rao,
    leslie,
    matmul_toeplitz,
    solve_toeplitz,
    toeplitz,
)

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "companion",
    "convolution_matrix",
    "coshm",
    "cosm",
    "det",
    "diagsvd",
    "eig",
    "eigh",
    "eigh_tridiagonal",
    "eigvals",
    "eigvalsh",
    "eigvalsh_tridiagonal",
    "expm",
    "expm_frechet",
    "fiedler",
    "fractional_matrix_power",
    "hankel",
    "inv",
    "khatri_rao",
    "leslie",
    "logm",
    "lstsq",
    "lu",
    "matmul_toeplitz",
    "norm",
    "pinv",
    "pinvh",
    "polar",
    "qr",
    "sinhm",
    "sinm",
    "solve",
    "solve_banded",
    "solve_continuous_lyapunov",
    "solve_discrete_lyapunov",
    "solve_sylvester",
    "solve_toeplitz",
    "solve_triangular",
    "solveh_banded",
    "sqrtm",
    "svd",
    "svdvals",
    "tanhm",
    "tanm",
    "toeplitz",
]


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
