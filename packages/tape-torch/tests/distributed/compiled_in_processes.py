"""What test_compiled_parts.py runs in each of several processes: compiled functions of divided arrays, many times."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch import divided_schedule
from tape_torch.distributed import distribute, full, local, mesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

tc.set_backend("torch:cpu")
tc.set_default_dtype(tc.float64)
m = mesh({"data": -1}, device="cpu")
n = m.size
rng = np.random.default_rng(0)
data = rng.normal(size=(8, 4))


class Calls(TorchDispatchMode):
    """Counts what PyTorch is asked for: calls on DTensors, and collectives by name."""

    def __init__(self):
        super().__init__()
        self.on_dtensors = 0
        self.sent = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            self.on_dtensors += 1
            return NotImplemented
        if "c10d" in func.namespace:
            self.sent[func._schema.name.partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


def close(found, expected, what):
    scale = 1 + float(np.max(np.abs(expected)))
    np.testing.assert_allclose(found, expected, atol=1e-11 * scale, err_msg=what)


def run(function, *args, times=6):
    """Call a compiled function several times; return its last results, whole, and what was called for them."""
    for _ in range(times):
        calls = Calls()
        with calls:
            found = function(*args)
    return [full(one).numpy() for one in tc.tree_leaves(found)], calls


# Values and derivatives, of arrays in every layout; a number of Python's that is another one in each call.
def several(x, w, b):
    y = tc.tanh(x @ w + b)
    return tc.sum(y, axis=0), tc.softmax(y), x[2:6] * 2.0, tc.matrix_transpose(y) @ y, tc.mean(y)


w, b = rng.normal(size=(4, 6)), rng.normal(size=6)
expected = [one.numpy() for one in several(tc.asarray(data), tc.asarray(w), tc.asarray(b))]
expected_gradients = [
    g.numpy()
    for g in tc.grad(lambda x, w, b: sum(tc.sum(one**2) for one in several(x, w, b)), argnums=(0, 1, 2))(
        tc.asarray(data), tc.asarray(w), tc.asarray(b)
    )
]
for layouts in ((("data",), (), ()), ((), (None, "data"), ("data",)), ((None, "data"), ("data",), ()), ((), (), ())):
    given = [distribute(tc.asarray(v), to, mesh=m) for v, to in zip((data, w, b), layouts, strict=True)]
    found, _ = run(tc.function(several), *given)
    for one, other in zip(found, expected, strict=True):
        close(one, other, f"values of {layouts}")
    whole = tc.grad(lambda x, w, b: sum(tc.sum(one**2) for one in several(x, w, b)), argnums=(0, 1, 2))
    found, _ = run(tc.function(whole), *given)
    for one, other in zip(found, expected_gradients, strict=True):
        close(one, other, f"gradients of {layouts}")

# Of a weight that is much larger than what it is multiplied by, either may be sent.
for rows_of_batch in (2 * n, 64 * n):
    wide, narrow = rng.normal(size=(96, 64)), rng.normal(size=(rows_of_batch, 96))
    for layout in (("data",), (None, "data")):
        given = distribute(tc.asarray(narrow), ("data",), mesh=m), distribute(tc.asarray(wide), layout, mesh=m)
        product = tc.function(lambda x, w: (x @ w, tc.grad(lambda x, w: tc.sum((x @ w) ** 2), argnums=(0, 1))(x, w)))
        found, _ = run(product, *given)
        for one, other in zip(found, (y := narrow @ wide, 2 * y @ wide.T, 2 * narrow.T @ y), strict=True):
            close(one, other, f"a product of {rows_of_batch} rows, {layout}")

# One function for arguments in two layouts, by turns.
both = tc.function(lambda x: (x * 2.0, tc.sum(x, axis=0)))
rows, columns = distribute(tc.asarray(data), ("data",), mesh=m), distribute(tc.asarray(data), (None, "data"), mesh=m)
for _ in range(5):
    for x in (rows, columns):
        twice, sums = both(x)
        close(full(twice).numpy(), 2 * data, "two layouts")
        close(full(sums).numpy(), data.sum(axis=0), "two layouts")

# What stays as it is: a kernel of SciPy's, a draw, and an array of NumPy's beside divided ones.
beside = rng.normal(size=(8, 4))
mixed = tc.function(lambda x: (tc.special.stdtr(x * x + 0.5, x), x + beside, tc.cumulative_prod(x, axis=0)))
eager = [one.numpy() for one in mixed.python(tc.asarray(data))]
for one, other in zip(run(mixed, rows)[0], eager, strict=True):
    close(one, other, "as it is")
generator = tc.default_rng(0)
drawn = tc.function(lambda x: x + generator.normal((8, 4), dtype="float64"))
numbers = [full(drawn(rows)).numpy() for _ in range(6)]
again = tc.default_rng(0)
for one in numbers:
    close(one, data + again.normal((8, 4), dtype="float64").numpy(), "draws")

# An argument whose part lies otherwise in memory than that of the calls before.
lying = tc.function(lambda x: tc.reshape(x * 3.0, (-1,)))
run(lying, rows)
turned = np.asfortranarray(np.array_split(data, n)[m.rank])
close(full(lying(distribute(turned, ("data",), mesh=m, local=True))).numpy(), 3 * data.reshape(-1), "strides")


# Steps of training: what eager steps give; PyTorch looks up no layout, and small gradients are added up together.
def steps(kind, compiled):
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(6, activation="tanh") for _ in range(3)])
    model.build((None, 6))
    optimizer = nn.Adam(nn.schedules.ExponentialDecay(1e-2, 3, 0.9))
    strategy = kind(m)
    strategy.prepare(model)
    variables = model.trainable_variables

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - x) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    take = tc.function(step) if compiled else step
    batch = strategy.divide(tc.asarray(np.random.default_rng(1).normal(size=(8, 6))))
    losses = []
    for _ in range(8):
        calls = Calls()
        with calls:
            loss = take(batch)
        losses.append(float(loss))
    return losses, [full(v).numpy() for v in variables], [v.array.placements for v in variables], calls


for kind in (nn.parallel.Replicated, nn.parallel.Sharded):
    losses, values, placements, eager_calls = steps(kind, False)
    found, compiled_values, compiled_placements, calls = steps(kind, True)
    np.testing.assert_allclose(found, losses, rtol=1e-12)
    for one, other in zip(compiled_values, values, strict=True):
        close(one, other, kind.__name__)
    assert placements == compiled_placements
    assert calls.on_dtensors == 0 < eager_calls.on_dtensors, calls.on_dtensors
    if n > 1:
        sums = calls.sent["all_reduce"] + calls.sent["all_reduce_"]
        assert sums == 1, calls.sent  # of the loss, and of all gradients
        # All weights at once, and once for both passes; no batch is sent.
        assert calls.sent["all_gather_into_tensor"] == (kind is nn.parallel.Sharded), calls.sent
        assert not calls.sent["shard_dim_alltoall"] + eager_calls.sent["shard_dim_alltoall"], eager_calls.sent


# The gradient of a series that is taken apart, step by step and in boxes, as by a recurrent layer.
def steps_of(x):
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.sin(x[:, 0] * x[:, 1]) * x[:, 2]) + tc.sum(x[:2, 1, :2] * x[2:4, 0, 2:])
    return tape.gradient(y, x)


series = rng.normal(size=(8, 3, 4))
for layout in (("data",), (None, None, "data"), ()):
    found, _ = run(tc.function(steps_of), distribute(series, layout, mesh=m))
    close(found[0], steps_of(tc.asarray(series)).numpy(), f"a series, {layout}")

# Gradients that are sent alone, each in its own memory, to which a new value goes then.
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(divided_schedule, "SUMMED_ALONE_BYTES", 0)
    losses, values, _, _ = steps(nn.parallel.Replicated, False)
    found, compiled_values, _, calls = steps(nn.parallel.Replicated, True)
    np.testing.assert_allclose(found, losses, rtol=1e-12)
    for one, other in zip(compiled_values, values, strict=True):
        close(one, other, "sent alone")
    if n > 1:
        assert calls.sent["all_reduce_"] == 3, calls.sent  # products; sums along an axis are copied

# The gradient of an embedding is no call of Python's: what is left on DTensors are lookups, whose indices are checked.
tc.set_seed(0)
table, optimizer = nn.Embedding(8, 6), nn.Adam(1e-2)
table.build((None, 4))
nn.parallel.Sharded(m).prepare(table)


def lookup(k):
    with tc.GradientTape() as tape:
        loss = tc.sum(table(k) ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, table.embeddings), table.embeddings)])
    return loss


names = distribute(tc.asarray(np.arange(32).reshape(8, 4) % 7), ("data",), mesh=m)
eager_calls = Calls()
with eager_calls:
    lookup(names)
before = float(lookup(names))
(after,), calls = run(tc.function(lookup), names)
assert float(after) < before
assert calls.on_dtensors < eager_calls.on_dtensors / 2, (calls.on_dtensors, eager_calls.on_dtensors)

# An error is that of the op, at the user's line, in all processes.
refused = tc.function(lambda x, k: tc.linalg.cholesky(tc.matrix_transpose(x) @ x - k * tc.eye(4, dtype="float64")))
run(refused, rows, distribute(tc.asarray(0.0), (), mesh=m))
with pytest.raises(ValueError, match="positive"):
    refused(rows, distribute(tc.asarray(100.0), (), mesh=m))
assert local(rows).shape == (8 // n, 4)
