"""`scipy.stats.norm`, with derivatives with respect to the value, `loc` and `scale`."""

from __future__ import annotations

import math
from typing import Any

import numpy as _np
import scipy.stats as _stats
import tape_core as _tc
from tape_core.typing import ArrayLike as _ArrayLike

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw = _stats.norm


_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def _logpdf(x: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    # Fewer operations than the general formula of Tape's distributions; most programs call this one.
    z = (x - loc) / scale
    log_scale = _tc.log(scale) if isinstance(scale, _tc.Tensor) else _np.log(scale)
    return -0.5 * (z * z) - (log_scale + _HALF_LOG_2PI)


def _pdf(x: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return _tc.exp(_logpdf(x, loc, scale))


def _cdf(x: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return _tc.special.ndtr((x - loc) / scale)


def _logcdf(x: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return _tc.special.log_ndtr((x - loc) / scale)


# By symmetry; so it is accurate far out.
def _sf(x: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return _tc.special.ndtr((loc - x) / scale)


def _logsf(x: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return _tc.special.log_ndtr((loc - x) / scale)


def _isf(q: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return loc - scale * _tc.special.ndtri(q)


def _ppf(q: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return loc + scale * _tc.special.ndtri(q)


pdf = _dispatching(_raw.pdf, _pdf, "scipy.stats.norm.pdf")
cdf = _dispatching(_raw.cdf, _cdf, "scipy.stats.norm.cdf")
sf = _dispatching(_raw.sf, _sf, "scipy.stats.norm.sf")
logpdf = _dispatching(_raw.logpdf, _logpdf, "scipy.stats.norm.logpdf")
logcdf = _dispatching(_raw.logcdf, _logcdf, "scipy.stats.norm.logcdf")
logsf = _dispatching(_raw.logsf, _logsf, "scipy.stats.norm.logsf")
ppf = _dispatching(_raw.ppf, _ppf, "scipy.stats.norm.ppf")
isf = _dispatching(_raw.isf, _isf, "scipy.stats.norm.isf")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
