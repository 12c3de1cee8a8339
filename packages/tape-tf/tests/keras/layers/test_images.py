"""Layers for images: what no comparison with Keras tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_tf as tf

layers = tf.keras.layers

pytestmark = pytest.mark.each_backend

IMAGES = np.random.default_rng(0).uniform(0, 255, (8, 6, 6, 3)).astype("float32")

RANDOM: dict[str, Any] = {
    "flip": lambda seed: layers.RandomFlip(seed=seed),
    "rotation": lambda seed: layers.RandomRotation(0.2, seed=seed),
    "zoom": lambda seed: layers.RandomZoom(0.3, seed=seed),
    "translation": lambda seed: layers.RandomTranslation(0.3, 0.2, seed=seed),
    "contrast": lambda seed: layers.RandomContrast(0.5, seed=seed),
    "brightness": lambda seed: layers.RandomBrightness(0.5, seed=seed),
    "crop": lambda seed: layers.RandomCrop(4, 4, seed=seed),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_seed_gives_the_same_images_eager_and_compiled(name: str) -> None:
    eager = RANDOM[name](3)(IMAGES, training=True)
    again = RANDOM[name](3)
    np.testing.assert_array_equal(again(IMAGES, training=True), eager)
    assert not np.array_equal(again(IMAGES, training=True), eager)
    layer = RANDOM[name](3)
    compiled = tf.function(lambda x: layer(x, training=True))
    np.testing.assert_allclose(compiled(tf.constant(IMAGES)), eager, rtol=1e-6)
    assert not np.array_equal(compiled(tf.constant(IMAGES)), eager)


@pytest.mark.parametrize("name", [name for name in RANDOM if name != "crop"])
def test_nothing_changes_outside_of_training(name: str) -> None:
    layer = RANDOM[name](3)
    np.testing.assert_array_equal(layer(IMAGES, training=False), IMAGES)
    np.testing.assert_array_equal(tf.keras.Sequential([layer]).predict(IMAGES, verbose=0), IMAGES)


def test_a_crop_outside_of_training_is_the_middle_resized() -> None:
    y = layers.RandomCrop(3, 3)(IMAGES, training=False)
    np.testing.assert_allclose(y, layers.Resizing(3, 3)(IMAGES), rtol=1e-6)


def test_a_crop_is_a_window_of_the_image() -> None:
    y = layers.RandomCrop(4, 3, seed=0)(IMAGES, training=True).numpy()
    windows = [IMAGES[:, top : top + 4, left : left + 3] for top in range(3) for left in range(4)]
    assert any(np.array_equal(y, window) for window in windows)


def test_layers_draw_by_themselves_where_nothing_says_whether_it_is_training() -> None:
    """As in tutorials that call the augmentation on a batch to look at it."""
    augment = tf.keras.Sequential([layers.RandomFlip("horizontal", seed=1), layers.RandomRotation(0.1, seed=2)])
    assert not np.array_equal(augment(IMAGES), IMAGES)


def test_each_image_of_a_batch_is_flipped_or_not() -> None:
    y = layers.RandomFlip("horizontal", seed=1)(IMAGES, training=True).numpy()
    kinds = {
        "kept" if np.array_equal(new, old) else "flipped" if np.array_equal(new, old[:, ::-1]) else "wrong"
        for new, old in zip(y, IMAGES, strict=True)
    }
    assert kinds == {"kept", "flipped"}


def test_contrast_scales_about_the_mean_of_the_channel() -> None:
    y = layers.RandomContrast(0.5, value_range=(-1e9, 1e9), seed=0)(IMAGES, training=True).numpy()
    mean = IMAGES.mean((1, 2), keepdims=True)
    scale = (y - mean) / (IMAGES - mean)
    np.testing.assert_allclose(scale, np.broadcast_to(scale[:, :1, :1, :1], scale.shape), rtol=1e-2)
    assert np.all((scale > 0.49) & (scale < 1.51))


def test_channels_first_is_the_same_with_axes_moved() -> None:
    first = layers.RandomRotation((0.1, 0.1), data_format="channels_first")
    last = layers.RandomRotation((0.1, 0.1))
    moved = np.moveaxis(IMAGES, -1, 1)
    np.testing.assert_allclose(np.moveaxis(first(moved, training=True), 1, -1), last(IMAGES, training=True), rtol=1e-6)


def test_gradients_flow_through_a_rotation_by_a_quarter() -> None:
    x = tf.Variable(IMAGES[0])
    with tf.GradientTape() as tape:
        y = layers.RandomRotation((0.25, 0.25))(x, training=True)
        first = tf.reduce_sum(y[0, 0])
    expected = np.zeros_like(IMAGES[0])
    expected[0, -1] = 1
    np.testing.assert_allclose(tape.gradient(first, x), expected, atol=1e-5)


def test_in_a_pipeline_of_data_and_in_a_model() -> None:
    labels = np.arange(8) % 2
    data = tf.data.Dataset.from_tensor_slices((IMAGES, labels)).batch(4)
    augment = tf.keras.Sequential([layers.RandomFlip(seed=1), layers.RandomZoom(0.2, seed=2)])
    data = data.map(lambda x, y: (augment(x, training=True), y))
    inputs = tf.keras.Input((6, 6, 3))
    x = layers.RandomTranslation(0.1, 0.1)(inputs)
    x = layers.GlobalAveragePooling2D()(layers.Rescaling(1 / 255)(layers.RandomCrop(5, 5)(x)))
    model = tf.keras.Model(inputs, layers.Dense(1)(x))
    assert model.layers[2].output.shape == (None, 5, 5, 3)
    model.compile("adam", "mse")
    history = model.fit(data, epochs=2, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))
    np.testing.assert_array_equal(model.predict(IMAGES, verbose=0), model.predict(IMAGES, verbose=0))


def test_models_with_them_are_saved_and_loaded(tmp_path: Any) -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.Input((6, 6, 3)),
            layers.RandomFlip("horizontal"),
            layers.RandomContrast((0.1, 0.2)),
            layers.RandomZoom((-0.1, 0.2), 0.1),
            layers.CenterCrop(4, 4),
            layers.Resizing(2, 3),
        ]
    )
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(IMAGES, training=False), model(IMAGES, training=False))
    assert loaded.layers[1].factor == (0.1, 0.2)


def test_boundaries_that_were_found_are_saved(tmp_path: Any) -> None:
    layer = layers.Discretization(num_bins=3)
    layer.adapt(np.arange(30.0))
    model = tf.keras.Sequential([tf.keras.Input((1,)), layer])
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(np.array([[3.0], [15.0], [40.0]])), [[0], [1], [2]])


MISTAKES: dict[str, Any] = {
    "a factor": (lambda: layers.RandomRotation(1.5), "factor must be at most 1.0"),
    "a range": (lambda: layers.RandomZoom((0.1, 0.2, 0.3)), "height_factor must be a number or two numbers"),
    "a mode": (lambda: layers.RandomFlip("up"), "mode must be 'horizontal'"),
    "a fill mode": (lambda: layers.RandomRotation(0.1, fill_mode="zero"), "fill_mode must be one of reflect, wrap"),
    "a rank": (lambda: layers.CenterCrop(2, 2)(np.zeros((3, 3))), r"got shape \(3, 3\)"),
    "sequences": (lambda: tf.keras.utils.pad_sequences([1, 2]), "number 0 is 1"),
    "padding": (lambda: tf.keras.utils.pad_sequences([[1]], padding="left"), "padding must be 'pre' or 'post'"),
    "steps": (lambda: tf.keras.utils.pad_sequences([[[1, 2]], [[1]]]), r"sequence 1 have shape \(1,\)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_it_says_what_was_wrong(name: str) -> None:
    call, text = MISTAKES[name]
    with pytest.raises(ValueError, match=text):
        call()


def test_a_number_that_is_no_class_is_an_error() -> None:
    with pytest.raises(IndexError):
        layers.CategoryEncoding(num_tokens=3)(np.array([[0, 5]]))


def test_text_is_padded_as_objects() -> None:
    found = tf.keras.utils.pad_sequences([["a"], ["b", "c"]], dtype=object, value="")
    assert found.tolist() == [["", "a"], ["b", "c"]]


def test_neighbours_and_random_pairs() -> None:
    pairs, labels = tf.keras.preprocessing.sequence.skipgrams([1, 2, 0, 3], 4, window_size=1, negative_samples=1.0)
    assert sorted(pair for pair, label in zip(pairs, labels, strict=True) if label) == [[1, 2], [2, 1]]
    assert len(labels) == 4
