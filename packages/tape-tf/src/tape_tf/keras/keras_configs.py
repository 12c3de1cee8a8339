"""Keras 3's descriptions of models, translated into those of :mod:`tape_tf.keras.serialization`.

Both are data: dictionaries of JSON. What Keras has written is translated first, and then read as any other description
is, by :mod:`tape_tf.keras.restoring`, which looks every name up in its tables. Here nothing is looked up or made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tape_tf.keras.keras_masks import histories, history_of, without_masks
from tape_tf.keras.restoring import UnknownName
from tape_tf.typing import Json

# The classes of Keras that operators between symbolic tensors become, by the operator's name in Python.
OPERATION_CLASSES = {
    "add": "Add",
    "sub": "Subtract",
    "mul": "Multiply",
    "truediv": "TrueDivide",
    "floordiv": "FloorDivide",
    "mod": "Mod",
    "pow": "Power",
    "matmul": "Matmul",
    "lt": "Less",
    "le": "LessEqual",
    "gt": "Greater",
    "ge": "GreaterEqual",
    "neg": "Negative",
    "abs": "Absolute",
    "getitem": "GetItem",
}
_OPERATORS = {name: function for function, name in OPERATION_CLASSES.items()}
OPERATIONS_MODULE = "keras.src.ops.numpy"
"""The module of those classes."""
FUNCTIONAL = ("keras.src.models.functional", "Functional")
"""The module and the name of the class of functional models in Keras."""

# Arguments that Keras writes and no layer here takes, with the values that make no difference; ... stands for any.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None,),
    "renorm": (False,),
    "renorm_clipping": (None,),
    "renorm_momentum": (...,),
    "zero_output_for_mask": (...,),
    "use_gate": (False,),
    "output_shape": (None,),
    "attention_axes": (None, [1]),
    "sliding_window": (None,),
    "flash_attention": (None, False),
    "input_axes": (None,),
    "output_axes": (None,),
    "activity_regularizer": (None,),
    "lora_rank": (None,),
    "lora_alpha": (None,),
    "mask": (None,),
    "rms_scaling": (False,),
}


def from_keras(config: Json) -> Any:
    """Translate a description that Keras wrote.

    Raises:
        ValueError: it is malformed, or describes code, or says something that there is no counterpart of.
    """
    return _Reader().translate(config)


class _Reader:
    """The translation of one description; objects that occur in it twice are told by the numbers that Keras gave."""

    def __init__(self) -> None:
        self.shared: dict[int, Any] = {}

    def translate(self, config: Json) -> Any:
        if isinstance(config, list):
            return [self.translate(part) for part in config]
        if config is None or isinstance(config, bool | int | float | str):
            return config
        if not isinstance(config, dict):
            raise ValueError(f"{type(config).__name__} is no part of a description")
        if "class_name" not in config or "config" not in config:
            return {"class_name": "__dict__", "items": {key: self.translate(part) for key, part in config.items()}}
        kind, inner = config["class_name"], config["config"]
        if kind == "__lambda__":
            raise ValueError(
                "it contains the code of a Lambda layer's function, which is not run: give the function a name, "
                "register it with @keras.saving.register_keras_serializable(), and save the model again"
            )
        if kind == "function":
            return self._function(config, inner)
        if not isinstance(kind, str) or not isinstance(inner, dict):
            raise ValueError("a class is described by its name and a dictionary of arguments")
        if kind in ("__numpy__", "__tensor__"):
            return {"class_name": kind, "value": inner.get("value"), "dtype": inner.get("dtype")}
        if kind == "__slice__":
            return {"class_name": kind, "items": [inner.get("start"), inner.get("stop"), inner.get("step")]}
        if kind == "__ellipsis__":
            return {"class_name": kind}
        if kind.startswith("__"):
            raise ValueError(f"there is no counterpart of {kind!r}")
        return self._instance(config, kind, inner)

    def _function(self, config: dict[str, Any], name: Json) -> Any:
        if not isinstance(name, str):
            raise ValueError("a function is described by its name")
        if config.get("module") == "builtins" and ">" not in name:
            return name  # Keras' own: an activation, a loss or a metric, as which the place where it is tells
        return {"class_name": "function", "config": name, "module": None}

    def _instance(self, config: dict[str, Any], kind: str, inner: dict[str, Any]) -> Any:
        module = config.get("module")
        if module is not None and not isinstance(module, str):
            raise ValueError("a module is described by its name")
        if kind in ("DTypePolicy", "FloatDTypePolicy") and module in ("keras", "keras.dtype_policies"):
            return inner.get("name")
        if kind.endswith("DTypePolicy") or kind == "DTypePolicyMap":
            raise ValueError(f"there are no quantized layers: {kind} is not read")
        number = config.get("shared_object_id")
        known = self.shared.get(number) if isinstance(number, int) else None
        if module == OPERATIONS_MODULE:
            return self._operation(kind, inner)
        if (module, kind) == FUNCTIONAL or (module in ("keras", "keras.models") and kind in ("Functional", "Model")):
            return _instance("Model", "models", self._functional(inner))
        if module in ("keras", "keras.models") and kind == "Sequential":
            return _instance("Sequential", "models", self._sequential(inner))
        space = module.removeprefix("keras.") if module and module.startswith("keras.") else None
        if module and module.startswith("keras.src"):
            raise UnknownName(f"{kind!r} of {module} has no counterpart here")
        name = config.get("registered_name") or kind
        if not isinstance(name, str):
            raise ValueError("a registered name is text")
        arguments = {
            key: self.translate(value)
            for key, value in inner.items()
            if space is None or not _is_without_effect(kind, key, value)
        }
        if space is None and "layers" in inner and "input_layers" in inner and "output_layers" in inner:
            raise ValueError(f"{name!r} is a class of its own whose layers are symbolic calls; describe its arguments")
        if kind == "Lambda" and isinstance(function := arguments.get("function"), str):
            arguments["function"] = {"class_name": "function", "config": function, "module": "activations"}
        if kind == "Normalization" and space == "layers" and arguments.get("mean") is None:
            arguments |= _placeholders(inner, config.get("build_config"))
        made = {"class_name": kind, "module": space, "registered_name": name, "config": arguments}
        if isinstance(number, int) and isinstance(known, dict) and known["class_name"] == kind:
            return known
        if isinstance(number, int):
            self.shared[number] = made
        return made

    def _operation(self, kind: str, inner: dict[str, Any]) -> Any:
        if kind not in _OPERATORS:
            raise UnknownName(f"keras.ops has {kind!r}, which is none of the operators {', '.join(_OPERATORS)}")
        function = {"class_name": "function", "config": _OPERATORS[kind], "module": "operator"}
        return _instance("Operation", "models", {"function": function, "name": inner.get("name")})

    def _sequential(self, inner: dict[str, Any]) -> dict[str, Any]:
        layers = inner.get("layers")
        if not isinstance(layers, list):
            raise ValueError("a Sequential is described by a list of layers")
        found = [layer for layer in layers if not _is_input(layer)]
        first = _input(layers[0]) if layers and _is_input(layers[0]) else None
        shape = inner.get("build_input_shape")
        if first is None and isinstance(shape, list) and all(n is None or isinstance(n, int) for n in shape):
            # The class of Keras has no Input then, and is built for this shape; here it is given one.
            first = {"batch_shape": [None, *shape[1:]], "dtype": "float32", "name": "input_layer"}
        return {
            "name": inner.get("name"),
            "trainable": inner.get("trainable", True),
            "layers": [self.translate(layer) for layer in found],
            "input": first,
        }

    def _functional(self, inner: dict[str, Any]) -> dict[str, Any]:
        layers = inner.get("layers")
        if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
            raise ValueError("a functional model is described by a list of layers")
        graph = _Graph(self.translate)
        for layer in without_masks(layers, inner.get("output_layers")):
            graph.add(layer)
        calls = graph.calls()
        inputs = _tensors(inner.get("input_layers"), graph)
        return {
            "name": inner.get("name"),
            "trainable": inner.get("trainable", True),
            "symbols": graph.symbols(inputs),
            "inputs": inputs,
            "layers": graph.made,
            "calls": calls,
            "outputs": _tensors(inner.get("output_layers"), graph),
        }


class _Graph:
    """The symbolic calls of one functional model: which layer is called on what, and numbers for the results."""

    def __init__(self, translate: Callable[[Json], Any]) -> None:
        self.translate = translate
        self.made: list[Any] = []  # descriptions of layers, in order
        self.places: dict[str, int] = {}
        self.inputs: dict[str, Any] = {}
        self.nested: set[str] = set()  # functional models among the layers: Keras counts their calls from 1
        self.waiting: dict[str, list[Any]] = {}
        self.done: dict[str, int] = {}  # the number of calls so far
        self.numbers: dict[tuple[str, int, int], int] = {}
        self.used: dict[tuple[str, int], dict[str, Any]] = {}  # the results of a call that something refers to

    def add(self, layer: dict[str, Any]) -> None:
        name = layer.get("name")
        if not isinstance(name, str) or name in self.places or name in self.inputs:
            raise ValueError(f"a layer cannot be called {name!r}")
        if _is_input(layer):
            self.inputs[name] = _input(layer)
            return
        nodes = layer.get("inbound_nodes")
        if not isinstance(nodes, list):
            raise ValueError(f"the calls of layer {name!r} are missing")
        made = self.translate({key: value for key, value in layer.items() if key not in ("name", "inbound_nodes")})
        if made.get("class_name") == "Model" and made.get("module") == "models":
            self.nested.add(name)
        self.places[name] = len(self.made)
        self.made.append(made)
        self.waiting[name] = nodes
        self.done[name] = 0

    def tensor(self, name: object, call: object, place: object) -> dict[str, Any]:
        """Return the description of a result of a call, and note that something refers to it."""
        if not isinstance(name, str) or type(call) is not int or type(place) is not int:
            raise ValueError(f"a symbolic tensor cannot be {[name, call, place]!r:.100}")
        key = (name, call, place)
        number = self.numbers.setdefault(key, len(self.numbers))
        found = {"class_name": "__keras_tensor__", "number": number}
        if name in self.inputs:
            if (call, place) != (0, 0):
                raise ValueError(f"the input {name!r} has one tensor")
        elif name not in self.places:
            raise ValueError(f"there is no layer {name!r}")
        else:
            self.used.setdefault((name, call), {})[str(place)] = found
        return found

    def calls(self) -> list[Any]:
        """Return the calls in an order in which each comes after those whose results it takes."""
        found: list[Any] = []
        while self.waiting:
            before = len(found)
            for name in list(self.waiting):
                nodes = self.waiting[name]
                while nodes and self._ready(nodes[0]):
                    found.append(self._call(name, nodes[0]))
                    nodes = self.waiting[name] = nodes[1:]
                if not nodes:
                    del self.waiting[name]
            if self.waiting and len(found) == before:
                raise ValueError(f"the layers {', '.join(self.waiting)} are called on what no earlier call has made")
        return found

    def _ready(self, node: object) -> bool:
        return all(name in self.inputs or call < self.done.get(name, 0) for name, call, _ in histories(node))

    def _call(self, name: str, node: dict[str, Any]) -> dict[str, Any]:
        args = node.get("args")
        kwargs = node.get("kwargs")
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ValueError(f"the arguments of layer {name!r} are malformed")
        described = self.made[self.places[name]]
        if described["class_name"] == "Operation":
            # JSON has no tuples: the key of an index is one, and not a list.
            if described["config"]["function"]["config"] == "getitem":
                args = [args[0], {"class_name": "__key__", "config": {"parts": args[1]}}] if len(args) == 2 else args
            kwargs = {key: value for key, value in kwargs.items() if value is not None}
        call = self.done[name]
        self.done[name] = call + 1
        return {
            "layer": self.places[name],
            "args": {"class_name": "__tuple__", "items": [self._argument(part) for part in args]},
            "kwargs": {
                "class_name": "__dict__",
                # Keras notes what a call would have without them.
                "items": {
                    key: self._argument(value)
                    for key, value in kwargs.items()
                    if not (key in ("mask", "training") and not value)
                },
            },
            # A dictionary by the places of results, which others fill in when they refer to one.
            "outputs": {"class_name": "__results__", "items": self.used.setdefault((name, call), {})},
        }

    def _argument(self, value: Json) -> Any:
        if isinstance(value, list):
            return [self._argument(part) for part in value]
        if isinstance(value, dict):
            kind, inner = value.get("class_name"), value.get("config")
            if kind == "__keras_tensor__":
                return self.tensor(*history_of(value))
            if kind == "__key__" and isinstance(inner, dict):
                key = inner["parts"]
                parts = [self._argument(part) for part in key] if isinstance(key, list) else self._argument(key)
                return {"class_name": "__tuple__", "items": parts} if isinstance(parts, list) else parts
            if "class_name" not in value:
                return {"class_name": "__dict__", "items": {key: self._argument(part) for key, part in value.items()}}
        return self.translate(value)

    def symbols(self, inputs: Any) -> list[Any]:
        """Return the descriptions of the inputs in the order of the structure."""
        names = {number: name for (name, _, _), number in self.numbers.items()}
        found = [names[number] for number in _numbers(inputs)]
        if not all(name in self.inputs for name in found):
            raise ValueError("an input of the model is no InputLayer")
        return [self.inputs[name] for name in found]


def _tensors(structure: Json, graph: _Graph) -> Any:
    """Translate the inputs or outputs of a model: each tensor is a list of a layer's name and two numbers."""
    if isinstance(structure, list) and len(structure) == 3 and isinstance(structure[0], str):
        name, call, place = structure
        # Keras counts the calls of a functional model from 1 here, and from 0 elsewhere.
        return graph.tensor(name, call - 1 if name in graph.nested and isinstance(call, int) else call, place)
    if isinstance(structure, list):
        return [_tensors(part, graph) for part in structure]
    if isinstance(structure, dict):
        return {"class_name": "__dict__", "items": {key: _tensors(part, graph) for key, part in structure.items()}}
    raise ValueError("the inputs or outputs of a model are malformed")


