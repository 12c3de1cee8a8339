"""tf.saved_model: Keras models in folders, called, served and trained again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

layers = tf.keras.layers
X = np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(4, 3)


@tf.keras.saving.register_keras_serializable(package="SavedModel")
class Twice(tf.keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = layers.Dense(2)

    def call(self, x: Any) -> Any:
        return {"twice": 2.0 * self.dense(x)}


@pytest.mark.each_backend
def test_a_model_is_called_served_and_trained_again(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,), name="x"), layers.Dropout(0.5), layers.Dense(2)])
    expected = model(X).numpy()
    tf.saved_model.save(model, tmp_path / "a" / "b")
    assert tf.saved_model.contains_saved_model(tmp_path / "a" / "b")
    again = tf.saved_model.load(tmp_path / "a" / "b")
    serve = again.signatures["serving_default"]
    np.testing.assert_allclose(again(X), expected, rtol=1e-6)
    np.testing.assert_allclose(again.serve(X), expected, rtol=1e-6)
    for found in (serve(x=X), serve(tf.constant(X))):
        np.testing.assert_allclose(found["output_0"], expected, rtol=1e-6)
    assert serve.structured_input_signature == ((), {"x": tf.TensorSpec([None, 3], tf.float32, "x")})
    assert list(serve.structured_outputs) == ["output_0"]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(again(X) ** 2)
    kernel, bias = again.trainable_variables
    tf.keras.optimizers.SGD(0.1).apply_gradients(zip(tape.gradient(loss, [kernel, bias]), [kernel, bias], strict=True))
    assert float(tf.reduce_sum(serve(x=X)["output_0"] ** 2)) < float(loss)
    with pytest.raises(TypeError, match="takes x; got y"):
        serve(y=X)


def test_models_of_every_kind(tmp_path: Path) -> None:
    a, b = tf.keras.Input((3,), name="a"), tf.keras.Input((3,), dtype="int32", name="b")
    graph = tf.keras.Model({"a": a, "b": b}, [layers.Dense(1)(a), layers.Embedding(5, 2)(b)])
    graph.export(tmp_path / "graph")
    ids = np.ones((4, 3), "int64")
    served = tf.saved_model.load(tmp_path / "graph").signatures["serving_default"](b=ids, a=X)
    for found, expected in zip(served.values(), graph({"a": X, "b": ids}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    custom = Twice()
    expected = custom(X)["twice"]
    custom.export(tmp_path / "custom")
    again = tf.saved_model.load(tmp_path / "custom")
    np.testing.assert_allclose(again.signatures["serving_default"](inputs=X)["twice"], expected, rtol=1e-6)
    np.testing.assert_allclose(again(X)["twice"], expected, rtol=1e-6)


def test_what_is_not_saved_and_not_read(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(ValueError, match="whose call is the signature 'serving_default'"):
        tf.saved_model.save(model, tmp_path / "x", signatures=tf.function(lambda x: x))
    with pytest.raises(ValueError, match="no weights yet"):
        tf.saved_model.save(tf.keras.Sequential([layers.Dense(2)]), tmp_path / "x")
    with pytest.raises(ValueError, match="only the format 'tf_saved_model'"):
        model.export(tmp_path / "x", format="onnx")
    assert list(tmp_path.iterdir()) == []
    assert not tf.saved_model.contains_saved_model(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        tf.saved_model.load(tmp_path / "x")
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match="a graph of TensorFlow, which is not run"):
        tf.saved_model.load(tmp_path)
    model.export(tmp_path)
    path = tmp_path / "saved_model.json"
    good = path.read_text()
    content = json.loads(good)
    content["signatures"]["serving_default"]["inputs"][0][1] = [None, 4]
    for text in (json.dumps(content), good[:-9], "[]", "{}", good.replace("float32", "float99"), "\0"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"saved_model\.json' is damaged, or was not"):
            tf.saved_model.load(tmp_path)
