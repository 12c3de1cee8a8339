"""Programs in tf.keras that prepare images and classes, and keras_images.json: what Keras gives for them.

python make_keras_images.py    # needs tensorflow 2.21 with keras 3.15

Ranges of one number, such as (0.2, 0.2), make the layers that draw at random do the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from make_keras import write

PROGRAMS: dict[str, Callable[[Any], Any]] = {}

_rng = np.random.RandomState(0)
IMAGES = (_rng.uniform(0, 1, size=(2, 6, 5, 3)) * 255).astype("float32")
WHOLE = IMAGES.astype("uint8")


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


for _mode in ("reflect", "wrap", "constant", "nearest"):
    for _interpolation in ("bilinear", "nearest"):

        def _moved(tf: Any, mode: str = _mode, interpolation: str = _interpolation) -> Any:
            layers = tf.keras.layers
            options: dict[str, Any] = {"fill_mode": mode, "interpolation": interpolation, "fill_value": 3.0}
            made = [
                layers.RandomRotation((0.13, 0.13), **options),
                layers.RandomRotation((-0.4, -0.4), **options),
                layers.RandomTranslation((0.3, 0.3), (-0.25, -0.25), **options),
                layers.RandomZoom((0.4, 0.4), (-0.3, -0.3), **options),
                layers.RandomZoom((-0.5, -0.5), **options),
            ]
            return [layer(images, training=True) for layer in made for images in (IMAGES, WHOLE[1])]

        PROGRAMS[f"moved, {_mode}, {_interpolation}"] = _moved


@program
def brighter_cropped_and_resized(tf: Any) -> Any:
    layers = tf.keras.layers
    found = [layers.RandomBrightness((0.2, 0.2))(IMAGES, training=True)]
    found.append(layers.RandomBrightness((-0.2, -0.2), value_range=(0, 1))(IMAGES / 255, training=True))
    found += [layers.CenterCrop(3, 3)(IMAGES), layers.CenterCrop(4, 7)(IMAGES), layers.CenterCrop(8, 8)(WHOLE[0])]
    for options in ({}, {"interpolation": "nearest"}, {"crop_to_aspect_ratio": True}, {"antialias": True}):
        found += [layers.Resizing(3, 4, **options)(IMAGES), layers.Resizing(9, 7, **options)(IMAGES[1])]
    return [*found, layers.Resizing(3, 4, interpolation="nearest")(WHOLE)]


@program
def classes_as_vectors(tf: Any) -> Any:
    layers = tf.keras.layers
    classes = np.array([[0, 2, 1], [1, 1, 3]])
    found = []
    for mode in ("multi_hot", "one_hot", "count"):
        layer = layers.CategoryEncoding(num_tokens=4, output_mode=mode)
        found += [layer(classes), layer(classes[0]), layer(classes[:, :1])]
    counts = layers.CategoryEncoding(num_tokens=4, output_mode="count")
    return [*found, counts(classes, count_weights=np.array([[0.5, 1, 2], [1, 2, 3.0]]))]


@program
def numbers_in_bins(tf: Any) -> Any:
    layers = tf.keras.layers
    values = np.array([[-1.5, 1.0, 3.4], [0.0, 0.5, 2.0]])
    modes = ("int", "one_hot", "multi_hot", "count")
    found = [layers.Discretization(bin_boundaries=[0.0, 1.0, 2.0], output_mode=mode)(values) for mode in modes]
    layer = layers.Discretization(num_bins=4, epsilon=0.01)
    layer.adapt(np.arange(40.0)[::-1] ** 1.5)
    return [*found, layer.bin_boundaries, layer(np.array([[1.0, 20.0, 60.0, 150.0, 240.0]]))]


@program
def padded_sequences(tf: Any) -> Any:
    pad = tf.keras.utils.pad_sequences
    lists = [[1], [2, 3], [4, 5, 6]]
    found = [pad(lists), pad(lists, padding="post"), pad(lists, maxlen=2), pad(lists, 2, truncating="post")]
    found += [pad(lists, maxlen=5, value=9, dtype="float32"), pad([[[1, 2]], [[3, 4], [5, 6]]], padding="post")]
    return [*found, tf.keras.preprocessing.sequence.make_sampling_table(10)]


if __name__ == "__main__":
    write(PROGRAMS, "keras_images.json")
