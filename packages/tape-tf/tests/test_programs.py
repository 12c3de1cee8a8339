"""Programs of the kind that tutorials have, on gradients: written for TensorFlow, with one import changed.

Training with Keras is in keras/test_programs.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


def test_saliency_map() -> None:
    """Saliency: the pixels of an image that speak for its class."""
    kernel = np.zeros((2, 2, 1, 2), np.float32)
    kernel[0, 0, 0, 0] = kernel[1, 1, 0, 1] = 1.0
    image = tf.constant(np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4, 1) / 16)

    with tf.GradientTape() as tape:
        tape.watch(image)
        features = tf.nn.relu(tf.nn.conv2d(image, kernel, strides=2, padding="SAME"))
        scores = tf.nn.softmax(tf.reduce_sum(features, axis=[1, 2]))
        top = tf.argmax(scores[0])
        score = scores[:, int(top)]
    saliency = tf.reduce_max(tf.abs(tape.gradient(score, image)), axis=-1)[0]

    assert saliency.shape == (4, 4)
    p = float(score[0])
    expected = np.kron(np.ones((2, 2)), np.eye(2)) * p * (1 - p)
    assert saliency.numpy() == pytest.approx(expected, rel=1e-5)


def gram_matrix(features: Any) -> Any:
    result = tf.linalg.einsum("bijc,bijd->bcd", features, features)
    locations = tf.cast(tf.shape(features)[1] * tf.shape(features)[2], tf.float32)
    return result / locations


def test_optimising_an_image() -> None:
    """Optimization of an image, as in style transfer: the image is the Variable, and is clipped after each step."""
    tf.random.set_seed(1)
    filters = tf.random.normal((3, 3, 3, 4), stddev=0.3)

    def features(image: Any) -> Any:
        return tf.nn.relu(tf.nn.conv2d(image, filters, strides=[1, 1, 1, 1], padding="VALID"))

    content, style = tf.random.uniform((1, 8, 8, 3)), tf.random.uniform((1, 8, 8, 3))
    content_target, style_target = features(content), gram_matrix(features(style))
    image = tf.Variable(content)
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.02, beta_1=0.99, epsilon=1e-1)

    def clip_0_1(image: Any) -> Any:
        return tf.clip_by_value(image, clip_value_min=0.0, clip_value_max=1.0)

    @tf.function()
    def train_step(image: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = features(image)
            loss = 1e-2 * tf.add_n([tf.reduce_mean((outputs - content_target) ** 2)])
            loss += 1e2 * tf.reduce_mean((gram_matrix(outputs) - style_target) ** 2)
            loss += 1e-6 * tf.reduce_sum(tf.abs(image[:, 1:] - image[:, :-1]))
        grad = tape.gradient(loss, image)
        optimizer.apply_gradients([(grad, image)])
        image.assign(clip_0_1(image))
        return loss

    losses = [float(train_step(image)) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    assert 0.0 <= float(tf.reduce_min(image)) <= float(tf.reduce_max(image)) <= 1.0


def test_physics_informed_network() -> None:
    """y'' + y = 0, y(0) = 0, y'(0) = 1: the loss has derivatives by nested tapes, and is itself differentiated."""
    tf.random.set_seed(3)
    hidden = 12
    weights = [
        tf.Variable(tf.random.normal([1, hidden], dtype=tf.float64), name="w1"),
        tf.Variable(tf.random.normal([hidden], dtype=tf.float64), name="b1"),
        tf.Variable(tf.random.normal([hidden, 1], dtype=tf.float64) / hidden, name="w2"),
    ]
    optimizer = tf.keras.optimizers.Adam(0.02)
    t = tf.reshape(tf.cast(tf.linspace(0.0, 2.0, 20), tf.float64), [-1, 1])

    def y(t: Any) -> Any:
        w1, b1, w2 = weights
        return t + t**2 * (tf.tanh(t @ w1 + b1) @ w2)  # the conditions at 0 hold by construction

    def residual(t: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(t)
            with tf.GradientTape() as inner:
                inner.watch(t)
                value = y(t)
            first = inner.gradient(value, t)
        second = outer.gradient(first, t)
        return second + value

    losses = []
    for _ in range(150):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(residual(t)))
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        losses.append(loss.numpy())
    assert losses[-1] < 0.05 * losses[0]
    assert y(t).numpy() == pytest.approx(np.sin(t.numpy()), abs=0.2)


