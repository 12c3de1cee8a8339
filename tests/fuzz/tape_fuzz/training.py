"""Random runs of `fit` on several processes or devices, against the same runs on one: results, weights, predictions.

`python -m tape_fuzz.training --number 100 --seed 0` is run in each of several processes, as `torchrun` starts them, or
with TAPE_BACKEND=jax in one process that has several devices. All draw the same runs; a failure is the run as code.
"""

# ruff: noqa: E501 - a model is one line
from __future__ import annotations

import argparse
import os
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tape_core as tc
import tape_nn as nn

ACTIVATIONS = ["None", "'relu'", "'tanh'", "'sigmoid'"]
AFTER = ["nn.BatchNorm(0.8)", "nn.LayerNorm()", "nn.RMSNorm()", "nn.Dropout(0.3)", "nn.Activation('tanh')"]
OF_IMAGES = [
    "nn.Conv2D(4, 3, padding='same', activation=F)",
    "nn.Conv2D(6, 2, stride=2)",
    "nn.Conv2D(4, 3, groups=2, padding='same')",
    "nn.MaxPool2D()",
    "nn.AvgPool2D()",
]
OF_SERIES = [
    "nn.Conv1D(4, 3, padding='same', activation=F)", "nn.Conv1D(4, 2, dilation=2, padding='same')", "nn.LSTM(4, return_sequences=True)",
    "nn.GRU(6, return_sequences=True)", "nn.SimpleRNN(4, return_sequences=True)", "Attention(2, 3, 0.0)", "Attention(2, 2, 0.3)", "nn.MaxPool1D()", "Residual(nn.Dense(4))",
]  # fmt: skip
OPTIMIZERS = [
    "nn.SGD(0.05)", "nn.SGD(0.05, momentum=0.9, nesterov=True)", "nn.Adam(0.01)", "nn.Adam(0.01, amsgrad=True)", "nn.AdamW(0.01, weight_decay=0.1)", "nn.Adagrad(0.05)",
    "nn.RMSprop(0.01, momentum=0.5, centered=True)", "nn.Adadelta(0.5)", "nn.Nadam(0.01)", "nn.Adamax(0.01)", "nn.Ftrl(0.05, l1_regularization_strength=0.001)",
    "nn.Adam(nn.schedules.CosineDecay(0.01, 10))", "nn.Adam(0.01, global_clipnorm=0.1)", "nn.SGD(0.1, clipnorm=0.05)", "nn.SGD(0.1, clipvalue=0.01)", "nn.LossScaler(nn.Adam(0.01), 1024.0)",
    "nn.TransformOptimizer(nn.transforms.chain(nn.transforms.clip_by_global_norm(0.5), nn.transforms.adamw(0.01)), model)", "nn.Adam(0.01, lazy=True)", "nn.SGD(0.05, momentum=0.9, lazy=True)",
]  # fmt: skip
STRATEGIES = {
    "Replicated": "nn.parallel.Replicated(mesh({'data': -1}))",
    "Sharded": "nn.parallel.Sharded(mesh({'data': -1}))",
    "TensorParallel": "nn.parallel.TensorParallel(mesh({'model': -1}))",
    "grid": "nn.parallel.TensorParallel(mesh({'data': -1, 'model': HALF}))",
    "sharded grid": "nn.parallel.TensorParallel(mesh({'data': -1, 'model': HALF}), sharded=True)",
    "plan": "nn.parallel.TensorParallel(mesh({'data': -1, 'model': HALF}), plan)",
}
METRICS = {
    "classes": ["nn.metrics.SparseCategoricalAccuracy()", "nn.metrics.SparseTopKCategoricalAccuracy(2)"],
    "vectors": ["nn.metrics.CategoricalAccuracy()"],
    "flags": ["nn.metrics.BinaryAccuracy(threshold=0.0)", "nn.metrics.AUC()"],
    "numbers": ["nn.metrics.Mean()"],
}
LOSSES = {
    "classes": ["nn.losses.SparseCategoricalCrossentropy(from_logits=True)", "nn.losses.SparseCategoricalCrossentropy(from_logits=True, reduction='sum')"],
    "vectors": ["nn.losses.CategoricalCrossentropy(from_logits=True)"],
    "flags": ["nn.losses.BinaryCrossentropy(from_logits=True)"],
    "numbers": ["nn.losses.MeanSquaredError()", "nn.losses.MeanAbsoluteError()", "nn.losses.Huber()", "nn.losses.MeanSquaredError(reduction='sum')"],
}  # fmt: skip
_IDLE = "nothing of the model is divided along"
"""Of an error: the layers that are drawn are none that `TensorParallel` divides."""

