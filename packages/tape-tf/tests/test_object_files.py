"""tf.saved_model of tf.Modules: their functions as programs of ops, which are trained again when loaded."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

X = np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(4, 3)


class Dense(tf.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.w = tf.Variable(np.random.default_rng(seed).normal(size=(3, 2)).astype("float32"))
        self.b = tf.Variable([1.0, 2.0], trainable=False)

    def __call__(self, x: Any) -> Any:
        return tf.nn.relu(x @ self.w + self.b)


class Net(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [Dense(0), Dense(1)]
        self.calls = tf.Variable(0.0)
        self.scales = {"a": tf.Variable(3.0)}

    @tf.function
    def __call__(self, x: Any, power: int = 2) -> Any:
        self.calls.assign_add(1.0)
        y = tf.nn.softmax(self.parts[0](x)) + tf.constant([1.0, 2.0]) * self.scales["a"] + self.parts[1](x)
        return {"y": tf.reduce_sum(y**power, axis=1, keepdims=True), "more": (x[..., tf.newaxis], tf.cast(x, tf.int32))}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def serve(self, x: Any) -> Any:
        return tf.reshape(self.parts[0](x), [-1])


@pytest.mark.each_backend
def test_a_module_with_its_functions_is_called_served_and_trained_again(tmp_path: Path) -> None:
    net = Net()
    expected, cubed = net(X), net(X, power=3)
    tf.saved_model.save(net, tmp_path / "net")
    assert tf.saved_model.contains_saved_model(tmp_path / "net")
    assert float(net.calls) == 2.0  # it ran on samples, of which nothing is left
    again = tf.saved_model.load(tmp_path / "net")
    np.testing.assert_allclose(again(X)["y"], expected["y"], rtol=1e-5)
    np.testing.assert_allclose(again(X, power=3)["y"], cubed["y"], rtol=1e-5)
    assert [part.shape for part in again(X)["more"]] == [(4, 3, 1), (4, 3)]
    assert float(again.calls) == 5.0
    for rows in (1, 7):
        x = np.ones((rows, 3), "float32")
        np.testing.assert_allclose(again.serve(x), net.serve(x), rtol=1e-5)
        np.testing.assert_allclose(again.signatures["serving_default"](x=x)["output_0"], net.serve(x), rtol=1e-5)
    assert (len(again.variables), len(again.trainable_variables)) == (6, 4)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.function(again.serve)(X) ** 2)
    with tf.GradientTape() as wanted:
        own = tf.reduce_sum(net.serve(X) ** 2)
    np.testing.assert_allclose(
        tape.gradient(loss, again.parts[0].w), wanted.gradient(own, net.parts[0].w), rtol=1e-4, atol=1e-6
    )
    rows = tf.vectorized_map(lambda row: again.serve(row[None]), tf.constant(X))
    np.testing.assert_allclose(tf.reshape(rows, [-1]), net.serve(X), rtol=1e-5)
    with pytest.raises(ValueError, match=r"(?s)Could not find matching concrete function.*shape=\(4, 3\)"):
        again(np.ones((5, 3), "float32"))


def test_signatures_are_named_by_the_user(tmp_path: Path) -> None:
    net = Net()
    concrete = net.__call__.get_concrete_function(tf.TensorSpec([None, 3], tf.float32, "rows"))
    tf.saved_model.save(net, tmp_path, signatures={"dict": concrete, "flat": net.serve})
    again = tf.saved_model.load(tmp_path)
    assert sorted(again.signatures) == ["dict", "flat"]
    np.testing.assert_allclose(again.signatures["dict"](rows=X)["y"], net(X)["y"], rtol=1e-5)
    with pytest.raises(TypeError, match="takes rows"):
        again.signatures["dict"](x=X)


def test_a_folder_of_one_backend_is_read_on_another(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    net = Net()
    tf.saved_model.save(net, tmp_path)
    code = (
        "import sys, tape_tf as tf; again = tf.saved_model.load(sys.argv[1]); x = tf.ones((2, 3)); "
        "print(again.parts[0].w.native.backend.name, *again.serve(x).numpy())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "TAPE_BACKEND": "torch"},
        capture_output=True,
        text=True,
        check=True,
    )
    name, *values = found.stdout.split()
    assert name == "torch"
    np.testing.assert_allclose([float(v) for v in values], net.serve(np.ones((2, 3), "float32")), rtol=1e-5)


def refused(function: Any, tmp_path: Path, match: str, *args: Any) -> None:
    module = tf.Module()
    module.function = tf.function(function)
    module.function(*args)
    with pytest.raises(ValueError, match=match):
        tf.saved_model.save(module, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_what_no_file_holds_is_refused(tmp_path: Path) -> None:
    stray = tf.Variable(1.0)
    refused(lambda x: x * stray, tmp_path, "no attribute of the object leads to", X)
    refused(lambda x: x * float(tf.reduce_sum(x)), tmp_path, "runs as plain Python", X)
    refused(lambda x: x + tf.random.normal([3]), tmp_path, "random", X)
    refused(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: -x), tmp_path, "branches on tensors", X)
    refused(lambda x: tf.stop_gradient(x) * x, tmp_path, "gradients are not those of its ops", X)
    refused(
        lambda x: tf.custom_gradient(lambda y: (y * 2.0, lambda d: d * 7.0))(x), tmp_path, "gradients are not those", X
    )
    module = tf.Module()
    module.mean = tf.function(
        lambda x: tf.reduce_sum(x) / tf.cast(tf.shape(x)[0], tf.float32), input_signature=[tf.TensorSpec([None])]
    )
    with pytest.raises(ValueError, match="computes in another way for each length"):
        tf.saved_model.save(module, tmp_path / "refused")
    with pytest.raises(TypeError, match=r"takes a Keras model or a tf\.Module"):
        tf.saved_model.save(object(), tmp_path / "refused")


def damaged(content: Any) -> Any:
    """Yield descriptions with one value replaced."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(content)
    for parent, key in places:
        kept = parent[key]
        for other in (None, -1, 10**9, "no_such", ["ref", 10**6], {}, []):
            parent[key] = other
            yield copy.deepcopy(content)
        parent[key] = kept


