"""The HDF5 files of Keras 2, which Keras 3 reads and writes under names that end in `.h5`: models, and weights.

The layers of a model have groups by their names; an attribute lists the weights of each in order. Another attribute
describes the model, with classes that are named without their modules.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any, BinaryIO

import numpy as np

from tape_tf.keras import limits
from tape_tf.keras.hdf5 import Budget, check_groups, open_file, read_array, require_h5py
from tape_tf.keras.keras_configs import FUNCTIONAL, OPERATION_CLASSES, OPERATIONS_MODULE, from_keras
from tape_tf.keras.keras_describing import NoCounterpart
from tape_tf.keras.keras_files import VERSION, check_model, compile_model, load_optimizer, optimizer_entry
from tape_tf.keras.keras_layout import Slot, slot_of, statistics
from tape_tf.keras.layers.normalization import Normalization
from tape_tf.keras.nameable import find_namespace
from tape_tf.keras.restoring import parse_json, restore

_LAYERS, _WEIGHTS, _MODEL, _OPTIMIZER = "layer_names", "weight_names", "model_weights", "optimizer_weights"

LEGACY_SUFFIXES = (".h5", ".hdf5")
"""The endings of the names under which Keras writes such files."""

# Keras 3.15 does not find its losses by these names when it reads such a file, though it writes them.
_SHORT_NAMES = {
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "msle": "mean_squared_logarithmic_error",
    "kld": "kl_divergence",
    "logcosh": "log_cosh",
}

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


def write_legacy_weights(target: Any, model: Any) -> None:
    """Write the weights of a model to a path or a stream, for `load_weights` of Keras 2 and 3."""
    with require_h5py("save_weights").File(target, "w") as file:
        _write_layers(file, model, with_statistics=True)


def write_legacy_model(target: Any, content: dict[str, Any], model: Any) -> None:
    """Write a model, which :func:`tape_tf.keras.keras_files.describe` has described, to a path or a stream.

    Raises:
        NoCounterpart: the model is neither a Sequential nor made of symbolic calls, for which the format is made.
    """
    if content["class_name"] not in ("Sequential", "Functional") or content["registered_name"] not in (
        None,
        "Functional",
    ):
        raise NoCounterpart(
            f"the HDF5 format takes Sequential models and those of symbolic calls, and {model.name!r} is of class "
            f"{type(model).__name__}: give the file a name that ends in .keras"
        )
    config = dict(content["config"])
    built = content.get("build_config")
    if content["class_name"] == "Sequential" and built is not None:
        config.setdefault("build_input_shape", built["input_shape"])
    with require_h5py("save").File(target, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = VERSION, "tensorflow"
        file.attrs["model_config"] = json.dumps({"class_name": content["class_name"], "config": config})
        # Statistics of layers of class Normalization are arguments in the description.
        _write_layers(file.create_group(_MODEL), model, with_statistics=False)
        if (training := content.get("compile_config")) is None:
            return
        arguments = dict(training)
        arguments["optimizer_config"] = arguments.pop("optimizer")
        arguments["loss"] = _in_full(arguments.get("loss"))
        file.attrs["training_config"] = json.dumps(arguments)
        if (entry := optimizer_entry(model)) is not None:
            names = [f"{entry.name}/{number}" for number in range(len(entry.arrays))]
            _write_arrays(file.create_group(_OPTIMIZER), names, entry.arrays)


def _in_full(loss: Any) -> Any:
    """Write out the short names of losses; there may be one for each output."""
    if isinstance(loss, list):
        return [_in_full(part) for part in loss]
    if isinstance(loss, dict) and "class_name" not in loss:
        return {output: _in_full(part) for output, part in loss.items()}
    return _SHORT_NAMES.get(loss, loss) if isinstance(loss, str) else loss


def _write_layers(root: Any, model: Any, with_statistics: bool) -> None:
    """Write the weights of the layers of a model, each into a group of its name."""
    root.attrs["keras_version"], root.attrs["backend"] = VERSION, "tensorflow"
    layers = list(model.layers)
    held = {id(variable) for layer in layers for variable in layer.variables}
    if others := [variable.name for variable in model.variables if id(variable) not in held]:
        raise NoCounterpart(
            f"the HDF5 format of Keras 2 keeps the weights of layers, and {model.name!r} has weights of its own, "
            f"{', '.join(others[:3])}: give the file a name that ends in .keras, or .weights.h5"
        )
    root.attrs[_LAYERS] = [layer.name for layer in layers]
    for layer in layers:
        slots = list(map(slot_of, variables := _legacy_order(layer)))
        names = [f"{layer.name}/{variable.name}" for variable in variables]
        if isinstance(layer, Normalization):
            slots = statistics(layer) if with_statistics and layer.adapted else []
            names = [f"{layer.name}/{name}" for name in ("mean", "variance", "count")[: len(slots)]]
        if len(set(names)) < len(names):  # those of layers in the layer
            names = [f"{layer.name}/{number}_{name.rpartition('/')[2]}" for number, name in enumerate(names)]
        _write_arrays(root.create_group(layer.name), names, [slot.read() for slot in slots])


def _write_arrays(group: Any, names: list[str], arrays: list[np.ndarray[Any, Any]]) -> None:
    """Write arrays with the attribute that lists their names in order."""
    group.attrs[_WEIGHTS] = names or np.zeros(0)
    for name, array in zip(names, arrays, strict=True):
        group.create_dataset(name, data=array)


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
