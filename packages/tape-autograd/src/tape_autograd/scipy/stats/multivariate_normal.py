"""`scipy.stats.multivariate_normal`, with derivatives with respect to the value, `mean` and `cov`."""

from __future__ import annotations

import math
from typing import Any

import scipy.stats as _stats
import tape_core as _tc
from tape_core.typing import ArrayLike as _ArrayLike

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.multivariate_normal, _tc.stats.multivariate_normal


def _logpdf(
    x: _ArrayLike, mean: _ArrayLike = 0.0, cov: _ArrayLike = 1.0, allow_singular: bool = False, **_: Any
) -> Any:
    if not allow_singular:
        return _own.logpdf(x, mean, cov)
    if isinstance(cov, _tc.Tensor):
        raise NotImplementedError(
            "The multivariate normal pdf is not differentiable w.r.t. a singular covariance matix"
        )
    # The constant factors are SciPy's: those of the density at its mean.
    size = cov.shape[-1]
    highest = _raw.logpdf([0.0] * size, [0.0] * size, cov, allow_singular=True)
    difference = x - mean
    inverse = _tc.linalg.pinv(_tc.asarray(cov, backend="numpy"))
    return highest - 0.5 * _tc.sum((difference @ inverse) * difference, axis=-1)


def _pdf(*args: Any, **kwargs: Any) -> Any:
    return _tc.exp(_logpdf(*args, **kwargs))


def _entropy(mean: _ArrayLike = None, cov: _ArrayLike = 1.0) -> Any:
    if not isinstance(cov, _tc.Tensor):  # of the mean alone: it does not depend on that
        return _raw.entropy(None, cov)
    return 0.5 * (cov.shape[-1] * (1.0 + math.log(2.0 * math.pi)) + _tc.linalg.slogdet(cov)[1])


pdf = _dispatching(_raw.pdf, _pdf, "scipy.stats.multivariate_normal.pdf")
logpdf = _dispatching(_raw.logpdf, _logpdf, "scipy.stats.multivariate_normal.logpdf")
entropy = _dispatching(_raw.entropy, _entropy, "scipy.stats.multivariate_normal.entropy")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
