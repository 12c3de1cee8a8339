"""`scipy.stats.dirichlet`, with derivatives with respect to the value and `alpha`."""

from __future__ import annotations

from typing import Any

import scipy.stats as _stats
import tape_core as _tc

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.dirichlet, _tc.stats.dirichlet

logpdf = _dispatching(_raw.logpdf, _own.logpdf, "scipy.stats.dirichlet.logpdf")
pdf = _dispatching(_raw.pdf, _own.pdf, "scipy.stats.dirichlet.pdf")
rvs = _raw.rvs


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
