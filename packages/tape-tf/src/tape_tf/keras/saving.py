"""A model's weights as a Module of tape_nn, which reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tape_core as tc
import tape_nn as nn

from tape_tf.keras.layers.base import Layer
from tape_tf.names import absent
from tape_tf.variable import Variable


class Weights(nn.Module):
    """The weights of a layer or model, by their place in it: `"encoder.layers.0.kernel"`.

    The names that layers and variables were given do not count: another model made by the same program fits.
    """

    def __init__(self, model: Layer, quiet: bool = False) -> None:
        """Of a model; `quiet` to say nothing of layers that have no weights yet."""
        self.model, self._quiet = model, quiet

    def named_variables(self) -> Iterator[tuple[str, tc.Variable]]:
        """Each Variable after the first path that leads to it."""
        seen: set[int] = set()
        for path, layer in self._layers():
            taken: dict[str, int] = {}
            for place, variable in _own(layer):
                if id(variable) not in seen:
                    seen.add(id(variable))
                    number = taken[place] = taken.get(place, -1) + 1
                    yield f"{path}{place}_{number}" if number else f"{path}{place}", variable

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """The model; and while it has not been built, the layers that wait for it."""
        yield "", self
        if not (self._quiet or self.model.built):
            yield from ((path[:-1], layer) for path, layer in self._layers() if path)

    def _layers(self) -> Iterator[tuple[str, Layer]]:
        """This layer and those in it, each after what its weights' names begin with."""
        seen = {id(self.model)}
        waiting: list[tuple[str, Layer]] = [("", self.model)]
        while waiting:
            path, layer = waiting.pop(0)
            yield path, layer
            inner = []
            for place, found in layer._parts():
                if isinstance(found, Layer) and id(found) not in seen:
                    seen.add(id(found))
                    inner.append((f"{path}{place}.", found))
            waiting[:0] = inner

    def __repr__(self) -> str:
        return repr(self.model)


def _own(layer: Layer) -> Iterator[tuple[str, tc.Variable]]:
    """A layer's own Variables: after the attribute's name, or where they are no attribute after their own."""
    for place, found in layer._parts():
        if isinstance(found, Variable):
            yield place, found.native
        elif not isinstance(found, Layer):
            for k, variable in enumerate(found.variables):
                yield f"{place}.{k}", getattr(variable, "native", variable)
    for variable in layer._own:
        yield (variable.native.name or "variable").rpartition("/")[2], variable.native


__getattr__ = absent("keras.saving")
