"""tf.keras.applications against Keras: names and shapes of layers, numbers of parameters, and what they compute."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXPECTED = Path(__file__).parents[1] / "expected" / "applications.json"


def image() -> Any:
    rows, columns = np.mgrid[0:96, 0:96]
    channels = [np.sin(rows / 7.0) + np.cos(columns / 5.0), np.sin(rows * columns / 900.0), np.cos(rows / 11.0)]
    return np.stack(channels, axis=-1)[None].astype("float32")


def weights_for(shapes: list[Any]) -> list[Any]:
    """Return weights of these shapes with which values stay of a moderate size: the same ones in each library."""
    rng = np.random.default_rng(0)
    found = []
    for shape in map(tuple, shapes):
        # The kernel of a depthwise convolution, (rows, columns, channels, 1), sums over its window alone.
        inputs = np.prod(shape[:2]) * (shape[2] if len(shape) > 3 and shape[3] > 1 else 1)
        scale = 1.5 / np.sqrt(inputs)
        values = rng.standard_normal(shape) * scale if len(shape) > 1 else rng.uniform(0.5, 1.5, shape)
        found.append(values.astype("float32"))
    return found


try:
    import tape_tf as tf
except ImportError:  # the script that makes the expectations imports the functions above, where only Keras is
    pass
else:
    applications = tf.keras.applications


@pytest.fixture(autouse=True)
def _fresh_names() -> None:
    tf.keras.backend.clear_session()


def cases(key: str, only: str = "") -> Any:
    known = json.loads(EXPECTED.read_text("utf-8"))[key] if EXPECTED.is_file() else []
    found = [case for case in known if case["network"].startswith(only)]
    return pytest.mark.parametrize("case", found, ids=lambda case: f"{case['network']} {case['arguments']}")


@cases("made")
def test_layers_are_those_of_keras(case: Any) -> None:
    model = getattr(applications, case["network"])(weights=None, **case["arguments"])
    lines = [
        f"{layer.name} {tuple(layer.output.shape) if layer._nodes else model.input_shape!r}" for layer in model.layers
    ]
    # Keras counts the statistics of EfficientNet's normalization as weights, a mean, a variance and a count.
    statistics = 7 if case["network"].startswith("EfficientNet") else 0
    assert (model.name, model.count_params() + statistics, len(lines), lines[-1]) == (
        case["name"],
        case["parameters"],
        case["layers"],
        case["last"],
    )
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == case["digest"]


@cases("computed")
def test_they_compute_what_keras_computes(case: Any) -> None:
    model = getattr(applications, case["network"])(weights=None, **case["arguments"])
    model.set_weights(weights_for([w.shape for w in model.get_weights()]))
    check(model(tf.constant(image()), training=False), case)


@pytest.mark.each_backend
@cases("computed", only="Mobile")  # the smallest ones
def test_compiled_networks_compute_the_same(case: Any) -> None:
    model = getattr(applications, case["network"])(weights=None, **case["arguments"])
    model.set_weights(weights_for([w.shape for w in model.get_weights()]))
    compiled = tf.function(model)
    for _ in range(2):
        check(compiled(tf.constant(image()), training=False), case)


def check(found: Any, case: Any) -> None:
    result = found.numpy()[0]
    np.testing.assert_allclose(result[:4], case["start"], rtol=2e-3, atol=1e-4 * np.abs(result).max())
    np.testing.assert_allclose(np.linalg.norm(result), case["norm"], rtol=1e-3)


def test_pixels_are_scaled_as_each_network_expects() -> None:
    x = np.arange(12, dtype="float32").reshape(1, 2, 2, 3)
    caffe = [-101.939, -115.779, -123.68, -98.939]
    centred = [-1, -0.9921569, -0.9843137, -0.9764706]
    expected = {
        "vgg16": caffe,
        "vgg19": caffe,
        "resnet": caffe,
        "resnet50": caffe,
        "resnet_v2": centred,
        "mobilenet": centred,
        "mobilenet_v2": centred,
        "inception_v3": centred,
        "xception": centred,
        "efficientnet": [0, 1, 2, 3],
        "densenet": [-2.117904, -2.0182073, -1.7695861, -2.0665298],
    }
    for name, values in expected.items():
        scale = getattr(applications, name).preprocess_input
        given = x.copy()
        found = scale(given)
        np.testing.assert_allclose(found.ravel()[:4], values, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(given, x)
        tensor = scale(tf.constant(x))
        assert tf.is_tensor(tensor)
        np.testing.assert_allclose(tensor, found, rtol=1e-5, atol=1e-5)
        symbol = tf.keras.Input((2, 2, 3))
        model = tf.keras.Model(symbol, scale(symbol)) if name != "efficientnet" else scale
        np.testing.assert_allclose(model(tf.constant(x)), found, rtol=1e-5, atol=1e-5)
    assert applications.mobilenet.preprocess_input(x.astype("uint8")).dtype == "float32"
    assert applications.mobilenet.preprocess_input(x.astype("float64")).dtype == "float64"
    assert applications.vgg16.preprocess_input(tf.cast(x, tf.uint8)).dtype == tf.float32
    first = applications.vgg16.preprocess_input(np.zeros((1, 3, 1, 1)), data_format="channels_first")
    np.testing.assert_allclose(first.ravel(), [-103.939, -116.779, -123.68])
    with pytest.raises(ValueError, match="mode to be one of"):
        applications.imagenet_utils.preprocess_input(x, mode="x")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Keras' downloads, on a machine without a network."""

    def unreachable(*args: Any, **kwargs: Any) -> Any:
        raise urllib.error.URLError("no network")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    return tmp_path


