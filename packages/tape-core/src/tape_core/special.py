"""Special functions, under SciPy's names; differentiable.

SciPy, with `SCIPY_ARRAY_API=1`, asks the namespace of an array for an attribute `special` and calls what that has in
place of its own: `scipy.special.expit` of a Tensor is the `expit` here. So a name here means what it means in SciPy.
"""

import typing as _typing

from tape_core.engine.hints import missing as _missing
from tape_core.ops.nn.functions import log_softmax, logsumexp, softmax
from tape_core.ops.special.bessel import i0, i0e, i1, i1e
from tape_core.ops.special.by_scipy import (
    betainc,
    betaincinv,
    dawsn,
    ellipe,
    ellipk,
    erfi,
    exp1,
    expi,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    iv,
    ive,
    j0,
    j1,
    jv,
    k0,
    k0e,
    k1,
    k1e,
    kv,
    kve,
    spence,
    stdtr,
    stdtrit,
    y0,
    y1,
    yv,
)
from tape_core.ops.special.by_scipy import jv as jn
from tape_core.ops.special.by_scipy import yv as yn
from tape_core.ops.special.composed import (
    beta,
    boxcox,
    cbrt,
    exp2,
    exp10,
    exprel,
    huber,
    kl_div,
    log_expit,
    loggamma,
    multigammaln,
    pseudo_huber,
    rgamma,
    sinc,
)
from tape_core.ops.special.error_functions import erf, erfc, erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri
from tape_core.ops.special.gamma import betaln, digamma, gamma, gammaln, polygamma
from tape_core.ops.special.gamma import digamma as psi
from tape_core.ops.special.incomplete import betainc_derivative, gammainc_derivative, stdtr_derivative
from tape_core.ops.special.logarithms import entr, expit, logit, rel_entr, xlog1py, xlogy

__all__ = [
    "beta",
    "betainc",
    "betainc_derivative",
    "betaincinv",
    "betaln",
    "boxcox",
    "cbrt",
    "dawsn",
    "digamma",
    "ellipe",
    "ellipk",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfi",
    "erfinv",
    "exp1",
    "exp2",
    "exp10",
    "expi",
    "expit",
    "exprel",
    "gamma",
    "gammainc",
    "gammainc_derivative",
    "gammaincc",
    "gammainccinv",
    "gammaincinv",
    "gammaln",
    "huber",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "ive",
    "j0",
    "j1",
    "jn",
    "jv",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kl_div",
    "kv",
    "kve",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "pseudo_huber",
    "psi",
    "rel_entr",
    "rgamma",
    "sinc",
    "softmax",
    "spence",
    "stdtr",
    "stdtr_derivative",
    "stdtrit",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "yn",
    "yv",
]


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
