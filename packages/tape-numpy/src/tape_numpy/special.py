"""Special functions: the default kernels, called block by block, so that their many temporaries stay in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from tape_core.backends import DEFAULT_KERNELS, get_default_dtype, line_axis
from tape_core.typing import Kernel, Namespace, Raw

from tape_numpy.thresholds import SPECIAL_BLOCK

_NAMES = (
    "betainc_derivative", "betaln", "digamma", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "gamma",
    "gammainc_derivative", "gammaln", "i0", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "stdtr_derivative",
)  # fmt: skip


def special_kernels(xp: Namespace) -> dict[str, Kernel]:
    """Return the kernels by op name, for the backend's namespace `xp`."""
    return {**{name: _in_blocks(name, xp) for name in _NAMES}, "logcumsumexp": _logcumsumexp}


def _in_blocks(name: str, xp: Namespace) -> Kernel:
    """Return the default kernel of an op, called for blocks of large arrays of one shape."""

    def kernel(*values: Any, **parameters: Any) -> Any:
        default = DEFAULT_KERNELS[name]
        first = next((v for v in values if type(v) is np.ndarray), None)
        if first is None or first.size <= SPECIAL_BLOCK:
            return default(xp, *values, **parameters)
        # Arrays that are broadcast have no common flat blocks.
        if any([type(v) is np.ndarray and v.shape != first.shape for v in values]):
            return default(xp, *values, **parameters)
        flat = [v.reshape(-1) if type(v) is np.ndarray else v for v in values]
        parts = [
            default(xp, *[v[start : start + SPECIAL_BLOCK] if type(v) is np.ndarray else v for v in flat], **parameters)
            for start in range(0, first.size, SPECIAL_BLOCK)
        ]
        return np.concatenate(parts).reshape(first.shape)

    return kernel


def _logcumsumexp(x: Raw, *, axis: int | None = None, include_initial: bool = False) -> Raw:
    axis = line_axis(axis, x.ndim)
    if x.dtype.kind == "c":
        raise TypeError("it takes real numbers, not complex ones")
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(get_default_dtype().name)
    # In float64, since rounding errors add up along the axis. NumPy warns of NaN.
    with np.errstate(invalid="ignore"):
        out = np.logaddexp.accumulate(x, axis=axis, dtype=np.float64).astype(dtype)
    if include_initial:
        shape = list(x.shape)
        shape[axis] = 1
        out = np.concatenate([np.full(shape, -np.inf, dtype), out], axis=axis)
    return out
