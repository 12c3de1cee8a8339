"""Sets: NumPy's values, in order."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend

STRICT = ArrayAPIBackend("strict", array_api_strict)


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
