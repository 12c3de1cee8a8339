"""DenseNet of 121, 169 and 201 layers: Huang et al., Densely Connected Convolutional Networks, 2017."""

from __future__ import annotations

from functools import partial
from typing import Any

from tape_tf.keras import layers
from tape_tf.keras.applications.building import (
    Network,
    Options,
    activated,
    conv,
    file_names,
    normalized,
    publish_network,
)

_DEPTHS = {121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}  # layers in each of conv2 to conv5
_EPSILON = 1.001e-5
_GROWTH = 32  # the number of channels that a layer adds


def _activated(x: Any, name: str) -> Any:
    return activated(normalized(x, f"{name}_bn", epsilon=_EPSILON), "relu", f"{name}_relu")


def _network(depth: int, chosen: Options) -> Network:
    def body(x: Any) -> Any:
        x = layers.ZeroPadding2D(3)(x)
        x = _activated(conv(x, 64, 7, 2, use_bias=False, name="conv1_conv"), "conv1")
        x = layers.MaxPooling2D(3, strides=2, name="pool1")(layers.ZeroPadding2D(1)(x))
        for stage, blocks in enumerate(_DEPTHS[depth], start=2):
            for k in range(1, blocks + 1):
                name = f"conv{stage}_block{k}"
                y = conv(_activated(x, f"{name}_0"), 4 * _GROWTH, 1, use_bias=False, name=f"{name}_1_conv")
                y = conv(_activated(y, f"{name}_1"), _GROWTH, 3, padding="same", use_bias=False, name=f"{name}_2_conv")
                x = layers.Concatenate(name=f"{name}_concat")([x, y])
            if stage < 5:
                # Between two stages the image and the number of channels are halved.
                x = conv(_activated(x, f"pool{stage}"), x.shape[-1] // 2, 1, use_bias=False, name=f"pool{stage}_conv")
                x = layers.AveragePooling2D(2, strides=2, name=f"pool{stage}_pool")(x)
        return activated(normalized(x, "bn", epsilon=_EPSILON), "relu", "relu")

    def top(x: Any) -> Any:
        return chosen.classifier(layers.GlobalAveragePooling2D(name="avg_pool")(x))

    return Network(body, top, 224, 32, "densenet", file_names(f"densenet{depth}"), ("avg_pool", "max_pool"))


for _depth in _DEPTHS:
    publish_network(
        f"DenseNet{_depth}",
        "densenet",
        f"densenet{_depth}",
        partial(_network, _depth),
        "torch",
        f"The network of {_depth} layers, each of which sees all before it.",
    )
