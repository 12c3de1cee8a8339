"""Files of whole models: their structure, their weights, and the arguments of `compile`.

By default a file is one that Keras 3 reads: see :mod:`tape_tf.keras.keras_files`. In the format of this library, which
needs no h5py, it is a zip archive of `config.json`, which names classes and their arguments, and
`model.weights.safetensors`. It contains no code, and nothing in it is executed: see :mod:`tape_tf.keras.restoring`.
Its members are not compressed, so that none is larger than the file: a small file cannot expand to a large one.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import tape_nn as nn
from tape_core.support import warn_user
from tape_nn.extend import read_tensors

from tape_tf.drafts import replacing
from tape_tf.keras import limits
from tape_tf.keras.hdf5 import SIGNATURE, require_h5py
from tape_tf.keras.keras_describing import NoCounterpart
from tape_tf.keras.keras_files import WEIGHTS as KERAS_WEIGHTS
from tape_tf.keras.keras_files import compile_arguments, describe, read_model, write_model
from tape_tf.keras.keras_vocabularies import ASSETS
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.legacy_files import LEGACY_SUFFIXES, read_legacy_model, write_legacy_model
from tape_tf.keras.optimizers import Optimizer
from tape_tf.keras.restoring import build_by_call, parse_json, report_damage, restore
from tape_tf.keras.saving import Weights
from tape_tf.keras.serialization import custom_object_scope, describe_first_call, serialize_keras_object
from tape_tf.names import exported
from tape_tf.typing import PathLike

if TYPE_CHECKING:
    from tape_tf.keras.models import Model

_CONFIG, _WEIGHTS, _OPTIMIZER = "config.json", "model.weights.safetensors", "optimizer.safetensors"
_FORMAT = "tape-tf 1"
# While a model is loaded, initializers draw weights, and may draw arrays that are no weights. Together they may take
# this many times the elements of the file, plus some for small models.
_WEIGHTS_FACTOR = 4
_WEIGHTS_MARGIN = 1 << 20  # elements


@exported("keras.models.save_model keras.saving.save_model", differs="without h5py in a format of its own")
def save_model(
    model: Model, filepath: PathLike, overwrite: bool = True, zipped: bool = True, save_format: str | None = None
) -> None:
    """Write a model to a file: its structure, its weights, and the arguments of `compile`.

    >>> import os, tempfile
    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    >>> before = model(tf.ones((1, 3)))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> bool(tf.reduce_all(tf.keras.models.load_model(path)(tf.ones((1, 3))) == before))
    True

    Args:
        filepath: a path that ends in `.keras`, or in `.h5` or `.hdf5` for the format of Keras 2, which Keras 3 reads,
            too; it takes the package h5py.
        overwrite: replace an existing file.
        zipped: must be True: the file is an archive.
        save_format: "keras" for a file that Keras 3 reads, too; it takes the package h5py. "tape" for one that this
            library alone reads, which may have parts that Keras has no name for. By default "keras" where that is
            possible, and else "tape", with a warning that says why.

    Raises:
        ModuleNotFoundError: the format is "keras", or that of Keras 2, and h5py is not installed.
        ValueError: the path has another ending, the model has no weights yet, or the description of its structure
            takes more than 16 MB of text; it includes arrays that are arguments of layers.
        FileExistsError: the file exists, and `overwrite` is False.
        OSError: the file cannot be written, or the path is that of something other than a file.
        TypeError: a part of the model cannot be named in a file, such as a lambda; or the path ends in `.h5`, and the
            model is neither a Sequential nor made of symbolic calls.
    """
    path = Path(os.fspath(filepath))
    if path.suffix not in (".keras", *LEGACY_SUFFIXES):
        raise ValueError(
            f"save: the file's name must end in .keras, or in .h5 for the format of Keras 2, got {str(path)!r}; "
            "save_weights writes weights alone"
        )
    if path.exists() and not overwrite:
        raise FileExistsError(f"save: there is a file {str(path)!r} already")
    if not model.built:
        raise ValueError("save: the model has no weights yet: call it, or build it, first")
    if save_format not in (None, "keras", "tape") or not zipped:
        raise ValueError(
            f"save: save_format must be 'keras' or 'tape', and zipped True; got {save_format!r}, {zipped!r}"
        )
    legacy = path.suffix in LEGACY_SUFFIXES
    if legacy and save_format is not None:
        raise ValueError(f"save: the name {path.name!r} says the format already: leave save_format out")
    if save_format != "tape":
        try:
            require_h5py("save")
            content, left_out = describe(model)
        except (ModuleNotFoundError, NoCounterpart) as error:
            if save_format is not None or legacy:
                raise
            warn_user(
                f"save: {str(path)!r} is written in the format of this library, and Keras does not read it: {error}"
            )
        else:
            if left_out is not None:
                warn_user(f"save: how the model was compiled is not saved: {left_out}")
            _check_size(json.dumps(content))
            with replacing("save", path) as draft, draft.open("w+b") as stream:
                (write_legacy_model if legacy else write_model)(stream, content, model)
            return
    _save_own_format(path, model)


def _save_own_format(path: Path, model: Model) -> None:
    """Write a file with the description of :mod:`tape_tf.keras.serialization` and weights in the safetensors format."""
    content: dict[str, Any] = {"format": _FORMAT, "model": serialize_keras_object(model)}
    if getattr(model, "_first_call", None) is not None:
        content["called_on"] = describe_first_call(model)
    weights = Weights(model)
    state: dict[str, Any] | None = None
    if model.compiled:
        try:
            # A loss that is a lambda of the user's is no reason to lose the model: it is saved without `compile`.
            content["compile"] = serialize_keras_object(compile_arguments(model))
        except TypeError as error:
            warn_user(f"save: how the model was compiled is not saved: {error}")
        else:
            state = model.optimizer.native.state_dict(dict(weights.named_variables()))
    text = json.dumps(content, indent=1)
    _check_size(text)
    with replacing("save", path) as draft, zipfile.ZipFile(draft, "w") as archive:
        archive.writestr(_CONFIG, text)
        weights.save_weights(draft.parent / _WEIGHTS)
        archive.write(draft.parent / _WEIGHTS, _WEIGHTS)
        if state is not None:
            nn.save_tensors(draft.parent / _OPTIMIZER, state)
            archive.write(draft.parent / _OPTIMIZER, _OPTIMIZER)


def _check_size(text: str) -> None:
    if len(text) > limits.MAX_CONFIG_BYTES:
        raise ValueError(
            f"save: what the model is made of takes {len(text)} bytes of text, more than {limits.MAX_CONFIG_BYTES}: "
            "keep arrays that are arguments of layers in weights"
        )


@exported(
    "keras.models.load_model keras.saving.load_model", differs="no code in files is run, with safe_mode=False neither"
)
def load_model(
    filepath: PathLike, custom_objects: Mapping[str, Any] | None = None, compile: bool = True, safe_mode: bool = True
) -> Any:
    """Read a model, with its weights, from a file that :func:`save_model` or Keras wrote; training can continue.

    Files of Keras 3 (`.keras`) and of Keras 2 (`.h5`) take the package h5py.

    Args:
        custom_objects: classes and functions by name, in addition to registered ones.
        compile: compile the model as it was compiled when saved.
        safe_mode: limit sizes: of the weights to those in the file, of each value that the model computes while shapes
            are inferred to `2**28` elements, and of the model's description to 16 MB. No code is read from files with
            `safe_mode=False` either.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is of another format, or damaged, or something in it exceeds a limit.
        TypeError: the file names a class or function that is not registered.
    """
    path = Path(os.fspath(filepath))
    what = f"load_model: {str(path)!r}"
    with path.open("rb") as stream:
        if stream.read(len(SIGNATURE)) == SIGNATURE:
            require_h5py("load_model")
            with custom_object_scope(custom_objects or {}), report_damage(what):
                return read_legacy_model(stream, compile, safe_mode, _WEIGHTS_FACTOR, _WEIGHTS_MARGIN)
        with report_damage(what):
            members = _read_members(stream)
    if _CONFIG not in members or not members.keys() & {_WEIGHTS, KERAS_WEIGHTS}:
        raise ValueError(f"{what} was not written by this library, nor by Keras: it has no {_CONFIG}, or no weights")
    if KERAS_WEIGHTS in members:
        require_h5py("load_model")
        with custom_object_scope(custom_objects or {}), report_damage(what):
            return read_model(members, compile, safe_mode, _WEIGHTS_FACTOR, _WEIGHTS_MARGIN)
    with custom_object_scope(custom_objects or {}), report_damage(what):
        content = parse_json(members[_CONFIG], limits.MAX_CONFIG_BYTES if safe_mode else None)
        if not isinstance(content, dict) or content.get("format") != _FORMAT or "model" not in content:
            raise ValueError(f"it is not in the format {_FORMAT!r}")
        # Before the model is made: the number of its weights is bounded by the number in the file.
        values, _ = read_tensors(members[_WEIGHTS], f"the member {_WEIGHTS!r}")
        count = sum(value.size for value in values.values())
        with limits.enforce(_WEIGHTS_FACTOR * count + _WEIGHTS_MARGIN) if safe_mode else nullcontext():
            model = restore(content["model"])
            if not hasattr(model, "load_weights"):
                raise ValueError(f"it describes an object of class {type(model).__name__}, not a model")
            if not model.built:
                build_by_call(model, content.get("called_on"))
        weights = Weights(model)
        weights.load_state_dict(values)
        if compile and "compile" in content:
            _restore_compile(
                model, restore(content["compile"]), members.get(_OPTIMIZER), dict(weights.named_variables())
            )
    return model


def _restore_compile(model: Model, arguments: object, state: bytes | None, variables: dict[str, Any]) -> None:
    """Compile a model as it was, and restore the state of its optimizer."""
    if not isinstance(arguments, dict) or not arguments.keys() <= _COMPILE_ARGUMENTS:
        raise ValueError("the arguments of compile are malformed")
    if not isinstance(arguments.get("optimizer"), Optimizer):
        raise ValueError("there is no optimizer")
    if state is None:
        raise ValueError(f"the member {_OPTIMIZER!r} is missing")
    values, _ = read_tensors(state, f"the member {_OPTIMIZER!r}")
    # Each argument has been checked to be one of `compile`: a file cannot pass others.
    model.compile(**arguments)
    model.optimizer.native.load_state_dict(values, variables)
    # The façade keeps the rate in a Variable of its own, which the native state does not know.
    if "learning_rate" in values:
        model.optimizer.learning_rate = model.optimizer.native.learning_rate


_COMPILE_ARGUMENTS = {"optimizer", "loss", "loss_weights", "metrics", "weighted_metrics"}


def _read_members(stream: BinaryIO) -> dict[str, bytes]:
    """Read the members of a file that :func:`save_model` wrote, by name; other members are ignored.

    Raises:
        ValueError: a member occurs twice, or is compressed: :func:`save_model` does not compress.
    """
    found: dict[str, bytes] = {}
    # Of the open file, which cannot be exchanged for another between this and the reading.
    size = os.fstat(stream.fileno()).st_size
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            if member.filename not in (_CONFIG, _WEIGHTS, _OPTIMIZER, KERAS_WEIGHTS) and not (
                member.filename.startswith(ASSETS)
            ):
                continue
            if member.filename in found:
                raise ValueError(f"the member {member.filename!r} occurs twice")
            # A compressed member could expand to any size when it is read.
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                raise ValueError(f"the member {member.filename!r} is compressed")
            found[member.filename] = archive.read(member)
    return found


@exported("keras.models.model_from_json")
def model_from_json(json_string: str, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Make the model that `to_json` described, with new weights.

    Raises:
        TypeError: the text names a class or function that is not registered.
        ValueError: the text is no such description, its weights have more than `2**30` elements, or a value that a
            layer computes while shapes are inferred more than `2**28`.
    """
    with custom_object_scope(custom_objects or {}), report_damage("model_from_json: the text"), limits.enforce():
        model = restore(parse_json(json_string))
        if not isinstance(model, Layer):
            raise ValueError(f"it describes an object of class {type(model).__name__}, not a model")
    return model


@exported("keras.models.clone_model", differs="without input_tensors, clone_function and call_function")
def clone_model(model: Model) -> Any:
    """Make a model with the structure of another, and new weights.

    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), tf.keras.layers.Dense(2)])
    >>> target = tf.keras.models.clone_model(model)
    >>> target.set_weights(model.get_weights())

    Raises:
        TypeError: a part of the model cannot be described by its arguments, such as a lambda.
    """
    classes: dict[str, type] = {}
    # The classes of the user's need not be registered, since the description is read here and now.
    for layer in model._flatten_layers():
        if classes.setdefault(type(layer).__name__, type(layer)) is not type(layer):
            raise TypeError(f"clone_model: two classes of layers have the name {type(layer).__name__!r}; rename one")
    with custom_object_scope(classes):
        again = restore(serialize_keras_object(model))
    if model.built and not again.built:
        build_by_call(again, describe_first_call(model))
    return again
