"""Sums, products, extrema and means of segments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import STRICT, numpy_gradient
from tape_core.backends.errors import BatchError
from tape_core.staging import TracingError

BACKENDS = pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])

SEGMENTS: dict[str, tuple[Any, Any, float]] = {
    "segment_sum": (tc.segment_sum, np.sum, 0.0),
    "segment_mean": (tc.segment_mean, np.mean, 0.0),
    "segment_prod": (tc.segment_prod, np.prod, 1.0),
    "segment_max": (tc.segment_max, np.max, -math.inf),
    "segment_min": (tc.segment_min, np.min, math.inf),
}


@BACKENDS
@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 2), (7, 0)], ids=str)
def test_segments(backend: Any, name: str, shape: tuple[int, ...]) -> None:
    function, reduce, empty = SEGMENTS[name]
    ids = np.asarray([4, 0, 4, 1, 0, 4, 1])
    x = np.random.default_rng(2).standard_normal(shape)
    expected = np.full((6, *shape[1:]), empty)
    for k in (0, 1, 4):
        expected[k] = reduce(x[ids == k], axis=0)
    found = function(tc.asarray(x, backend=backend), tc.asarray(ids, backend=backend), 6)
    tc.testing.assert_close(found.numpy(), expected, rtol=1e-12)
    assert function(tc.asarray(x, backend=backend), tc.asarray(ids, backend=backend)).shape == (5, *shape[1:])


@BACKENDS
def test_gradients_of_segments(backend: Any) -> None:
    ids = tc.asarray([1, 0, 1, 1], backend=backend)
    weights = tc.asarray([1.0, 10.0, 100.0], dtype="float64", backend=backend)

    def slope(f: Any, x: Any) -> Any:
        return numpy_gradient(lambda x: tc.sum(weights[:2] * f(x, ids)), x, backend=backend).tolist()

    assert slope(tc.segment_sum, [5.0, 6.0, 7.0, 8.0]) == [10.0, 1.0, 10.0, 10.0]
    assert slope(tc.segment_mean, [5.0, 6.0, 7.0, 8.0]) == pytest.approx([10 / 3, 1.0, 10 / 3, 10 / 3])
    assert slope(tc.segment_max, [5.0, 6.0, 8.0, 8.0]) == [0.0, 1.0, 5.0, 5.0]
    assert slope(tc.segment_min, [5.0, 6.0, 5.0, 8.0]) == [5.0, 1.0, 5.0, 0.0]
    assert slope(tc.segment_prod, [0.0, 6.0, 2.0, 3.0]) == [60.0, 1.0, 0.0, 0.0]
    # A value that is what an empty segment holds has its whole share, too.
    inf = math.inf
    assert slope(tc.segment_max, [-inf, -inf, -inf, -inf]) == pytest.approx([10 / 3, 1.0, 10 / 3, 10 / 3])
    assert slope(tc.segment_min, [inf, inf, inf, 2.0]) == [0.0, 1.0, 0.0, 10.0]


def test_segments_of_integers_of_grids_and_of_nothing() -> None:
    ids = tc.asarray([0, 2, 0])
    x = tc.asarray([7, 1, -3], dtype="int8")
    assert tc.segment_sum(x, ids).tolist() == [4, 0, 1]
    assert tc.segment_max(x, ids).tolist() == [7, -128, 1]
    assert tc.segment_min(x, ids).tolist() == [-3, 127, 1]
    assert tc.segment_max(x, ids).dtype == tc.int8
    assert tc.segment_mean(x, ids).tolist() == [2.0, 0.0, 1.0]
    assert tc.segment_mean(x, ids).dtype == tc.float32
    grid = tc.asarray([[0, 1], [1, 1]])
    assert tc.segment_sum(tc.ones((2, 2, 3)), grid).tolist() == [[1.0] * 3, [3.0] * 3]
    nothing = tc.zeros((0, 2)), tc.asarray([], dtype="int64")
    assert tc.segment_sum(*nothing).shape == (0, 2)
    assert tc.segment_prod(*nothing, 2).tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("name", SEGMENTS)
def test_mistakes_with_segments(name: str) -> None:
    function, x = SEGMENTS[name][0], tc.ones((3, 2))
    for ids, n, error, match in (
        ([0, 5, 1], 3, ValueError, rf"{name}: segment_ids must be in \[0, 3\), got 0 to 5"),
        ([0, -1, 1], None, ValueError, r"segment_ids must be in \[0, 2\), got -1 to 1"),
        ([0, 1], None, ValueError, r"segment_ids of shape \(2,\) must have the shape of the first dimensions of x"),
        ([0.0, 1.0, 2.0], None, TypeError, "segment_ids must be integers, not float32"),
    ):
        with pytest.raises(error, match=match):
            function(x, tc.asarray(ids), n)
    with pytest.raises(ValueError, match="one dimension or more"):
        function(2.0, 1)
    if name in ("segment_max", "segment_min"):
        with pytest.raises(TypeError, match="real numbers"):
            function(tc.astype(x, "complex64"), tc.asarray([0, 1, 0]))
        with pytest.raises(TypeError, match="must hold numbers"):
            function(x > 0, tc.asarray([0, 1, 0]))


@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_compiled_and_for_each_example(name: str) -> None:
    function, x = SEGMENTS[name][0], tc.asarray([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
    ids, rows = tc.asarray([1, 0, 1]), tc.asarray([[1, 0, 1], [2, 2, 0]])

    def total(x: Any, ids: Any) -> Any:
        return tc.sum(function(x, ids, 3)[:2] ** 2)

    compiled, slope = tc.function(lambda ids: function(x, ids, 3)), tc.function(tc.grad(total))
    for _ in range(2):
        assert compiled(ids).tolist() == function(x, ids, 3).tolist()
        assert slope(x, tc.asarray([1, 0, 0])).tolist() == tc.grad(total)(x, tc.asarray([1, 0, 0])).tolist()
    assert tc.vmap(lambda ids: function(x, ids, 3))(rows).tolist() == [function(x, row, 3).tolist() for row in rows]
    for call, bad in ((compiled, ids - 1), (tc.vmap(lambda ids: function(x, ids, 3)), rows - 1)):
        with pytest.raises(ValueError, match=rf"{name}: segment_ids must be in \[0, 3\), got -1 to [01]"):
            call(bad)
    for call, given in (
        (tc.function(lambda ids: function(x, ids)), ids),
        (tc.vmap(lambda ids: function(x, ids)), rows),
    ):
        with pytest.raises((TracingError, BatchError), match=f"{name}: .*: give num_segments"):
            call(given)