def test_damaged_folders_are_refused_or_give_an_object(tmp_path: Path) -> None:
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    module.f = tf.function(lambda x: tf.reduce_sum(x[1:] * module.v, axis=0), input_signature=[tf.TensorSpec([3, 2])])
    tf.saved_model.save(module, tmp_path)
    path = tmp_path / "saved_model.json"
    content = json.loads(path.read_text())
    unknown = copy.deepcopy(content)
    call = next(node for node in unknown["nodes"] if node["kind"] == "function")["programs"][0]["calls"][0]
    call[0] = "system"
    path.write_text(json.dumps(unknown))
    with pytest.raises(ValueError, match="there is no op 'system'"):
        tf.saved_model.load(tmp_path)
    refusals = 0
    for other in damaged(content):
        path.write_text(json.dumps(other))
        try:
            tf.saved_model.load(tmp_path)
        except ValueError:
            refusals += 1
    assert refusals > 100
    path.write_text(json.dumps(content))
    arrays = tmp_path / "variables.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"variables\.safetensors"):
        tf.saved_model.load(tmp_path)


def test_a_stopped_gradient_that_a_rectifier_hides_at_the_sample_is_found(tmp_path: Path) -> None:
    class Hidden(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([3])])
        def __call__(self, x: Any) -> Any:
            return tf.nn.relu(-x) * tf.stop_gradient(x)  # 0 for the positive numbers of a first sample

    with pytest.raises(ValueError, match="stop_gradient"):
        tf.saved_model.save(Hidden(), str(tmp_path / "hidden"))
