"""What test_together.py runs in four processes: eager steps whose gradients are sent, and used, together."""

from __future__ import annotations

import warnings

import numpy as np
import tape_core as tc
import tape_nn as nn
import torch
from tape_torch import divided_weights
from tape_torch.distributed import distribute, full, mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

tc.set_backend("torch:cpu")
line = mesh({"data": 4}, device="cpu")
grid = mesh({"data": 2, "model": 2}, device="cpu")
rng = np.random.default_rng(0)


def values(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


# -- gradients of arrays in many layouts, and of several dtypes, are those of one process, laid out as the sources

x = values(8, 12)
shapes = {
    "rows": (12, 8), "uneven": (12, 6), "vector": (8,), "narrow": (12, 8), "copy": (12, 5), "columns": (12, 8),
    "number": (),
}  # fmt: skip
given = {name: values(*shape) for name, shape in shapes.items()}
layouts = {
    "line": (line, {"rows": ("data",), "vector": ("data",), "columns": (None, "data")}),
    "grid": (grid, {"rows": ("data", "model"), "columns": (None, "model"), "vector": ("model",), "narrow": ("data",)}),
    "both": (grid, {"rows": (("data", "model"),), "columns": (("data", "model"),), "vector": ("data",)}),
}


def divided(v, name, m, layout):
    if name == "uneven" and m is line:  # which `distribute` refuses, and PyTorch makes
        array = distribute_tensor(v.array, m.device_mesh, [Shard(1)])
        return tc.Variable(tc.asarray(array))
    return distribute(v, layout.get(name, ()), mesh=m)


def loss_of(w, x):
    hidden = tc.tanh(x @ w["rows"] + w["vector"])
    narrow = tc.astype(tc.astype(x, "float32") @ w["narrow"], "float64")
    return (
        tc.mean(hidden * (x @ w["columns"]) * w["number"])
        + tc.mean((x @ w["uneven"]) ** 2)
        + tc.mean(narrow * hidden)
        + tc.sum(x @ w["copy"])
    )


def dtype_of(name):
    return "float32" if name == "narrow" else "float64"


def gradients(m, layout, *, twice=False):
    w = {name: tc.Variable(tc.asarray(value, dtype=dtype_of(name))) for name, value in given.items()}
    batch = tc.asarray(x)
    if m is not None:
        w = {name: divided(v, name, m, layout) for name, v in w.items()}
        batch = distribute(batch, ("data",), mesh=m)
    with tc.GradientTape() as tape:
        loss = loss_of(w, batch)
        middle = w["rows"] * 2.0
        loss = loss + (loss_of({**w, "rows": middle}, batch) if twice else tc.sum(middle))
    sources = [*w.values(), middle, *w.values()] if twice else [*w.values()]
    return sources, tape.gradient(loss, sources)


for twice in (False, True):
    _, alone = gradients(None, {}, twice=twice)
    for label, (m, layout) in layouts.items():
        sources, found = gradients(m, layout, twice=twice)
        for k, (source, g, expected) in enumerate(zip(sources, found, alone, strict=True)):
            assert (g.dtype, g.shape) == (expected.dtype, expected.shape)
            assert tuple(g.array.placements) == tuple(source.array.placements), (label, k, g.array.placements)
            assert g.array.to_local().shape == source.array.to_local().shape
            tolerance = 1e-4 if g.dtype == tc.float32 else 1e-11
            np.testing.assert_allclose(
                full(g).numpy(), expected.numpy(), rtol=tolerance, atol=tolerance, err_msg=f"{label} {k}"
            )

# -- optimizers' steps of parts are those of whole arrays

makers = {
    "adam": lambda: nn.Adam(0.1, amsgrad=True),
    "clipped": lambda: nn.AdamW(0.1, global_clipnorm=0.01),
    "each": lambda: nn.Adam(0.1, clipnorm=0.01),
    "values": lambda: nn.SGD(0.1, momentum=0.9, clipvalue=0.01),
    "adagrad": lambda: nn.Adagrad(0.1),
}


def trained(make, m, layout):
    w = {name: tc.Variable(tc.asarray(given[name])) for name in ("rows", "uneven", "vector", "number")}
    w["turned"] = tc.Variable(tc.asarray(given["columns"]).mT)
    if m is not None:
        w = {name: divided(v, name, m, layout) for name, v in w.items()}
    before = {name: v.array.placements for name, v in w.items()} if m is not None else {}
    optimizer = make()
    for _ in range(3):
        with tc.GradientTape() as tape:
            loss = sum(tc.sum((v - 1.0) ** 2) for v in w.values())
        optimizer.apply_gradients(zip(tape.gradient(loss, list(w.values())), w.values(), strict=True))
    assert all(v.array.placements == before[name] for name, v in w.items() if before)
    return {name: full(v).numpy() if m is not None else v.numpy() for name, v in w.items()}


for label, make in makers.items():
    expected = trained(make, None, {})
    for m, layout in layouts.values():
        found = trained(make, m, {**layout, "turned": ("data",)})
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, err_msg=f"{label} {name}")

