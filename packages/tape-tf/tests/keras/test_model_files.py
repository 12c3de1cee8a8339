"""Whole models in files: they come back with their weights, and go on training."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

layers = tf.keras.layers
X = np.linspace(-1.0, 1.0, 24, dtype="float32").reshape(8, 3)
Y = X.sum(axis=1, keepdims=True)


@tf.keras.saving.register_keras_serializable(package="Tests")
class Scaled(layers.Layer):
    """A layer with arguments, and a weight that is made when it is first called."""

    def __init__(self, units: int, activation: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.activation = tf.keras.activations.get(activation)

    def build(self, input_shape: Any) -> None:
        self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="random_normal", name="w")

    def call(self, x: Any) -> Any:
        return self.activation(x @ self.w)


@tf.keras.saving.register_keras_serializable()
class Residual(tf.keras.Model):
    """A model of its own class, whose arguments are not those of every layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = Scaled(width, activation="tanh")
        self.second = layers.Dense(3)

    def call(self, x: Any, training: Any = None) -> Any:
        return x + self.second(self.first(x))


def sequential() -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(3,)),
            layers.Dense(4, activation=tf.nn.relu, kernel_initializer=tf.keras.initializers.HeNormal(seed=3)),
            layers.Dense(4, kernel_regularizer=tf.keras.regularizers.L2(0.01), bias_constraint="non_neg"),
            layers.BatchNormalization(),
            Scaled(2, activation="sigmoid"),
            layers.Dropout(0.5),
            layers.Dense(1, trainable=False),
        ],
        name="chain",
    )


def functional() -> Any:
    a, b = tf.keras.Input(shape=(3,), name="a"), tf.keras.Input(shape=(3,), name="b")
    shared = layers.Dense(4, activation="tanh")
    joined = layers.Concatenate()([shared(a), shared(b)])
    return tf.keras.Model(inputs=[a, b], outputs=layers.Dense(1)(joined), name="twins")


def with_operators() -> Any:
    """Operators and indices on symbolic inputs are layers too."""
    a = tf.keras.Input(shape=(3,))
    x = 1.0 - layers.Dense(3)(a) * 2.0 + a
    x = layers.add([x[:, ::-1], a]) / (1.0 + abs(a[..., 0:1])) ** 2
    return tf.keras.Model(a, -x)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        pytest.param(sequential, X, id="Sequential"),
        pytest.param(functional, [X, -X], id="functional"),
        pytest.param(with_operators, X, id="operators"),
        pytest.param(lambda: Residual(5), X, id="class of its own"),
        pytest.param(lambda: tf.keras.Sequential([layers.Dense(2), Residual(2)][:1]), X, id="built by its first call"),
        pytest.param(
            lambda: tf.keras.Sequential(
                [layers.Embedding(8, 4), layers.Bidirectional(layers.LSTM(3)), layers.Dense(1)]
            ),
            np.arange(8).reshape(2, 4),
            id="of integers",
        ),
    ],
)
def test_a_model_comes_back(make: Any, inputs: Any, tmp_path: Path) -> None:
    model = make()
    expected = model(inputs)
    for k, weight in enumerate(model.weights):  # what it was initialised to would prove nothing
        weight.assign_add(tf.ones_like(weight) * 0.01 * (k + 1))
    expected = model(inputs)
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert np.array_equal(again(inputs).numpy(), expected.numpy())
    assert [w.shape for w in again.weights] == [w.shape for w in model.weights]
    assert len(again.trainable_weights) == len(model.trainable_weights)
    if make in (sequential, functional):
        assert again.name == model.name
        assert [layer.name for layer in again.layers] == [layer.name for layer in model.layers]


def test_parts_keep_their_arguments(tmp_path: Path) -> None:
    model = sequential()
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again.layers[3], Scaled)
    assert again.layers[4].rate == 0.5
    assert [float(loss) for loss in again.losses] == [float(loss) for loss in model.losses], "of the regularizer"
    assert len(again.losses) == 1
    assert again.layers[-1].trainable is False


