"""tf.compat: text, TensorFlow 2 under another name, and what is said of the names of TensorFlow 1."""

from __future__ import annotations

import logging
import re
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf
from tape_tf.absences import ABSENT
from tape_tf.names import instead


def test_text_and_bytes() -> None:
    assert tf.compat.as_bytes("\u00e4") == b"\xc3\xa4" == tf.compat.as_bytes(bytearray(b"\xc3\xa4"))
    assert tf.compat.as_text(b"\xc3\xa4") == "\u00e4" == tf.compat.as_str("\u00e4")
    assert (tf.compat.as_str_any(3), tf.compat.as_str_any(b"a")) == ("3", "a")
    assert tf.compat.path_to_str(Path("a") / "b") == str(Path("a") / "b")
    assert tf.compat.dimension_value(tf.TensorShape([None, 2])[0]) is None
    assert tf.compat.dimension_at_index(tf.TensorShape([None, 2]), 1) == 2
    for function in (tf.compat.as_bytes, tf.compat.as_text):
        with pytest.raises(TypeError, match="Expected binary or unicode string, got 3"):
            function(3)


def test_what_means_something_without_graphs() -> None:
    assert tf.compat.v2 is tf
    tf.compat.v1.enable_eager_execution()
    tf.compat.v1.enable_v2_behavior()
    assert tf.compat.v1.executing_eagerly_outside_functions()
    tf.compat.v1.set_random_seed(3)
    first = tf.random.uniform((3,)).numpy()
    tf.random.set_seed(3)
    np.testing.assert_array_equal(tf.random.uniform((3,)), first)


def test_verbosity_is_that_of_the_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("tensorflow")
    monkeypatch.setattr(logger, "level", logger.level)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    assert not logger.isEnabledFor(logging.WARNING)
    assert tf.compat.v1.logging.get_verbosity() == 40
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compat.v1.placeholder", "use arguments of a function"),
        ("compat.v1.Session", "no graphs and sessions"),
        ("compat.v1.layers.dense", "use tf.keras.layers.Dense"),
        ("compat.v1.losses.softmax_cross_entropy", "CategoricalCrossentropy\\(from_logits=True\\)"),
        ("compat.v1.train.GradientDescentOptimizer", "use tf.keras.optimizers.SGD"),
        ("compat.v1.train.polynomial_decay", "schedules.PolynomialDecay"),
        ("compat.v1.train.get_or_create_global_step", "iterations of an optimizer"),
        ("compat.v1.GraphKeys.TRAINABLE_VARIABLES", "trainable_variables"),
        ("compat.v1.nn.relu", "of TensorFlow 2 there is tf.nn.relu"),
        ("compat.v1.matmul", "of TensorFlow 2 there is tf.matmul"),
        ("estimator.ModeKeys.TRAIN", "with compile and fit"),
        ("Graph", "no graphs and sessions"),
        ("keras.utils.DeterministicRandomTestTool", "set_random_seed"),
    ],
)
def test_names_of_tensorflow_1_say_what_there_is_instead(name: str, text: str) -> None:
    with pytest.raises(AttributeError, match=text):
        reduce(getattr, name.split("."), tf)


def test_what_is_named_instead_exists() -> None:
    """Every `tf.a.b` in a hint, but for methods and attributes, which begin with a small letter after a class."""
    for absent in ABSENT:
        for name in re.findall(r"\btf\.((?:\w+\.)*\w+)", instead(absent)):
            value: Any = reduce(lambda space, part: getattr(space, part, None), name.split("."), tf)
            assert value is not None, f"{absent}: {instead(absent)}"