# -- a step of small layers has few collectives, and its loss is that of the whole batch


def step_of(strategy):
    model = nn.Sequential([nn.Dense(16, activation="tanh") for _ in range(3)])
    model.build((None, 16))
    strategy.prepare(model)
    batch = strategy.divide(tc.asarray(values(8, 16, dtype="float32")))
    optimizer = nn.Adam(0.01)

    def step():
        with tc.GradientTape() as tape:
            loss = tc.mean((model(batch) - 1.0) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return float(loss)

    return step, model


for strategy, most in ((nn.parallel.Replicated(line), 2), (nn.parallel.Sharded(line), 3)):
    step, model = step_of(strategy)
    first = step()
    with CommDebugMode() as counted:
        step()
    assert counted.get_total_counts() <= most, counted.get_comm_counts()
    assert step() < first
    assert not any(type(p) is Partial for v in model.variables for p in v.array.placements)
    kinds = {type(p) for v in model.trainable_variables for p in v.array.placements}
    assert kinds == {Replicate} if type(strategy) is nn.parallel.Replicated else Shard in kinds


# -- weights that are gathered together are those of now


class Tied(nn.Module):
    """Layers of which one multiplies by the transpose of another's kernel, and uses each several times."""

    def __init__(self) -> None:
        self.first = nn.Dense(16, activation="tanh")
        self.second = nn.Dense(16)

    def __call__(self, x):
        for _ in range(2):
            x = self.second(self.first(x)) @ self.first.kernel.mT
        return x + self.second.bias


batch, other = values(8, 16, dtype="float32"), values(16, 16, dtype="float32")


def followed(strategy):
    tc.set_seed(1)
    model = Tied()
    x = tc.asarray(batch)
    model(x)
    if strategy is not None:
        strategy.prepare(model)
        x = strategy.divide(x)
    optimizer, found = nn.Adam(0.01), []
    for k in range(4):
        with tc.GradientTape() as tape:
            y = model(x)
            loss = tc.mean((y - 1.0) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        found += [float(loss), model(x)]
        if k == 1:
            model.first.kernel.assign(other)
            found.append(model(x))
        if k == 2:  # written by somebody who looks behind the arrays
            with torch.no_grad():
                part = model.second.bias.array
                (part if strategy is None else part.to_local()).add_(0.5)
            found.append(model(x))
    return [y if isinstance(y, float) else (y if strategy is None else full(y)).numpy() for y in found]


expected = followed(None)
for room in (None, 2048, 1024, 64):
    if room is not None:
        divided_weights.GATHERED_KEPT_BYTES = room
    for strategy in (nn.parallel.Sharded(line), nn.parallel.Sharded(grid), nn.parallel.Replicated(line)):
        for k, (y, value) in enumerate(zip(followed(strategy), expected, strict=True)):
            np.testing.assert_allclose(y, value, rtol=1e-4, atol=1e-5, err_msg=f"{room} {strategy} {k}")

# -- kernels of convolutions are gathered, and the batch is not: each process computes with its examples

images, targets = values(8, 6, 6, 2, dtype="float32"), values(8, 4, dtype="float32")


def convolved(strategy, compiled):
    tc.set_seed(0)
    model = nn.Sequential([nn.Conv2D(4, 3), nn.BatchNorm(), nn.Conv2D(8, 2), nn.Flatten(), nn.Dense(4)])
    model(tc.asarray(images))
    batch = tc.asarray(images), tc.asarray(targets)
    if strategy is not None:
        strategy.prepare(model)
        batch = strategy.divide(batch)

    def step(x, y):
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x, training=True) - y) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    optimizer = nn.SGD(0.05)
    run = tc.function(step) if compiled else step
    return [float(run(*batch)) for _ in range(6)]


alone = convolved(None, False)
with warnings.catch_warnings():
    warnings.simplefilter("error")  # of ops that are computed in each process on the whole arrays
    for compiled in (False, True):
        np.testing.assert_allclose(convolved(nn.parallel.Sharded(line), compiled), alone, rtol=1e-4)
    # What is indexed in a compiled function is noted in arrays of another class, which are no numbers to be copied.
    warnings.filterwarnings("ignore", message="PyTorch cannot divide scatter")
    places = distribute(np.asarray([0, 1, 2, 0]), (), mesh=line)
    chosen = tc.function(tc.grad(lambda x: tc.mean(tc.sin(tc.take_along_axis(x, places[:, None], axis=1)))))
    for k in range(6):
        full(chosen(distribute(tc.ones((4, 3)) * k, ("data",), mesh=line)))
