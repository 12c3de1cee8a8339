"""Models and weights written in the HDF5 layout of Keras 2, for Keras and for the façade itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

h5py = pytest.importorskip("h5py")
layers = tf.keras.layers
X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


def plain() -> Any:
    norm = layers.BatchNormalization(name="norm")
    return tf.keras.Sequential(
        [layers.Input((3,)), layers.Dense(2, name="hidden"), norm, layers.Dense(1, name="last")], name="plain"
    )


def built_late() -> Any:
    model = tf.keras.Sequential([layers.Dense(4, activation="relu"), layers.Dense(1)])
    model(tf.constant(X))
    return model


def graph() -> Any:
    x = tf.keras.Input((3,))
    hidden = layers.Dense(4, activation="tanh")(x)
    return tf.keras.Model(x, layers.Dense(1)(layers.Add()([hidden, layers.Dense(4)(hidden)])))


def nested() -> Any:
    inner = tf.keras.Sequential([layers.Input((3,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(3)])
    return tf.keras.Sequential([layers.Input((3,)), inner, layers.Dense(1)])


MODELS = [plain, built_late, graph, nested]


def trained(make: Any) -> Any:
    model = make()
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(X, Y, epochs=2, verbose=0)
    return model


@pytest.mark.each_backend
@pytest.mark.parametrize("make", MODELS)
def test_a_model_saved_as_h5_is_read_again_and_trains_on(make: Any, tmp_path: Path) -> None:
    model = trained(make)
    model.save(tmp_path / "model.h5")
    again = tf.keras.models.load_model(tmp_path / "model.h5")
    np.testing.assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))
    for one in (model, again):
        one.fit(X, Y, epochs=1, verbose=0, shuffle=False)
    # Adam's first step would be another one: the moments are in the file.
    for found, expected in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_layout_is_that_of_keras_2(tmp_path: Path) -> None:
    trained(plain).save(tmp_path / "model.hdf5")
    with h5py.File(tmp_path / "model.hdf5") as file:
        assert set(file.attrs) == {"backend", "keras_version", "model_config", "training_config"}
        training = json.loads(file.attrs["training_config"])
        assert training["optimizer_config"]["class_name"] == "Adam"
        assert training["loss"] == "mean_squared_error"  # Keras does not find the short name in such a file
        assert set(file) == {"model_weights", "optimizer_weights"}
        assert list(file["model_weights"].attrs["layer_names"]) == ["hidden", "norm", "last"]
        names = list(file["model_weights/norm"].attrs["weight_names"])
        assert [name.rpartition("/")[2].partition(":")[0] for name in names] == [
            "gamma",
            "beta",
            "moving_mean",
            "moving_variance",
        ]
        assert file["model_weights/hidden"][file["model_weights/hidden"].attrs["weight_names"][0]].shape == (3, 2)
        assert len(file["optimizer_weights"].attrs["weight_names"]) == 2 + 2 * 6


@pytest.mark.each_backend
def test_weights_alone_under_a_name_of_keras_2(tmp_path: Path) -> None:
    model = trained(nested)
    model.save_weights(tmp_path / "weights.h5")
    with h5py.File(tmp_path / "weights.h5") as file:
        assert "layer_names" in file.attrs
    again = nested()
    again.load_weights(tmp_path / "weights.h5")
    np.testing.assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))


def test_statistics_of_a_normalization_are_kept(tmp_path: Path) -> None:
    norm = layers.Normalization()
    norm.adapt(X)
    model = tf.keras.Sequential([layers.Input((3,)), norm, layers.Dense(1)])
    expected = model.predict(X, verbose=0)
    model.save(tmp_path / "model.h5")
    model.save_weights(tmp_path / "weights.h5")
    np.testing.assert_allclose(tf.keras.models.load_model(tmp_path / "model.h5").predict(X, verbose=0), expected, 1e-5)
    other = tf.keras.Sequential(
        [layers.Input((3,)), layers.Normalization(mean=[0.0] * 3, variance=[1.0] * 3), layers.Dense(1)]
    )
    other.load_weights(tmp_path / "weights.h5")
    np.testing.assert_allclose(other.predict(X, verbose=0), expected, 1e-5)


def test_models_that_the_format_has_no_room_for_are_refused(tmp_path: Path) -> None:
    @tf.keras.utils.register_keras_serializable("legacy")
    class Own(tf.keras.Model):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.dense = layers.Dense(1)
            self.scale = tf.Variable(2.0)

        def call(self, x: Any) -> Any:
            return self.dense(x) * self.scale

    model = Own()
    model(tf.constant(X))
    with pytest.raises(TypeError, match=r"of class Own: give the file a name that ends in \.keras"):
        model.save(tmp_path / "model.h5")
    with pytest.raises(TypeError, match="weights of its own"):
        model.save_weights(tmp_path / "weights.h5")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="leave save_format out"):
        trained(plain).save(tmp_path / "model.h5", save_format="keras")


def test_keras_reads_the_files(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    for make in MODELS:
        model = trained(make)
        model.save(tmp_path / f"{make.__name__}.h5")
        np.save(tmp_path / f"{make.__name__}.npy", model.predict(X, verbose=0))
        model.save_weights(tmp_path / f"{make.__name__}_weights.h5")
    np.save(tmp_path / "x.npy", X)
    program = f"""
import keras, numpy as np
x = np.load("x.npy")
for name in {[make.__name__ for make in MODELS]}:
    model = keras.models.load_model(name + ".h5")
    assert int(model.optimizer.iterations) == 2
    again = keras.models.clone_model(model)
    again.load_weights(name + "_weights.h5")
    for one in (model, again):
        np.testing.assert_allclose(one.predict(x, verbose=0), np.load(name + ".npy"), rtol=1e-5, atol=1e-6)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
