"""Sparse gradients of gathered rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc


def table() -> tc.Variable:
    return tc.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def gradient(f: Any, v: Any) -> Any:
    with tc.GradientTape() as tape:
        y = f(v)
    return tape.gradient(y, v)


def test_a_gather_gives_slices_whose_duplicates_are_not_merged() -> None:
    v = table()
    g = gradient(lambda v: tc.gather(v, tc.asarray([[2, 0], [2, 2]])) * 3.0, v)
    assert isinstance(g, tc.IndexedSlices)
    assert not isinstance(g, tc.Tensor)
    assert (type(g.values), type(g.indices)) == (tc.Tensor, tc.Tensor)
    assert g.indices.tolist() == [2, 0, 2, 2], "flattened"
    assert g.values.tolist() == [[3.0, 3.0]] * 4
    assert g.dense_shape == g.shape == (3, 2)
    assert g.dtype is tc.float32
    dense = g.densify()
    assert dense.tolist() == [[3.0, 3.0], [0.0, 0.0], [9.0, 9.0]]
    assert type(dense) is tc.Tensor


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_indices_keep_their_dtype(dtype: str) -> None:
    i = tc.asarray([1, 1], dtype=dtype)
    g = gradient(lambda v: tc.gather(v, i), table())
    assert g.indices.dtype == i.dtype


def test_a_watched_constant_has_slices_too() -> None:
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.gather(x, tc.asarray([1, 1]))
    g = tape.gradient(y, x)
    assert (g.indices.tolist(), g.values.tolist(), g.dense_shape) == ([1, 1], [1.0, 1.0], (2,))


def test_several_gathers_are_concatenated() -> None:
    i, j = tc.asarray([0]), tc.asarray([2, 0])
    g = gradient(lambda v: tc.sum(tc.gather(v, i)) + 2.0 * tc.sum(tc.gather(v, j)), table())
    assert isinstance(g, tc.IndexedSlices)
    rows = sorted(zip(g.indices.tolist(), g.values.tolist(), strict=True))
    assert rows == [(0, [1.0, 1.0]), (0, [2.0, 2.0]), (2, [2.0, 2.0])]


@pytest.mark.parametrize("order", [1, -1])
def test_sparse_and_dense_contributions_add_up_to_a_dense_gradient(order: int) -> None:
    i = tc.asarray([0, 0])
    parts = [lambda v: tc.sum(tc.gather(v, i)), lambda v: tc.sum(v * v)][::order]
    g = gradient(lambda v: parts[0](v) + parts[1](v), table())
    assert isinstance(g, tc.Tensor)
    assert g.tolist() == [[4.0, 6.0], [6.0, 8.0], [10.0, 12.0]]


def test_a_gather_of_a_gather_stays_sparse() -> None:
    i, j = tc.asarray([2, 1, 0]), tc.asarray([0, 0])
    g = gradient(lambda v: tc.gather(tc.gather(v, i), j), table())
    assert isinstance(g, tc.IndexedSlices)
    assert g.densify().tolist() == [[0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]


def test_an_intermediate_result_densifies() -> None:
    g = gradient(lambda v: tc.gather(v * 2.0, tc.asarray([1, 1])), table())
    assert isinstance(g, tc.Tensor)
    assert g.tolist() == [[0.0, 0.0], [4.0, 4.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    "f",
    [
        lambda v: tc.take(v, tc.asarray([1, 1]), axis=0),
        lambda v: tc.take(v, tc.asarray([1, 1]), axis=1),
        lambda v: v[1],
        lambda v: v[tc.asarray([1, 1])],
    ],
    ids=["take 0", "take 1", "row", "index"],
)
def test_other_ways_to_read_rows_are_dense(f: Any) -> None:
    assert isinstance(gradient(f, table()), tc.Tensor)


def test_arithmetic_densifies() -> None:
    g = gradient(lambda v: tc.gather(v, tc.asarray([0, 0, 1])), table())
    dense = np.asarray([[2.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    x = tc.ones((3, 2))
    for found, expected in [
        (g * 2.0, dense * 2),
        (0.5 * g, dense / 2),
        (-g, -dense),
        (g + x, dense + 1),
        (x + g, dense + 1),
        (g - x, dense - 1),
        (1.0 - g, 1 - dense),
        (g / 2.0, dense / 2),
        (g**2, dense**2),
        (x * g, dense),
        (np.ones((3, 2), "float32") * g, dense),
        (g * g, dense * dense),
        (g - g, dense * 0),
    ]:
        assert isinstance(found, tc.Tensor)
        assert np.array_equal(found.numpy(), expected)
    assert isinstance(g + g, tc.IndexedSlices)
    assert np.array_equal((g + g).densify().numpy(), dense * 2)


def test_slices_as_a_target_or_source_hint_at_densify() -> None:
    v = table()
    with tc.GradientTape() as tape:
        y = tc.gather(v, tc.asarray([0]))
    g = tape.gradient(y, v)
    tape = tc.GradientTape()
    with pytest.raises(TypeError, match=r"gradient: target must be a Tensor.*densify"):
        tape.gradient(g, v)
    with pytest.raises(TypeError, match=r"gradient: sources\[0\] must be a Tensor.*densify"):
        tape.gradient(v, [g])


def test_a_variable_takes_slices_and_adds_duplicates() -> None:
    v = table()
    slices = tc.IndexedSlices(tc.ones((3, 2)), tc.asarray([0, 2, 0]), (3, 2))
    assert v.assign_add(slices) is v
    assert v.tolist() == [[3.0, 4.0], [3.0, 4.0], [6.0, 7.0]]
    v.assign_sub(slices)
    assert v.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    with pytest.raises(ValueError, match=r"assign_add: .*shape \(4, 2\).*shape \(3, 2\)"):
        v.assign_add(tc.IndexedSlices(tc.ones((1, 2)), tc.asarray([0]), (4, 2)))


def test_a_sparse_update_changes_no_recorded_value() -> None:
    v = table()
    with tc.GradientTape() as tape:
        y = tc.sum(tc.gather(v, tc.asarray([0])) ** 2 * tc.gather(v, tc.asarray([0])))
    v.assign_add(tc.IndexedSlices(tc.ones((1, 2)) * 50.0, tc.asarray([0]), (3, 2)))
    assert tape.gradient(y, v).densify()[0].tolist() == [3.0, 12.0]


def test_no_rows() -> None:
    g = gradient(lambda v: tc.gather(v, tc.asarray([], dtype="int64")), table())
    assert g.values.shape == (0, 2)
    assert g.densify().tolist() == [[0.0, 0.0]] * 3
