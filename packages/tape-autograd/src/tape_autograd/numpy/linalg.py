"""`numpy.linalg`, for arrays and for values that are being differentiated."""

from __future__ import annotations

from typing import Any

import numpy as _np

from tape_autograd.numpy.namespace import wrapped_names as _wrapped_names

globals().update(_wrapped_names(_np.linalg, _np.linalg.__all__, "linalg."))

__all__ = list(_np.linalg.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_np.linalg, name)
