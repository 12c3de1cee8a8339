"""Sparse gradients of gathered rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given
from hypothesis import strategies as st


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


def test_slices_as_a_target_hint_at_densify_and_as_a_source_of_a_jacobian_at_their_values() -> None:
    v = table()
    with tc.GradientTape() as tape:
        y = tc.gather(v, tc.asarray([0]))
    g = tape.gradient(y, v)
    tape = tc.GradientTape()
    with pytest.raises(TypeError, match=r"gradient: target must be a Tensor.*densify"):
        tape.gradient(g, v)
    with pytest.raises(TypeError, match=r"jacobian: sources\[0\] must be a Tensor.*its values"):
        tape.jacobian(v, [g])


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


# -- merging


def test_merged_names_each_row_once_in_rising_order() -> None:
    slices = tc.IndexedSlices(
        tc.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]), tc.asarray([2, 0, 2, -1]), (4, 2)
    )
    merged = slices.merged()
    assert merged.indices.tolist() == [0, 2, 3]
    assert merged.values.tolist() == [[3.0, 4.0], [6.0, 8.0], [7.0, 8.0]]
    assert (merged.dense_shape, merged.indices.dtype) == ((4, 2), slices.indices.dtype)
    assert merged.densify().tolist() == slices.densify().tolist()
    again = merged.merged()
    assert (again.indices.tolist(), again.values.tolist()) == (merged.indices.tolist(), merged.values.tolist())


def test_merging_no_rows() -> None:
    merged = tc.IndexedSlices(tc.ones((0, 2)), tc.asarray([], dtype="int64"), (3, 2)).merged()
    assert (merged.values.shape, merged.indices.shape) == ((0, 2), (0,))


@given(st.lists(st.integers(-5, 4), max_size=12), st.integers(0, 2))
def test_merging_changes_no_value(indices: list[int], extra: int) -> None:
    shape = (5, 2, 3)[: 1 + extra]
    values = np.arange(float(len(indices) * np.prod(shape[1:]))).reshape(len(indices), *shape[1:])
    slices = tc.IndexedSlices(tc.asarray(values), tc.asarray(np.asarray(indices, "int64")), shape)
    expected = np.zeros(shape)
    np.add.at(expected, np.asarray(indices, "int64"), values)
    merged = slices.merged()
    assert merged.indices.tolist() == sorted({i % 5 for i in indices})
    assert np.array_equal(merged.densify().numpy(), expected)


def test_merging_is_differentiable_in_the_values() -> None:
    x = tc.asarray([1.0, 2.0, 3.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.IndexedSlices(x, tc.asarray([4, 1, 4]), (5,)).merged().values ** 2
    assert tape.gradient(y, x).tolist() == [8.0, 4.0, 8.0]


# -- every path takes them


def slices_of_one_row() -> tc.IndexedSlices:
    return tc.IndexedSlices(tc.asarray([[1.0, 2.0]]), tc.asarray([1]), (3, 2))


def test_functions_take_slices_as_the_array_they_stand_for() -> None:
    slices = slices_of_one_row()
    dense = [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]
    assert tc.sum(slices).item() == 3.0
    assert tc.sqrt(slices * slices).tolist() == dense
    assert tc.asarray(slices).tolist() == dense
    assert tc.concat([slices, tc.ones((1, 2))]).tolist() == [*dense, [1.0, 1.0]]
    assert (2.0**slices).tolist() == [[1.0, 1.0], [2.0, 4.0], [1.0, 1.0]]
    assert (1.0 / (slices + 1.0))[1].tolist() == [0.5, pytest.approx(1 / 3)]


def test_output_gradients_and_tangents_may_be_slices() -> None:
    v, x = table(), tc.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    expected = [[0.0, 0.0], [6.0, 16.0], [0.0, 0.0]]
    with tc.GradientTape(persistent=True) as tape:
        y = v * v
    assert tape.gradient(y, v, output_gradients=slices_of_one_row()).tolist() == expected
    assert tape.gradient([y], v, output_gradients=[slices_of_one_row()]).tolist() == expected
    assert tc.vjp(lambda x: x * x, x)[1](slices_of_one_row())[0].tolist() == expected
    assert tc.jvp(lambda x: x * x, (x,), (slices_of_one_row(),))[1].tolist() == expected
    other = tc.IndexedSlices(tc.ones((1, 2)), tc.asarray([0]), (4, 2))
    with pytest.raises(ValueError, match=r"output_gradients has shape \(4, 2\)"):
        tape.gradient(y, v, output_gradients=other)


def test_slices_reach_one_of_several_results() -> None:
    x = tc.Variable([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])
    g = gradient(lambda x: tc.gather(tc.unstack(x)[0], tc.asarray([1, 1])), x)
    assert g.tolist() == [[[0.0, 0.0], [2.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]]


def cubes(v: Any) -> Any:
    return tc.sum(tc.gather(v, tc.asarray([1, 1])) ** 3)


def test_derivatives_of_sparse_gradients() -> None:
    x, ones = tc.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tc.ones((3, 2))
    product = [[0.0, 0.0], [36.0, 48.0], [0.0, 0.0]]  # of the Hessian, diagonal with 2 * 6 x, with ones
    assert isinstance(tc.grad(cubes)(x), tc.IndexedSlices)
    assert tc.hvp(cubes, (x,), (ones,))[0].tolist() == product
    assert tc.jvp(tc.grad(cubes), (x,), (ones,))[1].tolist() == product
    assert tc.asarray(tc.vjp(tc.grad(cubes), x)[1](ones)[0]).tolist() == product
    assert tc.asarray(tc.grad(lambda x: tc.sum(tc.grad(cubes)(x) * 1.0))(x)).tolist() == product
    by_rows = [tc.sum(whole, axis=(2, 3)).tolist() for whole in (tc.hessian(cubes)(x), tc.jacrev(tc.grad(cubes))(x))]
    assert by_rows == [product, product]
    assert tc.vmap(tc.grad(cubes))(tc.stack([x, x]))[1].tolist() == [[0.0, 0.0], [54.0, 96.0], [0.0, 0.0]]


def test_a_persistent_tape_gives_slices_again_and_records_them() -> None:
    v = table()
    with tc.GradientTape() as outer:
        with tc.GradientTape(persistent=True) as inner:
            y = cubes(v)
        first, second = inner.gradient(y, v), inner.gradient(y, v)
        merged = tc.sum(first.merged().values ** 2)
    assert first.densify().tolist() == second.densify().tolist() == [[0.0, 0.0], [54.0, 96.0], [0.0, 0.0]]
    # The square of 6 x**2 has the derivative 144 x**3.
    assert outer.gradient(merged, v).densify()[1].tolist() == [144.0 * 27.0, 144.0 * 64.0]


def test_jacobians_of_gathers() -> None:
    v = table()
    with tc.GradientTape(persistent=True) as tape:
        y = tc.gather(v, tc.asarray([1, 1]))
    whole = tape.jacobian(y, v)
    assert whole.shape == (2, 2, 3, 2)
    assert whole[0, 1].tolist() == [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    assert tape.jacobian(y, v, experimental_use_pfor=False).tolist() == whole.tolist()


def test_custom_gradients_receive_arrays_and_may_return_slices() -> None:
    @tc.custom_gradient
    def receiving(x: Any) -> Any:
        return x * 2.0, lambda upstream: upstream * 2.0

    @tc.custom_gradient
    def first_row(x: Any) -> Any:
        return x[0], lambda upstream: tc.IndexedSlices(upstream[None], tc.asarray([0]), x.shape)

    assert gradient(lambda v: tc.gather(receiving(v), tc.asarray([1, 1])), table()).tolist() == [
        [0.0, 0.0],
        [4.0, 4.0],
        [0.0, 0.0],
    ]
    assert gradient(first_row, table()).tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_variable_takes_slices_of_its_dtype_and_backend_only() -> None:
    v = table()
    with pytest.raises(TypeError, match=r"assign_add: cannot take slices of dtype float64"):
        v.assign_add(tc.IndexedSlices(tc.ones((1, 2), dtype="float64"), tc.asarray([0]), (3, 2)))
    assert v.dtype is tc.float32


def test_slices_can_be_watched_and_are_sources_of_a_gradient() -> None:
    slices = tc.IndexedSlices(tc.asarray([[1.0, 2.0], [3.0, 4.0]]), tc.asarray([0, 2]), (3, 2))
    v = tc.Variable([1.0])
    with tc.GradientTape(persistent=True) as tape:
        tape.watch({"rows": slices})
        y = tc.sum(slices * slices) + tc.sum(v)
    found = tape.gradient(y, {"rows": slices, "v": v})
    assert isinstance(found["rows"], tc.IndexedSlices)
    assert found["rows"].values.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert found["rows"].indices.tolist() == [0, 2]
    assert found["v"].tolist() == [1.0]
    assert tape.gradient(tc.sum(v), slices) is None
    assert tape.gradient(tc.sum(v), slices, unconnected_gradients="zero").values.tolist() == [[0.0, 0.0]] * 2
    with pytest.raises(TypeError, match="use its values"):
        tape.jacobian(y, slices)
    assert tape.jacobian(y, slices.values).tolist() == [[2.0, 4.0], [6.0, 8.0]]
