"""The weights of a model as a Module of tape_nn, which saves and loads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tape_core as tc
import tape_nn as nn

from tape_tf.keras.layers.base import Layer
from tape_tf.names import absent
from tape_tf.variable import Variable


class Weights(nn.Module):
    """The weights of a layer or model, named by their place in it: `"encoder.layers.0.kernel"`.

    The names of layers and variables are not used: the weights fit any model that the same program makes.
    """

    def __init__(self, model: Layer, quiet: bool = False) -> None:
        """Wrap a model; with `quiet` layers without weights are not reported."""
        self.model, self._quiet = model, quiet

    def named_variables(self) -> Iterator[tuple[str, tc.Variable]]:
        """Iterate over the Variables, each with the first path that leads to it."""
        seen: set[int] = set()
        for path, layer in self._layers():
            taken: dict[str, int] = {}
            # Several weights of a layer may have one name: the second gets "_1".
            for place, variable in _own_variables(layer):
                # A weight that two layers share is saved once, under its first path.
                if id(variable) not in seen:
                    seen.add(id(variable))
                    number = taken[place] = taken.get(place, -1) + 1
                    yield f"{path}{place}_{number}" if number else f"{path}{place}", variable

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the modules; while the model is not built, over its layers too, which tape_nn then reports."""
        yield "", self
        if not (self._quiet or self.model.built):
            yield from ((path[:-1], layer) for path, layer in self._layers() if path)

    def _layers(self) -> Iterator[tuple[str, Layer]]:
        """Iterate over this layer and the layers in it, each with the prefix of its weights' names."""
        seen = {id(self.model)}
        waiting: list[tuple[str, Layer]] = [("", self.model)]
        while waiting:
            path, layer = waiting.pop(0)
            yield path, layer
            # Depth-first, in the order of attributes: the layers inside come right after their layer.
            inner = []
            for place, found in layer._tracked_parts():
                if isinstance(found, Layer) and id(found) not in seen:
                    seen.add(id(found))
                    inner.append((f"{path}{place}.", found))
            waiting[:0] = inner

    def __repr__(self) -> str:
        return repr(self.model)


def _own_variables(layer: Layer) -> Iterator[tuple[str, tc.Variable]]:
    """Iterate over a layer's own Variables, each with its attribute's name, or else with its own name."""
    for place, found in layer._tracked_parts():
        if isinstance(found, Variable):
            yield place, found.native
        elif not isinstance(found, Layer):
            for k, variable in enumerate(found.variables):
                yield f"{place}.{k}", getattr(variable, "native", variable)
    for variable in layer._added_weights:
        # The last part of the name alone: the parts before have numbers that differ from one process to another.
        yield (variable.native.name or "variable").rpartition("/")[2], variable.native


__getattr__ = absent("keras.saving")
