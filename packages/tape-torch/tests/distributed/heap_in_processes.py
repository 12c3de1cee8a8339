"""What test_memory.py runs in two processes: large arrays that are freed do not stay in the heap of a process."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from tape_torch.distributed import mesh


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


mesh(device="cpu")
before, small = resident(), []
for _ in range(2):
    large = []
    for _ in range(8):
        large.append(torch.ones(4 << 20))
        small.append(torch.ones(25 << 10))
    del large
grown = (resident() - before) >> 20
assert grown < 48, f"{grown} MB stay where eight arrays of 16 MB were"