def test_hessian_vector_products() -> None:
    """A Hessian-vector product in four ways: reverse over reverse, two of forward and reverse, the whole Hessian."""
    x = tf.Variable([1.0, 2.0, 3.0])
    v = tf.constant([1.0, -1.0, 0.5])

    def f(x: Any) -> Any:
        return tf.reduce_prod(x) + tf.reduce_sum(tf.sin(x))

    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = f(x)
        g = inner.gradient(y, x)
        dot = tf.reduce_sum(g * v)
    back_over_back = outer.gradient(dot, x)

    with tf.autodiff.ForwardAccumulator(x, v) as acc:
        with tf.GradientTape() as tape:
            y = f(x)
        grads = tape.gradient(y, x)
    forward_over_back = acc.jvp(grads)

    with tf.GradientTape() as tape:
        with tf.autodiff.ForwardAccumulator(x, v) as acc:
            y = f(x)
        directional = acc.jvp(y)
    back_over_forward = tape.gradient(directional, x)

    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            y = f(x)
        g = inner.gradient(y, x)
    hessian = outer.jacobian(g, x)

    a, b, c = 1.0, 2.0, 3.0
    expected = np.array([[-np.sin(a), c, b], [c, -np.sin(b), a], [b, a, -np.sin(c)]])
    assert hessian.numpy() == pytest.approx(expected, rel=1e-5)
    for product in (back_over_back, forward_over_back, back_over_forward, tf.linalg.matvec(hessian, v)):
        assert product.numpy() == pytest.approx(expected @ v.numpy(), rel=1e-5)


def test_gradients_of_each_example() -> None:
    """Gradients per example, by a Jacobian and by a tape for each, with clipped norms, as in private training."""
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.5]])
    y = tf.constant([1.0, 0.0, 2.0])
    w = tf.Variable([[0.5], [-0.25]])
    with tf.GradientTape() as tape:
        losses = (tf.squeeze(x @ w, axis=-1) - y) ** 2
    per_example = tape.jacobian(losses, w)
    assert per_example.shape == (3, 2, 1)

    one_by_one = []
    for xi, yi in zip(x, y, strict=True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((xi[tf.newaxis] @ w - yi) ** 2)
        one_by_one.append(tape.gradient(loss, w))
    assert per_example.numpy() == pytest.approx(tf.stack(one_by_one).numpy())

    norms = tf.norm(tf.reshape(per_example, [3, -1]), axis=1)
    clipped = per_example * tf.minimum(1.0, 2.0 / norms)[:, tf.newaxis, tf.newaxis]
    assert float(tf.reduce_max(tf.norm(tf.reshape(clipped, [3, -1]), axis=1))) == pytest.approx(2.0)


class RNN(tf.Module):
    """A recurrent network written out."""

    def __init__(self, units: int, name: str | None = None) -> None:
        super().__init__(name=name)
        init = tf.random_normal_initializer(stddev=0.3)
        self.wx = tf.Variable(init([1, units]), name="wx")
        self.wh = tf.Variable(tf.eye(units) * 0.9, name="wh")
        self.b = tf.Variable(tf.zeros([units]), name="b")
        self.out = tf.Variable(init([units, 1]), name="out")
        self.units = units

    def __call__(self, sequence: Any) -> Any:
        h = tf.zeros([tf.shape(sequence)[0], self.units])
        for x in tf.unstack(sequence, axis=1):
            h = tf.tanh(tf.matmul(x, self.wx) + tf.matmul(h, self.wh) + self.b)
        return tf.matmul(h, self.out)


def test_recurrent_network() -> None:
    """The network learns to add up a sequence, with gradients clipped by their global norm."""
    tf.random.set_seed(0)
    x = tf.random.uniform([64, 6, 1], -0.5, 0.5)
    y = tf.reduce_sum(x, axis=1)
    model = RNN(8)
    optimizer = tf.keras.optimizers.RMSprop(0.01)
    losses = []
    for _ in range(60):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.math.squared_difference(model(x), y))
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        assert float(tf.linalg.global_norm(gradients)) <= min(1.0, float(norm)) * 1.0001
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    assert losses[-1] < 0.1 * losses[0]
    assert [v.name for v in model.trainable_variables] == ["b:0", "out:0", "wh:0", "wx:0"]