def test_classes_are_named_from_a_file(folder: Path) -> None:
    probabilities = np.zeros((2, 1000), "float32")
    probabilities[0, 3], probabilities[0, 7], probabilities[1, 999] = 0.75, 0.25, 1.0
    decode = applications.vgg19.decode_predictions
    with pytest.raises(OSError, match=r"put the file there by hand: .*models.imagenet_class_index\.json"):
        decode(probabilities)
    path = folder / "models" / "imagenet_class_index.json"
    path.write_text(json.dumps({str(k): [f"n{k}", f"thing {k}"] for k in range(1000)}))
    found = decode(tf.constant(probabilities), top=2)
    assert [name for _, name, _ in found[0]] == ["thing 3", "thing 7"]
    assert found[1][0] == ("n999", "thing 999", 1.0)
    with pytest.raises(ValueError, match=r"2D array of shape \(samples, 1000\)"):
        decode(probabilities[:, :10])
    for text, message in (("[]", "is no list of classes"), ('{"0": ["a", "b"]}', "from 0 to 999"), ("{", "is no list")):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            decode(probabilities)


def test_weights_come_from_a_file(folder: Path) -> None:
    small = {"alpha": 0.25, "input_shape": (32, 32, 3), "include_top": False}
    model = applications.MobileNet(weights=None, **small)
    path = folder / "mine.safetensors"
    model.save_weights(path)
    again = applications.MobileNet(weights=path, **small)
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])
    with pytest.raises(OSError, match=r"https://.*/mobilenet/.*by hand: .*models.mobilenet_2_5_224_tf_no_top\.h5"):
        applications.MobileNet(**small)
    with pytest.raises(OSError, match=r"/vgg19/vgg19_weights_tf_dim_ordering_tf_kernels\.h5"):
        applications.VGG19()


def test_the_published_weights_are_read(folder: Path) -> None:
    h5py = pytest.importorskip("h5py")
    small = {"alpha": 0.25, "include_top": False}
    model = applications.MobileNet(weights=None, **small)
    model.set_weights(weights_for([w.shape for w in model.get_weights()]))
    path = folder / "models" / "mobilenet_2_5_224_tf_no_top.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [layer.name.encode() for layer in model.layers]
        for layer in model.layers:
            group = file.create_group(layer.name)
            names = [f"{layer.name}/{k}" for k in range(len(layer.weights))]
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, array in zip(names, layer.get_weights(), strict=True):
                group.create_dataset(name, data=array)
    again = applications.MobileNet(weights="imagenet", **small)
    for found, expected in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"mobilenet_2_5_224_tf_no_top\.h5"):
        applications.MobileNet(weights="imagenet", **small)


