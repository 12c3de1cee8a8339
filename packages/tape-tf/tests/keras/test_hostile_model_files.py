"""Descriptions of models that somebody else wrote: nothing is executed or written, and each error is documented."""

from __future__ import annotations

import builtins
import json
import re
import struct
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_nn as nn
import tape_tf as tf
from tape_tf.keras import limits
from tape_tf.names import published

layers = tf.keras.layers

SPACES = [
    "layers", "models", "initializers", "regularizers", "constraints", "optimizers", "optimizers.schedules", "losses",
    "metrics", "activations",
]  # fmt: skip

# -- what must not happen

_watching = False
_seen: list[str] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if event == "open":
        path, mode, flags = args
        if isinstance(path, str | bytes) and ("w" in str(mode) or "a" in str(mode) or "x" in str(mode)):
            _seen.append(f"open {path!r} {mode} {flags}")
    elif event in ("exec", "compile", "import", "os.system", "os.remove", "os.rename", "os.mkdir", "ctypes.dlopen") or (
        event.partition(".")[0]
        in ("subprocess", "socket", "shutil", "urllib", "marshal", "pickle", "pty", "webbrowser")
    ):
        _seen.append(f"{event} {args!r:.200}")


sys.addaudithook(_hook)


@contextmanager
def nothing_done() -> Iterator[None]:
    """Nothing is compiled, executed, imported, started, or opened for writing."""
    global _watching
    _seen.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    assert _seen == []


def refused(call: Callable[[], Any]) -> Any:
    """What a call makes; or None, if it raised what is documented."""
    with nothing_done():
        try:
            return call()
        except (ValueError, TypeError) as error:
            message = str(error)
    assert re.match(
        r"(deserialize|model_from_json|load_model): .*( is damaged, or was not| cannot be read| was not written)",
        message,
    ), message
    return None


# -- descriptions


def text(value: str) -> dict[str, Any]:
    return {"class_name": "__tuple__", "items": [value]}


def function(name: Any, module: Any) -> dict[str, Any]:
    return {"class_name": "function", "config": name, "module": module}


def thing(name: Any, module: Any, config: Any) -> dict[str, Any]:
    return {"class_name": name, "module": module, "registered_name": name, "config": config}


def functional(parts: list[Any], args: Any, kwargs: Any = None, **changes: Any) -> dict[str, Any]:
    """A model of one input, whose layers are called on these arguments."""
    tensor = {"class_name": "__keras_tensor__", "number": 0}
    config = {
        "name": "m",
        "trainable": True,
        "symbols": [{"batch_shape": [None, 3], "dtype": "float32", "name": "x"}],
        "inputs": tensor,
        "layers": parts,
        "calls": [
            {
                "layer": 0,
                "args": args,
                "kwargs": {"class_name": "__dict__", "items": kwargs or {}},
                "outputs": {"class_name": "__keras_tensor__", "number": 1},
            }
        ],
        "outputs": {"class_name": "__keras_tensor__", "number": 1},
    }
    return thing("Model", "models", config | changes)


def called_with(*items: Any) -> dict[str, Any]:
    return {"class_name": "__tuple__", "items": [*items]}


def chain(parts: Any, first: Any = None) -> dict[str, Any]:
    return thing("Sequential", "models", {"name": "s", "trainable": True, "layers": parts, "input": first})


X = called_with({"class_name": "__keras_tensor__", "number": 0})