def test_inner_loop_of_meta_learning() -> None:
    """The gradient through a step of gradient descent, against a formula."""
    w = tf.Variable(2.0)
    x, y = tf.constant([1.0, 2.0]), tf.constant([1.0, 3.0])
    lr = 0.1
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner_loss = tf.reduce_mean((w * x - y) ** 2)
        g = inner.gradient(inner_loss, w)
        fast = w - lr * g
        outer_loss = tf.reduce_mean((fast * x - y) ** 2)
    meta = outer.gradient(outer_loss, w)
    mean_xx, mean_xy = 2.5, 3.5
    slope = lambda w: 2 * (mean_xx * w - mean_xy)  # noqa: E731
    assert float(fast) == pytest.approx(2.0 - lr * slope(2.0))
    assert float(meta) == pytest.approx(slope(float(fast)) * (1 - lr * 2 * mean_xx), rel=1e-5)


def test_gradient_penalty() -> None:
    """The critic of a WGAN: the norm of its gradient at points between real and generated examples."""
    tf.random.set_seed(4)
    w = tf.Variable([[1.0], [2.0]])
    real, fake = tf.random.normal([5, 2]), tf.random.normal([5, 2])
    alpha = tf.random.uniform([5, 1], 0.0, 1.0)

    def critic(x: Any) -> Any:
        return tf.nn.leaky_relu(x @ w, alpha=0.2)

    def gradient_penalty(real: Any, fake: Any) -> Any:
        interpolated = real + alpha * (fake - real)
        with tf.GradientTape() as gp_tape:
            gp_tape.watch(interpolated)
            pred = critic(interpolated)
        grads = gp_tape.gradient(pred, [interpolated])[0]
        norm = tf.sqrt(tf.reduce_sum(tf.square(grads), axis=[1]))
        return tf.reduce_mean((norm - 1.0) ** 2)

    with tf.GradientTape() as tape:
        cost = tf.reduce_mean(critic(fake)) - tf.reduce_mean(critic(real)) + 10.0 * gradient_penalty(real, fake)
    gradient = tape.gradient(cost, w)

    # By hand: |grad| = slope * |w| with the slope of the side of the kink.
    between = (real + alpha * (fake - real)).numpy() @ w.numpy()
    slope = np.where(between[:, 0] > 0, 1.0, 0.2)
    length = np.sqrt(5.0)
    of_penalty = np.mean(2 * (slope * length - 1) * slope) * w.numpy() / length

    def mean_slope(x: Any) -> Any:
        return np.mean(np.where(x.numpy() @ w.numpy() > 0, 1.0, 0.2) * x.numpy(), axis=0)[:, None]

    assert gradient.numpy() == pytest.approx(mean_slope(fake) - mean_slope(real) + 10.0 * of_penalty, rel=1e-4)


