"""`scipy.stats.t`, with derivatives with respect to the value, `df`, `loc` and `scale`."""

from __future__ import annotations

from typing import Any

import scipy.stats as _stats
import tape_core as _tc
from tape_core.typing import ArrayLike as _ArrayLike

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.t, _tc.stats.t


def _logcdf(x: _ArrayLike, df: _ArrayLike, loc: _ArrayLike = 0.0, scale: _ArrayLike = 1.0) -> Any:
    return _tc.log(_own.cdf(x, df, loc, scale))


pdf = _dispatching(_raw.pdf, _own.pdf, "scipy.stats.t.pdf")
cdf = _dispatching(_raw.cdf, _own.cdf, "scipy.stats.t.cdf")
logpdf = _dispatching(_raw.logpdf, _own.logpdf, "scipy.stats.t.logpdf")
logcdf = _dispatching(_raw.logcdf, _logcdf, "scipy.stats.t.logcdf")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
