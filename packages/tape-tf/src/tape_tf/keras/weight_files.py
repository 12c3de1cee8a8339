"""Files of weights alone: Keras' `.weights.h5` and `.h5`, and the safetensors format under any other name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tape_tf.drafts import replacing
from tape_tf.keras.hdf5 import SIGNATURE
from tape_tf.keras.keras_files import read_weights, write_weights
from tape_tf.keras.legacy_files import LEGACY_SUFFIXES, is_legacy, load_legacy_weights, write_legacy_weights
from tape_tf.keras.restoring import report_damage
from tape_tf.keras.saving import Weights
from tape_tf.names import exported
from tape_tf.typing import PathLike

KERAS_SUFFIX = ".weights.h5"
"""The ending of the names of Keras' files of weights."""


@exported("keras.saving.save_weights", differs="under names with other endings than .h5 in the safetensors format")
def save_weights(model: Any, filepath: PathLike, overwrite: bool = True, max_shard_size: None = None) -> None:
    """Write the weights of a model to a file.

    A name that ends in `.weights.h5` is that of a file for Keras 3, and one that ends otherwise in `.h5` or `.hdf5`
    that of a file as Keras 2 wrote them, which Keras 3 reads, too; both take the package h5py. Any other name is that
    of a file in the safetensors format: see :func:`tape_nn.save_tensors`.

    >>> import os, tempfile
    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), tf.keras.layers.Dense(2)])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.weights.h5")
    >>> model.save_weights(path)
    >>> again = tf.keras.models.clone_model(model)
    >>> again.load_weights(path)
    >>> bool(tf.reduce_all(again.layers[0].kernel == model.layers[0].kernel))
    True

    Args:
        max_shard_size: must be None: there is one file.

    Raises:
        ValueError: a layer has not made its weights yet.
        FileExistsError: the file exists, and `overwrite` is False.
        ModuleNotFoundError: the name ends in `.h5`, and h5py is not installed.
        TypeError: the format is that of Keras 2, and the model has weights that belong to none of its layers.
    """
    if max_shard_size is not None:
        raise ValueError("save_weights: max_shard_size is not taken; weights are written to one file")
    path = os.fspath(filepath)
    if not overwrite and os.path.exists(path):
        raise FileExistsError(f"save_weights: there is a file {path!r} already")
    if not path.endswith((KERAS_SUFFIX, *LEGACY_SUFFIXES)):
        Weights(model).save_weights(path)
        return
    if not model.built:
        raise ValueError(f"save_weights: {model.name!r} has no weights yet: call it, or build it, first")
    with replacing("save_weights", path) as draft:
        (write_weights if path.endswith(KERAS_SUFFIX) else write_legacy_weights)(draft, model)


@exported("keras.saving.load_weights", differs="reads safetensors files, too")
def load_weights(model: Any, filepath: PathLike, skip_mismatch: bool = False, **kwargs: Any) -> None:
    """Set the weights of a model to those in a file that :func:`save_weights` or Keras wrote, on any backend.

    What a file is, its first bytes tell, not its name.

    Args:
        skip_mismatch: leave out layers that do not fit; of files of Keras there is a warning then.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or does not fit the model. Then nothing is changed.
        ModuleNotFoundError: the file is one of Keras, and h5py is not installed.
    """
    if kwargs:
        raise TypeError(f"load_weights: there is no argument {', '.join(map(repr, kwargs))}")
    path = os.fspath(filepath)
    with Path(path).open("rb") as stream:
        if stream.read(len(SIGNATURE)) == SIGNATURE:
            if not model.built:
                raise ValueError(f"load_weights: {model.name!r} has no weights yet: call it, or build it, first")
            stream.seek(0)
            with report_damage(f"load_weights: {path!r}"):
                if is_legacy(stream):
                    load_legacy_weights(stream, model)
                else:
                    read_weights(stream, model, skip_mismatch)
            return
    Weights(model).load_weights(path, strict=not skip_mismatch)
