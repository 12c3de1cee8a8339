"""Layers, models and their parts, made from the dictionaries that :mod:`tape_tf.keras.serialization` writes.

Such a dictionary may come from anywhere, so it is not trusted. It can name what :mod:`tape_tf.keras.nameable` lists and
what was registered, have instances made of those classes, and have layers called on symbolic inputs. Nothing else in it
is looked up or called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor
from tape_tf.keras import limits
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.callables import Operation
from tape_tf.keras.models import Model, Sequential
from tape_tf.keras.nameable import OPERATORS, check_constructible, look_up
from tape_tf.keras.serialization import custom_object_scope, get_registered_object, in_each_namespace
from tape_tf.keras.structures import leaves
from tape_tf.keras.symbolic import Input, KerasTensor
from tape_tf.names import exported
from tape_tf.tensor import Value
from tape_tf.typing import Json

_DTYPE_NAMES = frozenset(value.name for value in vars(dtypes).values() if isinstance(value, dtypes.DType))

MAX_RANK = 32  # axes of a shape in a description; NumPy's own limit was 32 until version 2


@exported(
    "keras.saving.deserialize_keras_object keras.utils.deserialize_keras_object" + in_each_namespace("deserialize")
)
def deserialize_keras_object(config: Json, custom_objects: dict[str, Any] | None = None) -> Any:
    """Make the object that :func:`serialize_keras_object` described.

    Args:
        custom_objects: classes and functions by name, in addition to registered ones.

    Raises:
        TypeError: the description names a class or function that is neither Keras' own nor registered.
        ValueError: the description is malformed, or exceeds a limit.
    """
    with custom_object_scope(custom_objects or {}), report_damage("deserialize: the description"), limits.enforce():
        check_depth(config)
        return restore(config)


@contextmanager
def report_damage(what: str) -> Iterator[None]:
    """A context that turns every error of reading into one about the file.

    Reading a hostile description may raise anything, wherever its values arrive. The caller needs two cases only.

    Raises:
        ValueError: for any error inside, unless it is the following one.
        TypeError: a class or function is not known, which `custom_objects` would mend.
    """
    try:
        yield
    except UnknownName as error:
        raise TypeError(f"{what} cannot be read: {error}") from error
    except Exception as error:
        text = str(error).partition("\n")[0] if isinstance(error, RecursionError) else str(error)
        name = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise ValueError(f"{what} is damaged, or was not written by this library: {name}{text}") from error


class UnknownName(TypeError):
    """A description names a class or function that is not known."""


def parse_json(text: str | bytes, size: int | None = limits.MAX_CONFIG_BYTES) -> Any:
    """Parse the JSON text of a description.

    Raises:
        ValueError: it is no JSON, longer than `size` bytes, nested too deeply, or has a name twice in one dictionary.
    """
    # Before it is parsed: the objects take many times the memory of the text.
    if size is not None and len(text) > size:
        raise ValueError(f"the description has {len(text)} bytes, more than {size}")
    found = json.loads(text, object_pairs_hook=_without_duplicates)
    check_depth(found)
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # JSON allows a name twice, and readers differ in which one they take: a check of one could be passed with the
    # other.
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one dictionary")
    return found


def check_depth(config: object) -> None:
    """Raise a ValueError if lists and dictionaries are nested too deeply, or contain themselves.

    The walk goes level by level, without recursion, and meets each object of a level once: a list that contains itself
    twice would otherwise double at each level.
    """
    level, depth = [config], 0
    while level:
        depth += 1
        if depth > limits.MAX_CONFIG_DEPTH:
            raise ValueError(f"it is nested more than {limits.MAX_CONFIG_DEPTH} levels deep")
        inner: dict[int, Any] = {}
        for part in level:
            if isinstance(part, dict | list | tuple):
                inner.update((id(value), value) for value in (part.values() if isinstance(part, dict) else part))
        level = [value for value in inner.values() if isinstance(value, dict | list | tuple)]


def _entry(config: object, name: str, *kinds: type) -> Any:
    """Return an entry of a dictionary, checked.

    Raises:
        ValueError: the entry is missing, or of none of the types `kinds`.
    """
    if not isinstance(config, dict) or name not in config:
        raise ValueError(f"{name!r} is missing")
    value = config[name]
    # bool is a subclass of int, and is no number in a description.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{name!r} cannot be {_abbreviate(value)}")
    return value


def _abbreviate(value: object) -> str:
    text = repr(value) if isinstance(value, bool | float | str | None) else type(value).__name__
    return text if len(text) < 60 else f"{text[:57]}..."


def restore(config: Json) -> Any:
    """Make the object that a dictionary describes, with the custom objects of the current scope.

    Raises:
        TypeError: a class or function is not known.
        ValueError: the description is malformed.
    """
    if isinstance(config, list):
        return [restore(part) for part in config]
    if config is None or isinstance(config, bool | int | float | str):
        return config
    kind = _entry(config, "class_name", str)
    # Class names with two underscores stand for values that JSON does not know.
    if kind == "__tuple__":
        return tuple([restore(part) for part in _entry(config, "items", list)])
    if kind == "__dict__":
        return {_check_text(key): restore(part) for key, part in _entry(config, "items", dict).items()}
    if kind == "__ellipsis__":
        return ...
    if kind == "__slice__":
        items = _entry(config, "items", list)
        if len(items) != 3 or not all(item is None or type(item) is int for item in items):
            raise ValueError(f"a slice cannot be made of {_abbreviate(items)}")
        return slice(*items)
    if kind in ("__numpy__", "__tensor__"):
        return _restore_array(config, kind == "__tensor__")
    # None stands for a class or function of the user's, which is found by its registered name alone.
    space = _entry(config, "module", str, type(None))
    if kind == "function":
        return _look_up(_entry(config, "config", str), space)
    name = _entry(config, "registered_name", str) if space is None else kind
    found = _check_constructible(_look_up(name, space), name)
    inner = _entry(config, "config", dict)
    # A functional model and a Sequential are described by their layers, not by arguments.
    # `is`: a subclass may have arguments of its own, and is made by its `from_config`.
    if found is Model:
        return _restore_functional(inner)
    if issubclass(found, Sequential) and "layers" in inner and "input" in inner:
        return _restore_sequential(found, inner)
    arguments = {_check_text(key): restore(value) for key, value in inner.items()}
    # An Operation calls its function on values of the description: only the listed operators are safe there.
    if issubclass(found, Operation) and arguments.get("function") not in OPERATORS.values():
        raise ValueError(f"{_abbreviate(arguments.get('function'))} is not one of the operators")
    # Reached for listed and registered classes only; their code is trusted, the arguments are not.
    made = found.from_config(arguments) if hasattr(found, "from_config") else found(**arguments)
    # A `from_config` of the user's may return anything; what follows relies on the class.
    if not isinstance(made, found):
        raise ValueError(f"{name}.from_config made {_abbreviate(made)}")
    if isinstance(made, Layer):
        _check_text(made.name)
    return made


def _look_up(name: str, space: str | None) -> Any:
    try:
        return look_up(name, space, get_registered_object)
    except TypeError as error:
        raise UnknownName(str(error)) from None


def _check_constructible(found: object, name: str) -> Any:
    try:
        return check_constructible(found, name)
    except TypeError as error:
        raise UnknownName(str(error)) from None


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a name cannot be {_abbreviate(value)}")
    return value


def _restore_array(config: dict[str, Any], tensor: bool) -> Any:
    name = _entry(config, "dtype", str)
    # Before NumPy sees it, whose dtype strings can describe objects and structures.
    if name not in _DTYPE_NAMES:
        raise ValueError(f"there is no dtype {name!r}")
    array = np.asarray(_entry(config, "value", list, bool, int, float), name)
    if not tensor:
        return array
    return convert_to_tensor(array)


def _restore_input(config: Json) -> KerasTensor:
    """Make the symbolic input that an entry describes."""
    shape, dtype = _entry(config, "batch_shape", list), _entry(config, "dtype", str)
    return make_input(shape, dtype, _entry(config, "name", str))


def make_input(shape: Sequence[object], dtype: str, name: str | None = None) -> KerasTensor:
    """Make a symbolic input with a shape and a dtype from a file.

    Raises:
        ValueError: the shape or the dtype is malformed.
    """
    # `type(n) is int`, as True is an int.
    if not all(n is None or (type(n) is int and n >= 0) for n in shape) or len(shape) > MAX_RANK:
        raise ValueError(f"a shape cannot be {_abbreviate(shape)}")
    if dtype not in _DTYPE_NAMES:
        raise ValueError(f"there is no dtype {dtype!r}")
    made = Input(batch_shape=tuple(shape), dtype=dtype, name=name)
    made.check_size()
    return made


def _restore_layers(config: list[Json]) -> list[Layer]:
    """Make the layers that a list describes."""
    layers = [restore(layer) for layer in config]
    for layer in layers:
        if not isinstance(layer, Layer):
            raise ValueError(f"one of the layers is {_abbreviate(layer)}")
    return layers


def _restore_sequential(kind: type[Sequential], config: dict[str, Any]) -> Any:
    """Make a Sequential from the description of its layers."""
    first = [] if _entry(config, "input", dict, type(None)) is None else [_restore_input(config["input"])]
    layers = _restore_layers(_entry(config, "layers", list))
    return kind([*first, *layers], trainable=_entry(config, "trainable", bool), name=_entry(config, "name", str))


def _restore_functional(config: dict[str, Any]) -> Any:
    """Make a functional model by repeating the symbolic calls that are described.

    Symbolic tensors are numbered in the description; `known` has those made so far, by number.
    """
    known: dict[int, KerasTensor] = {}

    def number(part: Json) -> int:
        found: int = _entry(part, "number", int)
        return found

    def fill_in(part: Json) -> Any:
        """Return arguments with symbolic tensors in place of their numbers."""
        kind = part.get("class_name") if isinstance(part, dict) else None
        if kind == "__keras_tensor__":
            if number(part) not in known:
                raise ValueError(f"a layer is called on the value {number(part)}, which no earlier call has made")
            return known[number(part)]
        if kind == "__tuple__":
            return tuple([fill_in(item) for item in _entry(part, "items", list)])
        if kind == "__dict__":
            return {_check_text(key): fill_in(item) for key, item in _entry(part, "items", dict).items()}
        return [fill_in(item) for item in part] if isinstance(part, list) else restore(part)

    def numbers(part: Json) -> Iterator[int]:
        """Iterate over the numbers of the symbolic tensors in a structure."""
        if isinstance(part, list):
            for item in part:
                yield from numbers(item)
        elif _entry(part, "class_name", str) == "__keras_tensor__":
            yield number(part)
        else:
            items = _entry(part, "items", list, dict)
            yield from numbers(list(items.values()) if isinstance(items, dict) else items)

    symbols = [_restore_input(entry) for entry in _entry(config, "symbols", list)]
    known.update(zip(numbers(_entry(config, "inputs", list, dict)), symbols, strict=True))
    layers = _restore_layers(_entry(config, "layers", list))
    for call in _entry(config, "calls", list):
        place = _entry(call, "layer", int)
        if not 0 <= place < len(layers):
            raise ValueError(f"there is no layer {place}")
        args, kwargs = fill_in(_entry(call, "args", dict)), fill_in(_entry(call, "kwargs", dict))
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise ValueError("a layer's arguments are neither a tuple nor a dictionary")
        # Calling a layer computes, on probes: check first what it is called on.
        _check_call(layers[place], args, kwargs)
        results = list(leaves(layers[place](*args, **kwargs)))
        outputs = _entry(call, "outputs", list, dict)
        if isinstance(outputs, dict) and outputs.get("class_name") == "__results__":
            # Of a description that Keras wrote: the results that are used, by their places.
            for text, part in _entry(outputs, "items", dict).items():
                if not text.isdecimal() or int(text) >= len(results):
                    raise ValueError(f"the layer {layers[place].name!r} has no result {text}")
                known[number(part)] = results[int(text)]
        else:
            known.update(zip(numbers(outputs), results, strict=True))
    inputs, outputs = fill_in(config["inputs"]), fill_in(_entry(config, "outputs", list, dict))
    model = Model(inputs, outputs, name=_entry(config, "name", str))
    # At the end, since setting it also sets the layers, which had their own settings when they were made.
    model.trainable = _entry(config, "trainable", bool)
    return model


def _check_call(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check that a call is symbolic, and that an operator gets tensors and numbers alone.

    Without a symbolic argument a layer would compute on values from the file, in full size.

    Raises:
        ValueError: no argument is symbolic, or an operator gets something else.
    """
    if not any(isinstance(leaf, KerasTensor) for leaf in leaves((args, kwargs))):
        raise ValueError(f"the layer {layer.name!r} is called without a symbolic input")
    if isinstance(layer, Operation):
        numbers = (KerasTensor, Value, np.ndarray, bool, int, float)
        indexing = layer.function is OPERATORS["getitem"]
        # The key of an index may be a slice, a tuple or an int.
        operands = args[:1] if indexing else args
        if kwargs or len(args) > 2 or not all(isinstance(operand, numbers) for operand in operands):
            raise ValueError(f"the operator {layer.name!r} is called on something other than tensors and numbers")
        if not any(isinstance(operand, KerasTensor) for operand in operands):
            raise ValueError(f"the operator {layer.name!r} is called without a symbolic input")


def build_by_call(model: Layer, structure: Json) -> None:
    """Make a model's weights by calling it on symbolic inputs with the shapes and dtypes of its first call.

    Args:
        structure: a description that `serialization.describe_first_call` wrote: a list [shape, dtype] for each tensor.
    """

    def symbols(part: Json) -> Any:
        if isinstance(part, list) and len(part) == 2 and isinstance(part[0], list) and isinstance(part[1], str):
            shape, dtype = part
            return make_input([None, *shape[1:]] if shape else shape, dtype)
        if isinstance(part, dict):
            return {key: symbols(item) for key, item in part.items()}
        return type(part)([symbols(item) for item in part]) if isinstance(part, list | tuple) else part

    found = symbols(restore(structure))
    if not isinstance(found, list | tuple) or len(found) != 2:
        raise ValueError("the arguments of the first call of the model are malformed")
    args, kwargs = found
    if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise ValueError("the arguments of the first call of the model are malformed")
    _check_call(model, tuple(args), kwargs)
    model(*args, **kwargs)
