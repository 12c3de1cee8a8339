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

if processes > 1:
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