def test_mistakes_in_the_arguments() -> None:
    for call, message in (
        (lambda: applications.VGG16(weights="nofile"), "path to the weights file"),
        (lambda: applications.VGG16(classes=10), "`classes` should be 1000"),
        (lambda: applications.VGG16(input_shape=(96, 96, 3)), r"`input_shape` should be \(224, 224, 3\)"),
        (lambda: applications.VGG16(classifier_activation="relu"), "only `None` and `softmax`"),
        (lambda: applications.VGG16(weights=None, input_shape=(20, 20, 3), include_top=False), "at least 32x32"),
        (lambda: applications.InceptionV3(weights=None, input_shape=(74, 99, 3)), "at least 75x75"),
        (lambda: applications.VGG16(weights=None, input_shape=(48, 48), include_top=False), "three integers"),
        (lambda: applications.VGG16(weights=None, input_shape=(None, None, 3)), "static `input_shape`"),
        (lambda: applications.VGG16(weights=None, include_top=False, pooling="mean"), "pooling must be"),
        (lambda: applications.VGG16(weights=None, include_top=False, input_tensor=tf.ones((1, 32, 32, 3))), "Input"),
        (lambda: applications.MobileNet(alpha=0.3), "alpha can be one of"),
        (lambda: applications.MobileNet(depth_multiplier=2), "depth multiplier must be 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(AttributeError, match="VGG, ResNet"):
        _ = applications.NASNetLarge


def test_a_network_is_a_part_of_another_model() -> None:
    source = tf.keras.Input((40, 40, 3), name="picture")
    scaled = layers_of(source)
    base = applications.MobileNetV2(alpha=0.35, weights=None, include_top=False, input_tensor=scaled)
    assert [layer.name for layer in base.layers[:3]] == ["picture", "rescaling", "Conv1"]
    assert base.input_shape == (None, 40, 40, 3)
    base = applications.MobileNetV2(alpha=0.35, weights=None, include_top=False, input_shape=(40, 40, 3))
    base.trainable = False
    inputs = tf.keras.Input((40, 40, 3))
    features = tf.keras.layers.GlobalAveragePooling2D()(base(inputs, training=False))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(features))
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = [w.copy() for w in base.get_weights()]
    model.fit(np.ones((4, 40, 40, 3), "float32"), np.array([0, 1, 0, 1]), verbose=0)
    assert len(model.trainable_variables) == 2
    for old, new in zip(before, base.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def layers_of(source: Any) -> Any:
    return tf.keras.layers.Rescaling(1 / 127.5, offset=-1.0)(source)


def test_a_network_is_saved_and_read(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    model = applications.MobileNetV2(alpha=0.35, weights=None, include_top=False, pooling="avg")
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert [layer.name for layer in again.layers] == [layer.name for layer in model.layers]
    x = tf.constant(image())
    np.testing.assert_array_equal(again(x), model(x))


@pytest.mark.each_backend
def test_style_transfer_takes_layers_by_their_names() -> None:
    vgg = applications.VGG19(include_top=False, weights=None)
    vgg.trainable = False
    names = ["block1_conv1", "block2_conv1", "block3_conv1"]
    extractor = tf.keras.Model([vgg.input], [vgg.get_layer(name).output for name in names])
    style = [tf.reduce_mean(part, axis=(1, 2)) for part in extractor(tf.constant(image()) * 40.0)]
    picture = tf.Variable(tf.zeros((1, 96, 96, 3)) + 0.5)
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.05)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            outputs = extractor(applications.vgg19.preprocess_input(picture * 255.0))
            means = [tf.reduce_mean(part, axis=(1, 2)) for part in outputs]
            loss = tf.add_n([tf.reduce_mean((a - b) ** 2) for a, b in zip(means, style, strict=True)])
        optimizer.apply_gradients([(tape.gradient(loss, picture), picture)])
        picture.assign(tf.clip_by_value(picture, 0.0, 1.0))
        return loss

    losses = [float(step()) for _ in range(4)]
    assert losses[-1] < losses[0]
