"""Files that are damaged, or that somebody made to do harm.

A program here is a kind of file and a list of mutations of one that Tape wrote. Damage (flipped bits, cuts, what is
taken out or put in) is refused with the documented error, which names the file, or it makes no difference. What is
changed on purpose, in the descriptions that files hold, may be read as something else; whatever happens, nothing is
executed, and nothing is written anywhere.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import tape_core as tc
import tape_nn as nn
import tape_tf as tf
from hypothesis import strategies as st

# -- what must not happen

_FORBIDDEN = ("exec", "compile", "import", "os.", "subprocess.", "socket.", "shutil.", "pickle.", "marshal.", "ctypes.")
_HARMLESS = ("os.listdir", "os.scandir", "os.fork")
_seen: list[str] | None = None
_allowed = ""


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event == "open":
        path, mode, _ = args
        inside = isinstance(path, str) and os.path.realpath(path).startswith(_allowed)
        if any(letter in str(mode) for letter in "wax+") and not inside:
            _seen.append(f"open({path!r}, {mode!r})")
    elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
        if (
            event.startswith("os.")
            and args
            and isinstance(args[0], str)
            and os.path.realpath(args[0]).startswith(_allowed)
        ):
            return
        _seen.append(f"{event}{args!r:.300}")


@contextmanager
def guarded(folder: str) -> Iterator[list[str]]:
    """Gives a list of what was executed, imported or written, files in this folder left out."""
    global _seen, _allowed
    _install()
    _seen, _allowed = [], os.path.realpath(folder) + os.sep
    found = _seen
    try:
        yield found
    finally:
        _seen = None


@cache
def _install() -> None:
    sys.addaudithook(_hook)  # for good: there is no way to take one away


# -- the kinds of files


@dataclass(frozen=True)
class Kind:
    """A kind of file: its name, how one is written, and what a reader makes of it, as bytes that can be compared."""

    name: str
    write: Callable[[str], Any]
    read: Callable[[str], Any]


def _model(seed: int = 0) -> Any:
    tf.keras.utils.set_random_seed(seed)
    model = tf.keras.Sequential(
        [tf.keras.Input(shape=(3,)), tf.keras.layers.Dense(2, activation="tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


def _functional() -> Any:
    tf.keras.utils.set_random_seed(0)
    x = tf.keras.Input(shape=(3,), name="x")
    y = tf.keras.layers.Lambda(tf.nn.relu)(tf.keras.layers.Dense(2)(x) * 2.0 + x[:, :1])
    return tf.keras.Model(x, tf.keras.layers.Concatenate()([y, x]))


def _keras_graph() -> Any:
    """A functional model that Keras has names for, with a mask and a shared layer."""
    tf.keras.utils.set_random_seed(0)
    ids = tf.keras.Input(shape=(3,), name="ids")
    shared = tf.keras.layers.Dense(2, activation="relu")
    y = shared(tf.keras.layers.LSTM(2)(tf.keras.layers.Embedding(4, 2, mask_zero=True)(ids)))
    return tf.keras.Model(ids, tf.keras.layers.Add()([shared(y), y])[:, :1] * 2.0)


def _arrays(model: Any) -> list[bytes]:
    return [w.tobytes() for w in model.get_weights()]


def _read_model(path: str) -> Any:
    return _arrays(tf.keras.models.load_model(path))


def _read_weights(path: str) -> Any:
    model = _model(1)
    before = _arrays(model)
    try:
        model.load_weights(path)
    except Exception:
        assert _arrays(model) == before, "a failed load changed weights"
        raise
    return _arrays(model)


def _read_checkpoint(path: str) -> Any:
    model = _model(1)
    tf.train.Checkpoint(model=model).restore(path)
    return _arrays(model)


def _read_tensors(path: str) -> Any:
    tensors, metadata = nn.load_tensors(path)
    return sorted((name, t.shape, t.dtype.name, t.numpy().tobytes()) for name, t in tensors.items()), metadata


def _fit(path: str) -> Any:
    """A run that is over when the file is written."""
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(2), nn.Dropout(0.5), nn.Dense(1)])
    x = np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(4, 3)
    history = nn.fit(
        model, (x, x[:, :1]), loss=nn.losses.MeanSquaredError(), optimizer=nn.Adam(0.1), epochs=2, batch_size=2,
        callbacks=[nn.EarlyStopping("loss", patience=9, restore_best=True)], checkpoint=path, progress=False,
    )  # fmt: skip
    return [value.numpy().tobytes() for value in model.state_dict().values()], dict(history)


def _write_tensors(path: str) -> None:
    tensors = {"w": np.arange(6.0).reshape(2, 3), "b": np.asarray([True, False]), "n": np.zeros((0, 2), "int8")}
    nn.save_tensors(path, tensors, {"step": "7"})


# -- a folder of tf.saved_model, as one file here: the description, and after a mark the arrays

_MARK = b"\n-- arrays --\n"


class _Saved(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([1.0, -2.0, 3.0])
        self.calls = tf.Variable(0, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([3]), tf.TensorSpec([], tf.int32)])
    def __call__(self, x: Any, times: Any) -> Any:
        self.calls.assign_add(1)
        start = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * self.w, lambda: tf.sin(x)[::-1] + 1.0)
        return tf.while_loop(lambda k, y: k < times, lambda k, y: (k + 1, y * self.w + x), (0, start))[1]


def _write_saved(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(_Saved(), folder)
        parts = []
        for name in ("saved_model.json", "variables.safetensors"):
            with open(os.path.join(folder, name), "rb") as stream:
                parts.append(stream.read())
    with open(path, "wb") as stream:
        stream.write(_MARK.join(parts))


def _read_saved(path: str) -> Any:
    with open(path, "rb") as stream:
        content = stream.read()
    text, _, arrays = content.partition(_MARK)
    os.remove(path)
    os.mkdir(path)
    try:
        for name, part in (("saved_model.json", text), ("variables.safetensors", arrays)):
            with open(os.path.join(path, name), "wb") as stream:
                stream.write(part)
        again = tf.saved_model.load(path)
        if not callable(again):
            return None
        found = []
        for start in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]):
            try:
                found.append(again(tf.constant(start), tf.constant(2)).numpy().tobytes())
            except Exception as error:  # noqa: BLE001 - a program that was changed on purpose may fail when it runs
                found.append(type(error).__name__)
        return found, [v.numpy().tobytes() for v in again.variables]
    finally:
        for name in os.listdir(path):
            os.remove(os.path.join(path, name))
        os.rmdir(path)
        with open(path, "wb") as stream:
            stream.write(content)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("tensors.safetensors", _write_tensors, _read_tensors),
        Kind("weights.safetensors", lambda path: _model().save_weights(path), _read_weights),
        Kind("checkpoint.safetensors", lambda path: tf.train.Checkpoint(model=_model()).write(path), _read_checkpoint),
        Kind("run.safetensors", _fit, _fit),
        Kind("model.keras", lambda path: _model().save(path, save_format="tape"), _read_model),
        Kind("graph.keras", lambda path: _functional().save(path, save_format="tape"), _read_model),
        Kind("of_keras.keras", lambda path: _model().save(path, save_format="keras"), _read_model),
        Kind("graph_of_keras.keras", lambda path: _keras_graph().save(path, save_format="keras"), _read_model),
        Kind("saved_model.folder", _write_saved, _read_saved),
        Kind("model.weights.h5", lambda path: _model().save_weights(path), _read_weights),
    )
}


@cache
def whole(name: str) -> tuple[bytes, Any]:
    """A file of this kind as Tape writes it, and what is read from it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        KINDS[name].write(path)
        with open(path, "rb") as stream:
            content = stream.read()
        return content, KINDS[name].read(path)


