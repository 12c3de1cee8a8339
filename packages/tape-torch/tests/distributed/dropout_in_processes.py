"""What test_dropout.py runs in each of several processes: dropout of divided arrays against one process."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch import random as kernels
from tape_torch.distributed import create, distribute, full, mesh

tc.set_backend("torch:cpu")
m = mesh({"data": 2, "model": -1}, device="cpu")

drawn = 0
whole_fractions = kernels._numpy_fractions


def fractions(key, counter, n, dtype):
    global drawn
    drawn += n
    return whole_fractions(key, counter, n, dtype)


kernels._numpy_fractions = fractions
data = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")


def masked(x, noise_shape=None):
    with tc.GradientTape() as tape:
        tape.watch(x)
        out = tc.dropout(x, 0.4, rng=rng, noise_shape=noise_shape)
        loss = tc.sum(out * out)
    return out, tape.gradient(loss, x)


# By parts a compiled function is computed from its fourth call on.
CALLS = 5 if os.environ.get("TAPE_COMPILED_PARTS") == "1" else 2
CASES = [
    ((), None),
    (("data",), None),
    (("data",), (8, 1, 4)),
    (("data", "model"), None),
    (("data", "model"), (6, 1)),
    ((("data", "model"),), None),
    ((None, "model"), (1, 6, 1)),
    ((None, None, "data"), None),
]
for layout, noise_shape in CASES[:: 1 if CALLS == 2 else 3]:
    shape = noise_shape or data.shape
    rng = tc.default_rng(3)
    expected = [[one.numpy() for one in masked(tc.asarray(data), noise_shape)] for _ in range(CALLS)]
    for compiled in (False, True):
        rng = tc.default_rng(3)
        run = tc.function(masked) if compiled else masked
        x = distribute(tc.asarray(data), layout, mesh=m)
        for values in expected:
            drawn = 0
            found = run(x, noise_shape)
            if noise_shape is None and layout and layout[0] is not None:
                # Rows of this process, and what is left of a block of eight numbers.
                parts = math.prod([m.axes[name] for name in np.atleast_1d(layout[0])])
                assert drawn <= data.size // parts + 16, (layout, drawn)
            for one, other in zip(found, values, strict=True):
                np.testing.assert_allclose(full(one).numpy(), other, rtol=1e-6, err_msg=f"{layout} {noise_shape}")

# Long rows that are divided: of each the numbers of the part alone.
rng, wide = tc.default_rng(3), np.ones((2, 3, 1 << 14), "float32")
expected = tc.dropout(tc.asarray(wide), 0.4, rng=rng).numpy()
rng, drawn = tc.default_rng(3), 0
out = tc.dropout(distribute(tc.asarray(wide), ("data", None, "model"), mesh=m), 0.4, rng=rng)
assert drawn <= wide.size // m.size + 64, drawn
np.testing.assert_array_equal(full(out).numpy(), expected)

# Parts of which the last is shorter, and one axis along which nothing is left to divide.
for rows in (7, 1):
    rng = tc.default_rng(5)
    expected = tc.dropout(tc.asarray(data[:rows] + 0.0), 0.4, rng=rng).numpy()
    rng = tc.default_rng(5)
    uneven = distribute(tc.asarray(data), ("data",), mesh=m)[:rows] + 0.0
    np.testing.assert_array_equal(full(tc.dropout(uneven, 0.4, rng=rng)).numpy(), expected)

# Other examples get other masks, in a vmap, in a checkpoint, and in parts that create makes in a compiled function.
x = distribute(tc.asarray(data), ("data",), mesh=m)
rng = tc.default_rng(7)
each = full(tc.vmap(lambda row: tc.dropout(row, 0.5, rng=rng), randomness="different")(x)).numpy()
rng = tc.default_rng(7)
expected = tc.vmap(lambda row: tc.dropout(row, 0.5, rng=rng), randomness="different")(tc.asarray(data)).numpy()
np.testing.assert_array_equal(each, expected)


def checkpointed(x):
    tc.set_seed(5)
    with tc.GradientTape() as tape:
        tape.watch(x)
        loss = tc.sum(tc.checkpoint(lambda x: tc.dropout(x, 0.5) ** 2)(x))
    return full(tape.gradient(loss, x)).numpy()


np.testing.assert_array_equal(checkpointed(x), checkpointed(tc.asarray(data)))

rng = tc.default_rng(9)
made = tc.function(lambda: create(rng.normal, (8, 4), ("data", "model"), mesh=m))
twice = [full(made()).numpy() for _ in range(2)]
rng = tc.default_rng(9)
for one in twice:
    np.testing.assert_allclose(one, rng.normal((8, 4)).numpy(), rtol=1e-5, atol=1e-6)

# Generators that differ would give masks of which no process knows the other parts.
rng = tc.default_rng(m.rank)
with pytest.raises(ValueError, match=r"the random generator of rank \d has another state"):
    tc.dropout(x, 0.5, rng=rng)

# A layer says the same, eagerly and compiled.
layer = nn.Dropout(0.5)
for call in (layer, tc.function(layer)):
    tc.set_seed(1)
    found = full(call(x)).numpy()
    tc.set_seed(1)
    np.testing.assert_array_equal(found, layer(tc.asarray(data)).numpy())
