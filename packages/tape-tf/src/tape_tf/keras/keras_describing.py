"""Descriptions of models for Keras 3, made of those of :mod:`tape_tf.keras.serialization`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_tf.keras.keras_configs import FUNCTIONAL, OPERATION_CLASSES, OPERATIONS_MODULE
from tape_tf.typing import Json

# The functions of `tf` that are activations of Keras under another name, or with the same name and result.
_ACTIVATIONS = {
    "relu", "relu6", "elu", "selu", "leaky_relu", "silu", "swish", "softsign", "softmax", "log_softmax", "sigmoid",
    "softplus", "tanh",
}  # fmt: skip
_NAMED_DIFFERENTLY = {"identity": "linear", "exp": "exponential"}

# Arguments of classes here that say nothing to Keras: the shape is in the description, the weights are in the file.
_UNSAID = {"input_shape", "weights", "input_length"}
# Arguments that Keras' classes demand when they are read, where there is a default.
_DEMANDED: dict[str, dict[str, Any]] = {
    "Rescaling": {"offset": 0.0},
    **{f"AveragePooling{rank}D": {"pool_size": 2} for rank in (1, 2, 3)},
    **{f"MaxPooling{rank}D": {"pool_size": 2} for rank in (1, 2, 3)},
}


class NoCounterpart(TypeError):
    """A part of a model has no name in Keras."""


def to_keras(description: Json) -> Any:
    """Translate a description of :mod:`tape_tf.keras.serialization` into Keras' own.

    Raises:
        NoCounterpart: it has a part that Keras has no name for.
    """
    if isinstance(description, list):
        return [to_keras(part) for part in description]
    if not isinstance(description, dict):
        return description
    kind = description["class_name"]
    if kind == "__tuple__":
        return [to_keras(part) for part in description["items"]]
    if kind == "__dict__":
        return {key: to_keras(part) for key, part in description["items"].items()}
    if kind == "__ellipsis__":
        return {"class_name": kind, "config": {}}
    if kind == "__slice__":
        start, stop, step = description["items"]
        return {"class_name": kind, "config": {"start": start, "stop": stop, "step": step}}
    if kind in ("__numpy__", "__tensor__"):
        # Lists: Keras' layers take them as arguments where an array is meant.
        return description["value"]
    if kind == "function":
        return _keras_function(description["config"], description["module"])
    return _keras_instance(description)


def _keras_function(name: str, space: str | None) -> Any:
    if space == "tf":
        last = name.rpartition(".")[2]
        last = _NAMED_DIFFERENTLY.get(last, last)
        if last not in {*_ACTIVATIONS, *_NAMED_DIFFERENTLY.values()}:
            raise NoCounterpart(f"tf.{name} has no counterpart in Keras: register a function of your own that calls it")
        return last
    if space is not None:
        return name
    return {"module": "builtins", "class_name": "function", "config": name, "registered_name": "function"}


def _keras_instance(description: dict[str, Any]) -> Any:
    kind, space, inner = description["class_name"], description["module"], description["config"]
    if space == "models" and kind == "Model":
        return _described(*FUNCTIONAL, _keras_functional(inner), "Functional")
    if space == "models" and kind == "Sequential":
        return _described("keras", kind, _keras_sequential(inner), None)
    if space is None and "calls" in inner:
        raise NoCounterpart(
            f"{description['registered_name']!r}: a class of its own with symbolic calls is not written"
        )
    if kind == "Operation":
        return _described(
            OPERATIONS_MODULE, OPERATION_CLASSES[inner["function"]["config"]], {"name": inner["name"]}, None
        )
    if inner.get("lazy") and space == "optimizers":
        raise NoCounterpart(f"{kind}: Keras has no counterpart of lazy=True")
    unsaid = {*_UNSAID, *["lazy"] * (space == "optimizers"), *["trainable"] * kind.startswith("SpatialDropout")}
    arguments = {key: to_keras(value) for key, value in inner.items() if key not in unsaid}
    if space == "layers":
        arguments = _DEMANDED.get(kind, {}) | arguments
    if kind == "Lambda" and isinstance(arguments["function"], str):
        arguments["function"] = _keras_function(arguments["function"], None)
    if space == "layers" and kind == "InputLayer":
        arguments.pop("trainable", None)
    made = _described(None if space is None else f"keras.{space}", kind, arguments, None)
    if space is None:
        made["registered_name"] = description["registered_name"]
    return made


def _described(module: str | None, kind: str, arguments: Any, registered: str | None) -> dict[str, Any]:
    return {"module": module, "class_name": kind, "config": arguments, "registered_name": registered}


def _keras_input(symbol: dict[str, Any]) -> dict[str, Any]:
    arguments = {**symbol, "sparse": False, "ragged": False, "optional": False}
    return _described("keras.layers", "InputLayer", arguments, None)


def _keras_sequential(inner: dict[str, Any]) -> dict[str, Any]:
    first = [] if inner["input"] is None else [_keras_input(inner["input"])]
    found = {
        "name": inner["name"],
        "trainable": inner["trainable"],
        "layers": [*first, *(to_keras(layer) for layer in inner["layers"])],
    }
    if inner["input"] is not None:
        found["build_input_shape"] = inner["input"]["batch_shape"]
    return found


def _keras_functional(inner: dict[str, Any]) -> dict[str, Any]:
    """Translate the calls: each layer has a list of its own."""
    layers = [to_keras(layer) for layer in inner["layers"]]
    names = [layer["config"]["name"] for layer in layers]
    inputs = [_keras_input(symbol) for symbol in inner["symbols"]]
    every = [*names, *(layer["config"]["name"] for layer in inputs)]
    if len(set(every)) < len(every):
        twice = sorted({name for name in every if every.count(name) > 1})
        raise NoCounterpart(
            f"Keras refers to layers by their names, and several are called {', '.join(map(repr, twice))}"
        )
    history: dict[int, list[Any]] = {}
    for number, symbol in zip(_numbers_of(inner["inputs"]), inputs, strict=True):
        history[number] = [symbol["config"]["name"], 0, 0]
    nodes: list[list[Any]] = [[] for _ in layers]

    def argument(part: Json) -> Any:
        if isinstance(part, list):
            return [argument(item) for item in part]
        if isinstance(part, dict):
            kind = part["class_name"]
            if kind == "__keras_tensor__":
                number = part["number"]
                config = {
                    "shape": part["shape"],
                    "dtype": part["dtype"],
                    "keras_history": history[number],
                }
                return {"class_name": kind, "config": config}
            if kind == "__tuple__":
                return [argument(item) for item in part["items"]]
            if kind == "__dict__":
                return {key: argument(item) for key, item in part["items"].items()}
        return to_keras(part)

    for call in inner["calls"]:
        place = call["layer"]
        nodes[place].append({"args": argument(call["args"]), "kwargs": argument(call["kwargs"])})
        for result, number in enumerate(_numbers_of(call["outputs"])):
            history[number] = [names[place], len(nodes[place]) - 1, result]

    def tensor(part: Any) -> Any:
        if isinstance(part, list):
            return [tensor(item) for item in part]
        if part["class_name"] == "__keras_tensor__":
            name, call, place = history[part["number"]]
            nested = name in names and layers[names.index(name)]["class_name"] == "Functional"
            return [name, call + 1 if nested else call, place]
        items = part["items"]
        return (
            {key: tensor(item) for key, item in items.items()} if isinstance(items, dict) else list(map(tensor, items))
        )

    described = [{**layer, "name": layer["config"]["name"], "inbound_nodes": []} for layer in inputs]
    described += [
        {**layer, "name": name, "inbound_nodes": own} for layer, name, own in zip(layers, names, nodes, strict=True)
    ]
    return {
        "name": inner["name"],
        "trainable": inner["trainable"],
        "layers": described,
        "input_layers": tensor(inner["inputs"]),
        "output_layers": tensor(inner["outputs"]),
    }


def _numbers_of(structure: Any) -> Iterator[int]:
    """Iterate over the numbers of the symbolic tensors in a structure."""
    if isinstance(structure, list):
        for part in structure:
            yield from _numbers_of(part)
    elif structure["class_name"] == "__keras_tensor__":
        yield structure["number"]
    else:
        items = structure["items"]
        yield from _numbers_of(list(items.values()) if isinstance(items, dict) else items)
