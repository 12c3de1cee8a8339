"""What test_mismatches.py runs in each of two processes, whose mesh is not checked: their first calls differ."""

from __future__ import annotations

import time

import pytest
import tape_core as tc
import torch.distributed as dist
from tape_torch.distributed import (
    MismatchError,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    mesh,
    reduce_scatter,
)  # fmt: skip

tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu", timeout=5.0)
rank = m.rank
acts = {
    "all_reduce": all_reduce, "all_gather": all_gather, "reduce_scatter": reduce_scatter, "all_to_all": all_to_all,
    "broadcast": broadcast,
}  # fmt: skip
for k, (name, act) in enumerate(acts.items()):
    first = rf"rank 0 calls {name} .*\({4 + k * 10},\) at \S+:\d+"
    for call in (act, tc.function(lambda x, m, act=act: act(x, m))):
        with pytest.raises(MismatchError, match=rf"{first}; rank 1 calls {name} .*same program"):
            call(tc.ones(4 + k * 10 + 2 * rank), m)
with pytest.raises(MismatchError, match=r"rank 0 calls all_reduce \(sum\) of float32 \(3,\).*all_gather"):
    all_gather(tc.ones(3), m) if rank else all_reduce(tc.ones(3), m)
with pytest.raises(MismatchError, match=r"float32 \(7,\).* float64 \(7,\)"):
    all_reduce(tc.ones(7, dtype="float64" if rank else "float32"), m)
# They still compute together, and what they have called before they do not compare.
store = dist.distributed_c10d._get_default_store()
for _ in range(3):
    assert all_reduce(tc.ones(4), m).tolist() == [2.0] * 4
    keys = store.num_keys()
assert all_gather(tc.asarray([float(rank)]), m).tolist() == [0.0, 1.0]
assert all_reduce(tc.ones(4), m).tolist() == [2.0] * 4
assert store.num_keys() <= keys + 2, "notes of former calls stay"
# Something new beside something known: no process takes the bytes of one for those of the other.
begun = time.monotonic()
if rank:
    with pytest.raises(MismatchError, match=r"rank 0 has (waited in all_reduce|ended|come).*; rank 1 calls .*\(6,\)"):
        all_reduce(tc.ones(6), m)
else:
    with pytest.raises(RuntimeError):
        all_reduce(tc.ones(4), m)
assert time.monotonic() - begun < 60.0
print("done")  # noqa: T201
