"""`scipy.stats.norm`, with derivatives with respect to the value, `loc` and `scale`."""

from __future__ import annotations

from typing import Any

import scipy.stats as _stats
import tape_core as _tc
from tape_core.typing import ArrayLike as _ArrayLike

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.norm, _tc.stats.norm


def _logsf(x: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    # By symmetry; so it is accurate far out.
    return _own.logcdf(-(x - loc) / scale)


def _isf(q: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return loc - scale * _tc.special.ndtri(q)


def _ppf(q: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return loc + scale * _tc.special.ndtri(q)


pdf = _dispatching(_raw.pdf, _own.pdf, "scipy.stats.norm.pdf")
cdf = _dispatching(_raw.cdf, _own.cdf, "scipy.stats.norm.cdf")
sf = _dispatching(_raw.sf, _own.sf, "scipy.stats.norm.sf")
logpdf = _dispatching(_raw.logpdf, _own.logpdf, "scipy.stats.norm.logpdf")
logcdf = _dispatching(_raw.logcdf, _own.logcdf, "scipy.stats.norm.logcdf")
logsf = _dispatching(_raw.logsf, _logsf, "scipy.stats.norm.logsf")
ppf = _dispatching(_raw.ppf, _ppf, "scipy.stats.norm.ppf")
isf = _dispatching(_raw.isf, _isf, "scipy.stats.norm.isf")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
