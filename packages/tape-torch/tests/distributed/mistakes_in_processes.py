"""What test_mistakes.py runs in each of two processes, whose user makes mistakes: each is one error, on both."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import (
    Mesh,
    all_gather,
    all_reduce,
    average_gradients,
    broadcast,
    create,
    distribute,
    failures,
    full,
    latest,
    load,
    mesh,
    save,
    storage,
)
from torch.distributed.device_mesh import DeviceMesh

tc.set_backend("torch:cpu")
folder = sys.argv[1]
for axes in ("data", ["data"], 2, {0: 2}):
    with pytest.raises(TypeError, match=r"axes are a number of processes by the name of each axis"):
        mesh(axes)
for device, told in (("gpu", "none of PyTorch's"), ("cpu:0", "name the kind, 'cpu'")):
    with pytest.raises(ValueError, match=told):
        mesh(device=device)
with pytest.raises(ValueError, match="timeout must be more than 0"):
    mesh(device="cpu", timeout=-1.0)
# Before they have met, each would save over what the other has saved, and watch nobody.
for act in (lambda: save(f"{folder}/unmet", {"w": tc.ones(2)}), lambda: failures.watched(timeout=9.0).__enter__()):
    with pytest.raises(RuntimeError, match=r"one of 2 processes, which have not met yet: call \S*mesh\(axes\) before"):
        act()
assert not os.path.exists(f"{folder}/unmet")
m = mesh({"data": -1}, device="cpu", timeout=40.0)
rank = m.rank
# The limit is that of the groups of all axes.
grid = mesh({"one": 1, "two": 2}, device="cpu")
for axis in (None, "one", "two"):
    assert failures.waits_of(grid.group(axis)) == timedelta(seconds=40), axis
with pytest.raises(ValueError, match=r"no axis 'dta'; its axes are 'data'; did you mean 'data'\?"):
    distribute(tc.ones((2,)), ("dta",), mesh=m)

# What is no mesh, and a mesh that only some processes are in: `prepare` and the like wait for all of them.
for act in (
    lambda: all_reduce(tc.ones(2), None),
    lambda: broadcast(tc.ones(2), nn.parallel.Replicated(m)),
    lambda: average_gradients([tc.ones(2)], m.device_mesh),
):
    with pytest.raises(TypeError, match=r"(all_reduce|broadcast|average_gradients): mesh must be a Mesh of tape_torch"):
        act()
with pytest.raises(ValueError, match="the DeviceMesh has 1 of 2 processes"):
    Mesh(DeviceMesh("cpu", [0], mesh_dim_names=("data",)))
assert Mesh(grid.device_mesh["one"]).axes == {"one": 1}

# -- arrays of two meshes

on_grid = distribute(tc.ones((4, 4)), (None, "two"), mesh=grid)
rows = distribute(tc.ones((4, 4)), ("data",), mesh=m)
for name, act in {
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x @ y,
    "concat": lambda x, y: tc.concat([x, y]),
    "where": lambda x, y: tc.where(x > 0.0, y, x),
}.items():
    for call in (act, tc.function(act)):
        with pytest.raises(ValueError, match=rf"in {name}: an array of shape \(4, 4\) .*another mesh.*Make one mesh"):
            call(rows, on_grid)
assert full(rows + distribute(on_grid, ("data",), mesh=m)).tolist() == [[2.0] * 4] * 4
# What each process has is as well a copy on the other mesh, whichever comes first.
for copied in (distribute(tc.ones((4, 4)), (), mesh=grid), tc.mean(on_grid)):
    for x, y in ((rows, copied), (copied, rows)):
        assert full(x * 2.0 + y).tolist() == [[3.0] * 4] * 4

# -- checkpoints

w = create(tc.zeros, (5000, 4), ("data",), mesh=m)
first = save(f"{folder}/a", {"w": w}, step=1, asynchronous=True)
second = save(f"{folder}/b", {"w": w}, step=2, asynchronous=True)
third = save(f"{folder}/a", {"w": w}, step=3, asynchronous=True)
assert load(f"{folder}/b").step == 2  # what is being written meanwhile sends nothing in between
assert [one.wait() for one in (first, second, third)][1:] == [latest(f"{folder}/b"), latest(f"{folder}/a")]
for act in (lambda: save(f"{folder}/{rank}", {"w": w}), lambda: load(f"{folder}/{rank}")):
    with pytest.raises(ValueError, match=r"'folder' is \S+/1 on process 1 and \S+/0 on process 0"):
        act()
with pytest.raises(TypeError, match=r"save: process 1: .* complex128"):
    save(f"{folder}/c", {"z": tc.ones((2,), dtype=tc.complex128 if rank else tc.float32)})

sync = storage.sync


def failing(error):
    def fail(path):
        if rank == 1:
            raise error
        sync(path)

    return fail


storage.sync = failing(OSError(28, "No space left on device"))
with pytest.raises(OSError, match=r"save: process 1: .*No space left"):
    save(f"{folder}/full", {"w": w})
begun = save(f"{folder}/full", {"w": w}, step=1, asynchronous=True)
begun.finish()
storage.sync = sync
if rank == 0:  # which is told; the other one is not
    with pytest.raises(OSError, match=r"process 1: .*No space left"):
        begun.wait()
with pytest.raises(OSError, match=r"process 1: .*the error of the save before"):
    save(f"{folder}/full", {"w": w}, step=2)
assert latest(f"{folder}/full") is None
assert save(f"{folder}/full", {"w": w}, step=3).path == latest(f"{folder}/full")
storage.sync = failing(KeyboardInterrupt())
with pytest.raises(KeyboardInterrupt if rank else RuntimeError):  # an interrupt is not swallowed
    save(f"{folder}/a", {"w": w}, step=4)
storage.sync = sync
assert load(f"{folder}/a").step == 3
save(f"{folder}/a", {"w": w}, step=5)
assert len(os.listdir(f"{folder}/a")) == 1

# -- models, arguments and data that differ

x = np.arange(64.0, dtype="float32").reshape(16, 4)


def network(width=8, layers=1):
    return nn.Sequential([*[nn.Dense(width) for _ in range(layers)], nn.Dense(1)])


def network_of(x):
    found = network()
    found(tc.asarray(x))
    return found


def fit(model=None, data=(x, x[:, :1]), **options):
    sizes = {} if callable(data) else {"batch_size": 8}
    given = {"optimizer": nn.SGD(0.001), "parallel": nn.parallel.Sharded(m), **sizes, **options}
    loss = given.pop("loss", nn.losses.MeanSquaredError())
    return nn.fit(model or network(), data, loss=loss, progress=False, **given)


def differing(text):
    """Return a context for what the processes give differently, of which both are told."""
    return pytest.raises(ValueError, match=rf"must give the same [\s\S]*{text}")


with differing(r"'layers.0.kernel' is \(4, 9\) float32 in \S* ?\S* on process 1 and \(4, 8\)"):
    fit(network(8 + rank))
with differing(r"'layers.2.kernel' is .* on process 1 and missing on process 0"):
    fit(network(4, 1 + rank))
with differing("'layers.0.kernel' is .* in .'data',. on process 1"):
    built = nn.Sequential([nn.Dense(4)])
    built.build((None, 4))
    distribute(built, ("data",) if rank else (), mesh=m)
with differing(r"'an array' is \(6, 2\) float32 in \(\) on process 1 and \(4, 2\)"):
    distribute(tc.ones((4 + 2 * rank, 2)), (), mesh=m)


class Scaled(nn.Module):
    """Has settings that all processes have, and others that each may have."""

    def __init__(self, factor, functions, seed):
        self.dense, self.factor, self.functions = nn.Dense(1), factor, functions
        self.seed = self.device = self._own = seed

    def __call__(self, x):
        for function in self.functions:
            x = function(x)
        return self.dense(x * self.factor)


# Models of one shape that compute something else: nothing that is sent would tell them apart.
relu_or_tanh = nn.Dense(4, activation="tanh" if rank else "relu")
for other, told in (
    (nn.Sequential([relu_or_tanh, nn.Dense(1)]), "'layers.0.activation' is tanh on process 1 and relu on process 0"),
    (nn.Sequential([nn.Dropout(0.1 * rank), nn.Dense(1)]), "'layers.0.rate' is 0.1 on process 1 and 0.0 on process 0"),
    (Scaled(1 + rank, [], 0), "'factor' is 2 on process 1 and 1 on process 0"),
    (Scaled(1, [tc.sin, tc.cos if rank else tc.tanh], 0), r"'functions' is .*cos.* on process 1 and .*tanh"),
):
    with differing(told):
        fit(other)
fit(Scaled(1, [tc.sin], rank))
with differing("'epochs' is 2 on process 1 and 1 on process 0"):
    fit(epochs=1 + rank)
with differing("'batch_size' is 8 on process 1 and 4 on process 0"):
    fit(batch_size=4 + 4 * rank)
with differing("'optimizer' is 'Adam' on process 1 and 'SGD' on process 0"):
    fit(optimizer=nn.Adam() if rank else nn.SGD())
with differing("'optimizer.learning_rate' is 0.2 on process 1 and 0.1 on process 0"):
    fit(optimizer=nn.SGD(0.1 + 0.1 * rank), parallel=nn.parallel.Replicated(m))
batches = [(x[:8], x[:8, :1])] * (2 + rank)
with differing("'batch 3' is there on process 1 and not there on process 0"):
    fit(data=lambda epoch: batches)
strategy = nn.parallel.Replicated(m)
with differing("'batch 3' is missing on process 1 and not there on process 0"):
    fit(data=lambda epoch: map(strategy.join, batches), parallel=strategy)


class Stop(nn.Callback):
    def on_epoch_end(self, run):
        if rank == 1:
            run.stop()


with differing("'stopped' is True on process 1 and False on process 0"):
    fit(epochs=3, callbacks=[Stop()])


class StopWithin(nn.Callback):
    def __init__(self, hook):
        setattr(self, hook, lambda run: run.stop() if rank == 1 else None)


# Between two batches, too: the others would wait for it in the next step.
for hook, where in (
    ("on_batch_end", "batch 1 of epoch 1"),
    ("on_batch_begin", "batch 1 of epoch 1"),
    ("on_epoch_begin", "batch 1 of epoch 1"),
    ("on_train_begin", "before the first epoch"),
):
    with pytest.raises(
        ValueError, match=rf"fit, {where}: [\s\S]*'stopped' is True on process 1 and False on process 0"
    ):
        # The other process need not have the callback at all.
        fit(epochs=3, callbacks=[StopWithin(hook)] if rank == 1 else [])


def stopping(run, batch):
    if rank == 1 and run.step == 1:
        run.stop()
    return nn.fitting.run.train_step(run, batch)


with pytest.raises(ValueError, match=r"fit, batch 2 of epoch 1: [\s\S]*'stopped' is True on process 1"):
    fit(epochs=3, train_step=stopping)
with pytest.raises(TypeError, match=r"loss: number must return a Tensor.*returned 1.0"):

    def number(y, predictions):
        return 1.0

    fit(loss=number)

# A loop without a seed: `prepare` makes random generators alike, so that dropout is that of one process, and all save.
tc.set_seed(rank)
model = nn.Sequential([nn.Dense(8), nn.Dropout(0.5)])
model.build((None, 4))
strategy.prepare(model)
dropped = full(model(strategy.divide(x), training=True))
assert all_gather(dropped, m).tolist() == dropped.tolist() * 2
nn.save_run(f"{folder}/run", model, step=1, parallel=m)
assert nn.load_run(f"{folder}/run", model, parallel=m).step == 1
tc.set_seed(rank)
with differing(r"'metadata tape_nn.run'[\s\S]*Random generators go on alike after strategy.prepare"):
    nn.save_run(f"{folder}/run", model, step=2, parallel=m)
tc.set_seed(0)
model = nn.parallel.Sharded(m).prepare(network_of(x))
for act in (lambda: model.save_weights(f"{folder}/w"), lambda: nn.save_run(f"{folder}/r", model)):
    with pytest.raises(ValueError, match="has only a part of the values") as caught:
        act()
    assert "strategy.save_weights(model, path)" in caught.value.__notes__[0]

# -- plain Variables beside divided data

for optimizer in (nn.SGD(0.1), nn.Adam(0.1, global_clipnorm=1.0), nn.LossScaler(nn.SGD(0.1))):
    plain = network()
    plain.build((None, 4))
    with tc.GradientTape() as tape:
        value = optimizer.scale_loss(tc.mean(plain(strategy.divide(x)) ** 2))
    gradients = tape.gradient(value, plain.trainable_variables)
    before = [v.tolist() for v in plain.variables]
    with pytest.raises(ValueError, match=r"gradient of 'kernel' is divided.*call strategy.prepare\(model\)"):
        optimizer.apply_gradients(zip(gradients, plain.trainable_variables, strict=True))
    assert before == [v.tolist() for v in plain.variables]

with pytest.raises(TypeError, match="'mean' is for floating-point arrays"):
    all_reduce(tc.asarray([1, 2]), m, reduction="mean")
with pytest.raises(ValueError, match=r"all_gather: an array of shape \(\) has no axis 0"):
    all_gather(tc.asarray(1.0), m)
with pytest.raises(ValueError, match="source=5, and there are 2 processes, counted from 0"):
    broadcast(tc.asarray(1.0), m, source=5)

# After all that they still compute together.
assert full(w + 1.0).tolist()[0] == [1.0] * 4


class Fail(nn.Callback):
    def on_batch_end(self, run):
        if rank == 1:
            raise KeyError("labels")


# A process that fails within `fit` is named by the other one.
begun = time.monotonic()
if rank == 1:
    with pytest.raises(KeyError, match="labels"):
        fit(epochs=3, callbacks=[Fail()])
    os._exit(3)
with pytest.raises(failures.PeerError, match="process 1 of 2 has failed: KeyError: 'labels'"):
    fit(epochs=3, callbacks=[Fail()])
assert time.monotonic() - begun < 100.0
print("done")  # noqa: T201
