"""`scipy.stats.gamma`, with derivatives with respect to the value, its shape, `loc` and `scale`."""

from __future__ import annotations

from typing import Any

import scipy.stats as _stats
import tape_core as _tc

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.gamma, _tc.stats.gamma

cdf = _dispatching(_raw.cdf, _own.cdf, "scipy.stats.gamma.cdf")
logpdf = _dispatching(_raw.logpdf, _own.logpdf, "scipy.stats.gamma.logpdf")
pdf = _dispatching(_raw.pdf, _own.pdf, "scipy.stats.gamma.pdf")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
