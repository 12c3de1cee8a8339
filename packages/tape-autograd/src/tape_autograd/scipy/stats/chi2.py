"""`scipy.stats.chi2`, with derivatives with respect to the value, `df`, `loc` and `scale`."""

from __future__ import annotations

from typing import Any

import scipy.stats as _stats
import tape_core as _tc

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.chi2, _tc.stats.chi2

cdf = _dispatching(_raw.cdf, _own.cdf, "scipy.stats.chi2.cdf")
logpdf = _dispatching(_raw.logpdf, _own.logpdf, "scipy.stats.chi2.logpdf")
pdf = _dispatching(_raw.pdf, _own.pdf, "scipy.stats.chi2.pdf")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
