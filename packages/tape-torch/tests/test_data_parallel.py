"""Data parallelism as docs/torch.md has it: two processes with gloo train as one process does, eager and compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

_PROGRAM = """
import os
import sys
import torch
import torch.distributed as dist
import tape_core as tc, tape_nn as nn, tape_torch

torch.set_num_threads(1)
child = os.fork()  # after the imports, which take most of the time
rank, world = int(child == 0), 2
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=world)
tc.set_backend("torch")

def summed(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient

def train(rows, *, compiled, parallel):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    variables, optimizer = tape_torch.variables(model), nn.Adam(0.05)

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean(tape_torch.call(model, x) ** 2)
        gradients = tape.gradient(loss, variables)
        if parallel:
            gradients = [tape_torch.call(summed, g) / world for g in gradients]
        optimizer.apply_gradients(zip(gradients, variables))

    run = tc.function(step) if compiled else step
    for _ in range(5):
        run(tc.asarray(rows))
    return torch.cat([p.detach().flatten() for p in model.parameters()])

data = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
expected = train(data, compiled=False, parallel=False)
own = data[4 * rank : 4 * rank + 4]
for compiled in (False, True):
    torch.testing.assert_close(train(own, compiled=compiled, parallel=True), expected)
assert not torch.allclose(train(own, compiled=False, parallel=False), expected)

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

mesh = init_device_mesh("cpu", (world,))

def train_distributed(*, compiled, distributed):
    def spread(tensor, placement):
        return tc.asarray(distribute_tensor(tensor.clone(), mesh, [placement]) if distributed else tensor.clone())

    variables = [tc.Variable(spread(data[:3, :2], Replicate())), tc.Variable(spread(data[0, :2], Replicate()))]
    optimizer = nn.AdamW(0.05, global_clipnorm=0.1)

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.tanh(x @ variables[0] + variables[1]) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    run, rows = tc.function(step) if compiled else step, spread(data, Shard(0))
    arrays = [run(rows).array for _ in range(4)] + [v.array for v in variables]
    return torch.cat([(a.full_tensor() if distributed else a).flatten() for a in arrays])

expected = train_distributed(compiled=False, distributed=False)
for compiled in (False, True):
    torch.testing.assert_close(train_distributed(compiled=compiled, distributed=True), expected)

sharded = torch.nn.Sequential(torch.nn.Linear(3, 1).double())
fully_shard(sharded, mesh=mesh)
for parallel in (torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1).double()), sharded):
    for run in (tape_torch.call, tc.function(lambda f, x: tape_torch.call(f, x))):
        try:
            run(parallel, tc.asarray(own))
        except TypeError as error:
            assert "each process would train alone" in str(error)
        else:
            raise AssertionError(f"{parallel} is not refused")
dist.destroy_process_group()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch is built without torch.distributed")
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
