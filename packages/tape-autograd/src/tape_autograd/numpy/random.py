"""`numpy.random` as it is: random numbers have no derivative with respect to their parameters.

Write `mu + sigma * npr.randn(n)` for normal numbers that are to be differentiated.
"""

from __future__ import annotations

from typing import Any

import numpy as _np

from tape_autograd.numpy.namespace import wrapped_random as _wrapped_random

globals().update(_wrapped_random())

__all__ = list(_np.random.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_np.random, name)
