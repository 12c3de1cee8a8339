"""`scipy.stats.multivariate_normal`, with derivatives with respect to the value, `mean` and `cov`."""

from __future__ import annotations

import math
from typing import Any

import numpy as _np
import scipy.stats as _stats
import tape_core as _tc
from tape_core.typing import ArrayLike as _ArrayLike

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.multivariate_normal, _tc.stats.multivariate_normal


def _dimension(mean: _ArrayLike, cov: _ArrayLike) -> int:
    """Return the length of the vectors, which SciPy reads off the mean, or else off the covariance."""
    if mean is not None:
        return int(math.prod(_np.shape(mean)))
    shape = _np.shape(cov)
    return int(shape[0]) if len(shape) > 1 else 1


def _logpdf(
    x: _ArrayLike, mean: _ArrayLike = None, cov: _ArrayLike = 1.0, allow_singular: bool = False, **_: Any
) -> Any:
    if _dimension(mean, cov) == 1:
        # Numbers: each element of x is one, or each row of a single element.
        x, mean, cov = _tensors(x, 0.0 if mean is None else mean, cov)
        x = x[..., 0] if x.ndim > 1 else x
        z = x - _tc.reshape(mean, ())
        cov = _tc.reshape(cov, ())
        found = -0.5 * (z * z / cov + _tc.log(2.0 * math.pi * cov))
        return _tc.reshape(found, ()) if found.size == 1 else found
    mean = 0.0 if mean is None else mean
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
    inverse = _tc.linalg.pinv(_tc.asarray(cov))
    return highest - 0.5 * _tc.sum((difference @ inverse) * difference, axis=-1)


def _tensors(*values: _ArrayLike) -> list[Any]:
    known = next(v for v in values if isinstance(v, _tc.Tensor))
    place: dict[str, Any] = {"backend": known.backend.root, "device": known.device}
    return [v if isinstance(v, _tc.Tensor) else _tc.asarray(_np.asarray(v, dtype=float), **place) for v in values]


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
