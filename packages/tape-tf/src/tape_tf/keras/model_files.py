"""Files of whole models: what they are made of, their weights, and how they were compiled.

A file is a zip of `config.json`, which names classes and their arguments, and `model.weights.safetensors`. There is no
code in it, and nothing of it is executed.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import tape_nn as nn

from tape_tf.keras.saving import Weights
from tape_tf.keras.serialization import (
    call_again,
    called_on,
    custom_object_scope,
    deserialize_keras_object,
    serialize_keras_object,
)
from tape_tf.names import exported

_CONFIG, _WEIGHTS, _OPTIMIZER = "config.json", "model.weights.safetensors", "optimizer.safetensors"


@exported("keras.models.save_model keras.saving.save_model", differs="weights in the safetensors format, not HDF5")
def save_model(model: Any, filepath: Any, overwrite: bool = True) -> None:
    """Write a model to a file: what it is made of, its weights, and how it was compiled.

    >>> import os, tempfile
    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    >>> before = model(tf.ones((1, 3)))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> bool(tf.reduce_all(tf.keras.models.load_model(path)(tf.ones((1, 3))) == before))
    True

    Args:
        filepath: its name ends in `.keras`.

    Raises:
        ValueError: the name has another ending, or the model has no weights yet.
        FileExistsError: the file is there, and is not to be overwritten.
        TypeError: a part of the model cannot be named in a file, such as a lambda.
    """
    path = Path(os.fspath(filepath))
    if path.suffix != ".keras":
        raise ValueError(
            f"save: the file's name must end in .keras, got {str(path)!r}; save_weights writes weights alone"
        )
    if path.exists() and not overwrite:
        raise FileExistsError(f"save: there is a file {str(path)!r} already")
    if not model.built:
        raise ValueError("save: the model has no weights yet: call it, or build it, first")
    content: dict[str, Any] = {"format": "tape-tf 1", "model": serialize_keras_object(model)}
    if getattr(model, "_called_on", None) is not None:
        content["called_on"] = called_on(model)
    weights = Weights(model)
    state: dict[str, Any] | None = None
    if model.compiled:
        try:
            content["compile"] = serialize_keras_object(_compiled(model))
        except TypeError as error:
            warnings.warn(f"save: how the model was compiled is not saved: {error}", stacklevel=2)
        else:
            state = model.optimizer.native.state_dict(dict(weights.named_variables()))
    # Written aside: the file is there whole or not at all.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = Path(folder) / "draft"
        with zipfile.ZipFile(draft, "w") as archive:
            archive.writestr(_CONFIG, json.dumps(content, indent=1))
            weights.save_weights(Path(folder) / _WEIGHTS)
            archive.write(Path(folder) / _WEIGHTS, _WEIGHTS)
            if state is not None:
                nn.save_tensors(Path(folder) / _OPTIMIZER, state)
                archive.write(Path(folder) / _OPTIMIZER, _OPTIMIZER)
        os.replace(draft, path)


def _compiled(model: Any) -> dict[str, Any]:
    """The arguments of `compile`."""
    loss, metrics = model._compiled_loss, model._compiled_metrics
    given, weighted = metrics._given if metrics is not None else (None, None)
    weights = None if loss is None else loss.weights
    return {
        "optimizer": model.optimizer,
        "loss": model.loss,
        "loss_weights": weights,
        "metrics": given,
        "weighted_metrics": weighted,
    }


@exported("keras.models.load_model keras.saving.load_model", differs="reads files that are written here, no others")
def load_model(filepath: Any, custom_objects: Any = None, compile: bool = True, safe_mode: bool = True) -> Any:
    """The model of a file that :func:`save_model` wrote, with its weights; it goes on training where it was.

    Args:
        custom_objects: classes and functions by name, beside those that are registered.
        compile: whether to compile it as it was.
        safe_mode: there is no other mode: no code is read from files.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such file, or damaged.
        TypeError: it names a class or function that is not registered.
    """
    path = Path(os.fspath(filepath))
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"load_model: {str(path)!r} is damaged, or was not written by save") from error
    with archive, tempfile.TemporaryDirectory() as folder, custom_object_scope(custom_objects or {}):
        names = archive.namelist()
        if _CONFIG not in names or _WEIGHTS not in names:
            raise ValueError(
                f"load_model: {str(path)!r} was not written by this library: files of TensorFlow's Keras hold their "
                "weights in another format"
            )
        content = json.loads(archive.read(_CONFIG))
        model = deserialize_keras_object(content["model"])
        if not model.built:
            call_again(model, content["called_on"])
        archive.extract(_WEIGHTS, folder)
        weights = Weights(model)
        weights.load_weights(Path(folder) / _WEIGHTS)
        if compile and "compile" in content:
            model.compile(**deserialize_keras_object(content["compile"]))
            archive.extract(_OPTIMIZER, folder)
            state, _ = nn.load_tensors(Path(folder) / _OPTIMIZER)
            model.optimizer.native.load_state_dict(state, dict(weights.named_variables()))
            if "learning_rate" in state:
                model.optimizer.learning_rate = model.optimizer.native.learning_rate
    return model


@exported("keras.models.model_from_json")
def model_from_json(json_string: str, custom_objects: Any = None) -> Any:
    """A model like the one that `to_json` described, with new weights.

    Raises:
        TypeError: it names a class or function that is not registered.
    """
    return deserialize_keras_object(json.loads(json_string), custom_objects)


@exported("keras.models.clone_model", differs="without input_tensors, clone_function and call_function")
def clone_model(model: Any) -> Any:
    """A model like this one, with weights of its own, which are new.

    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), tf.keras.layers.Dense(2)])
    >>> target = tf.keras.models.clone_model(model)
    >>> target.set_weights(model.get_weights())

    Raises:
        TypeError: a part of the model cannot be described by its arguments, such as a lambda.
    """
    classes = {type(layer).__name__: type(layer) for layer in model._flatten_layers()}
    again = deserialize_keras_object(serialize_keras_object(model), classes)
    if model.built and not again.built:
        call_again(again, called_on(model))
    return again
