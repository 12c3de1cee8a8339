"""Programs of the kind that tutorials have, on training: written for TensorFlow, with one import changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


def blobs(seed: int, examples: int = 120, classes: int = 3) -> tuple[Any, Any]:
    """Points around as many centres as there are classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(examples) % classes
    centres = np.array([[2.0, 0.0], [-2.0, 1.0], [0.0, -2.5]])[:classes]
    points = centres[labels] + 0.3 * rng.normal(size=(examples, 2))
    return points.astype("float32"), labels.astype("int32")


def test_custom_training_loop_with_metrics() -> None:
    tf.random.set_seed(1)
    x, y = blobs(0)
    train_ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120, seed=0).batch(32)
    test_ds = tf.data.Dataset.from_tensor_slices(blobs(1)).batch(32)

    class MyModel(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.d1 = tf.keras.layers.Dense(16, activation="relu")
            self.drop = tf.keras.layers.Dropout(0.1)
            self.d2 = tf.keras.layers.Dense(3)

        def call(self, x: Any, training: Any = None) -> Any:
            return self.d2(self.drop(self.d1(x), training=training))

    model = MyModel()
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(0.02)
    train_loss = tf.keras.metrics.Mean(name="train_loss")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")

    @tf.function
    def train_step(points: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            predictions = model(points, training=True)
            loss = loss_object(labels, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        train_loss(loss)
        train_accuracy(labels, predictions)

    losses = []
    for _ in range(8):
        train_loss.reset_state()
        train_accuracy.reset_state()
        test_accuracy.reset_state()
        for points, labels in train_ds:
            train_step(points, labels)
        for points, labels in test_ds:
            test_accuracy.update_state(labels, model(points, training=False))
        losses.append(float(train_loss.result()))
    assert losses[-1] < 0.2 * losses[0]
    assert float(train_accuracy.result()) > 0.95
    assert test_accuracy.result().numpy() > 0.95
    assert int(optimizer.iterations) == 8 * 4
    assert len(model.trainable_variables) == 4


def test_two_optimizers_of_an_adversarial_pair() -> None:
    """A generator and a discriminator in turn, each with the gradients of its own tape."""
    tf.random.set_seed(2)
    generator = tf.keras.Sequential(
        [tf.keras.layers.Dense(8, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(2)]
    )
    discriminator = tf.keras.Sequential()
    discriminator.add(tf.keras.layers.Dense(16))
    discriminator.add(tf.keras.layers.LeakyReLU())
    discriminator.add(tf.keras.layers.Dense(1))
    cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    generator_optimizer = tf.keras.optimizers.Adam(1e-2, beta_1=0.5)
    discriminator_optimizer = tf.keras.optimizers.Adam(1e-2, beta_1=0.5)

    def train_step(real: Any) -> tuple[Any, Any]:
        noise = tf.random.normal([32, 4])
        with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
            fake = generator(noise, training=True)
            real_output = discriminator(real, training=True)
            fake_output = discriminator(fake, training=True)
            gen_loss = cross_entropy(tf.ones_like(fake_output), fake_output)
            disc_loss = cross_entropy(tf.ones_like(real_output), real_output)
            disc_loss += cross_entropy(tf.zeros_like(fake_output), fake_output)
        for tape, loss, net, optimizer in [
            (gen_tape, gen_loss, generator, generator_optimizer),
            (disc_tape, disc_loss, discriminator, discriminator_optimizer),
        ]:
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return gen_loss, disc_loss

    def distance() -> float:
        mean = tf.reduce_mean(generator(tf.random.normal([256, 4])), axis=0)
        return float(tf.norm(mean - tf.constant([2.0, 2.0])))

    before = distance()
    for _ in range(100):
        gen_loss, disc_loss = train_step(tf.random.normal([32, 2], mean=2.0, stddev=0.2))
    assert np.isfinite([float(gen_loss), float(disc_loss)]).all()
    assert distance() < 0.6 * before


class Sampling(tf.keras.layers.Layer):
    """Draws z from what the encoder says of it."""

    def call(self, inputs: Any) -> Any:
        z_mean, z_log_var = inputs
        epsilon = tf.random.normal(shape=tf.shape(z_mean))
        self.add_loss(-0.5 * tf.reduce_mean(1 + z_log_var - tf.square(z_mean) - tf.exp(z_log_var)))
        return z_mean + tf.exp(0.5 * z_log_var) * epsilon


def test_variational_autoencoder() -> None:
    """The divergence comes from add_loss in a layer, and a train_step of the model's own is what fit runs."""
    tf.random.set_seed(3)

    class VAE(tf.keras.Model):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.hidden = tf.keras.layers.Dense(16, activation="tanh")
            self.z_mean = tf.keras.layers.Dense(2)
            self.z_log_var = tf.keras.layers.Dense(2)
            self.sampling = Sampling()
            self.decoder = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(6)])
            self.total_loss_tracker = tf.keras.metrics.Mean(name="total_loss")

        @property
        def metrics(self) -> list[Any]:
            return [self.total_loss_tracker]

        def call(self, x: Any) -> Any:
            h = self.hidden(x)
            return self.decoder(self.sampling((self.z_mean(h), self.z_log_var(h))))

        def train_step(self, data: Any) -> dict[str, Any]:
            with tf.GradientTape() as tape:
                reconstruction = self(data, training=True)
                loss = tf.reduce_mean(tf.reduce_sum(tf.square(data - reconstruction), axis=1))
                loss += 0.05 * sum(self.losses)
            grads = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
            self.total_loss_tracker.update_state(loss)
            return {"loss": self.total_loss_tracker.result()}

    latent = np.random.default_rng(0).normal(size=(128, 2))
    x = np.tanh(latent @ np.random.default_rng(1).normal(size=(2, 6))).astype("float32")
    vae = VAE(name="vae")
    vae.compile(optimizer=tf.keras.optimizers.Adam(0.01))
    history = vae.fit(x, epochs=15, batch_size=32, verbose=0)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    assert len(vae.losses) == 1


class Linear(tf.keras.layers.Layer):
    """A layer with weights that are made when it is first called, and a penalty on its activity."""

    def __init__(self, units: int = 32, rate: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units, self.rate = units, rate

    def build(self, input_shape: Any) -> None:
        self.w = self.add_weight(
            shape=(input_shape[-1], self.units), initializer="random_normal", trainable=True, name="w"
        )
        self.b = self.add_weight(shape=(self.units,), initializer="zeros", trainable=True, name="b")
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, inputs: Any) -> Any:
        self.calls.assign_add(1.0)
        outputs = tf.matmul(inputs, self.w) + self.b
        self.add_loss(self.rate * tf.reduce_sum(outputs**2))
        return outputs


def test_layer_with_weights_and_losses() -> None:
    layer = Linear(2, rate=0.5, name="linear")
    assert layer.weights == []
    y = layer(tf.ones((3, 4)))
    assert y.shape == (3, 2)
    assert len(layer.trainable_weights) == 2
    assert len(layer.non_trainable_weights) == 1
    assert float(layer.calls) == 1.0
    with tf.GradientTape() as tape:
        layer(tf.ones((3, 4)))
        loss = tf.add_n(layer.losses)
    gradient = tape.gradient(loss, layer.trainable_weights)
    outputs = np.ones((3, 4)) @ layer.w.numpy() + layer.b.numpy()
    assert float(loss) == pytest.approx(0.5 * (outputs**2).sum(), rel=1e-5)
    assert gradient[1].numpy() == pytest.approx(outputs.sum(0), rel=1e-5)


def test_learning_rate_schedule() -> None:
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=2, decay_rate=0.5, staircase=True)
    optimizer = tf.keras.optimizers.SGD(learning_rate=schedule)
    v = tf.Variable(1.0)
    for _ in range(5):
        optimizer.apply_gradients([(tf.constant(1.0), v)])
    assert v.numpy() == pytest.approx(1.0 - 0.1 * (1 + 1 + 0.5 + 0.5 + 0.25))
    assert float(schedule(4)) == pytest.approx(0.025)

    optimizer = tf.keras.optimizers.SGD(0.5)
    optimizer.learning_rate.assign(0.25)
    optimizer.apply_gradients([(tf.constant(1.0), v)])
    optimizer.learning_rate = 0.125
    optimizer.apply_gradients([(tf.constant(1.0), v)])
    assert v.numpy() == pytest.approx(0.675 - 0.25 - 0.125)


def test_embedding_model() -> None:
    """Its gradient is sparse: rows that no example looks up stay as they are."""
    tf.random.set_seed(4)
    users, items = tf.keras.layers.Embedding(10, 4), tf.keras.layers.Embedding(10, 4)
    ids = np.random.default_rng(0).integers(0, 8, size=(64, 2))
    ratings = ((ids[:, 0] + ids[:, 1]) % 2).astype("float32")
    optimizer = tf.keras.optimizers.SGD(2.0)
    users(tf.constant([0]))
    items(tf.constant([0]))
    before = users.embeddings.numpy()
    losses = []
    for _ in range(60):
        with tf.GradientTape() as tape:
            logits = tf.reduce_sum(users(ids[:, 0]) * items(ids[:, 1]), axis=1)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=ratings, logits=logits))
        variables = [users.embeddings, items.embeddings]
        gradients = tape.gradient(loss, variables)
        assert isinstance(gradients[0], tf.IndexedSlices)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        losses.append(float(loss))
    after = users.embeddings.numpy()
    assert np.array_equal(before[8:], after[8:])
    assert not np.allclose(before[:8], after[:8])
    assert losses[-1] < losses[0]


