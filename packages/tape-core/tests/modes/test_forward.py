"""ForwardAccumulator: tangents, what they compose with, and what is refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tape_core as tc

X, V = np.linspace(-1, 1, 4), np.asarray([1.0, -2.0, 0.5, 3.0])


def f(x: Any) -> Any:
    return tc.sum(tc.exp(x) * tc.roll(x, 1) ** 2) * tc.tanh(x)


def g(x: Any) -> Any:
    return tc.sum(f(x) ** 2)


@pytest.fixture
def hessian_product() -> Any:
    x = tc.asarray(X)
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = g(x)
        gradient = inner.gradient(y, x)
    return outer.jacobian(gradient, x).numpy() @ V


def test_it_is_the_product_with_the_jacobian() -> None:
    x = tc.asarray(X)
    with tc.ForwardAccumulator(x, tc.asarray(V)) as accumulator:
        y = f(x)
    with tc.GradientTape() as tape:
        tape.watch(x)
        z = f(x)
    assert np.allclose(accumulator.jvp(y).numpy(), tape.jacobian(z, x).numpy() @ V)
    assert accumulator.jvp(x).tolist() == V.tolist()


def test_structures() -> None:
    x, w = tc.asarray(2.0), tc.Variable([1.0, 2.0])
    with tc.ForwardAccumulator({"x": x, "w": w}, {"x": 1.0, "w": tc.asarray([1.0, 0.0])}) as accumulator:
        y = {"a": x * w, "b": (x + 1, tc.asarray(3.0))}
    found = accumulator.jvp(y)
    assert found["a"].tolist() == [3.0, 2.0]
    assert found["b"][0].item() == 1.0
    assert found["b"][1] is None
    assert accumulator.jvp(y["b"][1], unconnected_gradients="zero").item() == 0.0
    with pytest.raises(ValueError, match="does not depend on the primals"):
        accumulator.jvp(y["b"][1], unconnected_gradients="error")
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients"):
        accumulator.jvp(y, unconnected_gradients="maybe")


def test_the_tangent_of_a_variable_stays_when_it_is_assigned_to() -> None:
    w = tc.Variable(2.0)
    with tc.ForwardAccumulator(w, 1.0) as accumulator:
        y = w * w
        w.assign(5.0)
        z = w * w
    assert accumulator.jvp([y, z])[0].item() == 4.0
    assert accumulator.jvp(z).item() == 10.0
    assert accumulator.jvp(w).item() == 1.0


def test_forward_over_reverse(hessian_product: Any) -> None:
    x = tc.asarray(X)
    with tc.ForwardAccumulator(x, tc.asarray(V)) as accumulator:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = g(x)
        gradient = tape.gradient(y, x)
    assert np.allclose(accumulator.jvp(gradient).numpy(), hessian_product)


@pytest.mark.parametrize("outside", [True, False])
def test_reverse_over_forward(outside: bool, hessian_product: Any) -> None:
    x = tc.asarray(X)
    if outside:
        with tc.GradientTape() as tape:
            tape.watch(x)
            with tc.ForwardAccumulator(x, tc.asarray(V)) as accumulator:
                y = g(x)
    else:
        with tc.ForwardAccumulator(x, tc.asarray(V)) as accumulator, tc.GradientTape() as tape:
            tape.watch(x)
            y = g(x)
    assert np.allclose(tape.gradient(accumulator.jvp(y), x).numpy(), hessian_product)


def test_forward_over_forward(hessian_product: Any) -> None:
    x = tc.asarray(X)
    with tc.ForwardAccumulator(x, tc.asarray(V)) as outer, tc.ForwardAccumulator(x, tc.asarray(V)) as inner:
        y = g(x)
    assert np.allclose(outer.jvp(inner.jvp(y)).item(), V @ hessian_product)


def test_what_is_outside_has_no_tangent() -> None:
    x = tc.asarray(2.0)
    accumulator = tc.ForwardAccumulator(x, 1.0)
    before = x * x
    with accumulator:
        y = x * x
    after = y * x
    with accumulator:
        again = y * x
    assert accumulator.jvp(before) is None
    assert accumulator.jvp(after) is None
    assert accumulator.jvp(again).item() == 12.0
    with accumulator:
        assert accumulator.jvp(tc.stop_gradient(x) * 2) is None
        with pytest.raises(ValueError, match="Accumulator is already recording"):
            accumulator.__enter__()


def test_several_results_and_in_place() -> None:
    x = tc.asarray(np.asarray([[2.0, 1.0], [1.0, 3.0]]))
    direction = np.asarray([[1.0, 0.0], [0.0, 0.0]])
    with tc.ForwardAccumulator(x, tc.asarray(direction)) as accumulator:
        values, vectors = tc.linalg.eigh(x)
        y = x * 1
        y[0] = y[1] * 2
    expected = np.asarray([vectors.numpy()[:, k] @ direction @ vectors.numpy()[:, k] for k in range(2)])
    assert np.allclose(accumulator.jvp(values).numpy(), expected)
    assert not accumulator.jvp(y).numpy().any()


def test_no_nan_from_the_branch_not_taken() -> None:
    x = tc.asarray([0.0, 4.0])
    with tc.ForwardAccumulator(x, tc.ones(2)) as accumulator:
        y = tc.where(x > 0, tc.sqrt(x), 0.0)
    assert accumulator.jvp(y).tolist() == [0.0, 0.25]


def test_tangents_live_as_long_as_what_they_belong_to() -> None:
    x = tc.asarray(X)
    with tc.ForwardAccumulator(x, tc.asarray(V)) as accumulator:
        y = tc.sin(x)
        tangent = weakref.ref(accumulator.jvp(y))
        del y
        gc.collect()
        assert tangent() is None
    assert x._slots
    del accumulator
    gc.collect()
    assert not x._slots


def test_mistakes() -> None:
    x = tc.asarray([1.0, 2.0])
    with pytest.raises(ValueError, match=r"tangents has shape \(3,\), its primal has shape \(2,\)"):
        tc.ForwardAccumulator(x, tc.ones(3))
    with pytest.raises(ValueError, match="must have the structure of primals"):
        tc.ForwardAccumulator([x], x)
    with pytest.raises(ValueError, match="given twice"):
        tc.ForwardAccumulator([x, x], [x, x])
    with pytest.raises(TypeError, match="primals must be a Tensor"):
        tc.ForwardAccumulator("x", 1.0)
    with pytest.raises(TypeError, match="tangents has dtype complex64, its primal is real: float32"):
        tc.ForwardAccumulator(x, x * 1j)
    for along in (tc.jvp, tc.hvp):
        with pytest.raises(TypeError, match="has dtype complex64, its primal is real"):
            along(lambda x: tc.sum(x * x), (x,), (x * 1j,))
    with pytest.warns(UserWarning, match="int64 has no derivative"):
        accumulator = tc.ForwardAccumulator(tc.asarray([1, 2]), tc.asarray([1, 1]))
    with accumulator:
        assert accumulator.jvp(tc.asarray(2.0) * 2) is None


def test_it_is_seen_only_where_it_was_entered() -> None:
    import threading

    x = tc.asarray(2.0)
    found: list[Any] = []
    with tc.ForwardAccumulator(x, 1.0) as accumulator:
        thread = threading.Thread(target=lambda: found.append(x * x))
        thread.start()
        thread.join()
    assert accumulator.jvp(found[0]) is None


def test_tangents_may_be_listed_where_primals_are_a_tuple() -> None:
    primals = (tc.Variable([1.0, 2.0]), tc.Variable(3.0))
    with tc.ForwardAccumulator(primals, [tc.ones(2), tc.zeros(())]) as accumulator:
        y = primals[0] * primals[1]
    assert accumulator.jvp(y).tolist() == [3.0, 3.0]
