"""Descriptions of layers, models and their parts: dictionaries for JSON, with names of classes and no code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from tape_core.support import contextmanager, setting

from tape_tf import dtypes
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.models import Model, Sequential
from tape_tf.keras.nameable import NAMESPACES, OPERATORS, name_in_tf, namespace_of
from tape_tf.keras.structures import leaves, map_structure
from tape_tf.keras.symbolic import KerasTensor
from tape_tf.names import exported
from tape_tf.shapes import TensorSpec
from tape_tf.tensor import Value
from tape_tf.typing import PyTree

T = TypeVar("T", bound=Callable[..., Any])

_REGISTERED: dict[str, Any] = {}
# The default is shared by all contexts, and safe to share: scopes are set to new dictionaries, none is changed.
_SCOPE: ContextVar[dict[str, Any]] = ContextVar("custom objects", default={})  # noqa: B039


def in_each_namespace(name: str) -> str:
    """Return a name in each namespace of `tf.keras` that has `serialize` and `deserialize`, each after a space."""
    return "".join(f" keras.{space}.{name}" for space in NAMESPACES if space != "models")


# -- names of the user's classes and functions


@exported("keras.saving.register_keras_serializable keras.utils.register_keras_serializable")
def register_keras_serializable(package: str = "Custom", name: str | None = None) -> Callable[[T], T]:
    """Decorator: register a class or function under a name that saved models may contain.

    >>> import tape_tf as tf
    >>> @tf.keras.saving.register_keras_serializable(package="Example")
    ... class Twice(tf.keras.layers.Layer):
    ...     def call(self, x):
    ...         return 2 * x
    >>> tf.keras.saving.get_registered_name(Twice)
    'Example>Twice'
    """

    def register(value: T) -> T:
        if not callable(value):
            raise ValueError(f"register_keras_serializable: a class or a function is needed, got {value!r}")
        _REGISTERED[f"{package}>{name or value.__name__}"] = value
        return value

    return register


@exported("keras.saving.get_registered_name keras.utils.get_registered_name")
def get_registered_name(obj: object) -> str:
    """The name under which a class or function was registered, or else its own name."""
    return next((name for name, value in _REGISTERED.items() if value is obj), getattr(obj, "__name__", str(obj)))


@exported("keras.saving.get_registered_object keras.utils.get_registered_object")
def get_registered_object(
    name: str, custom_objects: Mapping[str, Any] | None = None, module_objects: Mapping[str, Any] | None = None
) -> Any:
    """Return the class or function of a name; None if nothing has it."""
    for known in (custom_objects or {}, _SCOPE.get(), _REGISTERED, module_objects or {}):
        if name in known:
            return known[name]
    return None


@exported("keras.saving.get_custom_objects keras.utils.get_custom_objects")
def get_custom_objects() -> dict[str, Any]:
    """The registered classes and functions, by name: the registry itself, which may be changed."""
    return _REGISTERED


@exported(
    "keras.saving.custom_object_scope keras.utils.custom_object_scope keras.saving.CustomObjectScope "
    "keras.utils.CustomObjectScope"
)
@contextmanager
def custom_object_scope(custom_objects: Mapping[str, Any]) -> Iterator[None]:
    """A context in which saved models may contain these names, too."""
    with setting(_SCOPE, {**_SCOPE.get(), **custom_objects}):
        yield


# -- descriptions


@exported("keras.saving.serialize_keras_object keras.utils.serialize_keras_object" + in_each_namespace("serialize"))
def serialize_keras_object(obj: PyTree) -> Any:
    """Describe an object of `tf.keras`, or a structure of such, for :func:`deserialize_keras_object`.

    >>> import tape_tf as tf
    >>> config = tf.keras.saving.serialize_keras_object(tf.keras.layers.Dense(3, activation="relu"))
    >>> config["class_name"], config["config"]["units"]
    ('Dense', 3)

    Raises:
        TypeError: a part is neither a number, text, an array, nor an object with `get_config`.
    """
    if obj is None or isinstance(obj, bool | int | float | str):
        return obj
    # A NumPy scalar, such as a rate computed by the user, is saved as Python's number: JSON has no other.
    if isinstance(obj, np.generic):
        return obj.item()
    if isinstance(obj, dtypes.DType):
        return obj.name
    if obj is ...:
        return {"class_name": "__ellipsis__"}
    if isinstance(obj, slice):
        return {"class_name": "__slice__", "items": [obj.start, obj.stop, obj.step]}
    if isinstance(obj, list):
        return _parts(obj)
    if isinstance(obj, tuple):
        return {"class_name": "__tuple__", "items": _parts(obj)}
    if isinstance(obj, dict):
        if any(not isinstance(key, str) for key in obj):
            raise _NotSaveable(f"a dictionary with keys that are not text cannot be saved: {obj!r}")
        return {"class_name": "__dict__", "items": {key: _part(part, key) for key, part in obj.items()}}
    if isinstance(obj, np.ndarray | Value):
        array = obj if isinstance(obj, np.ndarray) else obj.numpy()
        kind = "__tensor__" if isinstance(obj, Value) else "__numpy__"
        return {"class_name": kind, "value": np.asarray(array).tolist(), "dtype": np.asarray(array).dtype.name}
    # A subclass of Model with a `call` of its own is described by its arguments, like a layer, further down.
    if isinstance(obj, Model) and type(obj).get_config is Layer.get_config:
        if isinstance(obj, Sequential) and type(obj).__init__ is Sequential.__init__:
            return _describe_instance(obj, _describe_sequential(obj))
        if obj._graph is not None:
            return _describe_instance(Model, _describe_functional(obj))
    if not isinstance(obj, type) and (hasattr(obj, "get_config") or not inspect.isroutine(obj)):
        return _describe_instance(obj, _describe_arguments(obj))
    name = getattr(obj, "__name__", "<lambda>")
    if name != "<lambda>":
        if OPERATORS.get(name) is obj:  # the function of an operator between symbolic tensors
            return {"class_name": "function", "config": name, "module": "operator"}
        if (function := name_in_tf(obj)) is not None:  # such as tf.nn.relu
            return {"class_name": "function", "config": function, "module": "tf"}
        return {"class_name": "function", "config": _name_of(obj), "module": namespace_of(obj)}
    raise _NotSaveable(f"{obj!r} cannot be saved: write a function with a name, and register_keras_serializable")


class _NotSaveable(TypeError):
    """A value that no description can hold; `place` says where it is in the config of the object that has it."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason)
        self.place = place


