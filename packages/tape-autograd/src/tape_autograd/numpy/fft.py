"""`numpy.fft`, for arrays and for values that are being differentiated."""

from __future__ import annotations

from typing import Any

import numpy as _np

from tape_autograd.numpy.namespace import wrapped_names as _wrapped_names

globals().update(_wrapped_names(_np.fft, _np.fft.__all__, "fft."))

__all__ = list(_np.fft.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_np.fft, name)
