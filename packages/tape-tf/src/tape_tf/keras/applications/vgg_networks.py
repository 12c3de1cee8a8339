"""VGG16 and VGG19: Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2015."""

from __future__ import annotations

from functools import partial
from typing import Any

from tape_tf.keras import layers
from tape_tf.keras.applications.building import Network, Options, conv, file_names, publish_network

_FILTERS = (64, 128, 256, 512, 512)
_DEPTHS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # convolutions in each block


def _network(number: int, chosen: Options) -> Network:
    def body(x: Any) -> Any:
        for block, (filters, depth) in enumerate(zip(_FILTERS, _DEPTHS[number], strict=True), start=1):
            for k in range(1, depth + 1):
                x = conv(x, filters, 3, padding="same", activation="relu", name=f"block{block}_conv{k}")
            x = layers.MaxPooling2D(2, strides=2, name=f"block{block}_pool")(x)
        return x

    def top(x: Any) -> Any:
        x = layers.Flatten(name="flatten")(x)
        for name in ("fc1", "fc2"):
            x = layers.Dense(4096, activation="relu", name=name)(x)
        return chosen.classifier(x)

    return Network(body, top, 224, 32, f"vgg{number}", file_names(f"vgg{number}"))


for _number in _DEPTHS:
    publish_network(
        f"VGG{_number}",
        f"vgg{_number}",
        f"vgg{_number}",
        partial(_network, _number),
        "caffe",
        f"The network of {_number} layers with weights, all of whose convolutions are 3 by 3.",
    )
