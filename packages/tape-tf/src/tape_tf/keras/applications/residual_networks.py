"""ResNet and ResNetV2 of 50, 101 and 152 layers: He et al., Deep Residual Learning for Image Recognition, 2016, and
Identity Mappings in Deep Residual Networks, 2016.
"""

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

_DEPTHS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # blocks in each of conv2 to conv5
_EPSILON = 1.001e-5


def _block(x: Any, filters: int, stride: int, first: bool, name: str) -> Any:
    """A block of version 1: three convolutions beside a shortcut, each followed by a normalization."""
    shortcut = x
    if first:
        shortcut = conv(x, 4 * filters, 1, stride, name=f"{name}_0_conv")
        shortcut = normalized(shortcut, f"{name}_0_bn", epsilon=_EPSILON)
    for k, (count, size, step, padding) in enumerate(
        ((filters, 1, stride, "valid"), (filters, 3, 1, "same"), (4 * filters, 1, 1, "valid")), start=1
    ):
        x = conv(x, count, size, step, padding=padding, name=f"{name}_{k}_conv")
        x = normalized(x, f"{name}_{k}_bn", epsilon=_EPSILON)
        if k < 3:
            x = activated(x, "relu", f"{name}_{k}_relu")
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return activated(x, "relu", f"{name}_out")


def _block_v2(x: Any, filters: int, stride: int, first: bool, name: str) -> Any:
    """A block of version 2: normalizations before the convolutions, and nothing on the way of the shortcut."""
    before = normalized(x, f"{name}_preact_bn", epsilon=_EPSILON)
    before = activated(before, "relu", f"{name}_preact_relu")
    if first:
        shortcut = conv(before, 4 * filters, 1, stride, name=f"{name}_0_conv")
    else:
        shortcut = layers.MaxPooling2D(1, strides=stride)(x) if stride > 1 else x
    x = conv(before, filters, 1, use_bias=False, name=f"{name}_1_conv")
    x = activated(normalized(x, f"{name}_1_bn", epsilon=_EPSILON), "relu", f"{name}_1_relu")
    x = layers.ZeroPadding2D(1, name=f"{name}_2_pad")(x)
    x = conv(x, filters, 3, stride, use_bias=False, name=f"{name}_2_conv")
    x = activated(normalized(x, f"{name}_2_bn", epsilon=_EPSILON), "relu", f"{name}_2_relu")
    x = conv(x, 4 * filters, 1, name=f"{name}_3_conv")
    return layers.Add(name=f"{name}_out")([shortcut, x])


def _network(depth: int, version: int, chosen: Options) -> Network:
    depths = _DEPTHS[depth]

    def body(x: Any) -> Any:
        x = layers.ZeroPadding2D(3, name="conv1_pad")(x)
        x = conv(x, 64, 7, 2, name="conv1_conv")
        if version == 1:
            x = activated(normalized(x, "conv1_bn", epsilon=_EPSILON), "relu", "conv1_relu")
        x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
        x = layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)
        for stage, blocks in enumerate(depths):
            for k in range(blocks):
                # Version 1 halves the image in the first block of a stage after the first, version 2 in the last block
                # of a stage before the last.
                halves = stage > 0 and k == 0 if version == 1 else stage < len(depths) - 1 and k == blocks - 1
                block = _block if version == 1 else _block_v2
                x = block(x, 64 * 2**stage, 2 if halves else 1, k == 0, f"conv{stage + 2}_block{k + 1}")
        if version == 2:
            x = activated(normalized(x, "post_bn", epsilon=_EPSILON), "relu", "post_relu")
        return x

    def top(x: Any) -> Any:
        return chosen.classifier(layers.GlobalAveragePooling2D(name="avg_pool")(x))

    files = file_names(f"resnet{depth}{'v2' if version == 2 else ''}")
    return Network(body, top, 224, 32, "resnet", files, ("avg_pool", "max_pool"))


for _depth in _DEPTHS:
    publish_network(
        f"ResNet{_depth}",
        "resnet resnet50" if _depth == 50 else "resnet",
        f"resnet{_depth}",
        partial(_network, _depth, 1),
        "caffe",
        f"The residual network of {_depth} layers.",
    )
    publish_network(
        f"ResNet{_depth}V2",
        "resnet_v2",
        f"resnet{_depth}v2",
        partial(_network, _depth, 2),
        "tf",
        f"The residual network of {_depth} layers, in its second version.",
    )
