"""Programs that do what the code of TensorFlow's guides on automatic differentiation does.

One class for a guide, in the order of its chapters. test_guides.py runs the guides themselves, from a checkout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_tf as tf


def values(structure: Any) -> Any:
    return tf.nest.map_structure(lambda t: None if t is None else t.numpy().tolist(), structure)


class TestGradientsAndAutomaticDifferentiation:
    def test_scalar(self) -> None:
        radius = tf.Variable(5.0)
        with tf.GradientTape() as tape:
            area = 2.0 * radius**2
        slope = tape.gradient(area, radius)
        assert slope.numpy() == 20.0
        assert isinstance(slope.numpy(), np.float32)

    def test_matrices_and_structures_of_sources(self) -> None:
        kernel = tf.Variable(tf.random.normal((2, 4)), name="kernel")
        offset = tf.Variable(tf.zeros(4, dtype=tf.float32), name="offset")
        rows = [[1.0, -1.0], [0.5, 2.0]]
        with tf.GradientTape(persistent=True) as tape:
            out = rows @ kernel + offset
            cost = tf.reduce_mean(out**2)
        [dk, do] = tape.gradient(cost, [kernel, offset])
        assert (dk.shape, do.shape) == (kernel.shape, offset.shape)
        assert do.numpy() == pytest.approx(2 * out.numpy().sum(0) / 8, rel=1e-5)
        by_name = tape.gradient(cost, {"kernel": kernel, "offset": offset})
        assert by_name["kernel"].numpy() == pytest.approx(dk.numpy())
        assert print_of(kernel.shape) == "(2, 4)"

    def test_a_layer(self) -> None:
        layer = tf.keras.layers.Dense(3, activation="relu")
        x = tf.constant([[2.0, 1.0]])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        gradients = tape.gradient(loss, layer.trainable_variables)
        lines = [f"{v.name}, shape: {g.shape}" for v, g in zip(layer.trainable_variables, gradients, strict=True)]
        assert "kernel" in lines[0]
        assert lines[0].endswith(", shape: (2, 3)")
        assert "bias" in lines[1]

    def test_what_is_watched(self) -> None:
        trained = tf.Variable(2.0, name="trained")
        fixed = tf.Variable(2.0, name="fixed", trainable=False)
        shifted = tf.Variable(2.0, name="shifted") + 1.0  # a tensor by now
        number = tf.constant(2.0, name="number")
        with tf.GradientTape() as tape:
            y = trained**3 + fixed**3 + shifted**3 + number**3
        assert values(tape.gradient(y, [trained, fixed, shifted, number])) == [12.0, None, None, None]
        assert [v.name for v in tape.watched_variables()] == ["trained:0"]

    def test_watching_by_hand(self) -> None:
        x = tf.constant(4.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.sqrt(x)
        assert tape.gradient(y, x).numpy() == 0.25

        left, right = tf.Variable(1.0), tf.Variable(2.0)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(right)
            total = tf.reduce_sum(tf.math.cos(left) + tf.nn.softplus(right))
        gradients = tape.gradient(total, {"left": left, "right": right})
        assert gradients["left"] is None
        assert gradients["right"].numpy() == pytest.approx(1 / (1 + np.exp(-2.0)))

    def test_intermediate_results_and_persistent_tapes(self) -> None:
        x = tf.constant([2.0, -1])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = x + x
            z = y**2
        assert tape.gradient(z, y).numpy().tolist() == [8.0, -4.0]
        assert tape.gradient(z, x).numpy().tolist() == [16.0, -8.0]
        assert tape.gradient(y, x).numpy().tolist() == [2.0, 2.0]
        del tape

    def test_targets_that_are_not_scalars(self) -> None:
        x = tf.Variable(4.0)
        with tf.GradientTape(persistent=True) as tape:
            up = 3 * x
            down = 8 / x
            both = x * [1.0, 2.0, 3.0]
        assert tape.gradient(down, x).numpy() == -0.5
        assert tape.gradient({"up": up, "down": down}, x).numpy() == 2.5
        assert tape.gradient(both, x).numpy() == 6.0
        x = tf.linspace(-3.0, 3.0, 60 + 1)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.tanh(x)
        assert tape.gradient(y, x).numpy() == pytest.approx(1 - np.tanh(np.linspace(-3, 3, 61)) ** 2, abs=1e-6)

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_control_flow(self, sign: float) -> None:
        x = tf.constant(sign)
        a, b = tf.Variable(3.0), tf.Variable(3.0)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            result = a if x > 0.0 else b**2
        expected = [1.0, None] if sign > 0 else [None, 6.0]
        assert values(tape.gradient(result, [a, b])) == expected
        assert tape.gradient(result, x) is None

    def test_ways_to_lose_a_gradient(self) -> None:
        x, other = tf.Variable(2.0), tf.Variable(5.0)
        with tf.GradientTape() as tape:
            y = other * other
        assert tape.gradient(y, x) is None, "not connected"
        kinds = []
        for _ in range(2):
            with tf.GradientTape() as tape:
                y = x + 1
            kinds.append((tape.gradient(y, x) is None, isinstance(x, tf.Variable)))
            x = x + 1
        assert kinds == [(False, True), (True, False)], "the Variable was replaced by a tensor"

        x = tf.Variable([[2.0, 4.0], [6.0, 8.0]])
        with tf.GradientTape() as tape:
            with pytest.warns(UserWarning, match="no gradient comes back"):
                y = tf.reduce_mean(np.max(x**2, axis=0))
        assert tape.gradient(y, x) is None, "NumPy is not recorded"

        count = tf.constant(3)
        with tf.GradientTape() as tape:
            tape.watch(count)
            y = count * count
        assert tape.gradient(y, count) is None, "integers have no gradient"

        first, second = tf.Variable(2.0), tf.Variable(1.0)
        with tf.GradientTape() as tape:
            second.assign_add(first)
            y = second**2
        assert tape.gradient(y, first) is None, "a Variable's state is not recorded"

    def test_operations_without_a_rule(self) -> None:
        picture = tf.Variable([[[0.2, 0.4, 0.6]]])
        factor = tf.Variable(0.5)
        with tf.GradientTape() as tape:
            changed = tf.image.adjust_contrast(picture, factor)
        assert changed.shape == (1, 1, 3)
        with pytest.raises(LookupError, match="AdjustContrast"):
            tape.gradient(changed, [picture, factor])

    def test_zeros_where_nothing_is_connected(self) -> None:
        x, y = tf.Variable([1.0, 1.0, 1.0]), tf.Variable(3.0)
        with tf.GradientTape() as tape:
            z = y**3
        zeros = tape.gradient(z, x, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        assert print_of(zeros) == "tf.Tensor([0. 0. 0.], shape=(3,), dtype=float32)"


def print_of(value: Any) -> str:
    return f"{value!s}"


class TestAdvancedAutomaticDifferentiation:
    def test_recording_in_part(self) -> None:
        x, y = tf.Variable(3.0), tf.Variable(2.0)

        def stopped(tape: Any) -> Any:
            x3 = x**3
            with tape.stop_recording():
                y3 = y**3
            return x3 + y3

        def reset(tape: Any) -> Any:
            y3 = y**3
            tape.reset()
            return x**3 + y3

        def cut(tape: Any) -> Any:
            return x**3 + tf.stop_gradient(y**3)

        for way in (stopped, reset, cut):
            with tf.GradientTape() as tape:
                z = way(tape)
            assert float(z) == 35.0
            assert values(tape.gradient(z, {"x": x, "y": y})) == {"x": 27.0, "y": None}

    def test_custom_gradient(self) -> None:
        @tf.custom_gradient
        def bounded(x: Any) -> Any:
            def backward(upstream: Any) -> Any:
                return tf.clip_by_norm(upstream, 1.0)

            return x, backward

        v = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            out = bounded(5.0 * v)
        assert tape.gradient(out, v).numpy() == 5.0  # 1 is within the bound
        with tf.GradientTape() as tape:
            out = 4.0 * bounded(5.0 * v)
        assert tape.gradient(out, v).numpy() == 5.0  # 4 is clipped to 1

        class Bounded(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec(None)])
            def __call__(self, x: Any) -> Any:
                return bounded(x)

        with tf.GradientTape() as tape:
            out = 4.0 * Bounded()(5.0 * v)
        assert tape.gradient(out, v).numpy() == 5.0

    def test_two_tapes(self) -> None:
        a, b = tf.constant(0.0), tf.constant(0.0)
        with tf.GradientTape() as first, tf.GradientTape() as second:
            first.watch(a)
            second.watch(b)
            total = tf.reduce_sum(tf.math.exp(2.0 * a) + tf.nn.sigmoid(b))
        assert first.gradient(total, a).numpy() == 2.0
        assert second.gradient(total, b).numpy() == 0.25

    def test_second_derivatives(self) -> None:
        x = tf.Variable(2.0)
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = x**4
            slope = inner.gradient(y, x)
        assert (slope.numpy(), outer.gradient(slope, x).numpy()) == (32.0, 48.0)

    def test_penalty_on_the_gradient_of_the_input(self) -> None:
        x = tf.random.normal([6, 3])
        layer = tf.keras.layers.Dense(4, activation=tf.nn.relu)
        with tf.GradientTape() as outer:
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(x)
                out = tf.reduce_sum(layer(x) ** 2)
            of_input = inner.gradient(out, x)
            size = tf.norm(of_input)
        gradients = outer.gradient(size, layer.trainable_variables)
        assert [g.shape for g in gradients] == [(3, 4), (4,)]
        assert all(np.isfinite(g.numpy()).all() for g in gradients)

    def test_jacobian_of_a_scalar_source(self) -> None:
        x = tf.linspace(-2.0, 2.0, 40 + 1)
        shift = tf.Variable(0.0)
        with tf.GradientTape() as tape:
            y = tf.math.sin(x + shift)
        slope = tape.jacobian(y, shift)
        assert slope.shape == y.shape
        assert slope.numpy() == pytest.approx(np.cos(x.numpy()), abs=1e-6)

    def test_jacobian_of_a_layer(self) -> None:
        x = tf.random.normal([6, 3])
        layer = tf.keras.layers.Dense(4, activation=tf.nn.relu)
        with tf.GradientTape(persistent=True) as tape:
            y = layer(x)
        jacobian = tape.jacobian(y, layer.kernel)
        assert jacobian.shape == (*y.shape, *layer.kernel.shape)
        gradient = tape.gradient(y, layer.kernel)
        assert float(tf.reduce_max(abs(gradient - tf.reduce_sum(jacobian, axis=[0, 1])))) < 1e-5

    def test_newton_step(self) -> None:
        """A Newton step with the Hessian, as the Jacobian of a gradient reshaped to a matrix."""
        tf.random.set_seed(1)
        x = tf.random.normal([9, 3])
        first, second = tf.keras.layers.Dense(2, activation=tf.nn.tanh), tf.keras.layers.Dense(1)

        def loss() -> Any:
            return tf.reduce_mean((second(first(x)) - 1.0) ** 2)

        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                before = loss()
            gradient = inner.gradient(before, first.kernel)
        hessian = outer.jacobian(gradient, first.kernel)
        assert hessian.shape == (3, 2, 3, 2)
        n = tf.reduce_prod(first.kernel.shape)
        matrix = tf.reshape(hessian, [n, n])
        assert matrix.numpy() == pytest.approx(matrix.numpy().T, abs=1e-5)
        damped = matrix + tf.eye(matrix.shape[0]) * 10.0
        step = tf.linalg.solve(damped, tf.reshape(gradient, [n, 1]))
        _ = first.kernel.assign_sub(tf.reshape(step, first.kernel.shape))
        assert float(loss()) < float(before)

    def test_batch_jacobian(self) -> None:
        tf.random.set_seed(2)
        x = tf.random.normal([5, 3])
        first = tf.keras.layers.Dense(4, activation=tf.nn.elu)
        normalize = tf.keras.layers.BatchNormalization()
        second = tf.keras.layers.Dense(2, activation=tf.nn.elu)
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(x)
            y = second(first(x))
        whole = tape.jacobian(y, x)
        assert whole.shape == (5, 2, 5, 3)
        diagonal = tf.einsum("bxby->bxy", whole)
        assert tape.batch_jacobian(y, x).numpy() == pytest.approx(diagonal.numpy(), abs=1e-5)
        assert tf.reduce_sum(whole, axis=2).numpy() == pytest.approx(diagonal.numpy(), abs=1e-5)

        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(x)
            y = second(normalize(first(x), training=True))
        whole = tape.jacobian(y, x)
        assert tape.batch_jacobian(y, x).shape == (5, 2, 3)
        mixed = tf.reduce_max(abs(tf.reduce_sum(whole, axis=2) - tf.einsum("bxby->bxy", whole)))
        assert float(mixed) > 1e-2, "the batch's statistics tie the examples together"

    def test_patches_of_a_jacobian_in_one_picture(self) -> None:
        j = tf.random.normal([2, 3, 2, 4])
        j = tf.transpose(j, [1, 0, 3, 2])
        limit = tf.reduce_max(abs(j))
        j = tf.pad(j, [[0, 0], [1, 1], [0, 0], [1, 1]], constant_values=-limit)
        s = j.shape
        picture = tf.reshape(j, [s[0] * s[1], s[2] * s[3]])
        assert picture.shape == (12, 16)
        assert float(picture[0, 0]) == -float(limit)


class TestBasicTrainingLoops:
    def data(self) -> tuple[Any, Any]:
        tf.random.set_seed(7)
        x = tf.cast(tf.linspace(-1, 1, 101), tf.float32)
        return x, x * 4.0 - 1.0 + 0.1 * tf.random.normal(shape=[101])

    def test_loop_on_a_module(self) -> None:
        class Line(tf.Module):
            def __init__(self, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.slope = tf.Variable(1.0)
                self.offset = tf.Variable(0.5)

            def __call__(self, x: Any) -> Any:
                return self.slope * x + self.offset

        model = Line()
        assert model(2.0).numpy() == 2.5
        assert len(model.variables) == 2
        x, y = self.data()

        def loss() -> Any:
            return tf.reduce_mean(tf.square(model(x) - y))

        report = "%1.3f" % loss().numpy()  # noqa: UP031 - as it is written there
        assert float(report) == pytest.approx(float(loss()), abs=1e-3)
        for _ in range(60):
            with tf.GradientTape() as tape:
                current = loss()
            ds, do = tape.gradient(current, [model.slope, model.offset])
            model.slope.assign_sub(0.3 * ds)
            model.offset.assign_sub(0.3 * do)
        assert f"{model.slope.numpy():1.1f} {model.offset.numpy():1.1f} {loss():2.2f}" == "4.0 -1.0 0.01"

    def test_the_same_with_keras(self, tmp_path: Any) -> None:
        class Line(tf.keras.Model):
            def __init__(self, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.slope = tf.Variable(1.0)
                self.offset = tf.Variable(0.5)

            def call(self, x: Any) -> Any:
                return self.slope * x + self.offset

        x, y = self.data()
        model = Line()
        model.compile(
            run_eagerly=False,
            optimizer=tf.keras.optimizers.SGD(learning_rate=0.3),
            loss=tf.keras.losses.mean_squared_error,
        )
        history = model.fit(x, y, epochs=60, batch_size=1000, verbose=0)
        assert len(history.history["loss"]) == 60
        assert history.history["loss"][-1] < 0.02


class Affine(tf.Module):
    """A dense layer with a known number of features."""

    def __init__(self, in_features: int, out_features: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.w = tf.Variable(tf.random.normal([in_features, out_features]), name="w")
        self.b = tf.Variable(tf.zeros([out_features]), name="b")

    def __call__(self, x: Any) -> Any:
        return tf.nn.relu(tf.matmul(x, self.w) + self.b)


class LazyAffine(tf.keras.layers.Layer):
    """A dense layer that learns the number of features from its first input."""

    def __init__(self, out_features: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.out_features = out_features

    def build(self, input_shape: Any) -> None:
        self.w = tf.Variable(tf.random.normal([input_shape[-1], self.out_features]), name="w")
        self.b = tf.Variable(tf.zeros([self.out_features]), name="b")

    def call(self, inputs: Any) -> Any:
        return tf.matmul(inputs, self.w) + self.b


class TestModulesLayersAndModels:
    def test_variables_of_a_module(self) -> None:
        class Shift(tf.Module):
            def __init__(self, name: str | None = None) -> None:
                super().__init__(name=name)
                self.moved = tf.Variable(2.0, name="moved")
                self.kept = tf.Variable(3.0, trainable=False, name="kept")

            def __call__(self, x: Any) -> Any:
                return self.moved * x + self.kept

        shift = Shift(name="shift")
        assert float(shift(tf.constant(4.0))) == 11.0
        assert [v.name for v in shift.trainable_variables] == ["moved:0"]
        assert {v.name for v in shift.variables} == {"moved:0", "kept:0"}
        assert shift.name == "shift"

    def test_modules_of_modules(self) -> None:
        class Pair(tf.Module):
            def __init__(self, name: str | None = None) -> None:
                super().__init__(name=name)
                self.first = Affine(2, 3)
                self.second = Affine(3, 1)

            @tf.function
            def __call__(self, x: Any) -> Any:
                return self.second(self.first(x))

        pair = Pair(name="pair")
        assert len(pair.submodules) == 2
        assert [v.shape.as_list() for v in pair.variables] == [[3], [2, 3], [1], [3, 1]]
        assert pair([[1.0, 2.0]]).shape == (1, 1)
        assert pair([[[1.0, 2.0], [3.0, 4.0]]]).shape == (1, 2, 1)
        assert "tf.Variable 'w:0' shape=(2, 3) dtype=float32" in str(pair.first.w)

    def test_layers(self) -> None:
        layer = LazyAffine(out_features=2)
        assert layer.variables == []
        y = layer(tf.constant([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
        assert y.numpy() == pytest.approx(layer.w.numpy()[[0, 2]])
        assert len(layer.variables) == 2
        with pytest.raises(tf.errors.InvalidArgumentError):
            layer(tf.constant([[1.0, 2.0, 3.0, 4.0]]))

    def test_models(self) -> None:
        class Stack(tf.keras.Model):
            def __init__(self, name: str | None = None, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.first = LazyAffine(out_features=3)
                self.second = LazyAffine(out_features=2)

            def call(self, x: Any) -> Any:
                return self.second(self.first(x))

        model = Stack(name="stack")
        y = model(tf.constant([[2.0, 2.0, 2.0]]))
        assert y.shape == (1, 2)
        assert len(model.variables) == 4
        assert {type(module).__name__ for module in model.submodules} == {"LazyAffine"}