def _numbers(structure: Any) -> Iterator[int]:
    if isinstance(structure, list):
        for part in structure:
            yield from _numbers(part)
    elif structure["class_name"] == "__dict__":
        yield from _numbers(list(structure["items"].values()))
    else:
        yield structure["number"]


def _instance(kind: str, space: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": kind, "module": space, "registered_name": kind, "config": arguments}


def _is_input(layer: Json) -> bool:
    return isinstance(layer, dict) and layer.get("class_name") == "InputLayer" and isinstance(layer.get("config"), dict)


def _input(layer: dict[str, Any]) -> dict[str, Any]:
    inner = layer["config"]
    if inner.get("sparse") or inner.get("ragged"):
        raise ValueError("there are no sparse or ragged inputs")
    shape = inner.get("batch_shape") or inner.get("batch_input_shape") or inner.get("shape")
    dtype = inner.get("dtype")
    if isinstance(dtype, dict) and isinstance(dtype.get("config"), dict):
        dtype = dtype["config"].get("name")
    return {"batch_shape": shape, "dtype": dtype or "float32", "name": inner.get("name")}


def _is_without_effect(kind: str, key: str, value: Json) -> bool:
    """True for an argument that Keras writes with a value that makes no difference."""
    if key == "mask" and kind != "Lambda":
        return False
    if key == "activity_regularizer" and kind != "Embedding" and value is not None:
        return False
    allowed = _WITHOUT_EFFECT.get(key, ())
    return any(value == neutral or neutral is ... for neutral in allowed)


def _placeholders(inner: dict[str, Any], built: object) -> dict[str, Any]:
    """Return statistics for a Normalization whose own ones are in the file: of their shape, and to be replaced."""
    shape = built.get("input_shape") if isinstance(built, dict) else None
    axes = inner.get("axis")
    axes = [axes] if isinstance(axes, int) else axes
    if not isinstance(shape, list) or (axes is not None and not isinstance(axes, list)):
        return {}
    kept = {axis % max(len(shape), 1) for axis in axes or [] if isinstance(axis, int)}
    lengths = [length if place in kept else 1 for place, length in enumerate(shape)][1:]
    if not all(type(length) is int and 0 < length < 1 << 24 for length in lengths):
        return {}

    def filled(value: float, lengths: list[int]) -> Any:
        return [filled(value, lengths[1:]) for _ in range(lengths[0])] if lengths else value

    return {
        name: {"class_name": "__numpy__", "value": filled(value, lengths), "dtype": "float64"}
        for name, value in (("mean", 0.0), ("variance", 1.0))
    }
