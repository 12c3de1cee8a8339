"""Training that is saved by several processes goes on in others exactly as it would have, and torchrun resumes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import run_processes

_TRAIN = """
import os, sys
import torch, torch.distributed as dist
import tape_core as tc, tape_nn as nn
from tape_core.support import placement
from tape_torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

world = int(os.environ.get("WORLD_SIZE", "1"))
tc.set_backend("torch")
tc.set_seed(7)
model = nn.Sequential([nn.Dense(8, activation=tc.tanh), nn.Dropout(0.25), nn.Dense(4)])
model.build((None, 6))
optimizer, rng = nn.Adam(0.01), tc.default_rng(3)
if world > 1:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, world // 2) if world > 2 else (world,))

    def divided(variable, leader):
        # Kernels by columns, and by rows where there is a second axis; biases whole.
        axes = [Shard(1), Shard(0)] if variable.ndim == 2 else [Replicate(), Replicate()]
        return tc.asarray(distribute_tensor(variable.array, mesh, axes[: mesh.ndim]), backend="torch")

    variables = model.variables
    placement.relocate("test", variables, variables[0].backend, divided)

def whole(array):
    return array.full_tensor() if isinstance(array, DTensor) else array

def update():
    # Gradients that are drawn: the same bits in every layout, unlike sums that are taken in another order.
    gradients = []
    for v in model.trainable_variables:
        g, own = rng.normal(v.shape).array, v.array
        gradients.append(distribute_tensor(g, own.device_mesh, own.placements) if isinstance(own, DTensor) else g)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""

_FIRST = (
    _TRAIN
    + """
for step in range(3):
    update()
nn.save_run(sys.argv[1], model, optimizer, step=3, rng=rng, extra={"best": 0.1}, parallel=distributed)
for step in range(2):
    update()
for variable in model.variables:
    print(whole(variable.array).flatten().tolist())
print(model.layers[1](tc.ones((4,)), training=True).tolist())
"""
)

_SECOND = (
    _TRAIN
    + """
rng.normal((3,))
step, extra = nn.load_run(sys.argv[1], model, optimizer, rng=rng, parallel=distributed)
assert (step, extra) == (3, {"best": 0.1})
if world > 1:
    assert model.layers[0].kernel.array.placements == (Shard(1),)
for step in range(2):
    update()
for variable in model.variables:
    print(whole(variable.array).flatten().tolist())
print(model.layers[1](tc.ones((4,)), training=True).tolist())
if world > 1:
    assert all(
        value.array.placements == (Shard(1),)
        for name, value in optimizer.state_dict(model).items() if "layers.0.kernel/" in name and value.ndim
    )
"""
)


def test_training_goes_on_with_the_same_bits_on_two_and_on_one(tmp_path: Path) -> None:
    expected = run_processes(_FIRST, 4, str(tmp_path))
    assert len(set(expected)) == 1
    assert run_processes(_SECOND, 2, str(tmp_path)) == expected[:2]
    assert run_processes(_SECOND, 1, str(tmp_path)) == expected[:1]


_RESUMED = """
import os, sys
import tape_core as tc, tape_nn as nn
from tape_torch import distributed

folder, attempt = sys.argv[1], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
mesh = distributed.mesh({"data": -1}, device="cpu")
tc.set_backend("torch")
tc.set_seed(0)
model = nn.Dense(2)
model.build((None, 3))
optimizer, step = nn.Adam(0.1), 0
x = tc.reshape(tc.linspace(0.0, 1.0, 12), (4, 3))
with distributed.watched(timeout=120):
    if distributed.latest(folder) is not None:
        step, _ = nn.load_run(folder, model, optimizer, parallel=mesh)
    os.write(1, f"process {mesh.rank} begins at step {step}\\n".encode())  # whole: both write to one pipe
    while step < 6:
        if attempt == 0 and step == 4 and mesh.rank == 1:
            os.kill(os.getpid(), 9)
        with tc.GradientTape() as tape:
            loss = tc.mean(model(x) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        step += 1
        if step % 2 == 0:
            nn.save_run(folder, model, optimizer, step=step, parallel=mesh)
    os.write(1, f"process {mesh.rank} ends with {float(loss)!r}\\n".encode())
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_torchrun_resumes_a_run_of_which_a_process_was_killed(tmp_path: Path) -> None:
    program, logs = tmp_path / "train.py", tmp_path / "logs"
    program.write_text(_RESUMED)
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1", f"--log-dir={logs}"]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, str(program), str(tmp_path / "run")],
        env={**os.environ, "OMP_NUM_THREADS": "1", **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    lines = sorted(done.stdout.splitlines())
    begun = [line for line in lines if "begins" in line]
    assert begun == [f"process {rank} begins at step {step}" for rank in (0, 1) for step in (0, 4)]
    assert len({line.partition("ends")[2] for line in lines if "ends" in line}) == 1
