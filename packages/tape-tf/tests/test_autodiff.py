"""ForwardAccumulator, custom_gradient, recompute_grad, stop_gradient, grad_pass_through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_tf as tf
from support import assert_close

pytestmark = pytest.mark.each_backend


# -- forward mode


def test_jvp() -> None:
    x, v = tf.constant([1.0, 2.0]), tf.Variable(3.0)
    with tf.autodiff.ForwardAccumulator([x, v], [tf.constant([1.0, 0.0]), tf.constant(1.0)]) as acc:
        y = x * v
        z = tf.constant(5.0) * 2.0
    assert_close(acc.jvp(y), [4, 2])
    assert_close(acc.jvp(x), [1, 0])
    assert acc.jvp(z) is None
    assert_close(acc.jvp(z, unconnected_gradients=tf.UnconnectedGradients.ZERO), 0)
    found = acc.jvp({"a": y, "b": [z]})
    assert found["b"] == [None]
    assert acc.jvp(x * v) is None  # outside


def test_forward_over_reverse_and_forward() -> None:
    x, direction = tf.constant([1.0, 2.0]), tf.constant([1.0, 0.0])
    with tf.autodiff.ForwardAccumulator(x, direction) as acc:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(x**3)
        gradient = tape.gradient(y, x)
    assert_close(acc.jvp(gradient), [6, 0])
    with tf.autodiff.ForwardAccumulator(x, direction) as outer:
        with tf.autodiff.ForwardAccumulator(x, direction) as inner:
            y = x**3
        first = inner.jvp(y)
    assert_close(outer.jvp(first), [6, 0])


@pytest.mark.parametrize(
    ("primals", "tangents", "message"),
    [
        (lambda x: x, lambda x: [x, x], "shape|structure"),
        (lambda x: [x, x], lambda x: [x, x], "given twice"),
        (lambda x: [x], lambda x: [x, x], "structure"),
        (lambda x: x, lambda x: tf.ones(3), "shape"),
        (lambda x: x, lambda x: tf.cast(x, tf.float64), "was expected to be a float tensor"),
    ],
    ids=["list", "twice", "structure", "shape", "dtype"],
)
def test_tangents_that_do_not_fit(primals: Any, tangents: Any, message: str) -> None:
    x = tf.constant([1.0, 2.0])
    with pytest.raises(ValueError, match=message):
        tf.autodiff.ForwardAccumulator(primals(x), tangents(x))


def test_entering_twice() -> None:
    x = tf.constant(1.0)
    with (
        tf.autodiff.ForwardAccumulator(x, x) as acc,
        pytest.raises(ValueError, match=r"Accumulator is already recording."),
    ):
        acc.__enter__()
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients: 'bad'"):
        acc.jvp(x, unconnected_gradients="bad")


# -- custom gradients


def test_custom_gradient() -> None:
    @tf.custom_gradient
    def log1pexp(x: Any) -> Any:
        e = tf.exp(x)

        def grad(upstream: Any) -> Any:
            assert isinstance(upstream, tf.Tensor)
            return upstream * (1 - 1 / (1 + e))

        return tf.math.log(1 + e), grad

    x = tf.constant(10.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = log1pexp(x)
        g = tape.gradient(y, x)
    assert_close(g, 1 / (1 + np.exp(-10)))
    assert_close(outer.gradient(g, x), np.exp(-10) / (1 + np.exp(-10)) ** 2)
    assert log1pexp.__name__ == "log1pexp"


def test_several_arguments_and_results() -> None:
    @tf.custom_gradient
    def f(a: Any, b: Any, *, scale: float = 1.0) -> Any:
        return (a * 2, [b * 3]), lambda u, w: (u * 10.0 * scale, w * 100.0)

    a, b = tf.constant([1.0, 2.0]), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        first, (second,) = f(a, b, scale=2.0)
    by_a, by_b = tape.gradient(first, [a, b])
    assert_close(by_a, [20, 20])
    assert_close(by_b, 0)
    assert_close(second, 9)


def test_structures_methods_and_results_that_are_arrays() -> None:
    class Scaled:
        factor = 4.0

        @tf.custom_gradient
        def __call__(self, x: Any) -> Any:
            return np.float32(3.0), lambda u: (None, u * self.factor)

    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = Scaled.__call__(Scaled(), x)
    assert_close(y, 3)
    assert_close(tape.gradient(y, x), 4)

    @tf.custom_gradient()
    def g(pair: Any) -> Any:
        return pair["a"] * pair["b"], lambda u: {"a": u, "b": -u}

    a, b = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        y = g({"a": a, "b": b})
    by_a, by_b = tape.gradient(y, [a, b])
    assert_close(by_a, 1)
    assert_close(by_b, -1)


def test_variables_that_are_no_arguments() -> None:
    v = tf.Variable(3.0, name="v")

    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        def grad(u: Any, variables: Any = None) -> Any:
            assert variables[0] is v
            return u * v, [tf.reduce_sum(u * x) * 10.0]

        return x * v, grad

    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = scaled(x)
    by_x, by_v = tape.gradient(y, [x, v])
    assert_close(by_x, [3, 3])
    assert_close(by_v, 30)

    @tf.custom_gradient
    def wrong(x: Any) -> Any:
        return x * v, lambda u: u

    with pytest.raises(TypeError, match="variables"):
        wrong(x)

    @tf.custom_gradient
    def short(x: Any) -> Any:
        return x * v, lambda u, variables=None: (u, [])

    with tf.GradientTape() as tape:
        y = short(x)
    with pytest.raises(ValueError, match=r"Must return gradient for each variable from @custom_gradient grad_fn."):
        tape.gradient(y, v)


def test_the_number_of_gradients() -> None:
    @tf.custom_gradient
    def f(a: Any, b: Any) -> Any:
        return a * b, lambda u: u

    a, b = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        y = f(a, b)
    with pytest.raises(ValueError, match=r"expected to return 2 gradients, but returned 1 instead."):
        tape.gradient(y, a)
    with pytest.raises(TypeError, match="pair"):
        tf.custom_gradient(lambda x: x)(a)


def test_recompute_grad() -> None:
    calls = []
    v = tf.Variable(2.0)

    @tf.recompute_grad
    def f(x: Any, *, times: float = 1.0) -> Any:
        calls.append(1)
        return tf.sin(x) * v * times

    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x, times=3.0)
    by_x, by_v = tape.gradient(y, [x, v])
    assert_close(by_x, 6 * np.cos(1))
    assert_close(by_v, 3 * np.sin(1))
    assert len(calls) == 2


def test_grad_pass_through() -> None:
    x, v = tf.Variable(1.4), tf.Variable(5.0)
    with tf.GradientTape() as tape:
        y = tf.grad_pass_through(tf.round)(x) * 3.0
    assert_close(y, 3)
    assert_close(tape.gradient(y, x), 3)
    with tf.GradientTape() as tape:
        y = tf.grad_pass_through(lambda x: x * v)(x)
    by_x, by_v = tape.gradient(y, [x, v])
    assert_close(by_x, 1)
    assert by_v is None


def test_stop_gradient() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.stop_gradient(x * x) * x
    assert_close(tape.gradient(y, x), 4)
    with tf.autodiff.ForwardAccumulator(x, x) as acc:
        assert acc.jvp(tf.stop_gradient(x)) is None
    assert isinstance(tf.stop_gradient([1.0]), tf.Tensor)
