"""`scipy.special`, with the derivatives of Tape's `special`."""

from __future__ import annotations

from typing import Any

import numpy as _np
import scipy.special as _raw
import tape_core as _tc
from tape_core.typing import ArrayLike as _ArrayLike
from tape_core.typing import Axis as _Axis

from tape_autograd.scipy.dispatch import dispatching as _dispatching

_CONSTANT = {"gammasgn"}


def _logsumexp(a: _ArrayLike, axis: _Axis = None, b: _ArrayLike = None, keepdims: bool = False, **_: Any) -> Any:
    if b is None:
        return _tc.logsumexp(a, axis=axis, keepdims=keepdims)
    # The sum of b * exp(a), shifted so that exp does not overflow; of a negative sum the logarithm is NaN, as in SciPy.
    shift = _tc.max(_tc.stop_gradient(a), axis=axis, keepdims=True)
    total = _tc.log(_tc.sum(_tc.exp(a - shift) * b, axis=axis, keepdims=True)) + shift
    if keepdims:
        return total
    return _tc.reshape(total, ()) if axis is None else _tc.squeeze(total, axis=axis)


def _yn(n: _ArrayLike, x: _ArrayLike) -> Any:
    if isinstance(n, _tc.Tensor):
        raise NotImplementedError(
            "scipy.special.yn has whole orders only, and no derivative with respect to them; see yv"
        )
    return _tc.special.yn(_np.trunc(n), x)


_OWN: dict[str, Any] = {"yn": _yn, "logsumexp": _logsumexp, "psi": _tc.special.digamma}


def _wrapped() -> dict[str, Any]:
    found = {}
    for name in _raw.__all__:
        raw = getattr(_raw, name)
        if isinstance(raw, type) or not callable(raw):
            found[name] = raw
        else:
            own = _OWN.get(name, getattr(_tc.special, name, None) if name in dir(_tc.special) else None)
            found[name] = _dispatching(raw, own, f"scipy.special.{name}", constant=name in _CONSTANT)
    return found


globals().update(_wrapped())
__all__ = list(_raw.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
