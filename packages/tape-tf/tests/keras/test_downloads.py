"""get_file, keras.datasets and datasets of directories, from files that the tests write."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tape_tf as tf
from tape_tf.keras.pickles import read_npz, read_pickle


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_file_is_copied_once(tmp_path, home):
    source = tmp_path / "words.txt"
    source.write_text("one")
    path = tf.keras.utils.get_file("kept.txt", str(source))
    assert path == str(home / "datasets" / "kept.txt")
    source.write_text("two")
    assert Path(tf.keras.utils.get_file("kept.txt", source.as_uri())).read_text() == "one"
    assert Path(tf.keras.utils.get_file("kept.txt", source.as_uri(), force_download=True)).read_text() == "two"


def test_checksums(tmp_path, home):
    source = tmp_path / "words.txt"
    source.write_text("one")
    right = hashlib.sha256(b"one").hexdigest()
    assert tf.keras.utils.get_file(origin=str(source), file_hash=right)
    with pytest.raises(ValueError, match="checksum"):
        tf.keras.utils.get_file("other.txt", str(source), file_hash="0" * 64)
    assert not (home / "datasets" / "other.txt").exists()
    assert tf.keras.utils.get_file("third", str(source), md5_hash=hashlib.md5(b"one").hexdigest())


def test_what_cannot_be_fetched_says_where_to_put_it(tmp_path, home):
    with pytest.raises(OSError, match="put the file there by hand"):
        tf.keras.utils.get_file(origin=str(tmp_path / "missing.txt"))
    assert list((home / "datasets").iterdir()) == []
    for origin, message in (("data:,x", "origin must be"), ("gopher://x/y", "origin must be"), ("file:///", "no name")):
        with pytest.raises(ValueError, match=message):
            tf.keras.utils.get_file(origin=origin)
    with pytest.raises(ValueError, match="no name of a file"):
        tf.keras.utils.get_file("../up.txt", str(tmp_path))


def tar(path, members, **options):
    with tarfile.open(path, "w:gz") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in options.items():
                setattr(info, key, value)
            file.addfile(info, io.BytesIO(data))


def test_archives_are_unpacked(tmp_path, home):
    tar(tmp_path / "set.tar.gz", {"set/a.txt": b"A"})
    folder = tf.keras.utils.get_file(origin=str(tmp_path / "set.tar.gz"), extract=True)
    assert Path(folder, "set", "a.txt").read_text() == "A"
    named = tf.keras.utils.get_file("pictures", str(tmp_path / "set.tar.gz"), untar=True)
    assert named == str(home / "datasets" / "pictures")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("b.txt", "B")
    folder = tf.keras.utils.get_file("b.zip", str(tmp_path / "b.zip"), extract=True)
    assert folder.endswith("b_extracted")
    assert Path(folder, "b.txt").read_text() == "B"
    with pytest.raises(ValueError, match="no archive"):
        (tmp_path / "c.zip").write_text("nothing")
        tf.keras.utils.get_file(origin=str(tmp_path / "c.zip"), extract=True)


def test_archives_that_lead_outside_are_refused(tmp_path, home):
    tar(tmp_path / "up.tar.gz", {"../../evil.txt": b"x"})
    tar(tmp_path / "link.tar.gz", {"link": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd")
    with zipfile.ZipFile(tmp_path / "up.zip", "w") as file:
        file.writestr("../../evil.txt", "x")
    for name in ("up.tar.gz", "link.tar.gz", "up.zip"):
        with pytest.raises(ValueError, match="is not unpacked"):
            tf.keras.utils.get_file(origin=str(tmp_path / name), extract=True)
    assert not list(tmp_path.rglob("evil.txt"))
    assert not [path for path in (home / "datasets").iterdir() if path.is_dir()]


# -- datasets


def test_mnist_and_fashion_mnist(tmp_path, home):
    images, labels = np.zeros((3, 28, 28), np.uint8), np.array([1, 2, 3], np.uint8)
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1])
    (x, y), (x_test, _) = tf.keras.datasets.mnist.load_data(tmp_path / "mine.npz")
    assert x.shape == (3, 28, 28)
    assert y.tolist() == [1, 2, 3]
    assert x_test.shape == (1, 28, 28)
    folder = home / "datasets" / "fashion-mnist"
    folder.mkdir(parents=True)
    for part, n in (("train", 2), ("t10k", 1)):
        header = struct.pack(">IIII", 2051, n, 28, 28)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(n * 784)))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">II", 2049, n) + bytes(n)))
    (x, y), (x_test, _) = tf.keras.datasets.fashion_mnist.load_data()
    assert x.shape == (2, 28, 28)
    assert y.shape == (2,)
    assert x_test.shape == (1, 28, 28)


def test_imdb_and_reuters_are_read_without_pickle(tmp_path):
    reviews = np.empty(4, object)
    reviews[:] = [[1, 5, 9], [2], [3, 3], [7, 8]]
    np.savez(tmp_path / "imdb.npz", x_train=reviews, y_train=np.arange(4), x_test=reviews, y_test=np.arange(4))
    (x, y), _ = tf.keras.datasets.imdb.load_data(tmp_path / "imdb.npz", num_words=10)
    assert sorted(map(tuple, x)) == [(1, 2, 2), (1, 4, 8, 2), (1, 5), (1, 6, 6)]
    assert [tuple(x[k]) for k in np.argsort(y)][1] == (1, 5)
    (short, _), _ = tf.keras.datasets.imdb.load_data(tmp_path / "imdb.npz", maxlen=3)
    assert list(map(list, short)) == [[1, 5]]
    np.savez(tmp_path / "reuters.npz", x=reviews, y=np.arange(4))
    (x, _), (x_test, _) = tf.keras.datasets.reuters.load_data(tmp_path / "reuters.npz", test_split=0.25)
    assert (len(x), len(x_test)) == (3, 1)
    (tmp_path / "index.json").write_text(json.dumps({"the": 1}))
    assert tf.keras.datasets.imdb.get_word_index(tmp_path / "index.json") == {"the": 1}


def test_cifar_is_read_without_pickle(home, monkeypatch):
    folder = home / "datasets" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    data = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        (folder / name).write_bytes(pickle.dumps({b"data": data, b"labels": [3, 4]}, protocol=2))
    archive = home / "datasets" / "cifar-10-batches-py_archive"
    archive.write_bytes(b"stands for the original")
    monkeypatch.setattr("tape_tf.keras.downloads._has_hash", lambda *args: True)
    (x, y), (x_test, _) = tf.keras.datasets.cifar10.load_data()
    assert x.shape == (10, 32, 32, 3)
    assert y.tolist() == [[3], [4]] * 5
    assert x_test[0, 0, 1, 2] == data[0, 2 * 1024 + 1]


class Evil:
    def __reduce__(self):
        return print, ("executed",)


def test_a_pickle_that_names_code_is_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"names builtins\.print"):
        read_pickle(pickle.dumps({"x": Evil()}), "file")
    objects = np.empty(1, object)
    objects[0] = Evil()
    np.savez(tmp_path / "evil.npz", x=objects)
    with pytest.raises(ValueError, match="only numbers, text and arrays"):
        read_npz(tmp_path / "evil.npz")
    assert capsys.readouterr().out == ""
    for damaged in (b"", b"\x80\x02}q", pickle.dumps([1, 2])[:-3]):
        with pytest.raises(ValueError, match="is not read"):
            read_pickle(damaged, "file")


@pytest.mark.parametrize("dtype", ["uint8", "float64", ">i4", "bool"])
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_pickled_arrays(dtype, protocol):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for value in (array, np.asfortranarray(array)):
        found = read_pickle(pickle.dumps({"a": [value]}, protocol), "file")
        np.testing.assert_array_equal(next(iter(found.values()))[0], array)


def test_housing(tmp_path):
    np.savez(tmp_path / "boston.npz", x=np.arange(20.0).reshape(10, 2), y=np.arange(10.0))
    (x, y), (x_test, _) = tf.keras.datasets.boston_housing.load_data(path=tmp_path / "boston.npz")
    assert x.shape == (8, 2)
    assert x_test.shape == (2, 2)
    np.testing.assert_array_equal(x[:, 0], 2 * y)


# -- directories


@pytest.fixture
def pictures(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for label, name in enumerate(("cats", "dogs")):
        folder = tmp_path / "pictures" / name
        folder.mkdir(parents=True)
        for k in range(5):
            image.fromarray(np.full((10, 12, 3), 100 * label + k, np.uint8)).save(folder / f"{k}.png")
        (folder / "notes.txt").write_text(f"{name} are pets")
    return tmp_path / "pictures"


@pytest.mark.each_backend
def test_images_of_a_directory(pictures, capsys):
    data = tf.keras.utils.image_dataset_from_directory(pictures, image_size=(8, 8), batch_size=4, shuffle=False)
    assert data.class_names == ["cats", "dogs"]
    assert capsys.readouterr().out == "Found 10 files belonging to 2 classes.\n"
    batches = list(data)
    assert [x.shape[0] for x, _ in batches] == [4, 4, 2]
    x, y = batches[1]
    assert x.dtype == tf.float32
    assert x.shape == (4, 8, 8, 3)
    assert y.numpy().tolist() == [0, 1, 1, 1]
    np.testing.assert_allclose(x.numpy()[:, 0, 0, 0], [4, 100, 101, 102])


def test_splits_of_a_directory(pictures):
    options = {"validation_split": 0.3, "seed": 3, "image_size": (4, 4), "verbose": False, "batch_size": None}
    make = tf.keras.utils.image_dataset_from_directory
    train, held_out = make(pictures, subset="both", **options)
    assert (len(train), len(held_out)) == (7, 3)
    assert not set(train.file_paths) & set(held_out.file_paths)
    assert sorted(make(pictures, subset="training", **options).file_paths) == sorted(train.file_paths)
    hot = make(pictures, label_mode="categorical", color_mode="grayscale", image_size=(4, 4), verbose=False)
    x, y = next(iter(hot))
    assert x.shape == (10, 4, 4, 1)
    assert y.numpy().sum(axis=0).tolist() == [5, 5]
    assert next(iter(make(pictures, labels=None, image_size=(4, 4), verbose=False))).shape == (10, 4, 4, 3)
    binary = make(pictures, label_mode="binary", class_names=["dogs", "cats"], shuffle=False, verbose=False)
    assert next(iter(binary))[1].numpy()[0].tolist() == [0.0]
    for wrong, message in (
        ({"label_mode": "text"}, "label_mode"),
        ({"validation_split": 0.5}, "go together"),
        ({"validation_split": 0.5, "subset": "training"}, "seed"),
        ({"class_names": ["birds"]}, "birds"),
        ({"labels": [0, 1]}, "2 labels and 10 files"),
        ({"color_mode": "cmyk"}, "color_mode"),
    ):
        with pytest.raises(ValueError, match=message):
            make(pictures, **wrong)


def test_texts_of_a_directory(pictures, tmp_path):
    (tmp_path / "home").mkdir()
    data = tf.keras.utils.text_dataset_from_directory(pictures, shuffle=False, verbose=False)
    texts, labels = next(iter(data))
    assert texts.numpy().tolist() == [b"cats are pets", b"dogs are pets"]
    assert labels.numpy().tolist() == [0, 1]
    short = tf.keras.utils.text_dataset_from_directory(pictures, max_length=4, shuffle=False, verbose=False)
    assert next(iter(short))[0].numpy().tolist() == [b"cats", b"dogs"]
    with pytest.raises(ValueError, match="no files found"):
        tf.keras.utils.text_dataset_from_directory(tmp_path / "home", verbose=False)


def test_images_as_objects_arrays_and_files(pictures, tmp_path):
    image = tf.keras.utils.load_img(pictures / "dogs" / "2.png", target_size=(6, 5))
    array = tf.keras.utils.img_to_array(image)
    assert array.shape == (6, 5, 3)
    assert array.dtype == "float32"
    assert array.max() == array.min() == 102
    assert tf.keras.utils.img_to_array(image, "channels_first").shape == (3, 6, 5)
    grey = tf.keras.utils.load_img(pictures / "dogs" / "2.png", color_mode="grayscale")
    assert tf.keras.utils.img_to_array(grey).shape == (10, 12, 1)
    ramp = np.arange(12.0).reshape(2, 2, 3)
    again = tf.keras.utils.img_to_array(tf.keras.utils.array_to_img(ramp))
    assert (again.min(), again.max()) == (0, 255)
    tf.keras.utils.save_img(tmp_path / "out.png", ramp, scale=False)
    np.testing.assert_array_equal(tf.keras.utils.img_to_array(tf.keras.utils.load_img(tmp_path / "out.png")), ramp)
    assert tf.keras.preprocessing.image.smart_resize(np.zeros((10, 20, 3)), (5, 5)).shape == (5, 5, 3)
    with pytest.raises(ValueError, match="rank 3"):
        tf.keras.utils.array_to_img(np.zeros(3))
    with pytest.raises(ValueError, match="interpolation"):
        tf.keras.utils.load_img(pictures / "dogs" / "2.png", interpolation="best")
