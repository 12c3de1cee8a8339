"""TensorFlow's semantics of tapes and custom gradients, from an independent test suite."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


class Methods:
    @tf.custom_gradient
    def bound(self, x):
        return x * x, lambda upstream: upstream * 10.0

    @staticmethod
    @tf.custom_gradient
    def static(x):
        return x * x, lambda upstream: upstream * 10.0

    @classmethod
    @tf.custom_gradient
    def of_class(cls, x, y):
        return x * y, lambda upstream: (upstream * 10.0, upstream * 20.0)


class Inherited(Methods):
    def bound(self, x):
        return super().bound(x) * 1.0


def test_a_custom_gradient_may_be_a_method_of_a_class():
    x = tf.constant(3.0)
    methods = (
        Methods().bound,
        Inherited().bound,
        lambda x: Methods.bound(Methods(), x),
        Methods.static,
        Methods().static,
        lambda x: Methods.of_class(x, tf.constant(2.0)),
        lambda x: Inherited().of_class(x, tf.constant(2.0)),
    )
    for f in methods:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert float(tape.gradient(y, x)) == 10.0


def test_a_tape_that_never_recorded_has_no_gradient():
    x = tf.constant(3.0)
    for tape in (tf.GradientTape(), tf.GradientTape(persistent=True)):
        for call in (tape.gradient, tape.jacobian):
            with pytest.raises(RuntimeError, match="recorded nothing"):
                call(x, x)


@pytest.mark.parametrize("name", ["leaky_relu", "relu", "relu6", "elu", "selu"])
def test_the_second_derivative_is_zero_where_the_backward_pass_used_the_source(name):
    for f in (getattr(tf.nn, name), tf.abs, tf.sign, lambda x: tf.clip_by_value(x, -1.0, 3.0)):
        x = tf.constant(2.0)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = f(x)
            first = inner.gradient(y, x)
        second = outer.gradient(first, x)
        assert second is not None
        assert float(second) == 0.0


def test_the_second_derivative_is_none_where_the_backward_pass_did_not():
    x = tf.constant(2.0)
    for f in (lambda x: 3.0 * x, lambda x: x + x, tf.reduce_sum):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = f(x)
            first = inner.gradient(y, x)
        assert outer.gradient(first, x) is None


def test_clipping_keeps_slices():
    slices = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([0, 2]), tf.constant([3, 2]))
    clipped = tf.clip_by_value(slices, 0.0, 2.5)
    assert isinstance(clipped, tf.IndexedSlices)
    np.testing.assert_array_equal(clipped.values.numpy(), [[1.0, 2.0], [2.5, 2.5]])
    np.testing.assert_array_equal(clipped.indices.numpy(), [0, 2])
    assert isinstance(tf.clip_by_norm(slices, 1.0), tf.IndexedSlices)
    assert isinstance(tf.clip_by_global_norm([slices], 1.0)[0][0], tf.IndexedSlices)


def test_weights_of_another_precision_than_their_target_are_an_error_that_names_both():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    with pytest.raises(TypeError, match="output_gradients has dtype float64, its target has dtype float32"):
        tape.gradient(y, x, output_gradients=np.ones(2))


def _sine_by_numpy(backward):
    @tf.custom_gradient
    def sine(x):
        return tf.sin(x), lambda g: backward(x, g)

    return sine


@pytest.mark.parametrize(
    "backward",
    [
        lambda x, g: tf.constant(np.cos(x.numpy()) * g.numpy()),
        lambda x, g: tf.numpy_function(lambda x, g: np.cos(x) * g, [x, g], tf.float32),
        lambda x, g: tf.py_function(lambda x, g: np.cos(x.numpy()) * g.numpy(), [x, g], tf.float32),
    ],
    ids=["numpy()", "numpy_function", "py_function"],
)
def test_a_jacobian_through_a_backward_pass_in_numpy_goes_row_by_row(backward):
    sine = _sine_by_numpy(backward)
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = sine(x)
    by_row = tape.jacobian(y, x, experimental_use_pfor=False).numpy()
    np.testing.assert_allclose(by_row.reshape(4, 4), np.diag(np.cos([1.0, 2.0, 3.0, 4.0])), rtol=1e-6)
    np.testing.assert_array_equal(tape.jacobian(y, x).numpy(), by_row)
    np.testing.assert_array_equal(tape.batch_jacobian(y, x).numpy(), np.stack([by_row[0, :, 0], by_row[1, :, 1]]))


READINGS = {
    "value": lambda v: v.value(),
    "read_value": lambda v: v.read_value(),
    "convert_to_tensor": tf.convert_to_tensor,
}


@pytest.mark.parametrize("read", READINGS.values(), ids=READINGS)
def test_each_reading_of_a_variable_is_a_tensor_of_its_own(read):
    v = tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        a, b = read(v), read(v)
        y = a * a * b
    assert [g.numpy() for g in tape.gradient(y, [a, b, v])] == [18.0, 9.0, 27.0]
    assert tape.gradient(a, v).numpy() == 1.0
    assert tape.gradient(a, b) is None
    assert tape.jacobian(y, a).numpy() == 18.0


def test_a_gather_from_a_reading_has_slices_for_the_variable():
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.gather(table.value(), [1, 1])) + tf.reduce_sum(tf.gather(table, [0]))
    found = tape.gradient(y, table)
    assert isinstance(found, tf.IndexedSlices)
    np.testing.assert_array_equal(tf.convert_to_tensor(found), [[1.0, 1.0], [2.0, 2.0]])


def test_a_gather_from_a_reading_beside_other_uses_adds_up():
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        read = table.value()
        y = tf.reduce_sum(tf.gather(read, [1, 1])) + tf.reduce_sum(read**2) + tf.reduce_sum(table)
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(y, table)), [[3.0, 5.0], [9.0, 11.0]])


# -- IndexedSlices


@pytest.mark.parametrize("read", [lambda s: s.values, tf.convert_to_tensor], ids=["values", "convert_to_tensor"])
def test_slices_can_be_watched_and_have_a_gradient_of_their_kind(read):
    slices = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([0, 2]), tf.constant([3, 2]))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(slices)
        y = tf.reduce_sum(read(slices) ** 2)
    found, values = tape.gradient(y, [slices, slices.values])
    assert isinstance(found, tf.IndexedSlices)
    np.testing.assert_array_equal(found.values, [[2.0, 4.0], [6.0, 8.0]])
    np.testing.assert_array_equal(found.indices, [0, 2])
    np.testing.assert_array_equal(values, found.values)
    assert tape.gradient(tf.constant(1.0), slices) is None


def _noting(seen):
    @tf.custom_gradient
    def identity(x):
        def grad(upstream):
            seen.append(upstream)
            return upstream

        return tf.identity(x), grad

    return identity


def test_a_custom_gradient_gets_the_slices_of_a_gather_and_may_return_them():
    seen = []
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.gather(_noting(seen)(v), [1, 1]))
    found = tape.gradient(y, v)
    assert isinstance(seen[0], tf.IndexedSlices)
    np.testing.assert_array_equal(seen[0].indices, [1, 1])
    assert isinstance(found, tf.IndexedSlices)
    np.testing.assert_array_equal(tf.convert_to_tensor(found), [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]])


def test_a_custom_gradient_gets_a_dense_gradient_where_there_is_another_use():
    seen = []
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.GradientTape() as tape:
        h = _noting(seen)(v * 1.0)
        y = tf.reduce_sum(tf.gather(h, [1, 1])) + tf.reduce_sum(h)
    np.testing.assert_array_equal(tape.gradient(y, v), [[1.0, 1.0], [3.0, 3.0], [1.0, 1.0]])
    assert isinstance(seen[0], tf.Tensor)


def test_slices_through_a_custom_gradient_in_second_derivatives_jacobians_and_functions():
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    def loss():
        return tf.reduce_sum(tf.gather(_noting([])(v * v), [1, 1]) ** 2)  # 2 v^4 in row 1

    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            y = loss()
        first = inner.gradient(y, v)
        rows = tf.gather(_noting([])(v), [1, 1])
    np.testing.assert_array_equal(first, [[0.0, 0.0], [8 * 27.0, 8 * 64.0]])
    np.testing.assert_array_equal(outer.gradient(first, v), [[0.0, 0.0], [24 * 9.0, 24 * 16.0]])
    jacobian = outer.jacobian(rows, v).numpy()
    np.testing.assert_array_equal(jacobian.sum(axis=(0, 1)), [[0.0, 0.0], [2.0, 2.0]])
    compiled = tf.function(loss)
    for _ in range(3):
        with tf.GradientTape() as tape:
            y = compiled()
        np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(y, v)), first)


def test_clipping_by_norm_keeps_slices():
    slices = tf.IndexedSlices(tf.constant([[3.0, 0.0], [0.0, 4.0]]), tf.constant([0, 2]), tf.constant([3, 2]))
    clipped = tf.clip_by_norm(slices, 1.0)
    (together, none), norm = tf.clip_by_global_norm([slices, None], 1.0)
    assert none is None
    assert norm.numpy() == 5.0
    for found in (clipped, together):
        assert isinstance(found, tf.IndexedSlices)
        np.testing.assert_allclose(found.values, [[0.6, 0.0], [0.0, 0.8]], rtol=1e-6)


@pytest.mark.parametrize(
    "made", [tf.GradientTape, lambda: tf.autodiff.ForwardAccumulator(tf.constant(2.0), tf.constant(1.0))]
)
def test_a_block_whose_exit_is_lost_records_no_longer(made: Callable[[], Any]) -> None:
    block = made()
    leave = block.__exit__  # as the with statement holds it
    block.__enter__()
    del leave
    with pytest.raises(RuntimeError):
        block.__exit__(None, None, None)


def test_forward_mode_through_a_backward_pass_in_numpy_is_its_transpose():
    @tf.custom_gradient
    def square(x):
        a = x.numpy()
        return tf.constant(a * a), lambda upstream: tf.constant(2 * a * upstream.numpy())

    x = tf.constant([1.0, 2.0, 3.0])
    with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 1.0, 10.0])) as accumulator:
        y = square(x)
    assert accumulator.jvp(y).numpy().tolist() == [2.0, 4.0, 60.0]
