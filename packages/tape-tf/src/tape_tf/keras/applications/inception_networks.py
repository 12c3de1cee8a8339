"""InceptionV3: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016.

Xception: Chollet, Deep Learning with Depthwise Separable Convolutions, 2017.
"""

from __future__ import annotations

from typing import Any, TypeAlias

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

Step: TypeAlias = "tuple[int, int, int]"
"""A convolution: its filters, and the height and width of its kernel."""

# The branches of the blocks mixed0 to mixed10. A branch is a list of convolutions; the last branch of a block begins
# with a pooling. They are made in this order, after which Keras numbers their layers.
_A: list[list[Step]] = [[(64, 1, 1)], [(48, 1, 1), (64, 5, 5)], [(64, 1, 1), (96, 3, 3), (96, 3, 3)]]


def _sevens(n: int) -> list[list[Step]]:
    """The branches of a block whose convolutions are 1 by 7 and 7 by 1, with `n` filters inside."""
    return [
        [(192, 1, 1)],
        [(n, 1, 1), (n, 1, 7), (192, 7, 1)],
        [(n, 1, 1), (n, 7, 1), (n, 1, 7), (n, 7, 1), (192, 1, 7)],
        [(192, 1, 1)],
    ]


_MIXED: dict[int, list[list[Step]]] = {
    0: [*_A, [(32, 1, 1)]],
    1: [*_A, [(64, 1, 1)]],
    2: [*_A, [(64, 1, 1)]],
    4: _sevens(128),
    5: _sevens(160),
    6: _sevens(160),
    7: _sevens(192),
}
# The blocks that halve the image: the last convolution of each branch has stride 2, and no margin.
_HALVING: dict[int, list[list[Step]]] = {
    3: [[(384, 3, 3)], [(64, 1, 1), (96, 3, 3), (96, 3, 3)]],
    8: [[(192, 1, 1), (320, 3, 3)], [(192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3)]],
}


def _unit(x: Any, step: Step, stride: int = 1, padding: str = "same") -> Any:
    """A convolution, a normalization without a factor, and an activation, which get automatic names."""
    filters, rows, columns = step
    x = conv(x, filters, (rows, columns), stride, padding=padding, use_bias=False, name=None)
    return activated(normalized(x, None, scale=False), "relu", None)


def _chain(x: Any, steps: list[Step]) -> Any:
    for step in steps:
        x = _unit(x, step)
    return x


def _mixed(x: Any, number: int) -> Any:
    *branches, pooled = _MIXED[number]
    parts = [_chain(x, steps) for steps in branches]
    parts.append(_chain(layers.AveragePooling2D(3, strides=1, padding="same")(x), pooled))
    return layers.Concatenate(name=f"mixed{number}")(parts)


def _halving(x: Any, number: int) -> Any:
    parts = [_unit(_chain(x, steps[:-1]), steps[-1], 2, "valid") for steps in _HALVING[number]]
    parts.append(layers.MaxPooling2D(3, strides=2)(x))
    return layers.Concatenate(name=f"mixed{number}")(parts)


def _forked(x: Any, number: int) -> Any:
    """One of the last two blocks, whose branches fork into a convolution of 1 by 3 and one of 3 by 1."""
    parts = [_unit(x, (320, 1, 1))]
    for steps, name in (([(384, 1, 1)], f"mixed9_{number - 9}"), ([(448, 1, 1), (384, 3, 3)], None)):
        branch = _chain(x, steps)
        parts.append(layers.Concatenate(name=name)([_unit(branch, (384, 1, 3)), _unit(branch, (384, 3, 1))]))
    parts.append(_unit(layers.AveragePooling2D(3, strides=1, padding="same")(x), (192, 1, 1)))
    return layers.Concatenate(name=f"mixed{number}")(parts)


def _inception(chosen: Options) -> Network:
    def body(x: Any) -> Any:
        x = _unit(x, (32, 3, 3), 2, "valid")
        x = _unit(_unit(x, (32, 3, 3), padding="valid"), (64, 3, 3))
        x = layers.MaxPooling2D(3, strides=2)(x)
        x = _unit(_unit(x, (80, 1, 1), padding="valid"), (192, 3, 3), padding="valid")
        x = layers.MaxPooling2D(3, strides=2)(x)
        for number in range(11):
            block = _mixed if number in _MIXED else _halving if number in _HALVING else _forked
            x = block(x, number)
        return x

    def top(x: Any) -> Any:
        return chosen.classifier(layers.GlobalAveragePooling2D(name="avg_pool")(x))

    return Network(body, top, 299, 75, "inception_v3", file_names("inception_v3"))


publish_network(
    "InceptionV3",
    "inception_v3",
    "inception_v3",
    _inception,
    "tf",
    "The network whose blocks have branches with convolutions of several sizes.",
)


def _separable(x: Any, filters: int, name: str) -> Any:
    x = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
    return normalized(x, f"{name}_bn")


def _entry_block(x: Any, filters: tuple[int, int], number: int, activate_first: bool) -> Any:
    """Two separable convolutions and a pooling, beside a convolution of stride 2."""
    shortcut = normalized(conv(x, filters[-1], 1, 2, padding="same", use_bias=False, name=None), None)
    for k, count in enumerate(filters, start=1):
        if k > 1 or activate_first:
            x = activated(x, "relu", f"block{number}_sepconv{k}_act")
        x = _separable(x, count, f"block{number}_sepconv{k}")
    x = layers.MaxPooling2D(3, strides=2, padding="same", name=f"block{number}_pool")(x)
    return layers.Add()([x, shortcut])


def _xception(chosen: Options) -> Network:
    def body(x: Any) -> Any:
        for k, (filters, stride) in enumerate(((32, 2), (64, 1)), start=1):
            x = conv(x, filters, 3, stride, use_bias=False, name=f"block1_conv{k}")
            x = activated(normalized(x, f"block1_conv{k}_bn"), "relu", f"block1_conv{k}_act")
        for number, count in ((2, 128), (3, 256), (4, 728)):
            x = _entry_block(x, (count, count), number, number > 2)
        for number in range(5, 13):
            shortcut = x
            for k in (1, 2, 3):
                x = _separable(activated(x, "relu", f"block{number}_sepconv{k}_act"), 728, f"block{number}_sepconv{k}")
            x = layers.Add()([x, shortcut])
        x = _entry_block(x, (728, 1024), 13, True)
        for k, count in enumerate((1536, 2048), start=1):
            x = activated(_separable(x, count, f"block14_sepconv{k}"), "relu", f"block14_sepconv{k}_act")
        return x

    def top(x: Any) -> Any:
        return chosen.classifier(layers.GlobalAveragePooling2D(name="avg_pool")(x))

    return Network(body, top, 299, 71, "xception", file_names("xception"))


publish_network(
    "Xception", "xception", "xception", _xception, "tf", "The network of separable convolutions beside shortcuts."
)
