"""`tf.saved_model`: a Keras model or a `tf.Module` in a folder, with the signatures by which it is served.

For a Keras model the folder has `model.keras`, which describes the model by names of classes and has its weights, and
`saved_model.json`, which describes the signatures. For a `tf.Module` see :mod:`tape_tf.object_files`.

>>> import tempfile
>>> import tape_tf as tf
>>> model = tf.keras.Sequential([tf.keras.Input((3,), name="x"), tf.keras.layers.Dense(2)])
>>> folder = tempfile.mkdtemp()
>>> tf.saved_model.save(model, folder)
>>> again = tf.saved_model.load(folder)
>>> served = again.signatures["serving_default"](x=tf.ones((1, 3)))
>>> bool(tf.reduce_all(served["output_0"] == model(tf.ones((1, 3))))), len(again.trainable_variables)
(True, 2)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tape_tf.conversion import convert_to_tensor
from tape_tf.drafts import replacing
from tape_tf.keras.model_files import load_model, save_model
from tape_tf.keras.models import Model
from tape_tf.keras.restoring import parse_json, report_damage
from tape_tf.keras.structures import leaves, map_structure
from tape_tf.module import Module
from tape_tf.names import absent, export, exported, published
from tape_tf.object_files import ARRAYS, LoadedObject, load_object, write_object
from tape_tf.object_files import FORMAT as FUNCTIONS_FORMAT
from tape_tf.object_recording import describe_object
from tape_tf.shapes import TensorSpec
from tape_tf.typing import PathLike, PyTree

_MODEL, _DESCRIPTION = "model.keras", "saved_model.json"
_FORMAT = "tape-tf saved_model 1"

export("saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY saved_model.SERVING_DEFAULT", "serving_default")
_SERVING = "serving_default"


@exported("saved_model.save", differs="functions without random draws")
def save(obj: Any, export_dir: PathLike, signatures: Any = None, options: object = None) -> None:
    """Write a Keras model, or a `tf.Module` with its tf.functions, into a folder, which is made if needed.

    Of a tf.function the ops are written that it calls for each of its signatures: its `input_signature`, or those of
    its calls and of `get_concrete_function`. It is run on samples to find them; Variables keep their values.

    Args:
        obj: a model that has its weights, of classes of `tf.keras` or registered ones; or a `tf.Module`.
        signatures: of a Module: a tf.function or concrete function, or a dict of them by name. A single function with
            an `input_signature` is the signature "serving_default" by itself. Of a model it must be None.

    Raises:
        TypeError: `obj` is neither, or a part of a model has no description.
        ValueError: a function is refused: it draws random numbers, has own gradients, depends on values in Python or
            on lengths that its signature leaves open, or uses a Variable that no attribute leads to; or a model has no
            weights yet. `tf.cond`, `tf.while_loop` and the like are written; where gradients flow through one that
            assigns to a Variable, it is refused.
    """
    folder = Path(os.fspath(export_dir))
    if not isinstance(obj, Model):
        if not isinstance(obj, Module):
            raise TypeError(
                f"saved_model.save takes a Keras model or a tf.Module, got a {type(obj).__name__}: make it a "
                "tf.Module, whose Variables and tf.functions are written"
            )
        description, arrays = describe_object(obj, signatures)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing("saved_model.save", folder / _DESCRIPTION) as draft:
            write_object(description, arrays, folder, draft)
        return
    if signatures is not None:
        raise ValueError(
            "saved_model.save: signatures is not taken of a Keras model, whose call is the signature "
            "'serving_default'; make the model an attribute of a tf.Module with a tf.function for each signature"
        )
    specs = _input_specs(obj)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(obj, folder / _MODEL, save_format="tape")
    inputs = [[name, list(spec.shape), spec.dtype.name] for name, spec in specs.items()]
    content = {"format": _FORMAT, "signatures": {_SERVING: {"inputs": inputs}}}
    with replacing("saved_model.save", folder / _DESCRIPTION) as draft:
        draft.write_text(json.dumps(content, indent=1))


def _input_specs(model: Model) -> dict[str, TensorSpec]:
    """Return the shapes and dtypes of a model's inputs, by name."""
    if model._inputs is not None:
        return {
            tensor.name: TensorSpec([None, *tensor.shape[1:]], tensor.dtype, tensor.name)
            for tensor in leaves(model._inputs)
        }
    if model._first_call is None:
        raise ValueError("saved_model.save: the model has no weights yet: call it, or build it, first")
    args, _ = model._first_call
    found = [spec for spec in leaves(args) if isinstance(spec, TensorSpec)]
    names = ["inputs"] if len(found) == 1 else [f"inputs_{number}" for number in range(len(found))]
    return {
        name: TensorSpec([None, *spec.shape[1:]], spec.dtype, name) for name, spec in zip(names, found, strict=True)
    }