WIDTH = {"classes": 4, "vectors": 4, "flags": 1, "numbers": 2}


class Residual(nn.Module):
    """A layer, beside what goes past it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, x: Any) -> Any:
        y = self.inner(x)
        return y + x if y.shape == x.shape else y


class Attention(nn.Module):
    """Causal attention of a series to itself."""

    def __init__(self, heads: int, width: int, dropout: float) -> None:
        self.attention = nn.MultiHeadAttention(heads, width, dropout=dropout)

    def __call__(self, x: Any) -> Any:
        return x + self.attention(x, x, use_causal_mask=True)


class Tied(nn.Module):
    """An embedding that is also what the tokens' scores are computed with."""

    def __init__(self, inner: Any) -> None:
        self.embedding = nn.Embedding(4, 6)
        self.inner = inner

    def __call__(self, tokens: Any) -> Any:
        return tc.mean(self.inner(self.embedding(tokens)), axis=1) @ tc.matrix_transpose(self.embedding.embeddings)


class Examples:
    """A data set, which may make its examples noisy."""

    def __init__(self, arrays: tuple[Any, ...], noisy: bool) -> None:
        self.arrays = arrays
        self.noisy = noisy

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, k: int) -> tuple[Any, ...]:
        x, *others = [array[k] for array in self.arrays]
        return (x + 0.1 * tc.random.global_rng().normal(x.shape, dtype="float64").numpy() if self.noisy else x, *others)


def penalised(run: nn.fitting.Run, batch: Any) -> Any:
    """Take a step whose loss has a derivative in it."""
    x, y, weights = nn.fitting.unpack(batch)
    with tc.GradientTape() as tape:
        with tc.GradientTape() as inner:
            inner.watch(x)
            loss = run.loss(y, run.model(x), weights)  # type: ignore[misc]
        slope = inner.gradient(loss, x)
        whole = loss + 0.1 * tc.sum(slope * slope)
        scaled = run.optimizer.scale_loss(whole)
    variables = run.model.trainable_variables
    run.optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables, strict=True))
    return {"loss": whole, "slope": tc.max(tc.abs(slope))}


def drawn(chance: random.Random, size: int) -> dict[str, Any]:
    """Draw a run, whose parts are code or plain values."""
    kind = chance.choice(["rows", "images", "series", "tokens", "tied"])
    target = "classes" if kind == "tied" else chance.choice(list(WIDTH))
    layers = []
    width = lambda: chance.choice([3, 4, 6, 8, 8])  # noqa: E731
    for _ in range(chance.randint(0, 3)):
        if kind == "rows":
            layers.append(f"nn.Dense({width()}, activation=F)")
        else:
            layers.append(chance.choice(OF_IMAGES[: 3 if len(layers) > 1 else 5] if kind == "images" else OF_SERIES))
        if chance.random() < 0.5:
            layers.append(chance.choice(AFTER))
    if kind == "tied":
        model = f"Tied(nn.Sequential([{', '.join([*[x for x in layers if 'Attention' in x or x in AFTER], 'nn.Dense(6)'])}]))"
    else:
        front = ["nn.Embedding(5, 4)"] if kind == "tokens" else []
        back = ["nn.Flatten()"] if kind != "rows" else []
        back += ["nn.Dense(8, activation=F)"] * (chance.random() < 0.5)
        model = f"nn.Sequential([{', '.join([*front, *layers, *back, f'nn.Dense({WIDTH[target]})'])}])"
    while "F" in model.replace("Flatten", ""):
        head, tail = model.split("activation=F", 1)
        model = f"{head}activation={chance.choice(ACTIVATIONS)}{tail}"
    names = list(STRATEGIES)
    half = "1" if size == 2 and chance.random() < 0.5 else "2"
    run = {
        "kind": kind,
        "target": target,
        "model": model,
        "strategy": STRATEGIES[chance.choice(names)].replace("HALF", half),
        "optimizer": chance.choice(OPTIMIZERS),
        "loss": chance.choice(LOSSES[target]),
        "metrics": chance.sample(METRICS[target], chance.randint(0, len(METRICS[target]))) if target != "numbers" else [],
        "data": chance.choice(["arrays", "arrays", "weights", "examples", "noisy", "list", "generator", "joined"]),
        "examples": chance.choice([size * 4, size * 5, size * 4 + 1, size * 6 - 1, size * 3 + 1]),
        "batch": chance.choice([size, size * 2, size * 2, size * 3]),
        "accumulate": chance.choice([1, 1, 1, 2, 3]),
        "averaged": chance.random() < 0.25,
        "validated": chance.random() < 0.4,
        "half": chance.random() < 0.12,
        "compile": chance.random() < 0.5,
        "resumed": chance.random() < 0.2,
        "epochs": chance.choice([1, 2, 3]),
        "penalised": kind in ("rows", "series", "images") and chance.random() < 0.1,
        "class_weight": target == "classes" and chance.random() < 0.2,
        "stopped": chance.random() < 0.1,
        "data_seed": chance.randrange(1 << 30),
    }  # fmt: skip
    if run["data"] == "noisy" and kind in ("tokens", "tied"):
        run["data"] = "examples"
    if "lazy" in run["optimizer"] and kind not in ("tokens", "tied"):
        run["optimizer"] = "nn.Adam(0.01)"
    if run["half"]:
        # A sum in half precision depends on its order, of which optimizers that divide by it make whole steps.
        # An accuracy is another one as soon as the order of two classes is.
        run["optimizer"], run["metrics"] = "nn.SGD(0.01)", []
        run["loss"] = run["loss"].replace(", reduction='sum'", "").replace("reduction='sum'", "")
    return run


