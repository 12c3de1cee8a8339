"""Indexing and updates: NumPy's results, no new program for another number, errors for what is out of bounds."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from tape_jax import backend as backend_module
from tape_jax import indexing

_X = np.arange(60.0).reshape(3, 4, 5)
_KEYS: list[Any] = [
    1, -1, (1, 2), (0, ..., -2), slice(1, 3), slice(-2, None), slice(3, 1), slice(None, None, 2), slice(None, None, -1),
    (slice(0, 2), 1, None), (None, ..., slice(1, 4)), (..., None), (), ..., (1, slice(None), slice(2, 100)),
    np.asarray([2, 0, 0]), (np.asarray([1, -1]), slice(1, 3)), (slice(None), np.asarray([[0, 1], [3, 3]])),
    (0, slice(None), np.asarray([1, 2])), np.asarray([True, False, True]), _X > 20.0, (1, _X[1] > 30.0),
    (slice(None), np.asarray([True, False, True, False]), 2), np.zeros(0, np.int64),
]  # fmt: skip


def _on_jax(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple([_on_jax(part) for part in key])
    return jnp.asarray(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("key", _KEYS, ids=range(len(_KEYS)))
def test_reading_and_writing_is_numpys(key: Any) -> None:
    x, own = jnp.asarray(_X), _on_jax(key)
    expected = _X[key]
    np.testing.assert_array_equal(indexing.getitem(x, own), expected)
    values = np.arange(float(expected.size)).reshape(expected.shape)
    for given in (values, 2.5, values[:1] if expected.ndim and expected.shape[0] else 1.0):
        written = _X.copy()
        written[key] = given
        np.testing.assert_array_equal(indexing.setitem(x, jnp.asarray(given), own), written)
        np.testing.assert_array_equal(indexing.setitem(x, jnp.asarray(given)[None], own), written)
    added = _X.copy()
    np.add.at(added, key, values)
    np.testing.assert_array_equal(indexing.KERNELS["scatter_add"](x, jnp.asarray(values), own), added)
    scattered = np.zeros_like(_X)
    np.add.at(scattered, key, values)
    np.testing.assert_array_equal(indexing.scatter(jnp.asarray(values), own, _X.shape), scattered)
    assert (x == _X).all()


def test_another_number_or_window_compiles_nothing() -> None:
    x = tc.asarray(np.arange(1000.0), backend="jax")
    small = tc.asarray(np.arange(5.0), backend="jax")

    def pass_over(start: int) -> None:
        y = x[start] + x[start : start + 5][0]
        tc.at(x)[start].set(y)
        tc.at(x)[start : start + 5].set(small)

    pass_over(0)
    with jax.log_compiles(), pytest.MonkeyPatch.context() as patch:
        compiled = []
        patch.setattr("logging.Logger.warning", lambda self, text, *args: compiled.append(text % args))
        for start in range(1, 40):
            pass_over(start)
    assert not [text for text in compiled if "compil" in text.lower()]


@pytest.mark.parametrize("index", [5, -6, [0, 7], slice(0, 1)])
def test_an_index_out_of_bounds_is_an_error_eagerly(index: Any) -> None:
    x = tc.ones(5, backend="jax")
    if isinstance(index, slice):
        assert x[index].shape == (1,)
        return
    for call in (
        lambda: x[index],
        lambda: tc.at(x)[index].add(1.0),
        lambda: tc.take(x, tc.asarray(index, backend="jax")),
    ):
        with pytest.raises(IndexError):
            call()


def test_inside_jit_reading_beyond_the_end_gives_the_last_and_writing_is_dropped() -> None:
    @jax.jit
    def f(x: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        t, index = tc.asarray(x), tc.asarray(k)
        return t[index].array, tc.at(t)[index].add(1.0).array

    read, written = f(jnp.arange(3.0), jnp.asarray([7]))
    assert read.tolist() == [2.0]
    assert written.tolist() == [0.0, 1.0, 2.0]


def test_of_several_values_for_one_element_the_last_stays() -> None:
    n = 10_000
    rows = np.random.default_rng(0).integers(0, 50, n)
    expected = np.zeros(50)
    expected[rows] = np.arange(float(n))
    found = tc.at(tc.zeros(50, dtype="float64", backend="jax"))[rows].set(np.arange(float(n)))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_masks_work_inside_jit_where_shapes_do_not_depend_on_them() -> None:
    def f(x: jax.Array, mask: jax.Array) -> jax.Array:
        return tc.at(tc.asarray(x))[tc.asarray(mask)].set(0.5).array

    x, mask = jnp.arange(4.0), jnp.asarray([True, False, True, False])
    assert jax.jit(f)(x, mask).tolist() == [0.5, 1.0, 0.5, 3.0]
    with pytest.raises(ValueError, match="3 values do not fit the 2"):
        tc.at(tc.asarray(x))[tc.asarray(mask)].set(jnp.ones(3))


@pytest.mark.parametrize("index", [3, 7, -4])
def test_what_is_written_out_of_range_inside_jit_is_dropped(index: int) -> None:
    x, places = jnp.arange(3.0), jnp.asarray([1, index])
    for how in ("set", "add", "multiply", "max"):
        update = jax.jit(lambda x, i, how=how: getattr(tc.at(tc.asarray(x))[tc.asarray(i)], how)(9.0).array)
        assert update(x, places).tolist() == [0.0, 9.0 if how in ("set", "max", "multiply") else 10.0, 2.0]
    rows = jax.jit(lambda x, i: tc.at(tc.asarray(x))[tc.asarray(i), 0].set(9.0).array)
    assert rows(x[:, None], places).tolist() == [[0.0], [9.0], [2.0]]


def test_updates_of_rows_and_embeddings_have_their_gradients() -> None:
    table = tc.Variable(np.ones((10, 3)), backend="jax")
    with tc.GradientTape() as tape:
        y = tc.sum(tc.gather(table, tc.asarray([1, 1, 4], backend="jax")) * 2.0)
    gradient = tape.gradient(y, table)
    dense = tc.asarray(gradient).numpy()
    assert dense[:, 0].tolist() == [0, 4, 0, 0, 2, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("n", [1, 64, 65])
def test_each_index_of_short_and_long_arrays_is_compared_with_the_bounds(n: int) -> None:
    x = tc.asarray(_X[0], backend="jax")
    for wrong in (4, -5):
        indices = np.zeros(n, np.int64)
        indices[-1] = wrong
        with pytest.raises(IndexError, match="out of bounds for axis 0 of length 4"):
            tc.take(x, tc.asarray(indices, backend="jax"), axis=0)


@pytest.mark.parametrize(
    ("shape", "key"),
    [
        ((6, 5), (slice(None), slice(None, None, 2))),
        ((6, 5), (slice(None, None, -1),)),
        ((6, 5), (1, slice(4, None, -2))),
        ((6, 5), (..., slice(1, 4, 3))),
        ((6, 5), (slice(None, None, 2), None, -1)),
        ((7,), (slice(5, 1, 2),)),
        ((0, 3), (slice(None, None, 2),)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_the_gradient_of_slices_with_a_step_is_numpys_assignment_to_zeros(shape, key, dtype):
    expected = np.zeros(shape, dtype)
    values = np.arange(1, expected[key].size + 1).astype(dtype).reshape(expected[key].shape)
    expected[key] = values
    found = indexing.scatter(jnp.asarray(values), key, shape)
    assert found.dtype == dtype
    assert np.array_equal(found, expected)


def test_ids_of_segments_are_looked_at_except_inside_a_function_of_jax() -> None:
    def sums(x: jax.Array, ids: jax.Array) -> jax.Array:
        return tc.segment_sum(tc.asarray(x), tc.asarray(ids), 3).array

    with tc.use_backend("jax"):
        x, ids = jnp.arange(6.0), jnp.asarray([0, 1, 1, 2, 5, 0])
        assert jax.jit(sums)(x, ids).tolist() == [5.0, 3.0, 3.0]  # what is out of range is dropped
        with pytest.raises(ValueError, match=r"segment_sum: segment_ids must be in \[0, 3\), got 0 to 5"):
            sums(x, ids)
        compiled = tc.function(lambda x, ids: tc.segment_sum(x, ids, 3), compile="xla")
        assert compiled(tc.asarray(x), tc.asarray(ids) % 3).tolist() == [5.0, 3.0, 7.0]
        with pytest.raises(ValueError, match=r"segment_sum: segment_ids must be in \[0, 3\), got 0 to 5"):
            compiled(tc.asarray(x), tc.asarray(ids))


class TestIndicesThatWereSeenBefore:
    """An array of indices is looked at once; what is known of one that is gone is never taken for a new one's."""

    @pytest.mark.parametrize("size", [3, 100], ids=["by Python", "by NumPy"])
    def test_a_new_array_in_the_place_of_one_that_is_gone_is_looked_at(self, size: int) -> None:
        x = tc.asarray(jnp.arange(4.0))
        refused = 0
        for k in range(60):  # the memory, and so the `id`, of one is that of another before long
            inside = jnp.full((size,), k % 4)
            for _ in range(2):
                assert tc.take(x, tc.asarray(inside))[0] == k % 4
            del inside
            outside = tc.asarray(jnp.full((size,), 4 + k))
            for _ in range(2):
                with pytest.raises(IndexError):
                    tc.take(x, outside)
                refused += 1
            del outside
        assert refused == 120

    def test_what_is_known_goes_with_the_array(self) -> None:
        x = tc.asarray(jnp.arange(4.0))
        before = len(backend_module._EXTREMES)
        for k in range(20):
            tc.take(x, tc.asarray(jnp.full((100,), k % 4)))
        gc.collect()
        assert len(backend_module._EXTREMES) <= before + 1
