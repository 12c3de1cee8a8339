"""GradientTape.jacobian and batch_jacobian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc

X = np.linspace(-1, 1, 3)
ARGUMENTS: list[dict[str, Any]] = [{}, {"parallel_iterations": 2}, {"experimental_use_pfor": False}]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_shape_and_values(arguments: dict[str, Any]) -> None:
    x, w = tc.asarray(X), tc.Variable(np.arange(6.0).reshape(2, 3))
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.tanh(w @ x)
    found = tape.jacobian(y, {"x": x, "w": w}, **arguments)
    slope = 1 - np.tanh(w.numpy() @ X) ** 2
    assert np.allclose(found["x"].numpy(), slope[:, None] * w.numpy())
    assert found["w"].shape == (2, 2, 3)
    assert np.allclose(found["w"].numpy(), slope[:, None, None] * np.eye(2)[:, :, None] * X)
    with pytest.raises(RuntimeError, match="A non-persistent GradientTape can only be used to compute one set"):
        tape.jacobian(y, x)


def test_of_a_scalar_it_is_the_gradient() -> None:
    x = tc.asarray(X)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.sum(x**3)
    assert np.array_equal(tape.jacobian(y, x).numpy(), tape.gradient(y, x).numpy())


def test_cotangents_of_a_structure_with_one_leaf() -> None:
    x = tc.asarray(X)
    y, pull = tc.vjp(lambda x: {"y": [x * 2]}, x)
    assert pull({"y": [tc.ones(3, dtype="float64")]})[0].tolist() == [2.0, 2.0, 2.0]
    assert pull(tc.ones(3, dtype="float64"))[0].tolist() == [2.0, 2.0, 2.0]
    assert y["y"][0].shape == (3,)


def test_of_a_structure_of_targets() -> None:
    x = tc.asarray(X)
    with tc.GradientTape() as tape:
        tape.watch(x)
        targets = [x * 2, {"total": tc.sum(x)}]
    found = tape.jacobian(targets, x)
    assert np.array_equal(found[0].numpy(), 2 * np.eye(3))
    assert found[1]["total"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_unconnected(arguments: dict[str, Any]) -> None:
    x, other = tc.asarray(X), tc.asarray(np.ones((2, 2)))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch([x, other])
        y = x * 2
    assert tape.jacobian(y, [other, x], **arguments)[0] is None
    zeros = tape.jacobian(y, other, unconnected_gradients="zero", **arguments)
    assert zeros.shape == (3, 2, 2)
    assert not zeros.numpy().any()
    with pytest.raises(ValueError, match="jacobian: the target does not depend on the source"):
        tape.jacobian(y, other, unconnected_gradients="error", **arguments)
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients: 'bad'"):
        tape.jacobian(y, other, unconnected_gradients="bad", **arguments)


def test_a_source_that_was_gathered_from() -> None:
    table = tc.Variable(np.ones((4, 2)))
    with tc.GradientTape() as tape:
        y = tc.sum(tc.gather(table, tc.asarray([1, 1, 3])) ** 2, axis=1)
    found = tape.jacobian(y, table)
    assert found.shape == (3, 4, 2)
    assert found[0].tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]


def test_second_order_both_ways() -> None:
    x = tc.asarray(X)
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = tc.exp(x) * tc.roll(x, 1)
        jacobian = inner.jacobian(y, x)
    third = outer.jacobian(jacobian, x)
    assert third.shape == (3, 3, 3)
    step = 1e-6

    def at(values: Any) -> Any:
        given = tc.asarray(values)
        with tc.GradientTape() as tape:
            tape.watch(given)
            y = tc.exp(given) * tc.roll(given, 1)
        return tape.jacobian(y, given).numpy()

    for k in range(3):
        move = step * np.eye(3)[k]
        assert np.allclose(third.numpy()[:, :, k], (at(X + move) - at(X - move)) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_batch_jacobian(arguments: dict[str, Any]) -> None:
    x = tc.asarray(np.arange(6.0).reshape(2, 3) / 5)
    w = tc.asarray(np.arange(12.0).reshape(3, 4) / 7)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.sin(x @ w)
    found = tape.batch_jacobian(y, x, **arguments)
    assert found.shape == (2, 4, 3)
    assert np.allclose(found.numpy(), np.einsum("bibj->bij", tape.jacobian(y, x).numpy()))
    other = tc.asarray(np.ones((2, 5)))
    assert tape.batch_jacobian(y, other, **arguments) is None
    assert tape.batch_jacobian(y, other, unconnected_gradients="zero", **arguments).shape == (2, 4, 5)


def test_batch_jacobian_refuses() -> None:
    x = tc.asarray(np.ones((2, 3)))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.sum(x, axis=1)
        z = tc.concat([x, x])[:3]
    with pytest.raises(ValueError, match=r"Shape \(2,\) must have rank at least 2"):
        tape.batch_jacobian(y, x)
    match = r"Need first dimension of target shape \(\(3, 3\)\) and source shape \(\(2, 3\)\) to match"
    with pytest.raises(ValueError, match=match):
        tape.batch_jacobian(z, x)
    with pytest.raises(TypeError, match="source must be a Tensor or Variable, got 'list'"):
        tape.batch_jacobian(z, [x])
    with pytest.raises(ValueError, match="parallel_iterations must be a positive int"):
        tape.jacobian(z, x, parallel_iterations=0)


def test_a_target_without_elements() -> None:
    x = tc.asarray(X)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x[:0] * 2
    assert tape.jacobian(y, x).shape == (0, 3)


def test_complex_rows_are_gradients() -> None:
    z = tc.asarray(np.asarray([1 + 2j, 0.5 - 1j]))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(z)
        y = z * z[::-1]
        first = y[0]
    assert np.allclose(tape.jacobian(y, z).numpy()[0], tape.gradient(first, z).numpy())


# -- backward passes that compute with NumPy


def _sine_by_numpy(backward):
    @tc.custom_gradient
    def sine(x):
        return tc.sin(x), lambda g: backward(x, g)

    return sine


_BACKWARD_PASSES = {
    "numpy()": lambda x, g: tc.asarray(np.cos(x.numpy()) * g.numpy()),
    "array": lambda x, g: np.cos(x.array) * np.asarray(g.array),
    "tolist": lambda x, g: tc.asarray(np.asarray(g.tolist(), np.float32)) * tc.cos(x),
    "a decision": lambda x, g: g * tc.cos(x) if tc.sum(tc.abs(g)) > 0 else tc.zeros_like(x),
}


@pytest.mark.parametrize("backward", _BACKWARD_PASSES.values(), ids=_BACKWARD_PASSES)
def test_a_jacobian_through_a_backward_pass_that_takes_values_out_goes_row_by_row(backward):
    sine = _sine_by_numpy(backward)
    x = tc.asarray([1.0, 2.0, 3.0])
    expected = np.diag(2 * np.cos(2 * x.numpy()))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = sine(x * 2)
    for given in ({}, {"parallel_iterations": 2}, {"experimental_use_pfor": False}):
        np.testing.assert_allclose(tape.jacobian(y, x, **given).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(tc.jacrev(lambda x: sine(x * 2))(x).numpy(), expected, rtol=1e-6)


def test_a_jacobian_of_examples_through_a_backward_pass_in_numpy_goes_row_by_row():
    sine = _sine_by_numpy(_BACKWARD_PASSES["numpy()"])
    x = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = sine(x) * x[:, ::-1]
    with tc.GradientTape() as other:
        other.watch(x)
        z = tc.sin(x) * x[:, ::-1]
    np.testing.assert_allclose(tape.batch_jacobian(y, x).numpy(), other.batch_jacobian(z, x).numpy(), rtol=1e-6)


def test_a_backward_pass_in_numpy_of_several_results_goes_row_by_row():
    @tc.custom_gradient
    def both(x, y):
        return (x * y, x + y), lambda g, h: (tc.asarray(g.numpy() * y.numpy()) + h, None)

    x, y = tc.asarray([1.0, 2.0]), tc.asarray([3.0, 4.0])
    jacobians = tc.jacrev(both, argnums=0)(x, y)
    np.testing.assert_array_equal(jacobians[0].numpy(), np.diag([3.0, 4.0]))
    np.testing.assert_array_equal(jacobians[1].numpy(), np.eye(2))


def test_a_jacobian_of_jacobians_reaches_a_backward_pass_in_numpy_one_row_of_one_at_a_time():
    @tc.custom_gradient
    def square(x):
        return x * x, lambda g: 2 * x * _scaled(g)

    @tc.custom_gradient
    def _scaled(x):
        return x * 1.0, lambda g: tc.asarray(g.numpy())

    x = tc.asarray([1.0, 2.0])
    found = tc.jacrev(tc.jacrev(square))(x).numpy()
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0] = expected[1, 1, 1] = 2
    np.testing.assert_array_equal(found, expected)


def test_a_backward_pass_that_fails_for_each_row_says_so_as_for_a_gradient():
    def wrong(x, g):
        raise TypeError("the backward pass is wrong")

    with pytest.raises(TypeError, match="the backward pass is wrong"):
        tc.jacrev(_sine_by_numpy(wrong))(tc.asarray([1.0, 2.0]))
