"""Models in tf.keras, and what Keras 3 makes of them: the files in keras_files.

python make_keras_files.py    # needs tensorflow 2.21 with keras 3.15, and h5py

For each model there are `NAME.keras`, and in `expected.json` inputs, outputs, and the outputs after one more step of
training. The tests read the files with the façade; with Keras installed, they give Keras the façade's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 2


def plain(keras: Any) -> Any:
    """A chain of layers with moving averages, a regularizer and a state of the optimizer."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01), name="hidden"),
            layers.BatchNormalization(momentum=0.5),
            layers.Dense(2, trainable=False),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.05, beta_1=0.8), "mse", metrics=["mae"])
    return model


def images(keras: Any) -> Any:
    """Convolutions and what is around them; the optimizer has a schedule."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Rescaling(2.0),
            layers.Conv2D(2, 3, strides=2, padding="same", activation="gelu"),
            layers.SeparableConv2D(2, 2),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(2, activation="softmax"),
        ]
    )
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), keras.losses.MeanAbsoluteError())
    return model


def sequences(keras: Any) -> Any:
    """Masks through recurrent layers, in a functional model."""
    layers = keras.layers
    ids = keras.Input((4,), dtype="int32", name="ids")
    x = layers.Embedding(8, 3, mask_zero=True)(ids)
    x = layers.Bidirectional(layers.LSTM(2, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 2)(x, x)
    return keras.Model(ids, layers.Dense(1)(layers.GRU(2)(x)))


def graph(keras: Any) -> Any:
    """Two inputs by name, a shared layer, a model inside, operators, and two outputs."""
    layers = keras.layers
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    shared = layers.Dense(3, activation="tanh", name="shared")
    inside = keras.Input((3,))
    block = keras.Model(inside, layers.Dense(3, name="of_block")(inside), name="block")
    normalize = layers.Normalization()
    normalize.adapt(np.arange(12.0).reshape(4, 3) ** 1.5)
    x = shared(normalize(a))
    y = shared(block(block(x)))
    z = (x * 2.0 - y)[:, :2] + b
    return keras.Model({"a": a, "b": b}, [layers.Concatenate()([z, y]), layers.Dense(1, name="q")(z)])


def words(keras: Any) -> Any:
    """Layers that learned vocabularies, which Keras keeps in members of their own."""
    layers = keras.layers
    vectorize, numbers = layers.TextVectorization(output_sequence_length=3), layers.IntegerLookup()
    vectorize.adapt(["the cat sat", "the dog", "the cat"])
    numbers.adapt(np.array([5, 7, 5]))
    text, ids = keras.Input((1,), dtype="string", name="text"), keras.Input((2,), dtype="int64", name="ids")
    return keras.Model({"text": text, "ids": ids}, [vectorize(text), numbers(ids)])


MODELS = {made.__name__: made for made in (plain, images, sequences, graph, words)}


def inputs(name: str) -> Any:
    rng = np.random.RandomState(3)
    if name == "sequences":
        return np.array([[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 7]], "int32")
    if name == "words":
        return {"text": np.array([["the dog"], ["a cat"]]), "ids": np.array([[5, 7], [7, 1]])}
    if name == "graph":
        return {"a": rng.normal(size=(3, 3)).astype("float32"), "b": rng.normal(size=(3, 2)).astype("float32")}
    return rng.normal(size=(3, *((4,) if name == "plain" else (6, 6, 1)))).astype("float32")


def outputs(model: Any, x: Any) -> list[Any]:
    found = model(x)
    return [np.asarray(y).tolist() for y in (found if isinstance(found, list | tuple) else [found])]


def train(model: Any, x: Any, steps: int) -> None:
    y = np.zeros_like(np.asarray(model(x)))
    for _ in range(steps):
        model.fit(x, y, batch_size=3, epochs=1, verbose=0, shuffle=False)


def main(folder: Path) -> None:
    import keras
    import tensorflow as tf

    expected = {}
    for name, make in MODELS.items():
        keras.utils.set_random_seed(1)
        model, x = make(keras), inputs(name)
        if name == "words":
            x = {key: tf.constant(value) for key, value in x.items()}
        if model.compiled:
            train(model, x, STEPS)
        model.save(folder / f"{name}.keras")
        found = {"outputs": outputs(model, x)}
        if model.compiled:
            train(model, x, 1)
            found["trained"] = outputs(model, x)
        expected[name] = found
    keras.utils.set_random_seed(1)
    model = plain(keras)
    model.save(folder / "legacy.h5")
    expected["legacy"] = {"outputs": outputs(model, inputs("plain"))}
    keras.models.load_model(folder / "graph.keras").save(folder / "legacy_graph.h5")
    one = keras.Input((2,))
    keras.Model(one, keras.layers.Lambda(lambda x: x + 1)(one)).save(folder / "code.keras")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main(Path(__file__).parents[1] / "expected" / "keras_files")
