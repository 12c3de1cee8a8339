"""A step of training in each of two processes, as test_distribution.py starts them; or all of it in one."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import tape_core as tc

tc.set_backend("jax")  # which leaves it to the program when JAX looks for devices
address, processes, process = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, processes, process)

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tape_jax  # noqa: E402
import tape_nn as nn  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from tape_jax import distributed  # noqa: E402

mesh = Mesh(np.asarray(jax.devices()), ("data",))
rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
data = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
mine = data[process * 4 : process * 4 + 4] if processes > 1 else data
x = tc.asarray(jax.make_array_from_process_local_data(rows, mine))
labels = tc.asarray(jax.make_array_from_process_local_data(rows, (mine[:, 0] > 0).astype("int64")))


def step(model: Any, optimizer: Any) -> Any:
    with tc.GradientTape() as tape:
        loss = tc.mean(tc.cross_entropy(model(x), labels))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


found: dict[str, list[float]] = {"loss": [], "weights": []}
for layout, how in ((everywhere, None), (rows, "python"), (everywhere, "xla"), (rows, "xla")):
    tc.set_seed(0)
    model, optimizer = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(8)]), nn.Adam(0.01)
    model.build((None, 4))
    tape_jax.distribute(model, lambda name, v, layout=layout: layout if v.shape[0] % 8 == 0 else everywhere)
    run = step if how is None else tc.function(step, compile=how)
    found["loss"] += [float(run(model, optimizer)) for _ in range(3)]
    found["weights"] += [float(tc.sum(tc.abs(v))) for v in model.variables]

# The same by the names that PyTorch's meshes have, and by a strategy.
m = nn.parallel.mesh({"data": -1})
assert (m.rank, m.axes) == (process if processes > 1 else 0, {"data": jax.device_count()})
assert distributed.agree(7 + process, mesh=m) == 7
joined = distributed.distribute(mine, ("data",), mesh=m, local=True)
np.testing.assert_array_equal(np.asarray(distributed.local(joined).numpy()), mine)
np.testing.assert_array_equal(distributed.full(joined).numpy(), data)
made = distributed.create(tc.default_rng(1).normal, (8, 4), ("data",), mesh=m)
found["weights"] += distributed.full(made).numpy().ravel().tolist()
strategy = nn.parallel.Sharded(m)
tc.set_seed(0)
model = nn.Dense(1)
history = nn.fit(
    model,
    (data, data[:, :1]),
    loss=nn.losses.MeanSquaredError(),
    optimizer=nn.SGD(0.1),
    batch_size=8,
    epochs=2,
    progress=False,
    compile="xla",
    parallel=strategy,
)
found["loss"] += history["loss"]
found["weights"] += distributed.full(model.kernel).numpy().ravel().tolist()


# Of arrays and data sets each process loads its own rows; a last batch that the mesh does not divide is loaded by all.
class Examples:
    """A data set that counts what is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 22

    def __getitem__(self, k: int) -> Any:
        self.asked.append(k)
        row = np.random.default_rng(k).normal(size=4).astype("float32")
        return row, row[:1] * 2 + tc.random.global_rng().uniform(
            (1,), dtype="float32"
        ).numpy()  # as an augmentation draws


for axes in ({"data": -1}, {"data": 2, "model": -1}, {"model": 2, "data": -1}):
    grid = nn.parallel.mesh(axes)
    for given in (Examples(), (data, data[:, :1])):
        tc.set_seed(0)
        model = nn.Dense(1)
        model.build((None, 4))
        history = nn.fit(
            model,
            given,
            loss=nn.losses.MeanSquaredError(),
            optimizer=nn.SGD(0.1),
            batch_size=8,
            epochs=2,
            shuffle=True,
            validation=given,
            progress=False,
            parallel=nn.parallel.Replicated(grid),
            seed=0,
        )
        found["loss"] += history["loss"] + history["val_loss"]
        found["weights"] += distributed.full(model.kernel).numpy().ravel().tolist()
        predicted = nn.predict(model, data, batch_size=4, progress=False, parallel=nn.parallel.Replicated(grid))
        found["weights"] += predicted.numpy().ravel().tolist()
    own = distributed.own_rows(8, "data", mesh=grid)
    assert own == (slice(0, 8) if processes == 1 or axes.get("model") == 2 else slice(4 * process, 4 * process + 4))

asked = Examples()
source = nn.fitting.data.source_of(asked, nn.Dense(1), 8, 0, parallel=nn.parallel.Replicated(m))
batches = nn.fitting.data.Divided(source, nn.parallel.Replicated(m)).batches(0)
next(batches)
asked.asked.clear()
batch = next(batches)
assert len(asked.asked) == 8 // processes, asked.asked
found["weights"] += distributed.full(batch)[0].numpy().ravel().tolist()

if processes > 1:
    with pytest.raises(ValueError, match="must give the same examples"):
        nn.evaluate(
            model,
            (data[: 4 + process], data[: 4 + process, :1]),
            loss=nn.losses.MeanSquaredError(),
            parallel=nn.parallel.Replicated(m),
        )
    with pytest.raises(ValueError, match=r"divide: an array of shape .* the processes have different ones"):
        distributed.divide(data + process, ("data",), mesh=m)
    with pytest.raises(
        ValueError, match=r"the parts of an array differ: rank 0 gives shape \(1,\).*rank 1 gives.*\(2,\)"
    ):
        distributed.distribute(np.ones(1 + process), ("data",), mesh=m, local=True)
    with tc.GradientTape() as tape, pytest.raises(ValueError, match="no derivative goes through the parts of several"):
        tape.watch(joined)
        distributed.local(joined)
    with pytest.raises(ValueError, match="create: the random generator of rank 1 has another state"):
        distributed.create(tc.default_rng(process).normal, (8, 4), ("data",), mesh=m)
    with pytest.raises(ValueError, match="on JAX a run in several processes is not saved by this"):
        nn.save_run("run", model, parallel=strategy)
    assert repr(x) == (
        "Tensor([values in several processes], shape=(8, 4), dtype=float32, backend=jax, "
        "device=cpu:0,1,2048,2049, sharding=P('data'))"
    ), repr(x)
    assert "several processes" in x._repr_html_()
    for read in (x.numpy, x.tolist, lambda: np.asarray(x), lambda: tc.to_backend(x, "numpy"), lambda: x[x > 0]):
        with pytest.raises(ValueError, match="process_allgather"):
            read()
    assert "several processes" in tc.broadcast_to(x, (500, 8, 4))._repr_html_()
    part = [np.asarray(shard.data) for shard in x.array.addressable_shards]
    np.testing.assert_array_equal(np.concatenate(part), mine)
    np.testing.assert_array_equal(jax.experimental.multihost_utils.process_allgather(x.array, tiled=True), data)
    with pytest.raises(ValueError, match=r"labels must be in \[0, 4\)"):
        tc.mean(tc.cross_entropy(x, labels + 4))
    same = tc.default_rng(0).normal((4,), device=x.device)
    found["weights"] += same.numpy().tolist()
else:
    found["weights"] += tc.default_rng(0).normal((4,)).numpy().tolist()
print(json.dumps(found))  # noqa: T201
