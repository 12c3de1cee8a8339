"""Indexing of all kinds against NumPy, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import gradient

X = np.arange(24.0, dtype="float32").reshape(2, 3, 4)
I = np.asarray  # noqa: E741

KEYS: dict[str, Any] = {
    "integer": 1,
    "negative": -1,
    "integers": (1, 2, 3),
    "slice": slice(1, None),
    "step": (slice(None), slice(None, None, 2)),
    "backwards": (..., slice(None, None, -1)),
    "empty slice": slice(5, 9),
    "ellipsis": (0, ..., 1),
    "everything": ...,
    "new axis": (None, slice(None), None, 0),
    "mask": X > 10,
    "mask of rows": I([True, False]),
    "mask of a middle axis": (slice(None), I([True, False, True])),
    "no element": np.zeros((2, 3, 4), bool),
    "integer array": I([1, 0, 1, 1]),
    "integer arrays": (I([0, 1, 0]), I([2, 0, 2]), I([3, 3, 3])),
    "broadcast arrays": (I([[0], [1]]), I([0, 2, 2])),
    "array and slice": (slice(None), I([0, 0, 2]), slice(1, 3)),
    "array and integer": (1, I([0, 0, 2])),
    "negative array": (..., I([-1, -1, 0])),
    "empty array": I([], "int64"),
    "0-d array": I(1),
    "list": [1, 0, 1],
}


@pytest.mark.parametrize("name", KEYS)
def test_values_gradients_and_second_order(name: str) -> None:
    key = KEYS[name]
    x, expected = tc.asarray(X), X[key]
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = x[key]
            z = tc.sum(y * y * y)
        g = inner.gradient(z, x)
    assert (y.shape, y.dtype) == (expected.shape, tc.float32)
    assert np.array_equal(y.numpy(), expected)
    first, second = np.zeros_like(X), np.zeros_like(X)
    np.add.at(first, key, 3 * expected**2)
    np.add.at(second, key, 6 * expected)
    np.testing.assert_allclose(g.numpy(), first, rtol=1e-6)
    np.testing.assert_allclose(outer.gradient(g, x).numpy(), second, rtol=1e-6)


@pytest.mark.parametrize("name", ["mask", "integer array", "broadcast arrays", "array and slice", "0-d array"])
def test_keys_may_be_tensors(name: str) -> None:
    key = KEYS[name]

    def as_tensor(part: Any) -> Any:
        return tc.asarray(part) if isinstance(part, np.ndarray) else part

    of_tensors = tuple(map(as_tensor, key)) if isinstance(key, tuple) else as_tensor(key)
    v = tc.Variable(X)
    with tc.GradientTape() as tape:
        y = v[of_tensors]
    assert np.array_equal(y.numpy(), X[key])
    expected = np.zeros_like(X)
    np.add.at(expected, key, 1.0)
    assert np.array_equal(tape.gradient(y, v).numpy(), expected)


def test_a_mask_computed_from_the_value() -> None:
    v = tc.Variable([1.0, -2.0, 3.0])
    with tc.GradientTape() as tape:
        y = tc.sum(v[v > 0] ** 2)
    assert tape.gradient(y, v).tolist() == [2.0, 0.0, 6.0]


def test_iteration_and_unpacking_pass_gradients() -> None:
    v = tc.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tc.GradientTape() as tape:
        (a, b), row = v
        y = a * b + tc.sum(row)
    assert tape.gradient(y, v).tolist() == [[2.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("key", "error"),
    [(2, IndexError), ((0, 0, 0, 0), IndexError), ("a", IndexError), (1.5, IndexError), (np.asarray([7]), IndexError)],
)
def test_bad_keys_name_the_op_and_the_array(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"getitem\(x: float32\[2, 3, 4\]"):
        tc.asarray(X)[key]


def test_taking_along_axes() -> None:
    v = tc.Variable(X)
    i = np.asarray([[0, 0], [2, 1]])
    order = np.argsort(-X, axis=1)
    for f, expected in [
        (lambda v: tc.take(v, tc.asarray([3, 3, 0]), axis=2), X.take([3, 3, 0], 2)),
        (lambda v: tc.take_along_axis(v, tc.asarray(order), axis=1), np.take_along_axis(X, order, 1)),
        (lambda v: tc.gather(v[0], tc.asarray(i)), X[0][i]),
    ]:
        with tc.GradientTape() as tape:
            y = f(v)
        assert np.array_equal(y.numpy(), expected)
        assert tape.gradient(y, v).numpy().sum() == y.size
    with pytest.raises(IndexError, match="take"):
        tc.take(v, tc.asarray([9]), axis=0)


def test_a_view_does_not_let_an_update_through() -> None:
    v = tc.Variable(X)
    with tc.GradientTape() as tape:
        part = v[0]
        y = part * part
    v.assign_add(np.ones_like(X))
    assert np.array_equal(part.numpy(), X[0])
    assert np.array_equal(tape.gradient(y, v).numpy()[0], 2 * X[0])


@pytest.mark.parametrize(("shape", "key"), [((1, 3), 0), ((1, 1, 3), (0, 0)), ((1, 3), (0, [2, 0, 1]))])
def test_values_with_leading_axes_of_length_1_have_derivatives_and_batches(shape: tuple[int, ...], key: Any) -> None:
    """An assignment drops them: `x[0] = values` where the values have the shape of `x`."""

    def f(values: Any) -> Any:
        x = tc.zeros(values.shape, dtype=tc.float64)
        x[key] = values
        return tc.sum(x * x * x)

    values = tc.reshape(tc.asarray([0.5, -1.5, 2.0], dtype=tc.float64), shape)
    batch = tc.stack([values, values * 2.0])
    x, xs = values.numpy(), batch.numpy()
    for transformed in (lambda g: g, tc.function):
        np.testing.assert_allclose(transformed(tc.grad(f))(values).numpy(), 3 * x**2)
        np.testing.assert_allclose(transformed(tc.vmap(f))(batch).numpy(), np.sum(x**3) * np.array([1, 8]))
        np.testing.assert_allclose(transformed(tc.vmap(tc.grad(f)))(batch).numpy(), 3 * xs**2)
        np.testing.assert_allclose(transformed(tc.grad(lambda v: tc.sum(tc.grad(f)(v))))(values).numpy(), 6 * x)


def test_take_along_axis_of_an_array_that_broadcasts_adds_up_in_it() -> None:
    x = tc.asarray([[1.0, 2.0, 3.0]], backend="numpy")
    indices = tc.asarray([[0, 2], [0, 1]], backend="numpy")
    assert tc.take_along_axis(x, indices, axis=1).tolist() == [[1.0, 3.0], [1.0, 2.0]]
    assert gradient(lambda x: tc.take_along_axis(x, indices, axis=1), x).tolist() == [[2.0, 1.0, 1.0]]


@pytest.mark.each_backend
def test_an_array_without_dimensions_has_nothing_to_take() -> None:
    x, indices = tc.asarray(3.0), tc.asarray([0])
    for call in (lambda x: tc.take(x, indices, axis=0), tc.function(lambda x: tc.take(x, indices, axis=-1))):
        with pytest.raises(IndexError, match=r"take\(x: float32\[\].*axis.*(0 dimensions|dimension 0)"):
            call(x)
    with pytest.raises(ValueError, match="axis must be given for an array of 0 dimensions"):
        tc.take(x, indices)
    with pytest.raises(ValueError, match="axis must be given for an array of 2 dimensions"):
        tc.take(tc.ones((2, 2)), indices)
    with pytest.raises(IndexError, match="gather"):
        tc.gather(x, indices)


@pytest.mark.each_backend
def test_a_tuple_inside_a_key_is_an_array_of_indices() -> None:
    x = tc.reshape(tc.arange(6.0), (2, 3))
    assert x[:, (0, 2)].tolist() == [[0.0, 2.0], [3.0, 5.0]]
    assert tc.vmap(lambda row: row[(2, 0),])(x).tolist() == [[2.0, 0.0], [5.0, 3.0]]
    assert tc.sum(tc.jacrev(lambda x: x[:, (0, 2)])(x), axis=(0, 1)).tolist() == [[1.0, 0.0, 1.0]] * 2
