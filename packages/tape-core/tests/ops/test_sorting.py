"""Sorting and the largest elements: NumPy's values, ties, NaN, gradients."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import STRICT, numpy_gradient

BACKENDS = pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])


@BACKENDS
@pytest.mark.parametrize("n", [5, 300])
def test_top_k_takes_the_first_of_equal_elements(backend: Any, n: int) -> None:
    x = np.random.default_rng(3).integers(0, 4, (3, n)).astype("float32")
    t = tc.asarray(x, backend=backend)
    for largest in (True, False):
        order = np.argsort(-x if largest else x, axis=1, stable=True)
        for k in (0, 1, 4, n):
            values, indices = tc.top_k(t, k, largest=largest)
            assert np.array_equal(indices.numpy(), order[:, :k])
            assert np.array_equal(values.numpy(), np.take_along_axis(x, order[:, :k], 1))
            assert values.dtype == tc.float32


@BACKENDS
@pytest.mark.parametrize("n", [4, 300])
def test_nan_is_the_largest(backend: Any, n: int) -> None:
    x = np.arange(n, dtype="float64")
    x[1] = math.nan
    t = tc.asarray(x, backend=backend)
    assert tc.top_k(t, 2).indices.tolist() == [1, n - 1]
    assert tc.top_k(t, 2, largest=False).indices.tolist() == [0, 2]
    assert tc.top_k(t, n, largest=False).indices[-1].item() == 1


@BACKENDS
def test_the_gradient_of_top_k_goes_to_what_is_taken(backend: Any) -> None:
    def f(x: Any) -> Any:
        return tc.sum(tc.top_k(x, 2, axis=0).values * tc.asarray([[1.0], [10.0]], dtype="float64", backend=backend))

    x = [[2.0, 1.0], [2.0, 3.0], [0.0, 2.0]]
    assert numpy_gradient(f, x, backend=backend).tolist() == [[1.0, 0.0], [10.0, 1.0], [0.0, 10.0]]


FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)

INTEGERS = hnp.arrays("int64", hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.integers(-3, 3))


@FAST
@given(x=INTEGERS, data=st.data(), descending=st.booleans())
def test_sort_and_argsort(x: Any, data: st.DataObject, descending: bool) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    before = x.copy()
    t = tc.asarray(x)
    order = tc.argsort(t, axis=axis, descending=descending)
    found = tc.sort(t, axis=axis, descending=descending)
    # Stable in both directions: as of the values, larger first where descending.
    expected = np.argsort(-x if descending else x, axis=axis, stable=True)
    assert order.tolist() == expected.tolist()
    assert found.tolist() == np.take_along_axis(x, expected, axis=axis).tolist()
    assert found.dtype is t.dtype
    assert np.array_equal(x, before), "the input was changed"


def test_the_gradient_of_sort_goes_where_the_elements_came_from() -> None:
    x = tc.asarray([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]])
    weights = tc.asarray([[10.0, 20.0, 30.0], [1.0, 2.0, 3.0]])
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        up, down = tc.sort(x) * weights, tc.sort(x, descending=True) * weights
    assert tape.gradient(up, x).tolist() == [[30.0, 10.0, 20.0], [2.0, 3.0, 1.0]]
    assert tape.gradient(down, x).tolist() == [[10.0, 30.0, 20.0], [1.0, 2.0, 3.0]]
