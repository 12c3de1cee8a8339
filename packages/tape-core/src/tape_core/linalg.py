"""Linear algebra: the `linalg` extension of the Array API standard, and further functions; all differentiable."""

import typing as _typing

from tape_core.engine.hints import missing as _missing
from tape_core.ops.linalg.decompositions import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from tape_core.ops.linalg.factorizations import (
    LUResult,
    cho_solve,
    lu_factor,
    lu_solve,
    solve_triangular,
)
from tape_core.ops.linalg.matrix_functions import expm, multi_dot
from tape_core.ops.linalg.norms_and_inverses import (
    SlogdetResult,
    cross,
    det,
    diagonal,
    inv,
    matrix_norm,
    matrix_power,
    matrix_rank,
    pinv,
    slogdet,
    solve,
    trace,
    vector_norm,
)
from tape_core.ops.linalg.products import (
    matmul,
    matrix_transpose,
    outer,
    tensordot,
    vecdot,
)
from tape_core.ops.linalg.sparse import csr_matmul

__all__ = [
    "EigResult",
    "EighResult",
    "LUResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cho_solve",
    "cholesky",
    "cross",
    "csr_matmul",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
