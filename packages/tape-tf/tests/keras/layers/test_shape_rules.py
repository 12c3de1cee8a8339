"""The shapes that follow from rules are those that calls of the layers give."""

from __future__ import annotations

import time
from typing import Any

import pytest
import tape_tf as tf
from tape_tf.keras.symbolic import SHAPE_RULES

layers = tf.keras.layers

IMAGE = [(None, 9, 8, 3), (2, 9, 8, 3), (None, None, 8, 3), (None, None, None, 3)]
FIRST = [(None, 3, 9, 8), (None, 3, None, None)]
STEPS = [(None, 12, 3), (None, None, 3)]
CASES: dict[str, tuple[Any, list[Any]]] = {
    "valid": (lambda: layers.Conv2D(4, 3), IMAGE),
    "same": (lambda: layers.Conv2D(4, (2, 3), strides=(2, 3), padding="same", activation="relu"), IMAGE),
    "dilated": (lambda: layers.Conv2D(4, 3, dilation_rate=2), IMAGE),
    "channels first": (lambda: layers.Conv2D(4, 3, strides=2, data_format="channels_first"), FIRST),
    "causal": (lambda: layers.Conv1D(4, 3, strides=2, padding="causal"), STEPS),
    "groups": (lambda: layers.Conv1D(6, 3, groups=3), STEPS),
    "volume": (lambda: layers.Conv3D(2, 2), [(None, 5, 4, 3, 2)]),
    "depthwise": (lambda: layers.DepthwiseConv2D(3, strides=2, depth_multiplier=2), IMAGE),
    "separable": (lambda: layers.SeparableConv2D(5, 3, padding="same"), IMAGE),
    "max": (lambda: layers.MaxPooling2D(2), IMAGE + FIRST),
    "mean": (lambda: layers.AveragePooling2D(3, strides=1, padding="same"), IMAGE),
    "max of channels first": (lambda: layers.MaxPooling2D(2, data_format="channels_first"), FIRST),
    "global": (lambda: layers.GlobalAveragePooling2D(), IMAGE),
    "global, kept": (lambda: layers.GlobalMaxPooling2D(keepdims=True), IMAGE),
    "global, channels first": (lambda: layers.GlobalMaxPooling2D(data_format="channels_first"), FIRST),
    "zeros": (lambda: layers.ZeroPadding2D(((1, 2), (0, 3))), IMAGE),
    "zeros, steps": (lambda: layers.ZeroPadding1D((2, 1)), STEPS),
    "normalization": (lambda: layers.BatchNormalization(), IMAGE + STEPS),
    "normalization, axis 1": (lambda: layers.BatchNormalization(axis=1), FIRST),
    "dense": (lambda: layers.Dense(5), IMAGE + STEPS),
    "activation": (lambda: layers.Activation("softmax"), IMAGE),
    "dropout": (lambda: layers.Dropout(0.5), IMAGE),
    "flatten": (lambda: layers.Flatten(), IMAGE),
    "reshape": (lambda: layers.Reshape((-1, 6)), [(None, 9, 8, 3), (None, 6)]),
    "sum": (lambda: layers.Add(), [[(None, 3), (None, 3)], [(None, None, 2)] * 3, [(None, 3), (None, 1)]]),
    "join": (lambda: layers.Concatenate(), [[(None, 3), (None, 4)], [(None, 2, None), (None, 2, 5)]]),
    "join axis 1": (lambda: layers.Concatenate(axis=1), [[(None, 3, 2), (None, 4, 2)]]),
    "model": (
        lambda: tf.keras.Sequential([tf.keras.Input((9, 8, 3)), layers.Conv2D(2, 3), layers.Flatten()]),
        [(None, 9, 8, 3), (2, 9, 8, 3)],
    ),
}


def inputs(shapes: Any) -> Any:
    return [inputs(part) for part in shapes] if isinstance(shapes, list) else tf.keras.Input(batch_shape=shapes)


@pytest.mark.parametrize("name", CASES)
def test_rules_agree_with_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shapes = CASES[name]
    for shape in shapes:
        layer = make()
        assert type(layer) in SHAPE_RULES
        found = layer(inputs(shape))
        again = layer(inputs(shape))  # with weights that are there already
        with monkeypatch.context() as patch:
            for kind in list(SHAPE_RULES):
                patch.delitem(SHAPE_RULES, kind)
            called = make()
            expected = called(inputs(shape))
        assert (found.shape, found.dtype) == (again.shape, again.dtype) == (expected.shape, expected.dtype), shape
        assert [v.shape for v in layer.weights] == [v.shape for v in called.weights]
        assert [v.name.partition("/")[2] for v in layer.weights] == [v.name.partition("/")[2] for v in called.weights]


@pytest.mark.parametrize("policy", ["mixed_float16", "float64"])
def test_rules_give_the_dtypes_of_calls(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def dtypes() -> list[str]:
        x = tf.keras.Input((8, 8, 3), dtype="float32")
        found = []
        for layer in (
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(3),
            layers.Flatten(),
            layers.Dense(3),
            layers.Activation("softmax", dtype="float32"),
        ):
            x = layer(x)
            found.append(x.dtype.name)
        return found

    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        by_rules = dtypes()
        with monkeypatch.context() as patch:
            for kind in list(SHAPE_RULES):
                patch.delitem(SHAPE_RULES, kind)
            assert by_rules == dtypes()
    finally:
        tf.keras.mixed_precision.set_global_policy(None)  # as in the beginning: floatx decides


def test_mistakes_are_reported_as_by_a_call() -> None:
    dense, conv = layers.Dense(2), layers.Conv2D(2, 3)
    dense(tf.keras.Input((3,)))
    conv(tf.keras.Input((9, 9, 3)))
    for layer, shape in ((dense, (4,)), (conv, (9, 9, 4)), (conv, (9, 9)), (layers.Conv2D(2, 5), (3, 3, 1))):
        with pytest.raises(ValueError, match=r".") as error:
            layer(tf.keras.Input(shape))
        assert "in the call of layer" in "".join(error.value.__notes__)
    with pytest.raises(ValueError, match="2 or more"):
        layers.Add()([tf.keras.Input((3,))])
    with pytest.raises(ValueError, match="must be unchanged"):
        layers.Reshape((5,))(tf.keras.Input((4,)))


def test_a_class_that_computes_something_else_is_called() -> None:
    class Wider(layers.Dense):
        def call(self, inputs: Any) -> Any:
            return tf.concat([super().call(inputs)] * 2, axis=-1)

    assert Wider(3)(tf.keras.Input((4,))).shape == (None, 6)
    assert layers.Activation(lambda x: x[:, 1:])(tf.keras.Input((4,))).shape == (None, 3)
    assert layers.Dense(5, activation=lambda x: x[:, :2])(tf.keras.Input((4,))).shape == (None, 2)


def test_a_network_for_images_is_made_without_computing_it() -> None:
    start = time.perf_counter()
    x = tf.keras.Input((512, 512, 64))
    for _ in range(8):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(64, 3, padding="same")(x)))
    # Calls of these layers on two and three images would compute 800 thousand million products.
    assert time.perf_counter() - start < 3.0
