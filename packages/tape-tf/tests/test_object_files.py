"""tf.saved_model of tf.Modules: their functions as programs of ops, which are trained again when loaded."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_nn as nn
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


def damaged(content: Any, every: int = 1) -> Any:
    """Yield descriptions with one value replaced, at each place or every so many."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(content)
    for parent, key in places[::every]:
        kept = parent[key]
        for other in (None, -1, 10**9, "no_such", ["ref", 10**6], {}, []):
            parent[key] = other
            yield copy.deepcopy(content)
        parent[key] = kept


def describe(folder: Path, content: Any) -> None:
    """Replace the description by another one, with the checksum that belongs to it."""
    text = json.dumps(content)
    (folder / "saved_model.json").write_text(text)
    arrays, metadata = nn.load_tensors(folder / "variables.safetensors")
    metadata["tape_tf.described"] = hashlib.sha256(text.encode()).hexdigest()
    nn.save_tensors(folder / "variables.safetensors", arrays, metadata)


def test_files_of_two_objects_are_not_mixed(tmp_path: Path) -> None:
    class Line(tf.Module):
        def __init__(self, start: float) -> None:
            super().__init__()
            self.start, self.v = start, tf.Variable(start)

        @tf.function(input_signature=[tf.TensorSpec([])])
        def f(self, x: Any) -> Any:
            return x * self.v + self.start

    for name, value in (("a", 1.0), ("b", 2.0)):
        tf.saved_model.save(Line(value), tmp_path / name)
    assert tf.saved_model.load(tmp_path / "a").f(3.0).numpy() == 4.0
    (tmp_path / "a" / "variables.safetensors").write_bytes((tmp_path / "b" / "variables.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"saved_model\.json.*belongs to something else that was saved"):
        tf.saved_model.load(tmp_path / "a")
    path = tmp_path / "b" / "saved_model.json"
    path.write_text(path.read_text().replace("[]", "[ ]", 1))
    with pytest.raises(ValueError, match="it was changed, or"):
        tf.saved_model.load(tmp_path / "b")
    (tmp_path / "b" / "variables.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        tf.saved_model.load(tmp_path / "b")


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
    describe(tmp_path, unknown)
    with pytest.raises(ValueError, match="there is no op 'system'"):
        tf.saved_model.load(tmp_path)
    refusals = 0
    for other in damaged(content):
        describe(tmp_path, other)
        try:
            tf.saved_model.load(tmp_path)
        except ValueError:
            refusals += 1
    assert refusals > 100
    describe(tmp_path, content)
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


# -- branches and loops


class Flows(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(2.0)
        self.steps = tf.Variable(0, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([3]), tf.TensorSpec([], tf.int32)])
    def __call__(self, x: Any, times: Any) -> Any:
        """A branch, with one inside, and then a loop as long as an argument says."""

        def large() -> Any:
            return tf.cond(x[0] > 10.0, lambda: x * 0.0 + 1.0, lambda: tf.sin(x) * self.scale)

        start = tf.cond(tf.reduce_sum(x) > 1.0, large, lambda: -x * tf.constant([1.0, 2.0, 3.0]))
        return tf.while_loop(lambda k, y: k < times, lambda k, y: (k + 1, y * self.scale + x), (0, start))[1]

    @tf.function(input_signature=[tf.TensorSpec([40, 2])])
    def rows(self, x: Any) -> Any:
        """Loops over many rows, which are no instructions of their own."""
        return tf.map_fn(lambda row: tf.reduce_sum(row) * self.scale, x), tf.scan(lambda a, row: a * 0.5 + row, x)

    @tf.function(input_signature=[tf.TensorSpec([], tf.bool)])
    def count(self, up: Any) -> Any:
        """Branches that assign."""
        return tf.cond(up, lambda: self.steps.assign_add(1), lambda: self.steps.assign_sub(1))


STARTS = [(0.1, 0.2, 0.3), (1.0, 2.0, 3.0), (11.0, 2.0, 3.0)]


@pytest.mark.each_backend
@pytest.mark.parametrize("start", STARTS)
def test_branches_and_loops_are_saved_and_trained_again(tmp_path: Path, start: tuple[float, ...]) -> None:
    own = Flows()
    tf.saved_model.save(own, tmp_path)
    again = tf.saved_model.load(tmp_path)
    x = tf.constant(start)
    for times in (0, 2, 5):
        n = tf.constant(times)
        np.testing.assert_allclose(again(x, n), own(x, n), rtol=1e-6)
        np.testing.assert_allclose(tf.function(lambda x, n: again(x, n))(x, n), own(x, n), rtol=1e-6)
        found = []
        for net in (own, again):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(net(x, n) ** 2)
            found.append(tape.gradient(loss, [x, net.scale], unconnected_gradients="zero"))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    many = tf.reshape(tf.range(80.0), (40, 2))
    for ours, theirs in zip(own.rows(many), again.rows(many), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-6)


def test_branches_that_assign_are_saved(tmp_path: Path) -> None:
    own = Flows()
    tf.saved_model.save(own, tmp_path)
    again = tf.saved_model.load(tmp_path)
    for up in (True, True, False):
        again.count(tf.constant(up))
    assert (int(again.steps), int(own.steps)) == (1, 0)


def test_vmap_and_jacobians_go_through_loaded_branches(tmp_path: Path) -> None:
    own = Flows()
    tf.saved_model.save(own, tmp_path)
    again = tf.saved_model.load(tmp_path)
    batch = tf.constant(STARTS)
    expected = tf.stack([own(row, tf.constant(2)) for row in batch])
    np.testing.assert_allclose(tf.vectorized_map(lambda row: again(row, tf.constant(2)), batch), expected, rtol=1e-6)
    jacobians = []
    for net in (own, again):
        with tf.GradientTape() as tape:
            tape.watch(batch)
            y = net(batch[1], tf.constant(3))
        jacobians.append(tape.jacobian(y, batch))
    np.testing.assert_allclose(jacobians[1], jacobians[0], rtol=1e-5)


def test_a_gradient_that_is_stopped_in_a_branch_or_loop_is_found_wherever_it_is(tmp_path: Path) -> None:
    positive = np.ones(3, "float32")

    def branch(x: Any) -> Any:  # not the one that samples take
        return tf.cond(tf.reduce_sum(x) < -100.0, lambda: tf.stop_gradient(x) * x, lambda: x)

    def loop(x: Any) -> Any:  # of no step, for samples
        stop = tf.cast(tf.reduce_sum(x) - 100.0, tf.int32)
        return tf.while_loop(lambda k, y: k < stop, lambda k, y: (k + 1, tf.stop_gradient(y) * x), (0, x))[1]

    def custom(x: Any) -> Any:
        return tf.cond(
            tf.reduce_sum(x) < -100.0, lambda: tf.custom_gradient(lambda y: (y, lambda d: d * 7.0))(x), lambda: x
        )

    for function in (branch, loop, custom):
        refused(function, tmp_path, "has branches or loops, and its gradients are not seen to be those", positive)


def test_draws_in_branches_are_refused(tmp_path: Path) -> None:
    def noisy(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x + tf.random.normal([3]), lambda: x)

    refused(noisy, tmp_path, "random", np.ones(3, "float32"))


def test_damaged_branches_and_loops_are_refused_or_give_an_object(tmp_path: Path) -> None:
    tf.saved_model.save(Flows(), tmp_path)
    path = tmp_path / "saved_model.json"
    content = json.loads(path.read_text())
    refusals = 0
    for other in damaged(content, every=29):  # of about 1,500
        describe(tmp_path, other)
        try:
            tf.saved_model.load(tmp_path)
        except ValueError:
            refusals += 1
    assert refusals > 100