def arrays_of(run: dict[str, Any]) -> tuple[Any, ...]:
    """Return the data of a run, and weights."""
    rng = np.random.default_rng(run["data_seed"])
    n = run["examples"]
    shape = {"rows": (n, 6), "images": (n, 6, 6, 2), "series": (n, 6, 3)}.get(run["kind"])
    x = rng.integers(0, 4, size=(n, 6)) if shape is None else rng.normal(size=shape)
    if run["target"] == "numbers":
        y: Any = rng.normal(size=(n, 2))
    elif run["target"] == "flags":
        y = rng.integers(0, 2, size=(n, 1)).astype("float64")
    else:
        y = rng.integers(0, 4, size=n)
        if run["target"] == "vectors":
            y = np.eye(4)[y]
    return x, y, rng.uniform(0.0, 2.0, size=n)


def batches(arrays: tuple[Any, ...], run: dict[str, Any], epoch: int) -> Iterator[tuple[Any, ...]]:
    """Yield the batches of an epoch, in an order of its own."""
    order = np.random.default_rng(epoch).permutation(run["examples"])
    for start in range(0, run["examples"], run["batch"]):
        yield tuple([array[order[start : start + run["batch"]]] for array in arrays])


def parts(arrays: tuple[Any, ...], run: dict[str, Any], epoch: int, strategy: Any) -> Iterator[Any]:
    """Yield the batches of `batches` that can be divided, each joined of what every process has."""
    m = strategy.mesh
    is_alone = strategy.data is None or getattr(m, "is_here", False)  # one process of JAX gives the whole
    along, k = (1, 0) if is_alone else (m.axes[strategy.data], m.coordinates[strategy.data])
    for batch in batches(arrays, run, epoch):
        if len(batch[0]) % run["along"] == 0:
            own = len(batch[0]) // along
            yield strategy.join(tuple([array[k * own : k * own + own] for array in batch]))


