"""What test_memory.py runs in two processes: arrays are nobody's after the first steps, and do not stay in the heap."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import tape_core as tc
import torch
from tape_torch import divided
from tape_torch.distributed import distribute, mesh
from torch.multiprocessing.reductions import StorageWeakRef


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


tc.set_backend("torch:cpu")
m = mesh(device="cpu")

# The first calls of a kind, which are noted, keep nothing of what they were given until the garbage is collected.
gc.disable()
w = distribute(tc.Variable(tc.ones((64, 64))), ("data",), mesh=m)
memory = []
for _ in range(3):
    x = distribute(tc.ones((8, 64)), ("data",), mesh=m)
    with tc.GradientTape() as tape:
        y = x @ w
        loss = tc.sum(y * y)
    gradient = tape.gradient(loss, w)
    memory += [StorageWeakRef(divided.own_part(value.array).untyped_storage()) for value in (x, y, gradient)]
    del x, y, tape, loss, gradient
assert all([one.expired() for one in memory]), [one.expired() for one in memory]
gc.enable()

before, small = resident(), []
for _ in range(2):
    large = []
    for _ in range(8):
        large.append(torch.ones(4 << 20))
        small.append(torch.ones(25 << 10))
    del large
grown = (resident() - before) >> 20
assert grown < 48, f"{grown} MB stay where eight arrays of 16 MB were"
