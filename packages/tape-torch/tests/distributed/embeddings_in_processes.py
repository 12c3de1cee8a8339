"""What test_embeddings.py runs in each of several processes: tables of which rows are looked up, against one process.

Warnings are errors: nothing is to be brought together.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import distribute, full, local, mesh
from tape_torch.divided_kernels import gathered
from torch.distributed.tensor.debug import CommDebugMode

warnings.simplefilter("error")
tc.set_backend("torch:cpu")
tc.set_default_dtype("float64")
m = mesh({"data": 2, "model": -1}, device="cpu")
rng = np.random.default_rng(0)
table = rng.normal(size=(8, 4))

# Values and gradients in each layout: few indices, and more than the table has rows, some from its end.
LAYOUTS = ((), ("data",), ("model",), (("data", "model"),), (None, "model"), ("model", "data"))
WAYS = {
    "gather": tc.gather,
    "take": lambda t, i: tc.take(t, i, axis=0),
    "getitem": lambda t, i: t[i],
    "take along 1": lambda t, i: tc.take(t, i % 4, axis=1),
}
for shape in ((4,), (4, 6)):
    indices, c = rng.integers(-8, 8, shape), rng.normal(size=(*shape, 4))
    batches = [(), ("data",), ("model",), *([("data", "model")] if len(shape) == 2 else [])]
    for k, (layout, batch, way) in enumerate(itertools.product(LAYOUTS, batches, WAYS if m.size == 4 else ())):
        where = (slice(None), indices % 4) if way == "take along 1" else indices
        by = np.moveaxis(c, -1, 0)[[0, 1, 2, 3] * 2] if way == "take along 1" else c
        t, i = distribute(tc.asarray(table), layout, mesh=m), distribute(tc.asarray(indices), batch, mesh=m)
        label = f"{way} {layout} {batch} {shape}"
        f = tc.function(WAYS[way]) if k % 16 == 0 else WAYS[way]
        with tc.GradientTape() as tape:
            tape.watch(t)
            y = f(t, i)
            target = tc.sum(y**2 * by)
        np.testing.assert_allclose(full(y).numpy(), table[where], 1e-12, err_msg=label)
        gradient = tc.asarray(tape.gradient(target, t))
        expected = np.zeros_like(table)
        np.add.at(expected, where, 2 * table[where] * by)
        np.testing.assert_allclose(full(gradient).numpy(), expected, 1e-12, 1e-12, err_msg=label)

# What is read of an axis that is not divided has a gradient on parts, too.
x = rng.normal(size=(4, 6, 3))
for key in (
    (slice(None), 0),
    (slice(None), slice(1, None, 2)),
    (..., -1),
    (slice(None), None, 2),
    (slice(None), -1, 1),
):
    for layout in (("data",), (("data", "model"),)):
        divided = distribute(tc.asarray(x), layout, mesh=m)
        gradient = tc.grad(lambda x, key=key: tc.sum(x[key] ** 3))(divided)
        assert gradient.array.placements == divided.array.placements
        expected = np.zeros_like(x)
        expected[key] = 3 * x[key] ** 2
        np.testing.assert_allclose(full(gradient).numpy(), expected, 1e-12)

# A vocabulary that is divided stays so: of its rows those that are looked up are added up, and no gradient is sent.
t = distribute(tc.Variable(table), ("model",), mesh=m)
i = distribute(tc.asarray([7, 0, 3, 3]), (), mesh=m)
with CommDebugMode() as sent, tc.GradientTape() as tape:
    target = tc.sum(tc.gather(t, i), axis=0)
    gradient = tape.gradient(target, t)
    nn.Adam(0.1).apply_gradients([(gradient, t)])
assert {str(op).split(".")[-1]: n for op, n in sent.get_comm_counts().items()} in ({"all_reduce": 1}, {}), sent
# Of two lookups of one table the gradients are joined where they are.
copied, batch = (
    distribute(tc.Variable(table), (), mesh=m),
    distribute(tc.asarray(np.arange(24).reshape(4, 6) % 8), ("data",), mesh=m),
)
with CommDebugMode() as sent, tc.GradientTape() as tape:
    target = tc.sum(tc.gather(copied, batch) ** 2, axis=2)
    gradient = tape.gradient((target, tc.gather(copied, batch[:, 0]) ** 3), copied)
assert isinstance(gradient, tc.IndexedSlices)
assert not sent.get_comm_counts(), sent
expected = np.zeros_like(table)
np.add.at(expected, np.arange(24) % 8, 2 * table[np.arange(24) % 8])
np.add.at(expected, np.arange(0, 24, 6) % 8, 3 * table[np.arange(0, 24, 6) % 8] ** 2)
np.testing.assert_allclose(full(gradient.densify()).numpy(), expected, 1e-12)
# An index that is out of bounds was a row of zeros here.
for wrong in (8, -9):
    with pytest.raises(IndexError, match=rf"index {wrong} is out of bounds for axis 0 with size 8"):
        tc.gather(t, distribute(tc.asarray([0, wrong]), (), mesh=m))

# The cross-entropy of logits whose classes are divided: three numbers of each example are sent, and not its logits.
logits, truth, c = rng.normal(size=(4, 3, 8)), rng.integers(0, 8, (4, 3)), rng.normal(size=(4, 3))
with tc.GradientTape() as tape:
    tape.watch(whole := tc.asarray(logits))
    target = tc.sum(tc.cross_entropy(whole, tc.asarray(truth)) * c)
expected = tape.gradient(target, whole).numpy()
for k, layout in enumerate(((None, None, "data"), ("data", None, "model"), (None, None, ("data", "model")))):
    divided, labels = distribute(tc.asarray(logits), layout, mesh=m), distribute(tc.asarray(truth), ("data",), mesh=m)
    loss = tc.function(tc.cross_entropy) if k == 0 else tc.cross_entropy
    with CommDebugMode() as sent, tc.GradientTape() as tape:
        tape.watch(divided)
        found = tc.sum(loss(divided, labels) * c)
        gradient = tape.gradient(found, divided)
    assert gradient.array.placements == divided.array.placements
    np.testing.assert_allclose(full(gradient).numpy(), expected, 1e-10, 1e-12, err_msg=str(layout))
    np.testing.assert_allclose(float(found), float(target), 1e-12)
    if layout == ("data", None, "model"):
        assert not [op for op in sent.get_comm_counts() if "gather" in str(op)], sent
with pytest.raises(ValueError, match=r"labels must be in \[0, 8\), got 0 to 8"):
    tc.cross_entropy(distribute(tc.asarray(logits[0, :2]), (None, "data"), mesh=m), tc.asarray([0, 8]))

# Training: the table in each layout, with optimizers that take rows as they are, as a whole, and clipped.
ids, labels = rng.integers(0, 12, (16, 5)), rng.integers(0, 3, 16)


class Network(nn.Module):
    """An embedding, of which a sum of rows is classified; of two lookups the gradients are added up."""

    def __init__(self) -> None:
        self.embedding, self.dense = nn.Embedding(12, 4), nn.Dense(3)

    def __call__(self, ids):
        return self.dense(tc.mean(self.embedding(ids), axis=1) + self.embedding(ids[:, 0]))


def train(layout, batch, optimizer, compiled=False, steps=2):
    tc.set_seed(0)
    model = Network()
    inputs, truth = tc.asarray(ids), tc.asarray(labels)
    model(inputs)
    if layout is not None:
        distribute(model, lambda name, v: layout if name.startswith("embedding") else (), mesh=m)
        inputs, truth = (distribute(a, batch, mesh=m) for a in (inputs, truth))

    def step(inputs, truth):
        with tc.GradientTape() as tape:
            loss = tc.mean(nn.losses.sparse_categorical_crossentropy(truth, model(inputs), from_logits=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.variables), model.variables, strict=True))
        return loss

    step = tc.function(step) if compiled else step
    losses = [float(step(inputs, truth)) for _ in range(steps)]
    if layout == ("data",):
        assert local(model.embedding.embeddings).shape == (6, 4)
    return losses, full(model.embedding.embeddings).numpy()


# In four processes each way to take a sparse gradient once, as starting each layout takes PyTorch long.
OPTIMIZERS = {
    "SGD": lambda: nn.SGD(0.1),
    "Adam": lambda: nn.Adam(0.1),
    "clipped": lambda: nn.Adam(0.1, global_clipnorm=0.1),
    "Adagrad": lambda: nn.Adagrad(0.1, clipnorm=0.1),
    "accumulated": lambda: nn.GradientAccumulation(nn.SGD(0.1), 2),
}
layouts = {
    2: (((), ("data",)), (("data",), ("data",)), (("data",), ()), ((None, "data"), ("data",))),
    4: ((("model",), ()), (("model",), ("data",)), ((None, "model"), ("data",))),
}[m.size]
for name, make in OPTIMIZERS.items():
    if m.size == 4 and name not in ("SGD", "Adam"):
        continue
    alone = train(None, None, make())
    for k, (layout, batch) in enumerate(layouts):
        compiled = name in ("Adam", "SGD") and k in (0, 1)
        losses, found = train(layout, batch, make(), compiled)
        np.testing.assert_allclose(losses, alone[0], rtol=1e-10, err_msg=f"{name} {layout} {batch}")
        np.testing.assert_allclose(found, alone[1], rtol=1e-8, atol=1e-10, err_msg=f"{name} {layout} {batch}")
assert not gathered, gathered

# Optimizers that move only rows that are named have to find them: the indices are brought together, and it is said.
warnings.simplefilter("ignore")
alone = train(None, None, nn.Adam(0.1, lazy=True))
for layout, batch in (((), ("data",)), (("data",), ("data",))):
    losses, found = train(layout, batch, nn.Adam(0.1, lazy=True))
    np.testing.assert_allclose(losses, alone[0], rtol=1e-10)
    np.testing.assert_allclose(found, alone[1], rtol=1e-8, atol=1e-10)
assert set(gathered) <= {"unique_inverse"}, gathered
