"""What test_divided_arrays.py runs in each of several processes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import distribute, full, local, mesh

tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu")
n = m.size
data = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
x = distribute(data, ("data",), mesh=m)

# What is read of a sum is the whole sum, and not this process's summand.
total = float(data.sum())
assert float(tc.sum(x)) == pytest.approx(total, rel=1e-5)
assert tc.max(x).item() == data.max()
assert bool(tc.any(x == float(data.max())))
summed, most = tc.function(lambda x: (tc.sum(x), tc.max(x)))(x)
assert float(summed) == pytest.approx(total, rel=1e-5)
assert float(most) == data.max()

# Values, parts, and their texts.
assert np.array_equal(full(x).numpy(), data)
assert local(x).shape == (8 // n, 4)
assert "placements={'data': Shard(dim=0)}" in repr(x)
if n > 1:
    with pytest.raises(ValueError, match=r"rank \d has only a part .*full\(x\)"):
        x.numpy()

# Derivatives through `full` and `distribute`.
whole = tc.asarray(data)
with tc.GradientTape() as tape:
    tape.watch((x, whole))
    y = tc.sum(full(x) ** 2) + tc.sum(full(distribute(whole, ("data",), mesh=m)) ** 3)
by_part, by_whole = tape.gradient(y, (x, whole))
assert np.allclose(full(by_part).numpy(), 2 * data)
assert np.allclose(by_whole.numpy(), 3 * data**2, rtol=1e-5)

# A constant is a copy in each process, if it is the same.
assert np.allclose(full(x * np.arange(4.0, dtype="float32")).numpy(), data * np.arange(4.0))
if n > 1:
    with pytest.raises(ValueError, match=r"multiply.*the processes have different ones.*local=True"):
        x * np.full(4, float(m.rank), "float32")
    with pytest.raises(ValueError, match=r"the parts of an array differ: rank 0 gives shape \(1,\).*rank 1"):
        distribute(np.ones(1 + m.rank), ("data",), mesh=m, local=True)
    with pytest.raises(ValueError, match=r"cannot be divided into \d equal parts along its axis 0"):
        distribute(np.ones(n + 1), ("data",), mesh=m)
own = distribute(np.full(2, float(m.rank)), ("data",), mesh=m, local=True)
assert full(own).tolist() == [float(rank) for rank in range(n) for _ in range(2)]


def train(layout, compiled):
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(4)])
    model.build((None, 4))
    inputs = tc.asarray(data)
    if layout is not None:
        distribute(model, layout, mesh=m)
        inputs = x
    before = [getattr(v.array, "placements", None) for v in model.variables]
    optimizer = nn.Adam(0.01)

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - x) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.variables), model.variables, strict=True))
        return loss

    step = tc.function(step) if compiled else step
    losses = [float(step(inputs)) for _ in range(4)]
    assert [getattr(v.array, "placements", None) for v in model.variables] == before
    return losses, full(model.layers[0].kernel).numpy()


def columns(name, variable):
    return (None, "data") if len(variable.shape) == 2 else ()


alone, kernel = train(None, False)
for compiled in (False, True):
    for layout in ((), ("data",), columns):
        losses, found = train(layout, compiled)
        np.testing.assert_allclose(losses, alone, rtol=1e-5)
        np.testing.assert_allclose(found, kernel, rtol=1e-4, atol=1e-5)
print(json.dumps(alone))  # noqa: T201