def _part(value: Any, key: object) -> Any:
    """Describe a part of a structure; an error says at which key it is."""
    try:
        return serialize_keras_object(value)
    except _NotSaveable as error:
        raise _NotSaveable(str(error), f"[{key!r}]{error.place}") from None


def _parts(values: Sequence[Any]) -> list[Any]:
    return [_part(value, number) for number, value in enumerate(values)]


def _describe_arguments(obj: Any) -> dict[str, Any]:
    arguments = _constructor_arguments(obj)
    try:
        return {key: _part(value, key) for key, value in arguments.items()}
    except _NotSaveable as error:
        # The innermost object tells it: the objects around it have nothing to add.
        name = f" {obj.name!r}" if isinstance(getattr(obj, "name", None), str) else ""
        raise TypeError(f"config{error.place} of {type(obj).__name__}{name}: {error}") from None


def _describe_instance(obj: object, config: dict[str, Any]) -> dict[str, Any]:
    """Describe an instance of a class by the class's names and a config."""
    kind = obj if isinstance(obj, type) else type(obj)
    return {
        "class_name": kind.__name__,
        "module": namespace_of(kind),
        "registered_name": _name_of(kind),
        "config": config,
    }


def _name_of(value: object) -> str:
    """Return the name of a class or function of Keras, or the registered name of another."""
    return getattr(value, "__name__", "") if namespace_of(value) else get_registered_name(value)


