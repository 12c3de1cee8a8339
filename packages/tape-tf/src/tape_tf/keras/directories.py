"""`image_dataset_from_directory` and `text_dataset_from_directory`: datasets of the files in folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape_tf.data import Dataset
from tape_tf.keras.images import smart_resize
from tape_tf.names import exported
from tape_tf.ops.codecs import decode_image
from tape_tf.ops.files import local_path, read_file
from tape_tf.ops.resizing import resize, resize_with_pad
from tape_tf.ops.shaping import transpose
from tape_tf.ops.text import substr
from tape_tf.typing import PathLike

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_LABEL_MODES = ("int", "categorical", "binary", None)


def _index(
    directory: str, labels: Any, endings: tuple[str, ...], class_names: Sequence[str] | None, follow_links: bool
) -> tuple[list[str], Any, list[str] | None]:
    """Return the paths of the files in a directory, their labels and the names of the classes."""

    def files(folder: str) -> list[str]:
        walk = sorted(os.walk(folder, followlinks=follow_links))
        return [os.path.join(root, name) for root, _, names in walk for name in sorted(names) if
                name.lower().endswith(endings)]  # fmt: skip

    if labels != "inferred":
        if class_names is not None:
            raise ValueError("class_names is for labels='inferred': the names of the folders, in another order")
        paths = files(directory)
        if labels is None:
            return paths, None, None
        if len(labels) != len(paths):
            raise ValueError(f"there are {len(labels)} labels and {len(paths)} files in {directory}")
        return paths, np.asarray(labels), [str(label) for label in sorted(set(labels))]
    folders = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir() and entry.name[0] != ".")
    names = list(class_names or folders)
    if unknown := set(names) - set(folders):
        raise ValueError(f"class_names: there is no folder {min(unknown)!r} in {directory}; there are {folders}")
    found = [(path, k) for k, name in enumerate(names) for path in files(os.path.join(directory, name))]
    return [path for path, _ in found], np.array([k for _, k in found], np.int32), names


def _labels_dataset(labels: Any, mode: str, classes: int) -> Any:
    if mode == "binary":
        return labels.astype(np.float32)[:, None]
    return np.eye(classes, dtype=np.float32)[labels] if mode == "categorical" else labels.astype(np.int32)


def _from_directory(
    what: str, directory: PathLike, labels: Any, label_mode: str | None, class_names: Sequence[str] | None,
    endings: tuple[str, ...], batch_size: int | None, shuffle: bool, seed: int | None, validation_split: float | None,
    subset: str | None, follow_links: bool, verbose: bool, load: Callable[[Any], Any],
) -> Any:  # fmt: skip
    """Make a dataset of the files, or two for `subset="both"`; `load` makes a tensor of a path."""
    if label_mode not in _LABEL_MODES:
        raise ValueError(f"{what}: label_mode must be 'int', 'categorical', 'binary' or None; got {label_mode!r}")
    if labels is None or label_mode is None:
        labels = label_mode = None
    elif labels != "inferred" and not isinstance(labels, list | tuple):
        raise ValueError(f"{what}: labels must be 'inferred', None, or a list of a label for each file")
    if (validation_split is None) != (subset is None):
        raise ValueError(f"{what}: validation_split and subset go together")
    if validation_split is not None and not 0 < validation_split < 1:
        raise ValueError(f"{what}: validation_split must be between 0 and 1, got {validation_split}")
    if subset not in (None, "training", "validation", "both"):
        raise ValueError(f"{what}: subset must be 'training', 'validation' or 'both'; got {subset!r}")
    if validation_split and shuffle and seed is None:
        raise ValueError(
            f"{what}: with validation_split and shuffle give a seed, so that the two parts have no file in common"
        )
    paths, numbers, names = _index(local_path(directory), labels, endings, class_names, follow_links)
    if not paths:
        raise ValueError(f"{what}: no files found in directory {directory}; allowed formats: {endings}")
    if label_mode == "binary" and len(names or ()) != 2:
        raise ValueError(f"{what}: label_mode='binary' is for two classes; there are {names}")
    if verbose:
        classes = "" if names is None else f" belonging to {len(names)} classes"
        sys.stdout.write(f"Found {len(paths)} files{classes}.\n")
    if shuffle:
        # As in Keras, so that a seed makes the same split.
        seed = int(np.random.randint(1_000_000)) if seed is None else seed
        order = np.arange(len(paths))
        np.random.RandomState(seed).shuffle(order)
        paths, numbers = [paths[k] for k in order], None if numbers is None else numbers[order]
    held_out = int((validation_split or 0) * len(paths))
    parts = {"training": slice(0, len(paths) - held_out), "validation": slice(len(paths) - held_out, None)}

    def make(part: slice, shuffled: bool) -> Dataset:
        chosen = paths[part]
        if not chosen:
            raise ValueError(f"{what}: no files in this part of {directory}: validation_split={validation_split}")
        if numbers is None:
            data = Dataset.from_tensor_slices(chosen)
        else:
            data = Dataset.from_tensor_slices(
                (chosen, _labels_dataset(numbers[part], str(label_mode), len(names or ())))
            )
        if shuffled:
            data = data.shuffle(batch_size * 8 if batch_size else 1024, seed)
        data = data.map(load if numbers is None else lambda path, label: (load(path), label))
        if batch_size is not None:
            data = data.batch(batch_size)
        data.class_names = names  # type: ignore[attr-defined]
        data.file_paths = chosen  # type: ignore[attr-defined]
        return data

    if subset is None:
        return make(slice(None), shuffle)
    if verbose:
        for name in parts if subset == "both" else [subset]:
            sys.stdout.write(f"Using {len(paths[parts[name]])} files for {name}.\n")
    if subset == "both":
        return [make(parts["training"], shuffle), make(parts["validation"], False)]
    return make(parts[subset], shuffle)


@exported("keras.utils.image_dataset_from_directory keras.preprocessing.image_dataset_from_directory")
def image_dataset_from_directory(
    directory: PathLike,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: tuple[int, int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    verbose: bool = True,
) -> Any:
    """Return a dataset of the images in a directory, which has a folder for each class.

    Its elements are batches of images, float32 of shape (n, height, width, channels) from 0 to 255, with their labels;
    its `class_names` are the names of the folders.

    Args:
        directory: the path.
        labels: "inferred" from the folders, None, or a list of a number for each file, in the order of their paths.
        label_mode: "int", "categorical" (one-hot), "binary" (float32 of shape (n, 1)), or None for no labels.
        class_names: the folders, in the order of their numbers.
        color_mode: "rgb", "rgba" or "grayscale".
        batch_size: None for single images.
        image_size: (height, width).
        shuffle, seed: shuffle the files; the seed makes the order of Keras.
        validation_split, subset: the share that is held out, and which part is wanted: "training", "validation" or
            "both", a list of two datasets.
        interpolation: a method of `tf.image.resize`.
        crop_to_aspect_ratio, pad_to_aspect_ratio: cut off or fill up, so that nothing is distorted.

    Raises:
        ValueError: there is no image, or arguments do not fit together.
        ImportError: Pillow is not installed.
    """
    channels = {"rgb": 3, "rgba": 4, "grayscale": 1}.get(color_mode)
    if channels is None:
        raise ValueError(f'color_mode must be one of "rgb", "rgba", "grayscale"; got {color_mode!r}')
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError("only one of crop_to_aspect_ratio and pad_to_aspect_ratio can be set")

    def load(path: Any) -> Any:
        image = decode_image(read_file(path), channels=channels, expand_animations=False)
        if crop_to_aspect_ratio:
            image = smart_resize(image, image_size, interpolation)
        elif pad_to_aspect_ratio:
            image = resize_with_pad(image, *image_size, method=interpolation)
        else:
            image = resize(image, image_size, interpolation)
        return transpose(image, (2, 0, 1)) if data_format == "channels_first" else image

    return _from_directory(
        "image_dataset_from_directory", directory, labels, label_mode, class_names, _IMAGES, batch_size, shuffle, seed,
        validation_split, subset, follow_links, verbose, load,
    )  # fmt: skip


@exported("keras.utils.text_dataset_from_directory keras.preprocessing.text_dataset_from_directory")
def text_dataset_from_directory(
    directory: PathLike,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    verbose: bool = True,
) -> Any:
    """Return a dataset of the `.txt` files in a directory, which has a folder for each class: strings and labels.

    Args:
        max_length: the most bytes of a text; the rest is cut off.
        directory and the others: as for :func:`image_dataset_from_directory`.
    """

    def load(path: Any) -> Any:
        text = read_file(path)
        return text if max_length is None else substr(text, 0, max_length)

    return _from_directory(
        "text_dataset_from_directory", directory, labels, label_mode, class_names, (".txt",), batch_size, shuffle, seed,
        validation_split, subset, follow_links, verbose, load,
    )  # fmt: skip