def test_what_a_normalization_was_adapted_to_is_saved(tmp_path: Path) -> None:
    normalization = layers.Normalization(axis=-1)
    normalization.adapt(X)
    model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), normalization, layers.Dense(2)])
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert np.array_equal(again(X).numpy(), model(X).numpy())
    fresh = layers.Normalization.from_config(layers.Normalization(axis=0).get_config())
    with pytest.raises(ValueError, match="call adapt"):
        fresh(X)


def test_training_goes_on_where_it_was(tmp_path: Path) -> None:
    def make() -> Any:
        model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
        schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5)
        model.compile(
            optimizer=tf.keras.optimizers.Adam(schedule, clipnorm=1.0),
            loss=tf.keras.losses.Huber(delta=0.5),
            metrics=["mae", tf.keras.metrics.MeanSquaredError()],
        )
        return model

    model = make()
    model.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    model.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert int(again.optimizer.iterations) == 2
    again.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    for left, right in zip(again.weights, model.weights, strict=True):
        assert np.array_equal(left.numpy(), right.numpy())
    found = again.evaluate(X, Y, verbose=0, return_dict=True)
    assert found == pytest.approx(model.evaluate(X, Y, verbose=0, return_dict=True))
    assert not tf.keras.models.load_model(tmp_path / "model.keras", compile=False).compiled


