"""What test_divided_arrays.py runs in each of several processes."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch
from tape_torch.distributed import create, distribute, full, local, mesh
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

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

# Gradients are laid out as their sources, also complex ones, sums of several, and of a target itself.
z = distribute(data * (1 + 2j), (None, "data"), mesh=m)
for source, columns in ((x, ("data",)), (z, (None, "data"))):
    like = distribute(data, columns, mesh=m)
    with tc.GradientTape() as tape:
        tape.watch(source)
        y = tc.sum(tc.abs(tc.sum(source, axis=0)) + tc.abs(tc.sum(distribute(source, (), mesh=m), axis=1)[:4]))
    found = tape.gradient([y, source], [source, source], output_gradients=[tc.ones(()), tc.ones_like(full(source))])
    assert [g.array.placements for g in found] == [like.array.placements] * 2

# Each process computes with its part, and with its copy, as it likes.
w = distribute(tc.Variable(np.ones((4, 3), "float32")), (), mesh=m)


def by_parts(x):
    return tc.sum(distribute(local(x) @ local(w), ("data",), mesh=m, local=True) ** 2)


for f in (by_parts, tc.function(by_parts)):
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    by_x, by_w = tape.gradient(y, (x, w))
    rows = data @ np.ones((4, 3), "float32")
    assert np.allclose(full(by_x).numpy(), 2 * rows @ np.ones((3, 4)), rtol=1e-4)
    assert np.allclose(by_w.numpy(), 2 * data.T @ rows, rtol=1e-4)

# A Variable takes plain values that are the same in each process, and stays in its layout.
w.assign(np.full((4, 3), 2.0, "float32"))
w.assign_add(tc.ones((4, 3)))
tc.function(lambda: w.assign_sub(np.ones((4, 3), "float32")))()
assert w.numpy().tolist() == np.full((4, 3), 2.0).tolist()
assert w.array.placements == distribute(data, (), mesh=m).array.placements
assert np.allclose(tc.function(lambda x: full(tc.sum(x, axis=0)))(x).numpy(), data.sum(0), rtol=1e-4, atol=1e-6)
if n > 1:
    with pytest.raises(ValueError, match=r"the new value of a Variable.*different ones"):
        w.assign(np.full((4, 3), float(m.rank), "float32"))
    with pytest.raises(ValueError, match="divided among processes"):
        np.from_dlpack(x)
    np.testing.assert_allclose(local(tc.sum(x, axis=0)).numpy(), data.sum(axis=0), rtol=1e-5)  # no summand
    with pytest.raises(ValueError, match=r"an array of shape \(8, 4\).*rank.*no axis 'modle'; its axes are 'data'"):
        distribute(data, ("modle",), mesh=m)
with pytest.raises(TypeError, match=r"distribute: mesh must be a Mesh of .*; make it tape_torch\.distributed\.Mesh"):
    distribute(data, ("data",), mesh=m.device_mesh)
with pytest.raises(TypeError, match=r"None, which is no layout: make it a tuple of the names of the mesh's axes"):
    distribute(data, None, mesh=m)

# A plain array has a gradient beside divided ones: its cotangents are plain ones and divided ones.
plain = tc.asarray(data)
beside = {
    "plain first": lambda x, w: (tc.sum(tc.sin(x)), tc.sum(tc.sin(x) * w)),
    "divided first": lambda x, w: (tc.sin(x) * w, tc.exp(x)),
    "a sum of both": lambda x, w: tc.sum(tc.sin(tc.exp(x))) + tc.sum(tc.sin(w)),
    "calls of one shape": lambda x, w: (tc.sin(x * w), tc.exp(x), tc.tanh(x)),
    "divided unused": lambda x, w: tc.sum(tc.sin(tc.tanh(x))) + tc.sum(tc.zeros_like(w)),
}


def both_derivatives(f, x, w):
    def total(x, w):
        return sum([tc.sum(y) for y in tc.tree_leaves(f(x, w))])

    with tc.GradientTape() as tape:
        tape.watch((x, w))
        y = f(x, w)
    first = tape.gradient(y, (x, w), unconnected_gradients="zero")
    seeded = tc.vjp(total, x, w)[1](tc.ones(()))
    return first, seeded, tc.hvp(total, (x, w), (tc.cos(x), tc.cos(w)), allow_unconnected=True)


for name, f in beside.items():
    expected = tc.tree_leaves(both_derivatives(f, plain, tc.asarray(data)))
    eager = functools.partial(both_derivatives, f)
    for way in (eager, *[tc.function(eager)] * (5 if name == "calls of one shape" else 0)):
        for found, one in zip(tc.tree_leaves(way(plain, x)), expected, strict=True):
            np.testing.assert_allclose(full(found).numpy(), one.numpy(), 2e-5, 1e-5, err_msg=name)

# So it has as a single element of a column, which PyTorch views as no bytes: its stride is that of the matrix.
np.testing.assert_allclose(full(x * tc.asarray(data)[:1, 0]).numpy(), data * data[:1, 0], 1e-6)

# What tells about a program tells about the layouts.
with tc.GradientTape(debug=True) as tape:
    y = tc.sum(tc.tanh(x) @ w)
assert "matmul -> float32[8, 3] placements={'data': Shard(dim=0)}" in str(tape.explain(y, w))
assert "dtype float32, placements={'data': Replicate()}" in str(tape.explain(y, w))
model = nn.Sequential([nn.Dense(2)])
model.build((None, 4))
distribute(model, ("data",), mesh=m)
assert "kernel (4, 2) placements={'data': Shard(dim=0)}" in str(model.summary())
other = {name: np.ones(value.shape, "float32") for name, value in model.state_dict().items()}
model.load_state_dict(other)
assert full(model.layers[0].kernel).numpy().tolist() == other["layers.0.kernel"].tolist()
assert "Shard(dim=0)" in repr(model.layers[0].kernel)
# Another layout of a divided value: nobody gets more than it needs, and the gradient is laid out as the value was.
with tc.GradientTape() as tape:
    tape.watch(x)
    columns_of_x = distribute(x, (None, "data"), mesh=m)
    y = tc.sum(columns_of_x**3) + tc.sum(distribute(x, (), mesh=m) ** 2)
assert local(columns_of_x).shape == (8, 4 // n)
gradient = tape.gradient(y, x)
assert gradient.array.placements == x.array.placements
assert np.allclose(full(gradient).numpy(), 3 * data**2 + 2 * data, rtol=1e-5)

# Arrays that are made divided have the numbers of one process, and each process makes its part.
for layout in (("data",), (None, "data"), ()):
    for draw in ("uniform", "normal", "truncated_normal"):
        made = create(getattr(tc.default_rng(3), draw), (8, 4, 3), layout, mesh=m)
        np.testing.assert_allclose(
            full(made).numpy(), getattr(tc.default_rng(3), draw)((8, 4, 3)).numpy(), rtol=1e-5, atol=1e-6
        )
    made = create(lambda shape: tc.default_rng(3).integers(0, 9, shape), (4, 4), layout, mesh=m)
    assert full(made).tolist() == tc.default_rng(3).integers(0, 9, (4, 4)).tolist()
made = create(tc.full, (8, 4), ("data",), 2.0, mesh=m)
assert local(made).shape == (8 // n, 4)
assert float(tc.sum(made)) == 64.0
if n > 1:
    with pytest.raises(ValueError, match=r"the random generator of rank \d has another state"):
        create(tc.default_rng(m.rank).normal, (8, 4), ("data",), mesh=m)
    with pytest.raises(ValueError, match="create: what zeros makes of shape"):
        create(tc.zeros, (2 * n + 1,), ("data",), mesh=m)

# A constant is a copy in each process, if it is the same.
assert np.allclose(full(x * np.arange(4.0, dtype="float32")).numpy(), data * np.arange(4.0))
if n > 1:
    with pytest.raises(ValueError, match=r"multiply.*the processes have different ones.*local=True"):
        x * np.full(4, float(m.rank), "float32")
    with pytest.raises(ValueError, match=r"is \(2,\).* on process 1 and \(1,\).* on process 0[\s\S]*Pad the shorter"):
        distribute(np.ones(1 + m.rank), ("data",), mesh=m, local=True)
    uneven = nn.Sequential([nn.Dense(n + 1)])
    uneven.build((None, 4))
    told = rf"{n} equal parts along its axis 1, as .*Shard\(dim=1\).*; pad it to a length of {2 * n}, .*rank {m.rank}"
    with pytest.raises(ValueError, match=rf"layers.0.kernel of shape \(4, {n + 1}\) cannot be divided into {told}"):
        distribute(uneven, lambda name, v: (None, "data") if name.endswith("kernel") else (), mesh=m)
    with pytest.raises(
        ValueError, match=rf"batch.*shape \({n + 1},\) cannot be divided into \d equal parts along its axis 0"
    ):
        distribute({"batch": np.ones(n + 1)}, ("data",), mesh=m)
own = distribute(np.full(2, float(m.rank)), ("data",), mesh=m, local=True)
assert full(own).tolist() == [float(rank) for rank in range(n) for _ in range(2)]


# In derivatives, too, what users give as plain arrays is a copy in each process, if it is the same, and else an error.
@tc.custom_gradient
def doubled(x, by):
    return x * 2, lambda g: (g * by, None)


@tc.custom_gradient
def constant(x, by):
    return x * 2, lambda g: (by, None)


@tc.custom_jvp
def pushed(x, by):
    return x * 2


@pushed.defjvp
def push(primals, tangents):
    return pushed(*primals), tangents[0] * primals[1]


def gradient_of(f, x, output_gradients=None):
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, output_gradients)


ways = {
    "output_gradients": lambda x, by: gradient_of(tc.exp, x, by),
    "output_gradients of a sum": lambda x, by: gradient_of(lambda x: tc.sum(x, axis=0), x, by[0]),
    "vjp": lambda x, by: tc.vjp(tc.sin, x)[1](by)[0],
    "vjp in vmap": lambda x, by: tc.vmap(lambda by: tc.vjp(tc.sin, x)[1](by)[0])(tc.stack([by, by]))[1],
    "jvp": lambda x, by: tc.jvp(lambda x: tc.sum(x**2, axis=1), (x,), (by,))[1],
    "custom_gradient": lambda x, by: gradient_of(lambda x: doubled(x, by) + x**2, x),
    "custom_gradient of constants": lambda x, by: gradient_of(lambda x: constant(x, by) + x**2, x),
    "custom_jvp": lambda x, by: gradient_of(lambda x: pushed(x, by) + x**2, x),
    "full": lambda x, by: gradient_of(lambda x: full(x) * by, x),
    "full beside divided": lambda x, by: gradient_of(lambda x: full(x) * x * by, x),
}
for name, f in ways.items():
    by, other = (np.linspace(0.5, 2.0, 32, dtype="float32").reshape(8, 4) * k for k in (1, 1 + m.rank))
    expected = f(tc.asarray(data), tc.asarray(by))
    for way in (f, tc.function(f)):
        np.testing.assert_allclose(full(way(x, tc.asarray(by))).numpy(), expected.numpy(), 2e-5, 1e-5, err_msg=name)
        if n > 1:
            with pytest.raises(ValueError, match=r"a plain array of shape .*the processes have different ones"):
                way(x, tc.asarray(other))
by_copy = gradient_of(lambda w: tc.sum(local(w)[:, 0] * x), distribute(tc.ones((4, 2)), (), mesh=m))
np.testing.assert_allclose(full(by_copy).numpy(), np.stack([data.sum(0), 0 * data[0]], 1), rtol=1e-5, atol=1e-5)

# A DTensor of PyTorch's that is still a sum is added up where it comes in: rules compute with what ops were given.
summed = tc.asarray(DTensor.from_local(torch.tensor(data) / n, m.device_mesh, [Partial()]))
assert not any(p.is_partial() for p in summed.array.placements)
np.testing.assert_allclose(
    gradient_of(tc.hard_silu, summed).numpy(), gradient_of(tc.hard_silu, tc.asarray(data)).numpy(), 1e-5, 1e-6
)


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
# Functions of products that are sums over processes, whose derivatives PyTorch would take of each term.
rows, columns = np.random.default_rng(1).normal(size=(4, 6)), np.random.default_rng(2).normal(size=(6, 3))
for function in (tc.special.erfcx, tc.hard_silu, tc.relu6, tc.tanh):

    def total_of(a, b, function=function):
        return tc.sum(function(a @ b) ** 2)

    by_rows = tc.grad(total_of)(tc.asarray(rows), tc.asarray(columns))
    parts = distribute(rows, (None, "data"), mesh=m), distribute(columns, ("data",), mesh=m)
    np.testing.assert_allclose(full(tc.grad(total_of)(*parts)).numpy(), by_rows.numpy(), rtol=1e-10, atol=1e-12)

# Reductions along either axis, of one that is divided: of few rows, and with the axis kept.
for shape in ((1, 4), (4, 4), (n, 8, 4)):
    numbers = np.random.default_rng(3).normal(size=shape)
    for divided in [k for k, length in enumerate(shape) if length % n == 0]:
        spread = distribute(numbers, (None,) * divided + ("data",), mesh=m)
        for reduce in (tc.logsumexp, tc.argmax, tc.argmin, tc.max, tc.std):
            for axis in range(-len(shape), len(shape)):
                for keepdims in (False, True):
                    one, other = (full(reduce(x, axis=axis, keepdims=keepdims)) for x in (spread, tc.asarray(numbers)))
                    case = f"{reduce.__name__} of {shape}, divided along {divided}: {axis=}, {keepdims=}"
                    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12, err_msg=case, strict=True)

# Arrays of which processes have different numbers of rows, as PyTorch makes some, are reshaped.
numbers = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
grid = mesh({"data": 1, "model": -1}, device="cpu").device_mesh
uneven = tc.asarray(distribute_tensor(numbers, grid, [Shard(0), Shard(0)]))
for shape in ((12,), (6, 2), (3, 2, 2), (2, 6), (-1,)):
    whole, cubes = (full(tc.reshape(f(uneven), shape)).numpy() for f in (tc.positive, lambda x: x**3))
    np.testing.assert_array_equal(whole, numbers.reshape(shape).numpy())
    np.testing.assert_array_equal(cubes, whole**3)
    slopes = tc.grad(lambda x, shape=shape: tc.sum(tc.reshape(x, shape) ** 3))(uneven)
    np.testing.assert_allclose(full(slopes).numpy(), 3 * numbers.numpy() ** 2)

print(json.dumps(alone))  # noqa: T201

# Gradients that nobody reads: what was sent for them is not kept.
registered = torch._C._distributed_c10d._get_work_registry_size
w, x = distribute(tc.Variable(np.ones((4, 2))), (), mesh=m), distribute(np.ones((8, 4)), ("data",), mesh=m)
left = []
for _ in range(4):
    with tc.GradientTape() as tape:
        loss = tc.mean((x @ w) ** 2)
    tape.gradient(loss, w)
    left.append(registered())
assert left[-1] <= left[0], left
