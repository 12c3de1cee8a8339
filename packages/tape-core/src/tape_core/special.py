"""Special functions, under SciPy's names; differentiable.

SciPy, with `SCIPY_ARRAY_API=1`, asks the namespace of an array for an attribute `special` and calls what that has in
place of its own: `scipy.special.expit` of a Tensor is the `expit` here. So a name here means what it means in SciPy.
"""

from tape_core.ops.nn import log_softmax, logsumexp, softmax
from tape_core.ops.nn import sigmoid as expit
from tape_core.ops.special import erf

__all__ = ["erf", "expit", "log_softmax", "logsumexp", "softmax"]
