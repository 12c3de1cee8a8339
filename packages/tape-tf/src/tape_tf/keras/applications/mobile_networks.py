"""MobileNet and MobileNetV2: Howard et al., Efficient Convolutional Neural Networks for Mobile Vision Applications,
2017; Sandler et al., Inverted Residuals and Linear Bottlenecks, 2018.
"""

from __future__ import annotations

from typing import Any

from tape_tf import logger
from tape_tf.keras import layers
from tape_tf.keras.applications.building import (
    ARGUMENTS,
    Network,
    activated,
    conv,
    make,
    normalized,
    options,
    same_margins,
)
from tape_tf.keras.applications.imagenet import publish_helpers
from tape_tf.keras.models import Model
from tape_tf.names import exported
from tape_tf.typing import ActivationLike, PartialShape, PathLike

# Filters and stride of each block.
_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
# Filters, stride and expansion of each block.
_BLOCKS_V2 = (
    (16, 1, 1),
    (24, 2, 6),
    (24, 1, 6),
    (32, 2, 6),
    *((32, 1, 6),) * 2,
    (64, 2, 6),
    *((64, 1, 6),) * 3,
    *((96, 1, 6),) * 3,
    (160, 2, 6),
    *((160, 1, 6),) * 2,
    (320, 1, 6),
)
# The widths and the sizes of images that there are published weights for; in Keras' names of files 0.75 is "7_5".
_ALPHAS = (0.25, 0.5, 0.75, 1.0)
_ALPHAS_V2 = (0.35, 0.5, 0.75, 1.0, 1.3, 1.4)
_SIZES = (128, 160, 192, 224)
_SIZES_V2 = (96, *_SIZES)
_LARGEST = 224


def _size_of(label: str, chosen: Any, alpha: float, alphas: tuple[float, ...], sizes: tuple[int, ...]) -> int:
    """Return the size of images whose published weights are to be used, which is also the default size.

    Raises:
        ValueError: there are no published weights of this width.
    """
    shape = chosen.input_shape
    rows, columns = shape[:2] if shape is not None and len(shape) == 3 else (None, None)
    size = rows if rows is not None and rows == columns and rows in sizes else _LARGEST
    if chosen.imagenet:
        if alpha not in alphas:
            raise ValueError(
                f"{label}: if imagenet weights are being loaded, alpha can be one of {', '.join(map(str, alphas))} "
                f"only.  Received alpha={alpha}"
            )
        if size != rows:
            logger.warning(
                "%s: `input_shape` is undefined or non-square, or `rows` is not in %s. Weights for input shape "
                "(%d, %d) will be loaded as the default.",
                label, sizes, size, size,
            )  # fmt: skip
    return size


def _label(alpha: float, chosen: Any, size: int) -> str:
    """Return the end of a model's name, such as "1.00_224"."""
    rows = chosen.input_shape[0] if chosen.input_shape is not None else size if chosen.include_top else None
    return f"{alpha:.2f}_{rows}"


def _relu6(x: Any, name: str) -> Any:
    return layers.ReLU(6.0, name=name)(x)


@exported("keras.applications.MobileNet keras.applications.mobilenet.MobileNet")
def MobileNet(
    input_shape: PartialShape | None = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 0.001,
    include_top: bool = True,
    weights: PathLike | None = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: ActivationLike = "softmax",
    name: str | None = None,
) -> Model:
    chosen = options(
        "MobileNet",
        include_top=include_top,
        weights=weights,
        input_tensor=input_tensor,
        input_shape=input_shape,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
    )
    if chosen.imagenet and depth_multiplier != 1:
        raise ValueError(
            "MobileNet: if imagenet weights are being loaded, depth multiplier must be 1. Received "
            f"depth_multiplier={depth_multiplier}"
        )
    size = _size_of("MobileNet", chosen, alpha, _ALPHAS, _SIZES)

    def body(x: Any) -> Any:
        x = conv(x, int(32 * alpha), 3, 2, padding="same", use_bias=False, name="conv1")
        x = _relu6(normalized(x, "conv1_bn"), "conv1_relu")
        for k, (filters, stride) in enumerate(_BLOCKS, start=1):
            if stride > 1:
                x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{k}")(x)
            x = layers.DepthwiseConv2D(
                3,
                strides=stride,
                padding="same" if stride == 1 else "valid",
                depth_multiplier=depth_multiplier,
                use_bias=False,
                name=f"conv_dw_{k}",
            )(x)
            x = _relu6(normalized(x, f"conv_dw_{k}_bn"), f"conv_dw_{k}_relu")
            x = conv(x, int(filters * alpha), 1, padding="same", use_bias=False, name=f"conv_pw_{k}")
            x = _relu6(normalized(x, f"conv_pw_{k}_bn"), f"conv_pw_{k}_relu")
        return x

    def top(x: Any) -> Any:
        x = layers.GlobalAveragePooling2D(keepdims=True)(x)
        x = layers.Dropout(dropout, name="dropout")(x)
        x = conv(x, classes, 1, padding="same", name="conv_preds")
        x = layers.Reshape((classes,), name="reshape_2")(x)
        return activated(x, classifier_activation, "predictions")

    width = {1.0: "1_0", 0.75: "7_5", 0.5: "5_0"}.get(alpha, "2_5")
    files = (f"mobilenet_{width}_{size}_tf.h5", f"mobilenet_{width}_{size}_tf_no_top.h5")
    network = Network(body, top, size, 32, "mobilenet", files)
    return make(network, chosen, name or f"mobilenet_{_label(alpha, chosen, size)}")


