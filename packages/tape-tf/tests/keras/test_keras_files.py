"""Files of Keras 3: those that Keras wrote are read, and the façade's are laid out as Keras' own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

h5py = pytest.importorskip("h5py")
layers = tf.keras.layers
TESTS = Path(__file__).parents[1]
DATA = TESTS / "expected" / "keras_files"
EXPECTED = json.loads((DATA / "expected.json").read_text())


def _programs() -> Any:
    spec = importlib.util.spec_from_file_location("make_keras_files", TESTS / "expected" / "make_keras_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAMS = _programs()


def close(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.each_backend
@pytest.mark.parametrize("name", list(PROGRAMS.MODELS))
def test_a_model_that_keras_saved_computes_the_same_and_trains_on(name: str) -> None:
    x = PROGRAMS.inputs(name)
    model = tf.keras.models.load_model(DATA / f"{name}.keras")
    close(PROGRAMS.outputs(model, x), EXPECTED[name]["outputs"])
    if "trained" in EXPECTED[name]:
        assert int(model.optimizer.iterations) == PROGRAMS.STEPS
        PROGRAMS.train(model, x, 1)  # with the momenta of the optimizer, or it would go elsewhere
        close(PROGRAMS.outputs(model, x), EXPECTED[name]["trained"])


@pytest.mark.parametrize("name", list(PROGRAMS.MODELS))
def test_weights_of_keras_fit_the_program_that_made_them(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(DATA / f"{name}.keras") as archive:
        (tmp_path / "model.weights.h5").write_bytes(archive.read("model.weights.h5"))
    model = PROGRAMS.MODELS[name](tf.keras)
    model.load_weights(tmp_path / "model.weights.h5")
    close(PROGRAMS.outputs(model, PROGRAMS.inputs(name)), EXPECTED[name]["outputs"])


def _layout(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(BytesIO(content)) as file:
        file.visititems(lambda path, o: found.update({path: (o.shape, o.dtype.kind) if hasattr(o, "shape") else None}))
        for path in found:
            if path.endswith("vars") and path != "optimizer/vars":
                found[path] = file[path].attrs["name"]
    return found


@pytest.mark.parametrize("name", list(PROGRAMS.MODELS))
def test_a_file_written_here_has_the_groups_arrays_and_names_of_keras(name: str, tmp_path: Path) -> None:
    """What Keras looks for when it loads: the same paths, with arrays of the same shapes and dtypes."""
    model = tf.keras.models.load_model(DATA / f"{name}.keras")
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    with zipfile.ZipFile(DATA / f"{name}.keras") as archive:
        theirs = _layout(archive.read("model.weights.h5"))
    ours = _layout((tmp_path / "model.weights.h5").read_bytes())
    # Layers inside of Keras' attention that have no weights; and arrays without a member of the file are none.
    inside = ("_dropout_layer", "_softmax", "_dot_product_layer", "_lookup")
    # The cells of recurrent layers have numbered names there.
    ours, theirs = (
        {
            path: what
            for path, what in found.items()
            if not any(part in path for part in inside) and not path.endswith("cell/vars")
        }
        for found in (ours, theirs)
    )
    assert ours == theirs
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    x = PROGRAMS.inputs(name)
    close(PROGRAMS.outputs(again, x), EXPECTED[name]["outputs"])
    if "trained" in EXPECTED[name]:
        PROGRAMS.train(again, x, 1)
        close(PROGRAMS.outputs(again, x), EXPECTED[name]["trained"])


def test_a_model_in_the_format_of_keras_2() -> None:
    model = tf.keras.models.load_model(DATA / "legacy.h5")
    close(PROGRAMS.outputs(model, PROGRAMS.inputs("plain")), EXPECTED["legacy"]["outputs"])
    assert model.layers[0].name == "hidden"
    assert isinstance(model.optimizer, tf.keras.optimizers.Adam)
    assert model.optimizer.beta_1 == 0.8
    graph = tf.keras.models.load_model(DATA / "legacy_graph.h5")
    close(PROGRAMS.outputs(graph, PROGRAMS.inputs("graph")), EXPECTED["graph"]["outputs"])
    other = PROGRAMS.plain(tf.keras)
    other.load_weights(DATA / "legacy.h5")
    close(PROGRAMS.outputs(other, PROGRAMS.inputs("plain")), EXPECTED["legacy"]["outputs"])


def test_a_file_of_keras_2_leads_nowhere_else(tmp_path: Path) -> None:
    shutil.copy(DATA / "legacy.h5", tmp_path / "other.h5")
    shutil.copy(DATA / "legacy.h5", tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        del file["model_weights/hidden"]
        file["model_weights/hidden"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "model_weights/hidden")
    with pytest.raises(ValueError, match="is a link to elsewhere"):
        tf.keras.models.load_model(tmp_path / "model.h5")
    with pytest.raises(ValueError, match="is a link to elsewhere"):
        PROGRAMS.plain(tf.keras).load_weights(tmp_path / "model.h5")


def test_vocabularies_of_keras_are_read_and_missed_if_they_belong_nowhere(tmp_path: Path) -> None:
    """Without them the lookups gave other numbers, in silence."""
    members = {}
    with zipfile.ZipFile(DATA / "words.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert "assets/layers/integer_lookup/vocabulary.txt" in members
    layer = tf.keras.models.load_model(DATA / "words.keras").get_layer("integer_lookup")
    assert [int(word) for word in layer.get_vocabulary()] == [-1, 5, 7]
    members["assets/layers/elsewhere/vocabulary.txt"] = b"a"
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"the vocabulary of the layer at 'layers/elsewhere' is not read"):
        tf.keras.models.load_model(tmp_path / "model.keras")


def test_code_in_a_file_is_refused() -> None:
    for safe_mode in (True, False):
        with pytest.raises(ValueError, match="the code of a Lambda layer's function, which is not run: give"):
            tf.keras.models.load_model(DATA / "code.keras", safe_mode=safe_mode)


@tf.keras.saving.register_keras_serializable(package="KerasFiles")
class Gain(layers.Layer):
    def __init__(self, factor: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor, self.inner = factor, [layers.Dense(2), {"more": layers.Dense(2)}]

    def build(self, input_shape: Any) -> None:
        self.w = self.add_weight(shape=(2,), initializer="random_normal", name="w")

    def call(self, x: Any) -> Any:
        return self.inner[1]["more"](self.inner[0](x)) * self.w * self.factor


def test_layers_of_the_users_with_layers_in_lists(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input((2,)), Gain(3.0), Gain(2.0)])
    model.save(tmp_path / "model.keras")
    x = np.ones((2, 2), "float32")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert [layer.factor for layer in again.layers] == [3.0, 2.0]
    np.testing.assert_array_equal(again(x), model(x))
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        paths = _layout(archive.read("model.weights.h5"))
        config = json.loads(archive.read("config.json"))
    # As Keras names them: by attributes, and in lists by class.
    assert {"layers/gain_1/inner/dense/vars/0", "layers/gain_1/inner/container/dense/vars/1"} <= paths.keys()
    assert config["config"]["layers"][1]["registered_name"] == "KerasFiles>Gain"


def test_arguments_of_layers_survive(tmp_path: Path) -> None:
    """Strides and the like were lost: arguments were taken for those of the layer of tape_nn inside."""
    model = tf.keras.Sequential(
        [
            tf.keras.Input((9, 9, 1)),
            layers.Conv2D(2, 3, strides=2, dilation_rate=1, name="wide"),
            layers.Reshape((16, 2)),
            layers.LSTM(2, go_backwards=True, kernel_regularizer="l2", name="back"),
        ]
    )
    x = np.linspace(-1.0, 1.0, 162, dtype="float32").reshape(2, 9, 9, 1)
    for save_format in ("tape", "keras"):
        path = tmp_path / f"{save_format}.keras"
        model.save(path, save_format=save_format)
        again = tf.keras.models.load_model(path)
        assert [layer.name for layer in again.layers] == ["wide", "reshape", "back"] or again.layers[0].name == "wide"
        assert len(again.losses) == 1
        np.testing.assert_array_equal(again(x), model(x))


# -- which format


def test_what_keras_has_no_name_for_is_written_in_our_own_format_with_a_warning(tmp_path: Path) -> None:
    x = tf.keras.Input((2,))
    model = tf.keras.Model(x, layers.Lambda(tf.math.cos)(x))
    with pytest.warns(UserWarning, match=r"Keras does not read it: tf.cos has no counterpart in Keras"):
        model.save(tmp_path / "model.keras")
    assert tf.keras.models.load_model(tmp_path / "model.keras")([[0.0, 0.0]]).numpy().tolist() == [[1.0, 1.0]]
    with pytest.raises(TypeError, match="no counterpart in Keras"):
        model.save(tmp_path / "model.keras", save_format="keras")
    with pytest.raises(ValueError, match="save_format must be"):
        model.save(tmp_path / "model.keras", save_format="h5")


def test_without_h5py_a_sentence_says_what_to_install(tmp_path: Path) -> None:
    program = f"""
