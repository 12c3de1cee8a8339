"""What test_mismatches.py runs in each of two processes: gradients of other Variables, or otherwise ordered."""

from __future__ import annotations

import re
import sys

import pytest
import tape_core as tc
from tape_torch.distributed import MismatchError, average_gradients, averaged_gradient, mesh

tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu", timeout=10.0, checked=sys.argv[1] == "checked")
rank = m.rank
own = [tc.Variable(0.0)] * (rank == 1)  # one process may have Variables of its own
a, b = tc.Variable(tc.ones(4), name="a"), tc.Variable(tc.ones(4) * 2, name="b")
unnamed = [tc.Variable(tc.ones(3) * k) for k in range(3)]
frozen = tc.Variable(tc.ones(4), name="c", trainable=rank == 0)
wide = tc.Variable(tc.ones(4 + rank), name="wide")


def averaged(sources):
    with tc.GradientTape() as tape:
        loss = sum(tc.sum(v**2) for v in (a, b, *unnamed, frozen, wide)) * (1.0 + rank)
    return averaged_gradient(tape, loss, sources, m)


def is_told(zero, one):
    return pytest.raises(
        MismatchError, match=f"rank 0 calls averaged gradients.* {zero}.*; rank 1 calls .* {one}.*the same order"
    )


for call in (averaged, tc.function(averaged)):
    esc = re.escape
    with is_told(esc("[0] 'a' float32 (4,)"), esc("[0] 'b' float32 (4,)")):
        call([b, a] if rank else [a, b])
    with is_told(r"\[1\] \(number 2 of 3 .*\) float32", r"\[1\] \(number 3 of 3 .*\) float32"):
        call([unnamed[k] for k in ((0, 2, 1) if rank else (0, 1, 2))])
    with is_told(esc("[1] 'wide' float32 (4,)"), esc("[1] 'wide' float32 (5,)")):
        call([a, wide])
    with is_told(esc("[1] 'c' float32"), esc("[1] 'b' float32")):
        call([v for v in (a, frozen, b) if v.trainable])
    with is_told("'c' float32|2 arrays", r"'c' \(not trainable\) float32|1 array"):
        call([a, frozen])
    with is_told(r"\['a'\] 'a'", r"\['z'\] 'a'"):
        call({"z" if rank else "a": a})
with pytest.raises(MismatchError, match=r"\[0\] float32 \(4,\).*\[0\] float32 \(5,\)"):
    average_gradients([tc.ones(4 + rank)], m)
# They still compute together.
for call in (averaged, tc.function(averaged)):
    for _ in range(3):
        assert [g.tolist() for g in call([a, b])] == [[3.0] * 4, [6.0] * 4]
        assert [g.tolist() for g in call(unnamed)] == [[3.0 * k] * 3 for k in range(3)]
print("done")  # noqa: T201
