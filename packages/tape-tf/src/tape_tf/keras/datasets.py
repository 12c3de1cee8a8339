"""`tf.keras.datasets`: well-known datasets, from `~/.keras/datasets`, a given path or, the first time, the network."""

from __future__ import annotations

import gzip
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tape_tf.keras.downloads import get_file
from tape_tf.keras.pickles import read_npz, read_pickle
from tape_tf.names import absent, exported
from tape_tf.typing import NumPyArray, PathLike

_STORE = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
Split = tuple[tuple[NumPyArray, NumPyArray], tuple[NumPyArray, NumPyArray]]
"""The examples and labels for training, and those for tests."""


def _file(path: PathLike, name: str, sha256: str | None) -> str:
    """Return the path of a dataset's file: a path that exists, or a name in `~/.keras/datasets`."""
    given = os.fspath(path)
    if os.path.dirname(given) and os.path.exists(given):
        return given
    return get_file(os.path.basename(given), _STORE + name, file_hash=sha256)


@exported("keras.datasets.mnist.load_data")
def mnist(path: PathLike = "mnist.npz") -> Split:
    """Return the handwritten digits: uint8 images of shape (n, 28, 28), and their digits.

    Args:
        path: a name in `~/.keras/datasets`, from where it is loaded if it is there, or the path of a file.

    Raises:
        OSError: the file is not there, and cannot be downloaded; the message says where to put it.
        ValueError: the file is damaged.
    """
    found = read_npz(_file(path, "mnist.npz", "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"))
    return (found["x_train"], found["y_train"]), (found["x_test"], found["y_test"])


@exported("keras.datasets.fashion_mnist.load_data")
def fashion_mnist() -> Split:
    """Return pictures of clothes: uint8 images of shape (60000 and 10000, 28, 28), and their classes 0 to 9."""

    def load(name: str, header: int) -> NumPyArray:
        path = get_file(name, _STORE + name, cache_subdir=os.path.join("datasets", "fashion-mnist"))
        with gzip.open(path) as file:
            data = file.read()
        count, *sides = struct.unpack(f">{header // 4 - 1}I", data[4:header])
        return np.frombuffer(data, np.uint8, offset=header).reshape(count, *sides)

    images, labels = (
        [load(f"{part}-{kind}.gz", size) for part in ("train", "t10k")]
        for kind, size in (("images-idx3-ubyte", 16), ("labels-idx1-ubyte", 8))
    )
    return (images[0], labels[0]), (images[1], labels[1])


def _cifar(name: str, folder: str, sha256: str) -> Path:
    path = Path(
        get_file(name, f"{_CIFAR}{name.replace('-batches-py', '-python')}.tar.gz", extract=True, file_hash=sha256)
    )
    return path / folder if (path / folder).is_dir() else path


def _cifar_batch(path: Path, label_key: str) -> tuple[NumPyArray, NumPyArray]:
    found = read_pickle(path.read_bytes(), path)
    images = found[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # the file has the channels first
    return np.ascontiguousarray(images), np.asarray(found[label_key.encode()], np.uint8).reshape(-1, 1)


@exported("keras.datasets.cifar10.load_data")
def cifar10() -> Split:
    """Return small pictures in ten classes: uint8 images of shape (50000 and 10000, 32, 32, 3), and their classes.

    Raises:
        OSError: the file is not there, and cannot be downloaded.
        ValueError: it holds anything but numbers, text and arrays: nothing in it is executed.
    """
    folder = _cifar(
        "cifar-10-batches-py",
        "cifar-10-batches-py",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    )
    parts = [_cifar_batch(folder / f"data_batch_{k}", "labels") for k in range(1, 6)]
    train = np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])
    return train, _cifar_batch(folder / "test_batch", "labels")


@exported("keras.datasets.cifar100.load_data")
def cifar100(label_mode: str = "fine") -> Split:
    """Return small pictures in a hundred classes: uint8 images of shape (50000 and 10000, 32, 32, 3), and the classes.

    Args:
        label_mode: "fine", or "coarse" for twenty groups of classes.
    """
    if label_mode not in ("fine", "coarse"):
        raise ValueError(f'`label_mode` must be one of `"fine"`, `"coarse"`. Received: label_mode={label_mode}.')
    folder = _cifar(
        "cifar-100-python",
        "cifar-100-python",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    )
    train, test = (_cifar_batch(folder / part, f"{label_mode}_labels") for part in ("train", "test"))
    return train, test


# -- texts, as lists of the ranks of words


