"""Special functions, under SciPy's names; differentiable.

SciPy, with `SCIPY_ARRAY_API=1`, asks the namespace of an array for an attribute `special` and calls what that has in
place of its own: `scipy.special.expit` of a Tensor is the `expit` here. So a name here means what it means in SciPy.
"""

from tape_core.ops.bessel import i0, i0e, i1, i1e
from tape_core.ops.by_scipy import (
    betainc,
    gammainc,
    gammaincc,
    iv,
    ive,
    j0,
    j1,
    jv,
    kv,
    stdtr,
    y0,
    y1,
    yv,
)
from tape_core.ops.by_scipy import jv as jn
from tape_core.ops.by_scipy import yv as yn
from tape_core.ops.composed import (
    beta,
    cbrt,
    exp2,
    exprel,
    huber,
    kl_div,
    loggamma,
    multigammaln,
    pseudo_huber,
    rgamma,
    sinc,
)
from tape_core.ops.gamma import betaln, digamma, gamma, gammaln, polygamma
from tape_core.ops.gamma import digamma as psi
from tape_core.ops.incomplete import betainc_derivative, gammainc_derivative, stdtr_derivative
from tape_core.ops.logarithms import entr, expit, logit, rel_entr, xlog1py, xlogy
from tape_core.ops.nn import log_softmax, logsumexp, softmax
from tape_core.ops.special import erf, erfc, erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri

__all__ = [
    "beta",
    "betainc",
    "betainc_derivative",
    "betaln",
    "cbrt",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "exprel",
    "gamma",
    "gammainc",
    "gammainc_derivative",
    "gammaincc",
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
    "kl_div",
    "kv",
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
    "stdtr",
    "stdtr_derivative",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "yn",
    "yv",
]