@pytest.mark.parametrize(
    "make", [sequential, functional, lambda: Residual(2)], ids=["Sequential", "functional", "class"]
)
def test_a_copy_has_weights_of_its_own(make: Any) -> None:
    model = make()
    inputs = [X, -X] if make is functional else X
    expected = model(inputs)
    copy = tf.keras.models.clone_model(model)
    again = tf.keras.models.model_from_json(model.to_json())
    again(inputs)
    for other in (copy, again):
        assert not {id(w) for w in other.weights} & {id(w) for w in model.weights}
        other.set_weights(model.get_weights())
        assert np.array_equal(other(inputs).numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("space", "part"),
    [
        ("layers", layers.Conv2D(2, 3, activation="relu")),
        ("losses", tf.keras.losses.Huber(delta=0.5)),
        ("metrics", tf.keras.metrics.MeanSquaredError(name="m")),
        ("optimizers", tf.keras.optimizers.SGD(0.1, momentum=0.5)),
        ("optimizers.schedules", tf.keras.optimizers.schedules.PolynomialDecay(0.1, 10, power=2.0)),
        ("initializers", tf.keras.initializers.RandomNormal(stddev=0.1, seed=1)),
        ("regularizers", tf.keras.regularizers.L1L2(0.1, 0.2)),
        ("constraints", tf.keras.constraints.MaxNorm(3.0)),
        ("activations", tf.keras.activations.relu),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parts_as_dictionaries(space: str, part: Any) -> None:
    module = tf.keras
    for name in space.split("."):
        module = getattr(module, name)
    config = module.serialize(part)
    again = module.deserialize(json.loads(json.dumps(config)))
    assert type(again) is type(part)
    assert module.serialize(again) == config
    assert tf.keras.saving.deserialize_keras_object([config])[0].__class__ is type(part)


def test_the_file_holds_names_and_numbers(tmp_path: Path) -> None:
    sequential().save(tmp_path / "model.keras", save_format="tape")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        assert archive.namelist() == ["config.json", "model.weights.safetensors"]
        config = json.loads(archive.read("config.json"))
    assert config["model"]["class_name"] == "Sequential"
    assert config["model"]["config"]["layers"][3]["registered_name"] == "Tests>Scaled"


@pytest.mark.skipif(os.name != "posix", reason="links, rights and pipes are POSIX's")
def test_what_stands_where_a_model_is_saved(tmp_path: Path) -> None:
    model = sequential()
    path, link = tmp_path / "1.keras", tmp_path / "latest.keras"
    link.symlink_to(path)
    model.save(link)
    assert link.is_symlink(), "as for save_weights"
    path.chmod(0o600)
    model.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.mkfifo(tmp_path / "pipe.keras")
    with pytest.raises(OSError, match=r"save: only a file can be replaced.*pipe\.keras"):
        model.save(tmp_path / "pipe.keras")
    assert stat.S_ISFIFO((tmp_path / "pipe.keras").stat().st_mode)
    with pytest.raises(FileNotFoundError, match=r"save: there is no folder .*missing"):
        model.save(tmp_path / "missing" / "1.keras")
    assert sorted(os.listdir(tmp_path)) == ["1.keras", "latest.keras", "pipe.keras"]


def test_classes_that_are_not_registered_must_be_given(tmp_path: Path) -> None:
    class Hidden(layers.Layer):
        def call(self, x: Any) -> Any:
            return 2.0 * x

    model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), Hidden()])
    model.save(tmp_path / "model.keras")
    with pytest.raises(TypeError, match=r"'Hidden'.*register_keras_serializable"):
        tf.keras.models.load_model(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras", custom_objects={"Hidden": Hidden})
    assert np.array_equal(again(X).numpy(), 2.0 * X)
    with tf.keras.utils.custom_object_scope({"Hidden": Hidden}):
        tf.keras.models.load_model(tmp_path / "model.keras")


def test_mistakes(tmp_path: Path) -> None:
    model = sequential()
    with pytest.raises(ValueError, match=r"must end in \.keras"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model.keras")
    with pytest.raises(FileExistsError):
        model.save(tmp_path / "model.keras", overwrite=False)
    with pytest.raises(ValueError, match="no weights yet"):
        tf.keras.Sequential([layers.Dense(2)]).save(tmp_path / "other.keras")
    with pytest.raises(TypeError, match="a function with a name"):
        tf.keras.Sequential([tf.keras.Input(shape=(3,)), layers.Lambda(lambda x: x)]).save(tmp_path / "other.keras")
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"], "what failed leaves nothing behind"

    (tmp_path / "text.keras").write_text("no zip")
    with pytest.raises(ValueError, match="damaged"):
        tf.keras.models.load_model(tmp_path / "text.keras")
    with zipfile.ZipFile(tmp_path / "other.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match="not written by this library"):
        tf.keras.models.load_model(tmp_path / "other.keras")
    with pytest.raises(FileNotFoundError):
        tf.keras.models.load_model(tmp_path / "none.keras")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            b"loop",
            r"^config\['marks'\] of Marked 'own': b'loop' cannot be saved, since it is of type bytes: use None, ",
        ),
        ({"a": ["x", b"loop"]}, r"^config\['marks'\]\['a'\]\[1\] of Marked 'own': b'loop' cannot be saved"),
        (({1, 2},), r"^config\['marks'\]\[0\] of Marked 'own': \{1, 2\} .* of type set"),
        ({1: 2}, r"^config\['marks'\] of Marked 'own': a dictionary with keys that are not text"),
        (lambda x: x, r"^config\['marks'\] of Marked 'own': .*write a function with a name"),
        (Path("a"), r"^config\['marks'\] of Marked 'own': .* classes with get_config"),
    ],
)
@pytest.mark.parametrize("save", [tf.saved_model.save, lambda model, path: model.save(path / "model.keras")])
def test_what_cannot_be_saved_is_named_with_its_place(save: Any, given: Any, message: str, tmp_path: Path) -> None:
    class Marked(layers.Layer):
        def __init__(self, marks: Any, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.marks = marks

        def call(self, x: Any) -> Any:
            return x

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "marks": self.marks}

    model = tf.keras.Sequential([layers.Input((3,)), layers.Dense(2), Marked(given, name="own")])
    with pytest.raises(TypeError, match=message):
        save(model, tmp_path)


def test_a_file_names_nothing_but_layers_and_what_is_registered(tmp_path: Path) -> None:
    """A name from elsewhere, such as one of Python's own functions, is not looked up."""
    sequential().save(tmp_path / "model.keras", save_format="tape")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        config = archive.read("config.json").decode()
        weights = archive.read("model.weights.safetensors")
    for space in ("os", "layers.base", "../os"):
        evil = json.loads(config)
        evil["model"]["config"]["layers"][0] |= {"module": space, "class_name": "system", "registered_name": "system"}
        with zipfile.ZipFile(tmp_path / "evil.keras", "w") as archive:
            archive.writestr("config.json", json.dumps(evil))
            archive.writestr("model.weights.safetensors", weights)
        with pytest.raises(TypeError, match="Could not locate 'system'"):
            tf.keras.models.load_model(tmp_path / "evil.keras")
