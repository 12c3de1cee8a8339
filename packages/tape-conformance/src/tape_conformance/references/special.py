"""Special functions by SciPy, running sums by their definition, integration and interpolation by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special


def _logcumsumexp(x: Any, *, axis: int | None = None, include_initial: bool = False) -> Any:
    lines = np.moveaxis(x, 0 if axis is None else axis, -1)
    n = lines.shape[-1]
    parts = [np.full(lines.shape[:-1], -np.inf)] if include_initial else []
    parts += [special.logsumexp(lines[..., : k + 1], axis=-1) for k in range(n)]
    out = np.stack(parts, axis=-1) if parts else lines
    return np.moveaxis(out, -1, 0 if axis is None else axis)


def _linear_recurrence(a: Any, b: Any) -> Any:
    out = np.array(b)
    for k in range(1, b.shape[-1]):
        out[..., k] += a[..., k] * out[..., k - 1]
    return out


# SciPy's values at these points are not the limits there.


def _i0(x: Any) -> Any:
    return np.where(np.isinf(x), np.inf, special.i0(x))


def _i1(x: Any) -> Any:
    return np.where(np.isinf(x), x, special.i1(x))


def _betaln(a: Any, b: Any) -> Any:
    out = special.betaln(a, b)
    out = np.where((np.maximum(a, b) == np.inf) & (np.minimum(a, b) > 0), -np.inf, out)
    poles = np.logical_or(*((v <= 0) & (v == np.floor(v)) for v in (a, b)))
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(poles, np.inf, out))


def _trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, axis: int = -1) -> Any:
    return np.trapezoid(y, x, dx, axis)


REFERENCES: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(special, name)
        for name in (
            "digamma", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "gamma", "gammaln", "i0e", "i1e",
            "log_ndtr", "logit", "ndtr", "ndtri", "polygamma", "rel_entr", "xlog1py", "xlogy",
            "betainc", "gammainc", "gammaincc", "iv", "ive", "j0", "j1", "jv", "kv", "stdtr", "y0", "y1", "yv",
        )
    },
    "betaln": _betaln,
    "i0": _i0,
    "i1": _i1,
    "interp": np.interp,
    "linear_recurrence": _linear_recurrence,
    "logcumsumexp": _logcumsumexp,
    "trapezoid": _trapezoid,
}  # fmt: skip
