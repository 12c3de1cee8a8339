"""compile, fit, evaluate and predict: what they are given, what they return, what callbacks see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


layers, callbacks = tf.keras.layers, tf.keras.callbacks

X = np.linspace(-1.0, 1.0, 64, dtype="float32")[:, None]
Y = 2.0 * X + 1.0


@pytest.fixture(autouse=True)
def _seeded() -> None:
    tf.random.set_seed(0)


def line(**options: Any) -> Any:
    model = tf.keras.Sequential([layers.Dense(1)])
    model.compile(**{"optimizer": tf.keras.optimizers.SGD(0.1), "loss": "mse", **options})
    return model


def test_fit_finds_the_line() -> None:
    model = line(metrics=["mae"])
    history = model.fit(X, Y, epochs=60, batch_size=16, verbose=0, validation_data=(X[:8], Y[:8]))
    assert list(history.history) == ["loss", "mae", "val_loss", "val_mae"]
    assert len(history.history["loss"]) == 60
    assert history.history["loss"][-1] < 1e-4 < history.history["loss"][0]
    assert model.history is history
    np.testing.assert_allclose(model.layers[0].kernel, [[2.0]], atol=0.02)
    loss, error = model.evaluate(X, Y, verbose=0)
    assert loss < 1e-4
    assert model.evaluate(X, Y, verbose=0, return_dict=True) == {"loss": loss, "mae": error}
    assert type(model.predict(X, verbose=0)) is np.ndarray


def test_a_deep_network_learns_exclusive_or() -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32")
    y = np.array([0, 1, 1, 0])
    model = tf.keras.Sequential([layers.Dense(16, "tanh"), layers.Dense(2)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.optimizer.learning_rate = 0.05
    model.fit(x, y, epochs=200, verbose=0)
    assert model.evaluate(x, y, verbose=0)[1] == 1.0


def batches() -> Iterator[tuple[Any, Any]]:
    for k in range(0, 64, 16):
        yield X[k : k + 16], Y[k : k + 16]


class Endless:
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from batches()


@pytest.mark.parametrize("kind", ["arrays", "tensors", "lists", "dataset", "list of batches", "endless", "generator"])
def test_all_kinds_of_data(kind: str) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    data: Any = {
        "arrays": (X.astype("float64"), Y.astype("float64")),
        "tensors": (tf.constant(X), tf.constant(Y)),
        "lists": (X.tolist(), Y.tolist()),
        "dataset": (dataset,),
        "list of batches": (list(batches()),),
        "endless": (Endless(),),
        "generator": (iter(Endless()),),
    }[kind]
    steps = 4 if kind in ("endless", "generator") else None
    many = {"batch_size": 16} if len(data) == 2 else {"steps_per_epoch": steps}
    model = line()
    history = model.fit(*data, epochs=30, verbose=0, **many)
    assert history.history["loss"][-1] < 0.01
    if kind != "generator":
        seen = {"batch_size": 16} if len(data) == 2 else {"steps": steps}
        assert model.evaluate(*data, verbose=0, **seen) < 0.01
    assert model.predict(dataset.map(lambda x, y: x) if kind == "dataset" else X, verbose=0).shape == (64, 1)


def test_shuffling_is_decided_by_the_seed() -> None:
    class Firsts(callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.losses: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.losses.append(logs["loss"])

    def run(shuffle: bool) -> list[float]:
        tf.keras.utils.set_random_seed(3)
        first = Firsts()
        line().fit(X, Y, batch_size=8, epochs=2, shuffle=shuffle, callbacks=[first], verbose=0)
        assert len(first.losses) == 16
        return first.losses

    assert run(True) == run(True) != run(False)


def test_validation_is_split_from_the_end() -> None:
    seen: list[Any] = []

    class Sees(tf.keras.Model):
        def call(self, x: Any) -> Any:
            return x * 1.0

        def test_step(self, data: Any) -> Any:
            x, _ = data
            seen.append(x.numpy().ravel().tolist())
            return {"loss": 0.0}

        def train_step(self, data: Any) -> Any:
            return {"loss": tf.reduce_max(data[0])}

    model = Sees()
    model.compile()
    x = np.arange(10.0, dtype="float32")[:, None]
    history = model.fit(x, x, validation_split=0.2, epochs=1, verbose=0)
    assert seen == [[8.0, 9.0]]
    assert history.history == {"loss": [7.0], "val_loss": [0.0]}


def test_validation_now_and_then() -> None:
    history = line().fit(X, Y, epochs=4, verbose=0, validation_data=(X, Y), validation_freq=2)
    assert (len(history.history["loss"]), len(history.history["val_loss"])) == (4, 2)


def test_epochs_go_on_from_another() -> None:
    history = line().fit(X, Y, epochs=5, initial_epoch=3, verbose=0)
    assert history.epoch == [3, 4]


def test_callbacks_are_called_in_order() -> None:
    calls: list[Any] = []

    class Notes(callbacks.Callback):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("on_") and name not in ("on_batch_begin", "on_batch_end"):
                return lambda *args: calls.append((name, *(a for a in args if isinstance(a, int))))
            return super().__getattribute__(name)

    model = line()
    model.fit(X, Y, batch_size=32, verbose=0, callbacks=[Notes()], validation_data=(X[:4], Y[:4]))
    assert calls == [
        ("on_train_begin",),
        ("on_epoch_begin", 0),
        ("on_train_batch_begin", 0),
        ("on_train_batch_end", 0),
        ("on_train_batch_begin", 1),
        ("on_train_batch_end", 1),
        ("on_test_begin",),
        ("on_test_batch_begin", 0),
        ("on_test_batch_end", 0),
        ("on_test_end",),
        ("on_epoch_end", 0),
        ("on_train_end",),
    ]


def test_early_stopping_gives_the_best_weights_back() -> None:
    model = line(optimizer=tf.keras.optimizers.SGD(0.1))
    worse = callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: setattr(model.optimizer, "learning_rate", 0.1 if epoch < 5 else 3.0)
    )
    stopping = callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    history = model.fit(X, Y, epochs=50, shuffle=False, verbose=0, callbacks=[worse, stopping])
    assert len(history.epoch) < 50
    assert stopping.stopped_epoch == history.epoch[-1] == stopping.best_epoch + 2
    assert model.evaluate(X, Y, verbose=0) <= min(history.history["loss"])


def test_weights_of_the_best_epochs_are_written(tmp_path: Path) -> None:
    model = line()
    path = str(tmp_path / "{epoch:02d}.weights")
    every = callbacks.ModelCheckpoint(path, save_weights_only=True)
    best = callbacks.ModelCheckpoint(tmp_path / "best", "loss", save_best_only=True, save_weights_only=True)
    whole = callbacks.ModelCheckpoint(tmp_path / "whole.keras", "loss", save_best_only=True)
    log = callbacks.CSVLogger(tmp_path / "log.csv")
    model.fit(X, Y, epochs=3, verbose=0, callbacks=[every, best, whole, log])
    names = ["01.weights", "02.weights", "03.weights", "best", "log.csv", "whole.keras"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    again = tf.keras.models.load_model(tmp_path / "whole.keras")
    np.testing.assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))
    with pytest.raises(ValueError, match=r"must end in .keras; got 'model'"):
        callbacks.ModelCheckpoint("model")
    weights = model.get_weights()
    model.set_weights([np.zeros_like(w) for w in weights])
    model.load_weights(tmp_path / "best")
    np.testing.assert_array_equal(model.get_weights()[0], weights[0])
    head, *lines = (tmp_path / "log.csv").read_text().splitlines()
    assert (head, len(lines)) == ("epoch,loss", 3)


def test_a_run_ends_where_the_loss_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    model = line()
    model.build((None, 1))
    model.layers[0].kernel.assign([[np.nan]])
    history = model.fit(X, Y, epochs=3, verbose=0, callbacks=[callbacks.TerminateOnNaN()])
    assert len(history.epoch) == 1
    assert "Invalid loss, terminating training" in capsys.readouterr().out


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    model = line()
    model.fit(X, Y, epochs=2, batch_size=32, verbose=2)
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert (first, third) == ("Epoch 1/2", "Epoch 2/2")
    for text in (second, fourth):
        assert re.match(r"2/2 - \d+s - ", text)
        assert "/step - loss: " in text
    model.fit(X, Y, batch_size=32, verbose=1)
    bar = capsys.readouterr().out
    assert "━" * 20 in bar
    assert "\r" not in bar  # which is for terminals
    assert "\x1b" not in bar
    assert "2/2" in bar
    assert "loss: " in bar.splitlines()[-1]
    assert "Epoch" not in bar
    model.evaluate(X, Y, verbose=1)
    assert "2/2" in capsys.readouterr().out
    model.fit(X, Y, verbose=0)
    assert capsys.readouterr().out == ""


def test_single_batches() -> None:
    model = line(metrics=["mae"])
    first = model.train_on_batch(X, Y)
    assert len(first) == 2
    assert model.train_on_batch(X, Y, return_dict=True)["loss"] < first[0]
    model.reset_metrics()
    tested = model.test_on_batch(X, Y, return_dict=True)
    assert tested["mae"] == pytest.approx(float(np.abs(model.predict_on_batch(X) - Y).mean()), rel=1e-5)


def test_a_loss_may_be_a_function_or_none_at_all() -> None:
    model = line(loss=lambda y_true, y_pred: tf.reduce_mean(tf.abs(y_true - y_pred), axis=-1))
    assert model.fit(X, Y, epochs=40, verbose=0).history["loss"][-1] < 0.1

    class Penalized(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x: Any) -> Any:
            self.add_loss(tf.reduce_mean(self.dense(x) ** 2))
            return x

    own = Penalized()
    own.compile("sgd")
    losses = own.fit(X, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_compute_loss_may_be_overridden() -> None:
    class Own(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(1)
            self.tracker = tf.keras.metrics.Mean(name="size")

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
            self.tracker.update_state(tf.abs(y_pred))
            return tf.reduce_mean((y - y_pred) ** 4)

    model = Own()
    model.compile(tf.keras.optimizers.SGD(0.05))
    history = model.fit(X, Y, epochs=3, verbose=0).history
    assert list(history) == ["loss", "size"]
    assert history["loss"][-1] < history["loss"][0]


def test_a_model_of_two_optimizers() -> None:
    class Gan(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.generator = tf.keras.Sequential([layers.Dense(1)])
            self.critic = tf.keras.Sequential([layers.Dense(4, "relu"), layers.Dense(1)])

        def compile(self, first: Any, second: Any, loss: Any) -> None:
            super().compile()
            self.first, self.second, self.loss_fn = first, second, loss

        def train_step(self, real: Any) -> Any:
            noise = tf.random.normal((tf.shape(real)[0], 2))
            with tf.GradientTape() as tape:
                scores = self.critic(tf.concat([self.generator(noise), real], axis=0))
                labels = tf.concat([tf.zeros_like(real), tf.ones_like(real)], axis=0)
                loss = self.loss_fn(labels, scores)
            weights = self.critic.trainable_weights
            self.second.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            with tf.GradientTape() as tape:
                fooled = self.loss_fn(tf.ones_like(real), self.critic(self.generator(noise)))
            weights = self.generator.trainable_weights
            self.first.apply_gradients(zip(tape.gradient(fooled, weights), weights, strict=True))
            return {"critic": loss, "generator": fooled}

    model = Gan()
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.01), tf.keras.optimizers.Adam(0.01), loss)
    history = model.fit(Y, epochs=2, batch_size=16, verbose=0).history
    assert list(history) == ["critic", "generator"]
    assert all(np.isfinite(values).all() for values in history.values())


def test_metrics_held_by_a_model_are_reset_each_epoch() -> None:
    class Counts(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.examples = tf.keras.metrics.Sum(name="examples")

        def call(self, x: Any) -> Any:
            return x

        def train_step(self, data: Any) -> Any:
            self.examples.update_state(tf.ones((tf.shape(data[0])[0],)))
            return {"examples": self.examples.result()}

    model = Counts()
    model.compile()
    assert model.fit(X, Y, epochs=2, verbose=0).history == {"examples": [64.0, 64.0]}
    assert model.metrics_names == ["loss", "examples"]


def test_class_weights_of_one_batch() -> None:
    def build() -> Any:
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([layers.Dense(2)])
        model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    labels = (X[:, 0] > 0).astype("int64")
    weighted = build().train_on_batch(X, labels, class_weight={0: 1.0, 1: 3.0})
    assert weighted == pytest.approx(build().train_on_batch(X, labels, sample_weight=1.0 + 2.0 * labels), rel=1e-5)


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize(
    ("steps", "epochs"),
    [
        (1, [[0], [1], [2], [0]]),
        (2, [[0, 1], [2], [0, 1]]),
        (3, [[0, 1, 2], [0, 1, 2]]),
        (5, [[0, 1, 2], [0, 1, 2]]),
    ],
)
def test_epochs_of_so_many_steps_go_through_all_of_the_data(kind: str, steps: int, epochs: list[list[int]]) -> None:
    seen: list[list[int]] = []

    class Watching(tf.keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> dict[str, float]:
            seen[-1].append(int(data[0].numpy()[0, 0]) // 2)
            return {"loss": 0.0}

    start = tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append([]))
    model = Watching([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.arange(6.0).reshape(6, 1)
    short = any(len(epoch) < steps for epoch in epochs)
    with pytest.warns(UserWarning, match=f"ran out of data after . of {steps}") if short else nullcontext():
        if kind == "arrays":
            model.fit(x, x, 2, len(epochs), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[start])
        else:
            data = tf.data.Dataset.from_tensor_slices((x, x)).batch(2)
            model.fit(data, epochs=len(epochs), steps_per_epoch=steps, verbose=0, callbacks=[start])
    assert seen == epochs


def test_fit_runs_compiled_steps_with_the_same_results() -> None:
    class Model(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = tf.keras.layers.Dense(8, activation="relu")
            self.drop = tf.keras.layers.Dropout(0.2)
            self.norm = tf.keras.layers.BatchNormalization()
            self.out = tf.keras.layers.Dense(3)
            self.runs = 0

        def call(self, x: Any, training: bool = False) -> Any:
            self.runs += 1
            hidden = self.norm(self.drop(self.hidden(x), training=training), training=training)
            return self.out(hidden)

    def trained(run_eagerly: bool) -> tuple[Any, ...]:
        tf.random.set_seed(1)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(40, 4)).astype("float32"), rng.integers(0, 3, 40)
        model = Model()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"], run_eagerly=run_eagerly)
        history = model.fit(x, y, batch_size=8, epochs=3, verbose=0, validation_split=0.2)
        return (
            history.history,
            [w.tolist() for w in model.get_weights()],
            model.predict(x, verbose=0).tolist(),
            model.runs,
        )

    eager, compiled = trained(True), trained(False)
    assert compiled[:3] == eager[:3]
    assert eager[3] == 3 * (4 + 1) + 2
    assert compiled[3] < 8


def test_metrics_given_where_weights_of_losses_stand_are_told():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="loss_weights, the third argument, are numbers"):
        model.compile("sgd", "mse", ["mae"])
    assert not model.compiled


class Column:
    """A column of a table, with what pandas gives its own."""

    ndim = 1

    def __init__(self, values: list[Any]) -> None:
        self.values = np.array(values, object if isinstance(values[0], str) else None)
        self.dtype, self.shape = self.values.dtype, self.values.shape

    def to_numpy(self) -> Any:
        return self.values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values.astype(dtype or self.values.dtype)

    def __len__(self) -> int:
        return len(self.values)


def test_columns_of_a_table() -> None:
    table = {"age": Column([1, 2, 3, 4]), "word": Column(["red", "blue", "red", "blue"])}
    assert tf.constant(table["word"]).numpy().tolist() == [b"red", b"blue", b"red", b"blue"]
    assert next(iter(tf.data.Dataset.from_tensor_slices(table)))["word"].numpy() == b"red"

    class Joined(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.lookup = tf.keras.layers.StringLookup(vocabulary=["red", "blue"], output_mode="one_hot")
            self.join, self.dense = tf.keras.layers.Concatenate(axis=1), tf.keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:  # type: ignore[override]
            assert inputs["word"].shape[1:] == (1,), "a column is an input of one feature"
            return self.dense(self.join([tf.cast(inputs["age"], tf.float32), self.lookup(inputs["word"])]))

    model = Joined()
    model.compile(loss="mse")
    assert np.isfinite(model.fit(table, Column([1, 2, 3, 4]), verbose=0).history["loss"][0])
    assert model.predict(table, verbose=0).shape == (4, 1)
    assert model.predict({name: table[name] for name in ("age", "word")}, batch_size=3, verbose=0).shape == (4, 1)
