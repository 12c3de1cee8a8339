"""Optimizers of tf.keras: what they take, and what they say of gradients and variables that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_nn as nn
import tape_tf as tf

optimizers = tf.keras.optimizers
KINDS = ["SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "AdamW", "Adamax", "Nadam", "Ftrl", "Lion"]


def variables() -> tuple[Any, Any]:
    return tf.Variable([1.0, 2.0], name="v"), tf.Variable([[3.0]], name="w")


@pytest.mark.parametrize("kind", KINDS)
def test_each_walks_like_that_of_tape_nn(kind: str) -> None:
    v, w = variables()
    optimizer = getattr(optimizers, kind)(learning_rate=0.1, clipnorm=1.0, weight_decay=0.01)
    other = getattr(nn, kind)(learning_rate=float(np.float32(0.1)), clipnorm=1.0, weight_decay=0.01)
    b = [x.native for x in variables()]
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v**2) + tf.reduce_sum(w**3)
        optimizer.apply_gradients(zip(tape.gradient(loss, [v, w]), [v, w], strict=True))
        other.apply_gradients([(2 * b[0], b[0]), (3 * b[1] ** 2, b[1])])
    np.testing.assert_allclose(v, b[0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(w, b[1].numpy(), rtol=1e-6)
    assert int(optimizer.iterations) == 3
    assert isinstance(optimizers.get(kind), type(optimizer))
    assert isinstance(optimizers.get(kind.lower()), type(optimizer))


def test_the_learning_rate_is_a_variable() -> None:
    v, _ = variables()
    optimizer = optimizers.SGD(0.5)
    assert isinstance(optimizer.learning_rate, tf.Variable)
    assert optimizer.learning_rate.numpy() == 0.5
    optimizer.apply_gradients([(tf.ones(2), v)])
    optimizer.learning_rate.assign(0.25)
    optimizer.apply_gradients([(tf.ones(2), v)])
    optimizer.learning_rate = 1.0
    optimizer.apply_gradients([(tf.ones(2), v)])
    np.testing.assert_array_equal(v, [-0.75, 0.25])
    assert float(optimizer.lr) == 1.0


def test_schedules() -> None:
    v, _ = variables()
    optimizer = optimizers.SGD(optimizers.schedules.PiecewiseConstantDecay([1], [1.0, 0.5]))
    for _ in range(3):
        optimizer.apply_gradients([(tf.ones(2), v)])
    np.testing.assert_array_equal(v, [-1.5, -0.5])
    assert float(optimizer.learning_rate) == 0.5

    class Own(optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return 1.0 / (tf.cast(step, tf.float32) + 1.0)

    assert float(optimizers.Adam(Own()).learning_rate) == 1.0
    assert float(optimizers.Adam(lambda: 0.25).learning_rate) == 0.25


def test_gradients_that_are_none() -> None:
    v, w = variables()
    optimizer = optimizers.SGD(1.0)
    with pytest.warns(UserWarning, match="Gradients do not exist for variables 'w'"):
        optimizer.apply_gradients([(tf.ones(2), v), (None, w)])
    np.testing.assert_array_equal(w, [[3.0]])
    with pytest.raises(ValueError, match=r"No gradients provided for any variable\."):
        optimizer.apply_gradients([(None, v)])
    with pytest.raises(ValueError, match=r"No gradients provided for any variable: .* no pairs"):
        optimizer.apply_gradients([])
    assert int(optimizer.iterations) == 1


def test_variables_it_was_not_built_with() -> None:
    v, w = variables()
    optimizer = optimizers.Adam()
    optimizer.build([v])
    assert [tuple(x.shape) for x in optimizer.variables] == [(), (), (2,), (2,)]
    with pytest.raises(ValueError, match=r"Unknown variable: <tf.Variable 'w:0'.*recreate a new optimizer"):
        optimizer.apply_gradients([(tf.ones((1, 1)), w)])


def test_what_is_wrong_is_said_before_anything_changes() -> None:
    v, w = variables()
    optimizer = optimizers.SGD(1.0)
    with pytest.raises(TypeError, match="Are the two swapped"):
        optimizer.apply_gradients([(v, tf.ones(2))])
    with pytest.raises(ValueError, match=r"the gradient of 'w' has shape \(2,\); the variable has \(1, 1\)"):
        optimizer.apply_gradients([(tf.ones(2), v), (tf.ones(2), w)])
    with pytest.raises(TypeError, match=r"takes \(gradient, variable\) pairs"):
        optimizer.apply_gradients([v])
    with pytest.raises(ValueError, match="2 gradients for 1 variables"):
        optimizer.apply([tf.ones(2), tf.ones(2)], [v])
    np.testing.assert_array_equal(v, [1.0, 2.0])
    with pytest.raises(AttributeError, match=r"no minimize: take the gradients with tf.GradientTape"):
        _ = optimizer.minimize
    with pytest.raises(ValueError, match="use learning_rate"):
        optimizers.Adam(lr=0.1)
    with pytest.raises(TypeError, match=r"Adam: got an unexpected keyword argument 'beta1'|unexpected keyword"):
        optimizers.Adam(beta1=0.1)
    with pytest.raises(ValueError, match=r"identifier: 'adamm'.* Did you mean 'adam'"):
        optimizers.get("adamm")
    with pytest.raises(TypeError, match=r"derive from tape_nn.Optimizer"):
        optimizers.Optimizer()


def test_averages_constraints_and_scaled_losses() -> None:
    v, w = variables()
    optimizer = optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5, loss_scale_factor=4.0)
    assert float(optimizer.scale_loss(tf.constant(2.0))) == 8.0
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([4.0, 8.0]), v)])
    np.testing.assert_array_equal(v, [-1.0, -2.0])
    optimizer.finalize_variable_values([v])
    np.testing.assert_array_equal(v, [-0.5, -1.0])
    bounded = tf.Variable([1.0], constraint=tf.keras.constraints.NonNeg())
    optimizers.SGD(3.0).apply_gradients([(tf.ones(1), bounded)])
    np.testing.assert_array_equal(bounded, [0.0])
    decayed = optimizers.SGD(1.0, weight_decay=0.5)
    decayed.build([v, w])
    decayed.exclude_from_weight_decay(var_names=["w"])
    decayed.apply_gradients([(tf.zeros(2), v), (tf.zeros((1, 1)), w)])
    np.testing.assert_array_equal(v, [-0.25, -0.5])
    np.testing.assert_array_equal(w, [[3.0]])
    assert decayed.weight_decay == 0.5
    assert decayed.get_config()["momentum"] == 0.0


@pytest.mark.each_backend
def test_gradients_of_several_batches_make_one_update() -> None:
    """The expected values are those of Keras 3.15."""
    optimizer = optimizers.Adam(0.1, gradient_accumulation_steps=2)
    weights = tf.Variable([1.0, 2.0])
    found = []
    for k in range(5):
        optimizer.apply([tf.constant([0.5 * (k + 1), -1.0])], [weights])
        found.append((*weights.numpy().tolist(), int(optimizer.iterations)))
    once, twice = (0.9000011, 2.0999990, 1), (0.8052162, 2.1999977, 2)
    np.testing.assert_allclose(found, [(1.0, 2.0, 0), once, once, twice, twice], rtol=1e-5)
    assert optimizer.get_config()["gradient_accumulation_steps"] == 2
    again = (
        optimizers.Adam.from_config(optimizer.get_config()) if hasattr(optimizers.Adam, "from_config") else optimizer
    )
    assert again.gradient_accumulation_steps == 2
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        optimizers.SGD(gradient_accumulation_steps=1)
    with pytest.raises(ValueError, match="use_ema averages after each batch"):
        optimizers.SGD(gradient_accumulation_steps=2, use_ema=True)


@pytest.mark.each_backend
@pytest.mark.parametrize("scaled", [False, True])
def test_fit_with_accumulated_gradients_is_fit_with_larger_batches(scaled: bool, tmp_path: Any) -> None:
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    y = x.sum(1, keepdims=True)

    def trained(batch: int, **options: Any) -> Any:
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
        optimizer = optimizers.Adam(0.1, **options)
        model.compile(optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, "mse")
        model.fit(x, y + 1, batch_size=batch, epochs=3, shuffle=False, verbose=0)
        return model

    small, large = trained(2, gradient_accumulation_steps=2), trained(4)
    assert int(small.optimizer.iterations) == int(large.optimizer.iterations) == 6
    for found, expected in zip(small.get_weights(), large.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if not scaled:
        small.save(tmp_path / "model.keras", save_format="tape")
        again = tf.keras.models.load_model(tmp_path / "model.keras")
        assert again.optimizer.gradient_accumulation_steps == 2
        for model in (small, again):
            model.fit(x, y, batch_size=2, epochs=1, shuffle=False, verbose=0)
        np.testing.assert_allclose(again.get_weights()[0], small.get_weights()[0], rtol=1e-5)
