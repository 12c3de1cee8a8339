"""Files of Keras 3: whole models (`.keras`) and weights (`.weights.h5`), which Keras reads, and those that it writes.

A `.keras` file is a zip archive of `config.json`, which names classes and their arguments, `metadata.json`, and
`model.weights.h5`. None of it is executed here, with `safe_mode=False` neither.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from tape_core.support import warn_user

from tape_tf.keras import limits
from tape_tf.keras.hdf5 import Entry, read_entries, require_h5py, write_entries
from tape_tf.keras.keras_configs import from_keras
from tape_tf.keras.keras_describing import NoCounterpart, to_keras
from tape_tf.keras.keras_layout import Place, places
from tape_tf.keras.keras_vocabularies import with_vocabularies
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.optimizers import Nadam, Optimizer
from tape_tf.keras.restoring import build_by_call, parse_json, restore
from tape_tf.keras.serialization import describe_first_call, serialize_keras_object

if TYPE_CHECKING:
    from tape_tf.keras.models import Model

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
"""The members of a `.keras` file of Keras 3."""

VERSION = "3.15.0"
"""The version of Keras whose formats are written."""

_OPTIMIZER = "optimizer"
_MAX_NAMED = 3  # names of what does not fit that an error lists
_UNUSED = ("seed_generator", "_seed_generator", "random_generator")  # states of generators, which are others here


# -- weights


def write_weights(target: Any, model: Any, stored: Callable[[str], int] | None = None) -> None:
    """Write the weights of a model, and the state of its optimizer, to a path or a stream, as Keras lays them out.

    Args:
        stored: as for :func:`tape_tf.keras.keras_layout.places`.
    """
    entries = {place.path: Entry(place.name, [slot.read() for slot in place.slots]) for place in places(model, stored)}
    if (entry := optimizer_entry(model)) is not None:
        entries[_OPTIMIZER] = entry
    write_entries(target, entries)


def read_weights(stream: BinaryIO, model: Any, skip_mismatch: bool = False) -> None:
    """Set the weights of a model, and the state of its optimizer, to those in a file that Keras wrote.

    Raises:
        ValueError: the file is damaged, or does not fit the model. Then nothing is changed.
    """
    assign(read_entries(stream), model, skip_mismatch)


def assign(entries: Mapping[str, Entry], model: Any, skip_mismatch: bool = False) -> None:
    """Set the weights of a model to the arrays of a file, all or none.

    Args:
        skip_mismatch: leave out layers that do not fit, and warn of them.

    Raises:
        ValueError: the arrays do not fit the model. Then nothing is changed.
    """
    found = places(model, lambda path: len(entries[path].arrays) if path in entries else 0)
    ready: list[tuple[Any, np.ndarray[Any, Any]]] = []
    problems: list[str] = []
    for place in found:
        arrays = entries[place.path].arrays if place.path in entries else []
        if problem := _mismatch(place, arrays):
            problems.append(problem)
        else:
            ready += zip(place.slots, arrays, strict=True)
    wanted = {place.path for place in found}
    problems += [
        f"{path!r} has {len(entry.arrays)} arrays, and no layer is there"
        for path, entry in entries.items()
        if entry.arrays and path not in wanted and not _is_ignored(path, wanted)
    ]
    if problems:
        text = "; ".join(problems[:_MAX_NAMED]) + (
            f" and {len(problems) - _MAX_NAMED} more" if problems[_MAX_NAMED:] else ""
        )
        if not skip_mismatch:
            raise ValueError(f"the file does not fit the model: {text}")
        warn_user(f"load_weights: left out, since it does not fit: {text}")
    for slot, array in ready:
        slot.write(array)
    if _OPTIMIZER in entries and getattr(model, "compiled", False):
        load_optimizer(model, entries[_OPTIMIZER].arrays)


def _mismatch(place: Place, arrays: list[np.ndarray[Any, Any]]) -> str | None:
    """Say what of a layer does not fit its arrays; None if all does."""
    what = f"layer {place.name!r} ({place.path!r})" if place.path else "the model itself"
    if len(arrays) != len(place.slots):
        return f"{what} has {len(place.slots)} weights, and {len(arrays)} in the file"
    for number, (slot, array) in enumerate(zip(place.slots, arrays, strict=True)):
        if slot.shape is not None and slot.shape != array.shape:
            return f"weight {number} of {what} has shape {slot.shape}, and {array.shape} in the file"
    return None


def _is_ignored(path: str, wanted: set[str]) -> bool:
    """True for what Keras keeps in a file and no model has here: optimizers, metrics, states of generators."""
    first, _, _ = path.partition("/")
    return first == _OPTIMIZER or path.rpartition("/")[2] in _UNUSED


# -- the state of optimizers


def _orders(names: Iterable[str], count: int) -> list[tuple[int, str]]:
    """Return the slots in Keras' order, each as the number of its Variable and its name.

    The slots that Keras makes together alternate; those that it makes in a second step come after all of them.
    """
    listed = list(names)
    later = {"velocity_hat"} if "velocity_hat" in listed else set()
    if listed[:1] == ["velocity"]:  # RMSprop makes each kind in a step of its own
        later = set(listed[1:])
    together = [name for name in listed if name not in later]
    found = [(number, name) for number in range(count) for name in together]
    return found + [(number, name) for name in listed if name in later for number in range(count)]


def optimizer_entry(model: Any) -> Entry | None:
    """Return what Keras would write of a model's optimizer; None for a model that is not compiled."""
    if not getattr(model, "compiled", False):
        return None
    optimizer = model.optimizer
    variables = model.trainable_variables
    names = {str(number): variable.native for number, variable in enumerate(variables)}
    try:
        state = optimizer.native.state_dict(names)
    except ValueError:  # it was used for Variables of other models, too
        return None
    arrays = [np.asarray(int(state["iterations"]), "int32")]
    if optimizer._schedule is None:
        arrays.append(np.asarray(float(optimizer.learning_rate), "float32"))
    if optimizer.built:
        order = _orders(optimizer.native._slots(), len(variables))
        if all(f"{number}/{name}" in state for number, name in order):
            arrays += [np.asarray(state[f"{number}/{name}"].numpy()) for number, name in order]
            if isinstance(optimizer, Nadam):
                arrays.append(np.asarray(_nadam_product(optimizer.beta_1, int(state["iterations"])), "float32"))
    return Entry(optimizer.name, arrays)


