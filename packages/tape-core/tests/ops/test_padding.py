"""pad: NumPy's values and dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)


@FAST
@given(
    mode=st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_pad_is_numpys(mode: Any, shape: list[int], data: Any) -> None:
    widths = [(data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))) for _ in shape]
    x = np.arange(math.prod(shape)).reshape(shape)
    assert np.array_equal(tc.pad(tc.asarray(x), widths, mode).numpy(), np.pad(x, widths, mode))


def test_pad_keeps_the_dtype() -> None:
    for dtype in ("float32", "int8", "bool", "complex64"):
        assert str(tc.pad(tc.zeros(2, dtype=dtype), 1, constant_values=1).dtype) == dtype


def test_pad_keeps_the_sign_of_zeros() -> None:
    for function in (tc.pad, tc.function(tc.pad)):
        padded = function(tc.asarray([0.0, -0.0]), 1, constant_values=-0.0)
        assert np.signbit(padded.numpy()).tolist() == [True, False, True, True]
