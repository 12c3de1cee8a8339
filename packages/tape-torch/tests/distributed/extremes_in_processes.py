"""What test_collectives.py runs in each of two processes: NaN of one of them is in the extremes of all."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import tape_core as tc
from tape_torch.distributed import all_reduce, distribute, full, mesh

warnings.simplefilter("ignore")  # of ops that are computed on whole arrays
tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu")
functions = {
    "max": lambda x: tc.max(x, axis=0),
    "min": lambda x: tc.min(x, axis=0),
    "all": lambda x: tc.stack([tc.max(x), tc.min(x)]),
    "infinity norm": lambda x: tc.linalg.vector_norm(x, ord=float("inf")),
    "negative infinity norm": lambda x: tc.linalg.vector_norm(x, ord=-float("inf")),
    "squared": lambda x: tc.max(x, axis=0) ** 2,
    "in parts": lambda x: distribute(tc.max(x, axis=0), ("data",), mesh=m),
    "gradient": tc.grad(lambda x: tc.sum(tc.max(x, axis=0))),
}
compiled = {name: tc.function(f) for name, f in functions.items()}
for row, value in itertools.product(range(4), (np.nan, -np.nan, np.inf, -np.inf, -0.0)):
    x = np.random.default_rng(0).normal(size=(4, 4))
    x[row, 1] = value
    for name, f in functions.items():
        expected = full(f(tc.asarray(x))).numpy()
        for how, call, calls in (("eager", f, 1), ("compiled", compiled[name], 2)):
            for _ in range(calls):
                found = full(call(distribute(tc.asarray(x), ("data",), mesh=m))).numpy()
                np.testing.assert_array_equal(found, expected, err_msg=f"{name}, {how}, with {value} in row {row}")

for dtype, source in itertools.product((tc.float16, tc.bfloat16, tc.float32, tc.float64), range(m.size)):
    own = tc.asarray([float("nan") if m.rank == source else 1.5, 2.5 - m.rank, -0.5 - m.rank], dtype=dtype)
    for reduction, others in (("max", [2.5, -0.5]), ("min", [3.5 - m.size, 0.5 - m.size])):
        found = all_reduce(own, m, reduction=reduction)
        assert found.dtype is dtype
        np.testing.assert_array_equal(tc.astype(found, tc.float64).numpy(), [np.nan, *others])
        scalar = all_reduce(own[0], m, reduction=reduction)
        assert scalar.shape == ()
        assert np.isnan(float(scalar))
assert all_reduce(tc.asarray([m.rank, -m.rank]), m, reduction="min").tolist() == [0, 1 - m.size]
assert all_reduce(tc.asarray([1.0 + 2.0j]), m).tolist() == [m.size * (1.0 + 2.0j)]
assert all_reduce(tc.zeros((0, 3)), m, reduction="max").shape == (0, 3)