import sys, warnings
sys.modules["h5py"] = None
import tape_tf as tf
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    model.save({str(tmp_path / "own.keras")!r})
assert "pip install 'tape-tf[keras-files]'" in str(seen[0].message), seen
tf.keras.models.load_model({str(tmp_path / "own.keras")!r})
for call in (
    lambda: model.save_weights({str(tmp_path / "x.weights.h5")!r}),
    lambda: tf.keras.models.load_model({str(DATA / "plain.keras")!r}),
    lambda: tf.keras.models.load_model({str(DATA / "legacy.h5")!r}),
):
    try:
        call()
    except ModuleNotFoundError as error:
        assert "pip install 'tape-tf[keras-files]'" in str(error)
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert [path.name for path in tmp_path.iterdir()] == ["own.keras"]


# -- damage and hostility


def _entries(path: Path, change: Any, target: Path) -> Path:
    """Write a copy of a file whose weights `change` has changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    stream = BytesIO(members["model.weights.h5"])
    with h5py.File(stream, "r+") as file:
        change(file)
    members["model.weights.h5"] = stream.getvalue()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def _replace(path: str, **how: Any) -> Any:
    def change(file: Any) -> None:
        del file[path]
        file.create_dataset(path, **how)

    return change


HOSTILE = {
    "a soft link": (lambda f: f.__setitem__("layers/dense/more", h5py.SoftLink("/optimizer")), "link to elsewhere"),
    "a link to another file": (
        lambda f: f.__setitem__("x", h5py.ExternalLink("/etc/passwd", "/")),
        "link to elsewhere",
    ),
    "a group in itself": (lambda f: f["layers"].__setitem__("again", f["layers"]), "occurs twice"),
    "an array of another shape": (_replace("layers/dense/vars/0", data=np.zeros((4, 9))), r"\(4, 3\), and \(4, 9\)"),
    "texts": (_replace("layers/dense/vars/0", data=np.array([b"x"])), "no numbers"),
    "a missing array": (lambda f: f.__delitem__("layers/dense/vars/1"), "has 2 weights, and 1 in the file"),
    "a missing layer": (lambda f: f.__delitem__("layers/dense"), "has 2 weights, and 0 in the file"),
    "another layer": (lambda f: f.create_dataset("layers/other/vars/0", data=[1.0]), "no layer is there"),
    "a hole in the numbers": (lambda f: f.move("layers/dense/vars/1", "layers/dense/vars/7"), "not numbered"),
    "an enormous array": (
        _replace("layers/dense/vars/0", shape=(1 << 20, 1 << 20), dtype="f4", chunks=(64, 64)),
        "far more than the file has",
    ),
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_weights_that_are_not_keras_own_are_refused(case: str, tmp_path: Path) -> None:
    change, message = HOSTILE[case]
    path = _entries(DATA / "plain.keras", change, tmp_path / "model.keras")
    with pytest.raises(ValueError, match=message):
        tf.keras.models.load_model(path)
    with zipfile.ZipFile(path) as archive:
        (tmp_path / "w.weights.h5").write_bytes(archive.read("model.weights.h5"))
    model = PROGRAMS.plain(tf.keras)
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        model.load_weights(tmp_path / "w.weights.h5")
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_skip_mismatch_loads_the_rest_and_warns(tmp_path: Path) -> None:
    model = PROGRAMS.plain(tf.keras)
    model.save_weights(tmp_path / "w.weights.h5")
    other = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(5)])
    with pytest.warns(UserWarning, match="left out, since it does not fit"):
        other.load_weights(tmp_path / "w.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(other.layers[0].kernel, model.layers[0].kernel)


def test_a_changed_number_in_a_file_of_weights_is_noticed(tmp_path: Path) -> None:
    model = PROGRAMS.plain(tf.keras)
    model.save_weights(tmp_path / "w.weights.h5")
    content = bytearray((tmp_path / "w.weights.h5").read_bytes())
    at = content.index(model.layers[0].kernel.numpy().tobytes())
    content[at] ^= 1
    (tmp_path / "w.weights.h5").write_bytes(content)
    with pytest.raises(ValueError, match="checksum differs"):
        model.load_weights(tmp_path / "w.weights.h5")


# -- Keras itself


def test_keras_reads_what_is_written_here(tmp_path: Path) -> None:
    """In a process of its own: Keras brings a library that computes, with threads and settings."""
    for needed in ("keras", "tensorflow"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    for name, make in PROGRAMS.MODELS.items():
        tf.keras.utils.set_random_seed(1)
        model, x = make(tf.keras), PROGRAMS.inputs(name)
        if model.compiled:
            PROGRAMS.train(model, x, PROGRAMS.STEPS)
        model.save(tmp_path / f"{name}.keras")
        model.save_weights(tmp_path / f"{name}.weights.h5")
        found = {"outputs": PROGRAMS.outputs(model, x)}
        if model.compiled:
            PROGRAMS.train(model, x, 1)
            found["trained"] = PROGRAMS.outputs(model, x)
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    program = f"""
import json, sys
import numpy as np
sys.path.insert(0, {str(TESTS / "expected")!r})
import keras, make_keras_files as programs
for name, make in programs.MODELS.items():
    expected, x = json.load(open(name + ".json")), programs.inputs(name)
    model, other = keras.models.load_model(name + ".keras"), make(keras)
    other.load_weights(name + ".weights.h5")
    for found in (model, other):
        for y, z in zip(programs.outputs(found, x), expected["outputs"], strict=True):
            np.testing.assert_allclose(y, z, rtol=2e-5, atol=2e-6)
    if "trained" in expected:
        programs.train(model, x, 1)
        for y, z in zip(programs.outputs(model, x), expected["trained"], strict=True):
            np.testing.assert_allclose(y, z, rtol=2e-5, atol=2e-6)