# -- damage: [what, where, how]


def damaged(content: bytes, what: str, where: int, how: int) -> bytes:
    """The content, with one thing wrong."""
    size = max(len(content), 1)
    at = where % size
    if what == "flip":
        return content[:at] + bytes([(content[at] if content else 0) ^ (1 << how % 8)]) + content[at + 1 :]
    if what == "byte":
        return content[:at] + bytes([how % 256]) + content[at + 1 :]
    if what == "cut":
        return content[:at]
    if what == "head":
        return content[at:]
    if what == "take":
        return content[:at] + content[at + 1 + how % 64 :]
    if what == "zero":
        return content[:at] + bytes(len(content[at : at + 1 + how % 512])) + content[at + 1 + how % 512 :]
    if what == "twice":
        return content[:at] + content[max(at - how % 512, 0) :]
    if what == "splice":
        other = whole(sorted(KINDS)[how % len(KINDS)])[0]
        return content[:at] + other[1 + where % (len(other) - 1) :]
    assert what == "grow"
    return content + content[: 1 + how % size]


DAMAGES = ["flip", "flip", "flip", "byte", "cut", "head", "take", "zero", "twice", "splice", "grow"]

# -- what is changed on purpose: the descriptions, which are JSON


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(part, (*path, key))


def replaced(value: Any, where: int, new: Any) -> Any:
    """The JSON value with another one at a place. `["drop"]` takes away what is there, `["key", name]` renames it."""
    places = list(_places(value))
    path = places[where % len(places)]
    if not path:
        return new
    value = json.loads(json.dumps(value))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if new == ["drop"]:
        del inner[path[-1]]
    elif isinstance(new, list) and new[:1] == ["key"] and isinstance(inner, dict):
        inner[str(new[1])] = inner.pop(path[-1])
    else:
        inner[path[-1]] = new
    return value