def test_reparameterisation() -> None:
    """Fit the parameters of a distribution through samples of it."""
    tf.random.set_seed(5)
    mean, log_sd = tf.Variable([0.0, 0.0]), tf.Variable([0.0, 0.0])
    target_mean, target_sd = tf.constant([1.0, -2.0]), tf.constant([0.5, 2.0])
    optimizer = tf.keras.optimizers.SGD(0.05)
    for _ in range(300):
        eps = tf.random.normal([64, 2])
        with tf.GradientTape() as tape:
            z = mean + eps * tf.exp(log_sd)
            log_q = -log_sd - 0.5 * eps**2
            log_p = -tf.math.log(target_sd) - 0.5 * ((z - target_mean) / target_sd) ** 2
            kl = tf.reduce_mean(tf.reduce_sum(log_q - log_p, axis=-1))
        optimizer.apply_gradients(zip(tape.gradient(kl, [mean, log_sd]), [mean, log_sd], strict=True))
    assert mean.numpy() == pytest.approx(target_mean.numpy(), abs=0.1)
    assert tf.exp(log_sd).numpy() == pytest.approx(target_sd.numpy(), rel=0.15)


def test_straight_through_estimator() -> None:
    """Straight-through estimators: rounding forward, identity backward, in three usual ways."""

    @tf.custom_gradient
    def round_ste(x: Any) -> Any:
        def grad(upstream: Any) -> Any:
            return upstream

        return tf.round(x), grad

    x = tf.constant([0.4, 1.6])
    for f in (round_ste, lambda x: x + tf.stop_gradient(tf.round(x) - x), tf.grad_pass_through(tf.round)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
            loss = tf.reduce_sum(y * y)
        assert y.numpy() == pytest.approx([0.0, 2.0], abs=1e-6)
        assert tape.gradient(loss, x).numpy() == pytest.approx([0.0, 4.0], abs=1e-5)


def test_newton_method_on_a_batch() -> None:
    x = tf.Variable([[1.0, 1.0], [2.0, -1.0]])
    for _ in range(8):
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as inner:
                f = tf.reduce_sum(tf.exp(x) - 2.0 * x, axis=1) + 0.5 * (x[:, 0] - x[:, 1]) ** 2
            g = inner.gradient(f, x)
        h = outer.batch_jacobian(g, x)
        x.assign_sub(tf.squeeze(tf.linalg.solve(h, g[..., tf.newaxis]), axis=-1))
    assert x.numpy() == pytest.approx(np.full((2, 2), np.log(2.0)), abs=1e-5)


def test_factors_have_names() -> None:
    x = tf.constant([[2.0, 1.0], [1.0, 3.0]])
    factors = tf.linalg.qr(x)
    assert (factors.q @ factors.r).numpy() == pytest.approx(x.numpy(), abs=1e-6)
    assert float(tf.linalg.slogdet(x).log_abs_determinant) == pytest.approx(np.log(5.0))
    assert tf.linalg.lu(x).p.numpy().tolist() == [0, 1]
    assert tf.math.top_k([1.0, 3.0], 1).indices.numpy().tolist() == [1]
    assert tf.unique_with_counts([4, 4]).count.numpy().tolist() == [2]


def test_second_derivatives_of_normalised_values() -> None:
    """Check against finite differences: TensorFlow is wrong here, as tf.nn.moments stops a part of the gradient."""

    def first(values: Any) -> Any:
        x = tf.Variable(values, dtype=tf.float64)
        with tf.GradientTape() as tape:
            y = tf.nn.batch_normalization(x, *tf.nn.moments(x, [0]), 0.0, 1.0, 0.1) ** 3
        return tape.gradient(y, x).numpy()

    start, weights = np.array([0.5, 1.5, -1.0]), np.array([1.0, 2.0, 3.0])
    x = tf.Variable(start)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = tf.nn.batch_normalization(x, *tf.nn.moments(x, [0]), 0.0, 1.0, 0.1) ** 3
        weighted = tf.reduce_sum(inner.gradient(y, x) * weights)
    second = outer.gradient(weighted, x).numpy()
    steps = 1e-6 * np.eye(3)
    expected = [((first(start + d) - first(start - d)) * weights).sum() / 2e-6 for d in steps]
    assert second == pytest.approx(np.array(expected), abs=1e-5)