def lambda_of(found: Any, **arguments: Any) -> dict[str, Any]:
    return thing("Lambda", "layers", {"function": found, "arguments": arguments or None, "name": "f"})


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is imported or compiled once."""
    path = tmp_path_factory.mktemp("warm") / "model.keras"
    model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), layers.Dense(2, activation="tanh")])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    model.save(path, save_format="tape")
    tf.keras.models.load_model(path)
    json.loads('{"a": [1.5, NaN, true]}')
    layers.RepeatVector(2)(tf.ones((1, 2)))
    for name, space in _everything():  # ops make their call paths at their first call
        with suppress(Exception):
            deserialize = tf.keras.saving.deserialize_keras_object
            if callable(deserialize(function(name, space))):
                deserialize(functional([lambda_of(function(name, space))], X))
    for config in (functional([lambda_of(function("nn.relu", "tf"))], X), thing("Dense", "layers", {"units": 2})):
        tf.keras.models.model_from_json(json.dumps(config))
    for bad in ("{", "[" * 100_000, "1e999"):
        with suppress(Exception):
            tf.keras.models.model_from_json(bad)


def canary(path: Path) -> str:
    return f"open({str(path)!r}, 'w').write('x')"


def test_the_reported_attacks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "canary"
    known = function("__builtins__", "losses")
    execute = thing("by_name", "losses", {"kind": "", "name": "exec", "known": known})
    printing = {"output_stream": f"file://{path}", "end": canary(path)}
    victim = tmp_path / "victim.keras"
    saving = {"model": thing("Dense", "layers", {"units": 1}), "filepath": str(victim)}
    attacks = [
        functional([execute], text(canary(path)), symbols=[], inputs=[], outputs=[]),
        functional([execute], text(canary(path))),
        thing("print", "tf", printing),
        {"class_name": "print", "registered_name": None, "module": "tf", "config": printing},
        thing("keras.models.save_model", "tf", saving),
        thing("save_model", "models", saving),
        thing("Weights", "models", {"model": thing("Dense", "layers", {"units": 1})}),
        thing("py_function", "tf", {"func": execute, "inp": [canary(path)], "Tout": []}),
        lambda_of(function("py_function", "tf"), inp=[], Tout=[]),
        thing("keras.callbacks.CSVLogger", "tf", {"filename": str(path)}),
        thing("train.Checkpoint", "tf", {}),
        thing("keras.models.load_model", "tf", {"filepath": str(path)}),
        thing("import_module", "layers", {"name": "antigravity"}),
        thing("register_keras_serializable", "tf", {"package": "x"}),
    ]
    for attack in attacks:
        assert refused(lambda attack=attack: tf.keras.models.model_from_json(json.dumps(attack))) is None
        for space in SPACES:
            if space != "models":
                module: Any = tf.keras
                for name in space.split("."):
                    module = getattr(module, name)
                for nested in (attack, [attack], {"class_name": "__dict__", "items": {"a": attack}}):
                    assert refused(lambda m=module, n=nested: m.deserialize(n)) is None
    assert list(tmp_path.iterdir()) == []


def _everything() -> list[tuple[str, Any]]:
    """Each name that there is in a module of Keras, in tf, in Python itself, with the places it may be looked for."""
    found: list[tuple[str, Any]] = []
    for space in SPACES:
        module = import_module(f"tape_tf.keras.{space}")
        found += [(name, space) for name in dir(module)]
    found += [(name, "tf") for name in published()]
    found += [
        (f"{name}.{part}", "tf") for name in ("keras.models", "train", "io") for part in ("save_model", "Checkpoint")
    ]
    for name in [*dir(builtins), "os.system", "posix", "__class__.__base__", "mro", "../x", "", "a" * 10_000, "\0"]:
        found += [(name, space) for space in ("layers", "tf", "builtins", "__builtins__", "operator", None, "os")]
    found += [(name, "operator") for name in dir(import_module("operator"))]
    return found


def test_every_name_is_refused_or_stands_for_what_is_harmless() -> None:
    """As a class that is made, with several arguments, and as a function that a layer calls."""
    kinds = (
        tf.keras.layers.Layer, tf.keras.initializers.Initializer, tf.keras.regularizers.Regularizer,
        tf.keras.constraints.Constraint, tf.keras.optimizers.Optimizer, tf.keras.losses.Loss,
        tf.keras.optimizers.schedules.LearningRateSchedule, tf.keras.metrics.Metric,
    )  # fmt: skip
    made = 0
    deserialize = tf.keras.saving.deserialize_keras_object
    for name, space in _everything():
        for config in ({}, {"name": "x"}, {"function": function("exec", "tf")}):
            found = refused(partial(deserialize, thing(name, space, config)))
            assert found is None or isinstance(found, kinds), (name, space)
            made += found is not None
        named = refused(partial(deserialize, function(name, space)))
        if named is not None and not isinstance(named, type):
            module = getattr(named, "__module__", "")
            assert module.startswith(("tape_tf.", "tape_core")) or space == "operator", (name, space)
            refused(partial(deserialize, functional([lambda_of(function(name, space))], X)))
    assert made > 100


BOMB: Any = 0
for _ in range(150):
    BOMB = [BOMB]

HUGE = [
    10**12,
    10**9,
    2**63,
    10**30,
    -1,
    0,
    1.5,
    1e308,
    float("nan"),
    float("inf"),
    True,
    None,
    "x",
    [],
    {},
    [[]],
    "9" * 99,
]

PLACES = [
    ("model", lambda v: v),
    ("class_name", lambda v: thing(v, "layers", {})),
    ("module", lambda v: thing("Dense", v, {"units": 1})),
    ("registered_name", lambda v: {"class_name": "x", "module": None, "registered_name": v, "config": {}}),
    ("config", lambda v: thing("Dense", "layers", v)),
    ("function", lambda v: function(v, "layers")),
    ("lambda", lambda v: functional([lambda_of(v)], X)),
    ("tuple", lambda v: {"class_name": "__tuple__", "items": v}),
    ("dict", lambda v: {"class_name": "__dict__", "items": v}),
    ("slice", lambda v: {"class_name": "__slice__", "items": v}),
    ("slices", lambda v: {"class_name": "__slice__", "items": [v, v, v]}),
    ("array", lambda v: {"class_name": "__numpy__", "value": v, "dtype": "float32"}),
    ("array dtype", lambda v: {"class_name": "__tensor__", "value": [1], "dtype": v}),
    ("object dtype", lambda v: {"class_name": "__numpy__", "value": [v], "dtype": "object"}),
    ("text dtype", lambda v: {"class_name": "__numpy__", "value": [v], "dtype": "U1000000000"}),
    ("units", lambda v: functional([thing("Dense", "layers", {"units": v})], X)),
    ("name", lambda v: functional([thing("Dense", "layers", {"units": 1, "name": v})], X)),
    ("dtype", lambda v: functional([thing("Dense", "layers", {"units": 1, "dtype": v})], X)),
    ("activation", lambda v: functional([thing("Dense", "layers", {"units": 1, "activation": v})], X)),
    ("initializer", lambda v: functional([thing("Dense", "layers", {"units": 1, "kernel_initializer": v})], X)),
    ("trainable", lambda v: functional([thing("Identity", "layers", {})], X, trainable=v)),
    ("model name", lambda v: functional([thing("Identity", "layers", {})], X, name=v)),
    ("symbols", lambda v: functional([thing("Identity", "layers", {})], X, symbols=v)),
    ("symbol", lambda v: functional([thing("Identity", "layers", {})], X, symbols=[v])),
    ("shape", lambda v: functional([thing("Identity", "layers", {})], X,
                                   symbols=[{"batch_shape": [None, v], "dtype": "float32", "name": "x"}])),
    ("batch", lambda v: functional([thing("Identity", "layers", {})], X,
                                   symbols=[{"batch_shape": [v], "dtype": "float32", "name": "x"}])),
    ("inputs", lambda v: functional([thing("Identity", "layers", {})], X, inputs=v)),
    ("outputs", lambda v: functional([thing("Identity", "layers", {})], X, outputs=v)),
    ("layers", lambda v: functional([v], X)),
    ("calls", lambda v: functional([thing("Identity", "layers", {})], X, calls=v)),
    ("call", lambda v: functional([thing("Identity", "layers", {})], X, calls=[v])),
    ("args", lambda v: functional([thing("Identity", "layers", {})], v)),
    ("arg", lambda v: functional([thing("Identity", "layers", {})], {"class_name": "__tuple__", "items": [v]})),
    ("kwargs", lambda v: functional([thing("Identity", "layers", {})], X, {"training": v, "a": v})),
    ("number", lambda v: functional([thing("Identity", "layers", {})],
                                    called_with({"class_name": "__keras_tensor__", "number": v}))),
    ("sequential", lambda v: chain(v)),
    ("in sequential", lambda v: chain([v])),
    ("input", lambda v: chain([], v)),
    ("embedding", lambda v: functional([thing("Embedding", "layers", {"input_dim": v, "output_dim": v})], X)),
    ("optimizer", lambda v: thing("Adam", "optimizers", {"learning_rate": v, "name": v})),
    ("repeat", lambda v: functional([thing("RepeatVector", "layers", {"n": v})], X)),
]  # fmt: skip


@pytest.mark.parametrize(("place", "make"), PLACES, ids=[place for place, _ in PLACES])
def test_whatever_stands_anywhere_the_error_is_the_documented_one(place: str, make: Any) -> None:
    values = [*HUGE, BOMB, function("exec", "builtins"), function("relu", "activations"), thing("Dense", "layers", {})]
    for value in values:
        text = json.dumps(make(value))
        begun = time.monotonic()
        refused(lambda t=text: tf.keras.models.model_from_json(t))
        assert time.monotonic() - begun < 20


@pytest.mark.parametrize("name", ["mul", "pow", "add", "mod", "matmul", "getitem"])
def test_operators_are_called_on_tensors_and_numbers_alone(name: str) -> None:
    """Not on lists, which `*` repeats, nor on numbers alone, of which `**` makes longer ones for hours."""
    operation = thing("Operation", "models", {"function": function(name, "operator"), "name": "op"})
    tensor = X["items"][0]
    for items in (
        [[tensor], 10**10], [9**99, 9**99], ["a", 10**10], ["%s" * 999, tensor], [tensor, "x"], [10**10, [tensor]],
        [tensor, tensor, tensor], [{"class_name": "__tuple__", "items": [tensor]}, 10**10], [],
    ):  # fmt: skip
        arguments = {"class_name": "__tuple__", "items": items}
        text = json.dumps(functional([operation], arguments))
        assert refused(lambda t=text: tf.keras.models.model_from_json(t)) is None
    for other in ("exec", "relu", "attrgetter", "methodcaller", "call", "setitem", "delitem", "iadd"):
        bad = thing("Operation", "models", {"function": function(other, "operator"), "name": "op"})
        assert refused(lambda c=bad: tf.keras.layers.deserialize(c)) is None


def test_nesting_and_repetition_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_VALUE_ELEMENTS", 1 << 20)
    deep: Any = thing("Dense", "layers", {"units": 1})
    for _ in range(300):
        deep = thing("TimeDistributed", "layers", {"layer": deep})
    cyclic: dict[str, Any] = thing("Dense", "layers", {})
    cyclic["config"]["units"] = cyclic
    shared: Any = [1]
    for _ in range(60):
        shared = [shared, shared]
    concatenated = functional([thing("Concatenate", "layers", {})], X)
    call = concatenated["config"]["calls"][0]
    concatenated["config"]["calls"] = [
        call | {"args": {"class_name": "__tuple__", "items": [[{"class_name": "__keras_tensor__", "number": k}] * 2]},
                "outputs": {"class_name": "__keras_tensor__", "number": k + 1}}
        for k in range(60)
    ]  # fmt: skip
    for config in (deep, cyclic, concatenated):
        assert refused(lambda c=config: tf.keras.layers.deserialize(c)) is None
    with pytest.raises(ValueError, match="levels deep"):
        tf.keras.layers.deserialize(deep)
    texts = [
        "[" * 10**6, '{"a":' * 10**5, "1" * 10**5,
        '{"class_name": "Dense", "class_name": "Dense"}', "", "nul", "NaN", "\0",
        '"' + "a" * (17 << 20) + '"', "[1e400]", '{"class_name": {"class_name": 1}}', "\ufeff{}", '{"1": 2}',
    ]  # fmt: skip
    for text in texts:
        assert refused(lambda t=text: tf.keras.models.model_from_json(t)) is None


def test_a_registered_function_is_named_and_not_called() -> None:
    calls = []

    def mine(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return args[0] if args else None

    class Part:
        """Not a part of a model."""

        def __init__(self, **kwargs: Any) -> None:
            calls.append(kwargs)

    given = {"mine": mine, "Part": Part}
    for name in given:
        config = {"class_name": name, "module": None, "registered_name": name, "config": {"a": 1}}
        with pytest.raises(TypeError, match=rf"{name}' is .*(a function is named, and not called|no part of a model)"):
            tf.keras.layers.deserialize(config, custom_objects=given)
    assert calls == []
    model = tf.keras.models.model_from_json(json.dumps(functional([lambda_of(function("mine", None))], X)), given)
    assert model(np.ones((2, 3), "float32")).shape == (2, 3)


def _input(*shape: int | None) -> dict[str, Any]:
    return {"batch_shape": [None, *shape], "dtype": "float32", "name": "x"}


def _called_twice(part: dict[str, Any], *shapes: tuple[int, ...]) -> dict[str, Any]:
    """A layer called on a list of two inputs."""
    both = [{"class_name": "__keras_tensor__", "number": k} for k in range(2)]
    arguments = {"class_name": "__tuple__", "items": both if part["class_name"] == "Operation" else [both]}
    if part["class_name"] == "MultiHeadAttention":
        arguments["items"] = both
    out = {"class_name": "__keras_tensor__", "number": 2}
    call = {"layer": 0, "args": arguments, "kwargs": {"class_name": "__dict__", "items": {}}, "outputs": out}
    return functional([part], X, symbols=[_input(*shape) for shape in shapes], inputs=both, calls=[call], outputs=out)


def _layer(name: str, *shape: int | None, **config: Any) -> dict[str, Any]:
    return functional([thing(name, "layers", config)], X, symbols=[_input(*shape)])


def _operation(name: str) -> dict[str, Any]:
    return thing("Operation", "models", {"function": function(name, "operator"), "name": "op"})


MANY = [[0.0]] * 20_000

LARGE = {
    "repeated": _layer("RepeatVector", 3, n=10**9),
    "repeated in steps": _layer("TimeDistributed", 2, 3, layer=thing("RepeatVector", "layers", {"n": 10**9})),
    "in a model": functional([chain([thing("RepeatVector", "layers", {"n": 10**9})])], X),
    "upsampled 1": _layer("UpSampling1D", 4, 2, size=10**9),
    "upsampled 2": _layer("UpSampling2D", 4, 4, 2, size=10**6),
    "upsampled first": _layer("UpSampling2D", 2, 4, 4, size=10**6, data_format="channels_first"),
    "upsampled and gone": _layer("UpSampling2D", 4, 4, 2, size=[10**9, 0]),
    "upsampled 3": _layer("UpSampling3D", 4, 4, 4, 2, size=10**4),
    "padded 1": _layer("ZeroPadding1D", 4, 2, padding=10**9),
    "padded 2": _layer("ZeroPadding2D", 4, 4, 2, padding=10**9),
    "padded 3": _layer("ZeroPadding3D", 4, 4, 4, 2, padding=10**6),
    "rows": _layer("Embedding", 10**5, input_dim=2, output_dim=10**5),
    "a table": _layer("Embedding", 3, input_dim=10**12, output_dim=2),
    "units": _layer("Dense", 10**5, 1, units=10**5),
    "gates": _layer("LSTM", 10**7, 1, units=50),
    "filters": _layer("Conv1D", 10**5, 1, filters=10**5, kernel_size=1),
    "windows": _layer("Conv2D", 2000, 2000, 1, filters=1, kernel_size=200, padding="same"),
    "dilated": _layer("Conv1D", 4, 2, filters=1, kernel_size=2, dilation_rate=10**9, padding="causal"),
    "dilated 2": _layer("Conv2D", 4, 4, 2, filters=1, kernel_size=2, dilation_rate=10**6, padding="same"),
    "by channel": _layer("DepthwiseConv1D", 4, 2, kernel_size=2, dilation_rate=10**9, padding="same"),
    "multiplied": _layer("DepthwiseConv2D", 300, 300, 10, kernel_size=1, depth_multiplier=10**4),
    "separated": _layer("SeparableConv1D", 10**5, 1, filters=10**5, kernel_size=1),
    "strided": _layer("Conv1DTranspose", 4, 2, filters=1, kernel_size=2, strides=10**9),
    "transposed": _layer("Conv2DTranspose", 4, 4, 2, filters=1, kernel_size=2, dilation_rate=10**6),
    "pooled": _layer("MaxPooling1D", 4, 2, pool_size=10**9, padding="same"),
    "averaged": _layer("AveragePooling2D", 4, 4, 2, pool_size=10**6, padding="same"),
    "scaled": _layer("Rescaling", 1, 20_000, scale={"class_name": "__numpy__", "value": MANY, "dtype": "float32"}),
    "added": _called_twice(thing("Add", "layers", {}), (10**5, 1), (1, 10**5)),
    "multiplied by it": _called_twice(_operation("mul"), (10**5, 1), (1, 10**5)),
    "matrices": _called_twice(_operation("matmul"), (10**5, 1), (1, 10**5)),
    "dotted": _called_twice(thing("Dot", "layers", {"axes": -1}), (10**5, 1), (10**5, 1)),
    "attention": _called_twice(
        thing("MultiHeadAttention", "layers", {"num_heads": 1, "key_dim": 1}), (10**5, 1), (10**5, 1)
    ),
    "a function": _layer(
        "Lambda",
        1,
        20_000,
        function=function("math.add", "tf"),
        arguments={
            "class_name": "__dict__",
            "items": {"y": {"class_name": "__tensor__", "value": MANY, "dtype": "float32"}},
        },
    ),
}


@pytest.mark.parametrize("what", LARGE)
def test_what_layers_make_is_checked_before_there_is_memory_for_it(what: str) -> None:
    import tracemalloc

    text = json.dumps(LARGE[what])
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"model_from_json: .*has more than 268435456 numbers|exceeds the limit"):
            tf.keras.models.model_from_json(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The inputs that are tried are as large as the description says, up to a limit; nothing else is.
    assert peak < 200_000_000 + 20 * len(text)


def test_ordinary_models_are_within_the_limits() -> None:
    image, text = tf.keras.Input(shape=(64, 64, 3)), tf.keras.Input(shape=(100,), dtype="int32")
    x = layers.ZeroPadding2D(3)(image)
    x = layers.Conv2D(32, 7, strides=2)(x)
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.UpSampling2D(2)(x)
    x = layers.Conv2DTranspose(8, 4, strides=2, padding="same")(x)
    x = layers.GlobalAveragePooling2D()(x)
    y = layers.Embedding(2000, 16)(text)
    y = layers.Conv1D(16, 3, dilation_rate=2, padding="causal")(y)
    y = layers.MultiHeadAttention(2, 8)(y, y)
    y = layers.Bidirectional(layers.LSTM(8))(y)
    z = layers.Dot(axes=-1)([layers.Dense(4)(x), layers.Dense(4)(y)])
    z = layers.RepeatVector(5)(layers.Add()([z, layers.Dense(1)(y)]))
    model = tf.keras.Model([image, text], z)
    assert tf.keras.models.model_from_json(model.to_json()).output_shape == (None, 5, 1)


# -- files


def saved(path: Path) -> Path:
    model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), layers.Dense(2, activation="tanh")])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    model.save(path, save_format="tape")
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, content: list[tuple[Any, bytes]], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in content:
            archive.writestr(name, data)
    return path


def named_in(path: Path) -> str:
    return re.escape(repr(str(path)))


def test_a_file_takes_no_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    import tracemalloc

    parts = members(saved(tmp_path / "model.keras"))
    bomb = write(
        tmp_path / "bomb.keras",
        [("config.json", b" " * 300_000_000), *((name, data) for name, data in parts.items() if name != "config.json")],
        compression=zipfile.ZIP_DEFLATED,
    )
    config = json.loads(parts["config.json"])
    config["model"]["config"]["layers"][0]["config"]["units"] = 200_000_000
    large = write(tmp_path / "large.keras", [*(parts | {"config.json": json.dumps(config).encode()}).items()])
    weights = write(tmp_path / "w.keras", [*parts.items()][:1] + [(name, b"\0" * 100_000_000) for name in [*parts][1:]],
                    compression=zipfile.ZIP_DEFLATED)  # fmt: skip
    for path in (bomb, large, weights):
        tracemalloc.start()
        with pytest.raises(ValueError, match=rf"load_model: {named_in(path)} is damaged"):
            tf.keras.models.load_model(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000_000


def test_members_are_looked_up_by_their_names_and_never_unpacked(tmp_path: Path) -> None:
    parts = [*members(saved(tmp_path / "model.keras")).items()]
    folder = tmp_path / "inner"
    folder.mkdir()
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    extra = [("../escaped", b"x"), ("/tmp/tape-escaped", b"x"), (link, b"/etc/passwd"), ("inner/", b""), ("a\\b", b"x")]
    path = write(folder / "more.keras", [*extra, *parts])  # type: ignore[list-item]
    with nothing_done():
        assert tf.keras.models.load_model(path).built
    assert [p.name for p in folder.iterdir()] == ["more.keras"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inner", "model.keras"]
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = write(folder / "twice.keras", [*parts, parts[0]])
    with pytest.raises(ValueError, match=rf"{named_in(twice)} .*twice"):
        tf.keras.models.load_model(twice)


def _changed(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The content with one entry taken away, or of another kind, at each place."""
    yield "whole", None
    for value in (None, 7, "x", [], {}, [[]], {"class_name": "exec"}, 1e999):
        for key in content:
            yield key, content | {key: value}
    for key in content:
        yield key, {k: v for k, v in content.items() if k != key}
    for key in ("optimizer", "loss", "metrics", "weighted_metrics", "loss_weights", "x"):
        for value in (None, 7, "x", [1], function("exec", "tf"), thing("Dense", "layers", {"units": 1})):
            compiled = json.loads(json.dumps(content["compile"]))
            compiled["items"][key] = value
            yield f"compile {key}", content | {"compile": compiled}
    for value in (
        None,
        1,
        [],
        {"class_name": "__tuple__", "items": [1]},
        {"class_name": "__tuple__", "items": [[], {}]},
    ):
        model = json.loads(json.dumps(content["model"]))
        model["config"]["input"] = None
        yield "called_on", content | {"called_on": value, "model": model}


