"""NumPy as the library of what JAX leaves to the host, whether or not tape-numpy is installed."""

from __future__ import annotations

from functools import cache

import numpy as np
from tape_core.backends import ArrayAPIBackend, Backend


@cache
def numpy_on_host() -> Backend:
    """Return a backend whose kernels are the default ones, for NumPy's arrays."""
    return ArrayAPIBackend("numpy on the host", np)
