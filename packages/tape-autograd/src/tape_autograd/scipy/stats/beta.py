"""`scipy.stats.beta`, with derivatives with respect to the value, its two shapes, `loc` and `scale`."""

from __future__ import annotations

from typing import Any

import scipy.stats as _stats
import tape_core as _tc

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_raw, _own = _stats.beta, _tc.stats.beta

cdf = _dispatching(_raw.cdf, _own.cdf, "scipy.stats.beta.cdf")
logpdf = _dispatching(_raw.logpdf, _own.logpdf, "scipy.stats.beta.logpdf")
pdf = _dispatching(_raw.pdf, _own.pdf, "scipy.stats.beta.pdf")


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
