"""Sets and membership: NumPy's values."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import STRICT

BACKENDS = pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])


@BACKENDS
def test_isin(backend: Any) -> None:
    rng = np.random.default_rng(4)
    for dtype in ("int64", "uint8", "float32"):
        for n in (0, 1, 5):
            a, b = rng.integers(0, 9, (2, 3)).astype(dtype), rng.integers(0, 9, n).astype(dtype)
            for invert in (False, True):
                found = tc.isin(tc.asarray(a, backend=backend), tc.asarray(b, backend=backend), invert=invert)
                assert found.dtype == tc.bool
                assert np.array_equal(found.numpy(), np.isin(a, b, invert=invert))
    x = tc.asarray([1.0, math.nan], backend=backend)
    assert tc.isin(x, x).tolist() == [True, False]
    assert tc.isin(x, 1.0).tolist() == [True, False]
    assert tc.isin(2.0, x, invert=True).item() is True


FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)

INTEGERS = hnp.arrays("int64", hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.integers(-3, 3))


@FAST
@given(x=INTEGERS)
def test_sets_and_nonzero(x: Any) -> None:
    t = tc.asarray(x)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        found, expected = getattr(tc, name)(t), getattr(np, name)(x)
        assert found._fields == expected._fields
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    assert sorted(tc.unique_values(t).tolist()) == np.unique(x).tolist()  # in no order
    assert [part.tolist() for part in tc.nonzero(t)] == [part.tolist() for part in np.nonzero(x)]


@pytest.mark.parametrize("backend", [None, STRICT], ids=["own", "strict"])
@pytest.mark.parametrize("values", [[0, 1, 0, 1], [3, 1, 2, 3, 1], [2.5, -1.0, 2.5, 0.0], [[1, 0], [1, 1]], []])
def test_different_elements_come_in_order(values: Any, backend: Any) -> None:
    x = np.asarray(values)
    expected = np.unique(x)
    found = tc.unique_all(tc.asarray(x, backend=backend))
    np.testing.assert_array_equal(found.values, expected)
    np.testing.assert_array_equal(tc.unique_values(tc.asarray(x, backend=backend)), expected)
    for unique in (tc.unique_counts, tc.unique_inverse):
        result: Any = unique(tc.asarray(x, backend=backend))
        np.testing.assert_array_equal(result.values, expected)
    np.testing.assert_array_equal(x.reshape(-1)[found.indices.numpy()], expected)
    np.testing.assert_array_equal(expected[found.inverse_indices.numpy()], x)


@pytest.mark.each_backend
@pytest.mark.long_on_jax
def test_the_gradient_of_different_elements_goes_to_where_each_is_first() -> None:
    x = tc.asarray([[3.0, 1.0, 3.0], [2.0, 5.0, 1.0]])
    expected = [[27.0, 3.0, 0.0], [12.0, 75.0, 0.0]]

    def by_counts(x: tc.Tensor) -> tc.Tensor:  # as scipy.stats.mode uses it
        return tc.sum(tc.unique_counts(x).values ** 3)

    for f in (
        by_counts,
        lambda x: tc.sum(tc.unique_all(x).values ** 3),
        lambda x: tc.sum(tc.unique_inverse(x).values ** 3),
        lambda x: tc.sum(tc.unique_values(x) ** 3),
    ):
        assert tc.grad(f)(x).tolist() == expected
        assert tc.jvp(f, (x,), (tc.ones_like(x),))[1].item() == 117.0
        second = tc.jvp(tc.grad(f), (x,), (tc.ones_like(x),))[1]
        assert second.tolist() == [[18.0, 6.0, 0.0], [12.0, 30.0, 0.0]]
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.unique_inverse(x)
        z = tc.sum(y.values[y.inverse_indices])
    # Each element is counted where its value is first.
    assert tape.gradient(z, x).tolist() == [[2.0, 2.0, 0.0], [1.0, 1.0, 0.0]]
    assert tc.unique_values(tc.asarray([3, 1, 3])).dtype.kind == "signed integer"