def test_compile_fit_evaluate_predict(tmp_path: Path) -> None:
    tf.keras.utils.set_random_seed(5)
    x, y = blobs(0)
    model = tf.keras.models.Sequential(
        [
            tf.keras.layers.Input(shape=(2,)),
            tf.keras.layers.Dense(16, activation="relu", kernel_regularizer=tf.keras.regularizers.l2(1e-4)),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.optimizer.learning_rate = 0.02
    stop = tf.keras.callbacks.EarlyStopping(monitor="val_loss", patience=5)
    history = model.fit(x, y, epochs=12, batch_size=16, validation_split=0.2, callbacks=[stop], verbose=0)
    assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    accuracy = model.evaluate(*blobs(1), verbose=0)[1]
    assert accuracy > 0.9
    probabilities = model.predict(x[:5], verbose=0)
    assert isinstance(probabilities, np.ndarray)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(5), rel=1e-5)

    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16).prefetch(tf.data.AUTOTUNE)
    assert dict(model.evaluate(dataset, verbose=0, return_dict=True)).keys() == {"loss", "accuracy"}
    model.fit(dataset.repeat(), epochs=1, steps_per_epoch=3, verbose=0)

    model.save_weights(tmp_path / "model.weights.h5")
    again = tf.keras.models.Sequential([type(layer).from_config(layer.get_config()) for layer in model.layers])
    again.build((None, 2))
    again.load_weights(tmp_path / "model.weights.h5")
    assert again.predict(x[:5], verbose=0) == pytest.approx(model.predict(x[:5], verbose=0))


