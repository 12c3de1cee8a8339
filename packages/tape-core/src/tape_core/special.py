"""Special functions, under SciPy's names; differentiable.

SciPy, with `SCIPY_ARRAY_API=1`, asks the namespace of an array for an attribute `special` and calls what that has in
place of its own: `scipy.special.expit` of a Tensor is the `expit` here. So a name here means what it means in SciPy.
"""

from tape_core.ops.bessel import i0, i0e, i1, i1e
from tape_core.ops.gamma import betaln, digamma, gamma, gammaln, polygamma
from tape_core.ops.gamma import digamma as psi
from tape_core.ops.logarithms import entr, expit, logit, rel_entr, xlog1py, xlogy
from tape_core.ops.nn import log_softmax, logsumexp, softmax
from tape_core.ops.special import erf, erfc, erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri

__all__ = [
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "expit",
    "gamma",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
]
