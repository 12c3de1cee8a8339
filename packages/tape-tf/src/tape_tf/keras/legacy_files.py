"""The HDF5 files of Keras 2, which Keras 3 reads and writes under names that end in `.h5`: models, and weights.

The layers of a model have groups by their names; an attribute lists the weights of each in order.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from tape_tf.keras.hdf5 import budget_for, open_file, read_array
from tape_tf.keras.layers.core import InputLayer

_LAYERS, _WEIGHTS, _MODEL = "layer_names", "weight_names", "model_weights"


def is_legacy(stream: BinaryIO) -> bool:
    """True if an HDF5 file is one of Keras 2."""
    with open_file(stream) as file:
        return _LAYERS in file.attrs or _MODEL in file


def load_legacy_weights(stream: BinaryIO, model: Any) -> None:
    """Set the weights of a model to those in a file of Keras 2, layer by layer in order.

    Raises:
        ValueError: the file does not fit the model. Then nothing is changed.
    """
    with open_file(stream) as file:
        budget = budget_for(stream.seek(0, 2))
        root = file[_MODEL] if _MODEL in file else file
        stored: list[tuple[str, list[np.ndarray[Any, Any]]]] = []
        for name in _texts(root.attrs.get(_LAYERS)):
            group = root[name]
            weights = _texts(group.attrs.get(_WEIGHTS))
            if weights:
                stored.append((name, [read_array(group[weight], weight, budget) for weight in weights]))
    layers = [layer for layer in model.layers if layer.variables and not isinstance(layer, InputLayer)]
    if len(layers) != len(stored):
        raise ValueError(f"the model has {len(layers)} layers with weights, and the file {len(stored)}")
    ready = []
    for layer, (name, arrays) in zip(layers, stored, strict=True):
        variables = legacy_order(layer)
        if [tuple(v.shape) for v in variables] != [a.shape for a in arrays]:
            raise ValueError(
                f"layer {layer.name!r} has weights of shapes {[tuple(v.shape) for v in variables]}, and layer {name!r} "
                f"in the file of shapes {[a.shape for a in arrays]}"
            )
        ready += zip(variables, arrays, strict=True)
    for variable, array in ready:
        variable.assign(array)


def legacy_order(layer: Any) -> list[Any]:
    """Return the weights of a layer in the order of Keras 2: all trainable ones before the others."""
    every = layer.variables
    trained = {id(v) for part in layer._flatten_layers() for v in part._frozen_variables}
    first = [v for v in every if v.trainable or id(v) in trained]
    chosen = {id(v) for v in first}
    return [*first, *(v for v in every if id(v) not in chosen)]


def _texts(value: Any) -> list[str]:
    """Return the texts of an attribute, which may be bytes."""
    if value is None:
        return []
    found = [part.decode() if isinstance(part, bytes) else part for part in np.asarray(value).tolist()]
    if not all(isinstance(part, str) for part in found):
        raise ValueError("names of layers and weights are text")
    return found


def read_legacy_model(stream: BinaryIO, compile: bool, safe_mode: bool) -> Any:
    raise NotImplementedError
