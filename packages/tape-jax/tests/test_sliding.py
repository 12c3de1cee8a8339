"""Sliding windows and their sums by slices and paddings of XLA: they are those of the other backends."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import tape_core as tc

CASES: dict[str, tuple[tuple[int, ...], Any, dict[str, Any]]] = {
    "side by side, with a rest": ((2, 11), 3, {"axis": 1, "stride": 3}),
    "gaps between them": ((9, 2), 2, {"axis": 0, "stride": 4}),
    "fewer windows than places": ((9,), 7, {}),
    "axes in another order": ((7, 2, 8), (3, 2), {"axis": (2, 0), "stride": (2, 1), "dilation": (1, 2)}),
    "too many for slices": ((90,), 40, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_windows_and_sums_are_numpys(case: str) -> None:
    shape, window, how = CASES[case]
    x = np.arange(np.prod(shape)).reshape(shape)
    expected = tc.sliding_windows(tc.asarray(x, backend="numpy"), window, **how)
    found = tc.sliding_windows(tc.asarray(x, backend="jax"), window, **how)
    assert np.array_equal(found.numpy(), expected.numpy())
    sums = tc.add_windows(found, shape, **how)
    assert np.array_equal(sums.numpy(), tc.add_windows(expected, shape, **how).numpy())


def test_the_gradients_of_pooling_and_of_slices_write_no_elements_one_by_one() -> None:
    def loss(x: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.avg_pool(x, 2) ** 2) + tc.sum(x[:, ::2, 1:, 0] ** 3)

    x = np.random.default_rng(0).standard_normal((1, 4, 6, 2))
    compiled = jax.jit(tc.grad(loss))
    assert "scatter" not in compiled.lower(x).as_text()
    np.testing.assert_allclose(compiled(x), tc.grad(loss)(tc.asarray(x, backend="numpy")).numpy())
