"""What test_training.py runs in each of several processes: runs of `fit` against the same run in one process."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from runs_on_meshes import assert_same_run, attend, classify
from tape_torch.distributed import full, mesh

tc.set_backend("torch:cpu")
folder = sys.argv[1]
m = mesh({"data": -1}, device="cpu")
n = m.size
rng = np.random.default_rng(0)
X = rng.normal(size=(22, 8)).astype("float32")  # of the last batch, of 6, each of four processes has all
Y = (X[:, :1] > 0).astype("float32")


def network():
    return nn.Sequential(
        [
            nn.Dense(16, activation="relu"),
            nn.BatchNorm(),
            nn.Dropout(0.2),
            nn.Dense(8, activation="tanh"),
            nn.LayerNorm(),
            nn.Dense(1),
        ]
    )


def fit(strategy, **options):
    tc.set_seed(0)
    metrics = [nn.metrics.BinaryAccuracy(threshold=0.0), nn.metrics.AUC()]
    return classify(network(), (X, Y), strategy, metrics=metrics, validation=(X, Y), **options)


same = partial(assert_same_run, atol=1e-5)
alone = fit(None)
same(fit(nn.parallel.Replicated(m)), alone)
sharded = nn.parallel.Sharded(m)
same(fit(sharded, compile=True), alone)
_, _, model = fit(sharded)
kernel = model.layers[0].kernel
assert kernel.array.to_local().numel() == kernel.size // n  # this process has no more of it
same(fit(sharded, accumulate=2, averaged=True), fit(None, accumulate=2, averaged=True))

# Each process has seeds of its own: `fit` takes those of the first one. The best weights are in one whole file.
best = f"{folder}/best.safetensors"
tc.set_seed(m.rank)
model = network()
nn.fit(
    model, (X, Y), loss=nn.losses.BinaryCrossentropy(from_logits=True), optimizer=nn.Adam(0.01), batch_size=8, epochs=2,
    callbacks=[nn.SaveBest(best, "loss")], progress=False, parallel=sharded,
)  # fmt: skip
other = network()
other.build((None, 8))
other.load_weights(best)
for one, read in zip(model.variables, other.variables, strict=True):
    np.testing.assert_array_equal(full(one).numpy(), read.numpy(), err_msg=one.name)
with pytest.raises(FileNotFoundError if m.rank == 0 else OSError, match=r"no folder|process 0 could not write"):
    sharded.save_weights(model, f"{folder}/no/best.safetensors")

# What is computed of a divided model with whole data is that of one process.
loss, data = nn.losses.BinaryCrossentropy(from_logits=True), (X, Y)
for found, expected in (
    (nn.predict(model, X, batch_size=8, parallel=sharded), nn.predict(other, X, batch_size=8)),
    (nn.evaluate(model, data, loss=loss, parallel=sharded)["loss"], nn.evaluate(other, data, loss=loss)["loss"]),
):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-4, atol=1e-6)

# Interrupted after an epoch, and resumed.
fit(sharded, checkpoint=f"{folder}/run", epochs=1)
same(fit(sharded, checkpoint=f"{folder}/run"), alone)


# Of a data set each process loads the examples that it computes with, and of the last batch, of 6, all.
class Examples:
    def __init__(self):
        self.loaded = []

    def __len__(self):
        return len(X)

    def __getitem__(self, k):
        self.loaded.append(k)
        return X[k], Y[k]


def fit_examples(data, strategy, **options):
    tc.set_seed(0)
    model = network()
    model.build((None, 8))
    return classify(model, data, strategy, **options)


examples = Examples()
by_arrays = fit_examples((X, Y), None)
same(fit_examples(examples, sharded, epochs=1), fit_examples((X, Y), None, epochs=1))
expected = (16 // n if n == 4 else 22 // n) + (6 if n == 4 else 0) + 17  # the last are compared between processes
assert len(examples.loaded) == expected, (len(examples.loaded), expected)
same(fit_examples(Examples(), None), by_arrays)


# Loaders of PyTorch's that give each process its own part.
def own_parts(epoch):
    order = np.random.default_rng(epoch).permutation(16).reshape(2, n, -1)
    return (sharded.join((X[rows[m.rank]], Y[rows[m.rank]])) for rows in order)


def whole_batches(epoch):
    order = np.random.default_rng(epoch).permutation(16).reshape(2, -1)
    return ((X[rows], Y[rows]) for rows in order)


same(fit_examples(own_parts, sharded, batch_size=None), fit_examples(whole_batches, None, batch_size=None))
with pytest.raises(ValueError, match=r"same shapes of parts[\s\S]*on process 1 and[\s\S]*leave out what"):
    sharded.join(X[: 4 + m.rank])
with pytest.raises(
    ValueError,
    match=r"data: the processes must give the same examples[\s\S]*21 examples on process 1 and 20 examples",
):
    fit_examples((X[: 20 + m.rank % 2], Y[: 20 + m.rank % 2]), sharded)

# By columns and rows, and by heads; batches along the other axis.
grid = mesh({"data": n // 2, "model": 2}, device="cpu")
same(fit(nn.parallel.TensorParallel(grid)), alone)
both = nn.parallel.TensorParallel(grid, {"layers.0.kernel": (None, "model")}, sharded=True)
same(fit(both), alone)


# Of batches that the mesh does not divide the groups along one axis send parts of other lengths.
def odd_batches(epoch):
    return ((X[k : k + rows], Y[k : k + rows]) for k, rows in ((0, 9), (9, 5)))


odd = partial(fit_examples, odd_batches, batch_size=None)
same(odd(both, compile=True), odd(None))

attend = partial(attend, dropout=0.1, optimizer=nn.AdamW(0.01), batch_size=4)
same(attend(nn.parallel.TensorParallel(grid)), attend(None))

# Mistakes.
with pytest.raises(ValueError, match="the 3 heads of attention cannot be divided into 2 equal parts"):
    attend(nn.parallel.TensorParallel(grid), heads=3)
with pytest.raises(ValueError, match="Replicated: data='batch' is no axis of the mesh, whose axes are 'data'"):
    nn.parallel.Replicated(m, data="batch")
with pytest.raises(TypeError, match=r"parallel must be a strategy of nn\.parallel, such as Replicated"):
    fit(m)
with pytest.raises(ValueError, match=f"batch_size=7 cannot be divided into {n} equal parts, as the axis 'data'"):
    nn.fit(model, (X, Y), loss=nn.losses.MeanSquaredError(), optimizer=nn.Adam(), batch_size=7, parallel=sharded)
with pytest.raises(ValueError, match="there are no Variables yet"):
    sharded.prepare(network())
other = Y + 0.0
other[3] += float(m.rank == n - 1)  # one process has read another target
with pytest.raises(ValueError, match=r"must give the same examples") as caught:
    fit_examples((X, other), sharded)
told = str(caught.value)
assert f"'data[1]' is {tc.asarray(Y).dtype}" in told, told
assert told.count("on process") == 2, told
assert all(words in told for words in (f"on process {n - 1}", "drawn from one seed", "Sharded.join")), told
with pytest.raises(ValueError, match=rf"divide: all .*: rank {n - 1} has other values than rank 0") as caught:
    sharded.divide((X, other))
assert "strategy.join(batch)" in str(caught.value)
assert "of batch[1]" in caught.value.__notes__[0]
with pytest.raises(ValueError, match=r"in multiply: .*: rank 1 has float32 \(1,\), and rank 0 float32 \(8,\)"):
    tc.multiply(sharded.divide(X[:8, 0]), tc.ones(8 if m.rank != 1 else 1, dtype="float32"))