def trained(run: dict[str, Any], strategy: Any, folder: Path) -> tuple[Any, list[Any], Any]:
    """Return what a run has come to: its history, its weights, and what is predicted and evaluated with them."""
    x, y, weights = arrays_of(run)
    given = (x, y, weights) if run["data"] == "weights" else (x, y)
    data: Any = given
    along = 1
    if run["data"] in ("examples", "noisy"):
        data = Examples(given, run["data"] == "noisy")
    elif run["data"] == "list":
        data = list(batches(given, run, 0))
    elif run["data"] == "generator":
        data = lambda epoch: batches(given, run, epoch)  # noqa: E731
    elif run["data"] == "joined":
        along = run["along"]
        if strategy is None:
            data = lambda epoch: [b for b in batches(given, run, epoch) if len(b[0]) % along == 0]  # noqa: E731
        else:
            data = lambda epoch: parts(given, run, epoch, strategy)  # noqa: E731
    is_cut = run["data"] in ("arrays", "weights", "examples", "noisy")

    def once(epochs: int) -> tuple[Any, Any]:
        tc.set_seed(3)
        names = {"nn": nn, "tc": tc, "Residual": Residual, "Attention": Attention, "Tied": Tied}
        model = names["model"] = eval(run["model"], names)
        if run["half"]:
            model = nn.mixed_precision(model, "bfloat16")
        model(tc.asarray(x[:2]))
        options: dict[str, Any] = {}
        if run["averaged"]:
            options["average"] = nn.ExponentialMovingAverage(model, 0.8)
        if run["penalised"]:
            options["train_step"] = penalised
        if run["class_weight"]:
            options["class_weight"] = {0: 2.0, 2: 0.5}
        if run["stopped"]:
            options["callbacks"] = [nn.EarlyStopping("loss", restore_best=True)]
        if run["validated"]:
            options["validation"] = given
        if run["resumed"]:
            options["checkpoint"] = str(folder / (f"alone-{run['rank']}" if strategy is None else "parallel"))
        history = nn.fit(
            model, data, loss=eval(run["loss"], names), optimizer=eval(run["optimizer"], names), metrics=[eval(text, names) for text in run["metrics"]],
            batch_size=run["batch"] if is_cut else None, epochs=epochs, accumulate=run["accumulate"], compile=run["compile"], progress=False, parallel=strategy, **options,
        )  # fmt: skip
        return history, model

    if run["resumed"]:
        once(1)
    history, model = once(run["epochs"])
    loss = eval(run["loss"], {"nn": nn})
    found = [
        nn.predict(model, x, batch_size=run["batch"], parallel=strategy),
        nn.evaluate(model, given, loss=loss, batch_size=run["batch"], parallel=strategy)["loss"],
    ]
    whole = list(model.variables) if strategy is None else strategy.engine.full(list(model.variables))
    return history, [v.numpy() for v in whole], [np.asarray(value) for value in found]


def check(chance: random.Random, mesh: Callable[..., Any], size: int, folder: Path) -> None:
    """Draw a run and check it.

    Raises:
        AssertionError: it is another one on several.
    """
    run = drawn(chance, size)
    text = "\n".join([f"{name} = {value!r}" for name, value in run.items()])
    try:
        plan = lambda name, v: (None, "model") if v.ndim == 2 and v.shape[1] % 2 == 0 else ()  # noqa: E731
        strategy = eval(run["strategy"], {"nn": nn, "mesh": mesh, "plan": plan})
        run["rank"] = strategy.mesh.rank
        run["along"] = 1 if strategy.data is None else strategy.mesh.axes[strategy.data]
        try:
            expected = trained(run, None, folder)
        except (ValueError, TypeError):  # shapes do not go together, say, which has nothing to do with processes
            return
        try:
            found = trained(run, strategy, folder)
        except ValueError as error:
            if _IDLE in str(error):
                return
            raise
        _compare(found, expected, (3e-2, 3e-2) if run["half"] else (1e-6, 1e-7))
    except Exception as error:
        error.add_note(f"in the run\n{text}")
        raise


def _compare(found: Any, expected: Any, tolerance: tuple[float, float]) -> None:
    rtol, atol = tolerance
    assert list(found[0]) == list(expected[0]), f"results {list(found[0])}, not {list(expected[0])}"
    for name, values in expected[0].items():
        np.testing.assert_allclose(found[0][name], values, rtol, atol, err_msg=f"the history of {name}")
    for what, k in (("weights", 1), ("prediction and evaluation", 2)):
        for number, (one, other) in enumerate(zip(found[k], expected[k], strict=True)):
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=f"{what} {number}")


def main() -> None:
    """Draw runs and check each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", required=True, help="where all processes write checkpoints")
    parser.add_argument("--all", action="store_true", help="go on after a failure, and print it")
    options = parser.parse_args()
    backend = "jax" if os.environ.get("TAPE_BACKEND") == "jax" else "torch:cpu"
    tc.set_backend(backend)
    tc.set_default_dtype("float64")
    meshes: dict[str, Any] = {}

    def mesh(axes: dict[str, int]) -> Any:
        if str(axes) not in meshes:
            meshes[str(axes)] = nn.parallel.mesh(axes, device="cpu")
        return meshes[str(axes)]

    size = mesh({"data": -1}).size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(options.number):
            place = Path(options.folder) / str(options.seed + k)
            place.mkdir(exist_ok=True)
            try:
                check(random.Random(options.seed + k), mesh, size, place)
            except Exception as error:
                error.add_note(f"seed {options.seed + k} on {backend}")
                if not options.all:
                    raise
                traceback.print_exc()


if __name__ == "__main__":
    main()
