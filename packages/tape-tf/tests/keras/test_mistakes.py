"""What tf.keras says of mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

keras, layers = tf.keras, tf.keras.layers

X, Y = np.ones((3, 4), "float32"), np.ones((3, 1), "float32")


def built() -> Any:
    layer = layers.Dense(2, name="hidden")
    layer.build((None, 4))
    return layer


def model(**options: Any) -> Any:
    made = keras.Sequential([layers.Dense(1)])
    made.compile(**{"optimizer": "sgd", "loss": "mse", **options})
    return made


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a weight too early": (
        lambda: layers.Dense(2).kernel,
        AttributeError,
        "You must build the layer before accessing `kernel`",
    ),
    "counting too early": (lambda: layers.Dense(2, name="d").count_params(), ValueError, "layer 'd'.* isn't built"),
    "replacing a weight": (lambda: setattr(built(), "kernel", 1), AttributeError, r"kernel\.assign"),
    "other features": (lambda: built()(np.ones((3, 5))), ValueError, r"built for inputs with 4 numbers .* \(3, 5\)"),
    "no such attribute": (lambda: built().foo, AttributeError, "'Dense' object has no attribute 'foo'"),
    "no input": (lambda: built().input, AttributeError, "hidden has never been called on a tf.keras.Input"),
    "no units": (lambda: layers.Dense(0), ValueError, "units must be at least 1; got 0"),
    "an unknown argument": (lambda: layers.Dense(1, foo=3), ValueError, r"passed to Dense: {'foo': 3}"),
    "an activation's name": (lambda: layers.Dense(1, "rellu"), ValueError, "'rellu'.* Did you mean 'relu'"),
    "an initializer's name": (
        lambda: layers.Dense(1, kernel_initializer="glorot"),
        ValueError,
        "initializer identifier: 'glorot'",
    ),
    "a loss's name": (lambda: model(loss="msee"), ValueError, "loss identifier: 'msee'.* Did you mean 'mse'"),
    "a metric's name": (lambda: model(metrics=["acuracy"]), ValueError, "'acuracy'.* Did you mean 'accuracy'"),
    "metrics in no list": (lambda: model(metrics="mae"), ValueError, "`metrics` argument to be a list"),
    "fit without compile": (
        lambda: keras.Sequential([layers.Dense(1)]).fit(X, Y),
        ValueError,
        r"You must call `compile\(\)` before using the model: fit",
    ),
    "lengths that differ": (lambda: model().fit(X, Y[:2], verbose=0), ValueError, "same number of examples"),
    "no labels": (lambda: model().fit(X, verbose=0), ValueError, "the data have no y"),
    "no data": (lambda: model().fit(verbose=0), ValueError, "x is missing"),
    "labels of another shape": (
        lambda: model().fit(X, np.ones((3, 2)), verbose=0),
        ValueError,
        r"mean_squared_error: y_true of shape \(3, 2\) and y_pred of \(3, 1\) differ",
    ),
    "batches with labels": (
        lambda: model().fit(dataset(), Y, verbose=0),
        ValueError,
        "y must not be given when x is a",
    ),
    "batches of a size": (
        lambda: model().fit(dataset(), batch_size=2, verbose=0),
        ValueError,
        "batch_size must not be given when x is a",
    ),
    "a split of all": (lambda: model().fit(X, Y, validation_split=1.5, verbose=0), ValueError, "between 0 and 1"),
    "verbose": (lambda: model().fit(X, Y, verbose=3), ValueError, "verbose must be 0, 1, 2 or 'auto'; got 3"),
    "no callback": (lambda: model().fit(X, Y, callbacks=[3], verbose=0), ValueError, "Callback; got 3"),
    "an epoch without batches": (
        lambda: model().fit([], verbose=0),
        ValueError,
        "no batches|no examples|axis of examples",
    ),
    "no call": (lambda: keras.Model()(X), NotImplementedError, r"Model does not have a `call\(\)` method"),
    "a function as a layer": (lambda: keras.Sequential([tf.nn.relu]), ValueError, "use tf.keras.layers.Lambda"),
    "a name twice": (
        lambda: keras.Sequential([layers.Dense(1, name="a"), layers.Dense(1, name="a")]),
        ValueError,
        "Name 'a' is taken",
    ),
    "no such layer": (lambda: model().get_layer("foo"), ValueError, "No such layer: foo"),
    "inputs that do not lead there": (
        lambda: keras.Model(keras.Input((3,)), layers.Dense(1)(keras.Input((3,)))),
        ValueError,
        "not connected",
    ),
    "a tensor as input": (lambda: keras.Model(tf.ones(3), tf.ones(3)), ValueError, "all inputs must be symbolic"),
    "a function of no value": (
        lambda: tf.nn.relu(keras.Input((3,))),
        ValueError,
        "KerasTensor cannot be used as input",
    ),
    "the truth of no value": (lambda: bool(keras.Input((3,)) > 1.0), TypeError, "cannot be used as a boolean"),
    "no shape": (keras.Input, ValueError, "give shape"),
    "a padding": (lambda: layers.Conv2D(1, 3, padding="full"), ValueError, "padding must be 'valid' or 'same'"),
    "a rank": (
        lambda: layers.Conv2D(1, 3)(X),
        ValueError,
        r"takes inputs of shape \(examples, height, width, channels\)",
    ),
    "a rate": (lambda: layers.Dropout(2.0), ValueError, "from 0 to 1; got 2.0"),
    "a target shape": (lambda: layers.Reshape((3,))(X), ValueError, "total size of the tensor must be unchanged"),
    "one to add": (lambda: layers.Add()(tf.ones(3)), ValueError, "`Add` layer should be called on a list"),
    "a mask": (
        lambda: layers.LSTM(2)(tf.ones((2, 3, 4)), mask=tf.ones((2, 4))),
        ValueError,
        re.escape("(examples, steps), (2, 3)"),
    ),
    "an id": (lambda: layers.Embedding(3, 2)(np.array([5])), IndexError, "out of bounds for 3 rows"),
    "recurrent dropout": (lambda: layers.LSTM(2, dropout=1.1), ValueError, "LSTM: dropout must be from 0 to 1"),
    "normalizing before adapting": (lambda: layers.Normalization()(X), ValueError, "call adapt"),
    "a regularizer": (lambda: keras.regularizers.L2(-1.0), ValueError, "l2 must be a finite number of at least 0"),
    "a reduction": (lambda: keras.losses.MeanSquaredError("avg"), ValueError, "reduction: unknown names: 'avg'"),
    "a helper for a loss": (lambda: keras.losses.get("match_ranks"), ValueError, "match_ranks"),
    "a class": (
        lambda: keras.losses.SparseCategoricalCrossentropy()([5], [[0.5, 0.5]]),
        ValueError,
        "class 5; there are 2 classes",
    ),
    "metric shapes": (
        lambda: keras.metrics.Accuracy()([1, 2], [1, 2, 3]),
        ValueError,
        r"accuracy: y_true of shape \(2,\)",
    ),
    "the rate of SGD": (lambda: keras.optimizers.SGD("a"), TypeError, "SGD: learning_rate must be a number; got 'a'"),
    "a rate of dropout": (lambda: layers.Dropout("a"), TypeError, "Dropout: rate must be a number; got 'a'"),
    "a schedule": (
        lambda: keras.optimizers.schedules.ExponentialDecay("a", 1, 0.5),
        TypeError,
        "initial_learning_rate must be a number; got 'a'",
    ),
    "a typo": (lambda: layers.Densse, AttributeError, "did you mean tf.keras.layers.Dense"),
    "applications": (lambda: keras.applications.NASNetLarge, AttributeError, "build another from layers"),
    "images": (lambda: layers.RandomHue, AttributeError, r"no tf.keras.layers.RandomHue: .*tf.data.Dataset.map"),
    "a classes' number": (lambda: keras.utils.to_categorical([3], 2), ValueError, "from 0 to 1; got 3"),
    "a dtype": (lambda: keras.backend.set_floatx("int32"), ValueError, "Unknown `floatx` value"),
    "no file": (lambda: keras.Model().load_weights("no such file"), FileNotFoundError, "no such file"),
    "whole models": (
        lambda: keras.callbacks.ModelCheckpoint("x", save_freq=0, save_weights_only=True),
        ValueError,
        "save_freq must be 'epoch' or a positive number",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_it_says_what_was_wrong(name: str) -> None:
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=text):
        call()


def test_an_error_names_the_layers_it_came_through() -> None:
    inner = keras.Sequential([layers.Dense(2, name="wide")], name="inner")
    inner(np.ones((1, 3)))
    with pytest.raises(ValueError, match="built for inputs with 3 numbers") as caught:
        inner(X)
    assert "in the call of layer 'wide' (Dense)" in caught.value.__notes__
    assert "in the call of layer 'inner' (Sequential)" in caught.value.__notes__


def test_an_input_that_runs_dry_ends_the_run() -> None:
    with pytest.warns(UserWarning, match="ran out of data after 2 of 3 batches; interrupting training"):
        history = model().fit(iter(dataset()), steps_per_epoch=3, epochs=2, verbose=0)
    assert history.epoch == [0]


def test_what_is_watched_must_be_there() -> None:
    with pytest.warns(UserWarning, match="EarlyStopping watches 'val_loss', which is not there; there are 'loss'"):
        model().fit(X, Y, callbacks=[keras.callbacks.EarlyStopping()], verbose=0)


def test_nothing_to_train() -> None:
    made = model()
    made.build((None, 4))
    made.trainable = False
    with pytest.warns(UserWarning, match="does not have any trainable weights"):
        made.fit(X, Y, verbose=0)


@pytest.mark.each_backend
def test_a_model_without_weights_is_not_drawn(tmp_path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"not yet been built. Build the model first by calling `build\(\)`"):
        tf.keras.utils.plot_model(model, tmp_path / "model.svg")
    assert not list(tmp_path.iterdir())


def test_layers_of_packages_beside_tensorflow_are_refused_with_what_to_use() -> None:
    hub = type("KerasLayer", (), {"__module__": "tensorflow_hub.keras_layer", "__call__": lambda self, x: x})
    with pytest.raises(ValueError, match=r"tensorflow_hub computes with TensorFlow; use tf\.keras.*\.keras"):
        tf.keras.Sequential([hub()])
