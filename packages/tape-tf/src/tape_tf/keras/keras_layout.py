"""Where Keras keeps each weight of a model in its files.

A file has a group for each layer. Its path consists of the attributes that lead to the layer; layers in a list are
called by their class, with a number from the second one on: `layers/dense_1`, `encoder/blocks/dense`. Some layers of
Keras are made of others where those here are not: their weights have the paths of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf.keras.layers.attention import MultiHeadAttention
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.callables import Operation
from tape_tf.keras.layers.holding import _UNTRACKED
from tape_tf.keras.layers.normalization import Normalization
from tape_tf.keras.layers.recurrent import GRU, LSTM, SimpleRNN
from tape_tf.keras.models import Model, Sequential
from tape_tf.keras.naming import snake_case
from tape_tf.variable import Variable


@dataclass
class Slot:
    """A weight of a model: how its value is read, and how it is set.

    Attributes:
        shape: the shape that a new value must have; None if the model has no value yet, and takes any.
    """

    shape: tuple[int, ...] | None
    read: Callable[[], np.ndarray[Any, Any]]
    write: Callable[[np.ndarray[Any, Any]], None]


@dataclass
class Place:
    """An object of Keras in a file: its path, its name, and its weights in order."""

    path: str
    name: str
    slots: list[Slot]


def places(model: Layer, stored: Callable[[str], int] | None = None) -> list[Place]:
    """Return the places of a model and of all layers in it, each layer once, under its first path.

    Args:
        stored: the number of arrays that a file has at a path, when one is read: some layers keep their numbers either
            as weights or as arguments.
    """
    return list(_Walk(stored).places("", model))


class _Walk:
    """One walk through a model."""

    def __init__(self, stored: Callable[[str], int] | None) -> None:
        self.stored, self.seen = stored, set[int]()

    def places(self, path: str, layer: Any) -> Iterator[Place]:
        if id(layer) in self.seen:
            return
        self.seen.add(id(layer))
        prefix = f"{path}/" if path else ""
        if isinstance(layer, LSTM | GRU | SimpleRNN):
            yield Place(path, layer.name, [])
            yield Place(f"{prefix}cell", snake_case(f"{type(layer).__name__}Cell"), _slots(layer))
            return
        if isinstance(layer, MultiHeadAttention):
            yield Place(path, layer.name, [])
            for part in ("key", "output", "query", "value"):
                own = [vars(layer)[name] for name in (f"{part}_kernel", f"{part}_bias") if name in vars(layer)]
                label = "attention_output" if part == "output" else part
                yield Place(f"{prefix}{part}_dense", label, [slot_of(variable) for variable in own])
            return
        if isinstance(layer, Normalization):
            kept = layer.adapted if self.stored is None else self.stored(path) > 0
            yield Place(path, layer.name, statistics(layer) if kept else [])
            return
        yield Place(path, layer.name, _slots(layer))
        if isinstance(layer, Sequential) or (isinstance(layer, Model) and layer._graph is not None):
            # Before the attributes: Keras gives the layers of the graph these paths, whatever else refers to them.
            yield from self.container(f"{prefix}layers", list(layer.layers))
        attributes = {name: value for name, value in vars(layer).items() if name not in {*_UNTRACKED, "_layers"}}
        if isinstance(layer, Model):
            # Keras visits properties, too: what a model has under a later name is in this list before.
            attributes["layers"] = list(layer.layers)
        for name, value in sorted(attributes.items(), key=lambda item: _attribute_order(item[0])):
            if isinstance(value, Layer):
                yield from self.places(f"{prefix}{name}", value)
            elif isinstance(value, list | tuple | dict):
                yield from self.container(f"{prefix}{name}", value)

    def container(self, path: str, container: Any) -> Iterator[Place]:
        """Iterate over the places of the layers in a list, tuple or dict."""
        used: dict[str, int] = {}

        def unique(name: str) -> str:
            number = used[name] = used.get(name, -1) + 1
            return f"{path}/{name}_{number}" if number else f"{path}/{name}"

        for value in container.values() if isinstance(container, dict) else container:
            if isinstance(value, Layer) and not isinstance(value, Operation):
                yield from self.places(unique(snake_case(keras_class_name(value))), value)
            elif isinstance(value, list | tuple | dict):
                yield from self.container(unique("container"), value)


def _attribute_order(name: str) -> str:
    return f"~{name}" if name.startswith("_") else name  # private attributes come last, as in Keras


def keras_class_name(layer: Layer) -> str:
    """Return the name of a layer's class in Keras, where a model made of symbolic calls is of class Functional."""
    return "Functional" if type(layer) is Model and layer._graph is not None else type(layer).__name__


def _slots(layer: Any) -> list[Slot]:
    """Return the weights that a layer has apart from those of the layers in it: trainable ones first, as in Keras."""
    own, _ = layer._variables_and_layers()
    # A frozen layer keeps the order that it had before.
    frozen = {id(variable) for variable in layer._frozen_variables}
    first = [variable for variable in own if variable.trainable or id(variable) in frozen]
    chosen = {id(variable) for variable in first}
    return [slot_of(variable) for variable in [*first, *(v for v in own if id(v) not in chosen)]]


def slot_of(variable: Variable) -> Slot:
    """Return the slot of a Variable."""
    native = variable.native

    def write(value: np.ndarray[Any, Any]) -> None:
        native.assign(tc.asarray(value, dtype=native.dtype, backend=native.backend.root, device=native.device))

    return Slot(tuple(native.shape), lambda: np.asarray(variable.numpy()), write)


def statistics(layer: Normalization) -> list[Slot]:
    """The mean, the variance and the number of examples that Keras keeps for a layer which `adapt` has prepared."""

    def part(name: str) -> Slot:
        def read() -> np.ndarray[Any, Any]:
            return np.squeeze(np.asarray(getattr(layer, name), dtype="float32"))

        def write(value: np.ndarray[Any, Any]) -> None:
            layer.set_statistics(**{name: value})

        return Slot(None, read, write)

    count = Slot((), lambda: np.zeros((), "int32"), lambda value: None)
    return [part("mean"), part("variance"), count]
