"""Holder: finds the weights, layers and metrics that a layer holds as attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import tape_core as tc
import tape_nn as nn

from tape_tf.conversion import wrap
from tape_tf.keras.metric import Metric
from tape_tf.keras.structures import leaves_with_paths, unique
from tape_tf.module import Module
from tape_tf.variable import Variable

_TRACKED: Final = (Variable, Module, nn.Module, Metric)

# Attributes of layers and models that are skipped. Some would be found twice (`native`, `_added_weights`), others are
# not parts of the layer (`_init_arguments`), or are handled by Trainer (`_compiled_metrics`).
_UNTRACKED: Final = frozenset((
    "native", "_added_weights", "_regularized", "_losses", "_frozen_variables", "_nodes", "_init_arguments",
    "_weight_options", "_declared_shape", "_graph", "_output_shape", "_inputs", "_outputs", "_first_call",
    "_compiled_loss", "_compiled_metrics", "_compiled_mean", "_state_variables",
    "_compile_arguments",
))  # fmt: skip


@cache
def _may_contain_tracked(kind: type) -> bool:
    """True if values of a type may be or contain a tracked object. Cached, since every step asks for each attribute."""
    return issubclass(kind, (*_TRACKED, tc.Variable, dict, list, tuple))


class Holder(Module):
    """Base class of Layer: weights, layers and metrics held as attributes.

    Nothing is registered when an attribute is set. The attributes are searched at each step, so that lists and dicts
    that a layer appends to later are found, too.
    """

    _trainable: bool
    _added_weights: list[Variable]  # weights made by add_weight, in order; they need not be attributes
    _frozen_variables: list[Variable]  # the variables that were trainable when `trainable` was set to False
    _regularized: list[tuple[Variable, Any]]
    _losses: list[Any]

    @property
    def variables(self) -> list[Variable]:  # type: ignore[override]
        """All weights, each once: the layer's own, trainable ones first, then those of the layers in it."""
        own, layers = self._variables_and_layers()
        frozen = {id(v) for v in self._frozen_variables}
        first = [v for v in own if v.trainable or id(v) in frozen]
        # Keras' order, in which `get_weights` lists them: trainable ones of a layer come before its moving averages,
        # also while the layer is frozen, so that weights saved before still fit.
        return unique([*first, *own, *(v for layer in layers for v in layer.variables)])

    @property
    def trainable_variables(self) -> list[Variable]:  # type: ignore[override]
        """The weights that training changes; none if `trainable` is False."""
        if not self._trainable:
            return []
        own, layers = self._variables_and_layers()
        return unique([*(v for v in own if v.trainable), *(v for layer in layers for v in layer.trainable_variables)])

    @property
    def non_trainable_variables(self) -> list[Variable]:  # type: ignore[override]
        """The weights that training does not change."""
        trained = {id(v) for v in self.trainable_variables}
        return [v for v in self.variables if id(v) not in trained]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The layers in this one, at any depth."""
        return tuple(self._flatten_layers())[1:]

    @property
    def trainable(self) -> bool:
        """True if training changes the weights; setting it also sets it for the layers inside."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        own, layers = self._variables_and_layers()
        # Only variables that were trainable before become trainable again: moving averages never were.
        if self._trainable:
            for variable in self._frozen_variables:
                variable.native.trainable = True
            self._frozen_variables = []
        else:
            self._freeze(own)
        for layer in layers:
            layer.trainable = value

    def _freeze(self, variables: Iterable[Variable]) -> None:
        """Make variables untrainable, and remember which were trainable."""
        for variable in variables:
            if variable.native.trainable:
                variable.native.trainable = False  # so that tapes do not watch it automatically
                self._frozen_variables.append(variable)

    def _tracked_attributes(self) -> list[tuple[str, Any]]:
        """Return the tracked objects held as attributes, each with its path, such as `"blocks.0"`."""
        found: list[tuple[str, Any]] = []
        for name, value in vars(self).items():
            kind: Any = type(value)
            if _may_contain_tracked(kind) and name not in _UNTRACKED:
                # A leading underscore is no part of the path: weights keep their names when an attribute gets private.
                if issubclass(kind, _TRACKED):
                    found.append((name.lstrip("_"), value))
                else:
                    inside = leaves_with_paths(value, name.lstrip("_"))
                    found += [(place, leaf) for place, leaf in inside if isinstance(leaf, _TRACKED)]
        return found

    def _tracked_parts(self) -> list[tuple[str, Any]]:
        """Return the variables, layers and modules held as attributes, each with its path."""
        return [part for part in self._tracked_attributes() if not isinstance(part[1], Metric)]

    def _variables_and_layers(self) -> tuple[list[Variable], list[Holder]]:
        """Return the variables and the layers held directly, each once, in the order of attributes."""
        variables: list[Variable] = list(self._added_weights)
        layers: list[Holder] = []
        for _, found in self._tracked_parts():
            if isinstance(found, Holder):
                layers.append(found)
            elif isinstance(found, Variable):
                variables.append(found)
            else:
                # A Module of tape_tf or tape_nn that is no layer: only its variables matter.
                variables += [wrap(v) for v in found.variables]
        return unique(variables), unique(layers)

    def _sublayers(self) -> list[Holder]:
        return self._variables_and_layers()[1]

    def _flatten_layers(self) -> Iterator[Holder]:
        """Iterate over this layer and the layers in it, at any depth, each once."""
        seen: set[int] = set()
        waiting: list[Holder] = [self]
        while waiting:
            layer = waiting.pop(0)
            if id(layer) not in seen:
                seen.add(id(layer))
                yield layer
                waiting[:0] = [found for _, found in layer._tracked_parts() if isinstance(found, Holder)]

    def _metrics(self) -> list[Metric]:
        """Return the metrics held as attributes, by this layer and the layers in it."""
        layers = self._flatten_layers()
        return unique(
            found for layer in layers for _, found in layer._tracked_attributes() if isinstance(found, Metric)
        )

    @property
    def losses(self) -> list[Any]:
        """The penalties: those added in the last call, and those of regularizers."""
        layers = list(self._flatten_layers())
        found = [loss() if callable(loss) else loss for layer in layers for loss in layer._losses]
        if penalized := [pair for layer in layers for pair in layer._regularized]:
            trained = {id(v) for v in self.trainable_variables}
            found += [penalty(variable) for variable, penalty in penalized if id(variable) in trained]
        return found
