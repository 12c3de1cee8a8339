"""What test_collectives.py runs in each of several processes: derivatives against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
import torch
import torch.distributed as dist
from tape_torch.distributed import (
    all_gather,
    all_reduce,
    all_to_all,
    average_gradients,
    averaged_gradient,
    broadcast,
    distribute,
    mesh,
    reduce_scatter,
)
from tape_torch.distributed.collectives import means_in_group
from tape_torch.votes import COUNT

tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu")
r, n = m.rank, m.size
X = np.random.default_rng(0).normal(size=(n, 4, 6))
V = np.random.default_rng(1).normal(size=X.shape)
x, v = tc.asarray(X[r]), tc.asarray(V[r])

# Values.
values = {
    "sum": (all_reduce(x, m), X.sum(0)),
    "mean": (all_reduce(x, m, reduction="mean"), X.mean(0)),
    "max": (all_reduce(x, m, "data", reduction="max"), X.max(0)),
    "min": (all_reduce(x, m, reduction="min"), X.min(0)),
    "all_gather": (all_gather(x, m, along=1), np.concatenate(list(X), 1)),
    "reduce_scatter": (reduce_scatter(x, m, along=-1), np.split(X.sum(0), n, -1)[r]),
    "all_to_all": (
        all_to_all(x, m, split=0, concat=1),
        np.concatenate([np.split(X[k], n, 0)[r] for k in range(n)], 1),
    ),
    "broadcast": (broadcast(x, m, source=n - 1), X[n - 1]),
    "means_in_group": (
        means_in_group([x, x[:2]], m.group().group_name, n, labels=("", "")),
        np.concatenate([X.mean(0).ravel(), X.mean(0)[:2].ravel()]),
    ),
}
for name, (found, expected) in values.items():
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, err_msg=name)

functions = {
    "sum": lambda x: all_reduce(x, m),
    "mean": lambda x: all_reduce(x, m, reduction="mean"),
    "max": lambda x: all_reduce(x, m, reduction="max"),
    "all_gather": lambda x: all_gather(x, m, along=1),
    "reduce_scatter": lambda x: reduce_scatter(x, m),
    "all_to_all": lambda x: all_to_all(x, m, split=0, concat=1),
    "broadcast": lambda x: broadcast(x, m, source=n - 1),
    "means_in_group": lambda x: means_in_group([x, 2.0 * x[:2]], m.group().group_name, n, labels=("", "")),
}
eps = 1e-5
for name, f in functions.items():

    def loss(x, f=f):
        y = f(tc.sin(x))
        return tc.sum(y * y) * (1 + 0.1 * r)

    gradient = tc.grad(loss)
    g = gradient(x)
    # The gradient is that of the sum of all processes' losses.
    ahead, behind = (float(all_reduce(loss(tc.asarray(X[r] + s * V[r])), m)) for s in (eps, -eps))
    slope = float(all_reduce(tc.sum(g * v), m))
    assert slope == pytest.approx((ahead - behind) / (2 * eps), rel=1e-6), name
    # Forward mode is that of this process's own loss, when all move.
    ahead, behind = (float(loss(tc.asarray(X[r] + s * V[r]))) for s in (eps, -eps))
    assert float(tc.jvp(loss, (x,), (v,))[1]) == pytest.approx((ahead - behind) / (2 * eps), rel=1e-6), name
    # Forward over reverse.
    ahead, behind = (gradient(tc.asarray(X[r] + s * V[r])).numpy() for s in (eps, -eps))
    found = tc.jvp(gradient, (x,), (v,))[1].numpy()
    np.testing.assert_allclose(found, (ahead - behind) / (2 * eps), rtol=1e-5, atol=1e-6, err_msg=name)
    # Reverse over reverse: that all processes take part in each collective of both.
    second = tc.grad(lambda x, gradient=gradient: tc.sum(gradient(x) * v))(x)
    slope = float(all_reduce(tc.sum(second * v), m))
    assert slope == pytest.approx(float(all_reduce(tc.sum(tc.asarray(found) * v), m)), rel=1e-6), name
    # Compiled, and compiled under a tape.
    step = tc.function(gradient)
    for _ in range(2):
        np.testing.assert_allclose(step(x).numpy(), g.numpy(), rtol=1e-12, err_msg=name)
    compiled = tc.function(loss)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = compiled(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), g.numpy(), rtol=1e-12, err_msg=name)
    # In vmap: of each column as of all at once.
    mapped = tc.vmap(lambda c, f=f: f(tc.reshape(c, (4, 1))), in_axes=1, out_axes=1)
    if name != "all_gather":
        parts = [f(tc.reshape(x[:, k], (4, 1))).numpy() for k in range(6)]
        np.testing.assert_allclose(mapped(x).numpy(), np.stack(parts, 1), rtol=1e-12, err_msg=name)

# An effect: it stays, though nobody reads it, in each process.
unread = tc.function(lambda x: (all_reduce(x, m), x)[1])
unread(x)
assert "all_reduce" in unread.text()

# Averages of gradients, in one bucket and in many; a source may be unused here, or everywhere.
kernel = tc.Variable(np.full((6, 3), 0.1, "float32"))
bias = tc.Variable(np.zeros(3, "float32"))
first_only = tc.Variable(np.ones(2, "float32"))
unused = tc.Variable(np.ones(2, "float32"))
table = tc.Variable(np.ones((5, 6), "float32"))
variables = [kernel, bias, first_only, unused, table]


def local_loss(rank):
    x = tc.asarray(X[rank].astype("float32")) + tc.gather(table, tc.asarray([1, 1, 2, rank]))
    loss = tc.mean(tc.tanh(x @ kernel + bias) ** 2)
    return loss + tc.sum(first_only**2) if rank == 0 else loss


def local_gradients(rank):
    with tc.GradientTape() as tape:
        loss = local_loss(rank)
    return [None if g is None else tc.asarray(g).numpy() for g in tape.gradient(loss, variables)]


total = [
    None if all(g is None for g in gs) else sum(g for g in gs if g is not None) / n
    for gs in zip(*map(local_gradients, range(n)), strict=True)
]
sent = []
send = dist.all_reduce


def counted(flat, *args, **kwargs):
    sent.append(flat.numel() * flat.element_size())
    return send(flat, *args, **kwargs)


for size in (1 << 20, 60):
    sent.clear()
    dist.all_reduce = counted
    with tc.GradientTape() as tape:
        loss = local_loss(r)
    found = averaged_gradient(tape, loss, variables, m, bucket_bytes=size)
    dist.all_reduce = send
    # Each element once, as DistributedDataParallel sends them, and one for each gradient, and votes.
    assert len(sent) == (1 if size > 60 else 3)
    assert sum(sent) == 4 * (sum(v.size + 1 for v in variables) + COUNT * len(sent))
    for g, expected in zip(found, total, strict=True):
        assert (g is None) == (expected is None)
        if g is not None:
            np.testing.assert_allclose(g.numpy(), expected, rtol=1e-5, atol=1e-7)


@tc.function
def step(x):
    with tc.GradientTape() as tape:
        loss = tc.mean(tc.tanh(x @ kernel + bias) ** 2)
    return averaged_gradient(tape, loss, [kernel, bias], m)


x32 = tc.asarray(X[r].astype("float32"))
with tc.GradientTape() as tape:
    loss = tc.mean(tc.tanh(x32 @ kernel + bias) ** 2)
eager = average_gradients(tape.gradient(loss, {"k": kernel, "b": bias}), m)
for _ in range(2):
    k, b = step(x32)
    np.testing.assert_allclose(k.numpy(), eager["k"].numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(b.numpy(), eager["b"].numpy(), rtol=1e-5, atol=1e-7)

# Arrays of PyTorch's that are gathered by another kernel than its own.
kinds = [torch.tensor(1.5 + r), torch.tensor([1.0 + r, 2j]), torch.tensor([r == 0]), torch.ones(0, 3), torch.ones(2, 0)]
for part in kinds:
    own = torch.ops._c10d_functional.all_gather_into_tensor(part, n, m.group().group_name)
    each = [torch.empty_like(part) for _ in range(n)]
    dist.all_gather(each, part)
    expected = torch.cat(each) if part.ndim else torch.stack(each)
    assert torch.equal(torch.ops._c10d_functional.wait_tensor(own), expected)

# Mistakes.
with pytest.raises(ValueError, match="the mesh has no axis 'model'; its axes are 'data'"):
    all_reduce(x, m, "model")
with pytest.raises(ValueError, match="is none of 'sum', 'mean', 'max', 'min'"):
    all_reduce(x, m, reduction="prod")
with pytest.raises(ValueError, match="has no axis 3"):
    all_to_all(x, m, split=3)
with pytest.raises(TypeError, match=r"this one is divided among them .*full\(x\)"):
    all_reduce(distribute(np.ones(4), ("data",), mesh=m), m)
if n > 1:
    with pytest.raises(ValueError, match=r"axis 0 of an array of shape \(5,\) cannot be divided into"):
        reduce_scatter(np.ones(5), m)
    with pytest.raises(ValueError, match="source=7, and there are"):
        broadcast(x, m, source=7)