def redescribed(name: str, content: bytes, where: int, new: Any) -> bytes:
    """A file whose description was changed by somebody who leaves the checksum out."""
    if name.endswith(".keras"):
        out = BytesIO()
        with zipfile.ZipFile(BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as target:
            for member in dict.fromkeys(archive.namelist()):
                data = archive.read(member)
                if member == "config.json":
                    data = json.dumps(replaced(json.loads(data), where, new)).encode()
                target.writestr(member, data)
        return out.getvalue()
    if name.endswith(".folder"):
        text, _, arrays = content.partition(_MARK)
        text = json.dumps(replaced(json.loads(text), where, new)).encode()
        end = 8 + int.from_bytes(arrays[:8], "little")
        header = json.loads(arrays[8:end])
        metadata = header["__metadata__"]
        for key in ("tape.checksum", "tape.writer"):
            metadata.pop(key, None)
        metadata["tape_tf.described"] = hashlib.sha256(text).hexdigest()
        head = json.dumps(header).encode()
        return text + _MARK + len(head).to_bytes(8, "little") + head + arrays[end:]
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    metadata = header.get("__metadata__", {})
    for key in ("tape.checksum", "tape.writer"):
        metadata.pop(key, None)
    if "tape_nn.fit" in metadata and where % 4:  # mostly what the run says
        metadata["tape_nn.fit"] = json.dumps(replaced(json.loads(metadata["tape_nn.fit"]), where // 4, new))
    else:
        header = replaced(header, where, new)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[end:]


def rezipped(name: str, content: bytes, where: int, how: int) -> bytes:
    """A zip with members that are compressed, there twice, or have names that lead elsewhere."""
    if not name.endswith(".keras"):
        return content
    if len(content) > 1 << 20:
        return content
    out = BytesIO()
    compression = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)[how % 4]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        with zipfile.ZipFile(BytesIO(content)) as archive, zipfile.ZipFile(out, "w", compression) as target:
            members = archive.namelist()
            chosen = members[where % len(members)]
            for member in members:
                target.writestr(member, archive.read(member))
            kind = how // 4 % 6
            other = (chosen, f"../{chosen}", f"/tmp/tape-{chosen}", f"C:\\{chosen}", f"./{chosen}", chosen + "\0.x")[
                kind
            ]
            info = zipfile.ZipInfo(other)
            info.external_attr = (0o120777 << 16) if how & 1 else 0
            target.writestr(info, b"/etc/passwd" if how & 1 else b" " * 100_000)
    return out.getvalue()


# -- programs


@dataclass(frozen=True)
class Program:
    """A kind of file, and what is done to it, one after the other."""

    kind: str
    mutations: tuple[tuple[Any, ...], ...]

    def content(self) -> bytes:
        """The file."""
        content = whole(self.kind)[0]
        for what, *how in self.mutations:
            if what == "describe":
                content = redescribed(self.kind, content, *how)
            elif what == "zip":
                content = rezipped(self.kind, content, *how)
            else:
                content = damaged(content, what, *how)
        return content


def check(program: Program) -> None:
    """Read the file.

    Raises:
        AssertionError: something was executed or written, or the error is another than the documented one, or damage
            was read as other values.
    """
    try:
        content = program.content()
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, zipfile.BadZipFile):
        return  # it cannot be changed further in this way
    expected = whole(program.kind)[1]
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, program.kind)
    try:
        with open(path, "wb") as stream:
            stream.write(content)
        found, error = None, None
        with guarded(folder) as done:
            try:
                found = KINDS[program.kind].read(path)
            except Exception as caught:  # noqa: BLE001
                error = caught
        here = f"\nfrom tape_fuzz.files import Program, check\ncheck({program!r})"
        assert not done, f"reading a file did {done[:3]}{here}"
        left = sorted(os.listdir(folder))
        assert left == [program.kind], f"reading a file left {left}{here}"
        on_purpose = any(mutation[0] in ("describe", "zip") for mutation in program.mutations)
        if error is None:
            assert on_purpose or found == expected, f"a damaged file was read as other values{here}"
        else:
            documented = isinstance(error, ValueError | TypeError) and (
                on_purpose or re.escape(path) in re.escape(str(error))
            )
            assert documented, f"{type(error).__name__}: {error}{here}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- and how they are drawn


