"""What all networks have in common: their input, the layers on top, and their weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tape_tf.keras import layers
from tape_tf.keras.applications.imagenet import publish_helpers, published_file
from tape_tf.keras.models import Model
from tape_tf.keras.symbolic import Input, KerasTensor
from tape_tf.names import export, published
from tape_tf.typing import ActivationLike, PartialShape, PathLike

_PUBLISHED = "https://storage.googleapis.com/tensorflow/keras-applications"
_CLASSES = 1000  # of ImageNet

Block = Callable[[Any], Any]
"""A part of a network: a function from one symbolic tensor to another."""


@dataclass(frozen=True)
class Options:
    """The arguments that every network takes.

    Attributes:
        include_top: whether the layers that tell the classes apart are part of the network.
        weights: None for random ones, "imagenet" for those that Keras publishes, or the name of a file.
        input_tensor: a symbolic tensor that the network begins with.
        input_shape: (height, width, channels), where the network is without its top.
        pooling: what becomes of the last feature maps without the top: None, "avg" or "max".
        classes: the number of classes.
        classifier_activation: the activation of the last layer.
    """

    include_top: bool
    weights: PathLike | None
    input_tensor: Any
    input_shape: PartialShape | None
    pooling: str | None
    classes: int
    classifier_activation: ActivationLike

    @property
    def imagenet(self) -> bool:
        """True if the published weights are wanted."""
        return self.weights == "imagenet"

    def classifier(self, x: Any) -> Any:
        """Return the last layer, of one probability for each class."""
        return layers.Dense(self.classes, activation=self.classifier_activation, name="predictions")(x)


@dataclass(frozen=True)
class Network:
    """A network: what it is made of, and where its weights are published.

    Attributes:
        body: from an image to the last feature maps.
        top: from these to the probabilities of the classes.
        size: the height and width of images of ImageNet.
        least: the least height and width.
        folder, files: where the weights are published, with and without the top.
        pool_names: the names of the layers of `pooling="avg"` and `"max"`; None for automatic ones.
    """

    body: Block
    top: Block
    size: int
    least: int
    folder: str
    files: tuple[str, str]
    pool_names: tuple[str | None, str | None] = (None, None)


def options(network: str, **given: Any) -> Options:
    """Return the arguments of a network, checked.

    Raises:
        ValueError: they do not go together, or `weights` names no file.
    """
    found = Options(**given)
    weights = found.weights
    if not (weights is None or found.imagenet or os.path.isfile(weights)):
        raise ValueError(
            f"{network}: the `weights` argument should be either `None` (random initialization), 'imagenet' "
            "(pre-training on ImageNet), or the path to the weights file to be loaded. "
            f"Received: weights={os.fspath(weights)}"
        )
    if found.pooling not in (None, "avg", "max"):
        raise ValueError(f"{network}: pooling must be None, 'avg' or 'max'; got {found.pooling!r}")
    if not found.include_top:
        return found
    if found.imagenet and found.classes != _CLASSES:
        raise ValueError(
            f"{network}: if using `weights='imagenet'` with `include_top=True`, `classes` should be {_CLASSES}. "
            f"Received classes={found.classes}"
        )
    if weights is not None and found.classifier_activation not in ("softmax", None):
        raise ValueError(
            f"{network}: only `None` and `softmax` activations are allowed for the `classifier_activation` argument "
            f"when using pretrained weights, with `include_top=True`; got {found.classifier_activation!r}"
        )
    return found


ARGUMENTS = """

    Args:
        include_top: whether the layers that tell the classes apart are part of it.
        weights: "imagenet" for those that Keras publishes, in `~/.keras/models`, to which they are downloaded if need
            be; the name of a file of weights; or None for random ones.
        input_tensor: a `tf.keras.Input`, or what layers made of one, to begin with.
        input_shape: (height, width, channels): any that is not too small, without the top or without the published
            weights. By default that of ImageNet with the top, and an unknown height and width without it.
        pooling: without the top, None for the last feature maps, or their "avg" or "max".
        classes: the number of classes; 1000 with the published weights.
        classifier_activation: "softmax", or None for logits.
        name: the name of the model.

    Raises:
        ValueError: the arguments do not go together, or the weights do not fit.
        OSError: the published weights are not there, and cannot be downloaded; the message says where to put them.
    """


def publish_network(
    label: str, spaces: str, name: str, network: Callable[[Options], Network], mode: str | None, text: str
) -> None:
    """Publish a function that makes a model, `keras.applications.{label}`, and in the modules `spaces`.

    Args:
        name: the default name of the model.
        network: the network for the arguments that are given.
        mode: how pixels are scaled: see `imagenet.preprocess_input`.
        text: the first line of the docstring.
    """
    default_name = name

    def function(
        include_top: bool = True,
        weights: PathLike | None = "imagenet",
        input_tensor: Any = None,
        input_shape: PartialShape | None = None,
        pooling: str | None = None,
        classes: int = _CLASSES,
        classifier_activation: ActivationLike = "softmax",
        name: str = default_name,
    ) -> Model:
        chosen = options(
            label,
            include_top=include_top,
            weights=weights,
            input_tensor=input_tensor,
            input_shape=input_shape,
            pooling=pooling,
            classes=classes,
            classifier_activation=classifier_activation,
        )
        return make(network(chosen), chosen, name)

    function.__name__ = function.__qualname__ = label
    function.__doc__ = f"{text}{ARGUMENTS}"
    export(f"keras.applications.{label}", function)
    for space in spaces.split():
        export(f"keras.applications.{space}.{label}", function)
        if f"keras.applications.{space}.preprocess_input" not in published():
            publish_helpers(space, mode)


def file_names(name: str, infix: str = "_weights_tf_dim_ordering_tf_kernels") -> tuple[str, str]:
    """Return the names of the files of published weights, with and without the top."""
    return f"{name}{infix}.h5", f"{name}{infix}_notop.h5"


def input_shape_of(chosen: Options, size: int, least: int) -> tuple[int | None, ...]:
    """Return the shape of an image, checked.

    Raises:
        ValueError: it is no triple, too small, or not that of the published weights.
    """
    given = chosen.input_shape
    if given is None:
        return (size, size, 3) if chosen.include_top else (None, None, 3)
    shape = tuple(given)
    if len(shape) != 3:
        raise ValueError("`input_shape` must be a tuple of three integers.")
    if chosen.imagenet and shape[-1] != 3:
        raise ValueError(f"The input must have 3 channels; Received `input_shape={shape}`")
    if chosen.include_top and chosen.imagenet and shape != (size, size, 3):
        raise ValueError(
            f"When setting `include_top=True` and loading `imagenet` weights, `input_shape` should be "
            f"{(size, size, 3)}.  Received: input_shape={shape}"
        )
    if chosen.include_top and None in shape:
        raise ValueError(
            f"If `include_top` is True, you should specify a static `input_shape`. Received: input_shape={shape}"
        )
    if any(n is not None and n < least for n in shape[:2]):
        raise ValueError(f"Input size must be at least {least}x{least}; Received: input_shape={shape}")
    return shape


def make(network: Network, chosen: Options, name: str) -> Model:
    """Return the model of a network.

    Raises:
        ValueError: the options do not go together, or the weights do not fit.
        OSError: the published weights are not there, and cannot be downloaded.
    """
    shape = input_shape_of(chosen, network.size, network.least)
    tensor = chosen.input_tensor
    if tensor is not None and not isinstance(tensor, KerasTensor):
        raise ValueError(f"{name}: input_tensor must be a tf.keras.Input or what layers made of one")
    # The file first: without it, a network with random weights would be made in vain.
    path = chosen.weights
    if chosen.imagenet:
        file = network.files[0 if chosen.include_top else 1]
        path = published_file(file, "/".join([part for part in (_PUBLISHED, network.folder, file) if part]))
    inputs = Input(shape) if tensor is None else tensor
    x = network.body(inputs)
    if chosen.include_top:
        x = network.top(x)
    elif chosen.pooling is not None:
        place = ("avg", "max").index(chosen.pooling)
        kind = (layers.GlobalAveragePooling2D, layers.GlobalMaxPooling2D)[place]
        x = kind(name=network.pool_names[place])(x)
    sources = [inputs] if tensor is None else _sources(tensor)
    model = Model(sources[0] if len(sources) == 1 else sources, x, name=name)
    if path is not None:
        model.load_weights(path)
    return model


def _sources(tensor: KerasTensor) -> list[KerasTensor]:
    """Return the inputs that a symbolic tensor was made of, each once."""
    found: dict[int, KerasTensor] = {}
    seen: set[int] = set()
    waiting = [tensor]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if part.node is None:
            found[id(part)] = part
        else:
            waiting += reversed(part.node.parents)
    return list(found.values())


# -- parts of networks


def conv(x: Any, filters: int, size: Any, strides: int = 1, *, name: str | None, **given: Any) -> Any:
    """A convolution."""
    return layers.Conv2D(filters, size, strides=strides, name=name, **given)(x)


def normalized(x: Any, name: str | None, **given: Any) -> Any:
    """A batch normalization."""
    return layers.BatchNormalization(name=name, **given)(x)


def activated(x: Any, activation: ActivationLike, name: str | None) -> Any:
    """An activation."""
    return layers.Activation(activation, name=name)(x)


def same_margins(x: KerasTensor, kernel: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the zeros around an image with which a convolution of stride 2 halves it, rounding up.

    An even length has one zero less in front: then the windows begin at the pixel where those of "same" in other
    libraries do, with whose weights these networks were first trained.
    """
    half = kernel // 2
    rows, columns = ((half - (1 if n is None else 1 - n % 2), half) for n in tuple(x.shape)[1:3])
    return rows, columns
