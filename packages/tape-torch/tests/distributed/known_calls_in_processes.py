"""What test_known_calls.py runs in two processes: each call several times, from the third on by a shorter way."""

from __future__ import annotations

import itertools

import numpy as np
import tape_core as tc
import torch
from tape_core.backends import backend_of_type
from tape_core.support import wrap
from tape_torch import divided_kernels, divided_parts
from tape_torch.distributed import distribute, full, mesh
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

tc.set_backend("torch:cpu")
m = mesh({"data": 2}, device="cpu")
rng = np.random.default_rng(0)
TIMES = 4

long_ways = []
former = divided_kernels._call


def counted(name, *args):
    long_ways.append(name)
    return former(name, *args)


divided_kernels._call = counted


def spread(value, placement, on=m.device_mesh):
    if not isinstance(placement, Partial):
        return tc.asarray(distribute_tensor(value, on, [placement]))
    own = value / 4 if on.get_local_rank() == 0 else value * 3 / 4
    # As it is: `asarray` would add it up.
    return wrap(DTensor.from_local(own, on, [placement], run_check=False), backend_of_type(torch.Tensor))


# -- ops in all layouts, those of uneven parts and of summands among them, give the same, divided in the same way

ops = {
    "add": lambda x, y: x + y,
    "less": lambda x, y: x < y,
    "maximum": tc.maximum,
    "power": lambda x, y: tc.abs(x) ** y,
    "bias": lambda x, y: x + y[0],
    "matmul": lambda x, y: x @ tc.permute_dims(y, (1, 0)),
    "transposed": lambda x, y: tc.permute_dims(x, (1, 0)) @ y,
    "sum": lambda x, y: tc.sum(x, axis=0) + tc.sum(y, axis=1)[:5],
    "mean": lambda x, y: tc.mean(x) * tc.mean(y),
    "softmax": lambda x, y: tc.softmax(x, axis=1) - tc.softmax(y, axis=0),
    "reshape": lambda x, y: tc.reshape(x, (-1,)) * tc.reshape(y, (x.size,)),
    "numbers": lambda x, y: (x * 2 - 3.0) / 2 + y // 1,
    "like": lambda x, y: tc.ones_like(x) + tc.zeros_like(y),
    "broadcast_to": lambda x, y: tc.broadcast_to(tc.expand_dims(x, axis=0), (2, *x.shape)) * y,
    "flip": lambda x, y: tc.flip(x, axis=0) + tc.flip(y, axis=1),
    "cumulative_sum": lambda x, y: tc.cumulative_sum(x, axis=1) + y,
}
placements = [Replicate(), Shard(0), Shard(1), Partial()]
for shape in ((6, 5), (5, 5)):
    a, b = (torch.from_numpy(rng.normal(size=shape)) for _ in range(2))
    for (name, op), left, right in itertools.product(ops.items(), placements, placements):
        wanted = op(tc.asarray(a), tc.asarray(b))
        lies = None
        for k in range(3):
            x, y = spread(a, left), spread(b, right)
            found = op(x, y)
            case = f"{name} of {left} and {right} in call {k}"
            np.testing.assert_allclose(full(found).numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12, err_msg=case)
            spec = found.array._spec
            assert lies is None or lies == spec, (case, lies, spec)
            lies = spec

            def total(x, y, op=op):
                return tc.sum(tc.astype(op(x, y), "float64") ** 2)

            slopes = tc.grad(total, argnums=(0, 1), allow_unconnected=True)
            ours, theirs = slopes(x, y), slopes(tc.asarray(a), tc.asarray(b))
            for own, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(full(own).numpy(), other.numpy(), rtol=1e-10, atol=1e-10, err_msg=case)


# -- which take the shorter way: rows of a batch times a weight, and what is computed of each row

x = distribute(tc.asarray(rng.normal(size=(8, 4))), ("data",), mesh=m)
w, bias = (distribute(tc.Variable(rng.normal(size=shape)), (), mesh=m) for shape in ((4, 3), (3,)))


def loss_of(x):
    return tc.mean((tc.tanh(x @ w + bias) - 1.0) ** 2)


for k in range(TIMES):
    long_ways.clear()
    with tc.GradientTape() as tape:
        loss = loss_of(x)
    assert k < 2 or not long_ways, long_ways
    gradients = tape.gradient(loss, [w, bias])
    assert k < 2 or set(long_ways) <= {"laid_out_like"}, long_ways
    assert [type(g.array) for g in gradients] == [DTensor, DTensor]

# -- a shorter way is not taken where something else sees the calls, or would be computed

for _ in range(TIMES):
    with CommDebugMode() as sent:
        float(loss_of(x))
    assert sent.get_total_counts() == 1, sent.get_comm_counts()

for kind in (torch.float64, torch.bfloat16, torch.float64):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind is torch.bfloat16):
        narrow, table = (distribute(tc.asarray(np.ones((4, 4), "float32")), to, mesh=m) for to in (("data",), ()))
        for _ in range(TIMES):
            product = narrow @ table
            assert product.array.dtype is (torch.bfloat16 if kind is torch.bfloat16 else torch.float32)
            assert product.array._local_tensor.dtype is product.array.dtype

# A mesh that is like another one, but another object, is that of the results; at first PyTorch says the former one.
for _ in range(2):
    again = init_device_mesh("cpu", (2,), mesh_dim_names=("data",))
    for k in range(TIMES):
        y = spread(torch.ones((4, 4)), Shard(0), again)
        assert k < 2 or tc.exp(y).array.device_mesh is again
        assert full(tc.sum(tc.exp(y) @ y)).shape == ()

# PyTorch's autograd sees what is computed of arrays that it records.
raw = distribute_tensor(torch.ones((4, 4)), m.device_mesh, [Shard(0)])
for _ in range(TIMES):
    given = raw.detach().requires_grad_()
    found = divided_kernels.guard("exp", torch.exp)(given)
    assert found.requires_grad

# An integer array to an integer, and to a number: of each its own dtype.
whole = spread(torch.arange(1, 5), Shard(0))
for _ in range(TIMES):
    assert (whole * 2).array.dtype is torch.int64
    assert (whole * 2.0).array.dtype is torch.float32
    assert (whole > True).array.dtype is torch.bool
    np.testing.assert_array_equal(full(whole**2).numpy(), [1, 4, 9, 16])

# A compiled function gives a divided Variable a plain value, which is traced.
kept = distribute(tc.Variable(np.zeros(4)), ("data",), mesh=m)


@tc.function
def assigned(x):
    kept.assign(x * 2.0)


for k in range(TIMES):
    assigned(tc.asarray(np.full(4, float(k))))
    np.testing.assert_array_equal(full(kept).numpy(), np.full(4, 2.0 * k))

# Of more kinds of calls than are known at a time, all are forgotten, and known again.
divided_parts._KNOWN_MOST = 8
for power in range(2 * TIMES):
    assert full(tc.sum(tc.flip(x, axis=0) * 0.0 + power, axis=1)).tolist() == [4.0 * power] * 8
    for axis in range(2):
        full(tc.expand_dims(x, axis=axis))
        full(tc.sum(x, axis=axis, keepdims=bool(power % 2)))
for k in range(TIMES):
    long_ways.clear()
    _ = x @ w
    assert k < 2 or not long_ways, long_ways

# In PyTorch's mode for inference, and after it.
with torch.inference_mode():
    for _ in range(TIMES):
        found = x @ w + bias
np.testing.assert_array_equal(full(found).numpy(), full(x @ w + bias).numpy())
