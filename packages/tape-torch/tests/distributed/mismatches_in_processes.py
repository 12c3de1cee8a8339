"""What test_mismatches.py runs in each of several processes, which do not all run the same program."""

from __future__ import annotations

import atexit
import sys
import time

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch
import torch.distributed as dist
from tape_torch.distributed import (
    MismatchError,
    PeerError,
    all_gather,
    all_reduce,
    averaged_gradient,
    broadcast,
    distribute,
    full,
    mesh,
)  # fmt: skip

tc.set_backend("torch:cpu")
axes = {"data": 2, "model": -1}
m = nn.parallel.mesh(axes, checked=True) if sys.argv[1] == "argument" else mesh(axes, device="cpu")
rank, n = m.rank, m.size
own = tc.ones((4,))
x = distribute(np.ones((4, 4 * n), "float32"), ("data",), mesh=m)


def mismatch(first, second):
    """Return a context for what processes 0 and 1 do otherwise, of which all are told the same."""
    told = rf"different programs: rank 0 calls {first} at \S+:\d+; rank 1 calls {second} at \S+:\d+.*same program"
    return pytest.raises(MismatchError, match=told)


with mismatch(r"all_reduce \(sum\) of float32 \(4,\)", r"all_reduce \(sum\) of float32 \(5,\)"):
    all_reduce(tc.ones((4 + (rank == 1),)), m)
with mismatch(r"all_reduce \(sum\) of float32 \(4,\)", r"broadcast \(from 0\) of float32 \(4,\)"):
    broadcast(own, m) if rank == 1 else all_reduce(own, m)
with mismatch(r"all_reduce \(sum\) of float32 \(4,\)", r"all_reduce \(sum\) of float64 \(4,\)"):
    all_reduce(tc.ones((4,), dtype="float64" if rank == 1 else "float32"), m)
with mismatch(r"all_reduce \(sum\) of float32 \(4,\)", r"all_reduce \(max\) of float32 \(4,\)"):
    all_reduce(own, m, reduction="max" if rank == 1 else "sum")
with mismatch(r"all_reduce of float32 \(4,\)", r"all_reduce of float32 \(2,\)"):  # PyTorch's own, on plain tensors
    dist.all_reduce(torch.ones(2 if rank == 1 else 4))
# In a compiled function, of gradients, and of DTensors, where PyTorch communicates by itself.
with mismatch(r"all_reduce \(sum\) of float32 \(4,\)", r"all_gather of float32 \(4,\)"):
    tc.function(lambda v: all_gather(v, m) if rank == 1 else all_reduce(v, m))(own)
v = tc.Variable(np.ones(3 + (rank == 1), "float32"))
with tc.GradientTape() as tape:
    loss = tc.sum(v * v)
averages = "averaged gradients of 1 array on cpu, of which "
with mismatch(averages + r"\[0\] float32 \(3,\) differs,", averages + r"\[0\] float32 \(4,\) differs,"):
    averaged_gradient(tape, loss, [v], m)
if n == 2:
    with mismatch(rf"all_gather of float32 \(2, {4 * n}\)", r"all_reduce \(sum\) of float32 \(\)"):
        full(x) if rank == 0 else float(tc.sum(x))
# Within the groups of an axis processes are named by their ranks; and those that wait in two groups are found, too.
if n == 4:
    if rank > 1:
        with pytest.raises(MismatchError, match=r"rank 2 calls all_reduce.*\(4,\).*rank 3 calls all_reduce.*\(5,\)"):
            all_reduce(tc.ones((rank + 2,)), m, "model")
    with pytest.raises(
        MismatchError, match=r"wait for each other.*rank \d calls all_reduce.*rank \d (calls|has died|has come)"
    ):
        all_reduce(own, m, "model" if rank in (0, 3) else "data")
else:
    # After all that they still compute together.
    assert all_reduce(own, m).tolist() == [float(n)] * 4
    assert float(tc.sum(x)) == 16.0 * n
    assert tc.function(lambda v: all_reduce(v, m))(own).tolist() == [float(n)] * 4

# A collective less: process 1 ends, and the others do not wait until their time is over.
if rank == 1:
    if n == 2:
        atexit._run_exitfuncs()  # as an interpreter does, and a process that is killed does not
else:
    begun = time.monotonic()
    kind, told = (MismatchError, "come to the end of its program") if n == 2 else (PeerError, "died. .*last checkpoint")
    with pytest.raises(kind, match=f"rank 1 has {told}"):
        all_reduce(own, m)
    assert time.monotonic() - begun < 100.0
print("done")  # noqa: T201