def _rounded(count: float) -> int:
    """Return the multiple of 8 that is nearest to a number of filters, and not less than 9/10 of it."""
    found = max(8, int(count + 4) // 8 * 8)
    return found + 8 if found < 0.9 * count else found


@exported("keras.applications.MobileNetV2 keras.applications.mobilenet_v2.MobileNetV2")
def MobileNetV2(
    input_shape: PartialShape | None = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: PathLike | None = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: ActivationLike = "softmax",
    name: str | None = None,
) -> Model:
    chosen = options(
        "MobileNetV2",
        include_top=include_top,
        weights=weights,
        input_tensor=input_tensor,
        input_shape=input_shape,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
    )
    size = _size_of("MobileNetV2", chosen, alpha, _ALPHAS_V2, _SIZES_V2)

    def bn(x: Any, name: str) -> Any:
        return normalized(x, name, epsilon=1e-3, momentum=0.999)

    def block(x: Any, filters: int, stride: int, expansion: int, number: int) -> Any:
        channels = x.shape[-1]
        wide, name = x, f"block_{number}" if number else "expanded_conv"
        if number:
            wide = conv(x, expansion * channels, 1, padding="same", use_bias=False, name=f"{name}_expand")
            wide = _relu6(bn(wide, f"{name}_expand_BN"), f"{name}_expand_relu")
        if stride == 2:
            wide = layers.ZeroPadding2D(same_margins(wide, 3), name=f"{name}_pad")(wide)
        wide = layers.DepthwiseConv2D(
            3,
            strides=stride,
            use_bias=False,
            padding="same" if stride == 1 else "valid",
            name=f"{name}_depthwise",
        )(wide)
        wide = _relu6(bn(wide, f"{name}_depthwise_BN"), f"{name}_depthwise_relu")
        count = _rounded(int(filters * alpha))
        narrow = conv(wide, count, 1, padding="same", use_bias=False, name=f"{name}_project")
        narrow = bn(narrow, f"{name}_project_BN")
        return layers.Add(name=f"{name}_add")([x, narrow]) if channels == count and stride == 1 else narrow

    def body(x: Any) -> Any:
        x = conv(x, _rounded(32 * alpha), 3, 2, padding="same", use_bias=False, name="Conv1")
        x = _relu6(bn(x, "bn_Conv1"), "Conv1_relu")
        for number, (filters, stride, expansion) in enumerate(_BLOCKS_V2):
            x = block(x, filters, stride, expansion, number)
        # The last convolution is not made narrower.
        x = conv(x, _rounded(1280 * max(alpha, 1.0)), 1, use_bias=False, name="Conv_1")
        return _relu6(bn(x, "Conv_1_bn"), "out_relu")

    def top(x: Any) -> Any:
        return chosen.classifier(layers.GlobalAveragePooling2D()(x))

    prefix = f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{float(alpha)}_{size}"
    network = Network(body, top, size, 32, "mobilenet_v2", (f"{prefix}.h5", f"{prefix}_no_top.h5"))
    return make(network, chosen, name or f"mobilenetv2_{_label(alpha, chosen, size)}")


MobileNet.__doc__ = f"""The network of depthwise convolutions for phones.{
    ARGUMENTS.replace(
        "Args:",
        '''Args:
        alpha: the width of the network: a factor of the numbers of filters.
        depth_multiplier: the number of filters for each channel of a depthwise convolution.
        dropout: the share of features that are dropped in training, before the classifier.''',
    )
}"""
MobileNetV2.__doc__ = f"""The network of depthwise convolutions between narrow layers, for phones.{
    ARGUMENTS.replace(
        "Args:",
        '''Args:
        alpha: the width of the network: a factor of the numbers of filters.''',
    )
}"""
publish_helpers("mobilenet", "tf")
publish_helpers("mobilenet_v2", "tf")
