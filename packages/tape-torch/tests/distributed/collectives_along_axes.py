"""What test_collectives.py runs in each of four processes: collectives among those along one axis of a mesh."""

from __future__ import annotations

import numpy as np
import tape_core as tc
from tape_torch.distributed import all_gather, all_reduce, all_to_all, broadcast, mesh, reduce_scatter

tc.set_backend("torch:cpu")
m = mesh({"data": 2, "model": 2}, device="cpu")
X = np.random.default_rng(0).normal(size=(4, 4, 6))
G = np.random.default_rng(1).normal(size=(4, 8, 12))  # the cotangents, of which each result takes a corner
x = tc.asarray(X[m.rank])
place = m.coordinates
# By axis: the processes of this one's group, in their order, which are others for each process.
groups = {"data": [place["model"], 2 + place["model"]], "model": [2 * place["data"], 2 * place["data"] + 1]}
for axis, ranks in groups.items():
    k, own = place[axis], X[ranks]
    assert ranks[k] == m.rank

    def of_both(shape, ranks=ranks):
        """Return what the two processes of the group have as cotangents."""
        return [G[rank][tuple(slice(n) for n in shape)] for rank in ranks]

    half = slice(2 * k, 2 * k + 2)
    whole = sum(of_both((4, 6)))
    gathered = sum(of_both((8, 6)))
    parts = of_both((2, 12))  # of all_to_all: a row of blocks, one from each process
    greatest = own.max(0)
    cases = {
        "sum": (lambda x, a=axis: all_reduce(x, m, a), own.sum(0), whole),
        "mean": (lambda x, a=axis: all_reduce(x, m, a, reduction="mean"), own.mean(0), whole / 2),
        "max": (lambda x, a=axis: all_reduce(x, m, a, reduction="max"), greatest, whole * (X[m.rank] == greatest)),
        "all_gather": (lambda x, a=axis: all_gather(x, m, a), np.concatenate(own), gathered[4 * k : 4 * k + 4]),
        "reduce_scatter": (
            lambda x, a=axis: reduce_scatter(x, m, a),
            own.sum(0)[half],
            np.concatenate(of_both((2, 6))),
        ),
        "all_to_all": (
            lambda x, a=axis: all_to_all(x, m, a, split=0, concat=1),
            np.concatenate([one[half] for one in own], 1),
            np.concatenate([part[:, 6 * k : 6 * k + 6] for part in parts]),
        ),
        **{
            f"broadcast from {source}": (
                lambda x, a=axis, s=source: broadcast(x, m, a, source=s),
                own[source],
                whole if source == k else 0 * whole,
            )
            for source in (0, 1)
        },
    }
    for name, (f, value, gradient) in cases.items():

        def both(x, f=f):
            found, back = tc.vjp(f, x)
            return found, back(tc.asarray(G[m.rank][tuple(slice(n) for n in found.shape)]))[0]

        for how, call in (("eager", both), ("compiled", tc.function(both))):
            for got, expected in zip(call(x), (value, gradient), strict=True):
                np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, err_msg=f"{name} along {axis}, {how}")
