"""EfficientNetB0 to B7: Tan and Le, Rethinking Model Scaling for Convolutional Neural Networks, 2019."""

from __future__ import annotations

import math
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
    same_margins,
)
from tape_tf.keras.applications.imagenet import STDDEV_RGB
from tape_tf.keras.initializers import VarianceScaling

# Factors of width and depth, the size of images, and the share that is dropped before the classifier.
_SCALES = (
    (1.0, 1.0, 224, 0.2),
    (1.0, 1.1, 240, 0.2),
    (1.1, 1.2, 260, 0.3),
    (1.2, 1.4, 300, 0.3),
    (1.4, 1.8, 380, 0.4),
    (1.6, 2.2, 456, 0.4),
    (1.8, 2.6, 528, 0.5),
    (2.0, 3.1, 600, 0.5),
)
# The kernel, repetitions, filters, expansion and stride of each stage.
_STAGES = ((3, 1, 16, 1, 1), (3, 2, 24, 6, 2), (5, 2, 40, 6, 2), (3, 3, 80, 6, 2), (5, 3, 112, 6, 1), (5, 4, 192, 6, 2),
           (3, 1, 320, 6, 1))  # fmt: skip
_DROPPED = 0.2  # the share of examples for which the last block would be skipped in training; the first's is 0
_SQUEEZE = 0.25  # channels that are left between squeezing and exciting, of those that come into the block


def _conv(x: Any, filters: int, size: int, strides: int = 1, *, name: str, **given: Any) -> Any:
    given.setdefault("use_bias", False)
    given.setdefault("padding", "same")
    start = VarianceScaling(2.0, "fan_out", "truncated_normal")
    return conv(x, filters, size, strides, kernel_initializer=start, name=name, **given)


def _active(x: Any, name: str, activation: str) -> Any:
    return activated(normalized(x, f"{name}bn"), "swish", f"{name}{activation}")


def _rounded(filters: float) -> int:
    """Return the multiple of 8 that is nearest to a number of filters, and not less than 9/10 of it."""
    found = max(8, int(filters + 4) // 8 * 8)
    return found + 8 if found < 0.9 * filters else found


def _block(x: Any, kernel: int, filters: int, expansion: int, stride: int, dropped: float, name: str) -> Any:
    """A widening, a depthwise convolution, a factor for each channel, and a narrowing, beside a shortcut."""
    before, count = x, x.shape[-1]
    wide = count * expansion
    if expansion != 1:
        x = _active(_conv(x, wide, 1, name=f"{name}expand_conv"), f"{name}expand_", "activation")
    if stride == 2:
        x = layers.ZeroPadding2D(same_margins(x, kernel), name=f"{name}dwconv_pad")(x)
    x = layers.DepthwiseConv2D(
        kernel,
        strides=stride,
        padding="valid" if stride == 2 else "same",
        use_bias=False,
        depthwise_initializer=VarianceScaling(2.0, "fan_out", "truncated_normal"),
        name=f"{name}dwconv",
    )(x)
    x = _active(x, name, "activation")
    factors = layers.GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    factors = layers.Reshape((1, 1, wide), name=f"{name}se_reshape")(factors)
    few = max(1, int(count * _SQUEEZE))
    factors = _conv(factors, few, 1, activation="swish", use_bias=True, name=f"{name}se_reduce")
    factors = _conv(factors, wide, 1, activation="sigmoid", use_bias=True, name=f"{name}se_expand")
    x = layers.Multiply(name=f"{name}se_excite")([x, factors])
    x = normalized(_conv(x, filters, 1, name=f"{name}project_conv"), f"{name}project_bn")
    if stride == 1 and count == filters:
        if dropped > 0:
            x = layers.Dropout(dropped, noise_shape=(None, 1, 1, 1), name=f"{name}drop")(x)
        x = layers.Add(name=f"{name}add")([x, before])
    return x


def _network(number: int, chosen: Options) -> Network:
    width, depth, size, dropout = _SCALES[number]
    repeats = [math.ceil(depth * stage[1]) for stage in _STAGES]

    def body(x: Any) -> Any:
        x = layers.Rescaling(1.0 / 255.0)(x)
        x = layers.Normalization(mean=[0.0] * x.shape[-1], variance=[1.0] * x.shape[-1])(x)
        if chosen.imagenet:
            # The published weights were trained with a division by the deviation, and divide by its square root.
            x = layers.Rescaling([1.0 / math.sqrt(deviation) for deviation in STDDEV_RGB])(x)
        x = layers.ZeroPadding2D(same_margins(x, 3), name="stem_conv_pad")(x)
        x = _conv(x, _rounded(32 * width), 3, 2, padding="valid", name="stem_conv")
        x = _active(x, "stem_", "activation")
        done = 0
        for stage, (kernel, _, filters, expansion, stride) in enumerate(_STAGES, start=1):
            for k in range(repeats[stage - 1]):
                x = _block(
                    x,
                    kernel,
                    _rounded(filters * width),
                    expansion,
                    stride if k == 0 else 1,
                    _DROPPED * done / sum(repeats),
                    f"block{stage}{chr(ord('a') + k)}_",
                )
                done += 1
        return _active(_conv(x, _rounded(1280 * width), 1, name="top_conv"), "top_", "activation")

    def top(x: Any) -> Any:
        x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
        x = layers.Dropout(dropout, name="top_dropout")(x)
        start = VarianceScaling(1.0 / 3.0, "fan_out", "uniform")
        activation = chosen.classifier_activation
        return layers.Dense(chosen.classes, activation, kernel_initializer=start, name="predictions")(x)

    return Network(body, top, size, 32, "", file_names(f"efficientnetb{number}", ""), ("avg_pool", "max_pool"))


for _number in range(len(_SCALES)):
    publish_network(
        f"EfficientNetB{_number}",
        "efficientnet",
        f"efficientnetb{_number}",
        partial(_network, _number),
        None,
        f"The network whose width, depth and size of images were scaled together, number {_number}.",
    )
