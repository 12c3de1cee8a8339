"""`scipy.stats.poisson`, with derivatives with respect to `mu`."""

from __future__ import annotations

from typing import Any

import scipy.stats as _stats
import tape_core as _tc

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.poisson, _tc.stats.poisson

cdf = _dispatching(_raw.cdf, _own.cdf, "scipy.stats.poisson.cdf")
logpmf = _dispatching(_raw.logpmf, _own.logpmf, "scipy.stats.poisson.logpmf")
pmf = _dispatching(_raw.pmf, _own.pmf, "scipy.stats.poisson.pmf")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