def _sequences(
    samples: list[Any], labels: Any, num_words: int | None, skip_top: int, maxlen: int | None,
    start_char: int | None, oov_char: int | None, index_from: int, seed: int,
) -> tuple[list[list[int]], NumPyArray]:  # fmt: skip
    """Return the sequences in a random order, with words that are too rare or too frequent replaced."""
    order = np.arange(len(samples))
    np.random.RandomState(seed).shuffle(order)
    found: list[list[int]] = []
    kept = []
    for k in order:
        words = [word + index_from for word in samples[k]] if index_from else list(samples[k])
        if start_char is not None:
            words = [start_char, *words]
        if maxlen and len(words) >= maxlen:
            continue
        limit = num_words or max(words, default=0) + 1
        if oov_char is None:
            words = [word for word in words if skip_top <= word < limit]
        else:
            words = [word if skip_top <= word < limit else oov_char for word in words]
        found.append(words)
        kept.append(labels[k])
    if not found and maxlen:
        raise ValueError(f"After filtering for sequences shorter than maxlen={maxlen}, no sequence was kept.")
    return found, np.array(kept)


def _objects(rows: list[list[int]]) -> NumPyArray:
    out = np.empty(len(rows), object)
    out[:] = rows
    return out


@exported("keras.datasets.imdb.load_data")
def imdb(
    path: PathLike = "imdb.npz", num_words: int | None = None, skip_top: int = 0, maxlen: int | None = None,
    seed: int = 113, start_char: int | None = 1, oov_char: int | None = 2, index_from: int = 3, **kwargs: Any,
) -> Split:  # fmt: skip
    """Return reviews of films, lists of the ranks of their words, and whether they are positive.

    Args:
        path: as for `mnist`.
        num_words, skip_top: words of a higher or lower rank become `oov_char`, or are left out if that is None.
        maxlen: leave out longer reviews.
        seed: of the order.
        start_char: the number before each review.
        index_from: the number of the most frequent word.

    Raises:
        ValueError: the file holds anything but arrays and lists of numbers: nothing in it is executed.
    """
    found = read_npz(_file(path, "imdb.npz", "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"))
    options = (num_words, skip_top, maxlen, start_char, oov_char, index_from)
    x_train, y_train = _sequences(list(found["x_train"]), found["y_train"], *options, seed)
    x_test, y_test = _sequences(list(found["x_test"]), found["y_test"], *options, seed * 2)
    return (_objects(x_train), y_train), (_objects(x_test), y_test)


@exported("keras.datasets.reuters.load_data")
def reuters(
    path: PathLike = "reuters.npz", num_words: int | None = None, skip_top: int = 0, maxlen: int | None = None,
    test_split: float = 0.2, seed: int = 113, start_char: int | None = 1, oov_char: int | None = 2, index_from: int = 3,
) -> Split:  # fmt: skip
    """Return newswires, lists of the ranks of their words, and their topics; arguments as for `imdb`."""
    found = read_npz(_file(path, "reuters.npz", "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916"))
    options = (num_words, skip_top, maxlen, start_char, oov_char, index_from)
    rows, labels = _sequences(list(found["x"]), found["y"], *options, seed)
    cut = int(len(rows) * (1 - test_split))
    return (_objects(rows[:cut]), labels[:cut]), (_objects(rows[cut:]), labels[cut:])


def _publish_word_index(name: str, md5: str) -> None:
    @exported(f"keras.datasets.{name}.get_word_index")
    def get_word_index(path: PathLike = f"{name}_word_index.json") -> dict[str, int]:
        """Return the rank of each word, as the sequences have them before `index_from` is added."""
        with open(_file(path, f"{name}_word_index.json", md5), encoding="utf-8") as file:
            found: dict[str, int] = json.load(file)
        return found


_publish_word_index("imdb", "bfafd718b763782e994055a2d397834f")
_publish_word_index("reuters", "4d44cc38712099c9e383dc6e5f11a921")


# -- tables


def _publish_table(name: str, sha256: str, doc: str) -> None:
    @exported(f"keras.datasets.{name}.load_data")
    def load_data(*args: Any, **kwargs: Any) -> Split:
        """Return a table of numbers, and what is to be predicted; `path`, `test_split` and `seed` as for `reuters`."""
        return _table(name, sha256, *args, **kwargs)

    load_data.__doc__ = f"{doc}\n\n    Args: path, test_split and seed as for `reuters`."


def _table(
    name: str,
    sha256: str,
    path: PathLike | None = None,
    test_split: float = 0.2,
    seed: int = 113,
    version: str = "large",
) -> Split:
    if not 0 <= test_split < 1:
        raise ValueError(f"test_split must be in [0, 1); got {test_split}")
    found = read_npz(_file(path or f"{name}.npz", f"{name}.npz", sha256))
    x, y = found["x"], found["y"]
    if version == "small":  # of the California data: the first 600 rows
        x, y = x[:600], y[:600]
    order = np.arange(len(x))
    np.random.RandomState(seed).shuffle(order)
    x, y = x[order], y[order]
    cut = int(len(x) * (1 - test_split))
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


_publish_table(
    "boston_housing",
    "f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5",
    "Return the Boston housing data: 13 numbers for each of 506 districts, and the price.",
)
_publish_table(
    "california_housing",
    "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f",
    "Return the California housing data: 8 numbers for each district, and the price.",
)

__getattr__ = absent("keras.datasets")