@cache
def _names() -> list[str]:
    from tape_tf.names import published

    own = [name for space in ("layers", "losses", "metrics", "optimizers", "activations", "models", "initializers")
           for name in dir(getattr(tf.keras, space))]  # fmt: skip
    helpers = [
        "by_name",
        "native",
        "wrap",
        "absent",
        "run",
        "ordered",
        "Weights",
        "auto_name",
        "snake_case",
        "import_module",
    ]
    tempting = ["print", "py_function", "numpy_function", "keras.models.save_model", "train.Checkpoint", "exec", "eval"]
    return sorted({*published(), *own, *dir(builtins)}) + 9 * (helpers + tempting)


_BUILTINS = {"class_name": "function", "config": "__builtins__", "module": "losses"}
_CODE = "open('tape-fuzz-canary', 'w').write('x')"


def _descriptions() -> Any:
    """What may stand at any place of a description."""
    names = st.sampled_from(_names())
    spaces = (
        st.sampled_from(
            [
                "layers",
                "models",
                "initializers",
                "losses",
                "metrics",
                "optimizers",
                "tf",
                "tf",
                "operator",
                "builtins",
                "os",
            ]
        )
        | st.none()
    )
    plain = st.sampled_from(
        [None, True, False, 0, -1, 1, 2**31, 2**63, 10**12, 10**30, 1.5, float("nan"), float("inf"), "", "x", "exec",
         _CODE, "file://tape-fuzz-canary", "tape-fuzz-canary.keras", "__builtins__", "__class__", "relu", "float32",
         "object", [], {}, ["drop"], ["key", "x"], ["key", "class_name"], [1, 2], [[None, 3], "float32"]],
    )  # fmt: skip
    function = st.builds(lambda n, m: {"class_name": "function", "config": n, "module": m}, names, spaces)
    keys = st.sampled_from(
        ["name", "kind", "known", "function", "filepath", "model", "output_stream", "end", "func", "inp", "Tout", "n",
         "units", "layer", "shape", "x", "filename", "arguments", "identifier", "fn", "dtype", "weights"],
    )  # fmt: skip

    # What is worth reaching for somebody who wants to do harm, with the arguments that it takes.
    target = st.sampled_from(["tape-fuzz-canary", "file://tape-fuzz-canary", "tape-fuzz-canary.keras"])
    one = {"class_name": "Dense", "module": "layers", "registered_name": "Dense", "config": {"units": 1}}
    harms = st.sampled_from(
        [
            ("print", lambda path: {"output_stream": path, "end": _CODE}),
            ("keras.models.save_model", lambda path: {"model": one, "filepath": path}),
            ("save_model", lambda path: {"model": one, "filepath": path}),
            ("keras.models.load_model", lambda path: {"filepath": path}),
            ("by_name", lambda path: {"kind": "", "name": "exec", "known": _BUILTINS}),
            ("py_function", lambda path: {"func": _BUILTINS, "inp": [_CODE], "Tout": []}),
            ("Weights", lambda path: {"model": one}),
        ]
    )
    harmful = st.builds(
        lambda harm, m, path: {"class_name": harm[0], "module": m, "registered_name": None, "config": harm[1](path)},
        harms, spaces, target,
    )  # fmt: skip

    def made(inner: Any) -> Any:
        config = st.dictionaries(keys, inner, max_size=4)
        thing = st.builds(
            lambda n, m, c: {"class_name": n, "module": m, "registered_name": n, "config": c}, names, spaces, config
        )
        several = st.lists(inner, max_size=3)
        return (
            thing
            | several
            | st.builds(lambda items: {"class_name": "__tuple__", "items": items}, several)
            | st.builds(lambda items: {"class_name": "__dict__", "items": items}, config)
            | st.builds(lambda items: {"class_name": "__slice__", "items": items}, several)
        )

    flat = plain | function
    return harmful | flat | made(flat | made(flat | harmful))


def programs(kind: str) -> Any:
    """Mutations of files of one kind."""
    where, how = st.integers(0, 1 << 20), st.integers(0, 1 << 12)
    damage = st.tuples(st.sampled_from(DAMAGES), where, how)
    describe = st.tuples(st.just("describe"), where, _descriptions())
    harm = describe | st.tuples(st.just("zip"), where, how) if kind.endswith(".keras") else describe
    lists = st.lists(damage, min_size=1, max_size=3) | st.lists(harm, min_size=1, max_size=3)
    return st.builds(lambda mutations: Program(kind, tuple(mutations)), lists)