@exported("saved_model.load", differs="reads what is written here; the loaded model can be trained again")
def load(export_dir: PathLike, tags: object = None, options: object = None) -> LoadedModel | LoadedObject:
    """Read a model or an object from a folder that :func:`save` or `model.export` wrote.

    Raises:
        FileNotFoundError: the folder, or a file in it, does not exist.
        ValueError: a file is damaged, or of another format.
        TypeError: a class is not registered.
    """
    folder = Path(os.fspath(export_dir))
    if not (folder / _DESCRIPTION).exists() and (folder / "saved_model.pb").exists():
        raise ValueError(
            f"saved_model.load: {str(folder)!r} holds a graph of TensorFlow, which is not run: save the model there "
            "with model.save('m.keras') and load it with tf.keras.models.load_model"
        )
    text = (folder / _DESCRIPTION).read_bytes()
    with report_damage(f"saved_model.load: {str(folder / _DESCRIPTION)!r}"):
        content = parse_json(text.decode())  # of bytes, Python would guess the encoding, and import it
        of_functions = isinstance(content, dict) and content.get("format") == FUNCTIONS_FORMAT
    if of_functions:
        (folder / ARRAYS).stat()  # one that is not there is not damaged
        with report_damage(f"saved_model.load: {str(folder / _DESCRIPTION)!r}"):
            return load_object(content, text, folder)
    with report_damage(f"saved_model.load: {str(folder / _DESCRIPTION)!r}"):
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"it is not in the format {_FORMAT!r}")
        signatures = {name: _read_inputs(value) for name, value in dict(content["signatures"]).items()}
    model = load_model(folder / _MODEL, compile=False)
    with report_damage(f"saved_model.load: {str(folder / _DESCRIPTION)!r}"):
        wanted = {name: (spec.shape, spec.dtype) for name, spec in _input_specs(model).items()}
        if signatures != {_SERVING: wanted}:
            raise ValueError("its signatures are not those of the model")
    return LoadedModel(model)


def _read_inputs(value: Any) -> dict[str, Any]:
    return {
        str(name): (spec.shape, spec.dtype)
        for name, shape, dtype in value["inputs"]
        for spec in [TensorSpec([None if n is None else int(n) for n in shape], dtype)]
    }


@exported("saved_model.contains_saved_model")
def contains_saved_model(export_dir: PathLike) -> bool:
    """Return whether a folder has a model or an object that :func:`load` reads."""
    folder = Path(os.fspath(export_dir))
    return (folder / _DESCRIPTION).is_file() and any((folder / name).is_file() for name in (_MODEL, ARRAYS))


class LoadedModel(Module):
    """A model from a folder: it can be called, served by its signatures, and trained again.

    Attributes:
        signatures: functions by name; "serving_default" takes the inputs by name, and returns a dict of outputs.
        model: the Keras model.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self._signature = Signature(model)
        self.signatures: Mapping[str, Signature] = MappingProxyType({_SERVING: self._signature})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    def serve(self, *inputs: Any) -> Any:
        """Compute the outputs for inputs as the model takes them, with a compiled function."""
        return self._signature.compute(inputs[0] if len(inputs) == 1 else list(inputs))


class Signature:
    """A compiled function of a model's inputs, given by name.

    Attributes:
        structured_input_signature: the positional arguments, of which there are none, and the inputs by name.
    """

    def __init__(self, model: Model) -> None:
        self._specs = _input_specs(model)
        self._model = model
        self.structured_input_signature = ((), dict(self._specs))
        self.compute = published()["function"](lambda inputs: model(inputs, training=False))

    @property
    def structured_outputs(self) -> dict[str, Any]:
        """The shapes and dtypes of the outputs, by name; of models with symbolic inputs."""
        return {
            f"output_{number}": TensorSpec(tensor.shape, tensor.dtype, f"output_{number}")
            for number, tensor in enumerate(self._model.outputs or [])
        }

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Compute the outputs: `output_0`, `output_1` and so on, or the names that the model gives them.

        Raises:
            TypeError: an input is missing, or there is another.
        """
        if len(args) == 1 and len(self._specs) == 1 and not kwargs:
            kwargs = {next(iter(self._specs)): args[0]}
        elif args:
            raise TypeError(f"the signature takes its inputs by name: {', '.join(self._specs)}")
        if kwargs.keys() != self._specs.keys():
            raise TypeError(f"the signature takes {', '.join(self._specs)}; got {', '.join(kwargs) or 'nothing'}")
        values = [convert_to_tensor(kwargs[name], dtype=spec.dtype) for name, spec in self._specs.items()]
        found = self.compute(_as_given(self._model, values))
        if isinstance(found, dict):
            return found
        return {f"output_{number}": value for number, value in enumerate(leaves(found))}


def _as_given(model: Model, values: list[Any]) -> PyTree:
    """Return tensors in the structure in which the model takes its inputs."""
    if model._inputs is not None:
        structure = model._inputs
    else:
        args, _ = model._first_call
        structure = args[0] if len(args) == 1 else list(args)
    remaining = iter(values)
    return map_structure(lambda _: next(remaining), structure)


__getattr__ = absent("saved_model")