def test_convolutional_classifier() -> None:
    """Bars that lie or stand, as the digits tutorials do it."""
    tf.random.set_seed(6)
    rng = np.random.default_rng(0)
    images = 0.1 * rng.normal(size=(80, 8, 8))
    labels = np.arange(80) % 2
    for image, label, place in zip(images, labels, rng.integers(1, 7, 80), strict=True):
        image[(place, slice(None)) if label else (slice(None), place)] += 1.0
    images = images[..., tf.newaxis].astype("float32")
    ds = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(80).batch(16)

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, 3, activation="relu", padding="same"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.01),
        loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0)],
    )
    history = model.fit(ds, epochs=6, verbose=0)
    assert history.history["binary_accuracy"][-1] > 0.9
    assert model.count_params() == 4 * 9 + 4 + 4 * 4 * 4 + 1


def test_gradient_accumulation_and_clipping() -> None:
    """Gradients of small batches, added up in Variables, make the step of the large batch."""
    w = tf.Variable([1.0, -1.0])
    x, y = tf.constant([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0], [2.0, 2.0]]), tf.constant([1.0, 2.0, 3.0, 4.0])
    accumulated = [tf.Variable(tf.zeros_like(w), trainable=False)]

    def loss(x: Any, y: Any) -> Any:
        return tf.reduce_sum((tf.linalg.matvec(x, w) - y) ** 2)

    for xs, ys in tf.data.Dataset.from_tensor_slices((x, y)).batch(2):
        with tf.GradientTape() as tape:
            value = loss(xs, ys)
        for total, g in zip(accumulated, tape.gradient(value, [w]), strict=True):
            total.assign_add(g)
    with tf.GradientTape() as tape:
        value = loss(x, y)
    whole = tape.gradient(value, w)
    assert accumulated[0].numpy() == pytest.approx(whole.numpy())

    clipped = [tf.clip_by_norm(g, 1.0) for g in accumulated]
    tf.keras.optimizers.SGD(1.0).apply_gradients(zip(clipped, [w], strict=True))
    assert w.numpy() == pytest.approx(np.array([1.0, -1.0]) - whole.numpy() / np.linalg.norm(whole.numpy()), rel=1e-5)


def test_a_callback_that_watches_what_is_not_there_says_so() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    plateau = tf.keras.callbacks.ReduceLROnPlateau(patience=1)
    with pytest.warns(UserWarning, match="ReduceLROnPlateau watches 'val_loss', which is not there; there are 'loss'"):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=1, verbose=0, callbacks=[plateau])


def test_a_vector_is_no_batch() -> None:
    with pytest.raises(ValueError, match=r"expected min_ndim=2, found ndim=1. Full shape received: \(3,\)"):
        tf.keras.layers.Dense(2)(tf.ones([3]))
