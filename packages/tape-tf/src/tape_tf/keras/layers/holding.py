"""Holder: the weights, layers and metrics that a layer holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import tape_core as tc
import tape_nn as nn

from tape_tf.conversion import wrap
from tape_tf.keras.metric import Metric
from tape_tf.keras.structures import once, placed_leaves
from tape_tf.module import Module
from tape_tf.variable import Variable

_HELD: Final = (Variable, Module, nn.Module, Metric)

# Attributes that hold no weights or layers of their own.
_INTERNAL: Final = frozenset((
    "native", "_own", "_regularized", "_losses", "_thawed", "_nodes", "_arguments", "_extras", "_given_shape", "_graph",
    "_output_shape", "_inputs", "_outputs", "_called_on", "_compiled_loss", "_compiled_metrics", "_compiled_mean",
))  # fmt: skip


@cache
def _may_hold(kind: type) -> bool:
    """Whether values of a type can be or contain what a layer holds; asked for every attribute at every step."""
    return issubclass(kind, (*_HELD, tc.Variable, dict, list, tuple))


class Holder(Module):
    """What has weights, layers and metrics as attributes. Nothing is registered: they are looked for at each step."""

    _trainable: bool
    _own: list[Variable]  # weights in the order they were added, also those that are no attribute
    _thawed: list[Variable]  # what was trainable before it was frozen
    _regularized: list[tuple[Variable, Any]]
    _losses: list[Any]

    @property
    def variables(self) -> list[Variable]:  # type: ignore[override]
        """All weights, each once: its own, the trainable ones first, then those of the layers in it."""
        own, layers = self._held()
        frozen = {id(v) for v in self._thawed}
        first = [v for v in own if v.trainable or id(v) in frozen]
        return once([*first, *own, *(v for layer in layers for v in layer.variables)])

    @property
    def trainable_variables(self) -> list[Variable]:  # type: ignore[override]
        """The weights that training changes: none where `trainable` is False."""
        if not self._trainable:
            return []
        own, layers = self._held()
        return once([*(v for v in own if v.trainable), *(v for layer in layers for v in layer.trainable_variables)])

    @property
    def non_trainable_variables(self) -> list[Variable]:  # type: ignore[override]
        """The other weights."""
        trained = {id(v) for v in self.trainable_variables}
        return [v for v in self.variables if id(v) not in trained]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The layers in it, at any depth."""
        return tuple(self._flatten_layers())[1:]

    @property
    def trainable(self) -> bool:
        """Whether training changes the weights; setting it sets it for the layers in it, too."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        own, layers = self._held()
        if self._trainable:
            for variable in self._thawed:
                variable.native.trainable = True
            self._thawed = []
        else:
            self._freeze(own)
        for layer in layers:
            layer.trainable = value

    def _freeze(self, variables: Iterable[Variable]) -> None:
        for variable in variables:
            if variable.native.trainable:
                variable.native.trainable = False  # so that tapes do not watch it of themselves
                self._thawed.append(variable)

    def _attributes(self) -> list[tuple[str, Any]]:
        """What is held as attributes, each after its place, such as `"blocks.0"`."""
        found: list[tuple[str, Any]] = []
        for name, value in vars(self).items():
            kind: Any = type(value)
            if _may_hold(kind) and name not in _INTERNAL:
                if issubclass(kind, _HELD):
                    found.append((name.lstrip("_"), value))
                else:
                    inside = placed_leaves(value, name.lstrip("_"))
                    found += [(place, leaf) for place, leaf in inside if isinstance(leaf, _HELD)]
        return found

    def _parts(self) -> list[tuple[str, Any]]:
        """The variables, layers and modules held as attributes, each after its place."""
        return [part for part in self._attributes() if not isinstance(part[1], Metric)]

    def _held(self) -> tuple[list[Variable], list[Holder]]:
        """The variables and the layers held, in the order they were made or set."""
        variables: list[Variable] = list(self._own)
        layers: list[Holder] = []
        for _, found in self._parts():
            if isinstance(found, Holder):
                layers.append(found)
            elif isinstance(found, Variable):
                variables.append(found)
            else:
                variables += [wrap(v) for v in found.variables]
        return once(variables), once(layers)

    def _sublayers(self) -> list[Holder]:
        return self._held()[1]

    def _flatten_layers(self) -> Iterator[Holder]:
        """This layer, and those in it, each once."""
        seen: set[int] = set()
        waiting: list[Holder] = [self]
        while waiting:
            layer = waiting.pop(0)
            if id(layer) not in seen:
                seen.add(id(layer))
                yield layer
                waiting[:0] = [found for _, found in layer._parts() if isinstance(found, Holder)]

    def _metrics(self) -> list[Metric]:
        """The metrics held as attributes, here and in the layers in it."""
        layers = self._flatten_layers()
        return once(found for layer in layers for _, found in layer._attributes() if isinstance(found, Metric))

    @property
    def losses(self) -> list[Any]:
        """Penalties: those added in the last call, and those of regularizers."""
        layers = list(self._flatten_layers())
        found = [loss() if callable(loss) else loss for layer in layers for loss in layer._losses]
        if penalized := [pair for layer in layers for pair in layer._regularized]:
            trained = {id(v) for v in self.trainable_variables}
            found += [penalty(variable) for variable, penalty in penalized if id(variable) in trained]
        return found