def _constructor_arguments(obj: object) -> dict[str, Any]:
    """The arguments that would make an object like this one."""
    # The façade's optimizers take *args and hand them to a class of tape_nn: its signature tells the arguments.
    # Layers have such a class, too, and arguments of their own: those of Keras.
    source = type(obj) if isinstance(obj, Layer) else getattr(type(obj), "_native_class", type(obj))
    wanted = inspect.signature(source.__init__).parameters
    if hasattr(obj, "get_config"):
        config = obj.get_config()
        if type(obj).get_config is Layer.get_config and not any(p.kind is p.VAR_KEYWORD for p in wanted.values()):
            # The config has what every layer accepts (name, dtype, ...); a subclass may not accept it.
            config = {key: value for key, value in config.items() if key in wanted}
        return dict(config)
    names = [name for name, p in wanted.items() if name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    # Classes of tape_tf keep each argument in an attribute of its name; of others that is not known.
    if not type(obj).__module__.startswith("tape_tf.") or any(not hasattr(obj, name) for name in names):
        raise _NotSaveable(
            f"{obj!r} cannot be saved, since it is of type {type(obj).__name__}: use None, truth values, numbers, "
            "text, arrays, lists, tuples, dictionaries, or objects of classes with get_config(), which returns their "
            "arguments by name"
        )
    return {name: getattr(obj, name) for name in names}


def _describe_sequential(model: Sequential) -> dict[str, Any]:
    return {
        "name": model.name,
        "trainable": model.trainable,
        "layers": [serialize_keras_object(layer) for layer in model.layers],
        "input": None if model._inputs is None else _describe_input(model._inputs),
    }


def _describe_input(tensor: KerasTensor) -> dict[str, Any]:
    return {"batch_shape": list(tensor.shape), "dtype": tensor.dtype.name, "name": tensor.name}


def _describe_functional(model: Model) -> dict[str, Any]:
    """Describe a functional model: its inputs, its layers, the symbolic calls in order, and its outputs."""
    numbers: dict[int, int] = {}  # symbolic tensors by identity: the number that stands for each in the description

    def describe(structure: PyTree) -> Any:
        def leaf(value: object) -> Any:
            if isinstance(value, KerasTensor):
                number = numbers.setdefault(id(value), len(numbers))
                # The shape and the dtype are for Keras, in files for it.
                about = {"shape": list(value.shape), "dtype": value.dtype.name}
                return {"class_name": "__keras_tensor__", "number": number, **about}
            return serialize_keras_object(value)

        if isinstance(structure, tuple):
            return {"class_name": "__tuple__", "items": [describe(part) for part in structure]}
        if isinstance(structure, list):
            return [describe(part) for part in structure]
        if isinstance(structure, dict):
            return {"class_name": "__dict__", "items": {key: describe(part) for key, part in structure.items()}}
        return leaf(structure)

    inputs = describe(model._inputs)
    # By identity, in the order of the first call: layers of one name may be different objects.
    layers = list({id(node.layer): node.layer for node in model._graph}.values())
    # A layer that is called several times is described once; its calls refer to it by its place.
    places = {id(layer): place for place, layer in enumerate(layers)}
    return {
        "name": model.name,
        "trainable": model.trainable,
        "symbols": [_describe_input(tensor) for tensor in leaves(model._inputs)],
        "inputs": inputs,
        "layers": [serialize_keras_object(layer) for layer in layers],
        "calls": [
            {
                "layer": places[id(node.layer)],
                "args": describe(node.args),
                "kwargs": describe(node.kwargs),
                "outputs": describe(node.outputs),
            }
            for node in model._graph
        ],
        "outputs": describe(model._outputs),
    }


def describe_first_call(model: Model) -> Any:
    """Describe the shapes and dtypes that a model was first called with, for `restoring.build_by_call`."""

    def describe_spec(leaf: object) -> Any:
        return [list(leaf.shape), leaf.dtype.name] if isinstance(leaf, TensorSpec) else leaf

    return serialize_keras_object(map_structure(describe_spec, model._first_call))