def test_damaged_files_raise_the_documented_error(tmp_path: Path) -> None:
    parts = members(saved(tmp_path / "model.keras"))
    content = json.loads(parts["config.json"])
    path = tmp_path / "other.keras"
    for place, changed in _changed(content):
        write(path, [*(parts | {"config.json": json.dumps(changed).encode()}).items()])
        refused(lambda: tf.keras.models.load_model(path))
        if place in ("whole", "model", "format"):
            with pytest.raises((ValueError, TypeError), match=named_in(path)):
                tf.keras.models.load_model(path)
    for left_out in parts:
        write(path, [(name, data) for name, data in parts.items() if name != left_out])
        with pytest.raises(ValueError, match=named_in(path)):
            tf.keras.models.load_model(path)
    swapped = dict(zip(parts, [*parts.values()][::-1], strict=True))
    write(path, [*swapped.items()])
    with pytest.raises(ValueError, match=named_in(path)):
        tf.keras.models.load_model(path)


def test_bits_cuts_and_headers_of_a_file(tmp_path: Path) -> None:
    whole = saved(tmp_path / "model.keras").read_bytes()
    expected = [w.tobytes() for w in tf.keras.models.load_model(tmp_path / "model.keras").get_weights()]
    path = tmp_path / "other.keras"
    rng = np.random.default_rng(0)
    contents = [whole[: rng.integers(len(whole))] for _ in range(60)] + [whole + b"x", b"x" + whole, whole * 2]
    for bit in rng.integers(8 * len(whole), size=400):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        contents.append(bytes(damaged))
    for at in [m.start() for m in re.finditer(b"PK", whole)]:
        for offset in range(4, 46, 2):
            damaged = bytearray(whole)
            damaged[at + offset : at + offset + 2] = struct.pack("<H", 0xFFFF)
            contents.append(bytes(damaged[: len(whole)]))
    refusals = 0
    for content in contents:
        path.write_bytes(content)
        model = refused(lambda: tf.keras.models.load_model(path))
        refusals += model is None
        if model is not None:
            assert [w.tobytes() for w in model.get_weights()] == expected
    assert refusals > 400


