"""The HDF5 files of Keras 2, which Keras 3 reads and writes under names that end in `.h5`: models, and weights.

The layers of a model have groups by their names; an attribute lists the weights of each in order. Another attribute
describes the model, with classes that are named without their modules.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, BinaryIO

import numpy as np

from tape_tf.keras import limits
from tape_tf.keras.hdf5 import Budget, check_groups, open_file, read_array
from tape_tf.keras.keras_configs import FUNCTIONAL, OPERATION_CLASSES, OPERATIONS_MODULE, from_keras
from tape_tf.keras.keras_files import check_model, compile_model, load_optimizer
from tape_tf.keras.keras_layout import Slot, slot_of, statistics
from tape_tf.keras.layers.normalization import Normalization
from tape_tf.keras.nameable import find_namespace
from tape_tf.keras.restoring import parse_json, restore

_LAYERS, _WEIGHTS, _MODEL, _OPTIMIZER = "layer_names", "weight_names", "model_weights", "optimizer_weights"

Stored = list[tuple[str, list[np.ndarray[Any, Any]]]]
"""The weights of layers by name, in order."""


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
        check_groups(file)
        stored = _stored(file.get(_MODEL, file), Budget(stream.seek(0, 2)))
    _assign(stored, model)


def read_legacy_model(stream: BinaryIO, compile: bool, safe_mode: bool, factor: int, margin: int) -> Any:
    """Make a model from a file of Keras 2; see :func:`tape_tf.keras.keras_files.read_model` for the arguments."""
    state = []
    with open_file(stream) as file:
        check_groups(file)
        budget = Budget(stream.seek(0, 2))
        config, training = file.attrs.get("model_config"), file.attrs.get("training_config")
        if config is None or _MODEL not in file:
            raise ValueError("it holds weights and no description of a model: use load_weights")
        stored = _stored(file[_MODEL], budget)
        if _OPTIMIZER in file:
            group = file[_OPTIMIZER]
            state = [read_array(group[name], name, budget) for name in _texts(group.attrs.get(_WEIGHTS))]
    size = limits.MAX_CONFIG_BYTES if safe_mode else None
    described = from_keras(_with_statistics(_with_modules(parse_json(config, size)), stored))
    count = sum(array.size for _, arrays in stored for array in arrays)
    with limits.enforce(factor * count + margin) if safe_mode else nullcontext():
        model = check_model(restore(described))
    _assign(stored, model)
    if compile and training is not None:
        arguments = parse_json(training, size)
        if not isinstance(arguments, dict):
            raise ValueError("the arguments of compile are malformed")
        if isinstance(optimizer := arguments.pop("optimizer_config", None), dict):
            arguments["optimizer"] = {"module": "keras.optimizers", **optimizer}
        compile_model(model, from_keras(_with_modules(arguments)))
        load_optimizer(model, state)
    return model


def _stored(root: Any, budget: Budget) -> Stored:
    found: Stored = []
    for name in _texts(root.attrs.get(_LAYERS)):
        group = root[name]
        if weights := _texts(group.attrs.get(_WEIGHTS)):
            found.append((name, [read_array(group[weight], weight, budget) for weight in weights]))
    return found


def _assign(stored: Stored, model: Any) -> None:
    layers = [layer for layer in model.layers if layer.variables or isinstance(layer, Normalization)]
    if len(layers) != len(stored):
        # Statistics that were given as arguments are no weights in Keras.
        layers = [layer for layer in layers if layer.variables]
    if len(layers) != len(stored):
        raise ValueError(f"the model has {len(layers)} layers with weights, and the file {len(stored)}")
    ready: list[tuple[Slot, np.ndarray[Any, Any]]] = []
    for layer, (name, arrays) in zip(layers, stored, strict=True):
        slots = statistics(layer) if isinstance(layer, Normalization) else list(map(slot_of, _legacy_order(layer)))
        expected = [
            array.shape if slot.shape is None else slot.shape for slot, array in zip(slots, arrays, strict=False)
        ]
        if len(slots) != len(arrays) or expected != [a.shape for a in arrays]:
            raise ValueError(
                f"layer {layer.name!r} has weights of shapes {[slot.shape for slot in slots]}, and layer {name!r} "
                f"in the file of shapes {[a.shape for a in arrays]}"
            )
        if isinstance(layer, Normalization):
            for array in arrays[:2]:
                layer.along_axes(array)  # raises before anything is changed
        ready += zip(slots, arrays, strict=True)
    for slot, array in ready:
        slot.write(array)


def _with_modules(config: Any) -> Any:
    """Add to a description of Keras 2 the modules of the classes, and write calls as Keras 3 does."""
    if isinstance(config, list):
        return [_with_modules(part) for part in config]
    if not isinstance(config, dict):
        return config
    found = {key: _with_modules(value) for key, value in config.items()}
    kind = found.get("class_name")
    if (
        isinstance(kind, str)
        and isinstance(found.get("config"), dict)
        and "module" not in found
        and not kind.startswith("__")
    ):
        if kind in ("Functional", "Model"):
            found["module"], found["class_name"] = FUNCTIONAL
        elif kind == "Sequential":
            found["module"] = "keras"
        elif kind in OPERATION_CLASSES.values() and found["config"].keys() == {"name"}:
            found["module"] = OPERATIONS_MODULE  # unlike the layer Add, which has a dtype
        else:
            space = find_namespace(kind)
            found |= {"module": f"keras.{space}" if space else None, "registered_name": None if space else kind}
    if isinstance(nodes := found.get("inbound_nodes"), list):
        found["inbound_nodes"] = [_call(node) if isinstance(node, list) else node for node in nodes]
    if isinstance(inner := found.get("config"), dict) and kind != "InputLayer":
        inner.pop("batch_input_shape", None)  # the shape of the input, which Keras 2 notes at the first layer, too
    return found


def _with_statistics(config: Any, stored: Stored) -> Any:
    """Give layers of class Normalization the statistics that Keras 2 keeps among the weights, and take those out."""
    if isinstance(config, list):
        return [_with_statistics(part, stored) for part in config]
    if not isinstance(config, dict):
        return config
    found = {key: _with_statistics(value, stored) for key, value in config.items()}
    inner = found.get("config")
    if found.get("class_name") != "Normalization" or not isinstance(inner, dict):
        return found
    for place, (name, arrays) in enumerate(stored):
        if name == inner.get("name") and inner.get("mean") is None and len(arrays) >= 2:  # the third is a count
            if inner.get("axis") not in (-1, [-1], None, []):
                raise ValueError(f"layer {name!r} normalizes other axes than the last: save the model as .keras")
            for key, values in zip(("mean", "variance"), arrays, strict=False):
                value = {"value": values.tolist(), "dtype": values.dtype.name}
                inner[key] = {"class_name": "__numpy__", "config": value}
            del stored[place]
            break
    return found


def _call(node: list[Any]) -> dict[str, Any]:
    """Describe a call: Keras 2 lists the tensors, each as a layer, two numbers, and further arguments of the call."""
    tensors: list[dict[str, Any]] = []
    kwargs: dict[str, Any] = {}
    for part in node:
        if not isinstance(part, list) or len(part) not in (3, 4):
            raise ValueError("a call of a layer is malformed")
        tensors.append({"class_name": "__keras_tensor__", "config": {"keras_history": part[:3]}})
        kwargs |= part[3] if len(part) > 3 and isinstance(part[3], dict) else {}
    return {"args": tensors if len(tensors) == 1 else [tensors], "kwargs": kwargs}


def _legacy_order(layer: Any) -> list[Any]:
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