"""
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}  # strings take it
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600, cwd=tmp_path, env=environment)


def write_legacy_weights(path: Path, layers: dict[str, list[Any]]) -> None:
    """Write a file of weights as Keras 2 does: a group for each layer, by its name."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in layers]
        for name, arrays in layers.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = [f"{name}/w{k}:0".encode() for k in range(len(arrays))]
            for k, array in enumerate(arrays):
                group.create_dataset(f"{name}/w{k}:0", data=array)


def test_statistics_of_a_normalization_are_weights_in_files_of_keras_2(tmp_path: Path) -> None:
    def model(**given: Any) -> Any:
        first = tf.keras.layers.Normalization(axis=-1, **given)
        return tf.keras.Sequential([tf.keras.Input((2,)), first, tf.keras.layers.Dense(1)])

    kernel, bias = np.array([[1.0], [2.0]], "float32"), np.array([0.5], "float32")
    statistics = [np.array([1.0, 2.0], "float32"), np.array([4.0, 9.0], "float32"), np.zeros((), "int64")]
    path = tmp_path / "adapted.h5"
    write_legacy_weights(path, {"input": [], "normalization": statistics, "dense": [kernel, bias]})
    made = model(mean=[0.0, 0.0], variance=[1.0, 1.0])
    made.load_weights(path)
    np.testing.assert_allclose(made(tf.constant([[3.0, 5.0]])), [[1.0 + 2.0 + 0.5]], rtol=1e-6)
    # Statistics that were arguments are not in the file.
    write_legacy_weights(path, {"dense": [kernel, bias]})
    made = model(mean=[0.0, 0.0], variance=[1.0, 1.0])
    made.load_weights(path)
    np.testing.assert_allclose(made(tf.constant([[3.0, 5.0]])), [[13.5]], rtol=1e-6)
    write_legacy_weights(path, {"normalization": [np.zeros(3), np.ones(3), np.zeros(())], "dense": [kernel * 2, bias]})
    with pytest.raises(ValueError, match=r"adapted\.h5"):
        made.load_weights(path)
    np.testing.assert_allclose(made(tf.constant([[3.0, 5.0]])), [[13.5]], rtol=1e-6)
