"""Searching and differences: NumPy's values."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)

INTEGERS = hnp.arrays("int64", hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.integers(-3, 3))


@FAST
@given(data=st.data(), side=st.sampled_from(["left", "right"]))
def test_searchsorted(data: st.DataObject, side: Any) -> None:
    x = np.asarray(data.draw(st.lists(st.integers(-3, 3), min_size=1)), dtype="float64")
    v = data.draw(INTEGERS).astype("float64")
    sorter = np.argsort(x)
    assert tc.searchsorted(tc.asarray(np.sort(x)), tc.asarray(v), side=side).tolist() == (
        np.searchsorted(np.sort(x), v, side=side).tolist()
    )
    assert tc.searchsorted(tc.asarray(x), tc.asarray(v), side=side, sorter=tc.asarray(sorter)).tolist() == (
        np.searchsorted(x, v, side=side, sorter=sorter).tolist()
    )


@FAST
@given(x=INTEGERS, n=st.integers(0, 3), data=st.data())
def test_diff(x: Any, n: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    edge = x.take([0], axis=axis)
    assert tc.diff(tc.asarray(x), axis=axis, n=n).tolist() == np.diff(x, axis=axis, n=n).tolist()
    found = tc.diff(tc.asarray(x), axis=axis, n=n, prepend=tc.asarray(edge), append=tc.asarray(edge))
    assert found.tolist() == np.diff(x, axis=axis, n=n, prepend=edge, append=edge).tolist()


def test_diff_is_differentiable_and_refuses_what_makes_no_sense() -> None:
    x = tc.asarray([1.0, 4.0, 9.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.diff(x) ** 2
    assert tape.gradient(y, x).tolist() == [-6.0, -4.0, 10.0]
    with pytest.raises(ValueError, match="n must not be negative"):
        tc.diff(x, n=-1)
    with pytest.raises(IndexError, match="no axis 1"):
        tc.diff(x, axis=1)
