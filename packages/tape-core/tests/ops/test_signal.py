"""convolve: NumPy's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import STRICT

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)


@FAST
@given(n=st.integers(1, 8), k=st.integers(1, 8), mode=st.sampled_from(["full", "same", "valid"]))
def test_convolve_is_numpys(n: int, k: int, mode: Any) -> None:
    a, v = np.arange(n) + 1.0, np.arange(k) - 2.0
    for backend in ("numpy", STRICT):
        out = tc.convolve(tc.asarray(a, backend=backend), tc.asarray(v, backend=backend), mode)
        np.testing.assert_allclose(out.numpy(), np.convolve(a, v, mode))
