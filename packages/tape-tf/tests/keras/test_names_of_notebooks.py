"""Names of Keras 2 and 3 that notebooks use beside layers and models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_tf as tf

keras = tf.keras
ops = keras.ops

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)

FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "sum": (lambda: ops.sum(X, 1), X.sum(1)),
    "mean": (lambda: ops.mean(X, axis=0, keepdims=True), X.mean(0, keepdims=True)),
    "matmul": (lambda: ops.matmul(X, ops.transpose(X)), X @ X.T),
    "a number first": (lambda: ops.multiply(2, X), 2 * X),
    "concatenate": (lambda: ops.concatenate([X, X], axis=-1), np.concatenate([X, X], -1)),
    "stack": (lambda: ops.stack([X, X], axis=1), np.stack([X, X], 1)),
    "split": (lambda: ops.split(X, [1, 2], axis=1)[1], X[:, 1:2]),
    "split evenly": (lambda: ops.split(X, 3, axis=1)[2], X[:, 2:]),
    "take": (lambda: ops.take(X, [2, 0], axis=0), X[[2, 0]]),
    "where": (lambda: ops.where(X > 0, X, 0.0), np.where(X > 0, X, 0)),
    "indices": (lambda: ops.where(X[:, 0] > 0)[0], np.nonzero(X[:, 0] > 0)[0]),
    "cumsum": (lambda: ops.cumsum(X, axis=0), X.cumsum(0)),
    "pad": (lambda: ops.pad(X, ((0, 1), (0, 0)), constant_values=2.0), np.pad(X, ((0, 1), (0, 0)), constant_values=2)),
    "diag": (lambda: ops.diag(X[0], k=1), np.diag(X[0], k=1)),
    "diagonal": (lambda: ops.diag(X[:3]), np.diag(X[:3])),
    "swapaxes": (lambda: ops.swapaxes(X[None], 0, 2), X[None].swapaxes(0, 2)),
    "einsum": (lambda: ops.einsum("ij,kj->ik", X, X), X @ X.T),
    "norm": (lambda: ops.norm(X, axis=-1), np.linalg.norm(X, axis=-1)),
    "dot": (lambda: ops.dot(X, X[0]), X @ X[0]),
    "one_hot": (lambda: ops.one_hot([0, 2], 3), np.eye(3)[[0, 2]]),
    "cast": (lambda: ops.cast(X, "int32"), X.astype("int32")),
    "zeros": (lambda: ops.zeros((2, 1), "int32"), np.zeros((2, 1))),
    "full": (lambda: ops.full((2,), 3), [3.0, 3.0]),
    "arange": (lambda: ops.arange(1, 4), [1, 2, 3]),
    "tile": (lambda: ops.tile(X, (2, 1)), np.tile(X, (2, 1))),
    "rsqrt": (lambda: ops.rsqrt(ops.square(X)), 1 / abs(X)),
    "softmax": (lambda: ops.softmax(X), np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
    "top_k": (lambda: ops.top_k(X, 2)[0], -np.sort(-X, axis=-1)[:, :2]),
    "squeeze": (lambda: ops.squeeze(X[:, None]), X),
    "vectorized_map": (lambda: ops.vectorized_map(lambda x: x * ops.sum(x), X), X * X.sum(1, keepdims=True)),
    "cond": (lambda: ops.cond(True, lambda: ops.abs(X), lambda: Y), abs(X)),
    "binary_crossentropy": (lambda: ops.binary_crossentropy([[1.0]], [[0.5]]), [np.log(2)]),
}


@pytest.mark.each_backend
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_keras_ops(name: str) -> None:
    call, expected = FUNCTIONS[name]
    found = call()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert isinstance(found, tf.Tensor)


def test_functions_of_keras_ops_on_symbolic_tensors() -> None:
    inputs = keras.Input((3,))
    outputs = ops.concatenate([ops.exp(inputs), ops.sum(inputs, axis=1, keepdims=True)], axis=-1)
    assert outputs.shape == (None, 4)
    model = keras.Model(inputs, outputs)
    np.testing.assert_allclose(model(X), np.concatenate([np.exp(X), Y], -1), rtol=1e-5)


def test_gradients_and_compiled_functions_of_keras_ops() -> None:
    x = tf.Variable(X)

    @tf.function
    def gradient() -> Any:
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(ops.matmul(x, ops.ones((3, 1)))))
        return tape.gradient(loss, x)

    np.testing.assert_allclose(gradient(), np.broadcast_to(2 * Y / 8, X.shape), rtol=1e-5)


@pytest.mark.each_backend
def test_random_tensors() -> None:
    random = keras.random
    np.testing.assert_array_equal(random.normal((3,), seed=1), random.normal((3,), seed=1))
    seed = random.SeedGenerator(1)
    assert not np.array_equal(random.normal((3,), seed=seed), random.normal((3,), seed=seed))
    assert abs(float(tf.reduce_mean(random.normal((4000,), mean=5.0, stddev=0.1, seed=0))) - 5) < 0.01
    uniform = random.uniform((1000,), -1, 2, seed=0).numpy()
    assert (uniform.min() >= -1, uniform.max() < 2, uniform.max() > 1.9) == (True, True, True)
    assert np.abs(random.truncated_normal((1000,), seed=0).numpy()).max() <= 2
    assert set(random.randint((100,), 2, 5, seed=0).numpy()) == {2, 3, 4}
    drawn = random.categorical(np.log([[0.1, 0.6, 0.3]]).astype("float32"), 4000, seed=0).numpy()
    np.testing.assert_allclose(np.bincount(drawn[0]) / 4000, [0.1, 0.6, 0.3], atol=0.03)
    assert sorted(random.shuffle(np.arange(9), seed=0).numpy()) == list(range(9))
    assert set(np.unique(random.dropout(np.ones((50,), "float32"), 0.5, seed=0))) == {0.0, 2.0}
    keras.utils.set_random_seed(4)
    first = random.uniform((2,))
    keras.utils.set_random_seed(4)
    np.testing.assert_array_equal(random.uniform((2,)), first)


def test_reductions_of_keras_2() -> None:
    loss = keras.losses.MeanSquaredError(reduction=keras.losses.Reduction.NONE)
    np.testing.assert_allclose(loss(Y, 0 * Y), Y[:, 0] ** 2, rtol=1e-6)
    total = keras.losses.MeanSquaredError(reduction=keras.losses.Reduction.SUM)
    np.testing.assert_allclose(total(Y, 0 * Y), (Y**2).sum(), rtol=1e-5)
    assert keras.losses.MeanSquaredError(reduction="auto")(Y, Y) == 0


def test_metrics_and_optimizers_of_keras_2() -> None:
    mean = keras.metrics.Mean()
    mean(3.0)
    mean.reset_states()
    assert float(mean.result()) == 0
    assert isinstance(keras.optimizers.legacy.Adam(0.1), keras.optimizers.Adam)


def test_a_bar_of_progress(capsys: Any) -> None:
    bar = keras.utils.Progbar(4, stateful_metrics=["last"])
    for step in range(4):
        bar.add(1, [("loss", step), ("last", step)])
    text = capsys.readouterr().out
    assert "4/4" in text
    assert "loss: 1.5000" in text
    assert "last: 3.0000" in text
    silent = keras.utils.Progbar(None, verbose=0)
    silent.update(3, [("loss", 1.0)], finalize=True)
    assert capsys.readouterr().out == ""


def made() -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.each_backend
def test_an_interrupted_fit_goes_on(tmp_path: Any) -> None:
    options: dict[str, Any] = {"epochs": 5, "batch_size": 4, "shuffle": False, "verbose": 0}
    whole = made()
    expected = whole.fit(X, Y, **options).history["loss"]
    backup = tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt):
        made().fit(X, Y, callbacks=[keras.callbacks.BackupAndRestore(backup), Interrupt()], **options)
    assert [path.name for path in backup.iterdir()] == ["1"]
    again = made()
    history = again.fit(X, Y, callbacks=[keras.callbacks.BackupAndRestore(backup)], **options)
    assert history.epoch == [2, 3, 4]
    np.testing.assert_allclose(history.history["loss"], expected[2:], rtol=1e-5)
    np.testing.assert_allclose(again.get_weights()[0], whole.get_weights()[0], rtol=1e-5)
    assert not list(backup.iterdir())


def test_a_backup_for_a_model_without_weights(tmp_path: Any) -> None:
    backup = keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False, save_freq=1)
    made().fit(X, Y, epochs=1, verbose=0, callbacks=[backup])
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="no weights yet to restore: call it once"):
        model.fit(X, Y, epochs=2, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(tmp_path)])


def test_steps_of_an_iterator() -> None:
    model = made()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    batches = iter(data.repeat())
    step = model.make_train_function()
    losses = [float(step(batches)["loss"]) for _ in range(200)]
    assert losses[-1] < losses[0]
    assert set(model.make_test_function()(batches)) == {"loss"}
    assert model.make_predict_function()(iter(data.map(lambda x, y: x))).shape == (4, 1)


def test_the_arguments_of_compile() -> None:
    model = made()
    config = model.get_compile_config()
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    assert other.get_compile_config() is None
    other.compile_from_config(config)
    assert float(other.optimizer.learning_rate) == pytest.approx(0.01)
    assert other.loss == "mse"


@pytest.mark.each_backend
def test_windows_of_a_time_series() -> None:
    series, targets = np.arange(20).reshape(10, 2), np.arange(10) * 10
    windows = keras.utils.timeseries_dataset_from_array
    options: dict[str, Any] = {"sequence_length": 2, "sampling_rate": 3, "sequence_stride": 2, "batch_size": 3}
    found = list(windows(series, targets, **options))
    expected = [(series[[k, k + 3]], targets[k]) for k in range(0, 7, 2)]
    assert [len(x) for x, _ in found] == [3, 1]
    np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), [x for x, _ in expected])
    np.testing.assert_array_equal(np.concatenate([y for _, y in found]), [y for _, y in expected])
    single = list(windows(series, None, 3, batch_size=None, start_index=2, end_index=7))
    np.testing.assert_array_equal(single, [series[k : k + 3] for k in (2, 3, 4)])
    shuffled = windows(np.arange(30), None, 1, batch_size=30, shuffle=True, seed=1)
    first, second = (next(iter(shuffled)).numpy().ravel() for _ in range(2))
    assert sorted(first) == list(range(30))
    assert not np.array_equal(first, second)
    with pytest.raises(ValueError, match="windows of 9 steps at a rate of 2 do not fit into 10 steps"):
        windows(series, None, 9, sampling_rate=2)


def test_batches_by_number() -> None:
    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        ended = 0

        def __len__(self) -> int:
            return 2

        def __getitem__(self, k: int) -> Any:
            return X[4 * k : 4 * k + 4], Y[4 * k : 4 * k + 4]

        def on_epoch_end(self) -> None:
            self.ended += 1

    data = Batches(workers=2)
    expected = made().fit(X, Y, batch_size=4, shuffle=False, epochs=2, verbose=0).history
    assert made().fit(data, epochs=2, verbose=0).history == expected
    assert data.ended == 2
    assert made().predict(data, verbose=0).shape == (8, 1)