def _nadam_product(beta: float, updates: int) -> float:
    """Return the product of Nadam's schedule, of which Keras keeps the value and Tape the number of its factors."""
    steps = np.arange(1, updates + 1, dtype=np.float64)
    return float(np.prod(beta * (1.0 - 0.5 * 0.96**steps)))


def load_optimizer(model: Any, arrays: list[np.ndarray[Any, Any]]) -> None:
    """Set the state of a model's optimizer; as in Keras one that does not fit is left out, with a warning."""
    optimizer: Optimizer = model.optimizer
    variables = {str(number): variable.native for number, variable in enumerate(model.trainable_variables)}
    order = _orders(optimizer.native._slots(), len(variables))
    state: dict[str, Any] = {}
    remaining = list(arrays)
    if remaining:
        state["iterations"] = np.asarray(int(remaining.pop(0)))
    if optimizer._schedule is None and remaining:
        state["learning_rate"] = np.asarray(float(remaining.pop(0)))
    if isinstance(optimizer, Nadam) and remaining:
        remaining.pop()
    shapes = [tuple(variables[str(number)].shape) for number, _ in order]
    if remaining and [array.shape for array in remaining] != shapes:
        warn_user(
            f"the state of optimizer {optimizer.name!r} in the file has other arrays than this optimizer: it is left "
            "out, and training starts with a new state"
        )
        return
    if not state:
        return
    for (number, name), array in zip(order, remaining, strict=False):
        state[f"{number}/{name}"] = array
    if remaining or (optimizer.native._slots() == {} and int(state["iterations"])):
        state |= {f"{number}/started": np.asarray(0) for number in variables}
        optimizer.build(model.trainable_variables)
    optimizer.native.load_state_dict(state, variables)
    if "learning_rate" in state:
        optimizer.learning_rate = float(state["learning_rate"])


# -- whole models


def describe(model: Model) -> tuple[dict[str, Any], str | None]:
    """Describe a model as Keras does, with the arguments of `compile`.

    Returns:
        the description, and a sentence if the arguments of `compile` are left out, since they have no description.

    Raises:
        NoCounterpart: a part of the model has no name in Keras.
        TypeError: a part of the model has no description at all, such as a lambda.
    """
    content = to_keras(serialize_keras_object(model))
    if (shapes := _build_shapes(model)) is not None:
        content["build_config"] = shapes
    left_out = None
    if model.compiled:
        try:
            content["compile_config"] = to_keras(serialize_keras_object(compile_arguments(model)))
        except TypeError as error:
            left_out = str(error)
    return content, left_out


