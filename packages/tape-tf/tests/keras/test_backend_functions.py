"""The functions of tf.keras.backend, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_tf as tf

K: Any = tf.keras.backend
A = np.arange(1.0, 7.0, dtype="float32").reshape(2, 3)
P = np.array([[0.2, 0.8], [0.6, 0.4]], "float32")
T = np.array([[0.0, 1.0], [1.0, 0.0]], "float32")


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        pytest.param(lambda: K.mean(A, axis=-1, keepdims=True), A.mean(-1, keepdims=True), id="mean"),
        pytest.param(lambda: K.sum(A), A.sum(), id="sum"),
        pytest.param(lambda: K.std(A, axis=0), A.std(0), id="std"),
        pytest.param(lambda: K.var(A, axis=0), A.var(0), id="var"),
        pytest.param(lambda: K.max(A, 1), A.max(1), id="max"),
        pytest.param(lambda: K.argmax(A), [2, 2], id="argmax"),
        pytest.param(lambda: K.argmin(A), [0, 0], id="argmin"),
        pytest.param(lambda: K.clip(A, 2.0, 4.0), A.clip(2, 4), id="clip"),
        pytest.param(lambda: K.concatenate([A, A]), np.concatenate([A, A], -1), id="concatenate"),
        pytest.param(lambda: K.dot(A, A.T), A @ A.T, id="dot"),
        pytest.param(lambda: K.dot(np.ones((2, 4, 3), "float32"), A.T), np.ones((2, 4, 3)) @ A.T, id="dot, three"),
        pytest.param(lambda: K.expand_dims(A), A[..., None], id="expand_dims"),
        pytest.param(lambda: K.flatten(A), A.ravel(), id="flatten"),
        pytest.param(lambda: K.batch_flatten(np.ones((2, 3, 4), "float32")), np.ones((2, 12)), id="batch_flatten"),
        pytest.param(lambda: K.gather(A, [1]), A[[1]], id="gather"),
        pytest.param(lambda: K.l2_normalize(A, axis=1), A / np.linalg.norm(A, axis=1)[:, None], id="l2_normalize"),
        pytest.param(lambda: K.one_hot([1, 0], 3), [[0, 1, 0], [1, 0, 0]], id="one_hot"),
        pytest.param(lambda: K.permute_dimensions(A, (1, 0)), A.T, id="permute_dimensions"),
        pytest.param(lambda: K.relu(A - 3.0), np.maximum(A - 3, 0), id="relu"),
        pytest.param(lambda: K.relu(A - 3.0, alpha=0.5, max_value=2.0), [[-1, -0.5, 0], [1, 2, 2]], id="relu, leaky"),
        pytest.param(lambda: K.repeat_elements(A, 2, 1), A.repeat(2, 1), id="repeat_elements"),
        pytest.param(lambda: K.reshape(A, (3, 2)), A.reshape(3, 2), id="reshape"),
        pytest.param(lambda: K.reverse(A, 1), A[:, ::-1], id="reverse"),
        pytest.param(lambda: K.sqrt(A - 2.0), np.sqrt(np.maximum(A - 2, 0)), id="sqrt"),
        pytest.param(lambda: K.squeeze(A[None], 0), A, id="squeeze"),
        pytest.param(lambda: K.switch(A > 2.0, A, -A), np.where(A > 2, A, -A), id="switch"),
        pytest.param(lambda: K.switch(A[:, 0] > 2.0, A, -A), [[-1, -2, -3], [4, 5, 6]], id="switch of rows"),
        pytest.param(lambda: K.switch(True, lambda: A, lambda: 1 / 0), A, id="switch of functions"),
        pytest.param(lambda: K.binary_crossentropy(T, P), -np.log(np.where(T > 0, P, 1 - P)), id="binary_crossentropy"),
        pytest.param(lambda: K.categorical_crossentropy(T, P), [-np.log(0.8), -np.log(0.6)], id="categorical"),
        pytest.param(lambda: K.sparse_categorical_crossentropy([1, 0], P), [-np.log(0.8), -np.log(0.6)], id="sparse"),
        pytest.param(lambda: K.softmax(A), np.exp(A) / np.exp(A).sum(1, keepdims=True), id="softmax"),
        pytest.param(lambda: K.cumsum(A, axis=1), A.cumsum(1), id="cumsum"),
        pytest.param(lambda: K.all(A > 0.0), True, id="all"),
        pytest.param(lambda: K.cast(A, "int32"), A.astype(int), id="cast"),
        pytest.param(lambda: K.constant([1, 2]), [1.0, 2.0], id="constant"),
    ],
)
def test_values(ours: Any, expected: Any) -> None:
    found = ours()
    assert isinstance(found, tf.Tensor)
    assert found.numpy() == pytest.approx(np.asarray(expected), abs=1e-5)
    assert found.shape == np.shape(expected)


def test_variables() -> None:
    v = K.variable([1, 2])
    assert (K.dtype(v), K.int_shape(v), K.ndim(v)) == ("float32", (2,), 1)
    K.update_add(v, [1.0, 1.0])
    K.update_sub(v, [0.0, 1.0])
    assert K.get_value(v).tolist() == [2.0, 2.0]
    K.set_value(v, [7.0, 8.0])
    K.update(v, K.constant([5.0, 6.0]))
    assert K.eval(v).tolist() == [5.0, 6.0]
    assert isinstance(K.zeros((2,)), tf.Variable)
    assert K.ones((2,), dtype="float64").dtype == tf.float64


def test_random_numbers() -> None:
    assert K.random_normal((200,), mean=3.0, stddev=0.1).numpy().mean() == pytest.approx(3.0, abs=0.05)
    drawn = K.random_uniform((200,), 1.0, 2.0).numpy()
    assert 1.0 <= drawn.min() <= drawn.max() < 2.0


def test_a_loss_written_with_them() -> None:
    """As older programs have it: the dice coefficient."""

    def dice(y_true: Any, y_pred: Any, smooth: float = 1.0) -> Any:
        truth, found = K.flatten(y_true), K.flatten(y_pred)
        overlap = K.sum(truth * found)
        return 1.0 - (2.0 * overlap + smooth) / (K.sum(truth) + K.sum(found) + smooth)

    model = tf.keras.Sequential([tf.keras.layers.Dense(2, activation="sigmoid")])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.1), loss=dice)
    losses = model.fit(A, T, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