def test_safe_mode_off_lifts_the_limits_and_executes_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.keras")
    assert tf.keras.models.load_model(path, safe_mode=False).built
    parts = members(path)
    config = json.loads(parts["config.json"])
    config["model"]["config"]["layers"][0]["config"]["units"] = 3_000_000
    write(path, [*(parts | {"config.json": json.dumps(config).encode()}).items()])
    with pytest.raises(ValueError, match="safe_mode=False"):
        tf.keras.models.load_model(path)
    with pytest.raises(ValueError, match="has shape"):
        tf.keras.models.load_model(path, safe_mode=False)
    config["model"] = thing("exec", "builtins", {})
    write(path, [*(parts | {"config.json": json.dumps(config).encode()}).items()])
    with pytest.raises(TypeError, match="Could not locate 'exec'"):
        tf.keras.models.load_model(path, safe_mode=False)


def test_damaged_weights_name_their_file(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), layers.Dense(2)])
    model.save_weights(tmp_path / "w")
    prefix = tf.train.Checkpoint(model=model).write(tmp_path / "c")
    before = [w.tobytes() for w in model.get_weights()]
    for path, read in (
        (tmp_path / "w", lambda: model.load_weights(tmp_path / "w")),
        (tmp_path / "c.safetensors", lambda: tf.train.Checkpoint(model=model).restore(prefix)),
        (tmp_path / "c.safetensors", lambda: tf.train.load_variable(prefix, "save_counter")),
        (tmp_path / "w", lambda: nn.load_tensors(tmp_path / "w")),
    ):
        whole = path.read_bytes()
        for bit in range(0, 8 * len(whole), 7):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=named_in(path)):
                read()
        path.write_bytes(whole)
        assert [w.tobytes() for w in model.get_weights()] == before


def test_two_classes_of_one_name_are_not_mixed_up() -> None:
    def made(factor: float) -> Any:
        class Twice(layers.Layer):
            def call(self, x: Any) -> Any:
                return factor * x

        return Twice

    model = tf.keras.Sequential([tf.keras.Input(shape=(3,)), made(2.0)(), made(3.0)()])
    with pytest.raises(TypeError, match="two classes of layers have the name 'Twice'"):
        tf.keras.models.clone_model(model)