def compile_arguments(model: Model) -> dict[str, Any]:
    """Return the arguments that `compile` was called with, as far as they are saved."""
    loss, metrics = model._compiled_loss, model._compiled_metrics
    given, weighted = metrics._configured if metrics is not None else (None, None)
    return {
        "optimizer": model.optimizer,
        "loss": model.loss,
        "loss_weights": None if loss is None else loss.weights,
        "metrics": given,
        "weighted_metrics": weighted,
    }


def _build_shapes(model: Model) -> dict[str, Any] | None:
    """Return the shape of the input of a model, for which Keras builds one that is no graph; None if there are several.

    Raises:
        NoCounterpart: Keras would not build the model: it was called on more than one tensor.
    """
    if model._graph is not None:
        return None
    if model._inputs is not None:
        return {"input_shape": list(model._inputs.shape)}
    if getattr(model, "_first_call", None) is None:
        return None
    args, kwargs = restore(describe_first_call(model))
    tensors = [part for part in args if isinstance(part, list) and len(part) == 2 and isinstance(part[0], list)]
    if len(tensors) != 1 or len(args) != 1 or any(isinstance(value, list | dict | tuple) for value in kwargs.values()):
        raise NoCounterpart(f"{model.name!r} was called on several tensors, for which Keras would not make its weights")
    return {"input_shape": [None, *tensors[0][0][1:]]}


def write_model(stream: BinaryIO, content: dict[str, Any], model: Model) -> None:
    """Write a model, which :func:`describe` has described, as an archive."""
    metadata = {"keras_version": VERSION, "date_saved": datetime.now(UTC).strftime("%Y-%m-%d@%H:%M:%S")}
    weights = BytesIO()
    write_weights(weights, model, lambda path: 0)  # what may be arguments is in the description
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(METADATA, json.dumps(metadata))
        archive.writestr(CONFIG, json.dumps(content))
        archive.writestr(WEIGHTS, weights.getvalue())


def read_model(members: Mapping[str, bytes], compile: bool, safe_mode: bool, factor: int, margin: int) -> Any:
    """Make a model from the members of an archive that Keras wrote.

    Args:
        factor, margin: the weights made meanwhile may have so many times the elements of the file, and so many more.
    """
    require_h5py("load_model")
    config = parse_json(members[CONFIG], limits.MAX_CONFIG_BYTES if safe_mode else None)
    if not isinstance(config, dict):
        raise ValueError("its config.json describes no model")
    config = with_vocabularies(config, members)
    described = from_keras({key: value for key, value in config.items() if key != "compile_config"})
    compiled = from_keras(config["compile_config"]) if compile and config.get("compile_config") else None
    entries = read_entries(BytesIO(members[WEIGHTS]))
    count = sum(array.size for entry in entries.values() for array in entry.arrays)
    with limits.enforce(factor * count + margin) if safe_mode else nullcontext():
        model = check_model(restore(described))
        if not model.built and (shape := _input_shape(config)) is not None:
            build_by_call(model, _first_call(shape))
    if compiled is not None:
        compile_model(model, compiled)
    assign(entries, model)
    return model


def check_model(found: Any) -> Any:
    """Return a model; raise a ValueError for anything else that a description may be of."""
    if not isinstance(found, Layer) or not hasattr(found, "load_weights"):
        raise ValueError(f"it describes an object of class {type(found).__name__}, not a model")
    return found


def _input_shape(config: dict[str, Any]) -> list[Any] | None:
    built = config.get("build_config")
    shape = built.get("input_shape") if isinstance(built, dict) else None
    return shape if isinstance(shape, list) else None


def _first_call(shape: list[Any]) -> Any:
    """Describe a call on one tensor of this shape, as `serialization.describe_first_call` does."""
    tensor: list[Any] = [[None, *shape[1:]], "float32"]
    return {
        "class_name": "__tuple__",
        "items": [{"class_name": "__tuple__", "items": [tensor]}, {"class_name": "__dict__", "items": {}}],
    }


_COMPILE_ARGUMENTS = ("optimizer", "loss", "loss_weights", "metrics", "weighted_metrics")


def compile_model(model: Any, description: Any) -> None:
    """Compile a model with the described arguments; those that choose how Keras computes are left out."""
    items = description.get("items") if isinstance(description, dict) else None
    if not isinstance(items, dict):
        raise ValueError("the arguments of compile are malformed")
    arguments = {name: restore(value) for name, value in items.items() if name in _COMPILE_ARGUMENTS}
    if not isinstance(arguments.get("optimizer"), Optimizer | str):
        raise ValueError("there is no optimizer")
    model.compile(**arguments)
