"""Pictures of models: each layer is a box, and leads to those that are called on what it gives."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import tape_tf as tf

layers = tf.keras.layers


def model() -> Any:
    a, b = tf.keras.Input((4,), name="a"), tf.keras.Input((4,), name="b")
    shared = layers.Dense(3, activation="relu", name="shared")
    inner = tf.keras.Sequential(
        [tf.keras.Input((3,)), layers.Dense(2, name="deep"), layers.ReLU(name="r")], name="inner"
    )
    inner.trainable = False
    joined = layers.Add(name="sum")([shared(a), shared(b)])
    return tf.keras.Model([a, b], [inner(joined), layers.Dense(1, name="out")(joined)])


def edges(drawing: Any) -> set[tuple[str, str]]:
    titles = dict(re.findall(r'n(\d+) \[label="(.*?)(?:\\n.*?)?", fill', drawing.dot))
    return {(titles[x], titles[y]) for x, y in re.findall(r"n(\d+) -> n(\d+);", drawing.dot)}


def test_boxes_and_edges() -> None:
    drawing = tf.keras.utils.model_to_dot(model(), show_shapes=True, show_layer_activations=True, show_trainable=True)
    assert edges(drawing) == {
        ("a (InputLayer)", "shared (Dense)"),
        ("b (InputLayer)", "shared (Dense)"),
        ("shared (Dense)", "sum (Add)"),
        ("sum (Add)", "inner (Sequential)"),
        ("sum (Add)", "out (Dense)"),
    }
    assert "activation: relu" in drawing.dot
    assert "input: (None, 4)\\noutput: (None, 3)" in drawing.dot
    assert "input: (None, 3), (None, 3)" in drawing.dot
    inside = tf.keras.utils.model_to_dot(model(), expand_nested=True, show_trainable=True, show_dtype=True)
    assert {("sum (Add)", "deep (Dense)"), ("deep (Dense)", "r (ReLU)")} < edges(inside)
    assert re.search(r"deep \(Dense\)\\ndtype: float32\\nnot trainable", inside.dot)
    root = ET.fromstring(inside.svg)
    assert len(root.findall(".//{*}title")) == inside.dot.count("label=")


def test_other_models() -> None:
    built = tf.keras.Sequential([layers.Dense(3), layers.Dense(2)])
    with pytest.raises(ValueError, match="has not yet been built"):
        tf.keras.utils.plot_model(built, to_file=None)
    built(tf.ones((5, 4)))
    assert edges(tf.keras.utils.plot_model(built, to_file=None)) == {("Dense", "Dense")}

    class Own(tf.keras.Model):
        def call(self, x: Any) -> Any:
            return x

    own = Own(name="own")
    own(tf.ones((2, 3)))
    assert tf.keras.utils.model_to_dot(own).dot.count("label=") == 1
    with pytest.raises(TypeError, match=r"takes a tf\.keras\.Model"):
        tf.keras.utils.model_to_dot(layers.Dense(2))


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawing = tf.keras.utils.plot_model(model(), show_shapes=True, dpi=64)
    assert (tmp_path / "model.svg").read_text("utf-8") == drawing.svg
    tf.keras.utils.plot_model(model(), to_file=tmp_path / "m.dot")
    assert (tmp_path / "m.dot").read_text("utf-8").startswith("digraph")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"'model\.png' needs Graphviz.*ends in \.svg"):
        tf.keras.utils.plot_model(model(), to_file="model.png")


def test_a_large_network_is_drawn() -> None:
    network = tf.keras.applications.MobileNetV2(weights=None, include_top=False, alpha=0.35)
    drawing = tf.keras.utils.plot_model(network, to_file=None, show_layer_names=True)
    assert ("block_1_project_BN (BatchNormalization)", "block_2_add (Add)") in edges(drawing)
    assert drawing.svg.startswith("<svg")
